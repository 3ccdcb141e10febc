//! Fetches a folder as one archive, which is unpacked while it arrives and can be resumed.

mod destination;
mod journal;
mod large;
mod noted;
mod stream;
mod unpack;

use std::sync::mpsc;
use std::thread;

use underpass_transport::incoming::BodyFraming;

use super::dest::ExistingEntry;
use super::error::{Result, SourceFolderError, TreeError, TreeMethod};
use super::options::TreeEvent;
use super::retry::Retry;
use super::task::TreeFetch;
use crate::http::{OpenResponse, Request};
use destination::ArchiveDest;
use noted::{ArchiveId, NotedArchive};
use unpack::{BodyEnd, Unpack};

/// An archive that a server offers.
#[derive(Debug)]
pub(super) struct ArchiveOffer {
    url: url::Url,
    origin: ArchiveId,
}

/// Requests an archive of the folder; `None` if the server has none.
pub(super) fn offer(tree: &TreeFetch<'_, '_>) -> Result<Option<ArchiveOffer>> {
    let mut url = tree.url.clone();
    url.query_pairs_mut().append_pair("archive", "tar");
    let mut retry = Retry::new(tree);
    loop {
        let request = Request { method: "HEAD", fields: &[] };
        let error = match tree.client.execute(None, &request, &url) {
            Ok(answer) => {
                tree.mark_answered();
                let found = origin(tree, &answer);
                if found.is_some() || is_whole_or_part(&answer) {
                    return Ok(found.map(|origin| ArchiveOffer { url, origin }));
                }
                // A busy server may offer an archive later.
                if !matches!(answer.response.status, 429 | 503) {
                    return Ok(None);
                }
                answer.connection.refusal(&answer.response)
            }
            Err(error) => error,
        };
        retry.wait(error.into())?;
    }
}

/// Returns the archive that a response describes; `None` if it cannot be resumed or is not one.
fn origin(tree: &TreeFetch<'_, '_>, answer: &OpenResponse<'_>) -> Option<ArchiveId> {
    let fields = &answer.response.fields;
    let media_type = fields.text("content-type").unwrap_or_default();
    if !is_whole_or_part(answer) || !media_type.starts_with("application/x-tar") {
        return None;
    }
    // The full length, as the response may be partial (RFC 9110 14.4).
    let len = match fields.text("content-range") {
        Some(range) => range.rsplit_once('/')?.1.parse().ok()?,
        None => fields.number("content-length")?,
    };
    let etag = fields.text("etag").filter(|etag| etag.starts_with('"')).unwrap_or_default();
    let top = fields.get("underpass-top").unwrap_or_default();
    let top = percent_encoding::percent_decode(top).collect();
    Some(ArchiveId { url: TreeFetch::redacted(&tree.url), etag: etag.to_owned(), top, len })
}

/// Fetches this archive.
pub(super) fn fetch(tree: &mut TreeFetch<'_, '_>, offer: ArchiveOffer) -> Result<()> {
    tree.done.method = TreeMethod::Archive;
    tree.done.connections = 1;
    let if_exists =
        if tree.options.replaces { ExistingEntry::Replaced } else { ExistingEntry::Stays };
    let (destination, journal, noted) = ArchiveDest::open(tree.path, &offer.origin.url, if_exists)?;
    let mut unpack = Unpack::new(tree, destination, journal);
    match noted {
        Some(noted) => go_on(&mut unpack, noted, &offer)?,
        None => {
            unpack.start_over(&offer.origin)?;
            // Without a journal, nothing tells whether the files there have their bytes.
            unpack.destination.dest.forget_superseded();
        }
    }
    let mut retry = Retry::new(unpack.tree);
    loop {
        let before = (unpack.restarts, unpack.position);
        match attempt(&mut unpack, &offer) {
            Ok(BodyEnd::Complete) => return unpack.finish(),
            Ok(BodyEnd::Jump) => {}
            Err(error) => {
                // A restart is no progress: a folder that keeps changing is given up.
                if unpack.restarts == before.0 {
                    retry.progressed(unpack.position.saturating_sub(before.1));
                }
                let saved = unpack.save_position();
                retry.wait(error)?;
                saved?;
            }
        }
    }
}

