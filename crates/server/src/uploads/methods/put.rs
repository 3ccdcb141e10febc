//! PUT of a whole file (RFC 9110 9.3.4): into an unnamed file, which gets its name at the end.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::SystemTime;

use rustix::fs::{AtFlags, Timespec, fsync, futimens, statat};
use rustix::io::Errno;
use underpass_engine::atomic_file::{
    AtomicFile, Existing, KeptOwner, is_of_stranger, open_entry, set_mode, sync_folder, take_over,
};
use underpass_engine::{Version, times_of_new};

use crate::changes::dav::dead_properties;
use crate::files::open_files;
use crate::files::version::facts;
use crate::routing::response::Response;
use crate::uploads::active_upload::ActiveUpload;
use crate::uploads::parts::part::{self, PartialUpload};
use crate::uploads::parts::target::{UploadTarget, check, check_version};
use crate::uploads::refusal::{Result, UploadRefusal};
use underpass_protocol::digest::Digest;
use underpass_protocol::response::conditional::is_conditional;
use underpass_protocol::response::validator::{etag, last_modified, push_date};

/// Receives the file.
pub(crate) fn put(upload: &mut ActiveUpload<'_>) -> Result<Response> {
    let changes = upload.site.settings.changes;
    let target = upload.target()?;
    let expected = upload.expected();
    let newest = part::forget_part(upload, &target)?;
    let folder = target.folder.as_fd().try_clone_to_owned()?;
    let new_file = AtomicFile::create_in(folder, &target.name, target.mode())?;
    match expected {
        Some(len) => upload.reserve(&target, &new_file, 0, len)?,
        None => upload.check_room(&target, 0)?,
    }
    upload.send_continue()?;
    match upload.body(new_file.file(), 0, changes.limit) {
        Ok(_) => finish(upload, &target, new_file, FinishOptions::default()),
        Err(refusal) => {
            let received = upload.received();
            if let Some(total) = expected
                && received >= WORTH_KEEPING
                && upload.is_cut_off()
            {
                part::keep_part(upload, &target, &newest, new_file, received..total);
            }
            Err(refusal)
        }
    }
}

/// Options for giving a complete file its name.
#[derive(Debug, Default)]
pub(crate) struct FinishOptions<'f> {
    /// The part that becomes the file; `None` if it has no name yet.
    pub(crate) part: Option<&'f PartialUpload<'f>>,
    /// Whether an existing file must not be replaced, even if the request does not say so.
    pub(crate) keeps: bool,
    /// The hash of the entity tag of the only version that may be replaced, if an earlier request
    /// of the upload said so.
    pub(crate) replaces: Option<u64>,
    /// The entity tag of the existing file from which the new one was made, if any: no other
    /// version may be replaced.
    pub(crate) base: Option<&'f str>,
    /// The digest of the file, if an earlier request of the upload said so.
    pub(crate) digest: Option<Digest>,
}

/// Gives a complete file its name, and adds its version to the response.
pub(crate) fn finish(
    upload: &ActiveUpload<'_>,
    target: &UploadTarget,
    mut new_file: AtomicFile,
    mut options: FinishOptions<'_>,
) -> Result<Response> {
    let site = upload.site;
    // The body of a part after the first was verified when it arrived.
    let is_content_verified = options.part.is_some() && upload.content().start > 0;
    let digest = options.digest.take();
    let digests = match upload.verify(new_file.file(), digest, is_content_verified) {
        Ok(digests) => digests,
        Err(refusal) => {
            // Resuming it would only lead to the same refusal.
            new_file.discard();
            return Err(refusal);
        }
    };
    let is_timed = set_time(upload, new_file.file())?;
    if site.settings.changes.sync {
        // Slow work is done before the names are locked.
        new_file.sync()?;
    }
    new_file.end_writes()?;
    let file = new_file.file().try_clone()?;
    let is_conditional = options.keeps
        || options.base.is_some()
        || options.replaces.is_some()
        || is_conditional(&upload.request)
        || !upload.params.tags.is_empty();
    // The lease of another program is waited for, too. The file can have no new one while it is open.
    let unleased = site.root.open_unleased(&target.path);
    if let Err(errno @ Errno::AGAIN) = unleased {
        return Err(errno.into());
    }
    let replaced = {
        let _names = site.names.hold(is_conditional);
        name(upload, target, new_file, options)?
    };
    if site.settings.changes.sync {
        // This syncs the name and the changes since the bytes were synced: the mode and the
        // properties. This is done without the lock: waiting for the disk must not delay other
        // changes.
        fsync(&file).map_err(UploadRefusal::unsynced)?;
        sync_folder(&target.folder, fsync).map_err(UploadRefusal::unsynced)?;
    }
    let version = Version::of(&file).ok();
    let mut response = stored(replaced, version.as_ref());
    if is_timed {
        response.add_field("X-OC-MTime", "accepted");
    }
    if let Some(version) = version {
        upload.remember(file, version, &digests);
    }
    Ok(response)
}

