//! `--resume` after a power cut: size and time can be on the disk while the bytes are not.
//!
//! A file of the right size and time with other bytes stands for one that the cut has damaged, and a
//! marker with another boot id, or none at all, for the cut itself.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use underpass_testkit::mounts::{FileSystem, Mounted};

use crate::cp::bytes::traced_in;
use crate::cp::cp_in;
use crate::rig::{folder, has, names, noise, noise_file, skip};

const LEN: usize = 100_000;

/// Overwrites the bytes of a file from `at` on and keeps its size and time.
fn damage(path: &Path, at: u64) {
    let file = File::options().write(true).open(path).unwrap();
    let facts = file.metadata().unwrap();
    file.write_all_at(&[0; 5000], at).unwrap();
    file.set_modified(facts.modified().unwrap()).unwrap();
    assert_eq!(file.metadata().unwrap().len(), facts.len());
}

/// A folder `s` and a copy `k` of it in which nothing is missing but a link that leads in a circle: the
/// copy is not complete.
fn unfinished() -> tempfile::TempDir {
    let here = folder();
    let below = here.path().join("s/below");
    fs::create_dir_all(&below).unwrap();
    noise_file(&here.path().join("s"), "one", LEN);
    noise_file(&below, "two", LEN);
    std::os::unix::fs::symlink("link", below.join("link")).unwrap();
    resume(here.path(), false);
    here
}

/// Repeats the command, which succeeds once the link is gone.
fn resume(here: &Path, succeeds: bool) -> serde_json::Value {
    let finished = cp_in(here, &["-aL", "--resume", "--json", "s", "k"]);
    assert_eq!(finished.code(), Some(i32::from(!succeeds)), "{}", finished.stderr);
    finished.receipt()
}

fn marker(here: &Path) -> PathBuf {
    let found = names(&here.join("k"));
    let name = found.iter().find(|name| name.starts_with(".unfinished.")).unwrap();
    here.join("k").join(name)
}

/// Changes the boot id in the marker.
fn another_boot(here: &Path) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = fs::read_to_string(marker(here)).unwrap();
    let other = text.replace(boot.trim(), "00000000-0000-4000-8000-000000000000");
    assert_ne!(text, other);
    fs::write(marker(here), other).unwrap();
}

fn is_right(path: PathBuf) -> bool {
    fs::read(path).unwrap() == noise(LEN)
}

#[test]
fn within_one_boot_size_and_time_are_trusted() {
    let here = unfinished();
    let below = here.path().join("k/below");
    damage(&below.join("two"), 50_000);
    let receipt = resume(here.path(), false);
    assert_eq!((&receipt["resumed"], &receipt["verified"]), (&2.into(), &0.into()), "{receipt}");
    // The bytes are not compared, which would have found the damage.
    assert!(!is_right(below.join("two")));
}

#[test]
fn after_another_boot_existing_files_are_compared_and_repaired() {
    let here = unfinished();
    another_boot(here.path());
    damage(&here.path().join("k/below/two"), 50_000);
    let receipt = resume(here.path(), false);
    assert_eq!((&receipt["files"], &receipt["resumed"]), (&1.into(), &1.into()), "{receipt}");
    assert_eq!(receipt["resumed_bytes"], LEN, "{receipt}");
    assert!(is_right(here.path().join("k/below/two")));
    // That run was incomplete, and may not have reached all files: the next one compares, too.
    damage(&here.path().join("k/one"), 0);
    fs::remove_file(here.path().join("s/below/link")).unwrap();
    resume(here.path(), true);
    assert!(is_right(here.path().join("k/one")));
    assert_eq!(names(&here.path().join("k")), ["below", "one"]);
}

#[test]
fn an_empty_marker_is_not_trusted() {
    // A file without its bytes yet, of which only the length has reached the disk, or not even that.
    for text in ["", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "boot", "boot \n"] {
        let here = unfinished();
        fs::write(marker(here.path()), text).unwrap();
        damage(&here.path().join("k/one"), 0);
        resume(here.path(), false);
        assert!(is_right(here.path().join("k/one")), "{text:?}");
        // It still tells which folder is meant.
        assert_eq!(names(here.path()), ["k", "s"]);
    }
}

