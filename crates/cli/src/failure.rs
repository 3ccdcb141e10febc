//! Why a command failed, for people: what, where, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use indicatif::BinaryBytes;
use rustix::io::Errno;
use underpass_engine::Error;
use underpass_server::client::download::{DownloadError, Kept};
use underpass_server::client::tree::TreeFailed;
use underpass_server::client::upload::UploadFailed;
use underpass_server::server::ServeError;
use underpass_server::tls::{HandshakeError, TlsError};

use crate::args::ShowArgs;
use crate::explain::ExplainError;
use crate::get::GetReceipt;
use crate::get::tree::TreeReceipt;
use crate::hint::{
    download_hint, network_hint, path_hint, tls_hint, transfer_hint, tree_hint, upload_hint,
};
use crate::receipt::Receipt;
use underpass_bench::BenchError;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The words that were typed make no command, or ask for help.
    Arguments(clap::Error),
    /// The bench found no figures that could be told.
    Bench(BenchError),
    /// The doctor found a best way that is closed.
    Closed {
        /// How many ways.
        ways: usize,
    },
    /// A copy was read again and is not what its original is.
    Differs {
        /// The original.
        from: PathBuf,
        /// The copy.
        to: PathBuf,
        /// The first byte that is another one.
        at: u64,
    },
    /// Something could not be fetched.
    Download {
        /// From where.
        url: String,
        /// Where to.
        path: PathBuf,
        /// Why.
        error: Box<DownloadError>,
        /// What is left of it.
        kept: Option<Kept>,
        /// What was done before it failed.
        receipt: Box<GetReceipt>,
        /// How that is to be told.
        show: ShowArgs,
    },
    /// A program could not be explained.
    Explain(ExplainError),
    /// The sender sent more than was expected.
    Excess {
        /// What was being moved.
        what: String,
        /// How many bytes were expected.
        size: u64,
    },
    /// The peer of a stream could not prove who it is, or does not speak TLS as it should.
    Handshake {
        /// Its address.
        address: String,
        /// What went wrong.
        error: Box<HandshakeError>,
    },
    /// A folder was fetched, but not everything in it could be made.
    LeftOut {
        /// Where to.
        path: PathBuf,
        /// How much is missing.
        count: u64,
    },
    /// Something about an address or a connection.
    Network {
        /// What was being done, such as `connecting to`.
        action: &'static str,
        /// With which address.
        address: String,
        /// What the system answered.
        source: io::Error,
    },
    /// Something about a file.
    Path {
        /// What was being done, such as `opening`.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The server could not begin, or not go on.
    Serve(ServeError),
    /// Something about this process.
    System {
        /// What was being done, such as `waiting for signals`.
        action: &'static str,
        /// What the system answered.
        source: io::Error,
    },
    /// Certificates or keys cannot be used.
    Tls(TlsError),
    /// The transfer was begun and failed.
    Transfer {
        /// What was being moved, such as `sending disk.img`.
        what: String,
        /// What the engine said, with its report.
        source: Error,
        /// What was done before it failed.
        receipt: Box<Receipt>,
        /// How that is to be told.
        show: ShowArgs,
    },
    /// A folder could not be fetched.
    Tree {
        /// From where.
        url: String,
        /// Where to.
        path: PathBuf,
        /// Why.
        failed: Box<TreeFailed>,
        /// What was done before it failed.
        receipt: Box<TreeReceipt>,
        /// How that is to be told.
        show: ShowArgs,
    },
    /// Something could not be uploaded.
    Upload {
        /// What was being sent, such as `disk.img`.
        file: String,
        /// Where to.
        url: String,
        /// Why, and what is left of it.
        failed: Box<UploadFailed>,
        /// What was done before it failed.
        receipt: Box<Receipt>,
        /// How that is to be told.
        show: ShowArgs,
    },
    /// Some of what was to be copied could not be; each was told.
    NotCopied {
        /// How many files, folders or links.
        count: usize,
    },
    /// Some of several things could not be done; each was told.
    Partly {
        /// How many.
        failed: usize,
        /// Of how many.
        total: usize,
    },
    /// The command makes no sense.
    Usage(String),
    /// Something got worse from one record of the bench to another.
    Worse {
        /// How many comparisons say so.
        worse: usize,
        /// Of how many.
        total: usize,
    },
}

