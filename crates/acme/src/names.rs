//! The names with certificates, which may change while these are ordered.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The names with certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The names, as [`name`](crate::name()) returns them; each has a certificate of its own.
    pub all: Vec<String>,
    /// The one whose certificate is also for clients that ask for no name, or for an unknown one.
    pub default: Option<String>,
}

/// Gives other names to the thread that orders certificates.
#[derive(Debug, Default)]
pub struct NamesControl {
    next: Mutex<Option<Names>>,
    changed: Condvar,
}

impl NamesControl {
    /// Replaces the names for which certificates are ordered, and does not wait for the certificates.
    pub fn replace(&self, names: Names) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(names);
        self.changed.notify_all();
    }

    /// Waits for other names, at most this long.
    pub(crate) fn wait(&self, time: Duration) -> Option<Names> {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(next, time, |next| next.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }
}
