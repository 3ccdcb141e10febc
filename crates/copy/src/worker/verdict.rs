//! Decides what to do with an entry whose name exists in the target.

use std::ffi::CString;

use rustix::fs::{Access, AtFlags, FileType, Stat, accessat, statat};
use rustix::io::Errno;
use underpass_engine::hint::Action;

use crate::error::{At, CopyError, Refusal};
use crate::options::LinkKind;
use crate::options::backup::BackupControl;
use crate::tree::dir_pair::{DirOrigin, DirPair};
use crate::tree::entry::SourceEntry;
use crate::tree::same_file::is_same;
use crate::worker::Worker;

/// What to do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Make it: nothing has its name.
    New,
    /// Replace what has its name.
    Replace,
    /// Leave what has its name.
    Leave,
    /// Leave what has its name, for it is the copy that an earlier run has made.
    Resumed,
}

impl Worker<'_> {
    /// Decides what to do with an entry.
    pub(crate) fn verdict(
        &mut self,
        folder: &DirPair,
        entry: &SourceEntry,
        stat: &Stat,
    ) -> Result<Verdict, CopyError> {
        let Some(there) = self.target_stat(folder, entry)? else { return Ok(Verdict::New) };
        let path = || folder.target_path(entry.target());
        let settings = &self.context.settings;
        let kind = FileType::from_raw_mode(there.st_mode);
        if kind == FileType::Directory {
            return Err(Errno::ISDIR).at(Action::Replacing, path);
        }
        let is_one = (stat.st_dev, stat.st_ino) == (there.st_dev, there.st_ino);
        if is_one && settings.link == Some(LinkKind::Hard) {
            // It has that name already.
            return Ok(Verdict::Leave);
        }
        if is_same(settings, folder, entry, (stat, &there)) {
            let from = folder.source_path(&entry.name);
            return Err(CopyError::Refused(Refusal::SameFile { from, to: path() }));
        }
        if settings.resume && is_copy(stat, &there) {
            return Ok(Verdict::Resumed);
        }
        let time = |stat: &Stat| (stat.st_mtime, stat.st_mtime_nsec);
        // What an earlier run has left in its hidden folder may be a part, and belongs to no other copy.
        let is_kept = settings.no_clobber || (settings.update && time(stat) <= time(&there));
        if settings.refuse_existing && folder.origin != DirOrigin::Adopted {
            return Err(CopyError::Refused(Refusal::Exists { to: path() }));
        }
        if is_kept && folder.origin != DirOrigin::Adopted {
            self.totals.kept += 1;
            return Ok(Verdict::Leave);
        }
        let is_numbered =
            settings.backup.as_ref().is_some_and(|it| it.control == BackupControl::Numbered);
        if self.context.has_made(&there) && !is_numbered {
            let from = folder.source_path(&entry.name);
            return Err(CopyError::Refused(Refusal::JustMade { from, to: path() }));
        }
        let is_special = !has_bytes(kind) && kind != FileType::Symlink;
        if self.is_backup(folder, entry, stat) {
            let from = folder.source_path(&entry.name);
            return Err(CopyError::Refused(Refusal::IsBackup { from, to: path() }));
        }
        let removes = settings.removes_existing() || settings.link.is_some();
        let own_kind = FileType::from_raw_mode(stat.st_mode);
        if is_special && !settings.force && !removes && own_kind != kind {
            return Err(Errno::EXIST).at("replacing a device, FIFO or socket", path);
        }
        // --attributes-only replaces no bytes.
        if settings.attributes_only && !removes && has_bytes(kind) && !has_bytes(own_kind) {
            return Err(Errno::EXIST).at(Action::Replacing, path);
        }
        if kind == FileType::RegularFile && !settings.force && !removes {
            let flags = AtFlags::EACCESS;
            accessat(&folder.target, entry.target(), Access::WRITE_OK, flags)
                .at(Action::Replacing, path)?;
        }
        if folder.origin != DirOrigin::Adopted && !self.context.may_replace(path)? {
            self.totals.kept += 1;
            return Ok(Verdict::Leave);
        }
        Ok(Verdict::Replace)
    }
}

impl Worker<'_> {
    /// Whether the backup of what has the name of an entry would replace its original.
    fn is_backup(&self, folder: &DirPair, entry: &SourceEntry, stat: &Stat) -> bool {
        let backup = self.context.settings.backup.as_ref();
        let Some(backup) = backup.filter(|it| it.control != BackupControl::Numbered) else {
            return false;
        };
        let kept = CString::new(backup.simple(entry.target().to_bytes())).unwrap_or_default();
        statat(&folder.target, &kept, AtFlags::empty())
            .is_ok_and(|there| (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino))
    }
}

fn has_bytes(kind: FileType) -> bool {
    kind == FileType::RegularFile
}

/// Whether this is the copy that an earlier run has made: of the same type and size, and with the
/// time of the original, which a copy gets last.
fn is_copy(original: &Stat, copy: &Stat) -> bool {
    let kind = |stat: &Stat| FileType::from_raw_mode(stat.st_mode);
    // Some file systems know whole seconds only.
    let is_same_time = original.st_mtime == copy.st_mtime
        && (original.st_mtime_nsec == copy.st_mtime_nsec || copy.st_mtime_nsec == 0);
    kind(original) == kind(copy) && original.st_size == copy.st_size && is_same_time
}
