//! Responses: sendfile at the server, splice at the client, slow readers, and a large file.

use std::io::Read;
use std::time::Duration;

use super::{MIB, fits, mechanisms, moved};
use crate::peer::Peer;
use crate::place::{Place, TlsCounts};
use crate::program::{Server, receipt, text};
use crate::{Outcome, Result, pattern};

/// A user-space client fetches a file; the server reports which mechanism it used.
pub(super) fn by_another_client(place: &Place) -> Result<Outcome> {
    let len = 16 * MIB + 4321;
    pattern::file(&place.served().join("file"), len)?;
    let server = Server::start(place, &[])?;
    let counts = TlsCounts::now();
    let mut peer = Peer::connect(server.port)?;
    let head = peer.get("/file?explain", "", 200)?;
    let timing = head.field("server-timing").unwrap_or_default().to_owned();
    pattern::Arrived::default().read(peer.body(), len)?;
    let expected = if place.in_kernel() { "sendfile" } else { "read_write" };
    if !timing.contains(expected) {
        return Err(format!("Server-Timing: {timing}").into());
    }
    if place.in_kernel() {
        counts.grown("TlsTxSw", 1)?;
        counts.grown("TlsTxDevice", 0)?;
    }
    let lines = server.end()?;
    moved(place, mechanisms(&lines, "GET", "/file?explain")?, "sendfile", len)?;
    Ok(Outcome::Ok(format!("{len} bytes, {timing}")))
}

/// The program at both ends.
pub(super) fn by_ours(place: &Place) -> Result<Outcome> {
    fetch(place, 16 * MIB + 4321)
}

/// Does the same once with a large file: a GiB with `UNDERPASS_FULL`, which takes an emulated
/// machine two minutes alone and ten under load.
pub(super) fn large(place: &Place) -> Result<Outcome> {
    if !place.in_kernel() || !place.can_change_keys {
        return Ok(Outcome::Skipped("done by the newer kernel's TLS".to_owned()));
    }
    let len = if std::env::var_os("UNDERPASS_FULL").is_some() { 1024 * MIB } else { 128 * MIB };
    fetch(place, len)
}

/// Fetches a file of `len` bytes with the program.
fn fetch(place: &Place, len: u64) -> Result<Outcome> {
    let got = place.folder.join("got");
    pattern::file(&place.served().join("file"), len)?;
    let server = Server::start(place, &[])?;
    let counts = TlsCounts::now();
    let receipt = receipt(&["get", &server.url("file"), "--insecure", "-f", "-o", text(&got)?])?;
    pattern::compare(&got, len)?;
    fits(place, &receipt)?;
    if place.in_kernel() {
        for name in ["TlsTxSw", "TlsRxSw"] {
            if counts.growth(name) == 0 {
                return Err(format!("{name} of /proc/net/tls_stat has not grown").into());
            }
        }
    }
    let lines = server.end()?;
    moved(place, mechanisms(&lines, "GET", "/file")?, "sendfile", len)?;
    std::fs::remove_file(&got)?;
    let bytes = &receipt["user_space_bytes"];
    Ok(Outcome::Ok(format!("{len} bytes, {bytes} in user space, {}", receipt["mechanisms"])))
}

/// A client with small buffers that reads a little now and then: each write is partial.
pub(super) fn slow_reader(place: &Place) -> Result<Outcome> {
    let len = 2 * MIB + 77;
    pattern::file(&place.served().join("file"), len)?;
    let server = Server::start(place, &[])?;
    let mut peer = Peer::narrow(server.port)?;
    peer.get("/file", "", 200)?;
    let mut arrived = pattern::Arrived::default();
    let mut piece = [0; 3000];
    let mut reads = 0_u64;
    while arrived.bytes < len {
        let got = peer.body().read(&mut piece)?;
        if got == 0 {
            return Err(format!("the end came after {} bytes", arrived.bytes).into());
        }
        arrived.take(&piece[..got])?;
        reads += 1;
        if reads.is_multiple_of(8) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let lines = server.end()?;
    moved(place, mechanisms(&lines, "GET", "/file")?, "sendfile", len)?;
    Ok(Outcome::Ok(format!("{len} bytes in {reads} reads")))
}
