//! Changes that other processes make during a copy. The observer makes them, as it is called at
//! known moments.

#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use underpass_copy::{
    CopyObserver, CopyOptions, CopyOutcome, CopyTarget, ExistingFiles, Follow, Preserve, When, copy,
};
use underpass_engine::Integrity;
use underpass_testkit::mounts::{FileSystem, Mounted};

/// Copies the folder `s` to `k`.
fn run(here: &Path, options: &CopyOptions, observer: &dyn CopyObserver) -> CopyOutcome {
    let (sources, target) = ([here.join("s")], here.join("k"));
    let target = CopyTarget::NewName(&target);
    copy(options, &sources, target, observer, &AtomicBool::new(false)).unwrap()
}

fn archive() -> CopyOptions {
    CopyOptions { recursive: true, hard_links: true, ..CopyOptions::default() }
}

/// Delays the copy of the large file until its second name waits, and then creates that name.
struct Appearing<'a> {
    here: &'a Path,
    /// The folder, `1` or `2`, whose small files were all copied.
    waits: Mutex<Option<PathBuf>>,
    is_waiting: Condvar,
}

const LARGE: usize = 100_000;

impl CopyObserver for Appearing<'_> {
    fn has_room(&self, len: u64) -> bool {
        if len == LARGE as u64 {
            let waits = self.waits.lock().unwrap();
            let waits = self.is_waiting.wait_while(waits, |it| it.is_none()).unwrap();
            fs::write(self.here.join("k").join(waits.as_ref().unwrap()).join("name"), "new")
                .unwrap();
        }
        true
    }

    fn lists(&self) -> bool {
        true
    }

    fn made(&self, from: &Path, _: &Path, _: Option<&Path>) {
        if from.ends_with("later") {
            let folder = from.parent().unwrap().file_name().unwrap();
            self.waits.lock().unwrap().get_or_insert(PathBuf::from(folder));
            self.is_waiting.notify_all();
        }
    }
}

#[test]
fn a_file_that_takes_the_name_of_a_waiting_hard_link_counts_as_existing() {
    let keep = CopyOptions { existing: ExistingFiles::Keep, ..archive() };
    let refuse = CopyOptions { existing: ExistingFiles::Refuse, ..archive() };
    for (options, kept, problems, text) in
        [(keep, 1, 0, "new"), (refuse, 0, 1, "new"), (archive(), 0, 0, "")]
    {
        let here = TempDir::new().unwrap();
        let path = |name: &str| here.path().join(name);
        for folder in ["s/1", "s/2", "k/1", "k/2"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        fs::write(path("s/1/name"), vec![1; LARGE]).unwrap();
        fs::hard_link(path("s/1/name"), path("s/2/name")).unwrap();
        // Files are copied in the order of their inode numbers.
        let number = fs::metadata(path("s/1/name")).unwrap().ino();
        for folder in ["s/1", "s/2"] {
            for count in 0.. {
                let file = path(folder).join(format!("{count}"));
                fs::write(&file, "").unwrap();
                if fs::metadata(&file).unwrap().ino() > number {
                    fs::rename(file, path(folder).join("later")).unwrap();
                    break;
                }
            }
        }
        let observer =
            Appearing { here: here.path(), waits: Mutex::default(), is_waiting: Condvar::new() };
        let outcome = run(here.path(), &CopyOptions { jobs: 2, ..options }, &observer);
        assert_eq!(outcome.problem_count, problems, "{:?}", outcome.problems);
        assert_eq!(outcome.totals.kept, kept);
        let waited = observer.waits.into_inner().unwrap().unwrap();
        let found = fs::read(path("k").join(waited).join("name")).unwrap();
        assert!(found == if text.is_empty() { vec![1; LARGE] } else { text.into() });
    }
}

/// Runs a function once: when an entry was listed, with its type, and is not copied yet.
struct WhenListed<F> {
    name: &'static str,
    what: Mutex<Option<F>>,
}

impl<F: FnOnce() + Send> WhenListed<F> {
    fn new(name: &'static str, what: F) -> Self {
        Self { name, what: Mutex::new(Some(what)) }
    }
}

impl<F: FnOnce() + Send> CopyObserver for WhenListed<F> {
    fn filters(&self) -> bool {
        true
    }

    fn excludes(&self, path: &[u8], _: FileType) -> bool {
        if Path::new(OsStr::from_bytes(path)).ends_with(self.name)
            && let Some(what) = self.what.lock().unwrap().take()
        {
            what();
        }
        false
    }
}

#[test]
fn a_fifo_that_takes_the_place_of_a_file_is_not_read() {
    let here = TempDir::new().unwrap();
    let file = here.path().join("s/file");
    fs::create_dir(here.path().join("s")).unwrap();
    fs::write(&file, "bytes").unwrap();
    let observer = WhenListed::new("file", || {
        fs::remove_file(&file).unwrap();
        mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    });
    let outcome = run(here.path(), &archive(), &observer);
    let [problem] = &outcome.problems[..] else { panic!("{:?}", outcome.problems) };
    assert!(problem.to_string().contains("is not a file any more"), "{problem}");
    assert!(!here.path().join("k/file").exists());
}

#[test]
fn a_file_that_takes_the_place_of_a_link_is_copied() {
    let here = TempDir::new().unwrap();
    let link = here.path().join("s/link");
    fs::create_dir(here.path().join("s")).unwrap();
    symlink("to", &link).unwrap();
    let observer = WhenListed::new("link", || {
        fs::remove_file(&link).unwrap();
        fs::write(&link, "bytes").unwrap();
    });
    let outcome = run(here.path(), &archive(), &observer);
    assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems);
    assert_eq!(fs::read(here.path().join("k/link")).unwrap(), b"bytes");
}

