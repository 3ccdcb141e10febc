//! Tests the crate through its public API.

#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use underpass_copy::{
    CopyError, CopyObserver, CopyOptions, CopyOutcome, CopyTarget, ExistingFiles, Overlap,
    Preserve, When, copy,
};
use underpass_engine::atomic_file::{hidden_name, number_of};
use underpass_engine::{DeclineReason, Declined, Integrity};
use underpass_testkit::is_full;
use underpass_testkit::mounts::{FileSystem, Mounted};

/// Ignores all reports, and gives the default answers.
struct Silent;

impl CopyObserver for Silent {}

/// A folder `a` with files in two folders.
fn tree() -> TempDir {
    let here = TempDir::new().unwrap();
    fs::create_dir_all(here.path().join("a/b")).unwrap();
    fs::write(here.path().join("a/f"), "one").unwrap();
    fs::write(here.path().join("a/b/g"), "two").unwrap();
    here
}

fn recursive() -> CopyOptions {
    CopyOptions { recursive: true, ..CopyOptions::default() }
}

fn run(
    here: &Path,
    names: (&str, &str),
    options: &CopyOptions,
    cancel: bool,
) -> Result<CopyOutcome, CopyError> {
    let sources: Vec<PathBuf> = vec![here.join(names.0)];
    let target = here.join(names.1);
    copy(options, &sources, CopyTarget::NewName(&target), &Silent, &AtomicBool::new(cancel))
}

#[test]
fn a_tree_is_copied_and_counted() {
    let here = tree();
    let outcome = run(here.path(), ("a", "n"), &recursive(), false).unwrap();
    assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems);
    assert_eq!((outcome.totals.files, outcome.totals.folders), (2, 2));
    assert_eq!(outcome.totals.report().bytes(), 6);
    assert_eq!(fs::read(here.path().join("n/b/g")).unwrap(), b"two");
}

#[test]
fn a_copy_cancelled_before_it_begins_is_no_success() {
    let here = tree();
    for (source, options) in [("a", recursive()), ("a/f", CopyOptions::default())] {
        let outcome = run(here.path(), (source, "n"), &options, true).unwrap();
        assert!(matches!(outcome.problems[..], [CopyError::Cancelled]), "{:?}", outcome.problems);
        assert!(!here.path().join("n").exists());
    }
}

#[test]
fn a_folder_is_not_copied_into_itself() {
    let here = tree();
    let error = run(here.path(), ("a", "a/b/n"), &recursive(), false).unwrap_err();
    let (from, to) = (here.path().join("a"), here.path().join("a/b/n"));
    assert!(
        matches!(&error, CopyError::Overlap(overlap) if *overlap == Overlap::IntoItself { from, to }),
        "{error}"
    );
}

#[test]
fn a_thread_that_panics_is_reported_and_does_not_block_others() {
    struct Panicking;
    impl CopyObserver for Panicking {
        fn would_copy(&self, _: &Path, _: &Path) {
            panic!("on purpose");
        }
    }
    for jobs in [1, 2, 8] {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let here = tree();
            let options = CopyOptions { dry_run: true, jobs, ..recursive() };
            let (sources, target) = (vec![here.path().join("a")], here.path().join("n"));
            let target = CopyTarget::NewName(&target);
            let outcome = copy(&options, &sources, target, &Panicking, &AtomicBool::new(false));
            sender.send(outcome.unwrap()).unwrap();
        });
        let outcome = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(
            matches!(outcome.problems[..], [CopyError::Panicked, ..]),
            "{:?}",
            outcome.problems
        );
    }
}

