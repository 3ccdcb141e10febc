//! The destination of a file: its folder, opened below the root, and the file that has the name
//! now.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::time::SystemTime;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use underpass_engine::Version;
use underpass_engine::atomic_file::{stat_entry, without_acl};

use crate::changes::refusal::NAME_HIDDEN;
use crate::digest::stored;
use crate::files::open_files;
use crate::files::root::{Root, join, split};
use crate::files::version::facts;
use crate::server::settings::Changes;
use crate::uploads::refusal::{Result, UploadRefusal};
use crate::uploads::request::UploadRequest;
use crate::uploads::state::part_versions::PartVersion;
use underpass_protocol::request::Request;
use underpass_protocol::response::conditional;
use underpass_protocol::response::conditional::{PreconditionResult, Validators};
use underpass_protocol::response::validator::etag;
use underpass_protocol::upload::version_hash;

/// The destination of a file.
#[derive(Debug)]
pub(crate) struct UploadTarget {
    pub(crate) folder: OwnedFd,
    pub(crate) name: OsString,
    /// The path from the root.
    pub(crate) path: Vec<u8>,
    /// The file that has the name now.
    pub(crate) present: Option<ExistingFile>,
}

/// The file at the destination.
#[derive(Debug)]
pub(crate) struct ExistingFile {
    pub(crate) etag: String,
    modified: SystemTime,
    /// The size in bytes.
    pub(crate) len: u64,
    /// The permission bits that a new file without its ACL may have.
    pub(crate) mode: u32,
}

impl UploadTarget {
    /// Opens the folder, and reads the attributes of the existing file.
    ///
    /// If the settings say so, missing folders are created, but only if the preconditions of the
    /// request hold without a file.
    pub(crate) fn find(
        root: &Root,
        upload: &UploadRequest,
        request: &Request,
        changes: &Changes,
    ) -> Result<Self> {
        let path = &upload.path;
        // RFC 4918 9.7.2.
        if (upload.is_folder || path.is_empty()) && !root.is_file() {
            let detail = if path.is_empty() || root.hides(path) || root.stat(path).is_ok() {
                "a file cannot replace a folder"
            } else {
                "a name that ends in a slash is a folder: create it with MKCOL"
            };
            return Err(UploadRefusal::new(405, detail));
        }
        if root.hides_entry(path, false) {
            return Err(UploadRefusal::new(403, NAME_HIDDEN));
        }
        let parent = match (root.parent_of(path), changes.create_parents) {
            (Err(Errno::NOENT), true) => {
                check(request, None)?;
                root.make_parents(path, changes.sync)?;
                root.parent_of(path)
            }
            (parent, _) => parent,
        };
        let Some((folder, name)) = parent? else {
            return Err(UploadRefusal::new(
                403,
                "only one file is served here, and it is read-only",
            ));
        };
        let mut target = Self { folder, name: name.to_owned(), path: path.clone(), present: None };
        target.present = target.existing_file(root)?;
        Ok(target)
    }

    /// Returns the permissions of a new file until it is complete, less the umask of the server.
    /// They are no wider than those of the file that it replaces.
    pub(crate) fn mode(&self) -> u32 {
        self.present.as_ref().map_or(NEW_FILE, |present| present.mode & NEW_FILE | 0o600)
    }

    /// Returns the version of an upload of `total` bytes that begins now.
    pub(crate) fn part_version(&self, total: u64) -> PartVersion {
        let present = self.present.as_ref();
        let replaces = present.map_or_else(String::new, |file| file.etag.clone());
        PartVersion { total, replaces, is_copied: false }
    }

    /// Returns the path of another name in the same folder, from the root.
    pub(crate) fn path_of(&self, name: &[u8]) -> Vec<u8> {
        join(split(&self.path).0, name)
    }

    /// Returns the file that has the name now. A link is not followed when it is replaced, but it
    /// is followed for its attributes, as for reading.
    pub(crate) fn existing_file(&self, root: &Root) -> Result<Option<ExistingFile>> {
        let Some(stat) = stat_entry(&self.folder, &self.name)? else { return Ok(None) };
        let stat = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => match root.find(&self.path) {
                Ok(Some(stat)) => stat,
                // The link leads nowhere, or out of the served files.
                Ok(None) | Err(Errno::ACCESS | Errno::PERM) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            },
            _ => stat,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some(self.existing(root, &stat)?)),
            FileType::Directory if root.hides_entry(&self.path, true) => {
                Err(UploadRefusal::new(403, NAME_HIDDEN))
            }
            FileType::Directory => Err(UploadRefusal::is_folder()),
            _ => Err(UploadRefusal::new(409, "the target is not a file")),
        }
    }

    /// Returns the file with these attributes, with the tag that readers see: storing a digest with
    /// the file does not change it.
    fn existing(&self, root: &Root, stat: &Stat) -> Result<ExistingFile> {
        let version = Version::from_stat(stat);
        let file = match root.open_unleased(&self.path) {
            // With a digest stored with the file, its tag would be another one.
            Err(errno @ Errno::AGAIN) => return Err(errno.into()),
            opened => opened.ok().map(|(file, _)| file),
        };
        let same = file.as_ref().filter(|file| Version::of(file).is_ok_and(|now| now == version));
        let etag = same.map_or_else(|| etag(&facts(&version)), |file| stored::etag(file, &version));
        // A file that the server may not read can have an ACL, too.
        let mode = match file.map_or_else(|| root.open_path(&self.path), Ok) {
            Ok(file) => without_acl(file.as_fd(), stat.st_mode),
            Err(_) => stat.st_mode & !0o070,
        };
        let modified = open_files::modified(&version);
        Ok(ExistingFile { etag, modified, len: version.size(), mode: mode & 0o777 })
    }
}

/// Checks the preconditions of the request for the present file (RFC 9110 13.2).
pub(crate) fn check(request: &Request, present: Option<&ExistingFile>) -> Result<()> {
    let current = present.map(|present| {
        let modified = Some(present.modified);
        Validators { etag: &present.etag, modified, changed: None }
    });
    match conditional::evaluate(request, current) {
        PreconditionResult::Holds => Ok(()),
        _ => Err(unexpected_version()),
    }
}

/// Checks that the present file is the only version that may be replaced, if there is one: that
/// whose entity tag has this hash, or any version for the hash of [`ANY_VERSION`].
pub(crate) fn check_version(replaces: Option<u64>, present: Option<&ExistingFile>) -> Result<()> {
    let hash = present.map(|present| version_hash(&present.etag));
    let is_any = present.is_some() && replaces == Some(version_hash(ANY_VERSION));
    if replaces.is_none() || is_any || replaces == hash {
        Ok(())
    } else {
        Err(unexpected_version())
    }
}

fn unexpected_version() -> UploadRefusal {
    UploadRefusal::new(412, "the file is not the expected version")
}

/// The condition that any version fulfils (RFC 9110 13.1.1).
pub(crate) const ANY_VERSION: &str = "*";

/// The permissions of a new file, less the umask of the server.
pub(super) const NEW_FILE: u32 = 0o666;
