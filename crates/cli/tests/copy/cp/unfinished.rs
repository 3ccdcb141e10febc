//! A resumed command means the same target as the first one, whatever ended that.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use underpass_engine::atomic_file::{hidden_name, number_of};
use underpass_testkit::is_root;

use crate::cp::bytes::traced_in;
use crate::cp::cp_in;
use crate::cp::hidden_names::mark;
use crate::rig::{Finished, Running, folder, has, names, noise, skip, traced, underpass};
use crate::users::take_from_user;

/// A folder `s` with files, and with a folder that has files.
fn plant(here: &Path) {
    fs::create_dir_all(here.join("s/below")).unwrap();
    for name in ["one", "two", "below/three", "below/four"] {
        fs::write(here.join("s").join(name), noise(5000)).unwrap();
    }
}

fn is_whole(here: &Path) {
    assert_eq!(names(here), ["k", "s"]);
    assert_eq!(names(&here.join("k")), ["below", "one", "two"]);
    assert_eq!(names(&here.join("k/below")), ["four", "three"]);
    for name in ["one", "below/four"] {
        assert!(fs::read(here.join("k").join(name)).unwrap() == noise(5000), "{name}");
    }
}

#[test]
fn a_repeated_command_completes_what_a_killed_one_began() {
    if !has("strace") {
        return;
    }
    // At each file, and at each time that a folder gets its name, and between.
    for (call, most) in [("utimensat", 6), ("renameat2", 1), ("mkdirat", 2)] {
        for when in 1..=most {
            let here = folder();
            plant(here.path());
            let (trace, kill) =
                (format!("trace={call}"), format!("inject={call}:signal=KILL:when={when}"));
            let words = ["-a", "--resume", "-j1", "s", "k"];
            let (ended, log) = traced_in(here.path(), &["-e", &trace, "-e", &kill], &words);
            assert_eq!(ended.code(), None, "{call} {when} {} {log}", ended.stderr);
            cp_in(here.path(), &["-a", "--resume", "s", "k"]).succeeded();
            is_whole(here.path());
            // Once it is complete, it is a folder to put things in.
            cp_in(here.path(), &["-a", "--resume", "s", "k"]).succeeded();
            assert_eq!(names(&here.path().join("k")), ["below", "one", "s", "two"]);
        }
    }
}

#[test]
fn a_repeated_command_completes_one_that_failed() {
    let here = folder();
    plant(here.path());
    fs::create_dir(here.path().join("s/below/loop")).unwrap();
    // A link that leads in a circle stands for any failure.
    let link = here.path().join("s/below/loop/link");
    std::os::unix::fs::symlink("link", &link).unwrap();
    cp_in(here.path(), &["-aL", "--resume", "s", "k"]).failed(1, &[]);
    fs::remove_file(&link).unwrap();
    fs::remove_dir(here.path().join("s/below/loop")).unwrap();
    let _ = fs::remove_dir(here.path().join("k/below/loop"));
    cp_in(here.path(), &["-aL", "--resume", "s", "k"]).succeeded();
    is_whole(here.path());
    let mode = fs::metadata(here.path().join("k")).unwrap().permissions().mode();
    assert_eq!(mode, fs::metadata(here.path().join("s")).unwrap().permissions().mode());
}

#[test]
fn an_owner_or_a_mode_that_could_not_be_kept_is_repaired() {
    if !is_root() || !has("strace") {
        return skip("files cannot be given away");
    }
    for call in ["fchown", "fchmod"] {
        let here = folder();
        plant(here.path());
        let facts = |path: &str| {
            let facts = fs::metadata(here.path().join(path)).unwrap();
            (facts.uid(), facts.gid(), facts.mode())
        };
        let one = here.path().join("s/one");
        std::os::unix::fs::chown(&one, Some(1234), Some(1234)).unwrap();
        fs::set_permissions(&one, fs::Permissions::from_mode(0o4755)).unwrap();
        let words = ["-aT", "--resume", "s", "k"];
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error=EPERM"));
        let (failed, log) = traced_in(here.path(), &["-e", &trace, "-e", &inject], &words);
        failed.failed(1, &[]);
        assert_ne!(facts("k/one"), facts("s/one"), "{call}: {log}");
        cp_in(here.path(), &words).succeeded();
        assert_eq!(facts("k/one"), facts("s/one"), "{call}");
    }
}

