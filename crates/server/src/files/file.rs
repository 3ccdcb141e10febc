//! Answers requests for files.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use underpass_engine::{Integrity, Mechanism, Policy, SMALL_TRANSFER};

use crate::digest::respond as digests;
use crate::files::lookup::{ServedEntry, find, find_open, forget, is_current};
use crate::files::open_files::ServedFile;
use crate::files::resume;
use crate::files::root::last_name;
use crate::routing::context::RequestContext;
use crate::routing::path_fields::has_field;
use crate::routing::response::{self, Body, FileBody, Response, is_copied};
use underpass_protocol::request::Method;
use underpass_protocol::request::negotiate::{Coding, acceptable};
use underpass_protocol::request::target::Target;
use underpass_protocol::response::conditional::may_be_packed;
use underpass_protocol::response::media::is_active;
use underpass_protocol::response::plan::{PlannedBody, Representation, ResponsePlan};
use underpass_protocol::response::resumption::ResumableDownload;

/// Answers with a file that is open already; `None` if it is not, or if anything has to wait.
pub(crate) fn respond_at_once(
    ctx: &RequestContext<'_>,
    target: &Target<'_>,
    path: &[u8],
) -> Option<Response> {
    if ctx.request.has(digests::WANT) {
        return None;
    }
    let served = find_open(ctx, path)?.ok().filter(|served| served.is_local)?;
    let is_usual = is_usual(ctx, &served);
    let response = match served.fields.get().filter(|_| is_usual) {
        Some(fields) => again(ctx, &served, fields),
        None => FilePlan::new(ctx, target, path, &served).response(ctx),
    };
    if is_usual
        && response.status == 200
        && response.rendered.is_none()
        && response.custom.is_none()
    {
        // Only this thread uses the file, so nothing else sets it.
        let _ = served.fields.set(response.fields.as_slice().into());
    }
    if is_checked_later(&response, &served) || served.is_current_locally() {
        return Some(response);
    }
    forget(ctx, path);
    None
}

/// Answers with the current version of a file.
pub(crate) async fn respond(
    ctx: &RequestContext<'_>,
    target: &Target<'_>,
    path: &[u8],
    mut served: Rc<ServedFile>,
) -> Response {
    for _ in 0..MAX_ATTEMPTS {
        let response = match digests::hash(ctx, target, &served).await {
            Some(response) => response,
            None => {
                let mut planned = FilePlan::new(ctx, target, path, &served);
                digests::add_digest(ctx, &mut planned.plan, planned.chosen).await;
                planned.response(ctx)
            }
        };
        if is_checked_later(&response, &served) || is_current(ctx, &served).await {
            return response;
        }
        forget(ctx, path);
        served = match find(ctx, path).await {
            Ok(ServedEntry::File(served)) => served,
            Ok(_) => break,
            Err(errno) => return ctx.refused(errno),
        };
    }
    // The file changes faster than it can be checked.
    ctx.busy(503, "the file is being written to; try again soon")
}

/// Returns whether the response is the unmodified file, with the same fields for all such requests.
fn is_usual(ctx: &RequestContext<'_>, served: &ServedFile) -> bool {
    let is_whole = ctx.request.is_unconditional_get() && served.len() > 0;
    let is_plain = served.packed.is_empty() && !ctx.site().root.is_file();
    is_whole && is_plain && !ctx.explains
}

/// Answers a usual request with the fields of an earlier response with the same version.
fn again(ctx: &RequestContext<'_>, served: &ServedFile, fields: &Arc<[u8]>) -> Response {
    let len = served.len();
    let content = PlannedBody::Whole;
    let is_copied = is_copied(ctx.peer, ctx.shared().settings.policy, len, &content);
    let body = file_body(ctx, served, content, len, is_copied);
    let mut response = Response::new(200, Vec::new(), Body::File(body), Some(len));
    response.rendered = Some(Arc::clone(fields));
    response.download = resume::download(ctx, len, &served.etag);
    response
}

/// Returns the body of a response, with the checks that sending it needs.
fn file_body(
    ctx: &RequestContext<'_>,
    served: &ServedFile,
    content: PlannedBody,
    len: u64,
    is_copied: bool,
) -> FileBody {
    let settings = ctx.settings();
    let mut body = FileBody::new(served, content, len);
    body.is_guarded = is_copied && settings.integrity == Integrity::Detect;
    body.is_copied = is_copied && settings.integrity <= Integrity::Detect;
    body.is_resident = served.is_local && served.is_resident(ctx.started);
    if !body.is_resident {
        body.resident_until = Some(served.resident_until.clone());
    }
    body.is_unsettled = served.is_unsettled(ctx.now);
    body
}

/// Returns whether sending compares the version of the file before it sends any byte.
fn is_checked_later(response: &Response, served: &ServedFile) -> bool {
    let is_guarded = matches!(&response.body, Body::File(body) if body.is_guarded);
    is_guarded && served.packed.is_empty()
}

/// The plan for a version of a file, or for the compressed form that the client prefers.
struct FilePlan<'s> {
    chosen: &'s ServedFile,
    path: &'s [u8],
    media_type: &'s str,
    plan: ResponsePlan,
    download: Option<ResumableDownload>,
}

