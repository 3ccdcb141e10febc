//! The doctor's verdict on two ends agrees with the commands.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{diagnosis, doctor, finding};
use crate::rig::{Running, folder, noise_file, receiver, sender, underpass, until};
use underpass_testkit::mounts::{FileSystem, Mounted};

const ALL: [FileSystem; 5] =
    [FileSystem::Btrfs, FileSystem::Ext4, FileSystem::Overlay, FileSystem::Tmpfs, FileSystem::Xfs];

/// More than the doctor tries with.
const LARGE: usize = (3 << 20) + 1234;

/// The mechanisms that moved bytes, and those that declined before: both must agree on these.
fn story(receipt: &Value) -> (Vec<&str>, Vec<(&str, &str)>) {
    let moved = receipt["mechanisms"].as_array().unwrap();
    let declined = receipt["declined"].as_array().unwrap();
    let moved = moved.iter().map(|each| each["name"].as_str().unwrap()).collect();
    let declined = declined
        .iter()
        .map(|each| (each["mechanism"].as_str().unwrap(), each["errno"].as_str().unwrap()));
    (moved, declined.collect())
}

/// Compares what the doctor says of a copy with the copy.
#[track_caller]
fn agrees_with_cp(from: &Path, folder: &Path) -> String {
    let diagnosis = doctor(from, folder.to_str().unwrap());
    let to = folder.join("copy");
    let mut command = underpass();
    command.args(["cp", "--json"]).arg(from).arg(&to);
    let receipt = Running::start(command).finish().succeeded().receipt();
    fs::remove_file(to).unwrap();
    assert_eq!(story(&diagnosis["pair"]["receipt"]), story(&receipt), "{from:?} to {folder:?}");
    let crosses = |receipt: &Value| receipt["user_space_bytes"] != 0;
    // A file of sysfs is shorter than it says: cp has read it when it finds that.
    let is_read_twice = from.starts_with("/sys");
    assert_eq!(crosses(&diagnosis["pair"]["receipt"]) || is_read_twice, crosses(&receipt));
    diagnosis["pair"]["way"].as_str().unwrap_or_default().to_owned()
}

/// Compares what the doctor says of sending with sending.
#[track_caller]
fn agrees_with_send(from: &Path) -> String {
    let diagnosis = doctor(from, "127.0.0.1");
    let receiver = receiver(&["-q", "--force"], Path::new("/dev/null"));
    let receipt = sender(&["--json"], from, &receiver.address).finish().succeeded().receipt();
    receiver.finish().succeeded();
    assert_eq!(story(&diagnosis["pair"]["receipt"]), story(&receipt), "{from:?}");
    diagnosis["pair"]["way"].as_str().unwrap_or_default().to_owned()
}

/// Every kind that can be mounted here.
fn mounted() -> Vec<(FileSystem, Mounted)> {
    ALL.into_iter().filter_map(|kind| Some((kind, Mounted::new(kind, 64)?))).collect()
}

#[test]
fn the_doctor_agrees_with_cp_within_and_between_all_file_systems() {
    let mounted = mounted();
    for (kind, from) in &mounted {
        let large = noise_file(&from.root(), "large", LARGE);
        let small = noise_file(&from.root(), "small", 5_000);
        let sparse = sparse(&from.root());
        assert_eq!(agrees_with_send(&large), "sendfile", "{kind:?}");
        assert_eq!(agrees_with_send(&small), "sendfile", "{kind:?}");
        for (to_kind, to) in &mounted {
            let way = agrees_with_cp(&large, &to.root());
            let shares = matches!(kind, FileSystem::Btrfs | FileSystem::Xfs);
            let expected = match (kind == to_kind, shares) {
                (true, true) => "reflink",
                (true, false) => "copy_file_range",
                (false, _) => "sendfile",
            };
            assert_eq!(way, expected, "{kind:?} to {to_kind:?}");
            assert_eq!(agrees_with_cp(&small, &to.root()), "read_write", "{kind:?}");
            assert_eq!(agrees_with_cp(&sparse, &to.root()), expected, "{kind:?} to {to_kind:?}");
        }
    }
}

/// A file with bytes at its beginning, and a hole behind them.
fn sparse(folder: &Path) -> PathBuf {
    let path = noise_file(folder, "sparse", 1 << 20);
    File::options().write(true).open(&path).unwrap().set_len(32 << 20).unwrap();
    path
}

