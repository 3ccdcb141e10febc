//! One turn of a transfer: its maximum size while other connections wait, and its cost.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use underpass_engine::{Chain, Confirm, Error, Options, Sink, Status, Transfer, Usage};

use crate::connection::peer::Peer;
use crate::connection::socket::Socket;
use crate::routing::response::small;
use crate::server::settings::Settings;
use crate::server::worker::Worker;
use underpass_observe::access_log::LogFormat;

/// A transfer to a client.
pub(crate) type Moving<'a> = Transfer<'a, Arc<OwnedFd>, &'a Socket>;

/// Returns the transfer of a chain to a client, ready for its first turn.
pub(crate) fn transfer<'a>(
    worker: &'a Worker,
    peer: &'a Peer,
    chain: Chain<Arc<OwnedFd>>,
    confirm: Confirm,
) -> Moving<'a> {
    let settings = &worker.shared.settings;
    let options = Options::default()
        .policy(peer.policy(settings.policy))
        .integrity(settings.integrity)
        .confirm(confirm)
        .small(small(peer))
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
    // A transfer that ends in its first turn does not compete for a second one.
    transfer.set_turn(LONG_TURN);
    transfer
}

/// Returns the number of bytes that a connection may move before others have their turn: many while
/// it is nearly alone, few if others wait for it.
pub(crate) fn turn(worker: &Worker) -> usize {
    if is_nearly_alone(worker) { LONG_TURN } else { SHORT_TURN }
}

/// Returns whether there are enough transfers that they have to take turns.
pub(crate) fn is_crowded(worker: &Worker) -> bool {
    worker.slow_transfers.get() > CROWD
}

/// Returns whether there are so few slow responses that none has to wait for another.
fn is_nearly_alone(worker: &Worker) -> bool {
    worker.slow_transfers.get() < MAX_LONG_TURNS
}

/// Takes the next turn of a transfer, and adds its cost if the log needs it: measuring takes a
/// microsecond.
pub(crate) fn advance(
    settings: &Settings,
    transfer: &mut Moving<'_>,
    sum: &mut Usage,
) -> Result<Status, Error> {
    if !settings.log.as_ref().is_some_and(LogFormat::tells_cost) {
        return transfer.advance();
    }
    let before = Usage::of_this_thread();
    let outcome = transfer.advance();
    *sum = *sum + (Usage::of_this_thread() - before);
    outcome
}

/// Returns the time until the next check for acknowledgements, which no event announces. Clients
/// that have not read for long are checked rarely, because there may be thousands of them.
pub(crate) fn poll_interval(since: Instant) -> Duration {
    (since.elapsed() / 8).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

const MIN_POLL_INTERVAL: Duration = Duration::from_millis(1);

const MAX_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The maximum number of transfers under way with long turns.
const MAX_LONG_TURNS: usize = 4;

/// The number of transfers from which they take turns, which costs each of them a check for other
/// ready tasks: the runtime runs this many between two such checks anyway.
const CROWD: usize = 64;

/// A turn of a transfer that is nearly alone: one step of sendfile.
const LONG_TURN: usize = 2 << 20;

/// A turn of one of many transfers: some 30 µs on loopback.
const SHORT_TURN: usize = 128 << 10;
