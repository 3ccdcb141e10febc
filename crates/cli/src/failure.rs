//! The failure of a command: its line, its hint and its exit code.

use std::error::Error;
use std::fmt;
use std::io;

use underpass_client::environment::EnvironmentError;
use underpass_client::upload::walk::WalkError;
use underpass_copy::ends::EndError;
use underpass_copy::{CopyError, CopyRefusal};
use underpass_diagnose::doctor::DoctorError;
use underpass_engine::hint::{Action, Hint, Hinted, PathError};
pub(crate) use underpass_engine::hint::{WithPath, in_words as plain};
use underpass_sandbox::SandboxError;
use underpass_server::ServeError;

use crate::args::ShowArgs;
use crate::clap_message::clap_message;
use underpass_receipt::Receipt;

/// The reason why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is invalid, or requests help.
    Arguments(clap::Error),
    /// Something else failed.
    Failed {
        /// One line: what failed, where and why.
        line: String,
        /// The hint at a remedy, if there is one.
        hint: Option<Hint>,
        /// The exit code of the process.
        exit_code: u8,
    },
    /// A network operation failed.
    Network {
        /// The action, such as `connecting to`.
        action: &'static str,
        /// The address that was used.
        address: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A system call on a file failed.
    Path(PathError),
    /// Another system call failed.
    System {
        /// The action, such as `waiting for signals`.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A transfer began and failed.
    Transfer {
        /// The transfer, such as `sending disk.img`.
        what: String,
        /// Why, with the engine's report.
        source: underpass_engine::Error,
        /// The hint at a remedy, if there is one.
        hint: Option<Hint>,
        /// The receipt of the work done before.
        receipt: Box<Receipt>,
        /// The forms in which the receipt is printed.
        show: ShowArgs,
    },
    /// An option that was typed, or comes from the environment or a file, is invalid.
    Usage(Box<dyn Error + Send + Sync>),
}

/// The errors of the command line; each command has its own type.
pub(crate) trait UsageError: Error + Send + Sync + 'static {}

impl<E: UsageError> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Usage(Box::new(error))
    }
}

/// A value of an option, a variable or a file is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {reason}")]
struct WrongValue {
    place: String,
    #[source]
    reason: Box<dyn Error + Send + Sync>,
}

