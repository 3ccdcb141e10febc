//! Sends a small body together with its head, without a transfer, if nothing has to wait.

use std::os::fd::AsFd;
use std::time::Instant;

use underpass_engine::{
    Error, FilePart, Integrity, Mechanism, Policy, Report, send_small, send_with_head,
};

use crate::connection::Link;
use crate::connection::send::checks::HELD_BACK;
use crate::connection::turn::{SHORT_TURN, logs_cost};
use crate::routing::cached::CachedBody;
use crate::routing::response::{FileBody, max_copied};
use crate::server::limits::turn_queue::TurnQueue;
use crate::server::worker::Worker;

/// Sends a file after its head, and removes from both what was sent. `None` if a transfer is
/// needed.
pub(super) fn send_file(
    link: Link<'_>,
    integrity: Integrity,
    head: &mut Vec<u8>,
    file: &mut FileBody,
    now: Instant,
) -> Result<Option<Report>, Error> {
    let max = max_at_once(&link.worker.turns, now);
    let Some(mut part) = file.simple_part() else { return Ok(None) };
    part.version = part.version.filter(|_| integrity == Integrity::Detect);
    let sent = send_part(link, head, &part, integrity, max, file.is_copied)?;
    let Some((report, sent)) = sent else { return Ok(None) };
    file.skip(sent);
    Ok(Some(report))
}

/// Sends a body from the cache after its head, as [`send_file`] does. Bytes in the cache never
/// change, so no version is compared.
pub(super) fn send_cached(
    link: Link<'_>,
    head: &mut Vec<u8>,
    body: &mut CachedBody,
    now: Instant,
) -> Result<Option<Report>, Error> {
    let max = max_at_once(&link.worker.turns, now);
    let Some(part) = body.simple_part(max as u64) else { return Ok(None) };
    let is_copied =
        part.len <= max_copied(link.peer) && link.worker.shared.settings.policy == Policy::Auto;
    let sent = send_part(link, head, &part, Integrity::Fast, max, is_copied)?;
    let Some((report, sent)) = sent else { return Ok(None) };
    body.skip(sent);
    Ok(Some(report))
}

/// Returns the maximum size of a file that is sent at once: a turn, if no others wait, and less than
/// has its last byte held back.
fn max_at_once(turns: &TurnQueue, now: Instant) -> usize {
    let is_alone = !turns.is_contended(now) && turns.is_free(now);
    if is_alone { HELD_BACK as usize - 1 } else { SHORT_TURN }
}

/// Sends the head and a part of a file that is all in memory. Removes what was sent from the head,
/// and returns the number of bytes sent of the part, too. If `is_copied`, both are sent from one
/// buffer, otherwise at most `max` bytes of a file by sendfile(2).
fn send_part(
    Link { worker, peer }: Link<'_>,
    head: &mut Vec<u8>,
    part: &FilePart<impl AsFd>,
    integrity: Integrity,
    max: usize,
    is_copied: bool,
) -> Result<Option<(Report, u64)>, Error> {
    // This neither encrypts nor measures the cost.
    if peer.session().is_some() || logs_cost(&worker.shared.settings) {
        return Ok(None);
    }
    let (head_len, mut report) = (head.len(), Report::default());
    let sent = if is_copied {
        let sent = send_small(head, part, &peer.socket, &mut report);
        head.truncate(head_len);
        sent
    } else if part.len <= max && may_use_sendfile(worker, integrity) {
        send_with_head(head, part, &peer.socket, &mut report)?
    } else {
        None
    };
    let Some(sent) = sent else { return Ok(None) };
    head.drain(..sent.min(head_len));
    Ok(Some((report, sent.saturating_sub(head_len) as u64)))
}

/// Returns whether files may be sent by sendfile(2) without a transfer, which is needed for higher
/// levels of integrity and for other mechanisms.
fn may_use_sendfile(worker: &Worker, integrity: Integrity) -> bool {
    let settings = &worker.shared.settings;
    settings.policy == Policy::Auto
        && settings.step.is_none()
        && integrity <= Integrity::Detect
        && !worker.capabilities.lacks(Mechanism::Sendfile)
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn files_of_more_than_a_short_turn_are_sent_at_once_only_while_nobody_waits() {
        let (turns, now) = (TurnQueue::default(), Instant::now());
        assert_eq!(max_at_once(&turns, now), HELD_BACK as usize - 1);
        let begun = pin!(turns.begin()).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(max_at_once(&turns, now), SHORT_TURN);
        drop(begun);
        assert_eq!(max_at_once(&turns, now), HELD_BACK as usize - 1);
        turns.record_short(now);
        assert_eq!(max_at_once(&turns, now), SHORT_TURN);
    }
}
