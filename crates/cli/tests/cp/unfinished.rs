//! A resumed command means the same target as the first one, whatever ended that.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::bytes::traced_in;
use crate::cp_in;
use crate::rig::{Running, folder, has, names, noise, underpass};

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
fn what_a_dead_process_left_is_removed_and_what_a_live_one_has_is_not() {
    let here = folder();
    plant(here.path());
    let dead = here.path().join(".k.4711.part/below");
    let live = here.path().join(".k.4712.part");
    let other = here.path().join(".other.4713.part");
    for path in [&dead, &live, &other] {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("file"), "part").unwrap();
    }
    let lock = fs::File::open(&live).unwrap();
    lock.lock().unwrap();
    fs::write(here.path().join("s/.two.9.part"), "this is a file of the source").unwrap();
    cp_in(here.path(), &["-a", "s", "k"]).succeeded();
    assert_eq!(names(here.path()), [".k.4712.part", ".other.4713.part", "k", "s"]);
    fs::write(here.path().join("k/.one.8.part"), "left by a dead process").unwrap();
    drop(lock);
    cp_in(here.path(), &["-aT", "s", "k"]).succeeded();
    assert_eq!(names(here.path()), [".other.4713.part", "k", "s"]);
    assert_eq!(names(&here.path().join("k")), [".two.9.part", "below", "one", "two"]);
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
