//! Leftovers of a killed run in its hidden folders, and a later run that resumes them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use underpass_testkit::{is_root, skip};

use crate::cp::bytes::traced_in;
use crate::cp::cp_in;
use crate::rig::{folder, has, names, noise};

/// A folder `a` of which a run to `z` was killed when it had two files: the second is a part.
fn killed() -> Option<(TempDir, PathBuf)> {
    if !has("strace") {
        return None;
    }
    let here = folder();
    let a = here.path().join("a");
    fs::create_dir(&a).unwrap();
    for name in ["one", "two", "three"] {
        fs::write(a.join(name), noise(5000)).unwrap();
        let file = fs::File::options().write(true).open(a.join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    }
    let strace = ["-e", "trace=utimensat", "-e", "inject=utimensat:signal=KILL:when=2"];
    let (ended, log) = traced_in(here.path(), &strace, &["-r", "-j1", "a", "z"]);
    assert_eq!(ended.code(), None, "{} {log}", ended.stderr);
    let left = names(here.path());
    assert_eq!((left.len(), left.last().map(String::as_str)), (2, Some("a")), "{left:?}");
    let hidden = here.path().join(&left[0]);
    // As if it had been killed before the last of its bytes.
    let part = names(&hidden).into_iter().map(|name| hidden.join(name)).find(|path| {
        let time = fs::metadata(path).unwrap().modified().unwrap();
        time > SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_001)
    });
    fs::File::options().write(true).open(part.unwrap()).unwrap().set_len(100).unwrap();
    Some((here, hidden))
}

fn is_whole(here: &Path) {
    assert_eq!(names(here), ["a", "z"]);
    assert_eq!(names(&here.join("z")), ["one", "three", "two"]);
    for name in names(&here.join("z")) {
        assert!(fs::read(here.join("z").join(&name)).unwrap() == noise(5000), "{name}");
    }
}

#[test]
fn a_part_never_counts_as_an_existing_file_to_keep() {
    // It is newer than its original, and it is there.
    for word in ["-u", "-n", "--resume"] {
        let Some((here, _)) = killed() else { return };
        cp_in(here.path(), &["-r", word, "a", "z"]).succeeded();
        is_whole(here.path());
    }
    let Some((here, _)) = killed() else { return };
    cp_in(here.path(), &["-r", "-n", "--resume", "a", "z"]).succeeded();
    is_whole(here.path());
}

#[test]
fn a_part_whose_original_is_not_copied_any_more_is_removed() {
    for (resume, is_excluded) in [(false, false), (false, true), (true, false), (true, true)] {
        let Some((here, hidden)) = killed() else { return };
        let mut names_there = names(&hidden);
        names_there.retain(|name| fs::metadata(hidden.join(name)).unwrap().len() == 100);
        let part = &names_there[0];
        let exclude = format!("--exclude={part}");
        let mut words = vec!["-r", "a", "z"];
        words.extend(resume.then_some("--resume"));
        if is_excluded {
            words.push(&exclude)
        } else {
            fs::remove_file(here.path().join("a").join(part)).unwrap()
        }
        cp_in(here.path(), &words).succeeded();
        let mut rest = vec!["one", "three", "two"];
        rest.retain(|name| name != part);
        assert_eq!(names(&here.path().join("z")), rest, "{words:?}");
        assert_eq!(names(here.path()), ["a", "z"], "{words:?}");
    }
}

#[test]
fn a_part_does_not_get_its_name_when_only_another_file_is_copied() {
    let Some((here, _)) = killed() else { return };
    let at = |path: &str| here.path().join(path);
    fs::create_dir(at("to")).unwrap();
    let strace = ["-e", "trace=utimensat", "-e", "inject=utimensat:signal=KILL:when=1"];
    traced_in(here.path(), &strace, &["--parents", "a/one", "to"]);
    assert_eq!(names(&at("to")).len(), 1);
    cp_in(here.path(), &["--parents", "a/two", "to"]).succeeded();
    assert_eq!((names(&at("to")), names(&at("to/a"))), (vec!["a".into()], vec!["two".into()]));
}

#[test]
fn a_part_is_removed_before_the_next_copy_may_be_interrupted() {
    let strace = ["-e", "trace=utimensat", "-e", "inject=utimensat:signal=INT:when=1"];
    for resume in [None, Some("--resume")] {
        let Some((here, _)) = killed() else { return };
        let mut words = vec!["-r", "-j1", "a", "z"];
        words.extend(resume);
        let (ended, log) = traced_in(here.path(), &strace, &words);
        assert_eq!(ended.code(), Some(1), "{} {log}", ended.stderr);
        // The part would be newer than its original.
        cp_in(here.path(), &["-ruT", "a", "z"]).succeeded();
        for name in ["one", "three", "two"] {
            assert!(fs::read(here.path().join("z").join(name)).unwrap() == noise(5000), "{name}");
        }
    }
}