#[test]
fn a_folder_stands_for_the_files_in_it() {
    for (kind, from) in mounted() {
        let root = from.root();
        let diagnosis = doctor(&root, root.to_str().unwrap());
        let file = noise_file(&root, "file", LARGE);
        let way = agrees_with_cp(&file, &root);
        assert_eq!(diagnosis["pair"]["way"], way.as_str(), "{kind:?}");
        let name = finding(&diagnosis, "from_file_system")["finding"].as_str().unwrap();
        assert_eq!(name, format!("{kind:?}").to_lowercase());
        let leases = finding(&diagnosis, "lease")["state"].as_str().unwrap();
        // Writers of the file below an overlay or FUSE are not seen.
        let is_indirect = matches!(kind, FileSystem::NoCase | FileSystem::Overlay);
        let expected = if is_indirect { "limited" } else { "best" };
        assert_eq!(leases, expected, "{kind:?}: {diagnosis}");
        let clones = matches!(kind, FileSystem::Btrfs | FileSystem::Xfs);
        let snapshot = finding(&diagnosis, "snapshot")["state"].as_str().unwrap();
        assert_eq!(snapshot == "best", clones, "{kind:?}: {diagnosis}");
        assert_eq!(finding(&diagnosis, "unnamed_file")["state"], "best", "{kind:?}: {diagnosis}");
    }
}

#[test]
fn a_file_system_that_is_read_only_is_only_a_source() {
    let Some(mounted) = Mounted::new(FileSystem::Ext4, 16) else { return };
    let root = mounted.root();
    let file = noise_file(&root, "file", LARGE);
    let remount = ["-o", "remount,ro"];
    assert!(Command::new("mount").args(remount).arg(&root).status().unwrap().success());
    assert_eq!(agrees_with_send(&file), "sendfile");
    let elsewhere = folder();
    agrees_with_cp(&file, elsewhere.path());
    // The largest file of a folder in which none can be made.
    let diagnosis = doctor(&root, "127.0.0.1");
    assert_eq!(diagnosis["pair"]["from"], file.to_str().unwrap(), "{diagnosis}");
    assert_eq!(finding(&diagnosis, "by_reference")["state"], "unneeded", "{diagnosis}");
    let finished = crate::rig::run(["doctor", "--to", root.to_str().unwrap()]);
    finished.failed(1, &["creating", "Read-only", "choose another folder"]);
}

#[test]
fn files_of_procfs_and_sysfs_are_read_to_their_end() {
    let folder = folder();
    let sysfs = "/sys/kernel/mm/transparent_hugepage/enabled";
    // Of the last sendfile takes nothing, and cp reads it through a buffer and finds it too long.
    for path in ["/proc/version", sysfs, "/proc/kallsyms"] {
        if Path::new(path).exists() {
            agrees_with_cp(Path::new(path), folder.path());
            agrees_with_send(Path::new(path));
        }
    }
}

#[test]
fn an_appending_standard_output_is_reported() {
    let folder = folder();
    let from = noise_file(folder.path(), "from", LARGE);
    for appends in [true, false] {
        let (doctors, copies) = (folder.path().join("doctors"), folder.path().join("copies"));
        let open = |path: &Path| {
            fs::write(path, "").unwrap();
            let mut options = File::options();
            if appends {
                options.append(true)
            } else {
                options.write(true)
            };
            options.open(path).unwrap()
        };
        let mut command = underpass();
        command.args(["doctor", "--json", "--to", "-", "--from"]).arg(&from);
        command.stdout(open(&doctors));
        let finished = Running::start(command).finish();
        let said = crate::rig::Finished { stdout: fs::read(&doctors).unwrap(), ..finished };
        let diagnosis = diagnosis(&said);
        let mut command = underpass();
        command.args(["cp", "--explain"]).arg(&from).arg("-").stdout(open(&copies));
        let explained = Running::start(command).finish().succeeded().stderr;
        let way = diagnosis["pair"]["way"].as_str().unwrap();
        assert!(explained.contains(&format!("bytes by {way} in")), "{way}: {explained}");
        if appends {
            assert_eq!(
                (way, &finding(&diagnosis, "way")["state"]),
                ("read_write", &"closed".into())
            );
            assert!(finding(&diagnosis, "way")["remedy"].as_str().unwrap().contains("O_APPEND"));
        } else {
            assert_ne!(way, "read_write", "{diagnosis}");
        }
    }
}

#[test]
fn a_lease_that_another_process_prevents_is_reported() {
    let folder = folder();
    let from = noise_file(folder.path(), "from", LARGE);
    // A process that another test starts has the file open for a moment.
    let state = || finding(&doctor(&from, "127.0.0.1"), "lease")["state"].clone();
    until("a lease that is possible", || state() == "best");
    let writer = File::options().write(true).open(&from).unwrap();
    let diagnosis = doctor(&from, "127.0.0.1");
    drop(writer);
    let lease = finding(&diagnosis, "lease");
    assert_eq!(lease["state"], "limited", "{diagnosis}");
    assert!(lease["finding"].as_str().unwrap().contains("EAGAIN"), "{lease}");
}