#[test]
fn copies_at_the_same_time_leave_one_whole_folder_and_nothing_else() {
    let here = folder();
    plant(here.path());
    for number in 0..200 {
        fs::write(here.path().join(format!("s/below/{number}")), noise(number * 100)).unwrap();
    }
    for round in 0..5 {
        let _ = fs::remove_dir_all(here.path().join("k"));
        let copies: Vec<_> = (0..4)
            .map(|number| {
                let mut command = underpass();
                let words: &[&str] = if number % 2 == 0 { &["-aT"] } else { &["-aT", "--resume"] };
                command.arg("cp").args(words).args(["s", "k"]).current_dir(here.path());
                Running::start(command)
            })
            .collect();
        for copy in copies {
            copy.finish().succeeded();
        }
        assert_eq!(names(here.path()), ["k", "s"], "round {round}");
        for (of, count) in [("", 3), ("below", 202)] {
            let (mine, theirs) = (here.path().join("k").join(of), here.path().join("s").join(of));
            assert_eq!(names(&mine), names(&theirs), "round {round}");
            assert_eq!(names(&mine).len(), count);
        }
    }
}

#[test]
fn only_unfinished_folders_of_dead_processes_are_removed() {
    let here = folder();
    plant(here.path());
    let hidden = |name: &str, number| hidden_name(OsStr::new(name), Some(number));
    let text = |name: OsString| name.into_string().unwrap();
    let dead = here.path().join(hidden("k", 4711)).join("below");
    let live = here.path().join(hidden("k", 4712));
    let other = here.path().join(hidden("other", 4713));
    for path in [&dead, &live, &other] {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("file"), "part").unwrap();
    }
    for path in [dead.parent().unwrap(), &live, &other] {
        mark(path);
    }
    let lock = fs::File::open(&live).unwrap();
    lock.lock().unwrap();
    let source = text(hidden("two", 9));
    fs::write(here.path().join("s").join(&source), "this is a file of the source").unwrap();
    cp_in(here.path(), &["-a", "s", "k"]).succeeded();
    let (live, other) = (text(hidden("k", 4712)), text(hidden("other", 4713)));
    assert_eq!(names(here.path()), [&live, &other, "k", "s"]);
    let k = here.path().join("k");
    let number = number_of(fs::File::open(&k).unwrap()).unwrap();
    fs::write(k.join(hidden("one", number)), "left by a dead process").unwrap();
    drop(lock);
    cp_in(here.path(), &["-aT", "s", "k"]).succeeded();
    assert_eq!(names(here.path()), [&other, "k", "s"]);
    assert_eq!(names(&here.path().join("k")), [&source, "below", "one", "two"]);
}

#[test]
fn an_empty_folder_that_a_killed_process_could_not_mark_is_removed() {
    let here = folder();
    plant(here.path());
    let [new, open] =
        [1, 2].map(|number| here.path().join(hidden_name(OsStr::new("k"), Some(number))));
    for (path, mode) in [(&new, 0o700), (&open, 0o755)] {
        fs::DirBuilder::new().mode(mode).create(path).unwrap();
    }
    cp_in(here.path(), &["-a", "s", "k"]).succeeded();
    assert!(!new.exists() && open.exists());
}

#[test]
fn foreign_folders_named_like_a_part_stay() {
    for words in [&["-r", "s", "k"][..], &["-a", "--resume", "s", "k"], &["-anT", "s", "k"]] {
        let here = folder();
        plant(here.path());
        let own = here.path().join(".k.77.part/deep");
        fs::create_dir_all(&own).unwrap();
        fs::create_dir(here.path().join("k")).unwrap();
        fs::write(own.join("doc"), "own").unwrap();
        for name in ["k/.s.2024.part", "k/.one.0.part", "k/.unfinished.1.part"] {
            fs::write(here.path().join(name), "own").unwrap();
        }
        let before = |at: &str| names(&here.path().join(at));
        let (top, in_k) = (before(""), before("k"));
        cp_in(here.path(), words).succeeded();
        assert!(own.join("doc").exists(), "{words:?}");
        assert_eq!(before(""), top, "{words:?}");
        let after = before("k");
        assert!(in_k.iter().all(|name| after.contains(name)), "{words:?}: {after:?}");
    }
}

