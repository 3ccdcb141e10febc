//! The refusals of uploads, as responses to the client.

use std::borrow::Cow;
use std::io;

use rustix::io::Errno;
use underpass_engine::{Grouped, Report, errno};

use crate::changes::answer::methods_of_folder;
use crate::changes::refusal::NAME_REFUSED;
use crate::routing::response::{RETRY_SOON, Response};
use crate::server::settings::Changes;
use crate::server::sites::site::Site;
use crate::uploads::received::{IncompleteBody, IncompleteCause};
use crate::uploads::state::locks::UploadLockError;
use crate::uploads::state::slots::AbortReason;
use underpass_protocol::request::{Method, Request};
use underpass_protocol::upload::{Problem, UploadLimits};
use underpass_transport::incoming::ReceiveError;

pub(super) type Result<T, E = UploadRefusal> = std::result::Result<T, E>;

/// The reason why an upload is refused or aborted.
#[derive(Debug)]
pub(crate) struct UploadRefusal {
    status: u16,
    detail: Cow<'static, str>,
    /// The problem type, for programs.
    problem: Option<Problem>,
    fields: Vec<(&'static str, String)>,
}

impl UploadRefusal {
    /// Creates a refusal with this status and one sentence for people.
    pub(crate) fn new(status: u16, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { status, detail: detail.into(), problem: None, fields: Vec::new() }
    }

    /// Creates the refusal of a resumable upload with a mismatch.
    pub(crate) fn problem(problem: Problem) -> Self {
        Self { problem: Some(problem), ..Self::new(problem.status(), "") }
    }

    /// Returns whether the file is larger than the server or its disk allows: resuming the upload
    /// would not help.
    pub(crate) fn is_too_large(&self) -> bool {
        self.status == 413
    }

    /// Adds a field.
    pub(crate) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.fields.push((name, value.to_string()));
        self
    }

    /// Returns the response, in the form that the client understands.
    pub(crate) fn response(&self, request: &Request, changes: &Changes) -> Response {
        let mut response = match self.problem {
            Some(problem) => {
                let text = problem.to_string().into_bytes();
                let is_head = request.method == Method::Head;
                Response::memory(self.status, Problem::MEDIA_TYPE, text, is_head)
            }
            None => Response::error_for(request, self.status, &self.detail, &[]),
        };
        for (name, value) in &self.fields {
            response.add_field(name, value);
        }
        // The URL of a resumable upload has methods of its own.
        if self.status == 405 && self.fields.is_empty() {
            response.add_field("Allow", &methods_of_folder(changes));
        }
        response
    }

    /// Creates the refusal of a body that is longer than allowed.
    pub(crate) fn too_long(limit: Option<u64>) -> Self {
        match limit {
            Some(limit) => Self::new(413, format!("files can have at most {} here", exact(limit))),
            None => Self::new(413, "the file system cannot hold a file of this size"),
        }
    }

    /// Creates the refusal of a file with the name of a folder.
    pub(crate) fn is_folder() -> Self {
        Self::new(405, "there is a folder of this name")
    }

    /// Creates the response to an upload that has its name, which may not be on the disk.
    pub(crate) fn unsynced(errno: Errno) -> Self {
        let error = io::Error::from(errno);
        let detail = "the file is in place, but may not survive a power cut; the system says";
        Self::new(500, format!("{detail}: {error}"))
    }

    /// Creates the refusal of a change of a file that others change at the same time.
    pub(crate) fn changed() -> Self {
        let detail = "the file was changed meanwhile; try again soon";
        Self::new(503, detail).with("Retry-After", RETRY_SOON)
    }

    /// Creates the refusal of an upload that another request has superseded.
    pub(crate) fn superseded() -> Self {
        Self::new(409, "another request has resumed this upload, or begun it anew")
    }

    /// Creates the refusal of a body for which there is no room (RFC 4918 11.5).
    pub(crate) fn full() -> Self {
        Self::new(507, "not enough space")
    }
}

impl From<Errno> for UploadRefusal {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOSPC => Self::full(),
            Errno::DQUOT => Self::new(507, "the quota is used up"),
            Errno::FBIG => Self::too_long(None),
            Errno::ACCESS | Errno::PERM => Self::new(403, "the server may not write there"),
            Errno::ROFS => Self::new(403, "the file system is read-only"),
            // RFC 4918 9.7.1: the parent folder must exist.
            Errno::NOENT | Errno::LOOP | Errno::XDEV => {
                Self::new(409, "its parent folder does not exist")
            }
            Errno::NOTDIR => Self::new(409, "a file is in the place of its parent folder"),
            Errno::STALE => Self::new(409, "its parent folder was moved or replaced meanwhile"),
            // Another request or program has just created a folder there.
            Errno::ISDIR => Self::is_folder(),
            Errno::NAMETOOLONG => Self::new(400, "the name is too long"),
            // From FAT, NTFS and exFAT, for characters such as a colon (open(2)).
            Errno::INVAL | Errno::ILSEQ => Self::new(400, NAME_REFUSED),
            // RFC 9110 13.1.2: another request or program took the name first.
            Errno::EXIST => Self::new(412, "there is a file of this name already"),
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
                Self::new(503, TRY_AGAIN).with("Retry-After", RETRY_SOON)
            }
            _ => Self::new(500, "the file cannot be written"),
        }
    }
}

