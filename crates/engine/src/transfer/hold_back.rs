//! Holds back the end of a transfer until everything before it is known to be of one version.
//!
//! A peer that counts bytes treats the last one as the end, so it gets that byte only when no later
//! check can make the transfer fail. Whether to hold back is the caller's choice ([`Confirm`]);
//! where to stop depends on the guards, which only the transfer knows.

use std::mem;
use std::os::fd::AsFd;

use underpass_sys::Kind;

use super::{Status, Transfer};
use crate::chain::{ChainPosition, Segment};
use crate::error::Error;
use crate::integrity::Guard;
use crate::mechanisms::step::Wait;
use crate::socket;
use crate::socket::tls_transport::TlsTransport;
use crate::transfer::options::Confirm;

impl<F: AsFd, S: AsFd> Transfer<'_, F, S> {
    /// Returns where to stop before the end, if the caller requested it and a file may be written
    /// to: before the last bytes of a file, or before the memory that comes last.
    pub(super) fn hold_back(&self) -> Option<ChainPosition> {
        let may_fail = |guard: &Guard| matches!(guard, Guard::Detect(_) | Guard::Lease(_));
        let waits = matches!(self.options.confirm, Confirm::BeforeEnd | Confirm::BeforeCopiedEnd);
        if !waits || !self.guards.iter().any(may_fail) {
            return None;
        }
        let index = self.chain.segments.len().checked_sub(1)?;
        let offset = match &self.chain.segments[index] {
            Segment::Bytes(_) | Segment::Payload(_) => 0,
            Segment::Source(source) => source.len?.saturating_sub(self.held_back_len()),
        };
        Some(ChainPosition { index, offset })
    }

    /// Returns how many bytes of a file are held back: the last one, and those that wake a delayed
    /// acknowledgement.
    fn held_back_len(&self) -> u64 {
        let is_ours = self.sink_tls().is_some_and(TlsTransport::copies);
        if self.sink.kind == Kind::Socket && !is_ours { HELD_BACK } else { 1 }
    }

    /// Returns how many segments of the chain may be moved for now.
    pub(super) fn visible_segments(&self) -> usize {
        match self.held_back_from {
            Some(stop) => stop.index + usize::from(stop.offset > 0),
            None => self.chain.segments.len(),
        }
    }

    /// Returns how many segments may be moved whole for now.
    pub(super) fn visible_memory(&self) -> usize {
        self.held_back_from.map_or(self.chain.segments.len(), |stop| stop.index)
    }

    /// Returns how much of the segment at the front may be moved for now.
    pub(super) fn visible_len(&self, len: Option<u64>) -> Option<u64> {
        let stop = self.held_back_from.filter(|stop| stop.index == self.position.index);
        stop.map_or(len, |stop| Some(stop.offset))
    }

    /// Stops holding back once the peer has everything before and the files are unchanged. Returns
    /// `Done` if there is more to send.
    pub(super) fn confirm(&mut self) -> Result<Status, Error> {
        self.uncork()?;
        if !self.is_flushed()? {
            return Ok(Status::Waiting(Wait::Sink));
        }
        let is_referenced = self.is_referenced()?;
        let end = if is_referenced { None } else { self.read_end() };
        // After the read, so that the lease is known to have held as long as the file was needed.
        self.check_leases()?;
        if is_referenced {
            let goes_on = mem::replace(&mut self.has_waited, true) && self.wake_delayed_ack();
            return Ok(if goes_on { Status::Done } else { Status::Waiting(Wait::Acknowledgement) });
        }
        self.check_versions()?;
        self.held_back_from = None;
        if let Some(bytes) = end {
            self.replace_end(bytes);
        }
        // A peer that counts bytes would not notice a later failure.
        self.guards.iter_mut().for_each(Guard::release);
        Ok(Status::Done)
    }

    /// Releases one more byte if that makes the peer's kernel acknowledge, and returns whether it
    /// did.
    ///
    /// The peer's kernel may delay the acknowledgement of a single small segment for 40 ms, waiting
    /// for a response to carry it. Linux acknowledges two in a row as soon as the program has read
    /// them. So one byte follows at the second check, since most peers have acknowledged all by
    /// then and a packet costs some 10 µs, and another if the first turns out to be single.
    /// Each is its own segment with `TCP_NODELAY`.
    fn wake_delayed_ack(&mut self) -> bool {
        let Some(stop) = &mut self.held_back_from else { return false };
        let Some(Segment::Source(source)) = self.chain.segments.get(stop.index) else {
            return false;
        };
        let left = source.len.unwrap_or_default().saturating_sub(stop.offset);
        let is_useful = left > 1
            && match socket::unacknowledged(&self.sink.fd) {
                Ok(0) | Err(_) => false,
                Ok(bytes) => left == HELD_BACK || bytes == 1,
            };
        let moves = is_useful && socket::unsent(&self.sink.fd) == Ok(0);
        stop.offset += u64::from(moves);
        moves
    }

    /// Returns the last bytes of a file, if a copy of them is to be sent.
    fn read_end(&self) -> Option<Vec<u8>> {
        let stop = self.held_back_from?;
        let Segment::Source(source) = &self.chain.segments[stop.index] else { return None };
        match self.guards.get(stop.index)? {
            Guard::Detect(_) if self.options.confirm == Confirm::BeforeCopiedEnd => {}
            // The lease may expire before they are read.
            Guard::Lease(_) => {}
            _ => return None,
        }
        let mut bytes = vec![0; usize::try_from(source.len? - stop.offset).ok()?];
        // If they are gone, the version check of the file shows it.
        let read = rustix::io::pread(&source.fd, &mut bytes, source.at? + stop.offset);
        (read == Ok(bytes.len())).then_some(bytes)
    }

    /// Cuts the file before its held-back bytes, and sends the copy of these from memory.
    fn replace_end(&mut self, bytes: Vec<u8>) {
        if let Some(Segment::Source(source)) = self.chain.segments.last_mut() {
            source.len = Some(self.position.offset);
        }
        // These bytes are counted, in both directions, when they are delivered.
        self.report.count_read(0, 1);
        self.chain.segments.push(Segment::Payload(bytes.into()));
        // No page of a file is needed any more.
        self.guards.iter_mut().for_each(|guard| *guard = Guard::None);
        self.guards.push(Guard::None);
    }
}

/// The last byte, and two that trigger a delayed acknowledgement.
const HELD_BACK: u64 = 3;
