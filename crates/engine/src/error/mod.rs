//! The errors that stop a transfer, and how far it got.

pub mod errno;
pub(crate) mod errno_help;
pub mod hint;
pub mod printable;

use std::fmt;
use std::io;
use std::time::Duration;

use rustix::io::Errno;

use crate::error::hint::{Action, Hint, Hinted, Plain};
use crate::integrity::Integrity;
use crate::mechanisms::mechanism::Mechanism;
use crate::mechanisms::step::DeclineReason;
use crate::report::Report;
use crate::size::Grouped;

/// The error that stopped a transfer. Each variant carries the [`Report`] up to that point:
/// [`Error::report`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The peer answered before it had everything:
    /// [`PeerMessage::Abort`](crate::PeerMessage::Abort).
    Answered {
        /// The report of what was done until then.
        report: Box<Report>,
    },
    /// The caller cancelled the transfer.
    Cancelled {
        /// The report of what was done until then.
        report: Box<Report>,
    },
    /// The required mechanism is not offered for these two ends.
    Declined {
        /// The mechanism that the policy requires.
        mechanism: Mechanism,
        /// The kernel's answer.
        reason: DeclineReason,
        /// The report of what was done until then.
        report: Box<Report>,
    },
    /// The file cannot be guarded as requested, and the policy allows no weaker guard.
    IntegrityDeclined {
        /// The requested level.
        level: Integrity,
        /// The kernel's answer.
        reason: DeclineReason,
        /// The report of what was done until then.
        report: Box<Report>,
    },
    /// The kernel reported an error.
    Io {
        /// The mechanism in use; `None` for the bytes of the chain's own memory.
        mechanism: Option<Mechanism>,
        /// The kernel's answer.
        source: io::Error,
        /// The report of what was done until then.
        report: Box<Report>,
    },
    /// A file changed while it was moved, so that the sink may hold a mixture of two versions.
    SourceChanged {
        /// The level that noticed.
        level: Integrity,
        /// The report of what was done until then.
        report: Box<Report>,
    },
    /// The source ended before the promised length.
    SourceEnded {
        /// Bytes that were promised in all.
        expected: u64,
        /// The report of what was done until then.
        report: Box<Report>,
    },
    /// Nothing, or too little, moved during the caller's timeout.
    Stalled {
        /// The timeout.
        timeout: Duration,
        /// The report of what was done until then.
        report: Box<Report>,
    },
}

/// The report of an error, shared or exclusive as the error itself is borrowed.
macro_rules! report_of {
    ($error:expr) => {
        match $error {
            Error::Answered { report }
            | Error::Cancelled { report }
            | Error::Declined { report, .. }
            | Error::IntegrityDeclined { report, .. }
            | Error::Io { report, .. }
            | Error::SourceChanged { report, .. }
            | Error::SourceEnded { report, .. }
            | Error::Stalled { report, .. } => report,
        }
    };
}

impl Error {
    /// Returns what was done before the transfer stopped. The report's `bytes` are in the sink.
    #[must_use]
    pub fn report(&self) -> &Report {
        report_of!(self)
    }

    /// Returns the report, for callers whose work takes several transfers.
    #[must_use]
    pub fn report_mut(&mut self) -> &mut Report {
        report_of!(self)
    }

