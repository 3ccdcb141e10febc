//! Options of a copy.

pub(crate) mod backup;
pub(crate) mod exclude;
pub(crate) mod preserve;

use std::ops::Deref;

use rustix::fs::FileType;
use rustix::process::{getegid, geteuid};
use underpass_engine::{Integrity, Mechanism, Options, Policy, atomic_file};

use crate::files::replace::Backups;
use crate::options::backup::{Backup, BackupControl};
use crate::options::exclude::ExcludePattern;
use crate::options::preserve::{Preserve, PreserveMode};

/// Which symbolic links are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// No link: links are copied as links.
    #[default]
    Never,
    /// Links that are sources themselves.
    Named,
    /// All links.
    Always,
}

impl Follow {
    /// Returns whether a link that is a source itself is followed.
    pub(crate) fn follows_named(self) -> bool {
        self != Self::Never
    }
}

/// Links that are made instead of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// Further names of the originals.
    Hard,
    /// Symbolic links to the paths of the originals.
    Symbolic,
}

/// The condition for an optional step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Where the file system supports it.
    #[default]
    Auto,
    /// Always; it fails where it is not supported.
    Always,
    /// Never.
    Never,
}

/// The files in the target that are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExistingFiles {
    /// All of them.
    #[default]
    Replace,
    /// Those that are older than their originals.
    ReplaceOlder,
    /// None of them.
    Keep,
    /// None of them, and each is reported as a problem.
    Refuse,
}

/// The place from which a copy is read to compare it with its original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// The page cache.
    Cache,
    /// The disk.
    Direct,
}

/// Options of a copy. The default copies files, and neither folders nor owners.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Copies folders with everything in them, and devices, FIFOs and sockets as such.
    pub recursive: bool,
    /// Which symbolic links are followed.
    pub follow: Follow,
    /// The attributes of originals that copies get.
    pub preserve: Preserve,
    /// Keeps hard links: several names of one file become names of one copy.
    pub hard_links: bool,
    /// Which files in the target are replaced.
    pub existing: ExistingFiles,
    /// Asks [`CopyObserver::may_replace`](crate::CopyObserver::may_replace) before a file is
    /// replaced.
    pub interactive: bool,
    /// Replaces files that are not writable, and devices, FIFOs and sockets.
    pub force: bool,
    /// Stays on the file system of each source; folders of other ones become empty folders.
    pub one_file_system: bool,
    /// Patterns of entries that are left out.
    pub exclude: Vec<ExcludePattern>,
    /// Whether copies share the blocks of their originals. With [`Always`](When::Always) a copy
    /// that cannot share them fails.
    pub reflink: When,
    /// Whether holes are made: where the original has them, also where it has zeros, or nowhere.
    pub sparse: When,
    /// Reads every copy again and compares it with its original.
    pub verify: Option<Verify>,
    /// Returns only when everything is on the disk.
    pub sync: bool,
    /// Writes into files that exist, instead of replacing them when the copy is complete.
    pub in_place: bool,
    /// Resumes an interrupted copy.
    pub resume: bool,
    /// The number of threads that copy; at least 1.
    pub jobs: usize,
    /// Begins nothing more after the first problem. Unlike in other copies that are cut short, new
    /// folders still get their names, by which the caller removes them.
    pub stop_early: bool,
    /// Makes links to the originals instead of copies.
    pub link: Option<LinkKind>,
    /// Keeps replaced entries under other names.
    pub backup: Option<Backup>,
    /// Replaces any entry with the name of a copy: links themselves, files that are not writable,
    /// devices, FIFOs and sockets; but no folders.
    pub remove_destination: bool,
    /// Removes from targets that are folders what their sources do not have, once everything is
    /// copied; nothing if anything failed.
    pub delete: bool,
    /// Puts sources in the target folder under their whole paths, with the folders above them.
    pub parents: bool,
    /// Copies attributes and no bytes: existing files keep their bytes, and new ones are empty.
    pub attributes_only: bool,
    /// Copies nothing, and calls [`CopyObserver::would_copy`](crate::CopyObserver::would_copy)
    /// for each file instead.
    pub dry_run: bool,
    /// The policy by which mechanisms are chosen.
    pub policy: Policy,
    /// The level of protection against mixing two versions of a file.
    pub integrity: Integrity,
    /// Bytes requested in one system call; `None` leaves that to the mechanism.
    pub step: Option<usize>,
    /// The umask for copies of devices and FIFOs. Copies of files have the permissions of
    /// their originals, whatever the umask of the process is; with a umask of 0 that costs a call
    /// less for each file.
    pub umask: u32,
    /// The approximate number of descriptors the copy may have open. A tree with more levels is
    /// copied all the same.
    pub max_open_files: u64,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            recursive: false,
            follow: Follow::default(),
            preserve: Preserve::default(),
            hard_links: false,
            existing: ExistingFiles::default(),
            interactive: false,
            force: false,
            one_file_system: false,
            exclude: Vec::new(),
            reflink: When::Auto,
            sparse: When::Auto,
            verify: None,
            sync: false,
            in_place: false,
            resume: false,
            jobs: default_jobs(),
            stop_early: false,
            link: None,
            backup: None,
            remove_destination: false,
            delete: false,
            parents: false,
            attributes_only: false,
            dry_run: false,
            policy: Policy::Auto,
            integrity: Integrity::Detect,
            step: None,
            umask: 0,
            max_open_files: 1024,
        }
    }
}

