//! Turns the archive, or a range of it, into chains for the engine.
//!
//! An archive may have a million files, while a process has some thousand descriptors. So the
//! engine gets one short chain after another, and files are opened when their chain is made.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use underpass_engine::{Chain, Source};
use underpass_protocol::FileVersion;
use underpass_protocol::archive::{ArchiveFormat, ArchivePiece, Layout};

use super::beneath::open_member;
use super::checksum::{ChecksumRequest, PartialSum};
use super::checksums::Checksums;
use super::error::ArchiveError;
use crate::files::open_files::RemoteFiles;
use crate::files::root::is_local;
use crate::files::version::engine_version;

/// A range of an archive that is being sent.
pub struct ArchiveRange {
    layout: Arc<Layout>,
    folder: Arc<OwnedFd>,
    range: Range<u64>,
    checksums: Arc<Checksums>,
    /// The store that keeps remote files open, so that no worker closes one.
    remote_files: Arc<RemoteFiles>,
    /// The latest checksum, kept here because the cache of checksums may evict it.
    latest: Option<(FileVersion, u32)>,
    request: Option<ChecksumRequest>,
    read_bytes: u64,
    max_files: usize,
}

impl ArchiveRange {
    /// The maximum number of files open at once, and so in one chain, unless fewer are set.
    pub const MAX_FILES: usize = 32;

    /// Creates the body of a range; it is clipped to the end of the archive.
    #[must_use]
    pub fn new(layout: Arc<Layout>, folder: Arc<OwnedFd>, range: Range<u64>) -> Self {
        let range = range.start..range.end.min(layout.len());
        let (checksums, remote_files, latest) = (Arc::default(), Arc::default(), None);
        let (request, read_bytes, max_files) = (None, 0, Self::MAX_FILES);
        Self {
            layout,
            folder,
            range,
            checksums,
            remote_files,
            latest,
            request,
            read_bytes,
            max_files,
        }
    }

    /// Sets the store of checksums that the members of a zip are looked up in.
    #[must_use]
    pub(crate) fn remembering(mut self, checksums: Arc<Checksums>) -> Self {
        self.checksums = checksums;
        self
    }

    /// Sets the store of remote files.
    #[must_use]
    pub(crate) fn keeping(mut self, remote_files: Arc<RemoteFiles>) -> Self {
        self.remote_files = remote_files;
        self
    }

    /// Sets the maximum number of files in one chain.
    #[must_use]
    pub fn opening(mut self, max_files: usize) -> Self {
        self.max_files = max_files;
        self
    }

    /// Returns the number of bytes that are not in a chain yet.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// Returns the next part, which must be sent before the one after it is requested; `None` at
    /// the end. It may be empty if a checksum has to be requested first.
    ///
    /// Opens up to [`MAX_FILES`](Self::MAX_FILES) files, each compared with its version, and reads
    /// small ones for their checksums, so it may wait for the disk.
    ///
    /// # Errors
    ///
    /// The errors of [`open_member`]. The response cannot be completed then, and has to be reset.
    pub fn next_chain(&mut self) -> Result<Option<Chain<Arc<OwnedFd>>>, ArchiveError> {
        if self.remaining() == 0 {
            return Ok(None);
        }
        let (layout, checksums) = (Arc::clone(&self.layout), Arc::clone(&self.checksums));
        let latest = Cell::new(self.latest);
        let look_up = |version: &FileVersion| match latest.get() {
            Some((of, checksum)) if of == *version => Some(checksum),
            _ => checksums.get(version),
        };
        let is_zip = layout.format() == ArchiveFormat::Zip;
        let read_before = self.read_bytes;
        let mut pieces = layout.pieces_with(self.range.clone(), &look_up);
        let mut chain = Chain::new();
        let (mut files, mut memory) = (0, 0);
        while files < self.max_files
            && memory < MAX_MEMORY
            && self.read_bytes - read_before < MAX_READ
            && self.request.is_none()
        {
            let Some(piece) = pieces.next() else { break };
            self.range.start += piece.len();
            let (path, version, part) = match piece {
                ArchivePiece::Bytes(bytes) => {
                    memory += bytes.len();
                    chain = chain.bytes(bytes);
                    continue;
                }
                ArchivePiece::File { path, version, offset, len } => {
                    (path, version, Some((offset, len)))
                }
                ArchivePiece::Checksum { path, version } => (path, version, None),
            };
            files += 1;
            let expected = engine_version(&version);
            let file = Arc::new(open_member(&self.folder, &path, &expected)?);
            let is_local = is_local(&file);
            if !is_local {
                self.remote_files.keep_file(expected.device(), &file);
            }
            // A range that ends in the file needs no checksum.
            let needs_checksum = is_zip && self.remaining() > 0 && look_up(&version).is_none();
            if needs_checksum && version.size <= MAX_SMALL {
                let made = PartialSum::new(Arc::clone(&file), version).finish();
                let checksum = made.map_err(|undone| undone.of(&path))?;
                self.read_bytes += version.size;
                checksums.keep(&version, checksum);
                latest.set(Some((version, checksum)));
            } else if needs_checksum {
                self.request = Some(ChecksumRequest { path, file: Arc::clone(&file), version });
            }
            if let Some((offset, len)) = part {
                let source = Source::range(file, offset, len).version(expected).stable();
                chain = chain.source(if is_local { source } else { source.remote() });
            }
        }
        self.latest = latest.get();
        Ok(Some(chain))
    }

    /// Returns the checksum that the next chain needs, if any: it has to be given to
    /// [`learn`](Self::learn) before that chain is requested.
    pub(crate) fn take_request(&mut self) -> Option<ChecksumRequest> {
        self.request.take()
    }

    /// Supplies a checksum that was requested.
    pub fn learn(&mut self, version: FileVersion, checksum: u32) {
        self.checksums.keep(&version, checksum);
        self.latest = Some((version, checksum));
    }

    /// Returns how many bytes were read into user space for checksums since the last call.
    pub(crate) fn take_read_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.read_bytes)
    }
}

impl fmt::Debug for ArchiveRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("layout", &self.layout).field("range", &self.range).finish()
    }
}

/// The maximum number of header bytes in one chain, give or take one piece.
const MAX_MEMORY: usize = 256 << 10;

/// The maximum size of a file whose checksum is made when its chain is.
const MAX_SMALL: u64 = 1 << 20;

/// The maximum number of bytes that are read for one chain, give or take one file.
const MAX_READ: u64 = 4 << 20;
