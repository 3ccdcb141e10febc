//! A folder as the answer: its listing, or all of it as one archive.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::answer::Asking;
use super::archives::LayoutKey;
use super::listings::{Asked, ListTask};
use super::question::Question;
use super::response::{ArchiveBody, Body, Response};
use super::root::Root;
use super::settings::Changes;
use crate::archive;
use crate::auth::Right;
use crate::listing::{Attributes, CONTENT_SECURITY_POLICY, Format, ListingQuery, May, Resolve};
use crate::negotiate::wants_json;
use crate::plan::{Facts, PlannedBody};
use crate::request::Method;
use crate::target::{Target, encode_segment};

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
    let (head, body) = match asking.known.listing.take() {
        Some(Ok(listing)) => listing,
        Some(Err(error)) => return Ok(asking.failed(&error)),
        None => {
            let json = wants_json(asking.request);
            let query = match ListingQuery::read(|key| target.query.get(key), json) {
                Ok(query) => query,
                Err(fault) => return Ok(asking.error(400, &fault.to_string())),
            };
            let is = |name, value: &[u8]| asking.request.field(name) == Some(value);
            let what = Asked {
                path: target.path.clone(),
                query,
                is_browser: is("sec-fetch-dest", b"document") || is("sec-fetch-mode", b"navigate"),
                is_head: asking.request.method == Method::Head,
                may: may(asking, &target.path),
                user: asking.user.clone(),
                is_partial: asking.is_partial,
            };
            let is_chunked = asking.request.minor_version > 0;
            let task = ListTask { folder, what, is_chunked };
            return Err(Question::List(Box::new(task)));
        }
    };
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
    let log_in = (upload || delete || asking.is_partial)
        && asking.user.is_none()
        && settings.access.has_users();
    May { log_in, ..May::default() }
}

/// The whole folder as a tar, or ranges of it.
fn archive(
    asking: &mut Asking<'_, '_, '_>,
    path: &[u8],
    folder: OwnedFd,
) -> Result<Response, Question> {
    let laid_out = match asking.known.layout.take() {
        Some(Ok(laid_out)) => laid_out,
        Some(Err(error)) => {
            let mut response = asking.error(error.status(), &error.to_string());
            if response.status == 503 {
                response.add_field("Retry-After", "1");
            }
            return Ok(response);
        }
        None => {
            let key = LayoutKey::of(&folder, path, asking.user.as_ref());
            match asking.worker.shared.layouts.get(&key) {
                Some(laid_out) => laid_out,
                None => return Err(Question::Archive(key, folder)),
            }
        }
    };
    let layout = &laid_out.layout;
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
    let part =
        |from, to| archive::Body::new(Arc::clone(layout), Arc::clone(&laid_out.folder), from..to);
    let whole = |parts, closing| {
        let _laid_out = Arc::clone(&laid_out);
        Body::Archive(Box::new(ArchiveBody { parts, closing, _laid_out }))
    };
    let body = match plan.body {
        PlannedBody::Nothing => Body::Nothing,
        PlannedBody::Message(text) => Body::Memory(text.into_owned().into_bytes().into()),
        PlannedBody::Whole => whole(vec![(Vec::new(), part(0, layout.len()))], Vec::new()),
        PlannedBody::Range(range) => {
            whole(vec![(Vec::new(), part(range.start, range.end))], Vec::new())
        }
        PlannedBody::Multipart(multipart) => {
            let parts = multipart.parts.into_iter();
            let parts = parts.map(|(header, range)| (header, part(range.start, range.end)));
            whole(parts.collect(), multipart.closing)
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
