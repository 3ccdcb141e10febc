//! Entries of a source or another user with names like those of unfinished folders and parts, and
//! the owner and mode of these until they are complete.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use underpass_engine::atomic_file::{hidden_name, number_of};
use underpass_testkit::{is_root, skip};

use crate::cp::bytes::traced_in;
use crate::cp::cp_in;
use crate::cp::modes::acl;
use crate::rig::{folder, has, names, noise};
use crate::users::{cp_as_user, give_to_user};

/// Ends a copy by this signal, at the call of this number that sets the times of a file.
fn ended(here: &Path, signal: &str, when: u8, words: &[&str]) {
    let inject = format!("inject=utimensat:signal={signal}:when={when}");
    let (ended, log) = traced_in(here, &["-e", "trace=utimensat", "-e", &inject], words);
    assert_ne!(ended.code(), Some(0), "{log}");
}

/// The path of the only unfinished file or folder in a folder.
fn hidden_in(folder: &Path) -> PathBuf {
    let mut hidden = names(folder);
    hidden.retain(|name| name.ends_with(".part") && !name.starts_with(".unfinished."));
    assert_eq!(hidden.len(), 1, "{hidden:?}");
    folder.join(&hidden[0])
}

/// Marks a leftover as if a process had been killed here.
pub(crate) fn mark(hidden: &Path) {
    let number = fs::metadata(hidden).unwrap().ino();
    let value = format!("{}/{number}", hidden.file_name().unwrap().to_str().unwrap());
    setxattr(hidden, "user.underpass.hidden", value.as_bytes(), XattrFlags::empty()).unwrap();
}

fn has_mark(path: &Path) -> bool {
    getxattr(path, "user.underpass.hidden", &mut [0; 300][..]).is_ok()
}

fn plant(folder: &Path, text: &str) {
    fs::create_dir_all(folder).unwrap();
    for number in 0..100 {
        fs::write(folder.join(number.to_string()), format!("{text} {number}")).unwrap();
    }
}

#[test]
fn leftovers_in_a_source_are_copied_like_other_entries() {
    if !has("strace") {
        return;
    }
    let here = folder();
    let at = |path: &str| here.path().join(path);
    plant(&at("src/x"), "old");
    fs::create_dir(at("s")).unwrap();
    ended(here.path(), "KILL", 50, &["-a", "-j1", "src/x", "s/"]);
    let left = hidden_in(&at("s"));
    fs::rename(at("src/x"), at("s/x")).unwrap();
    plant(&at("s/x"), "new");
    let hidden = left.file_name().unwrap();
    for words in [&["-a", "s", "k"][..], &["-aT", "s", "k"], &["-aT", "-j1", "s", "k"]] {
        for _ in 0..3 {
            let _ = fs::remove_dir_all(at("k"));
            if words[0] == "-aT" {
                fs::create_dir(at("k")).unwrap();
            }
            cp_in(here.path(), words).succeeded();
            assert_eq!(names(&at("k")), names(&at("s")), "{words:?}");
            assert_eq!(names(&at("k/x")), names(&at("s/x")), "{words:?}");
            assert_eq!(names(&at("k").join(hidden)), names(&left), "{words:?}");
            for name in names(&at("k/x")) {
                let copy = fs::read_to_string(at("k/x").join(&name)).unwrap();
                assert_eq!(copy, format!("new {name}"), "{words:?}");
            }
            // The copy of a leftover is no leftover, and complete entries have no mark.
            assert!(has_mark(&left) && !has_mark(&at("k").join(hidden)) && !has_mark(&at("k/x")));
        }
    }
}

