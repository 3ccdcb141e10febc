//! Who sends a request, and whether the rules let the request go on.

use rustix::io::Errno;

use super::answer::Asking;
use super::hosts;
use super::question::Question;
use super::response::Response;
use crate::auth::{CHALLENGE, Right, Verdict};
use crate::target::Target;

impl Asking<'_, '_, '_> {
    /// Who asks, and whether he may.
    pub(super) fn check_access(
        &mut self,
        target: &Target<'_>,
    ) -> Result<Option<Response>, Question> {
        let access = &self.worker.shared.settings.access;
        if access.is_empty() {
            return Ok(hosts::refusal(self));
        }
        let verdict = match self.known.verdict.take() {
            Some(verdict) => verdict,
            None => {
                let changes = self.request.method.changes() || self.asks_of_upload(target);
                let right = if changes { Right::Write } else { Right::Read };
                access.check(self.request.field("authorization"), &target.path, right)
            }
        };
        Ok(match verdict {
            Verdict::Allowed { user: None } if access.has_users() && target.query.has("login") => {
                Some(self.challenge())
            }
            Verdict::Allowed { user } => {
                // Kept, because the request may be looked at again.
                self.known.verdict = Some(Verdict::Allowed { user: user.clone() });
                self.user = user;
                if self.user.is_none() { hosts::refusal(self) } else { None }
            }
            Verdict::Busy => {
                let mut response = self.error(429, "too many passwords are being checked");
                response.add_field("Retry-After", "1");
                Some(response)
            }
            Verdict::Challenge => Some(self.challenge()),
            Verdict::Wrong => return Err(Question::Wrong),
            Verdict::Forbidden => Some(self.error(403, "")),
            Verdict::Verify(pending) => return Err(Question::Verify(pending)),
        })
    }

    /// Asks who it is.
    pub(super) fn challenge(&self) -> Response {
        let mut response = self.error(401, "a name and a password are needed");
        response.add_field("WWW-Authenticate", CHALLENGE);
        response
    }

    /// Whether the path that links led to may be read as well, if they led to any.
    pub(super) fn may_reach(&self, reached: Option<&[u8]>) -> Result<(), Errno> {
        let access = &self.worker.shared.settings.access;
        let user = self.user.as_deref();
        match reached.is_none_or(|reached| access.can(user, reached, Right::Read)) {
            true => Ok(()),
            false => Err(Errno::ACCESS),
        }
    }
}
