//! PATCH with `X-Update-Range`: writes into the middle of a file, or after its end. The new version
//! is made in a separate file, and the old one stays whole until then.

use std::os::fd::AsFd;

use underpass_engine::atomic_file::AtomicFile;

use crate::routing::response::Response;
use crate::uploads::active_upload::ActiveUpload;
use crate::uploads::methods::put::finish;
use crate::uploads::parts::part::copy_existing;
use crate::uploads::parts::target::NEW_FILE;
use crate::uploads::refusal::UploadRefusal;
use underpass_protocol::upload::{PARTIAL_UPLOAD, UpdateRange};

/// Receives the change.
pub(crate) fn patch(upload: &mut ActiveUpload<'_>) -> Result<Response, UploadRefusal> {
    let Some(value) = upload.request.single("x-update-range") else {
        // RFC 5789 2.2.
        let detail = "a PATCH needs X-Update-Range, or has to resume an upload";
        return Err(UploadRefusal::new(415, detail).with("Accept-Patch", PARTIAL_UPLOAD));
    };
    let Some(range) = UpdateRange::parse(value) else {
        let detail =
            "X-Update-Range must be append, bytes=FIRST-LAST, bytes=FIRST- or bytes=-COUNT";
        return Err(UploadRefusal::new(400, detail));
    };
    let target = upload.target()?;
    let Some(present) = &target.present else {
        return Err(UploadRefusal::new(404, "there is no file to change"));
    };
    let len = present.len;
    let Some(start) = range.start(len) else {
        let detail = "that is beyond the end of the file";
        return Err(UploadRefusal::new(416, detail).with("Content-Range", format!("bytes */{len}")));
    };
    let expected = upload.expected();
    if expected.is_some_and(|body| !range.fits(body)) {
        return Err(UploadRefusal::new(400, NO_FIT));
    }
    let total = len.max(start.saturating_add(expected.unwrap_or(0)));
    upload.check_size(total)?;
    upload.check_room(&target, expected.unwrap_or(0))?;
    let folder = target.folder.as_fd().try_clone_to_owned()?;
    let new_file = AtomicFile::create_in(folder, &target.name, NEW_FILE)?;
    copy_existing(upload, new_file.file(), len)?;
    upload.send_continue()?;
    let max = upload.site.settings.changes.limit.map(|limit| limit.saturating_sub(start));
    let received = upload.body(new_file.file(), start, max)?;
    if !range.fits(received) {
        return Err(UploadRefusal::new(400, NO_FIT));
    }
    finish(upload, &target, None, new_file, false)
}

const NO_FIT: &str = "the body is not as long as its X-Update-Range says";