#[test]
fn leftovers_of_a_killed_root_process_are_removed() {
    if !is_root() || !has("strace") {
        return skip("files cannot be given away");
    }
    let here = folder();
    let at = |path: &str| here.path().join(path);
    fs::create_dir_all(at("s")).unwrap();
    fs::create_dir_all(at("t")).unwrap();
    fs::write(at("s/file"), "new").unwrap();
    symlink("new", at("s/link")).unwrap();
    for name in ["s/file", "s/link"] {
        lchown(at(name), Some(1234), Some(1234)).unwrap();
    }
    fs::write(at("t/file"), "old").unwrap();
    symlink("old", at("t/link")).unwrap();
    let kill = |when: u8, words: &[&str]| {
        let inject = format!("inject=renameat:signal=KILL:when={when}");
        traced_in(here.path(), &["-e", "trace=renameat", "-e", &inject], words);
    };
    for when in [1, 2] {
        kill(when, &["-aT", "-j1", "s", "t"]);
        assert_eq!(names(&at("t")).len(), 3);
        cp_in(here.path(), &["-aT", "s", "t"]).succeeded();
        assert_eq!(names(&at("t")), ["file", "link"]);
    }
    for _ in 0..2 {
        kill(1, &["-p", "s/file", "t"]);
        assert_eq!(names(&at("t")).len(), 3);
    }
    cp_in(here.path(), &["-p", "s/file", "t"]).succeeded();
    assert_eq!(names(&at("t")), ["file", "link"]);
}

#[test]
fn the_unfinished_copy_of_another_folder_is_not_continued() {
    let Some((here, hidden)) = killed() else { return };
    fs::rename(here.path().join("a"), here.path().join("other")).unwrap();
    fs::create_dir(here.path().join("a")).unwrap();
    fs::write(here.path().join("a/new"), "new").unwrap();
    cp_in(here.path(), &["-r", "--resume", "a", "z"]).succeeded();
    assert_eq!(names(&here.path().join("z")), ["new"]);
    // And parts that cannot be continued any more are removed.
    assert!(!hidden.exists());
    // Nor with files that another user has put there.
    fs::remove_dir_all(here.path().join("z")).unwrap();
    fs::create_dir(here.path().join("outside")).unwrap();
    symlink("outside", &hidden).unwrap();
    cp_in(here.path(), &["-r", "other", "z"]).succeeded();
    assert_eq!(names(&here.path().join("outside")), [] as [&str; 0]);
    assert_eq!(names(&here.path().join("z")), ["one", "three", "two"]);
}

#[test]
fn a_folder_that_had_its_name_before_a_kill_has_its_mode_after_the_next_run() {
    if !has("strace") {
        return;
    }
    for (words, has_file, original, mode) in [
        (&["-r"][..], true, 0o750, 0o750),
        (&["-r"], false, 0o750, 0o750),
        // Others may not write to it before everything is in it.
        (&["-r"], true, 0o777, 0o755),
        (&["-r", "--no-preserve=mode"], true, 0o700, 0o755),
        (&["-a"], true, 0o777, 0o777),
    ] {
        let here = folder();
        fs::create_dir_all(here.path().join("a/d")).unwrap();
        fs::set_permissions(here.path().join("a"), fs::Permissions::from_mode(original)).unwrap();
        for name in ["a/f", "a/d/g"].into_iter().skip(usize::from(!has_file)) {
            fs::write(here.path().join(name), name).unwrap();
        }
        // The file in `a/d` is the last.
        let inject = format!("inject=utimensat:signal=KILL:when={}", 1 + u8::from(has_file));
        let strace = ["-e", "trace=utimensat", "-e", &inject];
        let (ended, log) = traced_in(here.path(), &strace, &[words, &["-j1", "a", "z"]].concat());
        assert_eq!(ended.code(), None, "{} {log}", ended.stderr);
        assert!(here.path().join("z").exists() && !here.path().join("z/d").exists());
        cp_in(here.path(), &[words, &["-T", "a", "z"]].concat()).succeeded();
        let found = fs::metadata(here.path().join("z")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{words:?} {has_file}: {found:o}");
    }
}

#[test]
fn folders_that_are_resumed_get_their_mode_and_time() {
    let here = folder();
    let (a, z) = (here.path().join("a"), here.path().join("z"));
    fs::create_dir_all(a.join("b")).unwrap();
    fs::create_dir_all(z.join("b")).unwrap();
    for (path, mode) in [(&a, 0o750), (&a.join("b"), 0o711), (&z, 0o700), (&z.join("b"), 0o700)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    cp_in(here.path(), &["-rT", "--resume", "a", "z"]).succeeded();
    for name in ["", "b"] {
        let facts = |root: &Path| {
            let found = fs::metadata(root.join(name)).unwrap();
            (found.permissions().mode(), found.modified().unwrap())
        };
        assert_eq!(facts(&a), facts(&z), "{name}");
    }
}
