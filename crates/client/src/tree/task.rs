//! A folder that is being fetched.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use url::Url;

use super::error::TreeOutcome;
use super::options::{OnTreeEvent, TreeGauge, TreeOptions};
use crate::download::RateLimit;
use crate::http::{HttpClient, without_credentials};

/// A folder that is being fetched, and the result so far.
pub(super) struct TreeFetch<'j, 'a> {
    pub(super) client: &'j HttpClient<'a>,
    pub(super) options: &'j TreeOptions,
    pub(super) url: Url,
    pub(super) path: &'j Path,
    pub(super) gauge: &'j TreeGauge,
    pub(super) on_event: &'j OnTreeEvent<'j>,
    /// Whether the server has ever answered.
    pub(super) has_answered: &'j AtomicBool,
    /// The limit that all connections share.
    pub(super) rate_limit: Arc<RateLimit>,
    pub(super) done: &'j mut TreeOutcome,
}

impl TreeFetch<'_, '_> {
    /// Records that the server has answered.
    pub(super) fn mark_answered(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    /// Accounts for received bytes, and waits until the limit allows them.
    pub(super) fn spend(&self, bytes: u64) {
        self.rate_limit.spend(bytes, self.client.cancel.as_slice());
    }

    /// Returns a URL without credentials, for messages and journals.
    pub(super) fn redacted(url: &Url) -> String {
        without_credentials(url).to_string()
    }
}
