//! How a transfer is to be done.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use underpass_sys::Kind;

use crate::chain::sink::Sink;
use crate::integrity::Integrity;
use crate::mechanisms::mechanism::Mechanism;
use crate::mechanisms::pipes::PipePool;
use crate::mechanisms::policy::{Candidates, Policy};
use crate::socket::tls_transport::TlsTransport;
use crate::transfer::capabilities::Capabilities;

/// How a transfer is to be done. The default moves everything in the cheapest way.
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
    pub(crate) small: Option<usize>,
    pub(crate) integrity: Integrity,
    pub(crate) confirm: Confirm,
    pub(crate) turn: Turn,
    pub(crate) reserve: bool,
    pub(crate) unshared: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: Option<&'a AtomicBool>,
    pub(crate) capabilities: Option<&'a Capabilities>,
    pub(crate) observer: Option<Observer<'a>>,
    pub(crate) observe_every: Option<u64>,
    pub(crate) listener: Option<Listener<'a>>,
    pub(crate) source_tls: Option<&'a dyn TlsTransport>,
    pub(crate) sink_tls: Option<&'a dyn TlsTransport>,
    shared_pipes: Option<&'a PipePool>,
    own_pipes: PipePool,
}

type Observer<'a> = Box<dyn FnMut(&Progress) + Send + 'a>;
type Listener<'a> = Box<dyn FnMut() -> Heard + Send + 'a>;

impl<'a> Options<'a> {
    /// Which mechanisms may be used.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Bytes asked for in one system call, instead of each mechanism's own default.
    ///
    /// Cut to what the mechanism can take: 1 GiB for copy_file_range and mmap, 16 MiB for
    /// read_write, the pipe's size for splice, 0x7ffff000 for sendfile. A reflink is one call.
    #[must_use]
    pub fn step(mut self, bytes: usize) -> Self {
        self.step = Some(bytes.max(1));
        self
    }

    /// Over a socket, sends a file of at most so many bytes from one buffer with the header before
    /// it, instead of [`SMALL_TRANSFER`](crate::SMALL_TRANSFER); 0 for never. Only
    /// [`Policy::Auto`] does it at all.
    #[must_use]
    pub fn small(mut self, bytes: usize) -> Self {
        self.small = Some(bytes);
        self
    }

    /// How sure the transfer has to be that its bytes are of one version.
    #[must_use]
    pub fn integrity(mut self, level: Integrity) -> Self {
        self.integrity = level;
        self
    }

    /// When [`Integrity::Detect`] takes its last look at the files.
    #[must_use]
    pub fn confirm(mut self, confirm: Confirm) -> Self {
        self.confirm = confirm;
        self
    }

    /// Before bytes are copied into a file, reserve space for the whole segment, if its length is
    /// known and the file system can. A disk too small is then found out before the first byte,
    /// and on ext4 a copy takes a quarter less time.
    #[must_use]
    pub fn reserve(mut self) -> Self {
        self.reserve = true;
        self
    }

    /// Use nothing that may make two files share their blocks: neither reflink nor copy_file_range,
    /// which shares them silently where the file system can.
    #[must_use]
    pub fn unshared(mut self) -> Self {
        self.unshared = true;
        self
    }

    /// Bytes moved by one call of [`advance`](crate::Transfer::advance) at the most, give or take
    /// a step, so that one transfer cannot starve others on its thread. Unlimited by default.
    #[must_use]
    pub fn turn(mut self, bytes: u64) -> Self {
        self.turn = Turn(bytes.max(1));
        self
    }

    /// Fail when nothing has moved for so long. Slow is not stalled: each byte starts it afresh.
    /// Only [`run`](crate::Transfer::run) waits, so only it looks.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Fail soon after this becomes true. A signal handler may set it; only
    /// [`run`](crate::Transfer::run) looks.
    #[must_use]
    pub fn cancel(mut self, flag: &'a AtomicBool) -> Self {
        self.cancel = Some(flag);
        self
    }

