//! Receives chunked bodies (RFC 9112 7.1).
//!
//! Large chunks are moved inside the kernel, one after the other. Each takes several system calls,
//! some of them for the framing before it. Below some size copying costs less: small chunks are
//! read many at a time, and written together.

use std::os::fd::AsFd;

use underpass_engine::{Mechanism, Policy, SMALL_TRANSFER};
use underpass_protocol::chunked::Chunked;

use super::{BodySink, Incoming, ReceiveError};

/// What comes next in a chunked body.
enum Next {
    /// At least this number of bytes of framing, none of which has been read.
    Framing(usize),
    /// This number of bytes of data, some of which may have been read.
    Data(u64),
    /// The end of the body, which has been read.
    End,
}

impl<S: AsFd> Incoming<'_, S> {
    /// Moves the data of a chunked body.
    pub(super) fn chunks(&mut self, sink: &mut BodySink<'_>) -> Result<(), ReceiveError> {
        let mut gathered = Vec::new();
        let received = self.gather_chunks(sink, &mut gathered);
        // What arrived before a failure is part of the body, too.
        let written = self.write_gathered(&mut gathered, sink);
        received.and(written)
    }

    /// Moves the data of a chunked body, except what is left in `gathered` at the end.
    fn gather_chunks(
        &mut self,
        sink: &mut BodySink<'_>,
        gathered: &mut Vec<u8>,
    ) -> Result<(), ReceiveError> {
        // Another mechanism that is required or preferred has to move the bytes itself.
        let may_copy = matches!(
            sink.options.policy,
            Policy::Auto
                | Policy::Require(Mechanism::ReadWrite)
                | Policy::Prefer(Mechanism::ReadWrite)
        );
        let mut chunks = self.chunked();
        let mut is_small = false;
        loop {
            let len = match self.next_chunk(&mut chunks)? {
                Next::End => return Ok(()),
                Next::Framing(needed) => {
                    // The next chunk may be long in coming.
                    self.write_gathered(gathered, sink)?;
                    self.read_some(if is_small { SMALL_CHUNKS } else { needed })?;
                    continue;
                }
                Next::Data(len) => len,
            };
            let before = sink.report.bytes() + gathered.len() as u64;
            if sink.options.limit.is_some_and(|limit| len > limit.saturating_sub(before)) {
                return Err(ReceiveError::TooLong);
            }
            is_small = may_copy && len <= SMALL_TRANSFER as u64;
            match usize::try_from(len) {
                Ok(len) if is_small => self.gather(len, sink, gathered)?,
                _ => {
                    self.write_gathered(gathered, sink)?;
                    self.data(Some(len), sink)?;
                }
            }
        }
    }

    /// Appends the data of a small chunk to `gathered`. What has arrived is written before more is
    /// waited for.
    fn gather(
        &mut self,
        len: usize,
        sink: &mut BodySink<'_>,
        gathered: &mut Vec<u8>,
    ) -> Result<(), ReceiveError> {
        let mut left = len;
        loop {
            let here = left.min(self.ahead.len());
            gathered.extend_from_slice(&self.ahead[..here]);
            self.ahead.consume(here);
            left -= here;
            if left == 0 {
                return Ok(());
            }
            self.write_gathered(gathered, sink)?;
            self.read_some(SMALL_CHUNKS)?;
        }
    }

    /// Reads a chunked body of at most `max` bytes into memory.
    pub(super) fn chunks_in_memory(&mut self, max: usize) -> Result<Vec<u8>, ReceiveError> {
        let (mut chunks, mut body) = (self.chunked(), Vec::new());
        loop {
            match self.next_chunk(&mut chunks)? {
                Next::End => return Ok(body),
                Next::Framing(needed) => self.read_some(needed)?,
                Next::Data(len) => match usize::try_from(len) {
                    Ok(len) if len <= max - body.len() => self.append(&mut body, len)?,
                    _ => return Err(ReceiveError::TooLong),
                },
            }
        }
    }

    /// Creates the parser of a chunked body.
    fn chunked(&self) -> Chunked {
        if self.is_of_server { Chunked::of_response() } else { Chunked::default() }
    }

    /// Parses the framing that was read in advance. After [`Next::Data`] the data must be consumed
    /// before the next call.
    fn next_chunk(&mut self, chunks: &mut Chunked) -> Result<Next, ReceiveError> {
        loop {
            if let Some(len) = chunks.pass_data() {
                return Ok(Next::Data(len));
            }
            let needed = chunks.needed();
            if needed == 0 {
                return Ok(Next::End);
            }
            if self.ahead.is_empty() {
                return Ok(Next::Framing(needed));
            }
            let take = needed.min(self.ahead.len());
            let step = chunks.step(&self.ahead[..take]).map_err(ReceiveError::Chunk)?;
            self.ahead.consume(step.consumed);
        }
    }

    /// Reads at least one byte, and at most `max`, more if heads are read eagerly.
    fn read_some(&mut self, max: usize) -> Result<(), ReceiveError> {
        if self.has_more(max)? { Ok(()) } else { Err(ReceiveError::Ended) }
    }

    /// Writes the data of small chunks to the sink.
    fn write_gathered(
        &mut self,
        gathered: &mut Vec<u8>,
        sink: &mut BodySink<'_>,
    ) -> Result<(), ReceiveError> {
        if gathered.is_empty() {
            return Ok(());
        }
        self.transfer(std::mem::take(gathered), Some(0), None, sink)
    }
}

/// The most bytes that one call reads of small chunks: hundreds of the smallest, and little memory
/// for each of many uploads.
const SMALL_CHUNKS: usize = 16 << 10;