/// What commands return.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// The failure of a transfer, with its receipt.
    pub(crate) fn transfer(what: String, source: Error, show: ShowArgs) -> Self {
        let mut receipt = Box::new(Receipt::from(source.report()));
        receipt.error = Some(source.to_string());
        Self::Transfer { what, source, receipt, show }
    }

    /// 2 for wrong usage, 3 if what was looked at is not as it should be, that of a shell if a program that is to
    /// be explained cannot be run, 1 for everything else.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Arguments(_) | Self::Usage(_) | Self::Bench(BenchError::Usage(_)) => 2,
            Self::Closed { .. } | Self::Worse { .. } => 3,
            Self::Explain(error) => error.exit_code(),
            _ => 1,
        }
    }

    /// What to do about it, if there is something that helps.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Bench(BenchError::Network { source, .. }) => {
                network_hint(Errno::from_io_error(source)?)
            }
            Self::Bench(BenchError::Path { action, source, .. }) => {
                path_hint(action, Errno::from_io_error(source)?)
            }
            Self::Arguments(_) | Self::Bench(_) | Self::Excess { .. } | Self::Usage(_) => None,
            Self::Closed { .. }
            | Self::LeftOut { .. }
            | Self::Partly { .. }
            | Self::NotCopied { .. }
            | Self::Worse { .. } => None,
            Self::Explain(error) => error.hint(),
            Self::Differs { .. } => Some("somebody writes to one of them, or the disk is broken"),
            Self::Handshake { error, .. } => tls_hint(error),
            Self::Download { kept: Some(_), .. } => Some("the same command goes on from there"),
            Self::Download { error, .. } => download_hint(error),
            Self::Serve(_) | Self::System { .. } | Self::Tls(_) => None,
            Self::Network { source, .. } => network_hint(Errno::from_io_error(source)?),
            Self::Path { action, source, .. } => path_hint(action, Errno::from_io_error(source)?),
            Self::Transfer { source, .. } => transfer_hint(source),
            Self::Tree { failed, .. } => tree_hint(&failed.error),
            Self::Upload { failed, .. } => upload_hint(failed),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arguments(error) => f.write_str(&complaint(error)),
            Self::Bench(error) => error.fmt(f),
            Self::Closed { ways: 1 } => f.write_str("the best way is closed, another is taken"),
            Self::Closed { ways } => write!(f, "{ways} best ways are closed, others are taken"),
            Self::Differs { from, to, at } => {
                let (from, to) = (from.display(), to.display());
                write!(f, "comparing {from} with its copy {to}: byte {at} is another one")
            }
            Self::Download { url, path, error, kept, .. } => {
                write!(f, "fetching {url} to {}: {error}", path.display())?;
                let Some(Kept { name, bytes }) = kept else { return Ok(()) };
                write!(f, "; {} keeps {}", name.display(), BinaryBytes(*bytes))
            }
            Self::Explain(error) => error.fmt(f),
            Self::Excess { what, size } => {
                write!(f, "{what}: more than the {size} bytes of --size arrived")
            }
            Self::Handshake { address, error } => write!(f, "TLS with {address}: {error}"),
            Self::LeftOut { path, count: 1 } => {
                write!(f, "{} lacks one file, folder or link: see above", path.display())
            }
            Self::LeftOut { path, count } => {
                write!(f, "{} lacks {count} files, folders or links: see above", path.display())
            }
            Self::Network { action, address, source } => {
                write!(f, "{action} {address}: {}", plain(source))
            }
            Self::Path { action, path, source } if path.as_os_str().is_empty() => {
                write!(f, "{action} '': {}", plain(source))
            }
            Self::Path { action, path, source } => {
                write!(f, "{action} {}: {}", path.display(), plain(source))
            }
            Self::Serve(error) => error.fmt(f),
            Self::System { action, source } => write!(f, "{action}: {}", plain(source)),
            Self::Tls(error) => error.fmt(f),
            Self::Transfer { what, source, .. } => write!(f, "{what}: {source}"),
            Self::Tree { url, path, failed, .. } => {
                write!(f, "fetching {url} to {}: {failed}", path.display())
            }
            Self::Upload { file, url, failed, .. } => {
                let error = failed.error.to_string();
                write!(f, "sending {file} to {url}: {}", without_number(&error))
            }
            Self::NotCopied { count: 1 } => f.write_str("one thing could not be copied: see above"),
            Self::NotCopied { count } => write!(f, "{count} things could not be copied: see above"),
            Self::Partly { failed, total } => write!(f, "{failed} of {total} were not sent"),
            Self::Usage(message) => f.write_str(message),
            Self::Worse { worse, total } => write!(f, "{worse} of {total} comparisons got worse"),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Arguments(error) => error.source(),
            Self::Bench(error) => error.source(),
            Self::Explain(error) => error.source(),
            Self::Serve(error) => error.source(),
            Self::Tls(error) => error.source(),
            Self::Handshake { error, .. } => Some(error),
            Self::Network { source, .. }
            | Self::Path { source, .. }
            | Self::System { source, .. } => Some(source),
            Self::Download { error, .. } => Some(error),
            Self::Transfer { source, .. } => Some(source),
            Self::Tree { failed, .. } => Some(failed),
            Self::Upload { failed, .. } => Some(&failed.error),
            Self::Closed { .. }
            | Self::Differs { .. }
            | Self::Excess { .. }
            | Self::LeftOut { .. }
            | Self::NotCopied { .. }
            | Self::Partly { .. }
            | Self::Usage(_)
            | Self::Worse { .. } => None,
        }
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        Self::Bench(error)
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
            ServeError::Header(fault) => Self::Usage(format!("--header: {fault}")),
            ServeError::Io { action, source } => Self::System { action, source },
            ServeError::Pattern { pattern, source } => {
                Self::Usage(format!("--hide '{pattern}': {}", source.kind()))
            }
            ServeError::Root { path, source } => Self::Path { action: "serving", path, source },
            error => Self::Serve(error),
        }
    }
}

/// What clap complains about, in one line, without its advice about the usage.
pub(crate) fn complaint(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .map(|line| line.trim().trim_start_matches("error: "))
        .filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

/// Turns an error of the system into a failure that names the file.
pub(crate) trait WithPath<T> {
    /// `action` is what was being done with `path`.
    fn with_path(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T>;
}

impl<T, E: Into<io::Error>> WithPath<T> for std::result::Result<T, E> {
    fn with_path(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T> {
        self.map_err(|source| Failure::Path { action, path: path.into(), source: source.into() })
    }
}

/// The system's words without the `(os error 2)` that std appends.
pub(crate) fn plain(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::INTR) => "cancelled".to_owned(),
        _ => without_number(&error.to_string()).to_owned(),
    }
}

fn without_number(text: &str) -> &str {
    text.split(" (os error").next().unwrap_or(text)
}