impl CopyOptions {
    /// Returns the engine's options for one file, without what reflinks and holes make of them.
    pub(crate) fn plain_engine_options<'o>(&self) -> Options<'o> {
        let options = Options::default().policy(self.policy).integrity(self.integrity);
        match self.step {
            Some(bytes) => options.step(bytes),
            None => options,
        }
    }

    /// Returns the engine's options for one file.
    #[must_use]
    pub fn engine_options<'o>(&self) -> Options<'o> {
        let options = self.plain_engine_options();
        match (self.reflink, self.sparse) {
            (When::Always, _) => options.policy(Policy::Require(Mechanism::Reflink)),
            // A clone would keep unwanted holes.
            (When::Never, _) | (_, When::Never) => options.unshared(),
            _ => options,
        }
    }

    /// Returns whether any entry with the name of a copy is backed up or removed.
    pub(crate) fn removes_existing(&self) -> bool {
        self.remove_destination || self.backup.is_some()
    }

    /// Returns whether each file that is replaced gets a backup of its own.
    pub(crate) fn keeps_all(&self) -> bool {
        self.backup.as_ref().is_some_and(|backup| backup.control == BackupControl::Numbered)
    }

    /// Returns whether files may be copied through a buffer if that costs least.
    pub(crate) fn allows_buffer(&self) -> bool {
        self.reflink != When::Always
            && self.integrity <= Integrity::Detect
            && matches!(self.policy, Policy::Auto | Policy::Require(Mechanism::ReadWrite))
    }

    /// Returns the mode of a copy of something that has this mode.
    pub(crate) fn mode(&self, mode: u32) -> u32 {
        match self.preserve.mode {
            PreserveMode::Nothing if FileType::from_raw_mode(mode) == FileType::Directory => {
                0o777 & !self.umask
            }
            PreserveMode::Nothing => 0o666 & !self.umask,
            // The copy belongs to the user who copies: set-user-ID would lend that user's rights.
            PreserveMode::Permissions => mode & 0o1777,
            PreserveMode::All => mode & 0o7777,
        }
    }
}

/// The options, and the identity of this process.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    options: &'a CopyOptions,
    /// User and group of new files.
    pub(crate) owner: (u32, u32),
    /// The permissions that the kernel takes from new files.
    pub(crate) process_umask: u32,
    /// The backups that the options request.
    pub(crate) backups: Option<Backups<'a>>,
}

impl<'a> Settings<'a> {
    /// Adds the identity of this process to the options.
    pub(crate) fn new(options: &'a CopyOptions) -> Self {
        let owner = (geteuid().as_raw(), getegid().as_raw());
        // If it is unknown, all permissions are set explicitly.
        let process_umask = atomic_file::umask().unwrap_or(0o777);
        let backups = options.backup.as_ref().map(Backups::new);
        Self { options, owner, process_umask, backups }
    }

    /// Returns whether owners can be kept: only root gets an error where they cannot.
    pub(crate) fn may_give_files_away(&self) -> bool {
        self.owner.0 == 0
    }
}

impl Deref for Settings<'_> {
    type Target = CopyOptions;

    fn deref(&self) -> &CopyOptions {
        self.options
    }
}

/// Returns the default number of threads: twice as many as processors, and at
/// most 8.
///
/// Measured with small files in the page cache, on 2 processors: 4 threads copy as fast as 2, and
/// keep a slow disk busier.
#[must_use]
pub fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| (2 * cores.get()).min(8))
}