#[test]
fn the_observer_gets_questions_and_events() {
    #[derive(Default)]
    struct Witness {
        asked: AtomicBool,
        told: Mutex<Vec<PathBuf>>,
    }
    impl CopyObserver for Witness {
        fn may_replace(&self, _: &Path) -> std::io::Result<bool> {
            self.asked.store(true, Ordering::Relaxed);
            Ok(false)
        }

        fn would_copy(&self, from: &Path, _: &Path) {
            self.told.lock().unwrap().push(from.to_owned());
        }
    }
    let here = tree();
    fs::write(here.path().join("old"), "old").unwrap();
    let (sources, target) = (vec![here.path().join("a/f")], here.path().join("old"));
    let (witness, cancel) = (Witness::default(), AtomicBool::new(false));
    let options = CopyOptions { interactive: true, ..CopyOptions::default() };
    let target = CopyTarget::NewName(&target);
    assert_eq!(copy(&options, &sources, target, &witness, &cancel).unwrap().totals.kept, 1);
    assert!(witness.asked.into_inner() && witness.told.lock().unwrap().is_empty());
    assert_eq!(fs::read(here.path().join("old")).unwrap(), b"old");

    let (witness, options) = (Witness::default(), CopyOptions { dry_run: true, ..options });
    copy(&options, &sources, target, &witness, &cancel).unwrap();
    assert_eq!(*witness.told.lock().unwrap(), sources);
    assert_eq!(fs::read(here.path().join("old")).unwrap(), b"old");
}

#[test]
fn hidden_links_of_a_killed_process_do_not_block_a_copy() {
    let here = tree();
    let path = |name: &str| here.path().join(name);
    let options = CopyOptions { hard_links: true, ..recursive() };
    fs::hard_link(path("a/f"), path("a/h")).unwrap();
    std::os::unix::fs::symlink("to", path("a/l")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path("a/p"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    run(here.path(), ("a", "n"), &options, false).unwrap();
    // Neither name leads to the copy any more.
    for name in ["f", "h"] {
        fs::remove_file(path("n").join(name)).unwrap();
        fs::write(path("n").join(name), "old").unwrap();
    }
    let number = number_of(fs::File::open(path("n")).unwrap()).unwrap().wrapping_add(500);
    let hidden = |name: &str| path("n").join(hidden_name(OsStr::new(name), Some(number)));
    for name in ["f", "h"] {
        fs::hard_link(path("n").join(name), hidden(name)).unwrap();
    }
    std::os::unix::fs::symlink("elsewhere", hidden("l")).unwrap();
    fs::write(hidden("p"), "").unwrap();
    // A hidden link for a name that is not copied may be the user's own.
    std::os::unix::fs::symlink("elsewhere", hidden("other")).unwrap();
    for _ in 0..2 {
        let outcome = run(here.path(), ("a", "n"), &options, false).unwrap();
        assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems);
    }
    assert_eq!(fs::read_link(path("n/l")).unwrap(), Path::new("to"));
    assert_eq!(fs::read(path("n/h")).unwrap(), b"one");
    let names = fs::read_dir(path("n")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
    left.retain(|name| name.starts_with('.'));
    assert_eq!(left, [hidden_name(OsStr::new("other"), Some(number)).into_string().unwrap()]);
}

/// A copy may fail while another thread writes. One that succeeds has the bytes of a single write.
#[test]
fn a_copy_during_writes_has_one_version() {
    let here = TempDir::new().unwrap();
    let file = fs::File::create(here.path().join("a")).unwrap();
    let versions = [vec![0_u8; 30_000], vec![1_u8; 30_000]];
    file.write_all_at(&versions[0], 0).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for version in &versions {
                    file.write_all_at(version, 0).unwrap();
                }
            }
        });
        let mut mixed = 0;
        for (sparse, integrity) in [
            (When::Auto, Integrity::Detect),
            (When::Always, Integrity::Detect),
            (When::Always, Integrity::Lease),
            (When::Always, Integrity::Snapshot),
        ] {
            let options = CopyOptions { sparse, integrity, jobs: 1, ..CopyOptions::default() };
            // Each copy waits for the writer, and gives up.
            for _ in 0..if is_full() { 20 } else { 3 } {
                let outcome = run(here.path(), ("a", "n"), &options, false);
                let copy = fs::read(here.path().join("n")).unwrap_or_default();
                let is_made = outcome.is_ok_and(|outcome| outcome.problem_count == 0);
                mixed += usize::from(is_made && !versions.contains(&copy));
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(mixed, 0);
    });
}

