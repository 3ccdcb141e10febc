//! Copies entries without bytes: symbolic links, devices, FIFOs and sockets.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, Stat, mknodat, readlinkat, symlinkat};
use rustix::io::Errno;
use underpass_engine::hint::Action;
use underpass_engine::is_file;

use crate::attributes::named::NamedAt;
use crate::attributes::resumed::{has_attributes_by_name, has_owner_and_mode};
use crate::attributes::{self, permissions};
use crate::error::{At, Result};
use crate::files::replace::place;
use crate::options::preserve::PreserveMode;
use crate::outcome::CopyTotals;
use crate::tree::dir_pair::DirPair;
use crate::tree::entry::SourceEntry;
use crate::worker::CopyWorker;
use crate::worker::verdict::EntryVerdict;

impl CopyWorker<'_> {
    /// Makes a link, device, FIFO or socket like another one.
    pub(crate) fn special(&mut self, folder: &Arc<DirPair>, entry: &SourceEntry) -> Result<()> {
        let stat = self.stat(folder, entry)?;
        if is_file(&stat) {
            // A file has replaced the listed entry.
            return self.file(folder, entry);
        }
        self.copy_special(folder, entry, &stat, true)
    }

    /// Copies an entry without bytes. With `may_link` one of several names may be linked instead.
    pub(super) fn copy_special(
        &mut self,
        folder: &Arc<DirPair>,
        entry: &SourceEntry,
        stat: &Stat,
        may_link: bool,
    ) -> Result<()> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Symlink {
            let from = || folder.source_path(&entry.name);
            let leads =
                readlinkat(&folder.source, &entry.name, Vec::new()).at(Action::Reading, from)?;
            let made = self.make_special(folder, entry, stat, may_link, |folder, name| {
                symlinkat(&leads, &folder.target, name)
            })?;
            self.totals.links += u64::from(made);
            return Ok(());
        }
        let settings = &self.context.settings;
        let umask = settings.process_umask;
        // The copy gets its ACL later.
        let original = named(folder, entry, entry.target()).0;
        let mode = match permissions::without_acl_by_name(original, stat.st_mode) {
            // If the copy gets the ACL, that sets its group permissions.
            Err(_) if settings.preserve.mode != PreserveMode::Permissions => stat.st_mode & !0o070,
            found => found.at("looking at", || folder.source_path(&entry.name))?,
        };
        let mode = settings.mode(mode) & 0o7777;
        let made = self.make_special(folder, entry, stat, may_link, |folder, name| {
            mknodat(&folder.target, name, kind, Mode::from_raw_mode(mode), stat.st_rdev)?;
            match mode & umask {
                0 => Ok(()),
                // Another user may have put a link in its place. Without /proc the mode is reported
                // with the other attributes.
                _ => match attributes::set_mode_of(named(folder, entry, name).1, mode) {
                    Err(Errno::NOENT) if settings.preserve.keeps_mode() => Ok(()),
                    set => set,
                },
            }
        })?;
        self.totals.specials += u64::from(made);
        Ok(())
    }

    /// Makes an entry by one call of `make`, and returns whether it did.
    fn make_special(
        &mut self,
        folder: &Arc<DirPair>,
        entry: &SourceEntry,
        stat: &Stat,
        may_link: bool,
        make: impl Fn(&DirPair, &std::ffi::CStr) -> Result<(), Errno>,
    ) -> Result<bool> {
        let verdict = self.verdict(folder, entry, stat)?;
        if verdict == EntryVerdict::Leave || self.is_up_to_date(folder, entry, stat, verdict)? {
            return Ok(false);
        }
        if self.is_dry(folder, entry, verdict) {
            let is_resumed = verdict == EntryVerdict::Resumed;
            if is_resumed {
                self.totals.count_resumed(stat);
            }
            return Ok(!is_resumed);
        }
        if may_link && self.is_linked(folder, entry, stat, verdict)? {
            return Ok(false);
        }
        if verdict == EntryVerdict::Resumed {
            self.totals.count_resumed(stat);
            let repaired = self.repair_special(folder, entry, stat);
            self.release_links(folder, entry, stat, repaired.is_ok());
            return repaired.map(|()| false);
        }
        let made = self.make_as(folder, entry, stat, verdict, make);
        if may_link {
            self.release_links(folder, entry, stat, made.is_ok());
        }
        made.map(|()| true)
    }

    /// Gives an entry of an earlier run the attributes that that run did not keep.
    fn repair_special(&mut self, folder: &DirPair, entry: &SourceEntry, stat: &Stat) -> Result<()> {
        if self.leaves_existing(folder) {
            return Ok(());
        }
        let settings = &self.context.settings;
        let Some(there) = self.target_stat(folder, entry)? else { return Ok(()) };
        let (original, copy) = named(folder, entry, entry.target());
        if has_owner_and_mode(settings, stat, &there)
            && has_attributes_by_name(settings.preserve, original, copy)
        {
            return Ok(());
        }
        let totals = &mut self.totals;
        let missing = attributes::keep_by_name(settings, original, copy, stat, totals);
        if let Some(failure) = missing.failure(|| folder.target_path(entry.target())) {
            self.context.record_problem(failure);
        }
        Ok(())
    }

    fn make_as(
        &mut self,
        folder: &DirPair,
        entry: &SourceEntry,
        stat: &Stat,
        verdict: EntryVerdict,
        make: impl Fn(&DirPair, &std::ffi::CStr) -> Result<(), Errno>,
    ) -> Result<()> {
        let target = entry.target();
        let path = || folder.target_path(target);
        let to = folder.target.as_fd();
        let context = self.context;
        let mut totals = CopyTotals::default();
        let make = |name: &std::ffi::CStr| {
            make(folder, name)?;
            let settings = &context.settings;
            let (original, copy) = named(folder, entry, name);
            Ok(attributes::keep_by_name(settings, original, copy, stat, &mut totals))
        };
        let made = self.name_once(folder, entry, verdict, || {
            let is_new = verdict != EntryVerdict::Replace;
            place(to, target, is_new, context.backups_in(folder), make)
                .at(Action::CreatingSpecial, path)
        });
        self.totals.add(&totals);
        let (missing, backup) = made?;
        if verdict == EntryVerdict::Replace {
            self.name_removed(folder, entry);
        }
        if let Some(failure) = missing.failure(path) {
            context.record_problem(failure);
        }
        self.name_made(folder, entry, backup.as_deref());
        Ok(())
    }
}

/// Returns an entry of a source, and its copy that has this name.
fn named<'a>(
    folder: &'a DirPair,
    entry: &'a SourceEntry,
    copy: &'a std::ffi::CStr,
) -> (NamedAt<'a>, NamedAt<'a>) {
    let original = NamedAt { folder: folder.source.as_fd(), name: &entry.name };
    (original, NamedAt { folder: folder.target.as_fd(), name: copy })
}