impl<'s> FilePlan<'s> {
    fn new(
        ctx: &RequestContext<'s>,
        target: &Target<'_>,
        path: &'s [u8],
        served: &'s ServedFile,
    ) -> Self {
        let is_packed = !served.packed.is_empty();
        let real = served.reached.as_deref().unwrap_or(path);
        // A client that may write to a neighbour need not be allowed to write to the file.
        let is_alike = |coding: Coding| {
            let packed = [real, coding.extension().as_bytes()].concat();
            ctx.settings().access.treats_alike(real, &packed)
        };
        let find = |coding| {
            let is_chosen = |(packed, file): &&(_, ServedFile)| {
                *packed == coding && is_alike(coding) && may_be_packed(&ctx.request, &file.etag)
            };
            served.packed.iter().find(is_chosen)
        };
        // The accepted codings are read only if there is a choice.
        let choice = if is_packed { acceptable(&ctx.request).find_map(find) } else { None };
        let (coding, chosen) = match choice {
            Some((coding, packed)) => (Some(*coding), packed),
            None => (None, served),
        };
        let media_type = ctx.site().path_fields.media_type(path);
        let media_type = media_type.unwrap_or(&chosen.media_type);
        let is_download = target.query.has("download");
        let name = last_name(path);
        // The URL of a single served file does not contain its name.
        let is_renamed = target.path.is_empty() && ctx.site().root.is_file();
        let facts = Representation {
            len: chosen.len(),
            etag: &chosen.etag,
            modified: Some(chosen.modified),
            changed: Some(chosen.changed),
            has_weak_date: false,
            media_type,
            coding,
            is_coded: false,
            varies: is_packed,
            file_name: (is_download || is_renamed).then_some(name),
            is_download,
        };
        let (plan, download) = resume::plan_resumable(ctx, &facts);
        Self { chosen, path, media_type, plan, download }
    }

    fn response(self, ctx: &RequestContext<'_>) -> Response {
        let Self { chosen, path, media_type, plan, download } = self;
        let (status, len) = (plan.status, plan.body_len);
        let settings = ctx.settings();
        let is_copied = is_copied(ctx.peer, ctx.shared().settings.policy, len, &plan.body);
        // The engine also copies small parts.
        let has_small_parts =
            matches!(plan.body, PlannedBody::Multipart(_)) && len <= SMALL_TRANSFER as u64;
        let is_single = ctx.site().root.is_file();
        let part = || response::body_part(&plan, chosen.len(), &chosen.etag, false);
        let part = if is_single { part() } else { None };
        let body = match plan.body {
            PlannedBody::Nothing => Body::Nothing,
            PlannedBody::Message(text) => Body::Memory(text.into_bytes().into()),
            content => Body::File(file_body(ctx, chosen, content, len, is_copied)),
        };
        let mut response = Response::new(status, plan.fields, body, Some(len));
        response.download = download;
        response.part = part;
        add_path_fields(ctx, &mut response, path);
        response.add_common(ctx.peer, settings, ctx.explains, || {
            expected_mechanism(ctx, is_copied || has_small_parts)
        });
        add_sandbox(ctx, &mut response, media_type);
        response
    }
}

/// Adds the fields that the operator has set for the file at this path.
fn add_path_fields(ctx: &RequestContext<'_>, response: &mut Response, path: &[u8]) {
    if matches!(response.status, 200 | 206 | 304) {
        let common = &ctx.site().custom_fields;
        response.custom = ctx.site().path_fields.push(path, common, &mut response.fields);
    }
}

/// Adds the policy that keeps a browser from running a file's scripts as pages of this server.
fn add_sandbox(ctx: &RequestContext<'_>, response: &mut Response, media_type: &str) {
    if ctx.site().sandboxes && is_active(media_type) {
        response.add_field("Content-Security-Policy", "sandbox");
    }
}

/// Returns the mechanism that is expected to move a file.
pub(crate) fn expected_mechanism(ctx: &RequestContext<'_>, is_copied: bool) -> &'static str {
    let lacks = |mechanism| ctx.worker.capabilities.lacks(mechanism);
    let mechanism = match ctx.peer.policy(ctx.shared().settings.policy) {
        Policy::Require(mechanism) | Policy::Prefer(mechanism) => mechanism,
        Policy::Auto if is_copied => Mechanism::ReadWrite,
        Policy::Auto if !lacks(Mechanism::Sendfile) => Mechanism::Sendfile,
        Policy::Auto if !lacks(Mechanism::Splice) => Mechanism::Splice,
        Policy::Auto => Mechanism::ReadWrite,
    };
    mechanism.name()
}

/// Answers with a file whose contents are generated by reading it.
pub(crate) async fn respond_unsized(
    ctx: &RequestContext<'_>,
    path: &[u8],
    opened: OwnedFd,
) -> Response {
    let client = ctx.peer.client_net();
    let text = ctx.worker.helpers.run(client, move || read(opened)).await;
    match text.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())) {
        Err(error) => ctx.failed(&error),
        Ok(text) => {
            let site = ctx.site();
            let name = last_name(path);
            let chosen = site.path_fields.media_type(path).map(Cow::Borrowed);
            let media_type = chosen.unwrap_or_else(|| site.root.media_type(name));
            let is_head = ctx.request.method == Method::Head;
            let mut response = Response::memory(200, &media_type, text, is_head);
            add_path_fields(ctx, &mut response, path);
            if !has_field(&response.fields, "cache-control") {
                response.add_field("Cache-Control", "no-store");
            }
            add_sandbox(ctx, &mut response, &media_type);
            response
        }
    }
}

/// Reads a file of unknown size.
fn read(file: OwnedFd) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::from(file).take(MAX_TEXT_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_TEXT_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// The maximum number of attempts to open a file that keeps being replaced.
const MAX_ATTEMPTS: u32 = 4;

/// The maximum number of bytes of a procfs file; a longer, or endless, one is an error.
const MAX_TEXT_BYTES: u64 = 4 << 20;
