//! A folder as the answer: its listing, or all of it as one archive.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::sync::oneshot;

use super::answer::Asking;
use super::question::Question;
use super::response::{ArchiveBody, Body, Response};
use super::root::Root;
use super::settings::Changes;
use super::shared::Shared;
use crate::archive;
use crate::auth::Right;
use crate::listing::{
    Attributes, CONTENT_SECURITY_POLICY, Format, Listing, ListingQuery, May, Resolve,
};
use crate::negotiate::wants_json;
use crate::plan::{Facts, PlannedBody};
use crate::request::Method;
use crate::target::{Target, encode_segment};

/// A folder to be listed by a helper.
#[derive(Debug)]
pub(super) struct ListTask {
    folder: OwnedFd,
    path: Vec<u8>,
    query: ListingQuery,
    is_browser: bool,
    may: May,
    pub(super) is_chunked: bool,
}

/// What the head of a listing's response has to say.
#[derive(Debug)]
pub(super) struct ListingHead {
    media_type: &'static str,
    next_page: Option<String>,
}

/// Answers a request for a folder.
pub(super) fn answer(
    asking: &mut Asking<'_, '_, '_>,
    target: &Target<'_>,
    folder: OwnedFd,
) -> Result<Response, Question> {
    let settings = &asking.worker.shared.settings;
    match target.query.get("archive") {
        None => {}
        Some(format) if !settings.archive || *format != *b"tar" => {
            return Ok(asking.error(400, "folders can be had as ?archive=tar, if at all"));
        }
        Some(_) => return archive(asking, &target.path, folder),
    }
    if !settings.listing {
        return Ok(asking.error(403, "this folder is not listed"));
    }
    listing(asking, target, folder)
}

/// The page, or JSON, or plain names.
fn listing(
    asking: &mut Asking<'_, '_, '_>,
    target: &Target<'_>,
    folder: OwnedFd,
) -> Result<Response, Question> {
    let (head, mut body) = match asking.known.listing.take() {
        Some(Ok(listing)) => listing,
        Some(Err(error)) => return Ok(asking.failed(&error)),
        None => {
            let json = wants_json(asking.request);
            let query = match ListingQuery::read(|key| target.query.get(key), json) {
                Ok(query) => query,
                Err(fault) => return Ok(asking.error(400, &fault.to_string())),
            };
            let is = |name, value: &[u8]| asking.request.field(name) == Some(value);
            let task = ListTask {
                folder,
                path: target.path.clone(),
                query,
                is_browser: is("sec-fetch-dest", b"document") || is("sec-fetch-mode", b"navigate"),
                may: may(asking, &target.path),
                is_chunked: asking.request.minor_version > 0,
            };
            return Err(Question::List(Box::new(task)));
        }
    };
    if asking.request.method == Method::Head {
        body = Body::Nothing;
    }
    let is_stream = matches!(body, Body::Stream { .. });
    let is_chunked = asking.request.minor_version > 0;
    let mut response =
        Response { status: 200, fields: Vec::new(), body, len: None, closes: !is_chunked };
    response.add_field("Content-Type", head.media_type);
    if is_chunked && is_stream {
        response.add_field("Transfer-Encoding", "chunked");
    }
    response.add_field("Cache-Control", "no-cache");
    response.add_field("Vary", "Accept, Sec-Fetch-Dest, Sec-Fetch-Mode");
    if head.media_type == Format::Html.media_type() {
        response.add_field("Content-Security-Policy", CONTENT_SECURITY_POLICY);
    }
    if let Some(next) = head.next_page {
        response.add_field("Link", &format!("<{next}>; rel=\"next\""));
    }
    Ok(response)
}

/// What whoever asks may do with a folder.
fn may(asking: &Asking<'_, '_, '_>, path: &[u8]) -> May {
    let settings = &asking.worker.shared.settings;
    let Changes { upload, delete, .. } = settings.changes;
    if settings.access.can(asking.user.as_deref(), path, Right::Write) {
        return May { upload, delete, log_in: false };
    }
    // A browser tells who its user is only where it was asked to, which nobody does who may read.
    let log_in = (upload || delete) && asking.user.is_none() && settings.access.has_users();
    May { log_in, ..May::default() }
}

/// Writes a listing, on a helper thread; whether it came to its end.
pub(super) fn list(
    shared: &Shared,
    task: &ListTask,
    head: oneshot::Sender<io::Result<ListingHead>>,
    mut sink: impl FnMut(Vec<u8>) -> io::Result<()>,
) -> bool {
    let listing = Listing {
        folder: task.folder.as_fd(),
        path: &task.path,
        query: task.query.clone(),
        is_browser: task.is_browser,
        shows_hidden: shared.settings.shows_hidden,
        hides: &|path, _| shared.root.hides(path),
        may: task.may,
        archive: shared.settings.archive,
        root: &shared.root,
    };
    // Whoever asked may have left; then nobody reads either.
    match listing.prepare() {
        Err(error) => {
            let _ = head.send(Err(error));
            false
        }
        Ok(prepared) => {
            let next_page = prepared.next_page().map(str::to_owned);
            let _ = head.send(Ok(ListingHead { media_type: prepared.media_type(), next_page }));
            prepared.write(&mut sink).is_ok()
        }
    }
}

/// The whole folder as a tar, or ranges of it.
fn archive(
    asking: &mut Asking<'_, '_, '_>,
    path: &[u8],
    folder: OwnedFd,
) -> Result<Response, Question> {
    let (layout, folder) = match asking.known.layout.take() {
        Some(Ok(kept)) => kept,
        Some(Err(error)) => return Ok(asking.error(error.status(), &error.to_string())),
        None => match asking.worker.shared.layouts.get(path) {
            Some(kept) => kept,
            None => return Err(Question::Archive(path.to_vec(), folder)),
        },
    };
    let name = path.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty());
    let file_name = [name.unwrap_or(b"files"), b".tar"].concat();
    let etag = layout.etag();
    let facts = Facts {
        len: layout.len(),
        etag: &etag,
        modified: layout.modified(),
        media_type: "application/x-tar",
        coding: None,
        varies: false,
        file_name: Some(&file_name),
        is_download: true,
    };
    let plan = asking.plan(&facts);
    let part = |from, to| archive::Body::new(layout.clone(), folder.clone(), from..to);
    let whole = |parts| Body::Archive(Box::new(ArchiveBody { parts, closing: Vec::new() }));
    let body = match plan.body {
        PlannedBody::Nothing => Body::Nothing,
        PlannedBody::Message(text) => Body::Memory(text.into_owned().into_bytes().into()),
        PlannedBody::Whole => whole(vec![(Vec::new(), part(0, layout.len()))]),
        PlannedBody::Range(range) => whole(vec![(Vec::new(), part(range.start, range.end))]),
        PlannedBody::Multipart(multipart) => {
            let parts = multipart.parts.into_iter();
            let parts = parts.map(|(header, range)| (header, part(range.start, range.end)));
            Body::Archive(Box::new(ArchiveBody {
                parts: parts.collect(),
                closing: multipart.closing,
            }))
        }
    };
    let mut response = Response {
        status: plan.status,
        fields: plan.fields,
        body,
        len: Some(plan.body_len),
        closes: false,
    };
    // So that clients which unpack it need not guess whether its one folder is this one.
    response.add_field("Underpass-Top", &encode_segment(name.unwrap_or_default()));
    asking.add_common(&mut response, "sendfile");
    Ok(response)
}

impl Resolve for Root {
    fn resolve(&self, path: &[u8]) -> io::Result<Attributes> {
        Ok(Attributes::from(&self.look(path)?))
    }
}
