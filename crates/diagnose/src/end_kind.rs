//! The kinds of things that bytes come from or go to.

use serde::{Deserialize, Serialize};
use underpass_engine::Kind;

/// The kind of thing that bytes come from or go to.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
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
    /// Anything else: files that the kernel makes up, such as those in `/proc`, events, timers.
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
