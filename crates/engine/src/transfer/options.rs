//! The options of a transfer.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use underpass_sys::Kind;

use crate::chain::sink::Sink;
use crate::integrity::Integrity;
use crate::mechanisms::mechanism::Mechanism;
use crate::mechanisms::pipes::PipePool;
use crate::mechanisms::policy::{Candidates, Policy};
use crate::mechanisms::step::{DeclineReason, Step};
use crate::socket::tls_transport::TlsTransport;
use crate::transfer::capabilities::Capabilities;
use crate::wait::StallDetector;

/// The options of a transfer. The default uses the cheapest mechanism and no guard.
///
/// ```
/// use std::time::Duration;
/// use underpass_engine::{Integrity, Mechanism, Options, Policy};
///
/// let options = Options::default()
///     .policy(Policy::Require(Mechanism::Sendfile))
///     .step(64 << 10)
///     .integrity(Integrity::Detect)
///     .timeout(Duration::from_secs(30));
/// # let _ = options;
/// ```
#[derive(Default)]
pub struct Options<'a> {
    pub(crate) policy: Policy,
    pub(crate) step: Option<usize>,
    pub(crate) max_small: Option<usize>,
    pub(crate) integrity: Integrity,
    pub(crate) confirm: Confirm,
    pub(crate) turn: TurnLimit,
    pub(crate) reserve: bool,
    pub(crate) unshared: bool,
    pub(crate) unmetered: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) stall: Option<&'a mut StallDetector>,
    pub(crate) cancel: Option<&'a AtomicBool>,
    pub(crate) capabilities: Option<&'a Capabilities>,
    pub(crate) observer: Option<ProgressCallback<'a>>,
    pub(crate) observe_every: Option<u64>,
    pub(crate) listener: Option<PeerListener<'a>>,
    pub(crate) source_tls: Option<&'a dyn TlsTransport>,
    pub(crate) sink_tls: Option<&'a dyn TlsTransport>,
    shared_pipes: Option<&'a PipePool>,
    own_pipes: PipePool,
}

type ProgressCallback<'a> = Box<dyn FnMut(&Progress) + Send + 'a>;
type PeerListener<'a> = Box<dyn FnMut() -> PeerMessage + Send + 'a>;

impl<'a> Options<'a> {
    /// Sets which mechanisms may be used.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the bytes requested in one system call, instead of each mechanism's own default.
    ///
    /// The value is limited to what the mechanism can take: 1 GiB for copy_file_range and mmap,
    /// 16 MiB for read_write, the pipe's size for splice, 0x7ffff000 for sendfile. A reflink is
    /// one call.
    #[must_use]
    pub fn step(mut self, bytes: usize) -> Self {
        self.step = Some(bytes.max(1));
        self
    }

    /// Sets the largest file, in bytes, that is sent over a socket from one buffer with the
    /// header before it, instead of [`SMALL_TRANSFER`](crate::SMALL_TRANSFER); 0 for none. It
    /// applies only with [`Policy::Auto`].
    #[must_use]
    pub fn max_small(mut self, bytes: usize) -> Self {
        self.max_small = Some(bytes);
        self
    }

    /// Sets how certain the transfer has to be that its bytes belong to one version.
    #[must_use]
    pub fn integrity(mut self, level: Integrity) -> Self {
        self.integrity = level;
        self
    }

    /// Sets when [`Integrity::Detect`] checks the files for the last time.
    #[must_use]
    pub fn confirm(mut self, confirm: Confirm) -> Self {
        self.confirm = confirm;
        self
    }

    /// Reserves space for a whole segment before its bytes are copied into a file, if its length
    /// is known and the file system can. A full disk is then noticed before the first byte, and
    /// on ext4 a copy takes a quarter less time.
    #[must_use]
    pub fn reserve(mut self) -> Self {
        self.reserve = true;
        self
    }

    /// Excludes mechanisms that may make two files share their blocks: reflink, and
    /// copy_file_range, which shares them silently where the file system can. A transfer whose
    /// policy requires one of them is declined.
    #[must_use]
    pub fn unshared(mut self) -> Self {
        self.unshared = true;
        self
    }

    /// Leaves out [`Report::usage`](crate::Report::usage): for callers that count it over many
    /// transfers, each of which would take four system calls for it.
    #[must_use]
    pub fn unmetered(mut self) -> Self {
        self.unmetered = true;
        self
    }

    /// Limits the bytes moved by one call of [`advance`](crate::Transfer::advance), give or take a
    /// step, so that one transfer cannot starve others on its thread. The default is unlimited.
    #[must_use]
    pub fn turn(mut self, bytes: u64) -> Self {
        self.turn = TurnLimit(bytes.max(1));
        self
    }

    /// Fails the transfer when nothing has moved for this time. Slow is not stalled: each byte
    /// restarts the clock. Only [`run`](crate::Transfer::run) waits, so only it checks.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Fails the transfer when the peer of a socket moves too little while it is waited for. Other
    /// ends may take any time: unlike the peer they belong to this side. Only
    /// [`run`](crate::Transfer::run) waits, so only it checks.
    #[must_use]
    pub fn stall_detector(mut self, stall: &'a mut StallDetector) -> Self {
        self.stall = Some(stall);
        self
    }

    /// Fails the transfer soon after the flag becomes true. A signal handler may set it; only
    /// [`run`](crate::Transfer::run) checks.
    #[must_use]
    pub fn cancel(mut self, flag: &'a AtomicBool) -> Self {
        self.cancel = Some(flag);
        self
    }

