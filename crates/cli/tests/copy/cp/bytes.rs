//! The bytes of copies: holes, verification, resumption, and originals that change meanwhile.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use underpass_testkit::mounts::{FileSystem, Mounted};
use underpass_testkit::{is_root, skip};

use crate::cp::cp_in;
use crate::rig::{
    Finished, Running, bytes_by, folder, has, names, noise, noise_file, traced, underpass,
};

const MIB: usize = 1 << 20;

/// `cp` under strace with these options; what strace saw is in the file `trace` beside the folder.
pub(crate) fn traced_in(here: &Path, strace: &[&str], words: &[&str]) -> (Finished, String) {
    let elsewhere = folder();
    let log = elsewhere.path().join("trace");
    let mut command = traced(&log, strace);
    command.arg("cp").args(words).current_dir(here);
    let finished = Running::start(command).finish();
    (finished, fs::read_to_string(log).unwrap_or_default())
}

/// A file `a` of so many MiB with data in its first and last block alone, and some zeros.
fn sparse(here: &Path, mebibytes: u64) -> u64 {
    let file = File::create(here.join("a")).unwrap();
    file.set_len(mebibytes << 20).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.write_all_at(&[0; 65_536], 1 << 20).unwrap();
    file.write_all_at(b"end", (mebibytes << 20) - 3).unwrap();
    file.sync_all().unwrap();
    file.metadata().unwrap().blocks()
}

#[test]
fn bytes_that_were_read_but_not_written_are_counted() {
    if !has("strace") {
        return;
    }
    let here = folder();
    fs::write(here.path().join("a"), noise(5000)).unwrap();
    let source = here.path().join("a").canonicalize().unwrap();
    let of_source = ["-P", source.to_str().unwrap(), "-e", "inject=pread64:error=EIO"];
    for (strace, option, expected) in [
        (&["-e", "inject=pwrite64:error=EIO"][..], "--sparse=always", 5000),
        (&of_source, "--verify", 15_000),
    ] {
        let (finished, _) = traced_in(here.path(), strace, &["--json", option, "a", "z"]);
        assert_eq!(finished.code(), Some(1), "{option}: {}", finished.stderr);
        assert_eq!(finished.receipt()["user_space_bytes"], expected, "{option}");
        assert_eq!(names(here.path()), ["a"], "{option}");
    }
}

#[test]
fn the_sparse_option_decides_which_holes_are_made() {
    let here = folder();
    let before = sparse(here.path(), 64);
    let blocks = |name: &str| {
        let file = File::open(here.path().join(name)).unwrap();
        file.sync_all().unwrap();
        assert!(
            fs::read(here.path().join(name)).unwrap() == fs::read(here.path().join("a")).unwrap()
        );
        file.metadata().unwrap().blocks()
    };
    for name in ["auto", "never", "always"] {
        let receipt =
            cp_in(here.path(), &["--sparse", name, "--json", "a", name]).succeeded().receipt();
        let surfaced = receipt["user_space_bytes"].as_u64().unwrap();
        match name {
            "auto" => {
                assert!(blocks(name) <= before && blocks(name) > 100, "{}", blocks(name));
                assert_eq!(surfaced, 0);
                let holes = receipt["hole_bytes"].as_u64().unwrap();
                // A clone has the holes, too, but the program did not search for them.
                assert!(holes > 60 << 20 || bytes_by(&receipt, "reflink") > 0, "{receipt}");
            }
            "never" => assert!(blocks(name) >= (64 << 20) / 512),
            // Zeros that are not a hole are found by looking at them, and the receipt says so.
            _ => {
                assert!(blocks(name) < 100, "{}", blocks(name));
                assert!((65_536..1 << 20).contains(&surfaced), "{receipt}");
            }
        }
    }
    let finished = cp_in(here.path(), &["--sparse", "always", "--reflink=always", "a", "z"]);
    finished.failed(2, &["holes"]);
    for mechanism in ["copy_file_range", "reflink"] {
        let words = ["--sparse", "never", "--mechanism", mechanism, "a", "y"];
        cp_in(here.path(), &words).failed(2, &["holes", "--sparse never", "--mechanism"]);
        assert!(!here.path().join("y").exists(), "{mechanism}");
    }
}

