//! The programs that the bench is measured against besides those that move HTTP: those in `peers/`,
//! written from what the articles describe and built on the spot, and those that people have
//! installed.

mod tools;
mod workshop;

use std::fmt;
use std::str::FromStr;

pub(crate) use tools::Tool;
pub(crate) use workshop::{Told, Workshop};

/// A program, or a way of one, that moves bytes as the articles do or as people do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// sendfile(2) in a loop in a thread of the bench, without the engine.
    BareSendfile,
    /// C: mmap(2) and write(2).
    CMmap,
    /// C: the same while it holds a lease on the file.
    CMmapLease,
    /// C: read(2) and write(2).
    CReadWrite,
    /// C: sendfile(2).
    CSendfile,
    /// `iperf3 -Z`, which sends from a file of its own.
    Iperf3,
    /// Java: an array between two streams.
    JavaStream,
    /// Java: `FileChannel.transferTo`.
    JavaTransferTo,
    /// memcpy in a thread of the bench: what this machine's memory is capable of.
    MemoryCopy,
    /// netcat.
    Nc,
    /// Python: `read` and `sendall`.
    PythonSendall,
    /// Python: `os.sendfile`.
    PythonSendfile,
}

impl Peer {
    /// Every one, by name.
    pub(crate) const ALL: [Self; 12] = [
        Self::BareSendfile,
        Self::CMmap,
        Self::CMmapLease,
        Self::CReadWrite,
        Self::CSendfile,
        Self::Iperf3,
        Self::JavaStream,
        Self::JavaTransferTo,
        Self::MemoryCopy,
        Self::Nc,
        Self::PythonSendall,
        Self::PythonSendfile,
    ];

    /// Its name, as it is typed, shown and recorded.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::BareSendfile => "bare_sendfile",
            Self::CMmap => "c_mmap",
            Self::CMmapLease => "c_mmap_lease",
            Self::CReadWrite => "c_read_write",
            Self::CSendfile => "c_sendfile",
            Self::Iperf3 => "iperf3",
            Self::JavaStream => "java_stream",
            Self::JavaTransferTo => "java_transfer_to",
            Self::MemoryCopy => "memory_copy",
            Self::Nc => "nc",
            Self::PythonSendall => "python_sendall",
            Self::PythonSendfile => "python_sendfile",
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Peer {
    type Err = UnknownPeer;

    fn from_str(text: &str) -> Result<Self, UnknownPeer> {
        Self::ALL.into_iter().find(|peer| peer.name() == text).ok_or(UnknownPeer)
    }
}

/// A word that is the name of no peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnknownPeer;

impl fmt::Display for UnknownPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peers are {}", Peer::ALL.map(Peer::name).join(", "))
    }
}

impl std::error::Error for UnknownPeer {}
