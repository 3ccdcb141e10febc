//! Backups: whatever happens, each file exists under one of its names.

use std::fs;
use std::path::Path;

use crate::cp::cp_in;
use crate::rig::{Running, folder, has, names, traced};
use underpass_testkit::skip;

/// Copies `f` over `g` with a backup, killed at the call `kill` of this number, and returns whether
/// it reached that call.
fn killed(here: &Path, words: &[&str], kill: &str, more: &[&str]) -> bool {
    let mut options = vec!["-e", "trace=linkat,renameat,renameat2,unlinkat", "-e", kill];
    options.extend(more);
    let mut command = traced(&here.join("trace"), &options);
    command.arg("cp").args(words).args(["f", "g"]).current_dir(here);
    let finished = Running::start(command).finish();
    let trace = fs::remove_file(here.join("trace"));
    assert!(trace.is_ok(), "{trace:?}: {finished:?}, {:?}", names(here));
    finished.code() != Some(0)
}

#[test]
fn a_killed_copy_loses_neither_the_file_nor_its_backup() {
    if !has("strace") {
        return skip("strace is not there");
    }
    let refused: &[&str] = &["-e", "inject=linkat:error=EPERM:when=2"];
    let old: &[&str] = &["-e", "inject=renameat2:error=EINVAL:when=1"];
    for (words, calls, more) in [
        (&["-b"][..], "linkat", &[][..]),
        (&["-b"], "renameat", &[]),
        (&["-b"], "unlinkat", &[]),
        (&["--backup=numbered"], "linkat", &[]),
        (&["--backup=numbered"], "renameat", &[]),
        // Without hard links, and also without RENAME_EXCHANGE.
        (&["-b"], "renameat", refused),
        (&["-b"], "renameat2", refused),
        (&["-b"], "renameat", &[refused[0], refused[1], old[0], old[1]]),
    ] {
        for when in 1..20 {
            let here = folder();
            let write = |name: &str, text: &str| fs::write(here.path().join(name), text).unwrap();
            let read = |name: &str| fs::read_to_string(here.path().join(name)).ok();
            write("f", "new");
            write("g", "old");
            write("g~", "older");
            let kill = format!("inject={calls}:signal=KILL:when={when}");
            let was_killed = killed(here.path(), words, &kill, more);
            let what = format!("{words:?} {calls} {when}: {:?}", names(here.path()));
            let contents: Vec<_> =
                names(here.path()).iter().filter_map(|name| read(name)).collect();
            // The old file exists, under its name or that of a backup.
            assert!(contents.contains(&"old".to_owned()), "{what}");
            let is_swapped_by_hand = more.len() > 2;
            match read("g").as_deref() {
                Some("new" | "old") => {}
                None if is_swapped_by_hand => {
                    assert_eq!(read("g~").as_deref(), Some("old"), "{what}")
                }
                other => panic!("{what}: {other:?}"),
            }
            if !was_killed {
                assert_eq!(read("g").as_deref(), Some("new"), "{what}");
                let backup = if words == ["-b"] { "g~" } else { "g.~1~" };
                assert_eq!(read(backup).as_deref(), Some("old"), "{what}");
                assert!(!names(here.path()).iter().any(|name| name.ends_with(".part")), "{what}");
                break;
            }
            assert!(when < 19, "{what}");
        }
    }
}

#[test]
fn a_backup_does_not_take_the_name_of_a_copy() {
    for (control, words) in [
        ("simple", "a/f~ a/f b"),
        ("simple", "a/f a/f~ b"),
        ("simple", "-j1 -rT a b"),
        ("simple", "-rT a b"),
        ("existing", "-aT a b"),
        ("simple", "-asT ROOT/a b"),
        ("simple", "-alT a b"),
        ("numbered", "a/f.~1~ a/f b"),
        ("numbered", "a/f a/f.~1~ b"),
        ("numbered", "-rT a b"),
    ] {
        let here = folder();
        let write = |name: &str, text: &str| fs::write(here.path().join(name), text).unwrap();
        let read = |name: &str| fs::read_to_string(here.path().join(name)).unwrap_or_default();
        // An editor has left its own backups beside the originals.
        let backup = if control == "numbered" { "f.~1~" } else { "f~" };
        fs::create_dir(here.path().join("a")).unwrap();
        fs::create_dir(here.path().join("b")).unwrap();
        write("a/f", "new");
        write(&format!("a/{backup}"), "new, of the editor");
        write("b/f", "old");
        let words = words.replace("ROOT", here.path().to_str().unwrap());
        let words: Vec<_> = words.split(' ').collect();
        let how = format!("--backup={control}");
        cp_in(here.path(), &[&[how.as_str()], &words[..]].concat()).succeeded();
        let there = names(&here.path().join("b"));
        let what = format!("{control} {words:?}: {there:?}");
        assert_eq!(read("b/f"), "new", "{what}");
        assert_eq!(read(&format!("b/{backup}")), "new, of the editor", "{what}");
        assert_eq!(there.len(), 3, "{what}");
        assert!(there.iter().any(|name| read(&format!("b/{name}")) == "old"), "{what}");
    }
}
