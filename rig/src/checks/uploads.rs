//! Requests with bodies: sendfile at the client, splice at the server.

use std::io::Write;

use super::{MIB, fits, mechanisms, moved};
use crate::peer::Peer;
use crate::place::Place;
use crate::program::{Server, receipt, text};
use crate::{Outcome, Result, pattern};

/// The program at both ends.
pub(super) fn by_ours(place: &Place) -> Result<Outcome> {
    let len = 16 * MIB + 4321;
    let source = place.folder.join("source");
    pattern::file(&source, len)?;
    let server = Server::start(place, &[])?;
    let receipt = receipt(&["put", text(&source)?, &server.url("put"), "--insecure"])?;
    pattern::compare(&place.served().join("put"), len)?;
    fits(place, &receipt)?;
    let lines = server.end()?;
    moved(place, mechanisms(&lines, "PUT", "/put")?, "splice", len)?;
    let bytes = &receipt["user_space_bytes"];
    Ok(Outcome::Ok(format!("{len} bytes, {bytes} in user space, {}", receipt["mechanisms"])))
}

/// A user-space client, whose body arrives in records of any size, the first with the head.
pub(super) fn by_another_client(place: &Place) -> Result<Outcome> {
    let len = 4 * MIB + 4321;
    let server = Server::start(place, &[])?;
    let mut peer = Peer::connect(server.port)?;
    let mut request =
        format!("PUT /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n");
    let mut body = Vec::new();
    pattern::write(&mut body, 0, len)?;
    // A head and the first bytes of the body share a record.
    let mut first = std::mem::take(&mut request).into_bytes();
    first.write_all(&body[..1000])?;
    peer.write(&first)?;
    let mut rest = &body[1000..];
    for size in [1, 16_384, 16_385, 77, 100_000].iter().cycle() {
        let (piece, after) = rest.split_at((*size).min(rest.len()));
        peer.write(piece)?;
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    let head = peer.head()?;
    if head.status != 201 {
        return Err(format!("the upload was answered by {}", head.text).into());
    }
    pattern::compare(&place.served().join("upload"), len)?;
    let lines = server.end()?;
    // Bytes in the record of the head were decrypted with it.
    moved(place, mechanisms(&lines, "PUT", "/upload")?, "splice", len - 16_384)?;
    Ok(Outcome::Ok(format!("{len} bytes, {}", mechanisms(&lines, "PUT", "/upload")?)))
}
