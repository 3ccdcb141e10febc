//! What watches over a transfer's sources, from before the first byte until the peer has the last.

use std::os::fd::AsFd;

use rustix::io::Errno;
use underpass_sys::Kind;

use super::{Status, Transfer};
use crate::chain::{Position, Segment};
use crate::error::Error;
use crate::integrity::{Guard, Integrity, LeaseState, WriterCheck, Writers};
use crate::options::Confirm;
use crate::peer;
use crate::policy::Policy;
use crate::report::{Decline, Declined};
use crate::socket;
use crate::step::{Refusal, Wait};
use crate::tls_transport::TlsTransport;

impl<F: AsFd, S: AsFd> Transfer<'_, F, S> {
    /// Sets the guard asked for, or a weaker one where the kernel refuses it.
    pub(super) fn set_guards(&mut self) -> Result<(), Error> {
        let level = self.options.integrity;
        for segment in &self.chain.segments {
            let source = match segment {
                Segment::Source(source) if source.kind == Kind::Regular => source,
                _ => {
                    self.guards.push(Guard::None);
                    continue;
                }
            };
            let file = source.fd.as_fd();
            let guard = match Guard::new(level, file, source.version) {
                Err(errno) if level > Integrity::Detect => {
                    let refusal = Refusal::Errno(errno);
                    if let Policy::Require(_) = self.options.policy {
                        let report = Box::new(self.report.clone());
                        return Err(Error::IntegrityDeclined { level, refusal, report });
                    }
                    let what = Declined::Integrity(level);
                    self.report.note(Decline { what, refusal, at: 0, times: 1 });
                    self.report.integrity = Integrity::Detect;
                    Guard::new(Integrity::Detect, file, source.version)
                }
                guard => guard,
            };
            match guard {
                Ok(guard) => {
                    if matches!(guard, Guard::Detect(_)) && !source.is_at_rest {
                        self.checks.push((self.guards.len(), WriterCheck::brief()));
                    }
                    self.guards.push(guard);
                }
                Err(errno) => return Err(self.failed(errno)),
            }
        }
        Ok(())
    }

    /// Whether there is a file that somebody may be writing to without its times telling.
    pub(super) fn awaits_writers(&mut self) -> Result<bool, Error> {
        while let Some((index, check)) = self.checks.last_mut() {
            let (Some(Segment::Source(source)), Some(Guard::Detect(before))) =
                (self.chain.segments.get(*index), self.guards.get(*index))
            else {
                self.checks.pop();
                continue;
            };
            match check.look(&source.fd, Some(*before)) {
                Ok(Writers::AtRest { version, .. }) if !version.differs_from(before) => {
                    self.checks.pop();
                }
                Ok(Writers::AtRest { .. } | Writers::Busy) => {
                    return Err(self.changed(Integrity::Detect));
                }
                Ok(Writers::Wait(_)) => return Ok(true),
                Err(error) => {
                    let report = self.stop();
                    return Err(Error::Io { mechanism: None, source: error, report });
                }
            }
        }
        Ok(false)
    }

    /// Fails if a lease has been broken for so long that a writer may be let in.
    pub(super) fn check_leases(&mut self) -> Result<(), Error> {
        let expired = |guard: &mut Guard| match guard {
            Guard::Lease(lease) => lease.state() == LeaseState::Expired,
            _ => false,
        };
        // A chain may have very many files; only this level has to ask about each before each step.
        if self.options.integrity == Integrity::Lease && self.guards.iter_mut().any(expired) {
            return Err(self.changed(Integrity::Lease));
        }
        Ok(())
    }

    /// The end of a transfer whose file is not in one version.
    pub(super) fn changed(&mut self, level: Integrity) -> Error {
        let report = self.stop();
        Error::SourceChanged { level, report }
    }

    /// Where to stop before the end, if that was asked for and there is something to compare:
    /// before the last bytes of a file, or before the memory that comes last.
    pub(super) fn find_gate(&self) -> Option<Position> {
        let is_compared = self.guards.iter().any(|guard| matches!(guard, Guard::Detect(_)));
        let waits = matches!(self.options.confirm, Confirm::BeforeEnd | Confirm::BeforeCopiedEnd);
        if !waits || !is_compared {
            return None;
        }
        let index = self.chain.segments.len().checked_sub(1)?;
        let offset = match &self.chain.segments[index] {
            Segment::Bytes(_) | Segment::Payload(_) => 0,
            Segment::Source(source) => source.len?.saturating_sub(self.held_back()),
        };
        Some(Position { index, offset })
    }

    /// How many bytes of a file wait at the gate: the last, and those to nudge a peer's kernel with.
    fn held_back(&self) -> u64 {
        let is_ours = self.sink_tls().is_some_and(TlsTransport::copies);
        if self.sink.kind == Kind::Socket && !is_ours { HELD_BACK } else { 1 }
    }

    /// How many segments the chain has for now.
    pub(super) fn visible_segments(&self) -> usize {
        match self.gate {
            Some(gate) => gate.index + usize::from(gate.offset > 0),
            None => self.chain.segments.len(),
        }
    }

    /// How many segments may be taken whole for now.
    pub(super) fn visible_memory(&self) -> usize {
        self.gate.map_or(self.chain.segments.len(), |gate| gate.index)
    }

    /// The length of the segment at the front for now.
    pub(super) fn visible_len(&self, len: Option<u64>) -> Option<u64> {
        let gate = self.gate.filter(|gate| gate.index == self.position.index);
        gate.map_or(len, |gate| Some(gate.offset))
    }

    /// At the gate: opens it once the peer has what came before and the files are as they were.
    /// Done if there is more to send.
    pub(super) fn confirm(&mut self) -> Result<Status, Error> {
        self.uncork()?;
        if !self.is_flushed()? {
            return Ok(Status::Waiting(Wait::Sink));
        }
        if self.is_referenced()? {
            let goes_on = self.nudges();
            return Ok(if goes_on { Status::Done } else { Status::Waiting(Wait::Acknowledgement) });
        }
        let end = self.read_end();
        self.check_versions()?;
        self.gate = None;
        if let Some(bytes) = end {
            self.replace_end(bytes);
        }
        // A peer that counts the bytes does not hear of anything that is found out later.
        self.guards.iter_mut().for_each(Guard::release);
        Ok(Status::Done)
    }

    /// Moves the gate on by a byte, if that makes the peer's kernel acknowledge; whether it did.
    ///
    /// It may keep back its acknowledgement of a single small segment for 40 ms, waiting for an
    /// answer to put it on. Of two in a row Linux acknowledges both as soon as its program has read
    /// them. So one follows once all is sent, and another one if it has turned out to be single.
    /// Each is a segment of its own with `TCP_NODELAY`.
    fn nudges(&mut self) -> bool {
        let Some(gate) = &mut self.gate else { return false };
        let Some(Segment::Source(source)) = self.chain.segments.get(gate.index) else {
            return false;
        };
        let left = source.len.unwrap_or_default().saturating_sub(gate.offset);
        let is_useful = left > 1
            && match socket::unacknowledged(&self.sink.fd) {
                Ok(0) | Err(_) => false,
                Ok(bytes) => left == HELD_BACK || bytes == 1,
            };
        let moves = is_useful && socket::unsent(&self.sink.fd) == Ok(0);
        gate.offset += u64::from(moves);
        moves
    }

    /// The last bytes of a file, if a copy of them is to be sent.
    fn read_end(&self) -> Option<Vec<u8>> {
        let gate = self.gate.filter(|_| self.options.confirm == Confirm::BeforeCopiedEnd)?;
        let Segment::Source(source) = &self.chain.segments[gate.index] else { return None };
        let Guard::Detect(_) = self.guards.get(gate.index)? else { return None };
        let mut bytes = vec![0; usize::try_from(source.len? - gate.offset).ok()?];
        // If they are not there any more, the look at the file tells.
        let read = rustix::io::pread(&source.fd, &mut bytes, source.at? + gate.offset);
        (read == Ok(bytes.len())).then_some(bytes)
    }

    /// Ends the file at the gate, and puts a copy of its last bytes behind it.
    fn replace_end(&mut self, bytes: Vec<u8>) {
        if let Some(Segment::Source(source)) = self.chain.segments.last_mut() {
            source.len = Some(self.position.offset);
        }
        self.report.memory.calls += 1;
        self.report.user_space_bytes += 2 * bytes.len() as u64;
        self.chain.segments.push(Segment::Bytes(bytes.into()));
        self.guards.push(Guard::None);
    }

    /// Sends what the socket holds back.
    fn uncork(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.is_corked)
            && let Err(errno) = socket::uncork(&self.sink.fd)
        {
            return Err(self.failed(errno));
        }
        Ok(())
    }

    /// Hands the socket what TLS of this process still holds for it; whether all of it went.
    pub(super) fn is_flushed(&mut self) -> Result<bool, Error> {
        let Some(tls) = self.sink_tls() else { return Ok(true) };
        match tls.flush(self.sink.fd.as_fd()) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// After the last byte: waits until no page is referenced any more, then asks the guards.
    pub(super) fn settle(&mut self) -> Result<Status, Error> {
        if self.is_done {
            return Ok(Status::Done);
        }
        self.uncork()?;
        if !self.is_flushed()? {
            return Ok(Status::Waiting(Wait::Sink));
        }
        let is_watched = self.guards.iter().any(|guard| match guard {
            Guard::Detect(_) => self.options.confirm == Confirm::Delivered,
            Guard::Lease(_) => true,
            Guard::None | Guard::Snapshot(_) => false,
        });
        let is_referenced = is_watched && self.is_referenced()?;
        // Last, so that no page was referenced any more while the lease was known to hold.
        self.check_leases()?;
        if is_referenced {
            return Ok(Status::Waiting(Wait::Acknowledgement));
        }
        self.check_versions()?;
        self.guards.clear();
        self.is_done = true;
        self.report.elapsed = self.elapsed();
        self.last_told = None;
        self.tell_progress();
        Ok(Status::Done)
    }

    /// Whether the sink still holds pages that its peer has not got.
    fn is_referenced(&mut self) -> Result<bool, Error> {
        // What was encrypted is not the page any more.
        if self.sink_tls().is_some_and(TlsTransport::copies) {
            return Ok(false);
        }
        let bytes = self.in_flight();
        let error = match self.sink.kind {
            // What a peer throws away by leaving is not in flight any more, but it has not got it.
            Kind::Socket => socket::pending_error(&self.sink.fd),
            Kind::Pipe if bytes > 0 && peer::has_left_pipe(self.sink.fd.as_fd()) => {
                Some(Errno::PIPE)
            }
            _ => None,
        };
        match error {
            Some(errno) => Err(self.failed(errno)),
            None => Ok(bytes > 0),
        }
    }

    /// How many bytes the sink has taken that its peer has not got, as far as it can tell: one
    /// that cannot, such as a socket of MPTCP, has to be believed.
    pub(crate) fn in_flight(&self) -> u64 {
        let sink = self.sink.fd.as_fd();
        match self.sink.kind {
            Kind::Pipe => peer::unread_in_pipe(sink),
            Kind::Socket => match socket::unacknowledged(sink).unwrap_or(0) {
                0 => peer::unread_by_tcp_peer(sink),
                bytes => bytes,
            },
            _ => 0,
        }
    }

    /// Fails if a watched file is not in the version it was in.
    fn check_versions(&mut self) -> Result<(), Error> {
        for (segment, guard) in self.chain.segments.iter().zip(&self.guards) {
            if let Segment::Source(source) = segment
                && !guard.holds(&source.fd)
            {
                return Err(self.changed(Integrity::Detect));
            }
        }
        Ok(())
    }

    /// Whether a lease is held, which somebody may want to break at any moment.
    pub(crate) fn holds_lease(&self) -> bool {
        self.guards.iter().any(|guard| matches!(guard, Guard::Lease(_)))
    }
}

/// The last byte, and two to nudge with.
const HELD_BACK: u64 = 3;
