//! Turns the archive, or a range of it, into chains for the engine.
//!
//! An archive may have a million files, a process has some thousand descriptors. So the engine gets
//! one short chain after the other, and files are opened when their chain is made.

use std::fmt;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use underpass_engine::{Chain, Source};
use underpass_protocol::archive::{Layout, Piece};

use super::beneath::open_member;
use super::error::ArchiveError;
use crate::files::version::engine_version;

/// A range of an archive that is being sent.
pub struct Body {
    layout: Arc<Layout>,
    folder: Arc<OwnedFd>,
    range: Range<u64>,
}

impl Body {
    /// The maximum number of files open at once, and so in one chain.
    pub const MAX_FILES: usize = 32;

    /// Creates the body of a range; a part beyond the end of the archive is left out.
    #[must_use]
    pub fn new(layout: Arc<Layout>, folder: Arc<OwnedFd>, range: Range<u64>) -> Self {
        let range = range.start..range.end.min(layout.len());
        Self { layout, folder, range }
    }

    /// Returns the number of bytes that are not in a chain yet.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// Returns the next part, to be moved before the one after it is requested; `None` at the end.
    ///
    /// Opens up to [`MAX_FILES`](Self::MAX_FILES) files, each compared with its version, so it
    /// may wait for the disk.
    ///
    /// # Errors
    ///
    /// The errors of [`open_member`]. The response cannot be completed then, and has to be reset.
    pub fn next_chain(&mut self) -> Result<Option<Chain<Arc<OwnedFd>>>, ArchiveError> {
        if self.remaining() == 0 {
            return Ok(None);
        }
        let layout = Arc::clone(&self.layout);
        let mut pieces = layout.pieces(self.range.clone());
        let mut chain = Chain::new();
        let (mut files, mut memory) = (0, 0);
        while files < Self::MAX_FILES && memory < MAX_MEMORY {
            let Some(piece) = pieces.next() else { break };
            self.range.start += piece.len();
            chain = match piece {
                Piece::Bytes(bytes) => {
                    memory += bytes.len();
                    chain.bytes(bytes)
                }
                Piece::File { path, version, offset, len } => {
                    files += 1;
                    let version = engine_version(&version);
                    let file = open_member(&self.folder, &path, &version)?;
                    let source = Source::range(Arc::new(file), offset, len).version(version);
                    chain.source(source.at_rest())
                }
            };
        }
        Ok(Some(chain))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("layout", &self.layout).field("range", &self.range).finish()
    }
}

/// The maximum number of header bytes in one chain, give or take one piece.
const MAX_MEMORY: usize = 256 << 10;
