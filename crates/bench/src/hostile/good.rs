//! The client that is measured: it asks for a small file, each time on a new connection.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::record::Good;
use crate::serve::{Client, Histogram, Host};

/// Asks for `time`, and tells what came of it. A request that takes longer is waited for.
pub(crate) fn ask(
    host: &Host,
    request: &[u8],
    size: u64,
    time: Duration,
    cancel: &AtomicBool,
) -> io::Result<Good> {
    let mut latencies = Histogram::new();
    let mut good = Good::default();
    let begun = Instant::now();
    while begun.elapsed() < time {
        if cancel.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let asked = Instant::now();
        let outcome = Client::connect(host, Ipv4Addr::LOCALHOST)
            .and_then(|mut client| client.ask(request, size, |_| {}));
        match outcome {
            Ok(()) => latencies.add(asked.elapsed()),
            Err(_) => good.failed += 1,
        }
        std::thread::sleep(PAUSE.saturating_sub(asked.elapsed()));
    }
    Ok(Good { answered: latencies.total(), latency: latencies.latency(), ..good })
}

/// The good client is no load itself: it asks at most this often.
const PAUSE: Duration = Duration::from_millis(2);