/// Returns the response to an upload that has its name. A network file system may not report its
/// version, but an error would mean that nothing was stored.
fn stored(replaced: bool, version: Option<&Version>) -> Response {
    let mut response = Response::empty(if replaced { 204 } else { 201 });
    response.has_stored = true;
    if let Some(version) = version {
        add_version_fields(&mut response, version);
    }
    response
}

/// Sets the time that the request states for the file, in seconds since 1970, as ownCloud and
/// rclone send it; returns whether there is one.
fn set_time(upload: &ActiveUpload<'_>, file: &File) -> io::Result<bool> {
    let seconds = upload.request.field("x-oc-mtime").and_then(whole_seconds);
    let Some(seconds) = seconds else { return Ok(false) };
    futimens(file, &times_of_new(Timespec { tv_sec: seconds.into(), tv_nsec: 0 }))?;
    Ok(true)
}

/// Reads a number of seconds. As ownCloud does, a fraction is cut off.
fn whole_seconds(value: &[u8]) -> Option<u32> {
    let text = str::from_utf8(value).ok()?.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    whole.parse().ok().filter(|_| fraction.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Checks the existing file once more, and names the new one; returns whether a file was replaced.
fn name(
    upload: &ActiveUpload<'_>,
    target: &UploadTarget,
    mut new_file: AtomicFile,
    options: FinishOptions<'_>,
) -> Result<bool> {
    let FinishOptions { part, base, .. } = options;
    // RFC 9110 13.1.2: there must be none, not even one that was just made.
    let keeps = options.keeps || upload.request.field("if-none-match") == Some(b"*");
    let root = &upload.site.root;
    let is_there = root.check_parent(&target.path, &target.folder).map_err(UploadRefusal::from);
    let present = match is_there.and_then(|()| target.existing_file(root)) {
        Ok(present) if base.is_some() && present.as_ref().map(|it| &*it.etag) != base => {
            Err(UploadRefusal::changed())
        }
        Ok(Some(_)) if keeps => Err(Errno::EXIST.into()),
        Ok(_) if !upload.params.tags.hold(upload.site) => {
            Err(UploadRefusal::new(412, "the conditions of If no longer hold"))
        }
        Ok(present) => check_version(options.replaces, present.as_ref())
            .and_then(|()| check(&upload.request, present.as_ref()))
            .map(|()| present),
        Err(refusal) => Err(refusal),
    };
    let present = match present {
        Ok(present) => present,
        Err(refusal) => {
            // Sending it once more would not help.
            new_file.discard();
            return Err(refusal);
        }
    };
    let _lock = part.map(|part| part.complete(target, &mut new_file)).transpose()?;
    // A file that another user has put into a folder like /tmp must not decide who may write to
    // the new one.
    let is_trusted = |_: &&_| {
        statat(&target.folder, &target.name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| !is_of_stranger(&stat, &target.folder))
    };
    if let Some(present) = present.as_ref().filter(is_trusted) {
        // The new file gets the mode, the group and the ACL of the old one: it must not be open to
        // more users.
        match open_entry(&target.folder, &target.name) {
            Ok(old) => {
                take_over(new_file.file(), old.as_fd(), &target.folder, KeptOwner::Own)?;
                // RFC 4918 9.7.1: and its stored properties.
                dead_properties::carry_over(&old, new_file.file())?;
            }
            // It may have an ACL and properties, which would be lost.
            Err(
                errno @ (Errno::MFILE
                | Errno::NFILE
                | Errno::NOMEM
                | Errno::IO
                | Errno::STALE
                | Errno::AGAIN),
            ) => return Err(errno.into()),
            // A link, or a file that the server may not read.
            Err(_) => set_mode(new_file.file(), present.mode)?,
        }
    } else if part.is_some() {
        part::permit(target, new_file.file())?;
    }
    new_file.commit(if keeps { Existing::Keep } else { Existing::Replace })?;
    upload.site.shared.names_changed();
    Ok(present.is_some())
}

/// Adds the fields that identify the new version.
fn add_version_fields(response: &mut Response, version: &Version) {
    response.add_field("ETag", &etag(&facts(version)));
    if let Some(modified) = last_modified(open_files::modified(version), SystemTime::now()) {
        response.fields.extend_from_slice(b"Last-Modified: ");
        push_date(&mut response.fields, modified);
        response.fields.extend_from_slice(b"\r\n");
    }
}

/// The minimum size of a part that is kept for a client that may resume it.
const WORTH_KEEPING: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_file_whose_version_cannot_be_read_is_no_failure() {
        let file = tempfile::tempfile().unwrap();
        let version = Version::of(&file).unwrap();
        let has_tag = |response: &Response| response.fields.windows(5).any(|at| at == b"ETag:");
        for (replaced, status) in [(false, 201), (true, 204)] {
            let response = stored(replaced, None);
            assert!(response.status == status && response.has_stored);
            assert!(!has_tag(&response));
            assert!(has_tag(&stored(replaced, Some(&version))));
        }
    }
}