#[test]
fn never_sharing_means_no_call_that_could() {
    if !has("strace") {
        return;
    }
    let here = folder();
    noise_file(here.path(), "a", MIB);
    let trace = ["-e", "trace=ioctl,copy_file_range,sendfile"];
    let (finished, calls) =
        traced_in(here.path(), &trace, &["--reflink=never", "--json", "a", "z"]);
    assert_eq!(bytes_by(&finished.succeeded().receipt(), "sendfile"), MIB as u64);
    assert!(!calls.contains("copy_file_range") && !calls.contains("CLONE"), "{calls}");
    let finished = cp_in(here.path(), &["--reflink", "a", "y"]);
    if finished.code() != Some(0) {
        finished.failed(1, &["copying a to y", "reflink"]);
        assert_eq!(names(here.path()), ["a", "z"]);
    }
}

#[test]
fn a_file_with_holes_is_copied_where_a_snapshot_is_refused() {
    let Some(mounted) = Mounted::new(FileSystem::Ext4, 16) else { return };
    let here = mounted.root();
    let blocks = sparse(&here, 64);
    let done = cp_in(&here, &["--integrity", "snapshot", "a", "z"]).succeeded();
    assert!(done.stderr.contains("snapshot was refused"), "{}", done.stderr);
    assert!(fs::read(here.join("a")).unwrap() == fs::read(here.join("z")).unwrap());
    assert_eq!(fs::metadata(here.join("z")).unwrap().blocks(), blocks);
    cp_in(&here, &["--integrity", "snapshot", "--reflink=always", "a", "y"]).failed(1, &["a"]);
    cp_in(&here, &["--reflink=always", "a", "y"]).failed(1, &["leave out --reflink=always or"]);
}

#[test]
fn copies_are_compared() {
    let here = folder();
    fs::create_dir(here.path().join("a")).unwrap();
    for (name, len) in [("none", 0), ("small", 5000), ("large", MIB + 4097)] {
        noise_file(&here.path().join("a"), name, len);
    }
    for how in ["--verify", "--verify=cache", "--verify=direct"] {
        let receipt = cp_in(here.path(), &["-r", how, "--json", "a", "z"]).succeeded().receipt();
        assert_eq!((&receipt["verified"], &receipt["failed"]), (&3.into(), &0.into()), "{how}");
        assert_eq!(receipt["verified_bytes"], 5000 + MIB + 4097);
        fs::remove_dir_all(here.path().join("z")).unwrap();
    }
}

#[test]
fn a_disk_that_cannot_be_read_directly_is_read_through_the_cache() {
    if !has("strace") {
        return;
    }
    let here = folder();
    noise_file(here.path(), "a", 5000);
    let target = noise_file(here.path(), "z", 1);
    let refused = ["-P", target.to_str().unwrap(), "-e", "inject=pread64:error=EINVAL:when=1"];
    let words = ["--in-place", "--verify=direct", "--json", "a", "z"];
    let (finished, log) = traced_in(here.path(), &refused, &words);
    assert_eq!(finished.succeeded().receipt()["verified_bytes"], 5000);
    assert!(log.contains("INJECTED"), "{log}");
}

#[test]
fn in_place_targets_are_opened_without_o_creat() {
    if !has("strace") {
        return;
    }
    // The kernel may refuse O_CREAT for a file of another user that anyone may write to.
    let here = folder();
    noise_file(here.path(), "a", 5000);
    noise_file(here.path(), "z", 1);
    let (finished, log) =
        traced_in(here.path(), &["-e", "trace=openat"], &["--in-place", "a", "z"]);
    finished.succeeded();
    let opened: Vec<_> = log.lines().filter(|line| line.contains("\"z\"")).collect();
    assert!(opened.iter().any(|line| line.contains("O_RDWR")), "{log}");
    assert!(!opened.iter().any(|line| line.contains("O_CREAT")), "{log}");
    cp_in(here.path(), &["--in-place", "a", "new"]).succeeded();
    assert_eq!(fs::read(here.path().join("new")).unwrap(), noise(5000));
}

