//! `--delete`: the target of a folder becomes a mirror of it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cp::bytes::traced_in;
use crate::cp::cp_in;
use crate::cp::unfinished::wait_for_stop;
use crate::rig::{Finished, Running, folder, has, names, traced};
use crate::users::{cp_as_user, give_to_user};
use underpass_engine::atomic_file::hidden_name;
use underpass_testkit::{is_root, skip};

/// Two trees, of which the second has more, and a folder that nothing may touch.
fn plant(here: &Path) {
    for path in ["a/d/e", "t/d/old/deep", "t/gone", "outside/x"] {
        fs::create_dir_all(here.join(path)).unwrap();
    }
    let files =
        ["a/f", "a/d/g", "a/d/e/h", "t/f", "t/stale", "t/d/stale", "t/d/old/deep/k", "outside/x/y"];
    for file in files {
        fs::write(here.join(file), file).unwrap();
    }
    symlink("../outside", here.join("t/link")).unwrap();
    symlink("../../outside/x", here.join("t/d/old/link")).unwrap();
}

fn mirrored(here: &Path, words: &[&str]) -> Finished {
    let words: Vec<&str> = [&["-rT", "--delete"], words].concat();
    cp_in(here, &words)
}

#[test]
fn delete_removes_entries_that_the_source_does_not_have() {
    let here = folder();
    plant(here.path());
    let receipt = mirrored(here.path(), &["--json", "a", "t"]).succeeded().receipt();
    assert_eq!(receipt["deleted"], 8, "{receipt}");
    assert_eq!(names(&here.path().join("t")), ["d", "f"]);
    assert_eq!(names(&here.path().join("t/d")), ["e", "g"]);
    // Links of the target are removed, and nothing behind them.
    assert_eq!(fs::read_to_string(here.path().join("outside/x/y")).unwrap(), "outside/x/y");
    let receipt = mirrored(here.path(), &["--json", "a", "t"]).succeeded().receipt();
    assert_eq!(receipt["deleted"], 0);
}

#[test]
fn a_folder_that_two_sources_make_keeps_what_both_have() {
    let here = folder();
    for file in ["a/k/one", "a/k/in/x", "b/k/two", "t/k/stale"] {
        fs::create_dir_all(here.path().join(file).parent().unwrap()).unwrap();
        fs::write(here.path().join(file), file).unwrap();
    }
    for sources in [["a/.", "b/k"], ["b/k", "a/."]] {
        fs::write(here.path().join("t/k/in-stale"), "").unwrap();
        let words = [&["-r", "--delete"], &sources[..], &["t"]].concat();
        cp_in(here.path(), &words).succeeded();
        assert_eq!(names(&here.path().join("t/k")), ["in", "one", "two"], "{sources:?}");
        assert_eq!(names(&here.path().join("t/k/in")), ["x"], "{sources:?}");
    }
}

#[test]
fn delete_prints_each_removed_entry() {
    let here = folder();
    plant(here.path());
    let dry = mirrored(here.path(), &["--dry-run", "a", "t"]).succeeded().text();
    for line in ["delete t/stale\n", "delete t/d/old\n", "delete t/gone\n"] {
        assert!(dry.contains(line), "{dry}");
    }
    assert!(here.path().join("t/stale").exists());
    // Where something that is excluded stays, the folders above it do, too.
    let kept = mirrored(here.path(), &["--dry-run", "--exclude", "k", "a", "t"]).succeeded().text();
    assert!(here.path().join("t/d/old/deep/k").exists() && kept.contains("delete t/stale\n"));
    assert!(!kept.contains("delete t/d/old\n"), "{kept}");
    let lines = mirrored(here.path(), &["-v", "a", "t"]).succeeded().text();
    let count = |text: &str, word| text.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!(count(&dry, "delete "), count(&lines, "removed "), "{dry}{lines}");
    for line in ["removed 't/stale'\n", "removed 't/link'\n", "removed directory 't/d/old/deep'\n"]
    {
        assert!(lines.contains(line), "{lines}");
    }
}

#[test]
fn a_dry_run_fails_and_deletes_nothing_where_the_copy_would() {
    for in_its_place in ["file", "link"] {
        let here = folder();
        plant(here.path());
        fs::remove_dir_all(here.path().join("t/d")).unwrap();
        match in_its_place {
            "file" => fs::write(here.path().join("t/d"), "").unwrap(),
            _ => symlink("../a/d", here.path().join("t/d")).unwrap(),
        }
        for words in [&["--dry-run", "-v", "a", "t"][..], &["-v", "a", "t"]] {
            let finished = mirrored(here.path(), words).failed(1, &["1 problem"]);
            assert!(finished.stderr.contains("in the place of t/d"), "{}", finished.stderr);
            let text = finished.text();
            assert!(!text.contains("delete ") && !text.contains("t/d/"), "{words:?}: {text}");
        }
    }
}

