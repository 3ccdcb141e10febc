//! The files of one object: their names, the journal, and their removal.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Dir, statat, unlinkat};
use rustix::io::Errno;
use underpass_client::journal::{self, JournalContents};
use underpass_protocol::digest::hex;

use super::super::head::StoredHead;
use crate::key::KeyDigest;

/// Reads the journal of an object; `None` if there is no usable one.
pub(super) fn try_read(
    shard: &OwnedFd,
    digest: &KeyDigest,
) -> io::Result<Option<JournalContents<StoredHead>>> {
    journal::try_read(shard, name(digest).as_ref())
}

/// Reads the journal of an object that is about to be removed or replaced. A damaged journal is
/// also an error, because nothing else tells the names of the object's files.
pub(super) fn read_former(
    shard: &OwnedFd,
    digest: &KeyDigest,
) -> io::Result<Option<JournalContents<StoredHead>>> {
    let found = try_read(shard, digest)?;
    let is_damaged = || statat(shard, name(digest), AtFlags::SYMLINK_NOFOLLOW).is_ok();
    if found.is_none() && is_damaged() { Err(Errno::BADMSG.into()) } else { Ok(found) }
}

/// Removes the file of an object's former version, which readers may have open. If its journal
/// could not be read, removes all files of the object but `keep`.
pub(super) fn remove_bodies(
    shard: &OwnedFd,
    digest: &KeyDigest,
    before: io::Result<Option<JournalContents<StoredHead>>>,
    keep: Option<&str>,
) {
    // A file that cannot be removed now is removed at the next start.
    let remove = |body: &OsStr| {
        let _ = unlinkat(shard, body, AtFlags::empty());
    };
    match before {
        Ok(before) => before.iter().for_each(|it| remove(it.subject.body.as_ref())),
        Err(_) => {
            for entry in Dir::read_from(shard).into_iter().flatten().flatten() {
                let body = OsStr::from_bytes(entry.file_name().to_bytes());
                let is_own = parse(body).is_some_and(|(found, _)| found == *digest);
                if is_own && keep.is_none_or(|keep| body != keep) {
                    remove(body);
                }
            }
        }
    }
}

/// Returns the name of an object's journal.
pub(super) fn name(digest: &KeyDigest) -> String {
    hex(digest) + ".json"
}

/// Parses the name of a file with the bytes of an object.
pub(super) fn parse(name: &OsStr) -> Option<(KeyDigest, u64)> {
    let (digest, number) = name.to_str()?.split_once('.')?;
    let number = u64::from_str_radix(number, 16).ok().filter(|_| number.len() == 16)?;
    let mut bytes = [0; 32];
    if digest.len() != 64 || !digest.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digest[2 * index..2 * index + 2], 16).ok()?;
    }
    Some((bytes, number))
}