#[test]
fn the_copy_of_a_folder_gets_nothing_of_one_that_is_called_as_it_is_while_it_is_copied() {
    if !is_root() || !has("strace") {
        return skip("files cannot be given away");
    }
    let here = folder();
    let at = |path: &str| here.path().join(path);
    plant(&at("s/x"), "secret");
    fs::set_permissions(at("s/x"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::create_dir(at("k")).unwrap();
    ended(here.path(), "KILL", 50, &["-aT", "-j1", "s", "k"]);
    let hidden = hidden_in(&at("k")).file_name().unwrap().to_owned();
    // What was left stays, so that the name is taken there already.
    for round in 0..4 {
        let other = at("s").join(&hidden);
        fs::create_dir_all(other.join("evil")).unwrap();
        for path in [&other, &other.join("evil")] {
            chown(path, Some(1234), Some(1234)).unwrap();
        }
        cp_in(here.path(), &["-aT", "s", "k"]).succeeded();
        let copy = fs::metadata(at("k/x")).unwrap();
        assert_eq!((copy.uid(), copy.mode() & 0o7777), (0, 0o700), "round {round}");
        assert_eq!(names(&at("k/x")), names(&at("s/x")), "round {round}");
        assert_eq!(names(&at("k").join(&hidden)), ["evil"], "round {round}");
        fs::remove_dir_all(at("k/x")).unwrap();
        if round == 1 {
            // The next one finds a folder of that name that is no leftover.
            fs::remove_dir_all(&other).unwrap();
            chown(at("k").join(&hidden), Some(0), Some(0)).unwrap();
            cp_in(here.path(), &["-aT", "s", "k"]).succeeded();
            assert_eq!(names(&at("k").join(&hidden)), ["evil"]);
            fs::remove_dir_all(at("k/x")).unwrap();
        }
    }
}

#[test]
fn a_file_with_the_name_of_a_part_of_another_is_no_part() {
    if !has("strace") {
        return;
    }
    let here = folder();
    let at = |path: &str| here.path().join(path);
    fs::create_dir(at("s")).unwrap();
    let (large, other) = (noise(20 << 20), vec![7; 18 << 20]);
    // Files are copied in the order of their numbers.
    fs::write(at("s/other"), &other).unwrap();
    fs::write(at("s/large"), &large).unwrap();
    fs::create_dir(at("k")).unwrap();
    ended(here.path(), "KILL", 1, &["-r", "--resume", "s/large", "k/"]);
    let left = hidden_in(&at("k"));
    let other_name = at("s").join(left.file_name().unwrap());
    fs::rename(at("s/other"), &other_name).unwrap();
    for words in [&["-r"][..], &["-r", "-j1"], &["-a"]] {
        fs::remove_dir_all(at("k")).unwrap();
        cp_in(here.path(), &[words, &["--resume", "s", "k"]].concat()).succeeded();
        assert_eq!(names(&at("k")), names(&at("s")), "{words:?}");
        assert!(fs::read(at("k/large")).unwrap() == large, "{words:?}");
        let copy = at("k").join(left.file_name().unwrap());
        assert!(fs::read(&copy).unwrap() == other, "{words:?}");
        assert!(!has_mark(&copy) && !has_mark(&at("k/large")), "{words:?}");
    }
}

#[test]
fn an_entry_with_the_name_of_a_leftover_is_copied() {
    let here = folder();
    let at = |path: &str| here.path().join(path);
    for path in ["s", "k", "t"] {
        fs::create_dir(at(path)).unwrap();
    }
    // Those that another name would have for a moment, and that a killed process has left in `s`.
    let number = |path: &str| number_of(fs::File::open(at(path)).unwrap()).unwrap();
    for number in [0, 1, number("s"), number("t")] {
        let name = hidden_name(OsStr::new("x"), Some(number));
        fs::write(at("s").join(name), number.to_string()).unwrap();
    }
    for path in ["s/x", "k/x"] {
        fs::write(at(path), path).unwrap();
    }
    let sources: Vec<_> = names(&at("s")).into_iter().map(|name| format!("s/{name}")).collect();
    let sources: Vec<_> = sources.iter().map(String::as_str).collect();
    for options in [&["-a", "-j1"][..], &["-a"], &["-r"], &["-a", "--resume"], &["-a", "-b"]] {
        for _ in 0..2 {
            cp_in(here.path(), &[options, &["s/.", "k/"]].concat()).succeeded();
            let mut copied = names(&at("k"));
            copied.retain(|name| !name.ends_with('~'));
            assert_eq!(copied, names(&at("s")), "{options:?}");
            fs::write(at("s/x"), "another").unwrap();
            cp_in(here.path(), &[options, &sources, &["t/"]].concat()).succeeded();
            let mut copied = names(&at("t"));
            copied.retain(|name| !name.ends_with('~'));
            assert_eq!(copied, names(&at("s")), "{options:?}");
        }
    }
    // Also if it is only an entry of the target.
    for name in names(&at("s")) {
        if name != "x" {
            fs::remove_file(at("s").join(name)).unwrap();
        }
    }
    cp_in(here.path(), &["-a", "s/.", "k/"]).succeeded();
    let mut copied = names(&at("k"));
    copied.retain(|name| name.ends_with(".part"));
    assert_eq!(copied.len(), 4, "{copied:?}");
}

#[test]
fn a_folder_that_was_only_renamed_is_no_leftover() {
    if !has("strace") {
        return;
    }
    let here = folder();
    let at = |path: &str| here.path().join(path);
    plant(&at("x"), "x");
    fs::create_dir(at("t")).unwrap();
    ended(here.path(), "KILL", 50, &["-a", "-j1", "x", "t/"]);
    let left = hidden_in(&at("t"));
    fs::remove_dir_all(&left).unwrap();
    let other = at("t").join(hidden_name(OsStr::new("x"), Some(12345)));
    for path in [&left, &other] {
        fs::create_dir_all(path.join("deep")).unwrap();
        fs::write(path.join("deep/doc"), "precious").unwrap();
    }
    for words in [["-a", "x", "t/"], ["-r", "x", "t/"]] {
        cp_in(here.path(), &words).succeeded();
        for path in [&left, &other] {
            assert_eq!(fs::read_to_string(path.join("deep/doc")).unwrap(), "precious");
        }
        fs::remove_dir_all(at("t/x")).unwrap();
    }
    // It would be, had it been made under that name.
    mark(&other);
    cp_in(here.path(), &["-a", "x", "t/"]).succeeded();
    assert!(!other.exists() && left.exists());
}

#[test]
fn an_unfinished_folder_belongs_to_the_copying_user_until_it_is_complete() {
    if !is_root() || !has("strace") {
        return skip("files cannot be given away");
    }
    for signal in ["INT", "TERM", "KILL"] {
        for resume in [&["--resume"][..], &[]] {
            let here = folder();
            let at = |path: &str| here.path().join(path);
            plant(&at("s/x"), "x");
            fs::set_permissions(at("s/x"), fs::Permissions::from_mode(0o555)).unwrap();
            chown(at("s/x"), Some(1234), Some(1234)).unwrap();
            setxattr(at("s/x"), "system.posix_acl_default", &acl(), XattrFlags::empty()).ok();
            fs::create_dir(at("k")).unwrap();
            let words = [&["-aT", "-j1", "s", "k"], resume].concat();
            ended(here.path(), signal, 50, &words);
            let left = fs::metadata(hidden_in(&at("k"))).unwrap();
            assert_eq!((left.uid(), left.mode() & 0o7777), (0, 0o700), "{signal} {words:?}");
            let again = [&words[..], &["--json"]].concat();
            let receipt = cp_in(here.path(), &again).succeeded().receipt();
            let resumed = receipt["resumed"].as_u64().unwrap();
            assert_eq!(resumed > 0, !resume.is_empty(), "{signal} {receipt}");
            assert_eq!(names(&at("k")), ["x"], "{signal} {words:?}");
            assert_eq!(names(&at("k/x")), names(&at("s/x")), "{signal} {words:?}");
            let copy = fs::metadata(at("k/x")).unwrap();
            assert_eq!((copy.uid(), copy.mode() & 0o7777), (1234, 0o555), "{signal} {words:?}");
            for name in names(&at("k/x")) {
                let has_acl =
                    getxattr(at("k/x").join(name), "system.posix_acl_access", &mut [0; 100][..]);
                assert!(has_acl.is_err(), "{signal} {words:?}");
            }
        }
    }
}

#[test]
fn folders_that_are_not_writable_are_removed_for_their_owner() {
    let here = folder();
    let at = |path: &str| here.path().join(path);
    fs::set_permissions(here.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let read_only = |root: &Path| {
        fs::create_dir_all(root.join("d/e")).unwrap();
        for name in ["d/f", "d/e/g"] {
            fs::write(root.join(name), "bytes").unwrap();
        }
        give_to_user(root);
        for name in ["d/e", "d"] {
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o555)).unwrap();
        }
    };
    read_only(&at("s"));
    let left = at(hidden_name(OsStr::new("k"), Some(7)).to_str().unwrap());
    read_only(&left);
    mark(&left);
    let Some(copied) = cp_as_user(here.path(), &["-a", "s", "k"]) else { return };
    copied.succeeded();
    assert_eq!(names(here.path()), ["k", "s"]);
    for path in ["s/d", "s/d/e"] {
        fs::set_permissions(at(path), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::remove_dir_all(at("s/d/e")).unwrap();
    fs::set_permissions(at("s/d"), fs::Permissions::from_mode(0o555)).unwrap();
    cp_as_user(here.path(), &["-aT", "--delete", "s", "k"]).unwrap().succeeded();
    assert_eq!(names(&at("k/d")), ["f"]);
    assert_eq!(fs::metadata(at("k/d")).unwrap().mode() & 0o7777, 0o555);
}

/// Kills a copy at this call, and returns whether it was killed.
fn killed(here: &Path, call: &str, when: u8, words: &[&str]) -> bool {
    let (trace, kill) = (format!("trace={call}"), format!("inject={call}:signal=KILL:when={when}"));
    traced_in(here, &["-e", &trace, "-e", &kill], words).0.code().is_none()
}

#[test]
fn a_folder_that_a_killed_copy_had_not_marked_is_continued_and_removed() {
    if !has("strace") {
        return;
    }
    for words in [&["-aT", "-j1", "s", "k"][..], &["-aT", "-j1", "--resume", "s", "k"]] {
        let here = folder();
        let at = |path: &str| here.path().join(path);
        plant(&at("s/x"), "text");
        fs::create_dir(at("k")).unwrap();
        fs::write(at("k/other"), "").unwrap();
        assert!(killed(here.path(), "fsetxattr", 1, words));
        assert!(!has_mark(&hidden_in(&at("k"))), "{words:?}");
        assert!(killed(here.path(), "utimensat", 50, words));
        assert!(has_mark(&hidden_in(&at("k"))), "{words:?}");
        cp_in(here.path(), words).succeeded();
        assert_eq!(names(&at("k")), ["other", "x"], "{words:?}");
        assert_eq!(names(&at("k/x")), names(&at("s/x")), "{words:?}");
    }
}

#[test]
fn a_part_that_a_killed_copy_had_not_marked_is_replaced() {
    if !has("strace") {
        return;
    }
    let resume = ["-aT", "--resume", "--no-zero-copy", "--json", "s", "k"];
    let planted = || {
        let here = folder();
        for name in ["s", "k"] {
            fs::create_dir(here.path().join(name)).unwrap();
        }
        fs::write(here.path().join("s/big"), noise(20 << 20)).unwrap();
        fs::write(here.path().join("k/other"), "").unwrap();
        assert!(killed(here.path(), "fsetxattr", 1, &resume));
        let left = hidden_in(&here.path().join("k"));
        assert!(!has_mark(&left) && fs::metadata(&left).unwrap().len() == 0);
        (here, left)
    };
    // The next one can be continued.
    let (here, left) = planted();
    assert!(killed(here.path(), "pwrite64", 100, &resume));
    assert!(has_mark(&left));
    let receipt = cp_in(here.path(), &resume).succeeded().receipt();
    assert!(receipt["resumed_bytes"].as_u64().unwrap() > 0, "{receipt}");
    assert_eq!(names(&here.path().join("k")), ["big", "other"]);
    // Without --resume it is removed.
    let (here, _) = planted();
    cp_in(here.path(), &["-aT", "s", "k"]).succeeded();
    assert_eq!(names(&here.path().join("k")), ["big", "other"]);
    // What others may have made, or written to, stays.
    let changes: [fn(&Path); 4] = [
        |left| fs::set_permissions(left, fs::Permissions::from_mode(0o620)).unwrap(),
        |left| fs::hard_link(left, left.with_file_name("name")).unwrap(),
        |left| fs::write(left, "bytes").unwrap(),
        |left| {
            if is_root() {
                chown(left, Some(1234), None).unwrap();
            } else {
                fs::write(left, "bytes").unwrap();
            }
        },
    ];
    for change in changes {
        let (here, left) = planted();
        change(&left);
        let before = fs::metadata(&left).unwrap();
        cp_in(here.path(), &resume).succeeded();
        let after = fs::metadata(&left).unwrap();
        let facts = |of: &fs::Metadata| (of.ino(), of.len(), of.mode(), of.uid(), of.nlink());
        assert_eq!(facts(&before), facts(&after));
        assert_eq!(fs::read(here.path().join("k/big")).unwrap(), noise(20 << 20));
    }
}

#[test]
fn a_folder_whose_name_is_refused_is_one_line() {
    if !has("strace") {
        return;
    }
    let here = folder();
    fs::create_dir_all(here.path().join("s/a")).unwrap();
    fs::write(here.path().join("s/file"), "bytes").unwrap();
    let inject = ["-e", "trace=renameat2", "-e", "inject=renameat2:error=EIO:when=1"];
    let (finished, _) = traced_in(here.path(), &inject, &["-a", "-j1", "s", "k"]);
    let lines = "underpass: naming k: Input/output error\nunderpass: 1 problem (see above)\n";
    assert_eq!((finished.code(), &*finished.stderr), (Some(1), lines));
    // The next copy takes over what the first one has left.
    let next = cp_in(here.path(), &["-a", "s", "k"]);
    assert_eq!(next.code(), Some(0), "{}", next.stderr);
    assert_eq!(fs::read(here.path().join("k/file")).unwrap(), b"bytes");
    assert_eq!(names(here.path()), ["k", "s"]);
}

#[test]
fn a_folder_that_cannot_be_examined_leaves_no_hidden_one() {
    if !has("strace") {
        return;
    }
    for call in ["fstat", "newfstatat", "fgetxattr", "fremovexattr", "openat"] {
        for when in 1..80 {
            let here = folder();
            fs::create_dir_all(here.path().join("s/a")).unwrap();
            fs::write(here.path().join("s/a/file"), "bytes").unwrap();
            let (trace, inject) =
                (format!("trace={call}"), format!("inject={call}:error=EIO:when={when}"));
            let words = ["-a", "-j1", "s", "k"];
            let (finished, log) = traced_in(here.path(), &["-e", &trace, "-e", &inject], &words);
            if !log.contains("INJECTED") {
                break;
            }
            let text = format!("{call} {when}: {}", finished.stderr);
            // 127: the program was not even loaded.
            assert!(matches!(finished.code(), Some(0 | 1 | 127)), "{text}");
            let mut command = Command::new("find");
            command.args([".", "-name", ".*.part"]).current_dir(here.path());
            let found = command.output().unwrap().stdout;
            assert_eq!(String::from_utf8(found).unwrap(), "", "{text}");
            if finished.code() == Some(0) {
                let copy = here.path().join("k");
                assert_eq!(fs::read(copy.join("a/file")).unwrap(), b"bytes", "{text}");
                for folder in ["", "a"] {
                    let mark = getxattr(copy.join(folder), "user.underpass.hidden", &mut [0; 300]);
                    assert!(mark.is_err(), "{text}");
                }
            }
        }
    }
}
