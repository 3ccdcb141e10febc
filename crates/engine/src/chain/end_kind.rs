//! The kinds of sources and sinks.

use underpass_sys::Kind;

/// The kind of a source or sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum EndKind {
    /// A regular file, or memory that looks like one.
    File,
    /// A socket of any protocol.
    Socket,
    /// A pipe or FIFO.
    Pipe,
    /// A terminal.
    Terminal,
    /// Another device: a disk, `/dev/null`.
    Device,
    /// Anything else: virtual files such as those in `/proc`, events, timers.
    Other,
}

impl EndKind {
    /// Returns the name that receipts use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Socket => "socket",
            Self::Pipe => "pipe",
            Self::Terminal => "terminal",
            Self::Device => "device",
            Self::Other => "other",
        }
    }
}

impl From<Kind> for EndKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Regular => Self::File,
            Kind::Socket => Self::Socket,
            Kind::Pipe => Self::Pipe,
            Kind::Block | Kind::CharDevice => Self::Device,
            Kind::Virtual => Self::Other,
        }
    }
}