#[test]
fn a_copy_without_a_marker_is_compared() {
    for (first, again) in [
        (["-aL", "s", "k"].as_slice(), ["-aLT", "--resume", "s", "k"].as_slice()),
        (&["-aL", "s/one", "k"], &["-aL", "--resume", "s/one", "k"]),
        (&["-aLT", "--resume", "s", "k"], &["-aLT", "--resume", "s", "k"]),
    ] {
        let here = folder();
        fs::create_dir(here.path().join("s")).unwrap();
        noise_file(&here.path().join("s"), "one", LEN);
        cp_in(here.path(), first).succeeded();
        let k = here.path().join("k");
        let one = if k.is_dir() { k.join("one") } else { k };
        damage(&one, 50_000);
        cp_in(here.path(), again).succeeded();
        assert!(is_right(one), "{first:?}");
    }
}

#[test]
fn resume_does_not_trust_files_of_a_run_without_it() {
    let here = unfinished();
    fs::remove_dir_all(here.path().join("k")).unwrap();
    cp_in(here.path(), &["-aL", "s", "k"]).failed(1, &[]);
    for _ in 0..2 {
        damage(&here.path().join("k/one"), 0);
        cp_in(here.path(), &["-aLT", "--resume", "s", "k"]).failed(1, &[]);
        assert!(is_right(here.path().join("k/one")));
    }
}

#[test]
fn every_new_folder_is_trusted_within_one_boot() {
    for words in [["-aL", "s", "t"], ["-aL", "s/.", "t"], ["-aLT", "s", "t"]] {
        let here = unfinished();
        fs::create_dir(here.path().join("t")).unwrap();
        let words = [&words[..], &["--resume", "--json"]].concat();
        cp_in(here.path(), &words).failed(1, &[]);
        let receipt = cp_in(here.path(), &words).failed(1, &[]).receipt();
        let counts = ["files", "resumed", "verified"].map(|name| receipt[name].as_u64().unwrap());
        assert_eq!(counts, [0, 2, 0], "{words:?}");
        fs::remove_file(here.path().join("s/below/link")).unwrap();
        cp_in(here.path(), &words).succeeded();
        let to = if words.contains(&"s/.") || words.contains(&"-aLT") { "t" } else { "t/s" };
        assert_eq!(names(&here.path().join(to)), ["below", "one"], "{words:?}");
    }
}

#[test]
fn a_disk_that_was_taken_out_is_compared_when_it_is_back() {
    let here = unfinished();
    let (k, there) = (here.path().join("k"), here.path().join("there"));
    fs::create_dir(&there).unwrap();
    let text = fs::read_to_string(marker(here.path())).unwrap();
    if text.trim().ends_with(" 0") {
        return skip("this kernel does not number mounts");
    }
    // Another mount of the same file system stands for a new one after it was taken out.
    let bound = Command::new("mount").arg("--bind").args([&k, &there]).status();
    if !bound.is_ok_and(|status| status.success()) {
        return skip("may not mount");
    }
    damage(&k.join("one"), 0);
    let finished = cp_in(here.path(), &["-aLT", "--resume", "s", "there"]);
    assert!(Command::new("umount").arg(&there).status().unwrap().success());
    finished.failed(1, &[]);
    assert!(is_right(k.join("one")));
}