/// Runs a function once: when a file of this size is copied, into a folder that was made.
struct WhenCopied<F>(u64, Mutex<Option<F>>);

impl<F: FnOnce() + Send> CopyObserver for WhenCopied<F> {
    fn has_room(&self, len: u64) -> bool {
        if len == self.0
            && let Some(what) = self.1.lock().unwrap().take()
        {
            what();
        }
        true
    }
}

#[test]
fn folders_that_another_process_makes_first_get_the_times_of_their_originals() {
    let here = TempDir::new().unwrap();
    let path = |name: &str| here.path().join(name);
    fs::create_dir_all(path("s/d/e")).unwrap();
    fs::write(path("s/d/f"), "seven b").unwrap();
    fs::write(path("s/d/e/g"), "ours").unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for folder in ["s/d/e", "s/d", "s"] {
        fs::File::open(path(folder)).unwrap().set_modified(long_ago).unwrap();
    }
    let others = || {
        fs::create_dir_all(path("k/d/e")).unwrap();
        fs::write(path("k/d/e/g"), "theirs").unwrap();
    };
    let options = CopyOptions { preserve: Preserve::ALL, jobs: 1, ..archive() };
    let outcome = run(here.path(), &options, &WhenCopied(7, Mutex::new(Some(others))));
    assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems);
    assert_eq!(fs::read(path("k/d/e/g")).unwrap(), b"ours");
    for folder in ["k", "k/d", "k/d/e"] {
        let found = fs::metadata(path(folder)).unwrap().modified().unwrap();
        assert_eq!(found, long_ago, "{folder}");
    }
}

/// Truncates a file that was opened, and is to be copied.
struct Truncating<'a>(&'a Path, u64);

impl CopyObserver for Truncating<'_> {
    fn has_room(&self, _: u64) -> bool {
        fs::File::options().write(true).open(self.0).unwrap().set_len(self.1).unwrap();
        true
    }
}

#[test]
fn a_file_that_ends_early_tells_where() {
    let here = TempDir::new().unwrap();
    let file = here.path().join("s");
    fs::write(&file, vec![1; 2 * LARGE]).unwrap();
    let (sparse, integrity) = (When::Always, Integrity::Fast);
    let options = CopyOptions { sparse, integrity, ..CopyOptions::default() };
    let outcome = run(here.path(), &options, &Truncating(&file, LARGE as u64));
    let [problem] = &outcome.problems[..] else { panic!("{:?}", outcome.problems) };
    let problem = problem.to_string();
    assert!(problem.contains("ended after 100,000 of 200,000 bytes"), "{problem}");
}

#[test]
fn an_entry_that_is_removed_while_its_folder_is_read_fails_alone() {
    // Its type has to be looked up.
    let Some(mounted) = Mounted::new(FileSystem::NoTypes, 16) else { return };
    let source = mounted.root().join("s");
    fs::create_dir_all(source.join("folder")).unwrap();
    for name in ["a", "b"] {
        fs::write(source.join(name), name).unwrap();
    }
    let listed = fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().file_name());
    let first = listed.into_iter().find(|name| name != "folder").unwrap();
    let (first, other) = if first == "a" { ("a", "b") } else { ("b", "a") };
    let observer = WhenListed::new(first, || fs::remove_file(source.join(other)).unwrap());
    let outcome = run(&mounted.root(), &archive(), &observer);
    let [problem] = &outcome.problems[..] else { panic!("{:?}", outcome.problems) };
    let problem = problem.to_string();
    assert!(problem.contains(&*source.join(other).to_string_lossy()), "{problem}");
    assert_eq!(fs::read(mounted.root().join("k").join(first)).unwrap(), first.as_bytes());
    assert!(mounted.root().join("k/folder").is_dir());
}

