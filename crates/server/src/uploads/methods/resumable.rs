//! Resumable uploads (draft-ietf-httpbis-resumable-upload): created by a PUT with
//! `Upload-Complete`, which gives each an address, queried by HEAD, resumed by PATCH, cancelled by
//! DELETE.
//!
//! The address has everything that identifies the upload, and the file itself has its progress:
//! nothing is lost when the server restarts.

use std::os::fd::AsFd;
use std::time::Duration;

use underpass_engine::atomic_file::AtomicFile;

use crate::routing::response::Response;
use crate::server::settings::Changes;
use crate::uploads::active_upload::ActiveUpload;
use crate::uploads::interim;
use crate::uploads::methods::put::{FinishOptions, finish};
use crate::uploads::parts::part::{
    PartialUpload, check_content, forget_part, id_at_site, is_begun, part_age, part_len,
    part_version, record_synced,
};
use crate::uploads::parts::target::{ANY_VERSION, UploadTarget, check_version};
use crate::uploads::refusal::{self, Result, UploadRefusal};
use crate::uploads::state::disk_space;
use crate::uploads::state::part_versions::PartVersion;
use crate::uploads::state::random::random_bytes;
use underpass_protocol::request::Method;
use underpass_protocol::response::validator::parse_date;
use underpass_protocol::upload::{
    INTEROP_VERSION, PARTIAL_UPLOAD, PartId, Problem, UploadFields, UploadId, UploadLimits,
    version_hash,
};

/// Creates an upload (section 4.2).
pub(crate) fn create(upload: &mut ActiveUpload<'_>, is_complete: bool) -> Result<Response> {
    let target = upload.target()?;
    let fields = UploadFields::of(&upload.request);
    let length = length(upload, fields, is_complete, 0, None)?;
    upload.check_size(length.or(upload.expected()).unwrap_or(0))?;
    let keeps = upload.request.field("if-none-match") == Some(b"*");
    // One digest is enough.
    let digest = upload.digests()?.into_iter().next();
    let token = upload.params.owner.token(random_bytes()?);
    let id = UploadId { token, length, keeps, replaces: replaces(upload, &target), digest };
    let location = location(&id);
    // Not earlier: a refused request must leave what an earlier one has sent.
    drop(forget_part(upload, &target)?);
    let part = PartialUpload::acquire(upload, &target, part_id(upload, &target, &id))?;
    upload.superseded_by(part.receiver());
    upload.check_room(&target, length.unwrap_or(0))?;
    if !upload.has_body() {
        // The client requests the address before there is anything to send, or the file is empty.
        let new_file = part.open(&target, 0)?;
        upload.site.shared.uploads.versions.forget(new_file.file());
        return finish_step(
            upload,
            &target,
            &part,
            new_file,
            UploadStep { id: &id, offset: 0, is_complete, is_announced: false },
        );
    }
    // The file has no name until the first byte: without the address, no client could resume it.
    let folder = target.folder.as_fd().try_clone_to_owned()?;
    let new_file = AtomicFile::create_in(folder, &target.name, target.mode())?;
    upload.reserve(&target, &new_file, 0, upload.expected().or(length).unwrap_or(0))?;
    let version = upload.request.single("upload-draft-interop-version");
    let is_announced =
        upload.request.minor_version > 0 && version == Some(INTEROP_VERSION.as_bytes());
    if is_announced {
        let limits = limits(upload, Duration::ZERO);
        upload.send_interim(&interim::resumption_supported(&location, limits))?;
    }
    upload.send_continue()?;
    upload.first_byte()?;
    let new_file = part.name(&target, new_file)?;
    upload.site.shared.uploads.versions.forget(new_file.file());
    let step = UploadStep { id: &id, offset: 0, is_complete, is_announced };
    append(upload, &target, &part, new_file, step)
}

/// Queries, resumes or cancels an upload (sections 4.3 to 4.5).
pub(crate) fn resume(upload: &mut ActiveUpload<'_>, id: &[u8]) -> Result<Response> {
    let Some(id) = UploadId::parse(id) else { return Err(unknown()) };
    let target = upload.target()?;
    match upload.request.method {
        Method::Patch => patch(upload, &target, &id),
        Method::Head | Method::Get => {
            let id_of_part = part_id(upload, &target, &id);
            // Checked first: an upload that begins later does not count.
            let begun = is_begun(upload, &target, id_of_part).then_some(0);
            let offset = part_len(upload, &target, id_of_part)?.or(begun).ok_or_else(unknown)?;
            let mut response = Response::empty(204);
            let limits = limits(upload, part_age(&target, id_of_part));
            add_state(&mut response, limits, offset, false);
            let length = match id.length {
                Some(length) => Some(length),
                None => part_version(upload, &target, id_of_part)?.map(|version| version.total),
            };
            if let Some(length) = length {
                response.add_field("Upload-Length", &length.to_string());
            }
            response.add_field("Cache-Control", "no-store");
            Ok(response)
        }
        Method::Delete => {
            let part = PartialUpload::acquire(upload, &target, part_id(upload, &target, &id))?;
            if part.remove(&target)? { Ok(Response::empty(204)) } else { Err(unknown()) }
        }
        _ => {
            let detail = "use HEAD to query an upload, PATCH to resume it, DELETE to cancel it";
            Err(UploadRefusal::new(405, detail).with("Allow", "HEAD, PATCH, DELETE, OPTIONS"))
        }
    }
}