#[test]
fn a_part_of_a_large_file_is_compared_after_another_boot() {
    if !has("strace") {
        return;
    }
    let here = folder();
    let a = noise_file(here.path(), "a", 40 << 20);
    let part = || {
        let strace = ["-e", "trace=sendfile", "-e", "inject=sendfile:signal=KILL:when=30"];
        let words = ["--resume", "--reflink=never", "--step", "1M", "a", "z"];
        let (ended, log) = traced_in(here.path(), &strace, &words);
        assert_eq!(ended.code(), None, "{} {log}", ended.stderr);
        let found = names(here.path()).into_iter().find(|name| name.ends_with(".part"));
        here.path().join(found.unwrap())
    };
    let again = || {
        let receipt = cp_in(here.path(), &["--resume", "--json", "a", "z"]).succeeded().receipt();
        assert_eq!(names(here.path()), ["a", "z"]);
        let resumed = receipt["resumed_bytes"].as_u64().unwrap();
        let moved = receipt["bytes"].as_u64().unwrap();
        (resumed >> 20, moved, receipt["verified_bytes"].clone())
    };
    // What an attribute of the part tells of is resumed as it is, where there are attributes.
    let file = part();
    let name = c"user.underpass.written";
    let mut value = [0; 100];
    let len = rustix::fs::getxattr(&file, name, &mut value).unwrap_or(0);
    if len > 0 {
        let (resumed, ..) = again();
        assert!(resumed >= 16, "{resumed}");
        assert!(fs::read(here.path().join("z")).unwrap() == fs::read(&a).unwrap());
        // The copy does not have it.
        assert!(rustix::fs::getxattr(here.path().join("z"), name, &mut value).is_err());
        fs::remove_file(here.path().join("z")).unwrap();
        let file = part();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&file, name, b"another boot", flags).unwrap();
    }
    let found = names(here.path()).into_iter().find(|name| name.ends_with(".part")).unwrap();
    damage(&here.path().join(found), 10 << 20);
    // What is right of it, up to the first byte that is not, does not have to be copied again.
    let (resumed, moved, _) = again();
    assert!(resumed == 10 || resumed == 9, "{resumed}");
    assert_eq!(moved >> 20, 40 - resumed, "{moved}");
    assert!(fs::read(here.path().join("z")).unwrap() == fs::read(&a).unwrap());
    let mode = fs::metadata(here.path().join("z")).unwrap().permissions().mode();
    assert_eq!(mode, fs::metadata(&a).unwrap().permissions().mode());
}

#[test]
fn a_part_that_cannot_be_read_is_copied_from_the_start() {
    if !has("strace") {
        return;
    }
    let here = folder();
    let a = noise_file(here.path(), "a", 40 << 20);
    let strace = ["-e", "trace=sendfile", "-e", "inject=sendfile:signal=KILL:when=30"];
    let words = ["--resume", "--reflink=never", "--step", "1M", "a", "z"];
    let (ended, log) = traced_in(here.path(), &strace, &words);
    assert_eq!(ended.code(), None, "{} {log}", ended.stderr);
    let part = names(here.path()).into_iter().find(|name| name.ends_with(".part")).unwrap();
    let part = here.path().join(part);
    // It has to be compared, and the disk cannot read it.
    let _ = rustix::fs::removexattr(&part, c"user.underpass.written");
    let strace = ["-P", part.to_str().unwrap(), "-e", "inject=pread64:error=EIO"];
    let (finished, log) = traced_in(here.path(), &strace, &["--resume", "--json", "a", "z"]);
    assert!(log.contains("INJECTED"), "{log}");
    assert_eq!(finished.succeeded().receipt()["resumed_bytes"], 0);
    assert!(fs::read(here.path().join("z")).unwrap() == fs::read(&a).unwrap());
}

#[test]
fn with_sync_the_marker_is_removed_when_everything_is_on_the_disk() {
    if !has("strace") {
        return;
    }
    let here = folder();
    fs::create_dir(here.path().join("s")).unwrap();
    noise_file(&here.path().join("s"), "one", LEN);
    let strace = ["-e", "trace=syncfs,unlinkat"];
    let (ended, log) = traced_in(here.path(), &strace, &["-a", "--resume", "--sync", "s", "k"]);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let at = |what: &str| log.find(what).unwrap_or_else(|| panic!("no {what} in {log}"));
    assert!(at("syncfs(") < at(".unfinished."), "{log}");
    assert_eq!(names(&here.path().join("k")), ["one"]);
}