    /// What is known about this kernel, and where to note what is found out.
    #[must_use]
    pub fn capabilities(mut self, capabilities: &'a Capabilities) -> Self {
        self.capabilities = Some(capabilities);
        self
    }

    /// Where pipes come from and go back to, instead of one for this transfer alone.
    #[must_use]
    pub fn pipes(mut self, pool: &'a PipePool) -> Self {
        self.shared_pipes = Some(pool);
        self
    }

    /// Called with the progress, at most every [`Progress::INTERVAL`] and once at the end.
    #[must_use]
    pub fn observer(mut self, observer: impl FnMut(&Progress) + Send + 'a) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Also calls the observer whenever so many bytes have been delivered since it was called last,
    /// give or take a step: for those who keep a journal of what is there.
    #[must_use]
    pub fn observe_every(mut self, bytes: u64) -> Self {
        self.observe_every = Some(bytes);
        self
    }

    /// Called when the peer of a socket says something while bytes are sent to it, or goes: it may
    /// want no more. It has to read what has come, or to say that it has heard enough. Only
    /// [`run`](crate::Transfer::run) listens.
    #[must_use]
    pub fn listener(mut self, listener: impl FnMut() -> Heard + Send + 'a) -> Self {
        self.listener = Some(Box::new(listener));
        self
    }

    /// TLS on the sources that are sockets.
    #[must_use]
    pub fn source_tls(mut self, tls: &'a dyn TlsTransport) -> Self {
        self.source_tls = Some(tls);
        self
    }

    /// TLS on the sink, which is a socket.
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
    /// One that the kernel is known to lack is passed over, unless nothing else is allowed.
    pub(crate) fn next_candidate<S>(
        &self,
        candidates: &mut Option<Candidates>,
        source: Kind,
        sink: &Sink<S>,
    ) -> Option<Mechanism> {
        let is_required = matches!(self.policy, Policy::Require(_));
        let shares = |mechanism| matches!(mechanism, Mechanism::Reflink | Mechanism::CopyFileRange);
        let lacks = |mechanism: &Mechanism| {
            (self.unshared && shares(*mechanism))
                || (!is_required && self.capabilities.is_some_and(|known| known.lacks(*mechanism)))
        };
        candidates
            .get_or_insert_with(|| Candidates::new(self.policy, source, sink.kind, sink.appends))
            .find(|mechanism| !lacks(mechanism))
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

/// What the words of a peer mean for what is being sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Go on, and listen.
    GoOn,
    /// Go on, whatever else it may say.
    Enough,
    /// It wants no more: fail with [`Error::Answered`](crate::Error::Answered).
    Stop,
}

/// When [`Integrity::Detect`] takes its last look at the files: the later, the surer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirm {
    /// When the peer has the last byte: for streams whose peer takes only their end for the end.
    #[default]
    Delivered,
    /// When everything but the last byte is with the peer, and not again: for streams whose peer
    /// counts the bytes, as that of HTTP does. It would not notice a reset that comes after them,
    /// or take it for that of its next request. With `TCP_NODELAY` the bytes just before it go out
    /// alone, so that the peer acknowledges the others without delay.
    BeforeEnd,
    /// The same, with a copy of what is held back that was made before the look: for files that
    /// are being written to. By reference it could change until the peer reads it.
    BeforeCopiedEnd,
    /// When the last byte is on its way. What is changed between then and the peer's reading of
    /// it goes unnoticed.
    HandedOver,
}

/// Bytes of one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn(pub(crate) u64);

impl Default for Turn {
    fn default() -> Self {
        Self(u64::MAX)
    }
}

/// How far a transfer has come, as told to an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Payload bytes delivered so far.
    pub bytes: u64,
    /// Payload bytes in all, if that is known.
    pub expected: Option<u64>,
    /// Time since the first step.
    pub elapsed: Duration,
    /// The mechanism that moved most of them so far, if any has.
    pub mechanism: Option<Mechanism>,
}

impl Progress {
    /// The shortest time between two reports: 20 a second are enough for any eye.
    pub const INTERVAL: Duration = Duration::from_millis(50);
}