/// The result of a command.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Creates a failure of one line, without a hint.
    pub(crate) fn line(line: impl fmt::Display) -> Self {
        Self::Failed { line: line.to_string(), hint: None, exit_code: 1 }
    }

    /// Creates the failure of an error, with this line, which says where it happened.
    pub(crate) fn hinted(line: String, error: &impl Hinted) -> Self {
        Self::Failed { line, hint: error.hint(), exit_code: 1 }
    }

    /// Creates the failure of a wrong value; `place` is the option, variable or line that has it.
    pub(crate) fn value(
        place: impl fmt::Display,
        reason: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Usage(Box::new(WrongValue { place: place.to_string(), reason: reason.into() }))
    }

    /// Creates the failure of a transfer, with its receipt.
    pub(crate) fn transfer(what: String, source: underpass_engine::Error, show: ShowArgs) -> Self {
        let mut receipt = Box::new(Receipt::from(source.report()));
        receipt.error = Some(source.to_string());
        let hint = source.hint();
        Self::Transfer { what, source, hint, receipt, show }
    }

    /// Returns how many bytes a transfer moved before it failed.
    pub(crate) fn moved_bytes(&self) -> u64 {
        match self {
            Self::Transfer { receipt, .. } => receipt.bytes,
            _ => 0,
        }
    }

    /// Completes the receipt of a failed transfer, like that of a successful one.
    pub(crate) fn with_receipt(mut self, complete: impl FnOnce(Receipt) -> Receipt) -> Self {
        if let Self::Transfer { receipt, .. } = &mut self {
            **receipt = complete(std::mem::take(receipt));
        }
        self
    }

    /// Creates the failure of a copy; that of a transfer with its receipt.
    pub(crate) fn copy(error: CopyError, show: ShowArgs) -> Self {
        let of_copy = error.hint();
        match error {
            CopyError::Transfer { from, to, source } => {
                let what = format!("copying {} to {}", from.display(), to.display());
                let mut failure = Self::transfer(what, source, show);
                if let Self::Transfer { hint, .. } = &mut failure {
                    *hint = of_copy;
                }
                failure
            }
            // The command line was right: this is a failed copy, not wrong usage.
            error @ CopyError::Refused(CopyRefusal::Exists { .. }) => Self::line(error),
            CopyError::Overlap(overlap) => Self::Usage(overlap.into()),
            CopyError::Refused(refusal) => Self::Usage(refusal.into()),
            error => Self::hinted(error.to_string(), &error),
        }
    }

    /// The exit code of a command that ran, and found a problem in what it examined.
    pub(crate) const FOUND: u8 = 3;

    /// Creates the failure of a command that ran, and found a problem in what it examined.
    pub(crate) fn finding(line: impl fmt::Display) -> Self {
        Self::Failed { line: line.to_string(), hint: None, exit_code: Self::FOUND }
    }

    /// Returns the exit code of the process: 2 for wrong usage, 3 for a problem that was found, a
    /// shell's code if a program that is to be explained cannot be run, 1 for everything else.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Arguments(_) | Self::Usage(_) => 2,
            Self::Failed { exit_code, .. } => *exit_code,
            _ => 1,
        }
    }

    /// Returns a remedy, if there is one.
    pub(crate) fn hint(&self) -> Option<Hint> {
        match self {
            Self::Arguments(_) | Self::System { .. } | Self::Usage(_) => None,
            Self::Failed { hint, .. } | Self::Transfer { hint, .. } => *hint,
            // A Unix socket has no port.
            Self::Network { address, source, .. } if address.starts_with("unix:") => {
                match source.kind() {
                    io::ErrorKind::PermissionDenied => Some(Hint::new(
                        "the permissions of the socket or of its folder do not allow it",
                    )),
                    io::ErrorKind::AddrInUse => Some(Hint::new(
                        "another program listens there, or a file is there: choose another path",
                    )),
                    io::ErrorKind::InvalidFilename => {
                        Some(Hint::new("the path of a socket has some 100 bytes at most"))
                    }
                    _ => Hint::of_network(source),
                }
            }
            Self::Network { address, source, .. }
                if source.kind() == io::ErrorKind::InvalidInput && address.contains("::ffff:") =>
            {
                Some(Hint::new("give an IPv4 address without ::ffff: before it"))
            }
            Self::Network { source, .. } => Hint::of_network(source),
            Self::Path(error) => error.hint(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arguments(error) => f.write_str(&clap_message(error)),
            Self::Failed { line, .. } => f.write_str(line),
            Self::Network { action, address, source } => {
                write!(f, "{action} {address}: {}", plain(source))
            }
            Self::Path(error) => error.fmt(f),
            Self::System { action, source } => write!(f, "{action}: {}", plain(source)),
            Self::Transfer { what, source, .. } => write!(f, "{what}: {source}"),
            Self::Usage(error) => error.fmt(f),
        }
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        Self::Path(error)
    }
}

impl From<EndError> for Failure {
    fn from(error: EndError) -> Self {
        match error {
            EndError::Path(error) => error.into(),
            error => Self::line(error),
        }
    }
}

impl From<WalkError> for Failure {
    fn from(error: WalkError) -> Self {
        match error {
            WalkError::Path(error) => error.into(),
            error => Self::line(error),
        }
    }
}

impl From<EnvironmentError> for Failure {
    fn from(error: EnvironmentError) -> Self {
        match error {
            EnvironmentError::Netrc { path, source } => {
                PathError::new("reading", path, source).into()
            }
            error => Self::Usage(error.into()),
        }
    }
}

impl From<DoctorError> for Failure {
    fn from(error: DoctorError) -> Self {
        match error {
            DoctorError::Unsuitable(why) => Self::Usage(why.into()),
            error => Self::hinted(error.to_string(), &error),
        }
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Self::Arguments(error)
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Listen { address, source } => {
                Self::Network { action: "listening on", address, source }
            }
            ServeError::Header(fault) => Self::value("--header", fault),
            ServeError::Io { action, source } => Self::System { action, source },
            error @ (ServeError::Pattern { .. } | ServeError::Sites(_)) => {
                Self::Usage(error.into())
            }
            ServeError::Root { path, source } => {
                PathError::new(Action::Serving, path, source).into()
            }
            error => Self::line(error),
        }
    }
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        match error {
            SandboxError::Unreadable { path, source } => {
                PathError::new(Action::Serving, path, source).into()
            }
            error => Self::value("--user", error),
        }
    }
}