#[test]
fn a_redirected_file_with_holes_is_read_from_its_cursor_to_its_end() {
    for (begin, data) in [(0, true), (4096, true), (5000, true), (40 << 20, false)] {
        let here = folder();
        sparse(here.path(), 64);
        let mut input = File::open(here.path().join("a")).unwrap();
        if !data {
            File::options()
                .write(true)
                .open(here.path().join("a"))
                .unwrap()
                .set_len(63 << 20)
                .unwrap();
        }
        input.seek(SeekFrom::Start(begin)).unwrap();
        let mut command = underpass();
        command.args(["cp", "-q", "-", "z"]).current_dir(here.path());
        command.stdin(input.try_clone().unwrap());
        Running::start(command).finish().succeeded();
        let a = fs::read(here.path().join("a")).unwrap();
        let z = fs::read(here.path().join("z")).unwrap();
        assert!(z == a[begin as usize..], "{begin}");
        assert!(fs::metadata(here.path().join("z")).unwrap().blocks() < 1024, "{begin}");
        // The next command of a script continues there.
        assert_eq!(input.stream_position().unwrap(), a.len() as u64, "{begin}");
    }
}

#[test]
fn verify_skips_holes_that_both_files_have() {
    let here = folder();
    sparse(here.path(), 64);
    let len = fs::metadata(here.path().join("a")).unwrap().len();
    let receipt = cp_in(here.path(), &["--verify", "--json", "a", "z"]).succeeded().receipt();
    assert_eq!(receipt["verified_bytes"], len);
    let read = receipt["user_space_bytes"].as_u64().unwrap();
    assert!((1..len / 2).contains(&read), "{read} of {len} bytes");
}

#[test]
fn a_wrong_copy_is_found_and_gets_no_name() {
    if !has("strace") {
        return;
    }
    for hole in [0, 8 << 20] {
        let here = folder();
        let file = File::create(here.path().join("a")).unwrap();
        file.write_all_at(&noise(5000), hole).unwrap();
        // A disk that loses a write, which the kernel reports as done.
        let lost = ["-e", "trace=sendfile", "-e", "inject=sendfile:retval=5000"];
        let words = ["--verify", "--mechanism", "sendfile", "a", "z"];
        let (finished, _) = traced_in(here.path(), &lost, &words);
        finished.failed(1, &["comparing a with its copy z", &format!("byte {hole}")]);
        assert_eq!(names(here.path()), ["a"]);
    }
}

#[test]
fn a_run_resumes_where_another_was_interrupted() {
    if !has("strace") {
        return;
    }
    let here = folder();
    let a = here.path().join("a");
    fs::create_dir(&a).unwrap();
    noise_file(&a, "small", 5000);
    noise_file(&a, "large", 40 * MIB);
    // Killed in the middle of the large file, by SIGKILL.
    let strace = ["-e", "trace=sendfile", "-e", "inject=sendfile:signal=KILL:when=20"];
    let words = ["-a", "--resume", "--reflink=never", "--step", "1M", "-j1", "a", "z"];
    let (ended, log) = traced_in(here.path(), &strace, &words);
    assert_eq!(ended.code(), None, "{} {log}", ended.stderr);
    assert!(!here.path().join("z/large").exists());
    let receipt =
        cp_in(here.path(), &["-aT", "--resume", "--json", "a", "z"]).succeeded().receipt();
    let resumed = receipt["resumed_bytes"].as_u64().unwrap();
    assert!(resumed >= 16 << 20, "{receipt}");
    assert_eq!(receipt["bytes"].as_u64().unwrap() + resumed, 40 * MIB as u64 + 5000);
    assert!(fs::read(here.path().join("z/large")).unwrap() == noise(40 * MIB));
    assert_eq!(names(&here.path().join("z")), ["large", "small"]);
    assert_eq!(names(here.path()), ["a", "z"]);
    // Another version of the original starts over, and what is whole is left alone.
    let receipt =
        cp_in(here.path(), &["-aT", "--resume", "--json", "a", "z"]).succeeded().receipt();
    assert_eq!((&receipt["resumed"], &receipt["bytes"]), (&2.into(), &0.into()));
    fs::write(a.join("small"), "other").unwrap();
    let receipt =
        cp_in(here.path(), &["-aT", "--resume", "--json", "a", "z"]).succeeded().receipt();
    assert_eq!((&receipt["resumed"], &receipt["bytes"]), (&1.into(), &5.into()));
}