/// Resumes an upload (section 4.4).
fn patch(upload: &mut ActiveUpload<'_>, target: &UploadTarget, id: &UploadId) -> Result<Response> {
    let media_type = upload.request.field("content-type").unwrap_or_default();
    let media_type = media_type.split(|byte| *byte == b';').next().unwrap_or_default();
    if !media_type.trim_ascii().eq_ignore_ascii_case(PARTIAL_UPLOAD.as_bytes()) {
        let detail = "the part of an upload must have the type application/partial-upload";
        return Err(UploadRefusal::new(415, detail).with("Accept-Patch", PARTIAL_UPLOAD));
    }
    let fields = UploadFields::of(&upload.request);
    let (Some(is_complete), Some(provided)) = (fields.complete, fields.offset) else {
        let detail = "Upload-Complete and Upload-Offset say where the body belongs";
        return Err(UploadRefusal::new(400, detail));
    };
    let part = PartialUpload::acquire(upload, target, part_id(upload, target, id))?;
    if let Err(refusal) = check_version(id.replaces, target.present.as_ref()) {
        // The rest would be refused, too.
        part.remove(target)?;
        return Err(refusal);
    }
    let offset = part.len(target)?.ok_or_else(unknown)?;
    if provided != offset {
        let problem = Problem::Offset { expected: offset, provided };
        let refusal = UploadRefusal::problem(problem).with("Upload-Offset", offset);
        return Err(refusal.with("Upload-Complete", "?0"));
    }
    let known = match id.length {
        Some(length) => Some(length),
        None => part.version(target)?.map(|version| version.total),
    };
    let length = length(upload, fields, is_complete, offset, known)?;
    let end = upload.expected().map(|body| offset + body).or(length).unwrap_or(offset);
    upload.check_size(length.unwrap_or(end))?;
    upload.check_room(target, length.map_or(0, |length| length - offset))?;
    let new_file = part.open(target, offset)?;
    if let Err(refusal) = upload.reserve(target, &new_file, offset, end) {
        disk_space::release(new_file.file());
        return Err(refusal);
    }
    if let (None, Some(total)) = (known, length) {
        // Section 4.1.3: a length that is given later is binding from then on.
        let version = PartVersion { total, ..PartVersion::default() };
        upload.site.shared.uploads.versions.record(new_file.file(), version);
    }
    upload.superseded_by(part.receiver());
    upload.send_continue().inspect_err(|_| disk_space::release(new_file.file()))?;
    let id = &UploadId { length, ..id.clone() };
    let step = UploadStep { id, offset, is_complete, is_announced: true };
    append(upload, target, &part, new_file, step)
}

/// One request of an upload.
#[derive(Clone, Copy)]
struct UploadStep<'i> {
    id: &'i UploadId,
    /// The offset at which its body begins.
    offset: u64,
    /// Whether it completes the upload.
    is_complete: bool,
    /// Whether the client was sent the address of the upload before this response.
    is_announced: bool,
}

/// Receives as much of the body as arrives.
fn append(
    upload: &mut ActiveUpload<'_>,
    target: &UploadTarget,
    part: &PartialUpload<'_>,
    mut new_file: AtomicFile,
    step: UploadStep<'_>,
) -> Result<Response> {
    let limit = upload.site.settings.changes.limit;
    let max = step.id.length.or(limit).map(|max| max.saturating_sub(step.offset));
    let outcome = upload.body(new_file.file(), step.offset, max);
    disk_space::release(new_file.file());
    let offset = step.offset + upload.received();
    match outcome {
        Ok(_) => {
            // The bytes before the body are kept if its digest is wrong.
            if !step.is_complete || step.offset > 0 {
                new_file = check_content(upload, new_file, step.offset)?;
            }
            finish_step(upload, target, part, new_file, UploadStep { offset, ..step })
        }
        Err(refusal) => {
            // Section 4.4.2: an upload with more bytes than announced is invalid.
            let is_too_long = upload.is_too_long();
            // The client of a creation may not have received the address, even if it was sent.
            let is_creation = upload.request.method == Method::Put;
            let is_unknown = is_creation && (offset == 0 || !step.is_announced);
            if is_unknown || refusal.is_too_large() {
                new_file.discard();
            } else {
                // The reason why the body ended says more than that its part is lost.
                let _ = record_synced(upload, &mut new_file, offset);
            }
            Err(match step.id.length {
                Some(_) if is_too_long => UploadRefusal::problem(Problem::Length),
                _ => refusal,
            })
        }
    }
}

