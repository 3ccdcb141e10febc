//! `cp`: here of one file or special source, in the modules of everything else.
//!
//! `UNDERPASS_TEST_FOLDER` is the folder of these tests; `file_systems.rs` sets it.

mod backups;
mod bytes;
mod changing;
mod choices;
mod fallbacks;
mod file_systems;
mod hidden_names;
mod holes;
mod kills;
mod mirror;
mod modes;
mod power;
mod resumed;
mod same_file;
mod sources;
mod stored;
mod strangers;
mod takeover;
mod tree;
mod unfinished;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::rig::{Running, bytes_by, folder, names, noise, noise_file, run, underpass, until};

const LEN: usize = 3 * (1 << 20) + 77;

/// `cp` with these words, in this folder.
fn cp_in(here: &Path, words: &[&str]) -> crate::rig::Finished {
    let mut command = underpass();
    command.arg("cp").args(words).current_dir(here);
    Running::start(command).finish()
}

fn cp(args: &[&str], from: &Path, to: &Path) -> crate::rig::Finished {
    let mut command = underpass();
    command.arg("cp").args(args).arg(from).arg(to);
    Running::start(command).finish()
}

#[test]
fn a_copy_has_the_bytes_mode_and_times_of_the_original() {
    let folder = folder();
    let (from, to) = (noise_file(folder.path(), "from", LEN), folder.path().join("to"));
    fs::set_permissions(&from, fs::Permissions::from_mode(0o640)).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::File::options().write(true).open(&from).unwrap().set_modified(long_ago).unwrap();
    let receipt = cp(&["--json"], &from, &to).succeeded().receipt();
    assert_eq!(receipt["bytes"], LEN);
    assert_eq!(receipt["user_space_bytes"], 0);
    assert_eq!(fs::read(&to).unwrap(), noise(LEN));
    let copy = fs::metadata(&to).unwrap();
    assert_eq!(copy.mode() & 0o7777, 0o640);
    assert_eq!(copy.modified().unwrap(), long_ago);
    assert_eq!(names(folder.path()), ["from", "to"]);
}

#[test]
fn set_user_id_is_not_kept() {
    let folder = folder();
    let (from, to) = (noise_file(folder.path(), "from", 10), folder.path().join("to"));
    fs::set_permissions(&from, fs::Permissions::from_mode(0o6755)).unwrap();
    cp(&[], &from, &to).succeeded();
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn every_available_mechanism_makes_the_same_copy() {
    let folder = folder();
    let from = noise_file(folder.path(), "from", LEN);
    for name in ["copy_file_range", "sendfile", "splice", "mmap", "read_write"] {
        let to = folder.path().join(name);
        let args = ["--json", "--mechanism", name, "--step", "100000"];
        let receipt = cp(&args, &from, &to).succeeded().receipt();
        assert_eq!(bytes_by(&receipt, name), LEN as u64);
        assert_eq!(fs::read(&to).unwrap(), noise(LEN), "{name}");
        let crossings = match name {
            "read_write" => 2,
            "mmap" => 1,
            _ => 0,
        };
        assert_eq!(receipt["user_space_bytes"], crossings * LEN, "{name}");
    }
}

#[test]
fn a_folder_as_target_gets_a_file_of_the_same_name() {
    let folder = folder();
    let from = noise_file(folder.path(), "from", 100);
    let into = folder.path().join("into");
    fs::create_dir(&into).unwrap();
    cp(&[], &from, &into).succeeded();
    assert_eq!(fs::read(into.join("from")).unwrap(), noise(100));
}

#[test]
fn an_existing_file_is_replaced_atomically() {
    let folder = folder();
    let from = noise_file(folder.path(), "from", 100);
    let to = folder.path().join("to");
    fs::write(&to, "old").unwrap();
    let old = fs::File::open(&to).unwrap();
    let kept = cp(&["--no-clobber", "--json"], &from, &to).succeeded().receipt();
    assert_eq!((&kept["kept"], &kept["files"]), (&1.into(), &0.into()));
    assert_eq!(fs::read(&to).unwrap(), b"old");
    cp(&[], &from, &to).succeeded();
    assert_eq!(fs::read(&to).unwrap(), noise(100));
    assert_eq!(std::io::read_to_string(old).unwrap(), "old");
    assert_eq!(names(folder.path()), ["from", "to"]);
}

#[test]
fn a_link_as_target_is_followed_and_stays() {
    let folder = folder();
    let from = noise_file(folder.path(), "from", 100);
    let (real, link) = (folder.path().join("real"), folder.path().join("link"));
    fs::write(&real, "old").unwrap();
    symlink("real", &link).unwrap();
    cp(&[], &from, &link).succeeded();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(&real).unwrap(), noise(100));
}