#[test]
fn a_part_is_not_continued_with_other_bytes_of_the_same_time() {
    if !has("strace") {
        return;
    }
    let here = folder();
    let a = noise_file(here.path(), "a", 40 * MIB);
    let strace = ["-e", "trace=sendfile", "-e", "inject=sendfile:signal=KILL:when=20"];
    let words = ["--resume", "--reflink=never", "--step", "1M", "a", "z"];
    let (ended, log) = traced_in(here.path(), &strace, &words);
    assert_eq!(ended.code(), None, "{} {log}", ended.stderr);
    let file = File::options().write(true).open(&a).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(&vec![7; 40 * MIB], 0).unwrap();
    file.set_modified(time).unwrap();
    let receipt = cp_in(here.path(), &["--resume", "--json", "a", "z"]).succeeded().receipt();
    assert_eq!(receipt["resumed_bytes"], 0);
    assert!(fs::read(here.path().join("z")).unwrap() == vec![7; 40 * MIB]);
    assert_eq!(names(here.path()), ["a", "z"]);
}

#[test]
fn a_file_with_holes_that_is_open_for_writing_is_examined_once() {
    if !has("strace") {
        return;
    }
    let here = folder();
    let file = File::create(here.path().join("a")).unwrap();
    for number in 0..8 {
        file.write_all_at(&[1; 4096], number << 20).unwrap();
    }
    let strace = ["-e", "trace=fcntl"];
    let (finished, log) = traced_in(here.path(), &strace, &["--reflink=never", "a", "z"]);
    finished.succeeded();
    let leases = log.lines().filter(|line| line.contains("F_SETLEASE, F_RDLCK"));
    // Overlayfs gives none.
    assert!(leases.count() <= 1, "{log}");
}

#[test]
fn with_sync_the_name_of_a_stream_is_on_the_disk_too() {
    if !has("strace") {
        return;
    }
    let (here, elsewhere) = (folder(), folder());
    noise_file(here.path(), "a", MIB);
    fs::write(here.path().join("old"), "old").unwrap();
    for target in ["new", "old"] {
        let log = elsewhere.path().join("trace");
        let mut command = traced(&log, &["-e", "trace=fsync,linkat,renameat,renameat2"]);
        command.args(["cp", "-q", "--sync", "-", target]).current_dir(here.path());
        command.stdin(File::open(here.path().join("a")).unwrap());
        Running::start(command).finish().succeeded();
        let log = fs::read_to_string(log).unwrap();
        let is_traced =
            |line: &&str| ["fsync(", "linkat(", "rename"].iter().any(|call| line.contains(call));
        let calls: Vec<_> = log.lines().filter(is_traced).collect();
        assert!(calls.first().unwrap().contains("fsync("), "{log}");
        assert!(calls.last().unwrap().contains("fsync("), "{log}");
        assert!(calls.len() > 2, "{log}");
    }
}

#[test]
fn resume_with_verify_compares_files_that_look_the_same() {
    let here = folder();
    noise_file(here.path(), "a", 5000);
    fs::write(here.path().join("z"), vec![0; 5000]).unwrap();
    let time = fs::metadata(here.path().join("a")).unwrap().modified().unwrap();
    let z = File::options().write(true).open(here.path().join("z")).unwrap();
    z.set_modified(time).unwrap();
    cp_in(here.path(), &["--resume", "--verify", "a", "z"]).succeeded();
    assert_eq!(fs::read(here.path().join("z")).unwrap(), noise(5000));
}

#[test]
fn in_place_means_the_same_file() {
    let here = folder();
    noise_file(here.path(), "a", 5000);
    fs::write(here.path().join("z"), vec![0; 9000]).unwrap();
    fs::hard_link(here.path().join("z"), here.path().join("also")).unwrap();
    cp_in(here.path(), &["--in-place", "a", "z"]).succeeded();
    assert_eq!(fs::read(here.path().join("also")).unwrap(), noise(5000));
}

