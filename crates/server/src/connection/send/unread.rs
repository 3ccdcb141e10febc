//! Files that were sent by earlier chains of a response, which the client may not have read yet.
//!
//! Pages are sent by reference, so a write to such a file changes what the client reads. The last
//! chain compares its own files before it sends its end; these must be compared then as well.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use underpass_engine::{Chain, Source, Version};

use crate::connection::turn::SendTransfer;

/// The files that a client may still have to read.
#[derive(Debug)]
pub(super) struct Unread {
    files: VecDeque<UnreadFile>,
    max: usize,
}

/// A file that a client may still have to read.
#[derive(Debug)]
pub(super) struct UnreadFile {
    /// The position in the connection at which it ends.
    end: u64,
    file: Arc<OwnedFd>,
    version: Version,
    is_remote: bool,
}

impl UnreadFile {
    /// Returns whether asking for its version may wait for a file server or another program.
    pub(super) fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// Returns whether the file is in the version in which it was sent.
    pub(super) fn is_unchanged(&self) -> bool {
        Version::of(&self.file).is_ok_and(|now| !now.differs_from(&self.version))
    }
}

impl Unread {
    /// Creates an empty list. This many files may stay open, give or take one chain: files larger
    /// than a few pages fill the buffers of most connections long before.
    pub(super) fn new(max: usize) -> Self {
        Self { files: VecDeque::new(), max }
    }

    /// Adds the files of a completed transfer that the client may still have to read. It ended at
    /// this position of the connection.
    pub(super) fn add(&mut self, transfer: &SendTransfer<'_>, end: u64) {
        let files = transfer.unconfirmed().map(|(source, version)| {
            let (file, is_remote) = (Arc::clone(source.fd()), source.is_remote());
            UnreadFile { end, file, version, is_remote }
        });
        self.files.extend(files);
    }

    /// Returns whether the maximum number of files is open.
    pub(super) fn is_full(&self) -> bool {
        self.files.len() >= self.max
    }

    /// Removes and returns the files that the client has read completely with its first `read`
    /// bytes. If one of them has changed, the client may have read something else.
    pub(super) fn take_read(&mut self, read: u64) -> Vec<UnreadFile> {
        let count = self.files.iter().take_while(|file| file.end <= read).count();
        self.files.drain(..count).collect()
    }

    /// Returns the last chain of the response, preceded by these files without any byte of theirs,
    /// so that they are compared together with its own.
    pub(super) fn precede(&mut self, last: Chain<Arc<OwnedFd>>) -> Chain<Arc<OwnedFd>> {
        let chain = self.files.drain(..).fold(Chain::new(), |chain, file| {
            let source = Source::range(file.file, 0, 0).version(file.version).stable();
            chain.source(if file.is_remote { source.remote() } else { source })
        });
        chain.append(last)
    }
}