    /// Returns the bytes delivered to the sink before the transfer stopped.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.report().bytes()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (moved, unit) = (Grouped(self.bytes()), unit_of(self.bytes()));
        match self {
            Self::Answered { .. } => write!(f, "the peer closed its end after {moved} {unit}"),
            Self::Cancelled { .. } => write!(f, "interrupted after {moved} {unit}"),
            Self::Declined { mechanism, reason, .. } => {
                write!(f, "{mechanism} is not available between these two ends ({})", reason.name())
            }
            Self::IntegrityDeclined { level, reason, .. } => {
                let meaning = level.meaning(*reason);
                write!(f, "integrity level {level} is refused ({}: {meaning})", reason.name())
            }
            Self::Io { mechanism: Some(mechanism), source, .. } => {
                write!(f, "{mechanism} failed after {moved} {unit}: {}", Plain(source))
            }
            Self::Io { mechanism: None, source, .. } => {
                write!(f, "failed after {moved} {unit}: {}", Plain(source))
            }
            Self::SourceChanged { level: Integrity::Lease, .. } => {
                write!(
                    f,
                    "a program opened the source for writing after {moved} {unit}, before the end"
                )
            }
            Self::SourceChanged { .. } => {
                write!(f, "the source changed during the transfer, after {moved} {unit}")
            }
            Self::SourceEnded { expected, .. } => {
                let (expected, unit) = (Grouped(*expected), unit_of(*expected));
                write!(f, "the source ended after {moved} of {expected} {unit}")
            }
            Self::Stalled { timeout, .. } => {
                write!(f, "too little progress in {timeout:?}, after {moved} {unit}")
            }
        }
    }
}

/// Returns the unit after a number of bytes.
const fn unit_of(bytes: u64) -> &'static str {
    if bytes == 1 { "byte" } else { "bytes" }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Hinted for Error {
    fn hint(&self) -> Option<Hint> {
        Some(Hint::new(match self {
            Self::Declined { .. } => "leave out --mechanism to use what the kernel offers",
            Self::IntegrityDeclined { .. } => "leave out --mechanism to fall back to detect",
            Self::SourceChanged { level: Integrity::Lease, .. } => {
                "the transfer outlasted the lease: try again, or use --integrity snapshot"
            }
            Self::SourceChanged { .. } => {
                "try again when no program writes to it, or use --integrity fast"
            }
            Self::SourceEnded { .. } => "the source was truncated, or the sender stopped",
            Self::Stalled { .. } => "set a longer limit with --timeout",
            Self::Io { source, .. } => match Errno::from_io_error(source)? {
                Errno::NOSPC | Errno::DQUOT | Errno::ROFS => return Action::Writing.hint(source),
                Errno::CONNABORTED => "the connection was cut: it ended without close_notify",
                Errno::CONNRESET => "the peer closed the connection early: see its error message",
                Errno::PIPE => "the reader closed its end early: see its error message",
                _ => return None,
            },
            _ => return None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let shown: Vec<_> =
            [0, 999, 1_000, 1_048_576].map(|number| Grouped(number).to_string()).into();
        assert_eq!(shown, ["0", "999", "1,000", "1,048,576"]);
    }

    #[test]
    fn a_kernel_error_is_reported_with_mechanism_and_bytes() {
        let mut report = Report::default();
        report.mechanisms[Mechanism::Sendfile as usize].bytes = 1 << 20;
        let error = Error::Io {
            mechanism: Some(Mechanism::Sendfile),
            source: Errno::PIPE.into(),
            report: Box::new(report),
        };
        assert_eq!(error.to_string(), "sendfile failed after 1,048,576 bytes: Broken pipe");
        let mut report = Box::<Report>::default();
        report.mechanisms[Mechanism::Sendfile as usize].bytes = 1;
        let error = Error::SourceEnded { expected: 2, report };
        assert_eq!(error.to_string(), "the source ended after 1 of 2 bytes");
        let error = Error::Cancelled { report: error.report().clone().into() };
        assert_eq!(error.to_string(), "interrupted after 1 byte");
    }

    #[test]
    fn a_full_target_has_the_hint_for_writing() {
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::ROFS] {
            let report = Box::default();
            let error = Error::Io { mechanism: None, source: errno.into(), report };
            let expected = Action::Writing.hint(&errno.into()).map(|hint| hint.to_string());
            assert!(expected.is_some(), "{errno}");
            assert_eq!(error.hint().map(|hint| hint.to_string()), expected);
        }
    }
}