#[test]
fn holes_stay_holes() {
    let folder = folder();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let file = fs::File::create(&from).unwrap();
    file.set_len(5 << 30).unwrap();
    for at in [1 << 20, (3 << 30) + 5, (5 << 30) - 10] {
        std::os::unix::fs::FileExt::write_all_at(&file, b"0123456789", at).unwrap();
    }
    let receipt = cp(&["--json"], &from, &to).succeeded().receipt();
    let (original, copy) = (fs::metadata(&from).unwrap(), fs::metadata(&to).unwrap());
    assert_eq!(copy.len(), original.len());
    assert!(copy.blocks() <= original.blocks(), "{} blocks", copy.blocks());
    // A clone is made in one call, with its holes.
    let is_clone = bytes_by(&receipt, "reflink") > 0;
    assert!(is_clone || receipt["bytes"].as_u64().unwrap() < 1 << 20, "{receipt}");
    let file = fs::File::open(&to).unwrap();
    for at in [1 << 20, (3 << 30) + 5, (5 << 30) - 10] {
        let mut bytes = [0; 10];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, at).unwrap();
        assert_eq!(&bytes, b"0123456789", "at {at}");
    }
}

#[test]
fn special_sources_are_read_to_their_end() {
    let folder = folder();
    let to = folder.path().join("to");
    cp(&[], Path::new("/proc/version"), &to).succeeded();
    assert_eq!(fs::read(&to).unwrap(), fs::read("/proc/version").unwrap());
    cp(&[], Path::new("/dev/null"), &to).succeeded();
    assert_eq!(fs::read(&to).unwrap(), b"");
    // The size of a file of sysfs is a page, whatever it says.
    let sysfs = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    if sysfs.exists() {
        let receipt = cp(&["--json"], sysfs, &to).succeeded().receipt();
        let bytes = fs::read(sysfs).unwrap();
        assert_eq!(fs::read(&to).unwrap(), bytes);
        // They were read into a buffer first, and then moved by the kernel.
        assert!(receipt["user_space_bytes"].as_u64().unwrap() >= bytes.len() as u64, "{receipt}");
    }
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let writer = {
        let fifo = fifo.clone();
        std::thread::spawn(move || fs::write(fifo, noise(LEN)).unwrap())
    };
    let receipt = cp(&["--json"], &fifo, &to).succeeded().receipt();
    writer.join().unwrap();
    assert_eq!(bytes_by(&receipt, "splice"), LEN as u64);
    assert_eq!(fs::read(&to).unwrap(), noise(LEN));
}

#[test]
fn device_times_are_copied_only_on_request() {
    let folder = folder();
    for (args, is_new) in [
        (&["/dev/null"][..], true),
        (&["-"], true),
        (&["--preserve=timestamps", "/dev/null"], false),
        (&["--preserve=timestamps", "-"], false),
    ] {
        let to = folder.path().join("to");
        let mut command = underpass();
        command.arg("cp").args(args).arg(&to).stdin(Stdio::null());
        Running::start(command).finish().succeeded();
        let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        assert_eq!(time(&to) > time(Path::new("/dev/null")), is_new, "{args:?}");
    }
}