/// Resumes the folder of an earlier run.
fn go_on(unpack: &mut Unpack<'_, '_, '_>, noted: NotedArchive, offer: &ArchiveOffer) -> Result<()> {
    // After a power cut a file may have its size and time but not its bytes. In a folder with its
    // final name, a log tells which.
    unpack.destination.dest.trusts = noted.is_same_epoch || !unpack.destination.is_unnamed();
    let is_same = noted.origin == offer.origin && !offer.origin.etag.is_empty();
    if !is_same {
        if noted.position > 0 {
            (unpack.tree.on_event)(&TreeEvent::StartingOver);
        }
        if let Some(path) = &noted.partial {
            // If this fails, the partial file is gone or stays where it was.
            let _ = unpack.destination.dest.remove_partial(path);
        }
        return unpack.start_over(&offer.origin);
    }
    unpack.resume(noted)?;
    let (have, total) = (unpack.position, unpack.origin.len);
    if have > 0 {
        (unpack.tree.on_event)(&TreeEvent::Resuming { have, total });
    }
    unpack.tree.done.resumed_at = have;
    Ok(())
}

/// Requests the rest of the archive, and unpacks it.
fn attempt(unpack: &mut Unpack<'_, '_, '_>, offer: &ArchiveOffer) -> Result<BodyEnd> {
    // Some servers ignore an empty If-Range, and send a part of the current version.
    if unpack.position > 0 && unpack.origin.etag.is_empty() {
        let origin = unpack.origin.clone();
        restart(unpack, &origin)?;
    }
    let range = format!("bytes={}-", unpack.position);
    let fields = [("Range", range.as_str()), ("If-Range", unpack.origin.etag.as_str())];
    let fields = if unpack.position > 0 { &fields[..] } else { &[] };
    if unpack.position >= unpack.origin.len && unpack.position > 0 {
        return Ok(BodyEnd::Complete);
    }
    let tree = &*unpack.tree;
    let request = Request { method: "GET", fields };
    let answer = tree.client.execute(None, &request, &offer.url)?;
    unpack.tree.done.tls = answer.connection.tls().cloned();
    let tree = &*unpack.tree;
    if !is_whole_or_part(&answer) {
        return Err(answer.connection.refusal(&answer.response).into());
    }
    let Some(now) = origin(tree, &answer) else {
        return Err(not_an_archive(tree, &answer));
    };
    let is_part = answer.response.status == 206;
    let begins = if is_part { unpack.position } else { 0 };
    let is_expected = answer.response.framing
        == BodyFraming::Length(now.len.saturating_sub(begins))
        && (!is_part || is_range_from(&answer, begins));
    if !is_expected {
        return Err(not_an_archive(tree, &answer));
    }
    if !is_part && unpack.position > 0 || now != unpack.origin {
        if is_part {
            // A part of an archive other than the requested one is useless.
            return Err(not_an_archive(tree, &answer));
        }
        restart(unpack, &now)?;
    }
    run(unpack, answer)
}

/// Starts over, because the server now has another archive.
fn restart(unpack: &mut Unpack<'_, '_, '_>, origin: &ArchiveId) -> Result<()> {
    unpack.restarts += u32::from(unpack.position > 0);
    (unpack.tree.on_event)(&TreeEvent::StartingOver);
    unpack.start_over(origin)
}

/// Unpacks the body of a response, while another thread syncs the files.
fn run<'a>(unpack: &mut Unpack<'_, '_, 'a>, answer: OpenResponse<'a>) -> Result<BodyEnd> {
    let journal = std::sync::Arc::clone(&unpack.journal);
    let outcome = thread::scope(|scope| {
        let (running, stop) = mpsc::channel();
        // Without this thread, nothing is known to be on the disk.
        let _ =
            thread::Builder::new().spawn_scoped(scope, move || journal.sync_periodically(&stop));
        let outcome = unpack.run(answer);
        drop(running);
        outcome
    });
    if let Err(errno) = unpack.journal.check() {
        unpack.destination.dest.log().inspect(|log| log.doubt());
        return Err(TreeError::io("syncing", unpack.destination.path(), errno));
    }
    outcome
}

/// Returns whether a response has the archive or a part of it.
fn is_whole_or_part(answer: &OpenResponse<'_>) -> bool {
    matches!(answer.response.status, 200 | 206)
}

fn is_range_from(answer: &OpenResponse<'_>, begins: u64) -> bool {
    let range = answer.response.fields.text("content-range").unwrap_or_default();
    let start = range.strip_prefix("bytes ").and_then(|range| range.split_once('-'));
    start.and_then(|(start, _)| start.parse().ok()) == Some(begins)
}

fn not_an_archive(tree: &TreeFetch<'_, '_>, answer: &OpenResponse<'_>) -> TreeError {
    let media_type = answer.response.fields.text("content-type").unwrap_or_default().to_owned();
    SourceFolderError::NotAFolder { url: TreeFetch::redacted(&tree.url), media_type }.into()
}