#[test]
fn a_mount_below_an_unfinished_folder_stays() {
    if !is_root() || !has("strace") {
        return skip("there are no mounts");
    }
    let here = folder();
    plant(here.path());
    fs::create_dir(here.path().join("real")).unwrap();
    fs::write(here.path().join("real/doc"), "own").unwrap();
    let with_mount = |at: &str, words: &[&str]| {
        fs::create_dir_all(here.path().join(at)).unwrap();
        let script = r#"mount --bind real "$0" && exec "$@""#;
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, at, env!("CARGO_BIN_EXE_underpass"), "cp"]);
        command.args(words).current_dir(here.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let finished = Running::start(command).finish();
        assert_eq!(names(&here.path().join("real")), ["doc"], "{at}: {}", finished.stderr);
        finished
    };
    let dead = hidden_name(OsStr::new("k"), Some(4711)).into_string().unwrap();
    fs::create_dir(here.path().join(&dead)).unwrap();
    mark(&here.path().join(&dead));
    with_mount(&format!("{dead}/deep"), &["-r", "s", "k"]).succeeded();
    let mirrored = with_mount("k/gone/deep", &["-rT", "--delete", "s", "k"]);
    assert!(mirrored.stderr.contains("removing k/gone/deep: "), "{}", mirrored.stderr);
    // What a killed run has left of the same source.
    let kill = ["-e", "trace=renameat2", "-e", "inject=renameat2:signal=KILL"];
    traced_in(here.path(), &kill, &["-r", "s", "new"]);
    let left = names(here.path()).into_iter().find(|name| name.starts_with(".new.")).unwrap();
    with_mount(&format!("{left}/deep"), &["-r", "s", "new"]).succeeded();
    assert_eq!(names(&here.path().join("new")), ["below", "one", "two"]);
}

/// Runs `cp` with one thread, stops it after its first call of this name, and lets it go on after
/// `meanwhile`.
fn stopped_after(call: &str, here: &Path, words: &[&str], meanwhile: impl FnOnce()) -> Finished {
    let elsewhere = folder();
    let log = elsewhere.path().join("trace");
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:signal=STOP:when=1"));
    let mut command = traced(&log, &["-e", &trace, "-e", &inject]);
    command.args(["cp", "-j1"]).args(words).current_dir(here);
    let running = Running::start(command);
    wait_for_stop(&log);
    meanwhile();
    running.signal("CONT");
    running.finish()
}

/// Waits until the log of strace says that the program was stopped.
pub(crate) fn wait_for_stop(log: &Path) {
    wait_for_stop_at(log, "");
}

