//! Sends a small body behind its head without a transfer, if nothing has to wait.

use std::os::fd::OwnedFd;

use underpass_engine::{
    Error, Integrity, Mechanism, Policy, Report, Version, send_small, send_with_head,
};

use crate::connection::peer::Peer;
use crate::connection::turn::{SHORT_TURN, logs_cost};
use crate::routing::cached::CachedBody;
use crate::routing::response::{FileBody, small};
use crate::server::worker::Worker;

/// Sends a file behind its head, and removes from both what was sent. `None` if the usual way has
/// to be tried.
pub(super) fn send_file(
    (worker, peer): (&Worker, &Peer),
    integrity: Integrity,
    head: &mut Vec<u8>,
    file: &mut FileBody,
) -> Result<Option<Report>, Error> {
    let Some((opened, at, len)) = file.simple_part() else { return Ok(None) };
    let part = MemoryPart {
        file: opened,
        at,
        len,
        version: (integrity == Integrity::Detect).then(|| file.version()),
        integrity,
        is_copied: file.is_copied,
    };
    let Some((report, sent)) = send(worker, peer, head, &part)? else { return Ok(None) };
    file.skip(sent);
    Ok(Some(report))
}

/// Sends a body from the cache behind its head, as [`send_file`] does. What is here never changes,
/// so no version is compared.
pub(super) fn send_cached(
    worker: &Worker,
    peer: &Peer,
    head: &mut Vec<u8>,
    body: &mut CachedBody,
) -> Result<Option<Report>, Error> {
    let Some((range, file)) = body.simple_part(SHORT_TURN as u64) else { return Ok(None) };
    let len = (range.end - range.start) as usize;
    let is_copied = len <= small(peer) && worker.shared.settings.policy == Policy::Auto;
    let integrity = Integrity::Fast;
    let part =
        MemoryPart { file: &file, at: range.start, len, version: None, integrity, is_copied };
    let Some((report, sent)) = send(worker, peer, head, &part)? else { return Ok(None) };
    body.skip(sent);
    Ok(Some(report))
}

/// A part of a file all of which is in memory.
struct MemoryPart<'a> {
    file: &'a OwnedFd,
    at: u64,
    len: usize,
    /// The version to compare it with; `None` if it cannot change.
    version: Option<Version>,
    integrity: Integrity,
    /// Whether it is sent from one buffer with the head.
    is_copied: bool,
}

/// Sends a part behind the head, from which it removes what was sent; returns how many bytes of the
/// part were sent, too.
fn send(
    worker: &Worker,
    peer: &Peer,
    head: &mut Vec<u8>,
    part: &MemoryPart<'_>,
) -> Result<Option<(Report, u64)>, Error> {
    // No cost has to be measured, and nothing encrypted.
    if peer.session().is_some() || logs_cost(&worker.shared.settings) {
        return Ok(None);
    }
    let place = (part.file, part.at, part.len);
    let (head_len, mut report) = (head.len(), Report::default());
    let sent = if part.is_copied {
        let sent = send_small(head, place, part.version, &peer.socket, &mut report);
        head.truncate(head_len);
        sent
    } else if part.len <= SHORT_TURN && may_use_sendfile(worker, part.integrity) {
        send_with_head(head, place, part.version, &peer.socket, &mut report)?
    } else {
        None
    };
    let Some(sent) = sent else { return Ok(None) };
    head.drain(..sent.min(head_len));
    Ok(Some((report, sent.saturating_sub(head_len) as u64)))
}

/// Returns whether files may be sent by sendfile(2) without a transfer, which would keep higher
/// levels of integrity and try other mechanisms.
fn may_use_sendfile(worker: &Worker, integrity: Integrity) -> bool {
    let settings = &worker.shared.settings;
    settings.policy == Policy::Auto
        && settings.step.is_none()
        && integrity <= Integrity::Detect
        && !worker.capabilities.lacks(Mechanism::Sendfile)
}
