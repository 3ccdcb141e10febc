//! Reads the bytes of an archive as they arrive, and none before the response is known to be the
//! right one.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use underpass_engine::{PipePool, Progress};
use underpass_transport::incoming::{BodyFraming, ReceiveError, ReceiveOptions, ReceivedBody};

use crate::download::RateLimit;
use crate::error::ClientError;
use crate::http::Connection;
use crate::tree::task::TreeFetch;

/// The unread rest of an archive.
#[derive(Debug)]
pub(super) struct ArchiveStream<'a> {
    connection: Connection<'a>,
    /// Bytes that were read, of which the first `used` have been taken.
    buffer: Vec<u8>,
    used: usize,
    /// Bytes of the body that are still to be read.
    unread: u64,
    rate_limit: Arc<RateLimit>,
    cancel: Option<&'a AtomicBool>,
}

impl<'a> ArchiveStream<'a> {
    pub(super) fn new(connection: Connection<'a>, len: u64, tree: &TreeFetch<'_, 'a>) -> Self {
        let (rate_limit, cancel) = (Arc::clone(&tree.rate_limit), tree.client.cancel);
        if let Some(bytes) = rate_limit.window() {
            connection.set_window(bytes);
        }
        Self { connection, buffer: Vec::new(), used: 0, unread: len, rate_limit, cancel }
    }

    /// Returns the number of bytes that have not been read.
    pub(super) fn left(&self) -> u64 {
        self.unread + (self.buffer.len() - self.used) as u64
    }

    /// Returns the next `len` bytes, which the archive must still have. If the connection must be
    /// read, up to `beyond` more bytes are received with them.
    pub(super) fn read_exact(&mut self, len: usize, beyond: usize) -> Result<&[u8], ClientError> {
        let have = self.buffer.len() - self.used;
        if have < len {
            self.buffer.drain(..self.used);
            self.used = 0;
            let max = usize::try_from(self.unread).unwrap_or(usize::MAX);
            let read = (len - have + beyond).min(max);
            let incoming = self.connection.incoming();
            let outcome = incoming.append(&mut self.buffer, read);
            if let Err(error) = outcome {
                return Err(ClientError::receiving(self.connection.address(), error));
            }
            self.unread -= read as u64;
            self.rate_limit.spend(read as u64, self.cancel.as_slice());
            if self.buffer.len() < len {
                let address = self.connection.address();
                return Err(ClientError::receiving(address, ReceiveError::Ended));
            }
        }
        let bytes = &self.buffer[self.used..][..len];
        self.used += len;
        Ok(bytes)
    }

    /// Discards `len` bytes.
    pub(super) fn skip(&mut self, mut len: u64) -> Result<(), ClientError> {
        while len > 0 {
            let piece = usize::try_from(len).unwrap_or(usize::MAX).min(PIECE);
            self.read_exact(piece, 0)?;
            len -= piece as u64;
        }
        Ok(())
    }

    /// Moves `len` bytes to the offset `at` of a file by the engine. No byte after them may have
    /// been read.
    pub(super) fn body(
        &mut self,
        len: u64,
        file: &std::fs::File,
        at: u64,
        receive_options: &ReceiveOptions<'_>,
        on_progress: &mut (dyn FnMut(&Progress) + Send),
    ) -> ReceivedBody {
        debug_assert_eq!(self.used, self.buffer.len());
        let (rate_limit, cancel) = (&self.rate_limit, self.cancel.as_slice());
        let mut spent = 0;
        let mut on_progress = |progress: &Progress| {
            on_progress(progress);
            rate_limit.spend(progress.bytes - spent, cancel);
            spent = progress.bytes;
        };
        let received = self.connection.incoming().body(
            BodyFraming::Length(len),
            file,
            at,
            receive_options,
            &mut on_progress,
        );
        self.unread -= received.report.bytes();
        received
    }

    /// Converts an error of [`body`](Self::body) that concerns the connection.
    pub(super) fn connection_error(&self, error: ReceiveError) -> ClientError {
        ClientError::receiving(self.connection.address(), error)
    }
}

/// Returns how large files are received.
pub(super) fn receive_options<'m>(
    tree: &TreeFetch<'_, '_>,
    pipes: &'m PipePool,
    progress_every: u64,
) -> ReceiveOptions<'m> {
    let rate_limit = &tree.rate_limit;
    ReceiveOptions {
        policy: tree.options.policy,
        step: rate_limit.step(tree.options.step),
        pipes: Some(pipes),
        progress_every: Some(rate_limit.burst().unwrap_or(progress_every).min(progress_every)),
        reserve: true,
        ..ReceiveOptions::default()
    }
}

/// Bytes that are discarded at once.
const PIECE: usize = 256 << 10;