/// A search for zeros reads the file itself, without a lease or snapshot.
#[test]
fn an_unavailable_integrity_level_is_reported_when_zeros_become_holes() {
    let here = tree();
    for integrity in [Integrity::Lease, Integrity::Snapshot] {
        let options = CopyOptions { sparse: When::Always, integrity, ..CopyOptions::default() };
        let outcome = run(here.path(), ("a/f", "n"), &options, false).unwrap();
        let report = outcome.totals.report();
        assert_eq!(report.integrity(), Integrity::Detect);
        let declined: Vec<_> = report.declined().iter().map(|it| (it.what, it.reason)).collect();
        assert_eq!(declined, [(Declined::Integrity(integrity), DeclineReason::Excluded)]);
    }
}

#[test]
fn a_part_of_an_earlier_run_gets_the_mode_that_the_original_has_now() {
    /// Cancels the copy just before its first file is copied.
    struct Cancelling<'a>(&'a AtomicBool);
    impl CopyObserver for Cancelling<'_> {
        fn has_room(&self, _: u64) -> bool {
            self.0.store(true, Ordering::Relaxed);
            true
        }
    }
    for (before, after) in [(0o644, 0o600), (0o600, 0o644)] {
        let here = TempDir::new().unwrap();
        let (a, n) = (here.path().join("a"), here.path().join("n"));
        let file = fs::File::create(&a).unwrap();
        file.write_all_at(b"end", 20 << 20).unwrap();
        fs::set_permissions(&a, fs::Permissions::from_mode(before)).unwrap();
        let options = CopyOptions { resume: true, ..CopyOptions::default() };
        let (sources, target) = ([a.clone()], CopyTarget::NewName(&n));
        let cancel = AtomicBool::new(false);
        copy(&options, &sources, target, &Cancelling(&cancel), &cancel).unwrap();
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 2, "a and its part");
        fs::set_permissions(&a, fs::Permissions::from_mode(after)).unwrap();
        let outcome = run(here.path(), ("a", "n"), &options, false).unwrap();
        assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems);
        assert_eq!(fs::metadata(&n).unwrap().mode() & 0o7777, after);
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 2);
    }
}

#[test]
fn files_have_their_group_where_the_file_system_chooses_another() {
    let Some(mounted) = Mounted::new(FileSystem::Ext4, 16) else { return };
    let here = mounted.root();
    let remount = Command::new("mount").args(["-o", "remount,grpid"]).arg(&here).status();
    assert!(remount.unwrap().success());
    fs::create_dir_all(here.join("a/b")).unwrap();
    for name in ["a/f", "a/b/g"] {
        fs::write(here.join(name), "bytes").unwrap();
    }
    fs::create_dir(here.join("d")).unwrap();
    chown(here.join("d"), None, Some(1234)).unwrap();
    let options = CopyOptions { preserve: Preserve::ALL, ..recursive() };
    let outcome = run(&here, ("a", "d/n"), &options, false).unwrap();
    assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems);
    for name in ["d/n", "d/n/f", "d/n/b/g"] {
        assert_eq!(fs::metadata(here.join(name)).unwrap().gid(), 0, "{name}");
    }
}

#[test]
fn an_up_to_date_copy_gets_the_new_hard_links_of_its_original() {
    for (old, new) in [("m", "z"), ("m", "a")] {
        let here = TempDir::new().unwrap();
        let path = |name: String| here.path().join(name);
        fs::create_dir(path("s".into())).unwrap();
        for name in [old, "other"] {
            fs::write(path(format!("s/{name}")), "bytes").unwrap();
        }
        let (existing, preserve) = (ExistingFiles::ReplaceOlder, Preserve::ALL);
        let options = CopyOptions { existing, hard_links: true, preserve, jobs: 1, ..recursive() };
        run(here.path(), ("s", "k"), &options, false).unwrap();
        fs::hard_link(path(format!("s/{old}")), path(format!("s/{new}"))).unwrap();
        for is_done in [false, true] {
            let outcome = run(here.path(), ("s", "k"), &options, false).unwrap();
            assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems);
            assert_eq!(outcome.totals.kept == 3, is_done, "{old} {new}");
            let number = |name: &str| fs::metadata(path(format!("k/{name}"))).unwrap().ino();
            assert_eq!(number(old), number(new), "{old} {new}");
            assert_ne!(number(old), number("other"));
        }
    }
}
