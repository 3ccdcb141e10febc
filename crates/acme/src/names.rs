//! The names with certificates, which may change while certificates are ordered.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use underpass_engine::wait::{lock, unpoison};

/// The names with certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The names, as [`name`](crate::name()) returns them; each has a separate certificate.
    pub all: Vec<String>,
    /// The name whose certificate is also for clients that request no name or an unknown one.
    pub default: Option<String>,
}

impl Names {
    /// Returns these names, each once, without a default.
    #[must_use]
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let mut all = Vec::new();
        for name in names {
            if !all.contains(&name) {
                all.push(name);
            }
        }
        Self { all, default: None }
    }
}

/// Replaces the names for which a thread orders certificates.
#[derive(Debug, Default)]
pub struct NamesControl {
    next: Mutex<Option<Names>>,
    changed: Condvar,
}

impl NamesControl {
    /// Replaces the names for which certificates are ordered, without waiting for the certificates.
    pub fn replace(&self, names: Names) {
        *lock(&self.next) = Some(names);
        self.changed.notify_all();
    }

    /// Waits for replaced names, at most this long.
    pub(crate) fn wait(&self, time: Duration) -> Option<Names> {
        let next = lock(&self.next);
        let waited = self.changed.wait_timeout_while(next, time, |next| next.is_none());
        unpoison(waited).0.take()
    }
}
