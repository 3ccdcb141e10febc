//! How a download ends.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use underpass_engine::hint::{Action, Plain};
use underpass_engine::{Error, Report};

use crate::client::error::ClientError;
use crate::digest::Fact;
use crate::incoming::ReceiveError;
use crate::tls::Facts;

/// Why a download failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum DownloadError {
    /// Another process is about to fetch the same file to the same place.
    Busy,
    /// The file on the server changed again and again while it was fetched, or changed after a
    /// part of it had gone where it cannot be taken back from.
    Changed,
    /// The server could not be asked, or its answer not be used.
    Client(ClientError),
    /// The bytes could not be moved.
    Engine(Box<Error>),
    /// It is not what it should be.
    Digest(Box<Fact>),
    /// There is a file of this name, and it is not the same.
    Exists,
    /// Something about a file of ours.
    Local {
        /// What was being done, such as `creating`.
        action: Action,
        /// What the system answered.
        source: io::Error,
    },
    /// The server says no digest that the file could be verified by.
    NoDigest,
    /// There is not enough room for it.
    NoRoom {
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A partial file is in the way that nothing is known about.
    Stranger {
        /// Its name.
        name: OsString,
    },
}

/// What a download did.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// What was moved, and how, by all connections.
    pub report: Report,
    /// The length of the file.
    pub size: u64,
    /// Bytes that were here before; all of them if nothing had to be fetched.
    pub resumed_at: u64,
    /// The most connections that were at work at one time.
    pub connections: u32,
    /// Whether the file was here already.
    pub was_here: bool,
    /// What is known of its digests.
    pub facts: Vec<Fact>,
    /// What is known of the TLS that it came over, if it did.
    pub tls: Option<Facts>,
}

/// A download that failed, and what it leaves.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub error: DownloadError,
    /// What was moved up to then.
    pub report: Box<Report>,
    /// What is kept beside the target, to be gone on with.
    pub kept: Option<Kept>,
    /// What is known of the TLS that the server was asked over last, if it was.
    pub tls: Option<Box<Facts>>,
}

/// A part of a file that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name, in the folder of the target.
    pub name: OsString,
    /// How many bytes are in it.
    pub bytes: u64,
}

impl DownloadError {
    /// What went wrong while the body of an answer was being moved.
    pub(super) fn body(address: &str, error: ReceiveError) -> Self {
        let network = |source| ClientError::Network {
            action: "receiving from",
            address: address.to_owned(),
            source,
        };
        match error {
            ReceiveError::Ended => {
                let message = "the connection ended before the last byte";
                network(io::Error::new(io::ErrorKind::UnexpectedEof, message)).into()
            }
            ReceiveError::Engine(error) => match *error {
                Error::Io { source, .. } if is_of_network(&source) => network(source).into(),
                error => Self::Engine(Box::new(error)),
            },
            error => ClientError::receiving(address, error).into(),
        }
    }

    /// Whether another attempt may succeed.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_temporary())
    }

    /// How long the server asks to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Client(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Whether no server seems to be at the address.
    pub(super) fn is_nobody(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_nobody())
    }

    /// An error of the system while something was done with a file.
    pub(super) fn local<E: Into<io::Error>>(action: impl Into<Action>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::Local { action, source: source.into() }
    }
}

/// Whether this can only be said of a connection, not of what its bytes go to.
fn is_of_network(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| {
        matches!(
            errno,
            Errno::CONNABORTED
                | Errno::CONNRESET
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::NETDOWN
                | Errno::NETRESET
                | Errno::NETUNREACH
                | Errno::TIMEDOUT
        )
    })
}

impl From<ClientError> for DownloadError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl<E: Into<DownloadError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self { error: error.into(), report: Box::default(), kept: None, tls: None }
    }
}

impl fmt::Display for DownloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("another process is fetching it to the same place"),
            Self::Changed => f.write_str("the file on the server changed while it was fetched"),
            Self::Client(error) => error.fmt(f),
            Self::Engine(error) => error.fmt(f),
            Self::Digest(fact) => {
                let found = fact.found.hex();
                match &fact.expected {
                    Some(expected) => {
                        write!(f, "its {} is {found}, not {}", expected.algorithm(), expected.hex())
                    }
                    None => write!(f, "its {} is {found}", fact.found.algorithm()),
                }
            }
            Self::Exists => f.write_str("there is a file of this name, and it is not the same"),
            Self::Local { action, source } => write!(f, "{action} it: {}", Plain(source)),
            Self::NoDigest => f.write_str("the server says no digest to verify it by"),
            Self::NoRoom { needed, free } => {
                write!(f, "it needs {needed} bytes, and {free} are free")
            }
            Self::Stranger { name } => {
                write!(f, "{} is in the way, and nothing is known about it", name.display())
            }
        }
    }
}

impl std::error::Error for DownloadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Client(error) => Some(error),
            Self::Engine(error) => Some(error),
            Self::Local { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Failed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
