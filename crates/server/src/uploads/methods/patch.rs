//! PATCH with `X-Update-Range`: writes into the middle of a file, or after its end. Once the body is
//! complete, the new version is made in a separate file, from the version that exists then, which
//! remains whole until it is replaced.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::fstat;
use underpass_engine::atomic_file::AtomicFile;
use underpass_engine::wait::lock;
use underpass_engine::{Error, FileId, Sink, Source, Transfer};

use crate::routing::response::Response;
use crate::uploads::active_upload::ActiveUpload;
use crate::uploads::methods::put::{FinishOptions, finish};
use crate::uploads::parts::part::copy_existing;
use crate::uploads::parts::target::{ExistingFile, UploadTarget};
use crate::uploads::refusal::{Result, UploadRefusal};
use underpass_protocol::upload::{PARTIAL_UPLOAD, UpdateRange};

/// Receives the change.
pub(crate) fn patch(upload: &mut ActiveUpload<'_>) -> Result<Response> {
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
    let place = PatchPlace::find(upload, &target, &range)?;
    upload.check_room(&target, place.end)?;
    // The file is only copied once the body is complete, so that a body that never arrives takes
    // little space.
    let folder = target.folder.as_fd().try_clone_to_owned()?;
    let body = AtomicFile::create_in(folder, &target.name, target.mode())?;
    upload.reserve(&target, &body, 0, upload.expected().unwrap_or(0))?;
    upload.send_continue()?;
    let max = upload.site.settings.changes.limit.map(|limit| limit.saturating_sub(place.start));
    let received = upload.body(body.file(), 0, max)?;
    if !range.fits(received) {
        return Err(UploadRefusal::new(400, NO_FIT));
    }
    // Of several concurrent changes, each is applied to the result of the one before it.
    let file = (FileId::of(&fstat(&target.folder)?), target.name.clone());
    let turns = upload.site.shared.uploads.turns.of(file);
    let _turn = lock(&turns);
    for _ in 0..MAX_ATTEMPTS {
        let made = PatchedFile::copy(upload, &target, &range)?;
        made.take_body(body.file(), received)?;
        let present = target.existing_file(&upload.site.root)?;
        if present.is_some_and(|present| present.etag == made.base) {
            upload.content_moved(made.start);
            let options = FinishOptions { base: Some(&made.base), ..FinishOptions::default() };
            return finish(upload, &target, made.file, options);
        }
    }
    Err(UploadRefusal::changed())
}

/// The place of the body in the existing version.
struct PatchPlace {
    present: ExistingFile,
    start: u64,
    /// The length of the new version.
    end: u64,
}

impl PatchPlace {
    fn find(upload: &ActiveUpload<'_>, target: &UploadTarget, range: &UpdateRange) -> Result<Self> {
        let Some(present) = target.existing_file(&upload.site.root)? else {
            return Err(UploadRefusal::new(404, "there is no file to change"));
        };
        let len = present.len;
        let Some(start) = range.start(len) else {
            let detail = "that is beyond the end of the file";
            let refusal = UploadRefusal::new(416, detail);
            return Err(refusal.with("Content-Range", format!("bytes */{len}")));
        };
        if upload.expected().is_some_and(|body| !range.fits(body)) {
            return Err(UploadRefusal::new(400, NO_FIT));
        }
        let body = upload.expected().unwrap_or(upload.received());
        let end = len.max(start.saturating_add(body));
        upload.check_size(end)?;
        Ok(Self { present, start, end })
    }
}

/// The new version of a file while it is made.
struct PatchedFile {
    file: AtomicFile,
    /// The entity tag of the version that it is made of.
    base: String,
    /// Where the body belongs.
    start: u64,
}

impl PatchedFile {
    /// Copies the existing version, if the body fits into it.
    fn copy(upload: &ActiveUpload<'_>, target: &UploadTarget, range: &UpdateRange) -> Result<Self> {
        let PatchPlace { present, start, end } = PatchPlace::find(upload, target, range)?;
        let folder = target.folder.as_fd().try_clone_to_owned()?;
        let file = AtomicFile::create_in(folder, &target.name, target.mode())?;
        {
            // The copy takes space, too. The lock delays other uploads until that is reserved.
            let reserving = upload.site.shared.uploads.reserving.of(fstat(&target.folder)?.st_dev);
            let _alone = lock(&reserving);
            upload.check_room(target, end)?;
            file.reserve(end)?;
        }
        copy_existing(upload, file.file(), present.len)?;
        Ok(Self { file, base: present.etag, start })
    }

    /// Copies the body to its place.
    fn take_body(&self, body: &File, len: u64) -> Result<()> {
        let body = Source::range(body, 0, len);
        let sink = Sink::of(self.file.file())?.at(self.start);
        match Transfer::new(body, sink).run() {
            Ok(_) => Ok(()),
            Err(Error::Io { source, .. }) => Err(source.into()),
            Err(_) => Err(UploadRefusal::changed()),
        }
    }
}

const NO_FIT: &str = "the body is not as long as its X-Update-Range says";

/// The number of attempts to change a file that other programs change at the same time.
const MAX_ATTEMPTS: u32 = 8;