/// syncfs(2) reports an error to a descriptor that was opened later only if it is new.
#[test]
fn with_sync_each_file_system_is_opened_before_it_is_written_to() {
    if !has("strace") {
        return;
    }
    let Some(mounted) = Mounted::new(FileSystem::Ext4, 16) else { return };
    let here = folder();
    for path in ["s/below", "t/s/below"] {
        fs::create_dir_all(here.path().join(path)).unwrap();
    }
    noise_file(&here.path().join("s"), "one", LEN);
    noise_file(&here.path().join("s/below"), "two", LEN);
    let there = here.path().join("t/s/below");
    let bound = Command::new("mount").arg("--bind").args([&mounted.root(), &there]).status();
    assert!(bound.unwrap().success());
    let strace = ["-y", "-e", "trace=openat,syncfs"];
    let (ended, log) = traced_in(here.path(), &strace, &["-r", "-j1", "--sync", "s", "t"]);
    assert!(Command::new("umount").arg(&there).status().unwrap().success());
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let calls = log.lines().filter_map(|line| line.split_once("syncfs(")?.1.split_once(')'));
    let synced: Vec<_> = calls.map(|(descriptor, _)| descriptor).collect();
    assert_eq!(synced.len(), 2, "{log}");
    for descriptor in synced {
        let folder = descriptor.split_once('<').unwrap().1.trim_end_matches('>');
        let at = |is_it: &dyn Fn(&str) -> bool| log.lines().position(is_it).unwrap();
        let opened = at(&|line| line.ends_with(&format!("= {descriptor}")));
        let in_it = format!("<{folder}");
        let written = at(&|line| line.contains("O_TMPFILE") && line.contains(&in_it));
        assert!(opened < written, "{descriptor}: {log}");
    }
}

#[test]
fn with_sync_a_file_that_is_mounted_on_the_target_is_on_the_disk() {
    if !has("strace") {
        return;
    }
    let Some(mounted) = Mounted::new(FileSystem::Ext4, 16) else { return };
    let here = folder();
    noise_file(here.path(), "s", LEN);
    let (there, file) = (here.path().join("t"), noise_file(&mounted.root(), "file", 1));
    fs::write(&there, "old").unwrap();
    assert!(Command::new("mount").arg("--bind").args([&file, &there]).status().unwrap().success());
    let strace = ["-e", "trace=fsync,syncfs"];
    let (ended, log) = traced_in(here.path(), &strace, &["--sync", "s", "t"]);
    assert!(Command::new("umount").arg(&there).status().unwrap().success());
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert!(log.contains("fsync("), "{log}");
    assert!(is_right(file));
}

#[test]
fn a_file_that_is_about_to_replace_another_one_is_not_removed_as_a_leftover() {
    if !has("strace") {
        return;
    }
    let here = folder();
    for name in ["s", "k"] {
        fs::create_dir(here.path().join(name)).unwrap();
    }
    noise_file(&here.path().join("s"), "one", LEN);
    fs::write(here.path().join("k/one"), "old").unwrap();
    std::thread::scope(|scope| {
        // It has its hidden name for as long as this.
        let calls = "renameat,renameat2";
        let (trace, delay) =
            (format!("trace={calls}"), format!("inject={calls}:delay_enter=3000000"));
        let strace = ["-e".to_owned(), trace, "-e".to_owned(), delay];
        let path = here.path();
        let slow = scope.spawn(move || {
            let strace = strace.each_ref().map(String::as_str);
            traced_in(path, &strace, &["-aT", "s", "k"])
        });
        while names(&path.join("k")).len() == 1 && !slow.is_finished() {
            std::thread::yield_now();
        }
        cp_in(path, &["-aT", "--reflink=never", "s", "k"]).succeeded();
        let (ended, log) = slow.join().unwrap();
        assert_eq!(ended.code(), Some(0), "{} {log}", ended.stderr);
    });
    assert_eq!(names(&here.path().join("k")), ["one"]);
    assert!(is_right(here.path().join("k/one")));
}
