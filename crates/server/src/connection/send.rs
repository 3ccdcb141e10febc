//! Sends one response: the engine moves its body. `uploads` receives the bodies of requests, and
//! `changes` copies files.

mod archive;
mod at_once;
mod cached;
mod checks;
mod listing;
mod pages;
pub(crate) mod pause;
mod unread;

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use underpass_cache::CacheErrorKind;
use underpass_engine::{
    Chain, Confirm, Error, Integrity, Report, Segment, Status, Usage, Wait, socket,
};

use crate::connection::Link;
use crate::connection::outcome::{SendFailure, SendOutcome};
use crate::connection::peer::{Activity, Peer};
use crate::connection::send::checks::ChainChecks;
use crate::connection::send::unread::Unread;
use crate::connection::turn::{
    SendTransfer, advance, has_to_wait, poll_interval, record_short_response, transfer, turn,
};
use crate::files::drop_behind::DropBehind;
use crate::files::open_files::ResidentUntil;
use crate::files::prefetch::{MissingRange, Residency};
use crate::routing::cached::CachedBody;
use crate::routing::response::{Body, max_copied};
use underpass_observe::metrics::Recorded;
use underpass_observe::transfers::{Handle, TransferFacts};

/// The sending of a response: finished, or still under way.
#[allow(clippy::large_enum_variant)] // the large one is the usual one, and is not kept
pub(crate) enum Sending<'a> {
    /// The kernel has all of it.
    Done(SendOutcome),
    /// The rest follows in later turns. Boxed because most connections never need it.
    Slow(SlowSend<'a>),
}

/// A future that sends the rest of a response.
pub(crate) type SlowSend<'a> = Pin<Box<dyn Future<Output = SendOutcome> + 'a>>;

