//! One turn of a transfer: how much it may move before other connections have theirs, and what it costs.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use underpass_engine::{Chain, Confirm, Error, Options, Sink, Status, Transfer, Usage};

use crate::connection::peer::Peer;
use crate::connection::socket::Socket;
use crate::observe::access_log::LogFormat;
use crate::routing::response::small;
use crate::server::settings::Settings;
use crate::server::worker::Worker;

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
    // What ends in its first turn is nobody's rival for a second one.
    transfer.set_turn(LONG_TURN);
    transfer
}

/// Returns how many bytes a connection may move before others get their turn: much as long as it is
/// nearly alone, little if there are others to wait for it.
pub(crate) fn turn(worker: &Worker) -> usize {
    if is_nearly_alone(worker) { LONG_TURN } else { SHORT_TURN }
}

/// Returns whether there are so many transfers that they have to take turns.
pub(crate) fn is_crowded(worker: &Worker) -> bool {
    worker.slow_transfers.get() > CROWD
}

/// Returns whether so few responses take their time that none has to wait for another.
fn is_nearly_alone(worker: &Worker) -> bool {
    worker.slow_transfers.get() < MAX_LONG_TURNS
}

/// Takes the next turn of a transfer, and adds what it cost if the log tells that: asking takes a
/// microsecond, which nobody who does not want to know should pay.
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

/// Transfers that may be under way without having to be kept short.
const MAX_LONG_TURNS: usize = 4;

/// From so many transfers on they take turns, which costs each of them a look at what else is ready:
/// as many as the runtime runs between two such looks anyway.
const CROWD: usize = 64;

/// A turn of a transfer that is nearly alone: one step of sendfile.
const LONG_TURN: usize = 2 << 20;

/// A turn of one of many: some 30 µs on loopback.
const SHORT_TURN: usize = 128 << 10;