#[test]
fn dashes_are_standard_input_and_output() {
    let folder = folder();
    let from = noise_file(folder.path(), "from", LEN);
    let to = folder.path().join("to");
    assert_eq!(cp(&[], &from, Path::new("-")).succeeded().stdout, noise(LEN));
    let mut command = underpass();
    command.args(["cp", "-q", "-"]).arg(&to).stdin(Stdio::piped());
    let mut copy = Running::start(command);
    copy.child.stdin.take().unwrap().write_all(&noise(LEN)).unwrap();
    copy.finish().succeeded();
    assert_eq!(fs::read(&to).unwrap(), noise(LEN));
}

#[test]
fn an_appending_standard_output_gets_its_bytes_at_the_end() {
    let folder = folder();
    let from = noise_file(folder.path(), "from", LEN);
    let to = folder.path().join("to");
    fs::write(&to, "first").unwrap();
    let mut command = underpass();
    command.args(["cp", "--explain"]).arg(&from).arg("-");
    command.stdout(fs::File::options().append(true).open(&to).unwrap());
    let finished = Running::start(command).finish().succeeded();
    assert!(finished.stderr.contains("by read_write"), "{}", finished.stderr);
    assert_eq!(fs::read(&to).unwrap(), [b"first".to_vec(), noise(LEN)].concat());
}

#[test]
fn a_full_disk_is_one_clear_line_and_leaves_nothing() {
    let folder = folder();
    let from = noise_file(folder.path(), "from", 2 << 20);
    let to = folder.path().join("to");
    // A limit on the size of files stands for a full disk.
    for args in [&["cp"][..], &["cp", "--in-place"]] {
        let mut command = crate::rig::limited("-f 16");
        command.args(args).arg(&from).arg(&to);
        Running::start(command).finish().failed(1, &["copying", "to", "File too large"]);
        assert_eq!(names(folder.path()), ["from"], "{args:?}");
    }
    let finished = cp(&[], &from, Path::new("/dev/full"));
    finished.failed(1, &["/dev/full", "No space left", "disk is full"]);
}

#[test]
fn a_preferred_mechanism_is_tried_first_and_may_be_declined() {
    let folder = folder();
    let to = folder.path().join("to");
    let args = ["--prefer", "copy_file_range", "--json"];
    let receipt = cp(&args, Path::new("/proc/version"), &to).succeeded().receipt();
    assert_eq!(receipt["declined"][0]["mechanism"], "copy_file_range");
    assert_eq!(receipt["declined"][0]["at"], 0);
    assert!(bytes_by(&receipt, "sendfile") > 0);
}

#[test]
fn an_interrupted_copy_leaves_no_trace() {
    let folder = folder();
    let to = folder.path().join("to");
    fs::write(&to, "old").unwrap();
    for signal in ["INT", "TERM", "KILL"] {
        let mut command = underpass();
        command.args(["cp", "/dev/zero"]).arg(&to);
        let copy = Running::start(command);
        // SIGINT is ignored until a command handles it, if a shell has started it with &.
        let files = format!("/proc/{}/fd", copy.child.id());
        until("the source is open", || {
            let mut open = fs::read_dir(&files).unwrap().flatten();
            open.any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == Path::new("/dev/zero")))
        });
        copy.signal(signal);
        assert_ne!(copy.finish().code(), Some(0));
        assert_eq!(names(folder.path()), ["to"]);
        assert_eq!(fs::read(&to).unwrap(), b"old");
    }
}

#[test]
fn quiet_prints_nothing_and_explain_prints_the_path() {
    let folder = folder();
    let from = noise_file(folder.path(), "from", 1000);
    let to = folder.path().join("to");
    assert_eq!(cp(&["-q"], &from, &to).succeeded().stderr, "");
    let stderr = cp(&["--explain"], &from, &to).succeeded().stderr;
    for word in ["receipt", "moved", "1,000 bytes", "user space", "processor", "switches"] {
        assert!(stderr.contains(word), "{stderr}");
    }
    assert!(
        run(["cp", "--explain", "-q", "/dev/null", "-"]).succeeded().stderr.contains("receipt")
    );
}

#[test]
fn the_guide_tells_every_option() {
    crate::rig::assert_guide_has_options("cp");
}