impl<'a> Sending<'a> {
    /// Returns a future of the outcome, which may be known already.
    pub(crate) fn into_slow(self) -> SlowSend<'a> {
        match self {
            Self::Done(outcome) => Box::pin(std::future::ready(outcome)),
            Self::Slow(sending) => sending,
        }
    }

    /// Sends as much as possible at once. `facts` is called for the entry in the register of
    /// transfers, if sending takes longer. `now` may be slightly out of date.
    pub(crate) fn start(
        link: Link<'a>,
        integrity: Integrity,
        mut head: Vec<u8>,
        now: Instant,
        body: Body,
        facts: impl FnOnce() -> TransferFacts,
    ) -> Self {
        let head_len = head.len() as u64;
        let mut resident_until = None;
        let (chain, checks) = match body {
            Body::Nothing => (Chain::new().bytes(head), ChainChecks::NONE),
            Body::Memory(bytes) => {
                let head = [head.as_slice(), &bytes].concat();
                (Chain::new().bytes(head), ChainChecks::NONE)
            }
            Body::File(mut file) => {
                let sent = match at_once::send_file(link, integrity, &mut head, &mut file, now) {
                    Ok(sent) => sent,
                    Err(error) => return Self::failed(link.peer, error),
                };
                if let Some(report) = sent {
                    if head.is_empty() && file.len == 0 {
                        return Self::done(link, head, now, report);
                    }
                    let slow = SlowResponse::new(link, integrity, head_len, facts());
                    let checks = ChainChecks::of(&file, integrity);
                    return Self::Slow(slow.resume_after_part(report, file.chain(head), checks));
                }
                let checks = ChainChecks::of(&file, integrity);
                resident_until = file.take_resident_until();
                (file.chain(head), checks)
            }
            Body::Cached(body) => {
                return Self::start_cached(link, head, now, body, facts);
            }
            body => {
                let slow = SlowResponse::new(link, integrity, head_len, facts());
                return Self::Slow(Box::pin(slow.send_pieces(head, body)));
            }
        };
        if !checks.is_resident {
            let slow = SlowResponse::new(link, integrity, head_len, facts());
            return Self::Slow(Box::pin(slow.send_single_chain(chain, checks, resident_until)));
        }
        let transfer = transfer(link, chain, integrity, checks.confirm, max_copied(link.peer), now);
        Self::first_turn(link, transfer, now, |usage| {
            SlowResponse::new(link, integrity, head_len, facts()).spent(usage)
        })
    }

    /// Sends as much as possible of a body from the cache at once.
    fn start_cached(
        link: Link<'a>,
        mut head: Vec<u8>,
        now: Instant,
        mut body: Box<CachedBody>,
        facts: impl FnOnce() -> TransferFacts,
    ) -> Self {
        let head_len = head.len() as u64;
        let integrity = Integrity::Fast; // what is in the cache never changes
        // The bytes being read stay in the cache until the last one is sent.
        let slow =
            |reads| SlowResponse { reads, ..SlowResponse::new(link, integrity, head_len, facts()) };
        match at_once::send_cached(link, &mut head, &mut body, now) {
            Err(error) => {
                body.failed(&error);
                Self::failed(link.peer, error)
            }
            Ok(Some(report)) if head.is_empty() && body.is_empty() => {
                Self::done(link, head, now, report)
            }
            Ok(Some(report)) => {
                let chain = body.chain(&head);
                let slow = slow(Some(Arc::from(body)));
                Self::Slow(slow.resume_after_part(report, chain, ChainChecks::NONE))
            }
            Ok(None) if body.is_present() => {
                let chain = body.chain(&head);
                let (confirm, max_copied) = (Confirm::HandedOver, max_copied(link.peer));
                let transfer = transfer(link, chain, integrity, confirm, max_copied, now);
                let mut reads = Some(Arc::from(body));
                let slow = |usage| slow(reads.take()).spent(usage);
                let sending = Self::first_turn(link, transfer, now, slow);
                if let (Some(body), Self::Done(done)) = (reads, &sending)
                    && let Some(SendFailure::Engine(error)) = &done.failure
                {
                    body.failed(error);
                }
                sending
            }
            Ok(None) => Self::Slow(Box::pin(slow(None).send_pieces(head, Body::Cached(body)))),
        }
    }

    /// Ends a response that was sent completely at once.
    fn done(link: Link<'_>, head: Vec<u8>, now: Instant, report: Report) -> Self {
        let Link { worker, peer } = link;
        peer.written.set(peer.written.get() + report.bytes());
        worker.message.replace(head);
        record_short_response(worker, report.bytes(), now);
        Self::Done(SendOutcome { report, ..SendOutcome::default() })
    }

    /// Ends a response that was sent at once with an error.
    fn failed(peer: &Peer, error: Error) -> Self {
        let report = error.report().clone();
        peer.written.set(peer.written.get() + report.bytes());
        let failure = Some(SendFailure::Engine(error));
        Self::Done(SendOutcome { report, failure, ..SendOutcome::default() })
    }

    /// Moves as much of a transfer as possible at once; what `slow` returns sends the rest.
    fn first_turn(
        link: Link<'a>,
        mut transfer: SendTransfer<'a>,
        now: Instant,
        slow: impl FnOnce(Option<Box<Usage>>) -> SlowResponse<'a>,
    ) -> Self {
        let Link { worker, peer } = link;
        let mut usage = None;
        if has_to_wait(worker, &transfer, now) {
            return Self::Slow(Box::pin(slow(usage).resume_after_turn(transfer, Status::Yielded)));
        }
        let advanced = advance(&worker.shared.settings, &mut transfer, &mut usage);
        let bytes = transfer.report().bytes();
        peer.written.set(peer.written.get() + bytes);
        match advanced {
            Ok(Status::Done) => {
                record_short_response(worker, bytes, now);
                let report = transfer.report().clone();
                Self::Done(SendOutcome { report, usage, ..SendOutcome::default() })
            }
            Ok(status) => Self::Slow(Box::pin(slow(usage).resume_after_turn(transfer, status))),
            Err(error) => {
                let report = error.report().clone();
                let failure = Some(SendFailure::Engine(error));
                Self::Done(SendOutcome { report, usage, failure, ..SendOutcome::default() })
            }
        }
    }
}

/// The state of a response that takes several turns.
struct SlowResponse<'a> {
    link: Link<'a>,
    integrity: Integrity,
    head_len: u64,
    handle: Handle,
    outcome: SendOutcome,
    /// Whether any page was missing.
    met_missing: bool,
    /// The part that a helper fetches before it is needed.
    ahead: Option<(MissingRange, JoinHandle<bool>)>,
    /// Dropped with the response, after which helpers need not fetch more.
    wanted: Arc<()>,
    /// The parts of the current chain that were read from the disk.
    drop_behind: DropBehind,
    /// The files of an archive's earlier chains, which have to be compared before its end.
    unread: Option<Unread>,
    /// The time since which it has waited for acknowledgements; `None` if it does not.
    waiting_since: Option<Instant>,
    /// The body from the cache that is sent: as long as this exists, the bytes that it reads are
    /// not evicted.
    reads: Option<Arc<CachedBody>>,
    /// The maximum size of a file that is copied together with the bytes before it.
    max_copied: usize,
}

impl<'a> SlowResponse<'a> {
    /// Creates the state for a response.
    fn new(link: Link<'a>, integrity: Integrity, head_len: u64, facts: TransferFacts) -> Self {
        let handle = link.worker.shared.transfers.register(facts);
        let outcome = SendOutcome { is_counted: true, ..SendOutcome::default() };
        Self {
            link,
            integrity,
            head_len,
            handle,
            outcome,
            met_missing: false,
            ahead: None,
            wanted: Arc::default(),
            drop_behind: DropBehind::default(),
            unread: None,
            waiting_since: None,
            reads: None,
            max_copied: max_copied(link.peer),
        }
    }