#[test]
fn holes_are_left_in_place_too() {
    let here = folder();
    let before = sparse(here.path(), 64);
    for mechanism in ["auto", "never"] {
        fs::write(here.path().join("z"), vec![1; 9000]).unwrap();
        let words = ["--in-place", "--reflink", "--json", "a", "z"];
        let words = words.map(|word| match word {
            "--reflink" if mechanism == "never" => "--reflink=never",
            "--reflink" => "--reflink=auto",
            word => word,
        });
        cp_in(here.path(), &words).succeeded();
        let z = File::open(here.path().join("z")).unwrap();
        z.sync_all().unwrap();
        assert!(z.metadata().unwrap().blocks() <= before, "{mechanism}");
        let (a, z) = (fs::read(here.path().join("a")), fs::read(here.path().join("z")));
        assert!(a.unwrap() == z.unwrap(), "{mechanism}");
    }
}

#[test]
fn a_program_that_runs_is_replaced_but_not_written_into() {
    let here = folder();
    fs::copy("/bin/sleep", here.path().join("z")).unwrap();
    noise_file(here.path(), "a", 5000);
    let mut running = Command::new(here.path().join("z")).arg("60").spawn().unwrap();
    let refused = cp_in(here.path(), &["--in-place", "a", "z"]);
    let replaced = cp_in(here.path(), &["a", "z"]);
    running.kill().unwrap();
    running.wait().unwrap();
    refused.failed(1, &["z", "Text file busy", "--force"]);
    replaced.succeeded();
    assert_eq!(fs::read(here.path().join("z")).unwrap(), noise(5000));
}

#[test]
fn an_appending_standard_output_gets_the_bytes_at_its_end() {
    let here = folder();
    noise_file(here.path(), "a", 5000);
    let mut command = underpass();
    command.args(["cp", "a", "-"]).current_dir(here.path());
    fs::write(here.path().join("z"), "first").unwrap();
    command.stdout(File::options().append(true).open(here.path().join("z")).unwrap());
    Running::start(command).finish().succeeded();
    assert_eq!(fs::read(here.path().join("z")).unwrap(), [b"first".to_vec(), noise(5000)].concat());
}

#[test]
fn a_file_that_shrinks_meanwhile_fails_and_the_rest_is_copied() {
    if !has("strace") {
        return;
    }
    // The end comes before the reported length, as if the file had been truncated.
    for (len, mechanism) in [(5000, "auto"), (5000, "sendfile"), (5 * MIB, "auto")] {
        let here = folder();
        fs::create_dir(here.path().join("a")).unwrap();
        let file = noise_file(&here.path().join("a"), "file", len);
        noise_file(&here.path().join("a"), "other", 10);
        let inject = "inject=read,pread64,copy_file_range,sendfile:retval=0";
        let strace = ["-P", file.to_str().unwrap(), "-e", inject];
        let mut words = vec!["-r", "a", "z"];
        match mechanism {
            // A clone has all bytes at once.
            "auto" => words.push("--reflink=never"),
            _ => words.extend(["--mechanism", mechanism]),
        }
        let (finished, log) = traced_in(here.path(), &strace, &words);
        assert_eq!(finished.code(), Some(1), "{} {log}", finished.stderr);
        assert!(finished.stderr.contains("truncated"), "{}", finished.stderr);
        assert_eq!(names(&here.path().join("z")), ["other"]);
    }
}

#[test]
fn a_file_that_is_longer_than_it_was_is_cut_where_it_ended() {
    // A file of procfs says 0 and has more; one that grows has what it had when it was opened.
    let here = folder();
    cp_in(here.path(), &["/proc/self/limits", "/proc/version", "."]).succeeded();
    assert_eq!(fs::read(here.path().join("version")).unwrap(), fs::read("/proc/version").unwrap());
    assert!(fs::read_to_string(here.path().join("limits")).unwrap().contains("Max open files"));
    let mut command = underpass();
    command.args(["cp", "-r", "--json", "/proc/sys/kernel/random", "z"]).current_dir(here.path());
    let finished = Running::start(command).finish();
    assert_eq!(fs::read(here.path().join("z/boot_id")).unwrap().len(), 37, "{}", finished.stderr);
}