#[test]
fn several_sources_are_one_and_excluded_names_stay() {
    let here = folder();
    plant(here.path());
    fs::create_dir_all(here.path().join("b/gone")).unwrap();
    fs::write(here.path().join("stale"), "named").unwrap();
    fs::write(here.path().join("t/d/old/deep/keep.o"), "").unwrap();
    let words = ["-r", "--delete", "--exclude", "*.o", "a/.", "b/.", "stale", "t"];
    cp_in(here.path(), &words).succeeded();
    assert_eq!(names(&here.path().join("t")), ["d", "f", "gone", "stale"]);
    assert_eq!(names(&here.path().join("t/d/old/deep")), ["keep.o"]);
    assert_eq!(names(&here.path().join("t/d/old")), ["deep"]);
    // A named folder is a mirror, and what lies beside its copy stays.
    cp_in(here.path(), &["-r", "--delete", "a/d", "t"]).succeeded();
    assert_eq!(names(&here.path().join("t")), ["d", "f", "gone", "stale"]);
    assert_eq!(names(&here.path().join("t/d")), ["e", "g"]);
}

#[test]
fn a_folder_that_is_excluded_keeps_everything_in_it() {
    for (pattern, stays) in [("d", true), ("d/", true), ("/d", true), ("e", false), ("d/e", false)]
    {
        let here = folder();
        plant(here.path());
        fs::create_dir_all(here.path().join("t/d/e")).unwrap();
        fs::write(here.path().join("t/d/e/own"), "").unwrap();
        for words in [&["--dry-run"][..], &["--json"]] {
            let words = [words, &["--exclude", pattern, "a", "t"]].concat();
            let text = mirrored(here.path(), &words).succeeded().text();
            assert!(!text.contains("e/own"), "{pattern}: {text}");
        }
        assert_eq!(names(&here.path().join("t")), ["d", "f"], "{pattern}");
        assert_eq!(names(&here.path().join("t/d/e")), ["own"], "{pattern}");
        assert_eq!(here.path().join("t/d/old/deep/k").exists(), stays, "{pattern}");
        assert_eq!(here.path().join("t/d/stale").exists(), stays, "{pattern}");
    }
}

#[test]
fn times_of_folders_are_those_of_their_sources() {
    let here = folder();
    plant(here.path());
    cp_in(here.path(), &["-aT", "--delete", "a", "t"]).succeeded();
    for path in ["", "d"] {
        let time = |top: &str| fs::metadata(here.path().join(top).join(path)).unwrap().mtime_nsec();
        assert_eq!(time("a"), time("t"), "{path}");
    }
}

#[test]
fn nothing_is_removed_where_the_source_cannot_be_read() {
    let here = folder();
    plant(here.path());
    let stays = |words: &str, finished: Finished| {
        assert_eq!(finished.code(), Some(1), "{words}: {}", finished.stderr);
        assert!(
            here.path().join("t/stale").exists() && here.path().join("t/d/old/deep/k").exists()
        );
    };
    if has("strace") {
        // The subfolder cannot be listed, and later a name cannot be looked up.
        let at = here.path().join("a/d");
        for inject in ["inject=getdents64:error=EIO", "inject=newfstatat,statx:error=EIO:when=3"] {
            let options = ["-P", at.to_str().unwrap(), "-e", inject];
            let mut command = traced(&here.path().join("trace"), &options);
            command.args(["cp", "-rT", "--delete", "a", "t"]).current_dir(here.path());
            let finished = Running::start(command).finish();
            if finished.code() != Some(0) {
                stays(inject, finished);
            }
        }
    }
    give_to_user(here.path());
    // Nor is anything if an entry to be removed cannot be read.
    for unreadable in ["a/d/e", "t/d/old/deep"] {
        let mode = |mode| {
            fs::set_permissions(here.path().join(unreadable), fs::Permissions::from_mode(mode))
        };
        mode(0o000).unwrap();
        let finished = cp_as_user(here.path(), &["-rT", "--delete", "a", "t"]);
        mode(0o755).unwrap();
        match finished {
            Some(finished) => stays(unreadable, finished),
            None => skip("there is no other user"),
        }
    }
}

#[test]
fn a_source_in_its_target_stays() {
    let here = folder();
    for path in ["t/keep/me", "t/other"] {
        fs::create_dir_all(here.path().join(path)).unwrap();
    }
    fs::write(here.path().join("t/keep/me/f"), "").unwrap();
    let finished = mirrored(here.path(), &["t/keep/me", "t"]);
    assert_eq!(finished.code(), Some(1));
    assert!(
        finished.stderr.contains("t/keep/me is in t: nothing was deleted"),
        "{}",
        finished.stderr
    );
    assert!(here.path().join("t/other").exists());
    for words in [
        &["--delete", "a", "t"][..],
        &["-r", "--delete", "-b", "a", "t"],
        &["-r", "--delete", "--parents", "a", "t"],
    ] {
        cp_in(here.path(), words).failed(2, &["--delete"]);
    }
}

