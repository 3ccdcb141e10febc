//! Copies to file systems that are full, read-only or lack room for attributes.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use underpass_copy::{CopyObserver, CopyOptions, CopyOutcome, CopyTarget, Preserve, copy};
use underpass_testkit::mounts::{FileSystem, Mounted};

struct Silent;

impl CopyObserver for Silent {}

fn archive() -> CopyOptions {
    CopyOptions { recursive: true, preserve: Preserve::ALL, ..CopyOptions::default() }
}

fn run(from: PathBuf, to: &Path) -> CopyOutcome {
    let target = CopyTarget::NewName(to);
    copy(&archive(), &[from], target, &Silent, &AtomicBool::new(false)).unwrap()
}

/// Makes folders 00, 01 and so on, with a file `f` in each.
fn folders(above: &Path) {
    for number in 0..20 {
        let folder = above.join(format!("{number:02}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("f"), "bytes").unwrap();
    }
}

/// Returns an ACL with an entry for each of this number of users.
fn acl(users: u32) -> Vec<u8> {
    let entry = |tag: u16, may: u16, id: u32| {
        [tag.to_le_bytes().to_vec(), may.to_le_bytes().to_vec(), id.to_le_bytes().to_vec()].concat()
    };
    let mut acl = [vec![2, 0, 0, 0], entry(1, 7, u32::MAX)].concat();
    acl.extend((0..users).flat_map(|user| entry(2, 7, 2000 + user)));
    for (tag, may) in [(4, 5), (16, 7), (32, 0)] {
        acl.extend(entry(tag, may, u32::MAX));
    }
    acl
}

const ACL: &str = "system.posix_acl_access";

#[test]
fn an_acl_that_does_not_fit_does_not_end_the_copy() {
    let (Some(large), Some(small)) =
        (Mounted::new(FileSystem::Tmpfs, 16), Mounted::new(FileSystem::Ext4, 16))
    else {
        return;
    };
    let (from, to) = (large.root().join("s"), small.root().join("k"));
    folders(&from);
    setxattr(from.join("05/f"), ACL, &acl(700), XattrFlags::empty()).unwrap();
    let outcome = run(from, &to);
    let [problem] = &outcome.problems[..] else { panic!("{:?}", outcome.problems) };
    assert!(problem.to_string().contains("keeping ACL of"), "{problem}");
    assert_eq!(outcome.totals.files, 20);
    assert!(to.join("05/f").exists());
}

#[test]
fn an_attribute_that_does_not_fit_leaves_the_acl_intact() {
    let (Some(large), Some(small)) =
        (Mounted::new(FileSystem::Tmpfs, 16), Mounted::new(FileSystem::Ext4, 16))
    else {
        return;
    };
    let (from, to) = (large.root().join("s"), small.root().join("k"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("f"), "bytes").unwrap();
    for path in [from.clone(), from.join("f")] {
        setxattr(&path, ACL, &acl(1), XattrFlags::empty()).unwrap();
        setxattr(&path, "user.large", &[1; 30_000], XattrFlags::empty()).unwrap();
    }
    // Another owner forces the mode to be set in the end.
    std::os::unix::fs::chown(from.join("f"), Some(1234), None).unwrap();
    let outcome = run(from, &to);
    assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems);
    assert_eq!(outcome.totals.without_attributes, 2);
    for path in [to.clone(), to.join("f")] {
        let mut found = [0; 100];
        let len = getxattr(&path, ACL, &mut found[..]).unwrap();
        assert_eq!(found[..len], acl(1), "{}", path.display());
    }
}

#[test]
fn a_full_or_read_only_mount_in_the_target_does_not_end_the_copy() {
    let Some(mounted) = Mounted::new(FileSystem::Tmpfs, 16) else { return };
    let (from, to) = (mounted.root().join("s"), mounted.root().join("k"));
    folders(&from);
    folders(&to);
    for option in ["ro", "nr_inodes=1"] {
        let there = to.join("05");
        let words = ["-t", "tmpfs", "-o", option, "tmpfs"];
        assert!(Command::new("mount").args(words).arg(&there).status().unwrap().success());
        let outcome = run(from.clone(), &to);
        assert!(Command::new("umount").arg(&there).status().unwrap().success());
        assert!((1..3).contains(&outcome.problem_count), "{:?}", outcome.problems);
        assert_eq!(outcome.totals.files, 19, "{option}: {:?}", outcome.problems);
    }
    // A single file as a mount.
    let file = to.join("05/f");
    let bind = |words: &[&str]| Command::new("mount").args(words).arg(&file).status().unwrap();
    assert!(bind(&["--bind", from.join("05/f").to_str().unwrap()]).success());
    assert!(bind(&["-o", "remount,bind,ro"]).success());
    let outcome = run(from.clone(), &to);
    assert!(Command::new("umount").arg(&file).status().unwrap().success());
    assert_eq!((outcome.problem_count, outcome.totals.files), (1, 19), "{:?}", outcome.problems);
}