    /// Records the cost of the first turn.
    fn spent(mut self, usage: Option<Box<Usage>>) -> Self {
        self.outcome.usage = usage;
        self
    }

    /// Continues a transfer that has had its first turn.
    async fn resume_after_turn(
        mut self,
        transfer: SendTransfer<'a>,
        status: Status,
    ) -> SendOutcome {
        let before = self.link.peer.written.get() - transfer.report().bytes();
        if self.wait(status).await {
            // Only a body that is completely in the page cache has had a turn already.
            let residency = Residency::known(transfer.chain());
            self.run_turns(transfer, residency, before).await;
        }
        self.outcome
    }

    /// Sends the rest of a response of which a part was sent at once.
    fn resume_after_part(
        mut self,
        report: Report,
        rest: Chain<Arc<OwnedFd>>,
        checks: ChainChecks,
    ) -> SlowSend<'a> {
        self.link.peer.written.set(self.link.peer.written.get() + report.bytes());
        self.link.worker.metrics().record(&report);
        self.outcome.report = report;
        Box::pin(self.send_single_chain(rest, checks, None))
    }

    /// Sends all that is left as one chain, of which pages may be missing.
    async fn send_single_chain(
        mut self,
        chain: Chain<Arc<OwnedFd>>,
        checks: ChainChecks,
        resident_until: Option<ResidentUntil>,
    ) -> SendOutcome {
        let began = Instant::now();
        if self.send_chain(chain, checks.confirm).await && !self.met_missing {
            // Later requests for the same file then need no check.
            resident_until.inspect(|resident_until| resident_until.set(began));
        }
        self.outcome
    }

    /// Sends a body that is made piece by piece.
    async fn send_pieces(mut self, head: Vec<u8>, body: Body) -> SendOutcome {
        if let Body::Cached(body) = body {
            let body = Arc::from(body);
            self.reads = Some(Arc::clone(&body));
            self.send_cached_body(head, &body).await;
            return self.outcome;
        }
        if self.send_chain(Chain::new().bytes(head), Confirm::HandedOver).await {
            match body {
                Body::Archive(archive) => self.send_archive(*archive).await,
                Body::Stream { pieces, is_chunked } => self.send_listing(pieces, is_chunked).await,
                Body::Nothing | Body::Memory(_) | Body::File(_) | Body::Cached(_) => {}
            }
        }
        self.outcome
    }

    /// Sends a chain to its end; returns whether that succeeded.
    async fn send_chain(&mut self, chain: Chain<Arc<OwnedFd>>, confirm: Confirm) -> bool {
        let has_files = || chain.segments().iter().any(|it| matches!(it, Segment::Source(_)));
        if self.integrity == Integrity::Snapshot && has_files() {
            self.send_clones(chain, confirm).await
        } else {
            self.send_prepared(chain, confirm).await
        }
    }

    /// Sends a chain with clones of its files, which helpers make and close: both wait for the disk,
    /// for each fragment of a file.
    async fn send_clones(&mut self, mut chain: Chain<Arc<OwnedFd>>, confirm: Confirm) -> bool {
        let helpers = &self.link.worker.helpers;
        let client = self.link.peer.client_net();
        let make = move || (chain.make_snapshots(), chain);
        let (snapshots, chain) = match self.while_connected(helpers.run(client, make)).await {
            Some(Ok(made)) => made,
            Some(Err(_)) => {
                self.fail(SendFailure::Panicked);
                return false;
            }
            None => return false,
        };
        let is_sent = self.send_prepared(chain, confirm).await;
        if !snapshots.is_empty() {
            let _ = helpers.run(client, move || drop(snapshots)).await;
        }
        is_sent
    }

    /// Sends a chain whose clones were made, if it needs any.
    async fn send_prepared(&mut self, chain: Chain<Arc<OwnedFd>>, confirm: Confirm) -> bool {
        let residency = Residency::new(&chain);
        if self.link.worker.shared.settings.drops_behind {
            self.find_missing(&residency).await;
        }
        let before = self.link.peer.written.get();
        let (integrity, max_copied) = (self.integrity, self.max_copied);
        let transfer = transfer(self.link, chain, integrity, confirm, max_copied, Instant::now());
        self.run_turns(transfer, residency, before).await
    }

    /// Moves a transfer to its end in turns, each of which begins once its pages are cached.
    async fn run_turns(
        &mut self,
        mut transfer: SendTransfer<'a>,
        mut residency: Residency,
        written_before: u64,
    ) -> bool {
        let (mut recorded, mut is_held) = (Recorded::default(), false);
        loop {
            let turn = turn(self.link.worker, Instant::now());
            self.prefetch(&mut residency, transfer.report().bytes(), turn as u64).await;
            self.refresh_version(&residency).await;
            transfer.set_turn(turn);
            // Checking for acknowledgements takes no turn, and only a few bytes follow it.
            let begun = if is_held { None } else { Some(self.link.worker.turns.begin().await) };
            if !self.should_continue() || self.has_lost_bytes() {
                self.outcome.report.add(transfer.report());
                return false;
            }
            let usage = &mut self.outcome.usage;
            let advanced = advance(&self.link.worker.shared.settings, &mut transfer, usage);
            drop(begun);
            self.link.peer.written.set(written_before + transfer.report().bytes());
            self.link.worker.metrics().record_more(transfer.report(), &mut recorded);
            let status = match advanced {
                Ok(Status::Done) => {
                    self.outcome.report.add(transfer.report());
                    let sent = self.link.peer.written.get();
                    self.unread.iter_mut().for_each(|unread| unread.add(&transfer, sent));
                    self.drop_behind(transfer.report().bytes());
                    return true;
                }
                Ok(status) => status,
                Err(error) => {
                    self.outcome.report.add(error.report());
                    self.fail(SendFailure::Engine(error));
                    return false;
                }
            };
            self.report_progress(transfer.report());
            is_held = status == Status::Waiting(Wait::Acknowledgement);
            if !self.wait(status).await {
                self.outcome.report.add(transfer.report());
                return false;
            }
        }
    }

    /// Waits for work of this machine or of an origin, for as long as the client stays; fails and
    /// returns `None` if it leaves.
    async fn while_connected<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            match timeout(CLIENT_CHECK_INTERVAL, self.link.peer.while_connected(work.as_mut()))
                .await
            {
                Ok(Some(outcome)) => return Some(outcome),
                Ok(None) => {
                    self.fail(SendFailure::Left);
                    return None;
                }
                Err(_) if !self.should_continue() => return None,
                // The wait is not for the client.
                Err(_) => self.link.peer.set_activity(Activity::Sending, Instant::now()),
            }
        }
    }

    /// Waits until the transfer can go on; returns false if it is pointless to continue.
    async fn wait(&mut self, status: Status) -> bool {
        match status {
            Status::Done | Status::Yielded => {}
            Status::Waiting(Wait::Sink) => {
                // If that fails, the next step fails too and returns the reason.
                let _ = self.link.peer.writable().await;
                self.link.peer.note_read();
            }
            Status::Waiting(wait @ (Wait::Acknowledgement | Wait::Source | Wait::Writer)) => {
                let since = *self.waiting_since.get_or_insert_with(Instant::now);
                let waited = since.elapsed();
                if wait != Wait::Acknowledgement || waited >= SHORT_WAIT {
                    sleep(poll_interval(since)).await;
                } else if !self.link.worker.turns.pass().await {
                    self.link.worker.pauses.pause(waited).await;
                }
                return self.should_continue();
            }
        }
        self.waiting_since = None;
        self.should_continue()
    }

    /// Returns whether the response is still worth sending.
    fn should_continue(&mut self) -> bool {
        if self.link.peer.is_given_up.get() {
            self.fail(if self.link.peer.is_expired() {
                SendFailure::Stalled
            } else {
                SendFailure::Left
            });
        }
        !self.link.peer.is_given_up.get()
    }

    /// Returns whether the cache has lost bytes of the body since it began; if so, fails.
    fn has_lost_bytes(&mut self) -> bool {
        let is_lost = self.reads.as_ref().is_some_and(|body| body.is_lost());
        if is_lost {
            self.fail(SendFailure::Origin(CacheErrorKind::Disk.into()));
        }
        is_lost
    }

    /// Reports the progress to the register.
    fn report_progress(&mut self, report: &Report) {
        let bytes = self.outcome.report.bytes() + report.bytes();
        self.handle.progress(bytes.saturating_sub(self.head_len), report.main_mechanism());
    }

    fn fail(&mut self, failure: SendFailure) {
        // A socket that cannot be reset is closed already.
        let _ = socket::arm_reset(&self.link.peer.socket);
        if let (Some(body), SendFailure::Engine(error)) = (&self.reads, &failure) {
            body.failed(error);
        }
        self.outcome.failure = Some(failure);
    }
}

/// The time for which acknowledgements are expected at any moment.
const SHORT_WAIT: Duration = Duration::from_millis(1);

/// The interval at which a response that waits for other work checks its client.
const CLIENT_CHECK_INTERVAL: Duration = Duration::from_millis(500);