/// Waits until it was stopped after its first call of this name.
fn wait_for_stop_at(log: &Path, call: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let has_stopped = |text: String| {
        text.split_once(call).is_some_and(|(_, after)| after.contains("stopped by SIGSTOP"))
    };
    while !fs::read_to_string(log).is_ok_and(has_stopped) {
        assert!(Instant::now() < deadline, "it does not stop");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn folders_that_another_run_merges_with_backups_are_no_leftovers() {
    if !has("strace") {
        return;
    }
    let (here, elsewhere) = (folder(), folder());
    plant(here.path());
    let log = elsewhere.path().join("trace");
    let inject = ["mkdirat", "linkat"].map(|call| format!("inject={call}:signal=STOP:when=1"));
    let options = ["-e", "trace=mkdirat,linkat", "-e", &inject[0], "-e", &inject[1]];
    let mut command = traced(&log, &options);
    command.args(["cp", "-j1", "-abT", "s", "k"]).current_dir(here.path());
    let running = Running::start(command);
    wait_for_stop(&log);
    // Its hidden folder is to be merged into this one.
    cp_in(here.path(), &["-aT", "s", "k"]).succeeded();
    running.signal("CONT");
    wait_for_stop_at(&log, "linkat(");
    // Another one looks for leftovers while a file has its hidden name.
    cp_in(here.path(), &["-aT", "s", "k"]).succeeded();
    running.signal("CONT");
    running.finish().succeeded();
    assert_eq!(names(here.path()), ["k", "s"]);
    assert_eq!(names(&here.path().join("k")), ["below", "one", "one~", "two", "two~"]);
    let below = ["four", "four~", "three", "three~"];
    assert_eq!(names(&here.path().join("k/below")), below);
}

#[test]
fn a_folder_that_was_cut_short_does_not_look_complete() {
    if !has("strace") {
        return;
    }
    let mut hidden = 0;
    for inject in ["signal=INT", "signal=TERM", "error=ENOSPC"] {
        // At files of the folder, and of the folder in it; there is one more to come.
        for when in 1..=3 {
            let here = folder();
            plant(here.path());
            fs::create_dir(here.path().join("k")).unwrap();
            let inject = format!("inject=utimensat:{inject}:when={when}");
            let options = ["-e", "trace=utimensat", "-e", &inject];
            let (ended, log) = traced_in(here.path(), &options, &["-a", "-j1", "s", "k"]);
            ended.failed(1, &[]);
            hidden += u32::from(!here.path().join("k/s/below").exists());
            for (at, count) in [("s", 3), ("s/below", 2)] {
                let (copy, from) = (here.path().join("k").join(at), here.path().join(at));
                if copy.exists() && names(&copy).len() < count {
                    let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
                    assert!(time(&copy) != time(&from), "{inject} {at} {log}");
                }
                let has_files = copy.join("one").exists() == copy.join("two").exists()
                    && copy.join("three").exists() == copy.join("four").exists();
                assert!(has_files, "{inject} {at} {log}");
            }
            cp_in(here.path(), &["-a", "s", "k"]).succeeded();
            assert_eq!(names(&here.path().join("k")), ["s"], "{inject}");
            assert_eq!(names(&here.path().join("k/s")), ["below", "one", "two"], "{inject}");
            assert_eq!(names(&here.path().join("k/s/below")), ["four", "three"], "{inject}");
        }
    }
    assert!(hidden > 0);
}

#[test]
fn a_folder_that_appears_meanwhile_is_treated_as_one_that_was_there() {
    if !has("strace") {
        return;
    }
    for (words, code, message) in [
        (&["-r", "s", "k"][..], 0, ""),
        (&["-rb", "s", "k"], 0, ""),
        (&["-r", "--backup=numbered", "s", "k"], 0, ""),
        (&["-rn", "s", "k"], 0, ""),
        (&["-ri", "s", "k"], 0, "replace k/one?"),
        (&["-r", "--update=none-fail", "s", "k"], 1, "k/one exists: not replaced"),
    ] {
        let here = folder();
        plant(here.path());
        let k = here.path().join("k");
        let finished = stopped_after("mkdirat", here.path(), words, || {
            fs::create_dir(&k).unwrap();
            fs::write(k.join("one"), "theirs").unwrap();
        });
        assert_eq!(finished.code(), Some(code), "{words:?}: {}", finished.stderr);
        assert!(finished.stderr.contains(message), "{words:?}: {}", finished.stderr);
        let kept = match words[0] {
            "-rb" => "one~",
            "-r" if words[1] == "--backup=numbered" => "one.~1~",
            _ => "one",
        };
        let is_replaced = kept != "one" || words.len() == 3 && words[0] == "-r";
        let has = |name: &str| fs::read(k.join(name)).unwrap();
        assert_eq!(has("one") != b"theirs", is_replaced, "{words:?}");
        assert!(kept == "one" || has(kept) == b"theirs", "{words:?}");
        let mut expected = vec!["below", "one", "two"];
        expected.extend(Some(kept).filter(|kept| *kept != "one"));
        expected.sort_unstable();
        assert_eq!(names(&k), expected, "{words:?}");
        assert_eq!(names(here.path()), ["k", "s"], "{words:?}");
    }
}

#[test]
fn entries_that_appear_during_a_copy_are_treated_as_existing() {
    if !has("strace") {
        return;
    }
    for (words, code, has, backup) in [
        (&["-aT", "s", "k"][..], 0, "mine", None),
        (&["-rT", "s", "k"], 0, "mine", None),
        (&["s/one", "k"], 0, "mine", None),
        (&["-abT", "s", "k"], 0, "mine", Some("one~")),
        (&["-anT", "s", "k"], 0, "theirs", None),
        (&["--update=none-fail", "-aT", "s", "k"], 1, "theirs", None),
    ] {
        let here = folder();
        let (s, k) = (here.path().join("s"), here.path().join("k"));
        for folder in [&s, &k] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(s.join("one"), "mine").unwrap();
        // The last call before it gets its name.
        let finished = stopped_after("utimensat", here.path(), words, || {
            fs::write(k.join("one"), "theirs").unwrap();
        });
        assert_eq!(finished.code(), Some(code), "{words:?}: {}", finished.stderr);
        assert_eq!(fs::read_to_string(k.join("one")).unwrap(), has, "{words:?}");
        let mut expected = vec!["one"];
        expected.extend(backup);
        assert_eq!(names(&k), expected, "{words:?}");
    }
}

#[test]
fn two_processes_link_the_same_files_and_leave_nothing_else() {
    if !has("strace") {
        return;
    }
    for words in [["-rl", "s", "k"], ["-al", "s", "k"], ["-rlf", "s", "k"]] {
        let here = folder();
        plant(here.path());
        let mut other = underpass();
        other.args(["cp", "-rl", "s", "k"]).current_dir(here.path());
        let finished = stopped_after("mkdirat", here.path(), &words, || {
            Running::start(other).finish().succeeded();
        });
        finished.succeeded();
        assert_eq!(names(&here.path().join("k")), ["below", "one", "two"], "{words:?}");
        assert_eq!(names(here.path()), ["k", "s"], "{words:?}");
    }
}

#[test]
fn two_processes_never_write_into_the_same_part_of_a_file() {
    let here = folder();
    fs::write(here.path().join("large"), noise(20 << 20)).unwrap();
    let copy = || {
        let mut command = underpass();
        command.args(["cp", "--resume", "--mechanism", "read_write", "--step", "4096"]);
        command.args(["large", "to"]).current_dir(here.path());
        Running::start(command)
    };
    for _ in 0..3 {
        let _ = fs::remove_file(here.path().join("to"));
        let (first, second) = (copy(), copy());
        let ended = [first.finish().code(), second.finish().code()];
        assert!(ended.contains(&Some(0)), "{ended:?}");
        assert!(fs::read(here.path().join("to")).unwrap() == noise(20 << 20));
        // One that came too late keeps its part, which the next run removes.
        copy().finish().succeeded();
        assert_eq!(names(here.path()), ["large", "to"]);
    }
}

#[test]
fn a_part_whose_status_cannot_be_read_does_not_stay() {
    let here = folder();
    if !has("strace") {
        return;
    }
    fs::write(here.path().join("a"), noise(17 << 20)).unwrap();
    for call in ["fstat", "newfstatat", "statx"] {
        for when in 1..12 {
            fs::create_dir(here.path().join("z")).unwrap();
            let (trace, inject) =
                (format!("trace={call}"), format!("inject={call}:error=EIO:when={when}"));
            let strace = ["-e", &trace, "-e", &inject];
            let (failed, _) = traced_in(here.path(), &strace, &["--resume", "a", "z/"]);
            if failed.code() != Some(0) {
                // What is kept is for the next one.
                cp_in(here.path(), &["--resume", "a", "z/"]).succeeded();
            }
            assert_eq!(names(&here.path().join("z")), ["a"], "{call} {when}: {}", failed.stderr);
            fs::remove_dir_all(here.path().join("z")).unwrap();
        }
    }
}

#[test]
fn parts_of_another_user_are_not_continued() {
    let here = folder();
    let path = |name: &str| here.path().join(name);
    fs::write(path("large"), noise(20 << 20)).unwrap();
    let started = |words: &[&str]| {
        let mut command = underpass();
        command.args(["cp", "--resume"]).args(words).current_dir(here.path());
        command.args(["large", "to"]);
        Running::start(command)
    };
    // A part is made, and the copy ends before it is whole.
    let mut stopped = started(&["--mechanism", "read_write", "--step", "512"]);
    let deadline = Instant::now() + Duration::from_secs(60);
    let part = loop {
        let found = names(here.path()).into_iter().find(|name| name.ends_with(".part"));
        let found = found.map(|name| path(&name));
        if let Some(part) = found.filter(|part| fs::metadata(part).is_ok_and(|it| it.len() > 0)) {
            break part;
        }
        assert!(Instant::now() < deadline && stopped.child.try_wait().unwrap().is_none());
    };
    stopped.signal("KILL");
    stopped.finish();
    // The attribute that says since when it is written stays; its bytes and its owner are others.
    let len = 18 << 20;
    let file = fs::File::options().write(true).open(&part).unwrap();
    file.write_all_at(&vec![7; len], 0).unwrap();
    file.set_len(len as u64).unwrap();
    if take_from_user(&part).is_none() {
        return;
    }
    started(&["-v"]).finish().succeeded();
    assert!(fs::read(path("to")).unwrap() == noise(20 << 20));
    assert_ne!(fs::metadata(path("to")).unwrap().uid(), 1234);
    assert_eq!(fs::metadata(&part).unwrap().len(), len as u64);
}
