//! Many requests on one connection.

use crate::peer::Peer;
use crate::place::{Place, TlsCounts};
use crate::program::Server;
use crate::{Outcome, Result, pattern};

const REQUESTS: u64 = 200;

/// Small files of many lengths, one after the other.
pub(super) fn many_on_one_connection(place: &Place) -> Result<Outcome> {
    let lengths = [1_u64, 100, 1024, 4096, 10_240, 16_383, 16_384, 16_385, 40_000, 70_000];
    for len in lengths {
        pattern::file(&place.served().join(len.to_string()), len)?;
    }
    let server = Server::start(place, &[])?;
    let counts = TlsCounts::now();
    let mut peer = Peer::connect(server.port)?;
    for (index, len) in (0..REQUESTS).zip(lengths.iter().cycle()) {
        peer.get(&format!("/{len}"), "", 200)?;
        let arrived = pattern::Arrived::default().read(peer.body(), *len);
        arrived.map_err(|error| format!("request {index} for {len} bytes: {error}"))?;
    }
    if place.in_kernel() {
        counts.grown("TlsTxSw", 1)?;
        counts.grown("TlsDecryptError", 0)?;
    }
    let lines = server.end()?;
    let answered = lines.iter().filter(|line| line["status"] == 200).count();
    if answered as u64 != REQUESTS {
        return Err(format!("the log has {answered} answers").into());
    }
    Ok(Outcome::Ok(format!("{REQUESTS} requests")))
}
