//! The attributes that a copy lacks.

use std::path::PathBuf;

use rustix::io::Errno;
use underpass_engine::hint::Action;

use crate::error::CopyError;

/// The requested attributes that a copy lacks: the first action that was refused.
///
/// The copy stays, as its bytes are right; the command fails.
#[derive(Debug, Default)]
pub(crate) struct MissingAttrs(Option<(Action, Errno)>);

impl MissingAttrs {
    /// Begins with the reason why an ACL could not be read, if it could not.
    pub(super) fn of_acl(error: Option<Errno>) -> Self {
        Self(error.map(|errno| ("keeping mode of".into(), errno)))
    }

    /// Remembers the first refusal.
    pub(super) fn record<T>(
        &mut self,
        action: impl Into<Action>,
        outcome: Result<T, Errno>,
    ) -> Option<T> {
        match outcome {
            Ok(done) => Some(done),
            Err(errno) => {
                self.0.get_or_insert((action.into(), errno));
                None
            }
        }
    }

    /// Returns the refusal as an error, if there was one.
    pub(crate) fn failure(self, path: impl FnOnce() -> PathBuf) -> Option<CopyError> {
        let (action, errno) = self.0?;
        Some(CopyError::Path { action, path: path(), source: errno.into() })
    }
}