impl From<io::Error> for UploadRefusal {
    fn from(error: io::Error) -> Self {
        Errno::from_io_error(&error).map_or_else(|| Self::new(500, ""), Self::from)
    }
}

impl From<UploadLockError> for UploadRefusal {
    fn from(error: UploadLockError) -> Self {
        match error {
            UploadLockError::Kept => {
                let detail = "another request is completing this upload";
                Self::new(503, detail).with("Retry-After", RETRY_SOON)
            }
            UploadLockError::Io(error) => error.into(),
        }
    }
}

impl IncompleteBody {
    /// Returns the description of a failure for the log, and the refusal for the client.
    pub(crate) fn of(error: &ReceiveError, limit: Option<u64>) -> (Self, UploadRefusal) {
        let broken = |cause| Self { cause, reason: None };
        match error {
            ReceiveError::Cut | ReceiveError::Ended => (
                broken(IncompleteCause::Reset),
                UploadRefusal::new(400, "the body ended too early"),
            ),
            ReceiveError::Stalled | ReceiveError::Late => (
                broken(IncompleteCause::Timeout),
                UploadRefusal::new(408, "nothing arrived for too long"),
            ),
            ReceiveError::Chunk(fault) => {
                (broken(IncompleteCause::Malformed), UploadRefusal::new(400, fault.to_string()))
            }
            ReceiveError::TooLong => {
                (broken(IncompleteCause::TooLong), UploadRefusal::too_long(limit))
            }
            ReceiveError::Cancelled => {
                (broken(IncompleteCause::Superseded), UploadRefusal::superseded())
            }
            ReceiveError::Io(source) => Self::of_system(source, error),
            ReceiveError::Engine(engine) => match &**engine {
                underpass_engine::Error::Io { source, .. } => Self::of_system(source, error),
                _ => Self::of_system(&io::ErrorKind::Other.into(), error),
            },
        }
    }

    /// Returns the same for a body that the server itself has ended.
    pub(crate) fn aborted(reason: AbortReason, site: &Site) -> (Self, UploadRefusal) {
        let broken = |cause| Self { cause, reason: None };
        match reason {
            AbortReason::TooSlow => {
                let rate = site.settings.changes.min_rate;
                let window = site.shared.settings.timeout.as_secs();
                let detail = format!("slower than {rate} bytes per second over {window} seconds");
                (broken(IncompleteCause::TooSlow), UploadRefusal::new(408, detail))
            }
            AbortReason::Full => (broken(IncompleteCause::Full), UploadRefusal::full()),
        }
    }

    /// Returns the same for an error of the system, either of the connection or of the file.
    fn of_system(source: &io::Error, error: &ReceiveError) -> (Self, UploadRefusal) {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut};
        if matches!(source.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut) {
            let broken = Self { cause: IncompleteCause::Reset, reason: None };
            return (broken, UploadRefusal::new(400, "the connection was lost"));
        }
        let errno = errno::of(source);
        // The file system has accepted the name, so this error is not about it.
        let errno = if errno == Errno::INVAL { Errno::IO } else { errno };
        let reason = Some(error.to_string());
        (Self { cause: IncompleteCause::Failed, reason }, errno.into())
    }
}

/// Returns the limits of uploads, as clients see them.
pub(crate) fn limits(changes: &Changes) -> UploadLimits {
    UploadLimits { max_size: changes.limit, max_age: Some(changes.expiry.as_secs()) }
}

/// Returns the response if there are more uploads than the server has threads for.
pub(crate) fn too_many() -> Response {
    // The body is not awaited, because it may arrive slowly.
    let mut response = Response::error(503, TRY_AGAIN).closing();
    response.add_field("Retry-After", RETRY_SOON);
    response
}

/// Returns the names of the mechanisms that moved the bytes, for `Server-Timing`.
pub(crate) fn mechanism_names(report: &Report) -> String {
    let names: Vec<_> = report.mechanisms().map(|(mechanism, _)| mechanism.name()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join("+") }
}

/// Returns a number of bytes in the largest unit of which it is a whole multiple, as people give
/// limits.
fn exact(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = UNITS.iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    match unit {
        Some((shift, unit)) => format!("{} {unit}", Grouped(bytes >> shift)),
        None => format!("{} bytes", Grouped(bytes)),
    }
}

const TRY_AGAIN: &str = "the server is too busy; try again soon";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_shown_as_it_was_given() {
        let shown = [2, 1_000, 1 << 20, 3 << 29, 10 << 30].map(exact);
        assert_eq!(shown, ["2 bytes", "1,000 bytes", "1 MiB", "1,536 MiB", "10 GiB"]);
    }

    #[test]
    fn a_folder_created_meanwhile_is_not_a_server_error() {
        assert_eq!(UploadRefusal::from(Errno::ISDIR).status, 405);
    }

    #[test]
    fn a_refusal_names_disk_quota_or_mount_as_the_reason() {
        for (errno, status, detail) in [
            (Errno::NOSPC, 507, "not enough space"),
            (Errno::DQUOT, 507, "the quota is used up"),
            (Errno::ROFS, 403, "the file system is read-only"),
        ] {
            let refusal = UploadRefusal::from(errno);
            assert_eq!((refusal.status, &*refusal.detail), (status, detail));
        }
    }
}
