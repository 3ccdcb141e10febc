//! Entries that other users have planted in place of `cp`'s leftovers: they are neither resumed,
//! nor trusted, nor removed.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use tempfile::TempDir;
use underpass_testkit::mounts::{FileSystem, Mounted};
use underpass_testkit::{is_root, skip};

use crate::cp::bytes::traced_in;
use crate::cp::cp_in;
use crate::cp::hidden_names::mark;
use crate::cp::modes::acl;
use crate::rig::{folder, has, names, noise, noise_file};

const LEN: usize = 100_000;
const LARGE: usize = 20 << 20;
const STRANGER: u32 = 1234;

/// What is done to a target and its marker, or to a file.
type TargetChange<'c> = &'c dyn Fn(&Path, &Path);
type FileChange<'c> = &'c dyn Fn(&Path);

fn give(path: &Path) {
    chown(path, Some(STRANGER), Some(STRANGER)).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Overwrites the bytes of a file and keeps its size and time.
fn damage(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(&[0; 5000], 0).unwrap();
    file.set_modified(modified).unwrap();
}

fn is_right(path: &Path) -> bool {
    fs::read(path).unwrap() == noise(LEN)
}

/// A folder `s`, and a copy `k` of it that a link which leads in a circle keeps from being
/// complete; also the marker of that.
fn unfinished() -> (TempDir, PathBuf) {
    let here = folder();
    let at = |path: &str| here.path().join(path);
    fs::create_dir_all(at("s/below")).unwrap();
    for path in ["s", "s/below"] {
        noise_file(&at(path), "file", LEN);
    }
    symlink("link", at("s/link")).unwrap();
    resume(here.path(), "-aLT").failed(1, &[]);
    let found = names(&at("k"));
    let marker = found.iter().find(|name| name.starts_with(".unfinished.")).unwrap();
    let marker = at("k").join(marker);
    (here, marker)
}

fn resume(here: &Path, option: &str) -> crate::rig::Finished {
    cp_in(here, &[option, "--resume", "s", "k"])
}

#[test]
fn size_and_time_count_only_where_no_other_user_may_write() {
    if !is_root() {
        return skip("files cannot be given away");
    }
    let change: [TargetChange<'_>; 6] = [
        &|_, _| {},
        &|k, _| give(k),
        &|k, _| set_mode(k, 0o1777),
        &|_, marker| give(marker),
        &|_, marker| set_mode(marker, 0o666),
        &|_, marker| fs::hard_link(marker, marker.with_extension("link")).unwrap(),
    ];
    for (number, change) in change.into_iter().enumerate() {
        let (here, marker) = unfinished();
        let k = here.path().join("k");
        damage(&k.join("file"));
        change(&k, &marker);
        resume(here.path(), "-aLT").failed(1, &[]);
        assert_eq!(is_right(&k.join("file")), number > 0, "{number}");
    }
}

#[test]
fn size_and_time_count_only_below_private_folders_of_another_user() {
    if !is_root() {
        return skip("files cannot be given away");
    }
    for mode in [0o700, 0o755] {
        let (here, _) = unfinished();
        let below = here.path().join("k/below");
        damage(&below.join("file"));
        give(&below);
        set_mode(&here.path().join("k"), mode);
        resume(here.path(), "-aLT").failed(1, &[]);
        assert_eq!(is_right(&below.join("file")), mode == 0o755, "{mode:o}");
    }
}

#[test]
fn resume_copies_files_anew_that_other_users_can_write_to() {
    if !is_root() {
        return skip("files cannot be given away");
    }
    let changes: [(FileChange<'_>, bool); 4] = [
        (&|_| {}, false),
        (&give, true),
        (&|file| set_mode(file, 0o666), true),
        (&|file| set_mode(file, 0o600), false),
    ];
    for (number, (change, is_new)) in changes.into_iter().enumerate() {
        let (here, _) = unfinished();
        set_mode(&here.path().join("s/file"), 0o4755);
        let file = here.path().join("k/file");
        let before = File::open(&file).unwrap().metadata().unwrap();
        change(&file);
        resume(here.path(), "-aLT").failed(1, &[]);
        let after = fs::metadata(&file).unwrap();
        assert!(is_right(&file));
        assert_eq!((after.uid(), after.mode() & 0o7777), (0, 0o4755), "{number}");
        assert_eq!(after.ino() != before.ino(), is_new, "{number}");
    }
}

#[test]
fn the_marker_of_another_user_does_not_change_what_is_meant() {
    if !is_root() {
        return skip("files cannot be given away");
    }
    let (here, marker) = unfinished();
    give(&marker);
    resume(here.path(), "-aL").failed(1, &[]);
    assert!(here.path().join("k/s/file").exists());
}

/// A file `s/large`, and the part that a killed copy of it to `k` has left.
fn killed() -> Option<(TempDir, PathBuf)> {
    if !has("strace") {
        return None;
    }
    let here = folder();
    let at = |path: &str| here.path().join(path);
    for path in ["s", "k"] {
        fs::create_dir(at(path)).unwrap();
    }
    let large = noise_file(&at("s"), "large", LARGE);
    set_mode(&large, 0o444);
    let part = kill(here.path(), "-r");
    Some((here, part))
}

fn kill(here: &Path, option: &str) -> PathBuf {
    let words = [option, "--resume", "--reflink=never", "--step", "1M", "s/large", "k/"];
    let calls = "copy_file_range,sendfile";
    let inject = format!("inject={calls}:signal=KILL:when=18");
    let trace = format!("trace={calls}");
    let (ended, log) = traced_in(here, &["-e", &trace, "-e", &inject], &words);
    assert_eq!(ended.code(), None, "{} {log}", ended.stderr);
    let parts = names(&here.join("k"));
    assert_eq!(parts.len(), 1, "{parts:?}");
    here.join("k").join(&parts[0])
}

fn finish(here: &Path, option: &str) -> u64 {
    let words = [option, "--resume", "--json", "s/large", "k/"];
    let receipt = cp_in(here, &words).succeeded().receipt();
    assert!(fs::read(here.join("k/large")).unwrap() == noise(LARGE));
    receipt["resumed_bytes"].as_u64().unwrap()
}

#[test]
fn a_part_is_private_to_its_owner_until_it_is_complete() {
    for option in ["-a", "-r"] {
        let Some((here, part)) = killed() else { return };
        assert_eq!(fs::metadata(&part).unwrap().mode() & 0o7777, 0o600);
        assert!(finish(here.path(), option) > 0);
        assert_eq!(names(&here.path().join("k")), ["large"]);
        assert_eq!(fs::metadata(here.path().join("k/large")).unwrap().mode() & 0o7777, 0o444);
    }
}

#[test]
fn a_part_that_another_user_could_have_made_is_not_continued() {
    if !is_root() {
        return skip("files cannot be given away");
    }
    let changes: [&dyn Fn(&Path); 3] = [&give, &|part| set_mode(part, 0o666), &|part| {
        fs::hard_link(part, part.parent().unwrap().join("../log")).unwrap()
    }];
    for (number, change) in changes.into_iter().enumerate() {
        let Some((here, part)) = killed() else { return };
        // The mark and the mount epoch stay.
        damage(&part);
        change(&part);
        let was = fs::metadata(&part).unwrap().ino();
        assert_eq!(finish(here.path(), "-a"), 0, "{number}");
        assert_ne!(fs::metadata(here.path().join("k/large")).unwrap().ino(), was, "{number}");
        assert!(part.exists(), "{number}");
    }
}

#[test]
fn a_part_that_is_whole_is_removed_after_a_kill() {
    if !is_root() {
        return skip("other users may not keep owners");
    }
    let Some((here, part)) = killed() else { return };
    let strace = ["-e", "trace=utimensat", "-e", "inject=utimensat:signal=KILL"];
    let words = ["-a", "--resume", "s/large", "k/"];
    let (ended, log) = traced_in(here.path(), &strace, &words);
    assert_eq!(ended.code(), None, "{} {log}", ended.stderr);
    // It could be the entry of another source that is called so, were it not for its number.
    assert!(!part.exists());
    assert_eq!(names(&here.path().join("k")).len(), 1);
    finish(here.path(), "-a");
    assert_eq!(names(&here.path().join("k")), ["large"]);
}

#[test]
fn a_part_gets_what_the_default_acl_of_its_folder_allows() {
    let here = folder();
    let at = |path: &str| here.path().join(path);
    for path in ["s", "k"] {
        fs::create_dir(at(path)).unwrap();
    }
    set_mode(&noise_file(&at("s"), "large", LARGE), 0o664);
    if setxattr(at("k"), "system.posix_acl_default", &acl(), XattrFlags::empty()).is_err() {
        return skip("this file system has no ACLs");
    }
    let copied = |words: &[&str]| {
        cp_in(here.path(), words).succeeded();
        let mut acl = [0; 200];
        let len = getxattr(at("k/large"), "system.posix_acl_access", &mut acl).unwrap_or(0);
        let mode = fs::metadata(at("k/large")).unwrap().mode();
        fs::remove_file(at("k/large")).unwrap();
        (acl[..len].to_vec(), mode)
    };
    for option in ["-r", "-a"] {
        let plain = copied(&[option, "s/large", "k/"]);
        assert_eq!(copied(&[option, "--resume", "s/large", "k/"]), plain, "{option}");
    }
}

#[test]
fn a_folder_that_others_may_write_to_is_no_leftover() {
    let here = folder();
    let at = |path: &str| here.path().join(path);
    for path in ["x", "t"] {
        fs::create_dir(at(path)).unwrap();
        fs::write(at(path).join("file"), "text").unwrap();
    }
    // The name that its leftover would have, and any other.
    let own = own_name(here.path());
    let other = underpass_engine::atomic_file::hidden_name("x".as_ref(), Some(12345));
    for options in [&["-a"][..], &["-r"], &["-a", "--resume"]] {
        for hidden in [own.as_os_str(), &other] {
            let left = at("t").join(hidden);
            fs::create_dir_all(left.join("private")).unwrap();
            fs::write(left.join("private/doc"), "precious").unwrap();
            mark(&left);
            for mode in [0o770, 0o702] {
                set_mode(&left, mode);
                cp_in(here.path(), &[options, &["x", "t/"]].concat()).succeeded();
                assert!(left.join("private/doc").exists(), "{options:?} {mode:o}");
                fs::remove_dir_all(at("t/x")).unwrap();
            }
            set_mode(&left, 0o700);
            cp_in(here.path(), &[options, &["x", "t/"]].concat()).succeeded();
            assert!(!left.exists(), "{options:?}");
            fs::remove_dir_all(at("t/x")).unwrap();
        }
    }
}

/// The hidden name that a copy of the folder `x` has until it is whole.
fn own_name(here: &Path) -> std::ffi::OsString {
    let strace = ["-e", "trace=renameat2,renameat", "-e", "inject=renameat2:signal=KILL"];
    let (_, log) = traced_in(here, &strace, &["-r", "-j1", "x", "t/"]);
    let found = names(&here.join("t")).into_iter().find(|name| name.ends_with(".part"));
    let found = found.unwrap_or_else(|| panic!("{log}"));
    fs::remove_dir_all(here.join("t").join(&found)).unwrap();
    found.into()
}

#[test]
fn a_copy_of_one_snapshot_does_not_resume_with_another() {
    if !has("strace") || !has("btrfs") {
        return;
    }
    let Some(mounted) = Mounted::new(FileSystem::Btrfs, 128) else { return };
    let root = mounted.root();
    let btrfs = |words: &[&str]| {
        let mut command = Command::new("btrfs");
        command.args(["-q", "subvolume"]).args(words).current_dir(&root);
        assert!(command.status().unwrap().success(), "{words:?}");
    };
    let file = |number: u8| root.join(format!("sub/data/{number}"));
    btrfs(&["create", "sub"]);
    fs::create_dir(root.join("sub/data")).unwrap();
    fs::create_dir(root.join("t")).unwrap();
    (0..20).for_each(|number| fs::write(file(number), "one").unwrap());
    btrfs(&["snapshot", "sub", "one"]);
    for number in 0..20 {
        let before = fs::metadata(file(number)).unwrap().modified().unwrap();
        fs::write(file(number), "two").unwrap();
        File::options().write(true).open(file(number)).unwrap().set_modified(before).unwrap();
    }
    btrfs(&["snapshot", "sub", "two"]);
    for target in ["t/", "t/k"] {
        let strace = ["-e", "trace=utimensat", "-e", "inject=utimensat:signal=KILL:when=10"];
        let (ended, _) = traced_in(&root, &strace, &["-a", "-j1", "--resume", "one/data", target]);
        assert_eq!(ended.code(), None, "{}", ended.stderr);
        cp_in(&root, &["-a", "--resume", "two/data", target]).succeeded();
        for number in 0..20 {
            let copy = root.join(if target == "t/" { "t/data" } else { "t/k" });
            assert_eq!(fs::read(copy.join(number.to_string())).unwrap(), b"two", "{target}");
        }
    }
}
