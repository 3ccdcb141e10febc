//! One turn of a transfer: its maximum size while other connections wait, and its cost.

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use underpass_engine::{Chain, Confirm, Error, Integrity, Options, Sink, Status, Transfer, Usage};

use crate::connection::Link;
use crate::connection::peer::Activity;
use crate::connection::socket::Socket;
use crate::server::limits::turn_queue::TurnPermit;
use crate::server::settings::Settings;
use crate::server::worker::Worker;
use underpass_observe::access_log::LogFormat;

/// A transfer to a client.
pub(crate) type SendTransfer<'a> = Transfer<'a, Arc<OwnedFd>, &'a Socket>;

/// Returns the transfer of a chain to a client, ready for its first turn. A file of up to
/// `max_copied` bytes is copied together with the bytes before it.
pub(crate) fn transfer<'a>(
    Link { worker, peer }: Link<'a>,
    chain: Chain<Arc<OwnedFd>>,
    integrity: Integrity,
    confirm: Confirm,
    max_copied: usize,
    now: Instant,
) -> SendTransfer<'a> {
    let settings = &worker.shared.settings;
    let options = Options::default()
        .policy(peer.policy(settings.policy))
        .integrity(integrity)
        .confirm(confirm)
        .max_small(max_copied)
        .capabilities(&worker.capabilities)
        .pipes(&worker.pipes);
    let options = match settings.step {
        Some(step) => options.step(step),
        None => options,
    };
    let options = match peer.session() {
        Some(session) => options.sink_tls(&**session),
        None => options,
    };
    let mut transfer = Transfer::new(chain, Sink::socket(&peer.socket)).options(options);
    transfer.set_turn(turn(worker, now));
    transfer
}

/// Returns the number of bytes that a connection may move before others have their turn: few while
/// short responses compete, many otherwise. Large transfers lose nothing among themselves by long
/// turns, since all get the same number.
pub(crate) fn turn(worker: &Worker, now: Instant) -> usize {
    if worker.turns.is_contended(now) { SHORT_TURN } else { LONG_TURN }
}

/// Returns whether the first turn of a response has to wait for others. A large response waits for
/// those in line even if it would end in this turn: the next one of its client would overtake them
/// again.
pub(crate) fn has_to_wait(worker: &Worker, transfer: &SendTransfer<'_>, now: Instant) -> bool {
    let is_short = transfer.chain().len().is_some_and(|len| len <= SHORT_TURN as u64);
    !is_short && !worker.turns.is_free(now)
}

/// Waits in line, behind the short requests of others, because the client has sent a large request
/// or many at once. Boxed because it is rare.
pub(crate) fn wait_in_line<'a>(
    Link { worker, peer }: Link<'a>,
    started: Instant,
) -> Pin<Box<dyn Future<Output = TurnPermit<'a>> + 'a>> {
    Box::pin(async move {
        // The wait is not for the client.
        let before = peer.activity();
        peer.set_activity(Activity::Waiting, Instant::now());
        let turn = worker.turns.begin().await;
        peer.set_activity(before, started);
        turn
    })
}

/// Returns whether a client that has sent this many bytes at once waits in line with the next ones:
/// browsers' requests are shorter, and parsing so many takes longer than answering them.
pub(crate) fn is_costly(read: usize) -> bool {
    read >= COSTLY_READ
}

/// Records that a response ended in its first turn, if it was short, so that large transfers take
/// short turns meanwhile.
pub(crate) fn record_short_response(worker: &Worker, bytes: u64, now: Instant) {
    if bytes <= SHORT_TURN as u64 {
        worker.turns.record_short(now);
    }
}

/// Runs the next turn of a transfer, and adds its cost if the log needs it: measuring takes a
/// microsecond.
pub(crate) fn advance(
    settings: &Settings,
    transfer: &mut SendTransfer<'_>,
    sum: &mut Option<Box<Usage>>,
) -> Result<Status, Error> {
    if !logs_cost(settings) {
        return transfer.advance();
    }
    let before = Usage::of_this_thread();
    let outcome = transfer.advance();
    let sum = sum.get_or_insert_default();
    **sum = **sum + (Usage::of_this_thread() - before);
    outcome
}

/// Returns the time until the next check for acknowledgements, which no event announces. Clients
/// that have not read for long are checked rarely, because there may be thousands of them.
pub(crate) fn poll_interval(since: Instant) -> Duration {
    (since.elapsed() / 8).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

const MIN_POLL_INTERVAL: Duration = Duration::from_millis(1);

const MAX_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Returns whether the log needs the cost of each response.
pub(crate) fn logs_cost(settings: &Settings) -> bool {
    settings.log.as_ref().is_some_and(LogFormat::logs_cost)
}

/// A turn of a transfer that competes with none but large ones: one step of sendfile.
const LONG_TURN: usize = 2 << 20;

/// A turn of a transfer between short responses: some 30 µs on loopback. A response is short if it
/// has at most this many bytes.
pub(crate) const SHORT_TURN: usize = 128 << 10;

/// The minimum number of bytes of a costly read.
const COSTLY_READ: usize = 4 << 10;

/// The number of pipelined requests for hot files that are answered before other connections have
/// their turn. They have it at once after any other request, and after each one of a client that
/// has sent much.
pub(crate) const MAX_IN_TURN: u8 = 8;
