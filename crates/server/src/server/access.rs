//! Who sends a request, and whether the rules let the request go on.

use rustix::io::Errno;

use super::answer::{Asking, Place, is_reserved};
use super::folder;
use super::hosts;
use super::question::Question;
use super::response::Response;
use crate::auth::{CHALLENGE, Right, Verdict};
use crate::request::Method;
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
            Verdict::Allowed { user: None } | Verdict::Partial { user: None }
                if access.has_users() && target.query.has("login") =>
            {
                Some(self.challenge())
            }
            Verdict::Allowed { user } => {
                // Kept, because the request may be looked at again.
                self.known.verdict = Some(Verdict::Allowed { user: user.clone() });
                self.user = user;
                if self.user.is_none() { hosts::refusal(self) } else { None }
            }
            Verdict::Partial { user } => {
                self.known.verdict = Some(Verdict::Partial { user: user.clone() });
                self.user = user;
                self.is_partial = true;
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

    /// Answers a request for a path of which only the names may be known that lead to what the client
    /// may read: with a listing of these, or as if it might know nothing.
    pub(super) fn partial(&mut self, target: &Target<'_>) -> Result<Response, Question> {
        let shared = &self.worker.shared;
        let settings = &shared.settings;
        let is_page = settings.renders_index || (settings.renders_spa && target.path.is_empty());
        let is_read = matches!(self.request.method, Method::Get | Method::Head);
        let is_listed = is_read && settings.listing && !is_page && !shared.root.is_file();
        if !is_listed || is_reserved(&target.path) || target.query.has("archive") {
            return Ok(self.denied());
        }
        match self.find(&target.path)? {
            Ok(Place::Folder(_)) if !target.is_folder => Ok(self.redirect(target)),
            Ok(Place::Folder(folder)) => folder::answer(self, target, folder),
            _ => Ok(self.denied()),
        }
    }

    /// Refuses what the client may not read; perhaps it can say who it is.
    fn denied(&self) -> Response {
        if self.user.is_none() && self.worker.shared.settings.access.has_users() {
            return self.challenge();
        }
        self.error(403, "")
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