#[test]
fn delete_removes_leftovers_of_dead_processes_under_any_name() {
    let here = folder();
    plant(here.path());
    let hidden =
        |at: &str, name: &str| here.path().join(at).join(hidden_name(OsStr::new(name), Some(4711)));
    let (live, dead) = (hidden("t", "live"), [hidden("t", "old"), hidden("t/d", "old")]);
    for folder in dead.iter().chain([&live]) {
        fs::create_dir_all(folder.join("deep")).unwrap();
        fs::write(folder.join("deep/file"), "").unwrap();
        // With --resume, this tells that the folder is not complete.
        fs::write(folder.join(hidden_name(OsStr::new("unfinished"), Some(4711))), "").unwrap();
    }
    fs::write(hidden("t/gone", "part"), "").unwrap();
    symlink("nowhere", hidden("t", "link")).unwrap();
    let lock = fs::File::open(&live).unwrap();
    lock.lock().unwrap();
    mirrored(here.path(), &["a", "t"]).succeeded();
    let live = live.file_name().unwrap().to_str().unwrap();
    assert_eq!(names(&here.path().join("t")), [live, "d", "f"]);
    assert_eq!(names(&here.path().join("t/d")), ["e", "g"]);
    drop(lock);
    mirrored(here.path(), &["a", "t"]).succeeded();
    assert_eq!(names(&here.path().join("t")), ["d", "f"]);
}

#[test]
fn nothing_is_removed_where_a_file_system_was_unmounted_meanwhile() {
    if !is_root() || !has("strace") || !has("nsenter") {
        return skip("there are no mounts");
    }
    let (here, elsewhere) = (folder(), folder());
    let (mounted, log) = (here.path().join("s/sub"), elsewhere.path().join("trace"));
    fs::create_dir_all(&mounted).unwrap();
    fs::create_dir_all(here.path().join("k/sub")).unwrap();
    fs::write(here.path().join("k/sub/x"), "").unwrap();
    let script = r#"mount -t tmpfs none s/sub && touch s/sub/x && exec strace -D -f -qq \
        -o "$0" -e trace=linkat -e inject=linkat:signal=STOP:when=1 "$@""#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(&log).arg(env!("CARGO_BIN_EXE_underpass"));
    command.args(["cp", "-j1"]).args(["-aT", "--delete", "s", "k"]);
    command.current_dir(here.path()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = Running::start(command);
    wait_for_stop(&log);
    let pid = running.child.id().to_string();
    let unmount = ["-t", &pid, "-m", "umount", "-l", mounted.to_str().unwrap()];
    assert!(Command::new("nsenter").args(unmount).status().unwrap().success());
    running.signal("CONT");
    let finished = running.finish();
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("reading again s/sub: "), "{}", finished.stderr);
    assert!(here.path().join("k/sub/x").exists());
}

#[test]
fn nothing_is_removed_if_the_disk_has_lost_what_was_copied() {
    if !has("strace") {
        return;
    }
    let here = folder();
    plant(here.path());
    let options = ["-e", "trace=syncfs,fsync", "-e", "inject=syncfs,fsync:error=EIO:when=1"];
    let words = ["-rT", "--delete", "--sync", "--json", "a", "t"];
    let (finished, log) = traced_in(here.path(), &options, &words);
    assert_eq!(finished.receipt()["deleted"], 0, "{log}");
    let finished = finished.failed(1, &[]);
    assert!(finished.stderr.contains("writing to the disk of"), "{}", finished.stderr);
    assert!(here.path().join("t/stale").exists() && here.path().join("t/d/old/deep/k").exists());
    mirrored(here.path(), &["--sync", "a", "t"]).succeeded();
    assert_eq!(names(&here.path().join("t")), ["d", "f"]);
}

#[test]
fn a_signal_ends_the_removal() {
    if !has("strace") {
        return;
    }
    for (signal, path) in [("INT", "t"), ("TERM", "t/in"), ("HUP", "t")] {
        let here = folder();
        plant(here.path());
        fs::create_dir_all(here.path().join(path)).unwrap();
        for number in 0..100 {
            fs::write(here.path().join(path).join(number.to_string()), "").unwrap();
        }
        let inject = format!("inject=unlinkat:signal={signal}:when=50");
        let options = ["-e", "trace=unlinkat", "-e", &inject];
        let words = ["-rT", "--delete", "--json", "a", "t"];
        let (finished, log) = traced_in(here.path(), &options, &words);
        let deleted = finished.receipt()["deleted"].as_u64().unwrap();
        assert!((40..=50).contains(&deleted), "{signal}: {deleted} {log}");
        let finished = finished.failed(1, &[]);
        assert!(finished.stderr.contains("cancelled"), "{}", finished.stderr);
        assert!(names(&here.path().join(path)).len() > 40, "{signal}");
    }
}
