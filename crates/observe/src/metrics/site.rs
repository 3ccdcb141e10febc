//! The counters of one site.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The name of a site, and its counters. There are as many as sites in the configuration.
#[derive(Debug, Default)]
pub struct SiteCounts {
    name: Box<str>,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl SiteCounts {
    /// Creates the counters of a site without requests.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Returns the name of the site.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts a response of this many bytes.
    pub fn count(&self, bytes: u64) {
        self.requests.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Returns the number of requests answered.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Returns the number of bytes sent.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

impl PartialEq for SiteCounts {
    /// Compares the names: two values with the same name belong to one site.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for SiteCounts {}