    /// Sets the known capabilities of this kernel, to which new findings are added.
    #[must_use]
    pub fn capabilities(mut self, capabilities: &'a Capabilities) -> Self {
        self.capabilities = Some(capabilities);
        self
    }

    /// Sets the pool of pipes, instead of one for this transfer alone.
    #[must_use]
    pub fn pipes(mut self, pool: &'a PipePool) -> Self {
        self.shared_pipes = Some(pool);
        self
    }

    /// Sets a function that is called with the progress, at most every [`Progress::INTERVAL`] and
    /// once at the end.
    #[must_use]
    pub fn observer(mut self, observer: impl FnMut(&Progress) + Send + 'a) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Also calls the observer whenever this many bytes have been delivered since its last call,
    /// give or take a step: for callers that keep a journal.
    #[must_use]
    pub fn observe_every(mut self, bytes: u64) -> Self {
        self.observe_every = Some(bytes);
        self
    }

    /// Sets a function that is called when the peer of a socket sends something while bytes are
    /// sent to it, or disconnects: it may want no more. The function must read what has come, or
    /// return [`PeerMessage::StopListening`]. Only [`run`](crate::Transfer::run) listens.
    #[must_use]
    pub fn listener(mut self, listener: impl FnMut() -> PeerMessage + Send + 'a) -> Self {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Sets the TLS on the sources that are sockets.
    #[must_use]
    pub fn source_tls(mut self, tls: &'a dyn TlsTransport) -> Self {
        self.source_tls = Some(tls);
        self
    }

    /// Sets the TLS on the sink, which is a socket.
    #[must_use]
    pub fn sink_tls(mut self, tls: &'a dyn TlsTransport) -> Self {
        self.sink_tls = Some(tls);
        self
    }

    pub(crate) fn pool(&self) -> &PipePool {
        self.shared_pipes.unwrap_or(&self.own_pipes)
    }

    /// Returns the next mechanism to try between a source of this kind and the sink.
    ///
    /// It skips one that the kernel is known to lack, unless no other is allowed.
    pub(crate) fn next_candidate<S>(
        &self,
        candidates: &mut Option<Candidates>,
        source: Kind,
        sink: &Sink<S>,
    ) -> Option<Mechanism> {
        let is_required = matches!(self.policy, Policy::Require(_));
        let lacks = |mechanism: &Mechanism| {
            self.excludes(*mechanism)
                || (!is_required && self.capabilities.is_some_and(|known| known.lacks(*mechanism)))
        };
        candidates
            .get_or_insert_with(|| Candidates::new(self.policy, source, sink.kind, sink.appends))
            .find(|mechanism| !lacks(mechanism))
    }

    /// Returns the step of a transfer without a candidate: the mechanism that it requires is
    /// excluded, as every other policy ends with read_write.
    pub(crate) fn no_candidate(&self) -> (Step, Mechanism) {
        let mechanism = match self.policy {
            Policy::Prefer(mechanism) | Policy::Require(mechanism) => mechanism,
            Policy::Auto => Mechanism::ReadWrite,
        };
        (Step::Declined(DeclineReason::Excluded), mechanism)
    }

    fn excludes(&self, mechanism: Mechanism) -> bool {
        self.unshared && matches!(mechanism, Mechanism::Reflink | Mechanism::CopyFileRange)
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("policy", &self.policy)
            .field("step", &self.step)
            .field("integrity", &self.integrity)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// The meaning of a peer's message for the transfer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerMessage {
    /// Continue, and listen.
    Continue,
    /// Continue, and ignore further messages.
    StopListening,
    /// The peer wants no more: fail with [`Error::Answered`](crate::Error::Answered).
    Abort,
}

/// When [`Integrity::Detect`] checks the files for the last time, and [`Integrity::Lease`] its lease:
/// the later, the surer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirm {
    /// When the peer has the last byte: for streams whose peer recognizes only their end as the
    /// end.
    #[default]
    Delivered,
    /// When everything but the last byte is with the peer, and not again: for streams whose peer
    /// counts the bytes, as an HTTP client does. It would not notice a reset that comes after
    /// them, or take it for that of its next request. With `TCP_NODELAY` the bytes just before
    /// the last one go out alone, so that the peer acknowledges the others without delay.
    BeforeEnd,
    /// As [`BeforeEnd`](Self::BeforeEnd), with a copy of the held-back bytes that was made before
    /// the check: for files that are being written to. By reference they could change until the
    /// peer reads them.
    BeforeCopiedEnd,
    /// When the last byte has been handed to the kernel. A change between then and the peer's
    /// reading of it goes unnoticed.
    HandedOver,
}

/// Bytes of one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnLimit(pub(crate) u64);

impl Default for TurnLimit {
    fn default() -> Self {
        Self(u64::MAX)
    }
}

/// The progress of a transfer, as passed to an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Payload bytes delivered so far.
    pub bytes: u64,
    /// The total of payload bytes, if that is known.
    pub expected: Option<u64>,
    /// Time since the first step.
    pub elapsed: Duration,
    /// The mechanism that has moved most of them so far, if any has.
    pub mechanism: Option<Mechanism>,
}

impl Progress {
    /// The shortest time between two reports: more than 20 a second look no smoother.
    pub const INTERVAL: Duration = Duration::from_millis(50);
}
