//! The state of one upload on its thread: the request, and the part of its body that has arrived.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;

use rustix::fs::{fstat, fstatvfs};
use underpass_engine::atomic_file::AtomicFile;
use underpass_engine::wait::lock;
use underpass_engine::{Mechanism, MinFree, Policy, Report, TlsTransport};

use crate::server::settings::Changes;
use crate::server::sites::site::Site;
use crate::uploads::interim;
use crate::uploads::parts::target::{UploadTarget, check};
use crate::uploads::received::{BodyState, IncompleteBody, IncompleteCause, ReceivedUpload};
use crate::uploads::refusal;
use crate::uploads::refusal::{Result, UploadRefusal};
use crate::uploads::request::UploadRequest;
use crate::uploads::state::disk_space::{self, has_room};
use crate::uploads::state::locks::PartReceiver;
use crate::uploads::state::slots::UploadSlot;
use underpass_observe::transfers::TransferFacts;
use underpass_protocol::request::{BodyLength, Method, Request};
use underpass_transport::incoming::{BodyFraming, Incoming, ReceiveError, ReceiveOptions};
use underpass_transport::tls::Session;

/// The state of one upload on its thread.
#[derive(Debug)]
pub(crate) struct ActiveUpload<'a> {
    pub(crate) site: &'a Site,
    pub(crate) params: &'a UploadRequest,
    pub(crate) request: Request<'a, 'a>,
    pub(crate) slot: &'a UploadSlot,
    incoming: Incoming<'a, Arc<OwnedFd>>,
    /// The framing of the body; `None` without a body.
    framing: Option<BodyFraming>,
    facts: TransferFacts,
    /// The range of the file that the body has filled.
    content: Range<u64>,
    /// This connection as the receiver of a part, which another connection may take over.
    receiver: Option<Arc<PartReceiver>>,
    state: BodyState,
    report: Report,
    interim: u64,
    broken: Option<IncompleteBody>,
}

impl<'a> ActiveUpload<'a> {
    /// Creates the state of an upload; `incoming` has the bytes already read of its body.
    pub(crate) fn new(
        site: &'a Site,
        params: &'a UploadRequest,
        request: Request<'a, 'a>,
        slot: &'a UploadSlot,
        incoming: Incoming<'a, Arc<OwnedFd>>,
        facts: TransferFacts,
    ) -> Self {
        let framing = match request.body() {
            Ok(BodyLength::Length(len)) => Some(BodyFraming::Length(len)),
            Ok(BodyLength::Chunked) => Some(BodyFraming::Chunked),
            Ok(BodyLength::None) | Err(_) => None,
        };
        Self {
            site,
            params,
            request,
            slot,
            incoming,
            framing,
            facts,
            content: 0..0,
            receiver: None,
            state: if framing.is_some() { BodyState::Untouched } else { BodyState::Read },
            report: Report::default(),
            interim: 0,
            broken: None,
        }
    }

    /// Checks that a file of this size is allowed.
    pub(crate) fn check_size(&self, len: u64) -> Result<()> {
        let changes = &self.site.settings.changes;
        match changes.limit {
            // The draft's section 4.1.4 requires the limits here.
            Some(limit) if len > limit => {
                let limits = refusal::limits(changes);
                Err(UploadRefusal::too_long(Some(limit)).with("Upload-Limit", limits))
            }
            _ => Ok(()),
        }
    }

    /// Checks that an HTTP/1.0 request states the length of its body, which the end of the
    /// connection could delimit otherwise (RFC 1945 7.2.2).
    pub(crate) fn check_has_length(&self) -> Result<()> {
        let request = &self.request;
        let needs_body = matches!(request.method, Method::Put | Method::Patch);
        if needs_body && request.minor_version == 0 && request.field("content-length").is_none() {
            return Err(UploadRefusal::new(411, "HTTP/1.0 needs a Content-Length"));
        }
        Ok(())
    }

