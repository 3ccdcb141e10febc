//! Guards a transfer's sources, from before the first byte until the peer has the last.

use std::os::fd::AsFd;

use rustix::io::Errno;
use underpass_sys::Kind;

use super::{Status, Transfer};
use crate::chain::{Segment, Source};
use crate::error::{Error, errno};
use crate::integrity::{Guard, Integrity, LeaseState, Version, WriterCheck, Writers};
use crate::mechanisms::Active;
use crate::mechanisms::mechanism::Mechanism;
use crate::mechanisms::policy::Policy;
use crate::mechanisms::step::{DeclineReason, Wait};
use crate::report::{Decline, Declined, Report};
use crate::socket;
use crate::socket::peer;
use crate::socket::tls_transport::TlsTransport;
use crate::transfer::options::{Confirm, Options};

impl<F: AsFd, S: AsFd> Transfer<'_, F, S> {
    /// Sets the requested guard, or a weaker one where the kernel refuses it.
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
            let strongest = if source.is_remote { level.min(Integrity::Detect) } else { level };
            if strongest < level {
                Self::weaken(&self.options, &mut self.report, DeclineReason::Excluded)?;
            }
            let guard = match &source.snapshot {
                Some(made) if strongest == Integrity::Snapshot => made.clone().map(Guard::Snapshot),
                _ => Guard::new(strongest, file, source.version),
            };
            let guard = match guard {
                Err(errno) if strongest > Integrity::Detect => {
                    let reason = DeclineReason::Errno(errno);
                    Self::weaken(&self.options, &mut self.report, reason)?;
                    Guard::new(Integrity::Detect, file, source.version)
                }
                guard => guard,
            };
            match guard {
                Ok(guard) => {
                    let is_checked = source.is_at_rest || source.is_remote;
                    if matches!(guard, Guard::Detect(_)) && !is_checked {
                        self.checks.push((self.guards.len(), WriterCheck::brief()));
                    }
                    self.guards.push(guard);
                }
                Err(errno) => return Err(self.failed(errno)),
            }
        }
        if self.guards.iter().all(|guard| matches!(guard, Guard::None)) {
            self.report.integrity = None;
        }
        Ok(())
    }

    /// Reports that a file gets a weaker guard, or fails if a mechanism is required.
    fn weaken(
        options: &Options<'_>,
        report: &mut Report,
        reason: DeclineReason,
    ) -> Result<(), Error> {
        let level = options.integrity;
        if let Policy::Require(_) = options.policy {
            let report = Box::new(report.clone());
            return Err(Error::IntegrityDeclined { level, reason, report });
        }
        let what = Declined::Integrity(level);
        report.add_decline(Decline { what, reason, at: 0, times: 1 });
        report.integrity = Some(Integrity::Detect);
        Ok(())
    }

    /// Returns whether a process may be writing to a file without changing its times.
    pub(super) fn awaits_writers(&mut self) -> Result<bool, Error> {
        while let Some((index, check)) = self.checks.last_mut() {
            let (Some(Segment::Source(source)), Some(Guard::Detect(before))) =
                (self.chain.segments.get(*index), self.guards.get(*index))
            else {
                self.checks.pop();
                continue;
            };
            match check.check(&source.fd, Some(*before)) {
                Ok(Writers::Stable { version, .. }) if !version.differs_from(before) => {
                    self.checks.pop();
                }
                Ok(Writers::Stable { .. } | Writers::Busy) => {
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

    /// Fails if a lease has been broken for so long that the kernel may let a writer proceed.
    pub(super) fn check_leases(&mut self) -> Result<(), Error> {
        let expired = |guard: &mut Guard| match guard {
            Guard::Lease(lease) => lease.state() == LeaseState::Expired,
            _ => false,
        };
        // A chain may have very many files; only this level has to check each before each step.
        if self.options.integrity == Integrity::Lease && self.guards.iter_mut().any(expired) {
            return Err(self.changed(Integrity::Lease));
        }
        Ok(())
    }

    /// Returns the error of a transfer whose file is not in one version.
    pub(super) fn changed(&mut self, level: Integrity) -> Error {
        let report = self.stop();
        Error::SourceChanged { level, report }
    }

    /// Sends what the socket holds back.
    pub(super) fn uncork(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.is_corked)
            && let Err(errno) = socket::uncork(&self.sink.fd)
        {
            return Err(self.failed(errno));
        }
        Ok(())
    }

    /// Writes what TLS in this process still holds to the socket, and returns whether all of it
    /// was taken.
    pub(super) fn is_flushed(&mut self) -> Result<bool, Error> {
        let Some(tls) = self.sink_tls() else { return Ok(true) };
        match tls.flush(self.sink.fd.as_fd()) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Returns whether everything may have been delivered to a pipe whose reader has just gone:
    /// only an open-ended source is left, so its end decides.
    pub(super) fn may_be_complete(&self) -> bool {
        let rest = &self.chain.segments[self.position.index.min(self.chain.segments.len())..];
        let is_open_ended = matches!(rest, [segment] if segment.len().is_none());
        self.sink.kind == Kind::Pipe && is_open_ended && !self.is_abandoned
    }

    /// Returns whether the mechanism in use has delivered every byte that it took from the source:
    /// one that moves bytes directly, in one call.
    pub(super) fn holds_nothing(&self) -> bool {
        let mechanism = self.active.as_ref().map(Active::mechanism);
        matches!(mechanism, Some(Mechanism::Splice | Mechanism::Sendfile))
    }

    /// Waits, after the last byte, until no page is referenced any more, then checks the guards.
    pub(super) fn confirm_delivery(&mut self) -> Result<Status, Error> {
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
        // Last, so that the lease is known to have held as long as a page was referenced.
        self.check_leases()?;
        if is_referenced {
            return Ok(Status::Waiting(Wait::Acknowledgement));
        }
        self.check_versions()?;
        // Leases and clones end here; versions may have to be compared once more.
        self.guards.iter_mut().filter(|guard| !matches!(guard, Guard::Detect(_))).for_each(
            |guard| {
                *guard = Guard::None;
            },
        );
        self.is_done = true;
        self.report.elapsed = self.elapsed();
        self.last_observed = None;
        self.report_progress();
        Ok(Status::Done)
    }

    /// Returns the files of a completed transfer whose pages the peer may still have to receive,
    /// each with its version at the time when the last byte was handed over. If the message
    /// continues after this transfer, the caller has to compare them once the peer has all.
    pub fn unconfirmed(&self) -> impl Iterator<Item = (&Source<F>, Version)> {
        let is_copied = self.sink_tls().is_some_and(TlsTransport::copies);
        let both = self.chain.segments.iter().zip(&self.guards).filter(move |_| !is_copied);
        both.filter_map(|(segment, guard)| match (segment, guard) {
            (Segment::Source(source), Guard::Detect(version)) => Some((source, *version)),
            _ => None,
        })
    }

    /// Returns whether the sink still holds pages that its peer has not received.
    pub(super) fn is_referenced(&mut self) -> Result<bool, Error> {
        // Encrypted bytes are copies of the page.
        if self.sink_tls().is_some_and(TlsTransport::copies) {
            return Ok(false);
        }
        let bytes = self.in_flight();
        let error = match self.sink.kind {
            // Bytes that a peer discards by disconnecting are no longer in flight, but the peer has
            // not received them.
            Kind::Socket => socket::pending_error(&self.sink.fd),
            // Counted once more: the reader may have read them just before it left.
            Kind::Pipe if bytes > 0 && peer::has_left_pipe(self.sink.fd.as_fd()) => {
                (self.in_flight() > 0).then_some(Errno::PIPE)
            }
            _ => None,
        };
        match error {
            Some(errno) => Err(self.failed(errno)),
            None => Ok(bytes > 0),
        }
    }

    /// Returns how many bytes the sink has accepted that its peer has not received. A sink that
    /// cannot tell, such as an MPTCP socket, counts as having delivered them.
    pub(crate) fn in_flight(&self) -> u64 {
        let sink = self.sink.fd.as_fd();
        match self.sink.kind {
            Kind::Pipe => peer::unread_in_pipe(sink),
            Kind::Socket => match socket::unacknowledged(sink).unwrap_or(0) {
                0 => match self.options.capabilities {
                    Some(kernel) => kernel.unread_by_tcp_peer(sink),
                    None => peer::unread_by_tcp_peer(sink, &mut None),
                },
                bytes => bytes,
            },
            _ => 0,
        }
    }

    /// Fails if a guarded file no longer has its version, or its status cannot be read.
    pub(super) fn check_versions(&mut self) -> Result<(), Error> {
        for (segment, guard) in self.chain.segments.iter().zip(&self.guards) {
            let (Segment::Source(source), Guard::Detect(before)) = (segment, guard) else {
                continue;
            };
            match source.current_version().map_err(errno::of) {
                Ok(now) if !now.differs_from(before) => {}
                // In this way a file server tells that the file was removed or replaced.
                Ok(_) | Err(Errno::STALE | Errno::NOENT) => {
                    return Err(self.changed(Integrity::Detect));
                }
                Err(errno) => return Err(self.failed(errno)),
            }
        }
        Ok(())
    }

    /// Returns whether a lease is held, which another process may break at any moment.
    pub(crate) fn holds_lease(&self) -> bool {
        self.guards.iter().any(|guard| matches!(guard, Guard::Lease(_)))
    }
}
