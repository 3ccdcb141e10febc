//! PUT of a part of a file, with `Content-Range` (RFC 9110 14.5), as `curl -C N -T` sends it: it
//! appends to the existing part, and the file gets its name with its last byte.

use underpass_engine::atomic_file::AtomicFile;

use crate::routing::response::Response;
use crate::uploads::active_upload::ActiveUpload;
use crate::uploads::methods::put::{FinishOptions, finish};
use crate::uploads::parts::part::{
    PartialUpload, check_content, complete_len, copy_existing, id_at_site, part_len, part_version,
    record_synced,
};
use crate::uploads::parts::target::UploadTarget;
use crate::uploads::refusal::{Result, UploadRefusal};
use crate::uploads::state::disk_space;
use underpass_protocol::upload::{ContentRange, PartId};

/// Receives a part, and completes the file if it was the last one.
pub(crate) fn put(upload: &mut ActiveUpload<'_>, range: ContentRange) -> Result<Response> {
    let target = upload.target()?;
    if upload.expected().is_some_and(|len| len != range.len) {
        return Err(UploadRefusal::new(400, NO_FIT));
    }
    upload.check_size(range.total)?;
    let (part, mut new_file, base) = begin(upload, &target, range)?;
    upload.superseded_by(part.receiver());
    // A client that has left by now is treated like one that leaves in the middle.
    let outcome = upload
        .send_continue()
        .and_then(|()| upload.body(new_file.file(), range.first, Some(range.len)))
        .map_err(
            |refusal| {
                if upload.is_too_long() { UploadRefusal::new(413, NO_FIT) } else { refusal }
            },
        );
    disk_space::release(new_file.file());
    let written = range.first + upload.received();
    let is_too_large =
        !upload.is_too_long() && outcome.as_ref().is_err_and(UploadRefusal::is_too_large);
    if written == 0 || is_too_large {
        new_file.discard();
        return outcome.and_then(|_| Err(UploadRefusal::new(400, MISSING)));
    }
    let is_whole = matches!(outcome, Ok(len) if len == range.len) && range.is_last();
    // The bytes before the body are kept if its digest is wrong.
    if outcome.is_ok() && (!is_whole || range.first > 0) {
        new_file = check_content(upload, new_file, range.first)?;
    }
    let synced = if is_whole { Ok(()) } else { record_synced(upload, &mut new_file, written) };
    let received = outcome?;
    synced?;
    if received != range.len {
        return Err(UploadRefusal::new(400, MISSING).with("Upload-Offset", written));
    }
    if range.is_last() {
        let options = FinishOptions { part: Some(&part), base, ..FinishOptions::default() };
        return finish(upload, &target, new_file, options);
    }
    // RFC 9110 15.3.3: accepted, and not complete yet.
    let mut response = Response::empty(202);
    response.add_field("Upload-Offset", &written.to_string());
    Ok(response)
}

/// Returns the number of bytes of a file that have arrived and can be resumed.
pub(crate) fn respond(upload: &mut ActiveUpload<'_>) -> Result<Response> {
    let target = upload.target()?;
    let id = part_id(upload, &target);
    let len = match part_version(upload, &target, id)? {
        Some(of) if of.is_same(&target.part_version(of.total)) => part_len(upload, &target, id)?,
        Some(_) => None,
        // The last byte of a complete part is wanted once more: with it the file gets its name.
        None => complete_len(upload, &target, id)?.map(|len| len.saturating_sub(1)),
    };
    let Some(len) = len else {
        return Err(UploadRefusal::new(404, "there is no unfinished upload of this file"));
    };
    let mut response = Response::empty(204);
    response.add_field("Upload-Offset", &len.to_string());
    response.add_field("Cache-Control", "no-store");
    Ok(response)
}

/// Opens the existing part of the file, truncated to where the body begins. If it begins with a
/// copy of the existing file, the entity tag of that is returned, too.
fn begin<'a, 't>(
    upload: &ActiveUpload<'a>,
    target: &'t UploadTarget,
    range: ContentRange,
) -> Result<(PartialUpload<'a>, AtomicFile, Option<&'t str>)> {
    let part = PartialUpload::acquire(upload, target, part_id(upload, target))?;
    let mut version = target.part_version(range.total);
    if range.first == 0 {
        // The upload starts over, and gets the space of the old part.
        part.remove(target)?;
    }
    let have = part.len(target)?;
    let known = part.version(target)?;
    let have = match &known {
        _ if have.is_none() => have,
        Some(known) if known.is_same(&version) => have,
        // Another version has been stored since, and this request continues that one.
        Some(known) if known.total != version.total && known.replaces != version.replaces => None,
        _ => {
            let detail = "the unfinished upload is of another version: send the whole file";
            return Err(UploadRefusal::new(409, detail));
        }
    };
    let present = target.present.as_ref().map_or(0, |present| present.len);
    let is_copied = have.is_none() && range.first > 0;
    version.is_copied = is_copied || have.is_some() && known.is_some_and(|known| known.is_copied);
    // The file of this name may be an older version of the one whose beginning was sent.
    let is_continued = range.first == present || upload.names_version();
    let there = have.unwrap_or(if is_continued { present } else { 0 });
    if range.first > there {
        let detail = "the bytes before this part are missing";
        return Err(UploadRefusal::new(416, detail).with("Upload-Offset", there));
    }
    upload.check_room(target, if is_copied { range.total } else { range.total - range.first })?;
    let kept = if is_copied { 0 } else { range.first };
    let new_file = part.open(target, kept)?;
    let base = target.present.as_ref().filter(|_| version.is_copied).map(|present| &*present.etag);
    upload.site.shared.uploads.versions.record(new_file.file(), version);
    let prepared =
        if is_copied { copy_existing(upload, new_file.file(), range.first) } else { Ok(()) };
    let end = range.first + range.len;
    let prepared = prepared.and_then(|()| upload.reserve(target, &new_file, range.first, end));
    match prepared {
        Ok(()) => Ok((part, new_file, base)),
        Err(refusal) => {
            if have.is_none() {
                new_file.discard();
            } else {
                disk_space::release(new_file.file());
            }
            Err(refusal)
        }
    }
}

/// Returns the id of a part that has no address.
fn part_id(upload: &ActiveUpload<'_>, target: &UploadTarget) -> PartId {
    id_at_site(upload.site, target, |name| upload.params.owner.part_of_name(name))
}

const MISSING: &str = "the body is shorter than its Content-Range says";

const NO_FIT: &str = "the body is not as long as its Content-Range says";