#[test]
fn files_without_a_size_are_read_to_their_end_on_all_file_systems() {
    let script = r#"mkdir binfmt queues; mount -t binfmt_misc none binfmt || exit 77
        mount -t mqueue none queues || exit 77
        : >queues/one; : >empty
        for file in binfmt/status queues/one empty; do
            cat $file >there
            "$0" cp $file here; cmp there here
            "$0" cp -aT $file here; cmp there here
            "$0" cp - here <$file; cmp there here
            "$0" cp --mechanism read_write $file here; cmp there here
            "$0" cp $file - | cmp there -
        done"#;
    let here = folder();
    let mut command = Command::new("unshare");
    command.args(["-m", "-i", "sh", "-ec", script, env!("CARGO_BIN_EXE_underpass")]);
    let finished = command.current_dir(here.path()).output().unwrap();
    let said = String::from_utf8_lossy(&finished.stderr);
    match finished.status.code() {
        Some(77 | 1) if !is_root() || said.contains("mount:") => skip("nothing can be mounted"),
        code => assert_eq!(code, Some(0), "{said}"),
    }
}

#[test]
fn refusals_of_odd_file_systems_are_no_failures() {
    if !has("strace") {
        return;
    }
    // The errors of CIFS, NFS, overlays and containers in the field.
    for errno in ["EIO", "ENOENT", "EXDEV", "EOPNOTSUPP", "EPERM", "EINVAL", "ENOSYS"] {
        let here = folder();
        noise_file(here.path(), "a", MIB);
        let inject = format!("inject=copy_file_range:error={errno}");
        let strace = ["-e", "trace=copy_file_range", "-e", &inject];
        let (finished, _) =
            traced_in(here.path(), &strace, &["--json", "--prefer", "copy_file_range", "a", "z"]);
        let receipt = finished.succeeded().receipt();
        assert_eq!(receipt["declined"][0]["errno"], errno);
        assert_eq!(bytes_by(&receipt, "sendfile") + bytes_by(&receipt, "reflink"), MIB as u64);
        assert_eq!(fs::read(here.path().join("z")).unwrap(), noise(MIB));
    }
}

#[test]
fn lost_permissions_are_reported_and_the_rest_is_copied() {
    if !has("strace") {
        return;
    }
    let here = folder();
    fs::create_dir_all(here.path().join("a")).unwrap();
    for number in 0..20 {
        noise_file(&here.path().join("a"), &format!("file-{number}"), 100);
    }
    let inject = "inject=openat:error=EACCES:when=40..42";
    let strace = ["-e", "trace=openat", "-e", inject];
    let (finished, log) = traced_in(here.path(), &strace, &["-r", "-j1", "--json", "a", "z"]);
    assert_eq!(finished.code(), Some(1), "{log}");
    let receipt = finished.receipt();
    let (files, failed) = (receipt["files"].as_u64().unwrap(), receipt["failed"].as_u64().unwrap());
    assert_eq!((files + failed, failed > 0), (20, true), "{receipt}");
    assert_eq!(names(&here.path().join("z")).len() as u64, files);
    assert!(receipt["errors"][0].as_str().unwrap().contains("Permission denied"), "{receipt}");
}

#[test]
fn in_place_writes_only_into_regular_files() {
    let here = folder();
    for name in ["a", "t"] {
        fs::create_dir(here.path().join(name)).unwrap();
    }
    for name in ["a/fifo", "a/link", "g"] {
        fs::write(here.path().join(name), name).unwrap();
    }
    let made = Command::new("mkfifo").arg(here.path().join("t/fifo")).status();
    assert!(made.unwrap().success());
    std::os::unix::fs::symlink("../g", here.path().join("t/link")).unwrap();
    cp_in(here.path(), &["-rfT", "--in-place", "a", "t"]).succeeded();
    for name in ["fifo", "link"] {
        let path = here.path().join("t").join(name);
        assert!(fs::symlink_metadata(&path).unwrap().is_file(), "{name}");
        assert_eq!(fs::read(&path).unwrap(), format!("a/{name}").as_bytes());
    }
    assert_eq!(fs::read(here.path().join("g")).unwrap(), b"g");
}