    /// Checks that the body can be stored unmodified, without a coding to be undone first.
    pub(crate) fn check_representation(&self) -> Result<()> {
        let codings = self
            .request
            .fields("content-encoding")
            .flat_map(|value| value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii));
        if codings.into_iter().any(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
            // RFC 9110 15.5.16, with the accepted codings (12.5.3).
            let detail = "files are stored as they are sent: send it without a Content-Encoding";
            return Err(UploadRefusal::new(415, detail).with("Accept-Encoding", "identity"));
        }
        Ok(())
    }

    /// Returns the length of the body, if it is known.
    pub(crate) fn expected(&self) -> Option<u64> {
        match self.framing {
            None => Some(0),
            Some(BodyFraming::Length(len)) => Some(len),
            Some(_) => None,
        }
    }

    /// Returns whether the body is known to be a small one, for which little has to be prepared.
    pub(crate) fn is_small(&self) -> bool {
        self.expected().is_some_and(|len| len <= MAX_SMALL)
    }

    /// Returns whether there is a body.
    pub(crate) fn has_body(&self) -> bool {
        self.framing.is_some()
    }

    /// Returns the number of bytes of the body in the file.
    pub(crate) fn received(&self) -> u64 {
        self.report.bytes()
    }

    /// Returns the range of the file that the body has filled.
    pub(crate) fn content(&self) -> Range<u64> {
        self.content.clone()
    }

    /// Records that the body now fills the file from another offset on.
    pub(crate) fn content_moved(&mut self, at: u64) {
        self.content = at..at.saturating_add(self.received());
    }

    /// Returns the connection.
    pub(crate) fn connection(&self) -> BorrowedFd<'_> {
        self.incoming.stream().as_fd()
    }

    /// Returns whether the body was cut off, and its client may resume it.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.broken.as_ref().is_some_and(|broken| broken.cause.is_cut_off())
    }

    /// Returns whether the body was longer than allowed.
    pub(crate) fn is_too_long(&self) -> bool {
        self.broken.as_ref().is_some_and(|broken| broken.cause == IncompleteCause::TooLong)
    }

    /// Sets the receiver by which another connection that takes over the same part ends this one.
    pub(crate) fn superseded_by(&mut self, receiver: Arc<PartReceiver>) {
        self.receiver = Some(receiver);
    }

    /// Returns whether another connection has resumed the same part, or begun it anew.
    pub(crate) fn is_superseded(&self) -> bool {
        self.receiver.as_ref().is_some_and(|receiver| receiver.is_superseded())
    }

    /// Waits for the first byte of the body.
    pub(crate) fn first_byte(&mut self) -> Result<()> {
        if self.incoming.holds_more() {
            return Ok(());
        }
        let socket = self.incoming.stream();
        if let Some(session) = self.incoming.session() {
            let timeout = self.site.shared.settings.timeout;
            let outcome = interim::first_byte(socket.as_fd(), session, timeout);
            return outcome.map_err(|error| self.break_off(&error));
        }
        let timeout = Timespec::try_from(self.site.shared.settings.timeout).ok();
        let error = match poll(&mut [PollFd::new(socket, PollFlags::IN)], timeout.as_ref()) {
            // This reports the number of bytes without reading them; zero means the end.
            Ok(1..) if ioctl_fionread(socket).is_ok_and(|bytes| bytes > 0) => return Ok(()),
            Ok(1..) => ReceiveError::Ended,
            // A signal could cause this, but this thread gets none.
            Ok(0) | Err(_) => ReceiveError::Stalled,
        };
        Err(self.break_off(&error))
    }

    /// Records why the body is incomplete, and returns the refusal.
    fn break_off(&mut self, error: &ReceiveError) -> UploadRefusal {
        self.state = BodyState::Incomplete;
        let error = if self.is_superseded() { &ReceiveError::Cancelled } else { error };
        let (broken, refusal) = match self.slot.aborted() {
            Some(reason) => IncompleteBody::aborted(reason, self.site),
            None => IncompleteBody::of(error, self.site.settings.changes.limit),
        };
        self.broken = Some(broken);
        refusal
    }

    /// Checks that there is room for this many more bytes.
    pub(crate) fn check_room(&self, target: &UploadTarget, len: u64) -> Result<()> {
        if has_room(self.site, &target.folder, len) { Ok(()) } else { Err(UploadRefusal::full()) }
    }

    /// Reserves space up to `end`, of which the bytes from `from` on are still to come, for as long
    /// as this connection sends.
    pub(crate) fn reserve(
        &self,
        target: &UploadTarget,
        new_file: &AtomicFile,
        from: u64,
        end: u64,
    ) -> Result<()> {
        let len = end.saturating_sub(from);
        // The lock keeps other uploads from checking between this check and the reservation.
        let device = fstat(&target.folder)?.st_dev;
        let reserving = self.site.shared.uploads.reserving.of(device);
        let _alone = lock(&reserving);
        self.check_room(target, len)?;
        if self.is_small() {
            // A small body takes its space soon, and reserving costs as much as writing.
            self.slot.claim(device, len, false);
            return Ok(());
        }
        if self.has_enough(target, len) {
            self.slot.is_unreserved.store(true, Ordering::Relaxed);
            return Ok(());
        }
        new_file.reserve(end)?;
        let stat = fstat(new_file.file())?;
        #[allow(clippy::useless_conversion)] // types differ by target
        let blocks: u64 = u64::try_from(stat.st_blocks).unwrap_or(0);
        // If the file system reserves nothing, other uploads must learn of the claim.
        self.slot.claim(device, len, blocks.saturating_mul(512) >= end);
        Ok(())
    }

    /// Returns whether this size, with the reservations of the same owner, would exceed half of the
    /// free space: one file may take all of it, many files of one client must not keep it from
    /// others.
    fn has_enough(&self, target: &UploadTarget, len: u64) -> bool {
        let (Ok(facts), Ok(stat)) = (fstatvfs(&target.folder), fstat(&target.folder)) else {
            return false;
        };
        let own = self.site.shared.uploads.slots.claimed_by_owner(self.slot, stat.st_dev);
        let free = facts.f_bavail.saturating_mul(facts.f_frsize).saturating_add(own);
        facts.f_blocks > 0 && own > 0 && own.saturating_add(len) > free / 2
    }

    /// Finds the destination of the file, if the request may change it.
    pub(crate) fn target(&self) -> Result<UploadTarget> {
        let (root, changes) = (&self.site.root, &self.site.settings.changes);
        let creates = changes.create_parents && self.request.method == Method::Put;
        let changes = Changes { create_parents: creates, ..*changes };
        let target = UploadTarget::find(root, self.params, &self.request, &changes)?;
        check(&self.request, target.present.as_ref())?;
        Ok(target)
    }

    /// Returns whether the conditions of the request, which hold, name the existing version.
    pub(crate) fn names_version(&self) -> bool {
        let (request, params) = (&self.request, self.params);
        request.field("if-match").is_some_and(|tags| tags != b"*")
            || params.tags.expect_one_of(&params.path)
    }

    /// Invites a client that waits for it to send its body (RFC 9110 10.1.1).
    pub(crate) fn send_continue(&mut self) -> Result<()> {
        let waits = self.request.expects_continue() && self.framing.is_some();
        if waits && !self.incoming.holds_more() {
            self.send_interim(interim::CONTINUE)?;
        }
        Ok(())
    }

    /// Sends an interim response.
    pub(crate) fn send_interim(&mut self, bytes: &[u8]) -> Result<()> {
        let timeout = self.site.shared.settings.timeout;
        self.interim += bytes.len() as u64;
        let session = self.incoming.session().map(|session| &**session);
        interim::write(self.incoming.stream().as_fd(), session, bytes, timeout)
            .map_err(|error| self.break_off(&error.into()))
    }

    /// Moves the body into `file` from `at` on, `limit` bytes at most; returns their number.
    pub(crate) fn body(&mut self, file: &File, at: u64, limit: Option<u64>) -> Result<u64> {
        let Some(framing) = self.framing else {
            let is_superseded = !self.end_body();
            return if is_superseded { Err(UploadRefusal::superseded()) } else { Ok(0) };
        };
        let (settings, of_server) = (&self.site.settings, &self.site.shared.settings);
        // For a known length the space was checked and is reserved.
        let is_open =
            framing == BodyFraming::Chunked || self.slot.is_unreserved.load(Ordering::Relaxed);
        let watches = is_open && settings.changes.min_free != MinFree::Bytes(0);
        let receive_options = ReceiveOptions {
            policy: policy(of_server.policy, self.incoming.session()),
            // A pipe of a killed server loses its bytes, and the client has to send them again: at
            // most this many.
            step: Some(of_server.step.unwrap_or(256 << 10)),
            pipes: Some(&self.site.shared.uploads.pipes),
            limit,
            progress_every: watches.then_some(disk_space::CHECK_INTERVAL_BYTES),
            ..ReceiveOptions::default()
        };
        let expected = self.expected().unwrap_or(0);
        let handle =
            self.site.shared.transfers.register(TransferFacts { expected, ..self.facts.clone() });
        let slot = self.slot;
        if watches {
            self.incoming.set_cancel(Some(&slot.cancel));
        }
        let (site, mut looked) = (self.site, 0);
        let mut on_progress = |progress: &underpass_engine::Progress| {
            handle.progress(progress.bytes, progress.mechanism);
            slot.progress(progress.bytes);
            if watches && progress.bytes >= looked + disk_space::CHECK_INTERVAL_BYTES {
                looked = progress.bytes;
                if !has_room(site, file, disk_space::CHECK_INTERVAL_BYTES) {
                    slot.end_full();
                }
            }
        };
        slot.begin_body();
        let received = self.incoming.body(framing, file, at, &receive_options, &mut on_progress);
        slot.end_body();
        self.report.add(&received.report);
        self.content = at..at.saturating_add(received.report.bytes());
        let is_superseded = !self.end_body();
        match received.outcome {
            // The client could not get the response, and may count on the newer upload.
            Ok(()) if is_superseded => Err(self.break_off(&ReceiveError::Cancelled)),
            Ok(()) => Ok(received.report.bytes()),
            Err(error) => Err(self.break_off(&error)),
        }
    }

    /// Keeps the connection from being shut down, as the client is no longer waited for. Returns
    /// false if another connection has shut it down: no other request can be read from it.
    fn end_body(&mut self) -> bool {
        let is_kept = self.receiver.as_ref().is_none_or(|receiver| receiver.keep_connection());
        let is_over = !is_kept || self.slot.aborted().is_some();
        self.state = if is_over { BodyState::Incomplete } else { BodyState::Read };
        is_kept
    }

    /// Returns the unused bytes of the connection, and how the body was received.
    pub(crate) fn end(self) -> (Vec<u8>, ReceivedUpload) {
        let Self { state: body, report, interim, broken, incoming, .. } = self;
        (incoming.into_ahead(), ReceivedUpload { body, report, interim, broken })
    }

    /// Returns the report of the bytes moved so far.
    pub(crate) fn report(&self) -> &Report {
        &self.report
    }
}

/// Applies the operator's policy to receiving, as far as possible: a policy of sending files by
/// sendfile(2) says nothing about receiving them.
///
/// If this process decrypts, only one mechanism is possible, so no others are tried.
fn policy(wanted: Policy, session: Option<&Arc<Session>>) -> Policy {
    match wanted {
        _ if session.is_some_and(|session| !session.is_in_kernel()) => {
            Policy::Require(Mechanism::ReadWrite)
        }
        Policy::Require(Mechanism::Splice | Mechanism::ReadWrite) | Policy::Prefer(_) => wanted,
        _ => Policy::Auto,
    }
}

/// The maximum length of a small body.
const MAX_SMALL: u64 = 64 << 10;
