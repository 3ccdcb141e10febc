//! A folder as one archive: asked for, unpacked while it comes in, gone on with after a break.

mod journal;
mod site;
mod stream;
mod unpack;

use std::sync::mpsc;
use std::thread;

use super::dest::Taken;
use super::error::{TreeError, TreeWay};
use super::job::Job;
use super::options::TreeEvent;
use super::retry::Retry;
use crate::client::http::{Answer, Request};
use crate::incoming::Extent;
use journal::{Noted, Origin};
use site::Site;
use unpack::{Flow, Unpack};

/// An archive that a server has.
#[derive(Debug)]
pub(super) struct Offer {
    url: url::Url,
    origin: Origin,
}

/// Asks the server whether it has the folder as an archive.
pub(super) fn offer(job: &Job<'_, '_>) -> Result<Option<Offer>, TreeError> {
    let mut url = job.url.clone();
    url.query_pairs_mut().append_pair("archive", "tar");
    let mut retry = Retry::new(job);
    loop {
        let request = Request { method: "HEAD", fields: &[] };
        match job.agent.ask(None, &request, &url) {
            Ok(answer) => {
                job.note_answer();
                return Ok(origin(job, &answer).map(|origin| Offer { url, origin }));
            }
            Err(error) => retry.wait(error.into())?,
        }
    }
}

/// What an answer says of the archive; nothing if it is none that can be gone on with.
fn origin(job: &Job<'_, '_>, answer: &Answer<'_>) -> Option<Origin> {
    let fields = &answer.response.fields;
    let media_type = fields.text("content-type").unwrap_or_default();
    if !answer.response.is_success() || !media_type.starts_with("application/x-tar") {
        return None;
    }
    // The whole, of which a part may have been asked for (RFC 9110 14.4).
    let len = match fields.text("content-range") {
        Some(range) => range.rsplit_once('/')?.1.parse().ok()?,
        None => fields.number("content-length")?,
    };
    let etag = fields.text("etag").filter(|etag| etag.starts_with('"')).unwrap_or_default();
    let top = fields.get("underpass-top").unwrap_or_default();
    let top = percent_encoding::percent_decode(top).collect();
    Some(Origin { url: Job::shown(&job.url), etag: etag.to_owned(), top, len })
}

/// Fetches the folder as this archive.
pub(super) fn fetch(job: &mut Job<'_, '_>, offer: Offer) -> Result<(), TreeError> {
    (job.tell)(&TreeEvent::Begun(TreeWay::Archive));
    job.done.way = TreeWay::Archive;
    job.done.connections = 1;
    let taken = if job.wishes.replaces { Taken::Replaced } else { Taken::Stays };
    let (site, journal, noted) = Site::open(job.path, &offer.origin.url, taken)?;
    let mut unpack = Unpack::new(job, site, journal);
    match noted {
        Some(noted) => go_on(&mut unpack, noted, &offer)?,
        None => unpack.begin(&offer.origin)?,
    }
    let mut retry = Retry::new(unpack.job);
    loop {
        let before = unpack.position;
        match attempt(&mut unpack, &offer) {
            Ok(Flow::Done) => return unpack.finish(),
            Ok(Flow::Jump) => {}
            Err(error) => {
                if unpack.position > before {
                    retry.renew();
                }
                unpack.note()?;
                retry.wait(error)?;
            }
        }
    }
}

/// Takes up what an earlier run has left.
fn go_on(unpack: &mut Unpack<'_, '_, '_>, noted: Noted, offer: &Offer) -> Result<(), TreeError> {
    // After a power cut a file may have its size and time and not its bytes. In a folder that has its
    // name a log tells which.
    unpack.site.place.trusts = noted.is_same_boot || !unpack.site.is_unnamed();
    let is_same = noted.origin == offer.origin && !offer.origin.etag.is_empty();
    if !is_same {
        if noted.position > 0 {
            (unpack.job.tell)(&TreeEvent::StartingOver);
        }
        if let Some(path) = &noted.partial {
            // It is where it was, or it is not there.
            let _ = unpack.site.place.remove_partial(path);
        }
        unpack.site.start_over()?;
        return unpack.begin(&offer.origin);
    }
    let (have, total) = (noted.position, noted.origin.len);
    if have > 0 {
        (unpack.job.tell)(&TreeEvent::Resuming { have, total });
    }
    unpack.job.done.resumed_at = have;
    unpack.resume(noted)
}

/// Asks for what is missing, and unpacks it.
fn attempt(unpack: &mut Unpack<'_, '_, '_>, offer: &Offer) -> Result<Flow, TreeError> {
    let range = format!("bytes={}-", unpack.position);
    let fields = [("Range", range.as_str()), ("If-Range", unpack.origin.etag.as_str())];
    let fields = if unpack.position > 0 { &fields[..] } else { &[] };
    if unpack.position >= unpack.origin.len && unpack.position > 0 {
        return Ok(Flow::Done);
    }
    let job = &*unpack.job;
    let request = Request { method: "GET", fields };
    let answer = job.agent.ask(None, &request, &offer.url)?;
    unpack.job.done.tls = answer.connection.tls().cloned();
    let job = &*unpack.job;
    if !answer.response.is_success() {
        return Err(answer.connection.refusal(&answer.response).into());
    }
    let Some(now) = origin(job, &answer) else {
        return Err(not_an_archive(job, &answer));
    };
    let is_part = answer.response.status == 206;
    let begins = if is_part { unpack.position } else { 0 };
    let is_expected = answer.response.extent == Extent::Length(now.len.saturating_sub(begins))
        && (!is_part || is_range_from(&answer, begins));
    if !is_expected {
        return Err(not_an_archive(job, &answer));
    }
    if !is_part && unpack.position > 0 || now != unpack.origin {
        if is_part {
            // A part of another archive than was asked for is of no use.
            return Err(not_an_archive(job, &answer));
        }
        (job.tell)(&TreeEvent::StartingOver);
        unpack.start_over(&now)?;
    }
    run(unpack, answer)
}

/// Unpacks what an answer brings, while another thread sees to it that it gets to the disk.
fn run<'a>(unpack: &mut Unpack<'_, '_, 'a>, answer: Answer<'a>) -> Result<Flow, TreeError> {
    let journal = std::sync::Arc::clone(&unpack.journal);
    thread::scope(|scope| {
        let (running, stop) = mpsc::channel();
        scope.spawn(move || journal.keep_safe(&stop));
        let outcome = unpack.run(answer);
        drop(running);
        outcome
    })
}

fn is_range_from(answer: &Answer<'_>, begins: u64) -> bool {
    let range = answer.response.fields.text("content-range").unwrap_or_default();
    let start = range.strip_prefix("bytes ").and_then(|range| range.split_once('-'));
    start.and_then(|(start, _)| start.parse().ok()) == Some(begins)
}

fn not_an_archive(job: &Job<'_, '_>, answer: &Answer<'_>) -> TreeError {
    let media_type = answer.response.fields.text("content-type").unwrap_or("nothing");
    TreeError::NotAFolder { url: Job::shown(&job.url), media_type: media_type.to_owned() }
}
