//! What the kernel has counted, and how it handles invalid records.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::MIB;
use crate::peer::{PATIENCE, Peer};
use crate::place::Place;
use crate::program::Server;
use crate::{Outcome, Result, disguise, pattern, terms};

/// How soon a connection has to end after garbage in an emulated machine: well before the 75 s
/// after which a server closes an idle one.
const AT_ONCE: Duration = Duration::from_secs(25);

/// The kernel did the work of all checks so far, and decrypted everything that it received.
pub(super) fn counters(place: &Place) -> Result<Outcome> {
    if !place.in_kernel() {
        return Ok(Outcome::Skipped("the kernel has no TLS".to_owned()));
    }
    for name in ["TlsTxSw", "TlsRxSw"] {
        if place.from.growth(name) == 0 {
            return Err(format!("{name} of /proc/net/tls_stat has not grown").into());
        }
    }
    place.from.grown("TlsDecryptError", 0)?;
    Ok(Outcome::Ok(place.from.grown_by()))
}

/// Sends records that are not encrypted, too long, or truncated, bytes that are not TLS, and
/// handshake messages in between. The connection ends each time, and the server keeps running.
pub(super) fn bad(place: &Place) -> Result<Outcome> {
    pattern::file(&place.served().join("file"), MIB)?;
    let server = Server::start(place, &[])?;
    let garbage: [(&str, Vec<u8>); 5] = [
        ("not encrypted", [&[23, 3, 3, 0, 64][..], &[7; 64]].concat()),
        ("too long", [&[23, 3, 3, 0xff, 0xff][..], &[7; 65_535]].concat()),
        ("empty", vec![23, 3, 3, 0, 0]),
        ("of no type", [&[99, 3, 3, 0, 32][..], &[7; 32]].concat()),
        ("a handshake", [&[22, 3, 3, 0, 4][..], &[1, 0, 0, 0]].concat()),
    ];
    for (what, bytes) in &garbage {
        let mut peer = Peer::connect(server.port)?;
        peer.get("/file", "Range: bytes=0-7\r\n", 206)?;
        pattern::Arrived::default().read(peer.body(), 8)?;
        // The server may have closed before it has read everything.
        let _ = peer.socket().write_all(bytes);
        let from = Instant::now();
        // Whether it ends by a reset does not matter.
        let _ = peer.socket().read_to_end(&mut Vec::new());
        if from.elapsed() > AT_ONCE {
            return Err(format!("{what}: the connection stays open").into());
        }
    }
    let mut plain = TcpStream::connect(("127.0.0.1", server.port))?;
    plain.set_read_timeout(Some(PATIENCE))?;
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    plain.read_to_string(&mut answer)?;
    if !answer.starts_with("HTTP/1.1 400") {
        return Err(format!("plain HTTP is answered by {answer:?}").into());
    }
    let mut peer = Peer::connect(server.port)?;
    peer.get("/file", "", 200)?;
    pattern::Arrived::default().read(peer.body(), MIB)?;
    server.end()?;
    Ok(Outcome::Ok(format!("{} kinds, and the server goes on", garbage.len() + 1)))
}

/// How a reset connection is reported.
const RESET: [&str; 2] = ["reset by peer", "Broken pipe"];

/// Types and contents of records.
type Records = &'static [(u8, &'static [u8])];

/// Records that are validly encrypted but have forbidden contents. Each is answered by an alert;
/// the kernel does not know type 0, and treats such a record as invalid.
pub(super) fn bad_contents(place: &Place) -> Result<Outcome> {
    pattern::file(&place.served().join("file"), MIB)?;
    let server = Server::start(place, &[])?;
    let no_type: &[&str] = match place.in_kernel() {
        true => &["BadRecordMac", "UnexpectedMessage"],
        false => &["UnexpectedMessage"],
    };
    let unexpected: &[&str] = &["UnexpectedMessage"];
    // recvmsg(2) returns 0 for an empty record of the kernel, as at the end: the server then ends
    // the connection too.
    let empty: &[&str] = match place.in_kernel() {
        true => &["UnexpectedMessage", "without sending TLS close_notify", "an end"],
        false => unexpected,
    };
    let cases: [(&str, Records, &[&str]); 6] = [
        ("no type", &[(0, b"")], no_type),
        ("no type behind zeros", &[(0, &[0; 40])], no_type),
        ("data within a message", &[(22, &[24, 0, 0]), (23, b"x"), (22, &[1, 0])], unexpected),
        ("empty data within a message", &[(22, &[24, 0]), (23, b""), (22, &[0, 1, 0])], empty),
        ("an alert within a message", &[(22, &[24, 0, 0]), (21, &[1, 0])], unexpected),
        ("two messages with a key", &[(22, &[24, 0, 0, 1, 0, 24])], unexpected),
    ];
    for (what, records, alerts) in &cases {
        let mut peer = Peer::on(server.port, terms::disguised_client()?)?;
        peer.get("/file", "Range: bytes=0-7\r\n", 206)?;
        pattern::Arrived::default().read(peer.body(), 8)?;
        for (kind, content) in records.iter() {
            // The server may have closed before it has read everything.
            let _ = peer.write(&disguise::record(*kind, content));
        }
        let end = peer.body().read_to_end(&mut Vec::new());
        let end = end.map_or_else(|error| error.to_string(), |_| "an end".to_owned());
        // Bytes that the kernel has not handed out stay in the socket, so that a reset follows the
        // alert and may overtake it. It ends writing as well as reading.
        let is_reset = place.in_kernel() && RESET.iter().any(|reset| end.contains(reset));
        if !is_reset && !alerts.iter().any(|alert| end.contains(alert)) {
            return Err(format!("{what}: {alerts:?} was to be the alert, it was: {end}").into());
        }
    }
    server.end()?;
    Ok(Outcome::Ok(format!("{} kinds", cases.len())))
}
