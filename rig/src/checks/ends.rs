//! How connections end: by close_notify, or cut by an intermediary.

use std::net::Shutdown;

use super::MIB;
use crate::origin::{self, Origin};
use crate::peer::Peer;
use crate::place::Place;
use crate::program::{Server, receipt, run, text};
use crate::{Outcome, Result, pattern};

/// Both sides announce the end by TLS, whichever closes first; a body that ends with the connection
/// is then complete.
pub(super) fn close_notify(place: &Place) -> Result<Outcome> {
    let len = 100_000;
    pattern::file(&place.served().join("file"), len)?;
    let server = Server::start(place, &[])?;
    let mut peer = Peer::connect(server.port)?;
    peer.get("/file", "Connection: close\r\n", 200)?;
    pattern::Arrived::default().read(peer.body(), len)?;
    peer.ends_well().map_err(|error| format!("the server began: {error}"))?;

    let mut peer = Peer::connect(server.port)?;
    peer.get("/file", "", 200)?;
    pattern::Arrived::default().read(peer.body(), len)?;
    peer.close_notify()?;
    peer.ends_well().map_err(|error| format!("the client began: {error}"))?;
    server.end()?;

    let got = place.folder.join("got");
    let origin = Origin::start(1, move |stream, _, _| {
        origin::send_head(stream, "200 OK", "")?;
        pattern::write(stream, 0, len)?;
        origin::close_notify(stream)
    })?;
    receipt(&["get", &origin.url(), "--insecure", "-f", "-o", text(&got)?])?;
    origin.end()?;
    pattern::compare(&got, len)?;
    Ok(Outcome::Ok("by the server, by the client, and at the end of a body".to_owned()))
}

/// A download that ends without close_notify is incomplete, with and without a length.
pub(super) fn cut_download(place: &Place) -> Result<Outcome> {
    let len = MIB;
    for fields in [String::new(), format!("Content-Length: {len}\r\n")] {
        let has_length = !fields.is_empty();
        let got = place.folder.join(format!("cut-{has_length}"));
        let origin = Origin::start(1, move |stream, _, _| {
            origin::send_head(stream, "200 OK", &fields)?;
            pattern::write(stream, 0, len / 2)?;
            origin::cut(stream)
        })?;
        let arguments = ["get", &origin.url(), "--insecure", "--retries", "0", "-o", text(&got)?];
        let output = run(&arguments)?;
        origin.end()?;
        if output.status.code() != Some(1) || got.exists() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("length {has_length}: {}: {said}", output.status).into());
        }
    }
    Ok(Outcome::Ok("noticed with and without a length".to_owned()))
}

/// An upload that is cut creates no file, and disturbs no other client.
pub(super) fn cut_upload(place: &Place) -> Result<Outcome> {
    let len = MIB;
    let server = Server::start(place, &[])?;
    let mut peer = Peer::connect(server.port)?;
    peer.ask("PUT", "/cut", &format!("Content-Length: {len}\r\n"))?;
    let mut body = Vec::new();
    pattern::write(&mut body, 0, len / 2)?;
    peer.write(&body)?;
    peer.socket().shutdown(Shutdown::Write)?;
    // The connection ends, whatever the server replies.
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(peer.body(), &mut rest);
    Peer::connect(server.port)?.get("/cut", "", 404)?;
    server.end()?;
    Ok(Outcome::Ok("no file, and the server goes on".to_owned()))
}