#[test]
fn a_new_file_with_a_reused_inode_number_is_not_linked_to_the_old_copy() {
    let here = TempDir::new().unwrap();
    let path = |name: &str| here.path().join(name);
    fs::create_dir_all(path("s/below/deep")).unwrap();
    fs::write(path("s/below/mark"), "").unwrap();
    fs::write(path("s/old"), "old").unwrap();
    let number = fs::metadata(path("s/old")).unwrap().ino();
    // Files are copied before the entries of their sibling folders.
    let observer = WhenListed::new("mark", || {
        fs::remove_file(path("s/old")).unwrap();
        // Most file systems reuse an inode number at once.
        for count in 0..100 {
            let new = path("s").join(format!("new-{count}"));
            fs::write(&new, "a new one").unwrap();
            if fs::metadata(&new).unwrap().ino() == number {
                return fs::rename(new, path("s/below/deep/new")).unwrap();
            }
        }
        fs::write(path("s/below/deep/new"), "a new one").unwrap();
    });
    let options = CopyOptions { follow: Follow::Always, jobs: 1, ..archive() };
    let outcome = run(here.path(), &options, &observer);
    assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems);
    assert_eq!(fs::read(path("k/old")).unwrap(), b"old");
    assert_eq!(fs::read(path("k/below/deep/new")).unwrap(), b"a new one");
}

#[test]
fn files_that_are_replaced_while_a_large_folder_is_copied_are_in_the_copy() {
    const FILES: usize = 6000;
    for kind in [FileSystem::Btrfs, FileSystem::Tmpfs] {
        let Some(mounted) = Mounted::new(kind, 256) else { return };
        let here = mounted.root();
        let path = |count: usize| here.join(format!("s/f{count:05}"));
        fs::create_dir(here.join("s")).unwrap();
        for count in 0..FILES {
            fs::write(path(count), "").unwrap();
        }
        // Runs for whichever entry comes first.
        let observer = WhenListed::new("", || {
            for count in 0..FILES {
                if count % 4 == 0 {
                    fs::write(here.join("tmp"), "").unwrap();
                    fs::rename(here.join("tmp"), path(count)).unwrap();
                }
            }
        });
        let outcome = run(&here, &archive(), &observer);
        assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems.first());
        assert_eq!(fs::read_dir(here.join("k")).unwrap().count(), FILES, "{kind:?}");
    }
}

/// Changes a file before its bytes are copied.
struct Changing(PathBuf);

impl CopyObserver for Changing {
    fn has_room(&self, _: u64) -> bool {
        if fs::read(&self.0).unwrap()[0] == 0 {
            fs::write(&self.0, vec![1; LARGE]).unwrap();
        }
        true
    }
}

#[test]
fn a_file_that_changes_before_its_first_byte_is_copied_again_with_its_times() {
    for integrity in [Integrity::Detect, Integrity::Lease] {
        let here = TempDir::new().unwrap();
        let path = |name: &str| here.path().join(name);
        fs::write(path("s"), vec![0; LARGE]).unwrap();
        fs::File::options()
            .write(true)
            .open(path("s"))
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH)
            .unwrap();
        let options = CopyOptions { integrity, sparse: When::Never, ..CopyOptions::default() };
        let outcome = run(here.path(), &options, &Changing(path("s")));
        assert_eq!((outcome.problem_count, outcome.totals.copied_again), (0, 1), "{integrity}");
        let time = |name: &str| fs::metadata(path(name)).unwrap().modified().unwrap();
        assert_eq!(time("k"), time("s"), "{integrity}");
        assert_eq!(fs::read(path("k")).unwrap(), vec![1; LARGE], "{integrity}");
    }
}

/// Removes a folder on which something is mounted, and perhaps the one above, once it is copied.
struct Unmounting<'a> {
    mounted: &'a Path,
    removed: &'a Path,
}

impl CopyObserver for Unmounting<'_> {
    fn lists(&self) -> bool {
        true
    }

    fn made(&self, from: &Path, _: &Path, _: Option<&Path>) {
        if from == self.mounted.join("f") {
            assert!(Command::new("umount").arg("-l").arg(self.mounted).status().unwrap().success());
            fs::remove_dir_all(self.removed).unwrap();
        }
    }
}

#[test]
fn a_mirror_keeps_the_copy_of_a_file_system_whose_mount_point_is_gone() {
    for removed in ["s/a/m", "s/a"] {
        let Some(mounted) = Mounted::new(FileSystem::Tmpfs, 16) else { return };
        let here = mounted.root();
        let (inner, removed) = (here.join("s/a/m"), here.join(removed));
        fs::create_dir_all(&inner).unwrap();
        let words = ["-t", "tmpfs", "tmpfs"];
        assert!(Command::new("mount").args(words).arg(&inner).status().unwrap().success());
        fs::write(inner.join("f"), "bytes").unwrap();
        let options = CopyOptions { delete: true, ..archive() };
        let observer = Unmounting { mounted: &inner, removed: &removed };
        let outcome = run(&here, &options, &observer);
        assert_eq!(outcome.problem_count, 1, "{:?}", outcome.problems);
        assert_eq!(fs::read_to_string(here.join("k/a/m/f")).unwrap(), "bytes");
    }
}
