//! The connections of the bad clients, on one thread: each in its turn, and at most as many turns
//! per second as the load has, so that the load's own speed is not what is measured.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use underpass_engine::Usage;

use super::connection::BadConnection;
use super::loads::BadLoad;
use crate::load::Host;

/// The state of the bad clients that others see.
#[derive(Debug, Default)]
pub(super) struct BadGenerator {
    /// Becomes true when they are to end.
    pub(super) is_over: AtomicBool,
    /// Whether each of them has had its first turn.
    pub(super) has_arrived: AtomicBool,
    pub(super) open: AtomicU32,
    pub(super) begun: AtomicU64,
}

impl BadGenerator {
    /// Drives `count` connections until it is over. Returns what that cost.
    pub(super) fn run(&self, load: &BadLoad, host: &Host, count: u32) -> Usage {
        let before = Usage::of_this_thread();
        let mut connections: Vec<Option<BadConnection>> = Vec::new();
        connections.resize_with(count as usize, || None);
        let mut next = Instant::now();
        for turn in 0_u64.. {
            let index = usize::try_from(turn % u64::from(count)).unwrap_or(0);
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            self.turn(load, host, index, &mut connections[index]);
            if turn + 1 == u64::from(count) {
                self.has_arrived.store(true, Ordering::Relaxed);
            }
            if turn % BATCH == 0 {
                // New connections are opened faster than the load takes turns.
                let rate = if turn < u64::from(count) { ARRIVALS } else { load.turns_per_second };
                next += Duration::from_secs(BATCH) / rate;
                // Turns that were missed are skipped, not made up for.
                next = next.max(Instant::now());
                std::thread::sleep(next.saturating_duration_since(Instant::now()).min(MAX_PAUSE));
            }
        }
        Usage::of_this_thread() - before
    }

    fn turn(&self, load: &BadLoad, host: &Host, index: usize, place: &mut Option<BadConnection>) {
        if place.is_none() {
            // If connecting fails, the place stays empty until its next turn.
            *place = BadConnection::begin(host, index).ok();
            self.open.fetch_add(u32::from(place.is_some()), Ordering::Relaxed);
            self.begun.fetch_add(u64::from(place.is_some()), Ordering::Relaxed);
        }
        let Some(connection) = place else { return };
        let outcome = (load.turn)(connection, host);
        connection.turns += 1;
        match outcome {
            // The socket is not connected yet.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            Err(_) => {
                *place = None;
                self.open.fetch_sub(1, Ordering::Relaxed);
            }
            Ok(()) => {}
        }
    }
}

/// The number of turns between two checks of the clock.
const BATCH: u64 = 16;

/// The number of new connections per second.
const ARRIVALS: u32 = 4000;

const MAX_PAUSE: Duration = Duration::from_millis(100);
