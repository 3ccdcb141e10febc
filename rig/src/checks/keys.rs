//! Peers that change their keys (KeyUpdate of RFC 8446 4.6.3) in the middle of a connection.
//!
//! A kernel before 6.14 cannot change keys. The connection then has to end in a way that the client
//! notices and recovers from, which is checked there.

use super::MIB;
use crate::origin::{self, Origin};
use crate::peer::Peer;
use crate::place::{Place, TlsCounts};
use crate::program::{Server, receipt, text};
use crate::{Outcome, Result, pattern};

/// Returns whether the keys of a connection can be changed here.
fn can_follow(place: &Place) -> bool {
    !place.in_kernel() || place.can_change_keys
}

/// Fails if the kernel should have changed keys but did not.
fn changed_in_kernel(place: &Place, counts: &TlsCounts, names: &[&str]) -> Result<()> {
    for name in names {
        if place.in_kernel() && place.can_change_keys && counts.growth(name) == 0 {
            return Err(format!("{name} of /proc/net/tls_stat has not grown").into());
        }
    }
    Ok(())
}

/// The client changes keys between requests and while it reads, and requests that of the server.
pub(super) fn while_downloading(place: &Place) -> Result<Outcome> {
    let len = 4 * MIB + 99;
    pattern::file(&place.served().join("file"), len)?;
    let server = Server::start(place, &[])?;
    let counts = TlsCounts::now();
    let mut peer = Peer::connect(server.port)?;
    let mut whole = 0;
    let mut arrived = pattern::Arrived::default();
    let mut broken = None;
    while whole < 4 && broken.is_none() {
        arrived = pattern::Arrived::default();
        let outcome = download(&mut peer, &mut arrived, len);
        whole += u32::from(outcome.is_ok());
        broken = outcome.err();
    }
    let seen = match broken {
        None => "4 downloads with 8 changes".to_owned(),
        Some(error) if can_follow(place) => return Err(error),
        Some(error) => {
            // The missing part is fetched by another connection.
            let mut peer = Peer::connect(server.port)?;
            let (had, left) = (arrived.bytes, len - arrived.bytes);
            if left > 0 {
                let range = format!("Range: bytes={had}-\r\n");
                let head = peer.get("/file", &range, 206)?;
                if head.length()? != left {
                    return Err(format!("{left} bytes were left: {}", head.text).into());
                }
                arrived.read(peer.body(), left)?;
            }
            peer.get("/file", "Range: bytes=0-0\r\n", 206)?;
            format!("after {whole} downloads and {had} bytes: {error}; and then the rest")
        }
    };
    changed_in_kernel(place, &counts, &["TlsTxRekeyOk", "TlsRxRekeyOk"])?;
    server.end()?;
    Ok(Outcome::Ok(seen))
}

/// Downloads with a key change before the request and one in the middle of the body.
fn download(peer: &mut Peer, arrived: &mut pattern::Arrived, len: u64) -> Result<()> {
    peer.change_keys()?;
    peer.get("/file", "", 200)?;
    arrived.read(peer.body(), len / 2)?;
    peer.change_keys()?;
    arrived.read(peer.body(), len - len / 2)
}

/// The client changes keys in the middle of an upload.
pub(super) fn while_uploading(place: &Place) -> Result<Outcome> {
    let len = 4 * MIB;
    let server = Server::start(place, &[])?;
    let counts = TlsCounts::now();
    let mut peer = Peer::connect(server.port)?;
    let outcome = upload(&mut peer, len);
    let seen = match outcome {
        Ok(()) => "an upload with 3 changes".to_owned(),
        Err(error) if can_follow(place) => return Err(error),
        Err(error) => {
            let source = place.folder.join("source");
            pattern::file(&source, len)?;
            receipt(&["put", text(&source)?, &server.url("keys"), "--insecure"])?;
            format!("{error}; and then by another connection")
        }
    };
    pattern::compare(&place.served().join("keys"), len)?;
    changed_in_kernel(place, &counts, &["TlsRxRekeyOk"])?;
    server.end()?;
    Ok(Outcome::Ok(seen))
}

/// Uploads with a key change after each quarter except the last.
fn upload(peer: &mut Peer, len: u64) -> Result<()> {
    peer.ask("PUT", "/keys", &format!("Content-Length: {len}\r\n"))?;
    for quarter in 0..4 {
        let mut body = Vec::new();
        pattern::write(&mut body, quarter * len / 4, (quarter + 1) * len / 4)?;
        peer.write(&body)?;
        if quarter < 3 {
            peer.change_keys()?;
        }
    }
    let head = peer.head()?;
    if head.status == 201 { Ok(()) } else { Err(head.text.into()) }
}

/// A server changes keys in the middle of a response to `get`, and requests the same of the client;
/// a client whose kernel cannot change keys fetches the rest by another connection.
pub(super) fn of_a_server(place: &Place) -> Result<Outcome> {
    let len = 4 * MIB;
    let got = place.folder.join("got");
    let connections = if can_follow(place) { 1 } else { 2 };
    let origin = Origin::start(connections, move |stream, head, before| {
        let from = if before == 0 { 0 } else { range(head).unwrap_or(0) };
        let fields = format!(
            "ETag: \"one\"\r\nContent-Length: {}\r\nContent-Range: bytes {from}-{}/{len}\r\n",
            len - from,
            len - 1
        );
        let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
        origin::send_head(stream, status, &fields)?;
        if before == 0 {
            pattern::write(stream, 0, len / 2)?;
            origin::change_keys(stream)?;
            // A client that cannot change keys has disconnected by then.
            let rest = pattern::write(stream, len / 2, len);
            let closed = rest.map_err(Into::into).and_then(|()| origin::close_notify(stream));
            return if connections == 1 { closed } else { Ok(()) };
        }
        // The requested ranges may begin anywhere.
        let mut body = Vec::new();
        pattern::write(&mut body, from / 8 * 8, len)?;
        std::io::Write::write_all(stream, &body[usize::try_from(from % 8)?..])?;
        origin::close_notify(stream)
    })?;
    let counts = TlsCounts::now();
    let receipt = receipt(&["get", &origin.url(), "--insecure", "-f", "-o", text(&got)?])?;
    origin.end()?;
    pattern::compare(&got, len)?;
    changed_in_kernel(place, &counts, &["TlsRxRekeyOk"])?;
    Ok(Outcome::Ok(format!("{connections} connections, {}", receipt["mechanisms"])))
}

/// Returns where the range of a request begins.
fn range(head: &str) -> Option<u64> {
    let (_, rest) =
        head.split_once("Range: bytes=").or_else(|| head.split_once("range: bytes="))?;
    rest.split('-').next()?.parse().ok()
}