/// Reports the progress of the upload, or completes it.
fn finish_step(
    upload: &ActiveUpload<'_>,
    target: &UploadTarget,
    part: &PartialUpload<'_>,
    mut new_file: AtomicFile,
    step: UploadStep<'_>,
) -> Result<Response> {
    let UploadStep { id, offset, is_complete, .. } = step;
    if !is_complete {
        record_synced(upload, &mut new_file, offset)?;
        // Section 4.2.2: the creation is answered with 201 and the address; 4.4.2: later steps are
        // answered with 204.
        let is_new = upload.request.method == Method::Put;
        let mut response = Response::empty(if is_new { 201 } else { 204 });
        if is_new {
            response.add_field("Location", &location(id));
        }
        add_state(&mut response, limits(upload, Duration::ZERO), offset, false);
        return Ok(response);
    }
    if id.length.is_some_and(|length| length != offset) {
        return Err(UploadRefusal::problem(Problem::Length).with("Upload-Offset", offset));
    }
    let refused = |refusal: UploadRefusal| refusal.with("Upload-Complete", "?1");
    let options = FinishOptions {
        part: Some(part),
        keeps: id.keeps,
        replaces: id.replaces,
        digest: id.digest.clone(),
        base: None,
    };
    let mut response = finish(upload, target, new_file, options).map_err(refused)?;
    response.add_field("Upload-Complete", "?1");
    Ok(response)
}

/// Returns the total length of the upload, from all fields that give it (section 4.1.3).
fn length(
    upload: &ActiveUpload<'_>,
    fields: UploadFields,
    is_complete: bool,
    offset: u64,
    known: Option<u64>,
) -> Result<Option<u64>> {
    let inconsistent = || UploadRefusal::problem(Problem::Length);
    let body = upload.expected();
    let end = body.map(|body| offset.checked_add(body).ok_or_else(inconsistent)).transpose()?;
    let of_body = end.filter(|_| is_complete);
    let mut lengths = [known, fields.length, of_body].into_iter().flatten();
    let length = lengths.next();
    let differs = lengths.any(|other| Some(other) != length);
    if differs || length.is_some_and(|length| length < end.unwrap_or(offset)) {
        return Err(inconsistent());
    }
    Ok(length)
}

/// Returns the hash of the only version that may be replaced, if the request names one: its
/// conditions hold for the existing version now, and must hold on completion.
fn replaces(upload: &ActiveUpload<'_>, target: &UploadTarget) -> Option<u64> {
    let is_any = upload.request.field("if-match").is_some();
    let date = upload.request.single("if-unmodified-since").filter(|_| !is_any);
    let names = upload.names_version() || date.and_then(parse_date).is_some();
    let present = target.present.as_ref().filter(|_| names);
    let any = is_any.then_some(ANY_VERSION);
    present.map(|present| &*present.etag).or(any).map(version_hash)
}

/// Adds the fields about the state of an upload.
fn add_state(response: &mut Response, limits: UploadLimits, offset: u64, is_complete: bool) {
    response.add_field("Upload-Complete", if is_complete { "?1" } else { "?0" });
    response.add_field("Upload-Offset", &offset.to_string());
    response.add_field("Upload-Limit", &limits.to_string());
}

/// Returns the limits of an upload that has received nothing for this long.
fn limits(upload: &ActiveUpload<'_>, waited: Duration) -> UploadLimits {
    let changes = upload.site.settings.changes;
    refusal::limits(&Changes { expiry: changes.expiry.saturating_sub(waited), ..changes })
}

/// Returns the address of an upload, relative to that of its file: a proxy may have replaced the
/// path.
fn location(id: &UploadId) -> String {
    format!("?upload={id}")
}

/// Returns the id of an upload's part, which includes the client as its owner.
fn part_id(upload: &ActiveUpload<'_>, target: &UploadTarget, id: &UploadId) -> PartId {
    let owner = &upload.params.owner;
    id_at_site(upload.site, target, |name| owner.part_of_token(id.token, name))
}

/// Returns the refusal for an upload that does not exist, or no longer.
fn unknown() -> UploadRefusal {
    UploadRefusal::new(
        404,
        "there is no such upload: it was completed or cancelled, or never begun",
    )
}
