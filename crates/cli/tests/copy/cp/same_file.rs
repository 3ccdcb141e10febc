//! A file is never copied onto itself, whichever links lead from one name to the other: compared
//! with the results of coreutils' `cp`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use underpass_testkit::{Content, tree};

use crate::cp::cp_in;
use crate::rig::{Finished, Running, folder, has, traced, underpass};

/// Makes the files of a case.
fn prepare(script: &str, here: &Path) {
    let script = format!("set -e\n{script}");
    assert!(Command::new("sh").arg("-c").arg(script).current_dir(here).status().unwrap().success());
}

/// Everything below a folder: of files the bytes, of links where they lead to.
fn contents(root: &Path) -> BTreeMap<PathBuf, String> {
    let text = |content| match content {
        Content::Folder => "folder".to_owned(),
        Content::File(bytes) => String::from_utf8(bytes).unwrap(),
        Content::Link(target) => format!("-> {}", target.display()),
        Content::Other => "special".to_owned(),
    };
    tree(root).into_iter().map(|(path, entry)| (path, text(entry.content))).collect()
}

/// Runs a command line of `cp` in a folder, through a shell.
fn shell(here: &Path, program: &str, words: &str) -> Finished {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "20", "sh", "-c", &format!("{program} {words}")]);
    command.current_dir(here).stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    Running::start(command).finish()
}

/// What coreutils and this program make of the same files: whether each refused, and what is there
/// afterwards. `None` without coreutils.
struct Both {
    before: BTreeMap<PathBuf, String>,
    theirs: (bool, BTreeMap<PathBuf, String>),
    ours: (Option<i32>, String, BTreeMap<PathBuf, String>),
}

fn both(script: &str, words: &str) -> Both {
    let (mine, other) = (folder(), folder());
    prepare(script, mine.path());
    prepare(script, other.path());
    let before = contents(mine.path());
    let theirs = shell(other.path(), "cp", words);
    let program = format!("{} cp", underpass().get_program().display());
    let ours = shell(mine.path(), &program, words);
    Both {
        before,
        theirs: (theirs.code() == Some(0), contents(other.path())),
        ours: (ours.code(), ours.stderr, contents(mine.path())),
    }
}

/// Every one of these is refused by coreutils, and has to be refused without any change.
#[test]
fn a_file_is_never_copied_onto_itself() {
    if !has("timeout") {
        return;
    }
    const FILE_AND_LINK: &str = "echo data > f; ln -s f g";
    const TREES: &str = "mkdir a b; echo data > b/x; ln -s ../b/x a/x";
    let cases = [
        (FILE_AND_LINK, "-P g f"),
        (FILE_AND_LINK, "-a g f"),
        (FILE_AND_LINK, "-r g f"),
        (FILE_AND_LINK, "-P -f g f"),
        (FILE_AND_LINK, "-P -u g f"),
        (FILE_AND_LINK, "-L g f"),
        (FILE_AND_LINK, "-H g f"),
        (FILE_AND_LINK, "f g"),
        (FILE_AND_LINK, "-P f g"),
        (FILE_AND_LINK, "-a f g"),
        (FILE_AND_LINK, "f f"),
        (FILE_AND_LINK, "g g"),
        (FILE_AND_LINK, "-P g g"),
        (FILE_AND_LINK, "-a g g"),
        (FILE_AND_LINK, "f ./f"),
        (FILE_AND_LINK, "f ."),
        (FILE_AND_LINK, "-P ./g $PWD/f"),
        ("echo data > f; ln -s g h; ln -s f g", "-P h f"),
        ("echo data > f; ln f g", "f g"),
        ("echo data > f; ln f g", "-a f g"),
        ("echo data > f; ln f g; ln -s g l", "-P l f"),
        ("echo data > f; ln -s $PWD/f g", "-P g f"),
        ("mkdir d; echo data > d/conf; ln -s d/conf conf", "-r conf d"),
        ("mkdir d; echo data > d/conf; ln -s d/conf conf", "-a conf d/"),
        ("mkdir d; echo data > d/conf; ln -s d/conf conf", "-P -t d conf"),
        ("mkdir d e; echo data > d/conf; ln -s ../d/conf e/conf", "-a e/conf d/."),
        (TREES, "-r a/. b/"),
        (TREES, "-a a/. b/"),
        (TREES, "-rT a b"),
        (TREES, "-rL a/. b/"),
        (TREES, "-r b/. a/"),
        (TREES, "-a b/. a/"),
        (TREES, "-rL b/. a/"),
        ("mkdir -p a/s b/s; echo data > b/s/x; ln -s ../../b/s/x a/s/x", "-aT a b"),
        ("mkdir a; echo data > a/x; ln -s a l", "-r a/. l"),
        ("mkdir a; echo data > a/x; ln -s a l", "-rT a l/"),
        ("mkdir a; echo data > a/x; ln -s a l", "-r a a"),
        ("mkdir a; echo data > a/x; ln -s a l", "-r a l/"),
        ("mkdir a; echo data > a/x; ln -s a l", "a/x l"),
        ("mkdir a; echo data > a/x; ln -s a l", "l/x a/"),
        ("mkfifo p", "p p"),
        ("mkfifo p; ln -s p q", "p q"),
        ("mkfifo p; ln -s p q", "-a q p"),
        ("mkfifo p; ln -s p q", "-a p q"),
        ("true", "/dev/null /dev/null"),
        ("echo data > f; ln -s f g", "f /dev/stdout >> f"),
        ("echo data > f; ln -s f g", "/dev/stdin f < f"),
    ];
    let mut wrong = Vec::new();
    for (script, words) in cases {
        let Both { before, theirs, ours } = both(script, words);
        assert!(!theirs.0, "coreutils copies: {script}: {words}");
        if ours.0 == Some(0) || ours.0.is_none() || ours.2 != before {
            wrong.push(format!("{script}: {words}: {:?} {}", ours.0, ours.1));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_refusal_names_the_target_as_it_was_given() {
    for (words, line) in [
        ("f l", "underpass: f and l are the same file\n"),
        ("f d/../l", "underpass: f and d/../l are the same file\n"),
        ("l f", "underpass: l and f are the same file\n"),
    ] {
        let here = folder();
        prepare("echo data > f; ln -s f l; mkdir d", here.path());
        let mut command = underpass();
        command.arg("cp").args(words.split(' ')).current_dir(here.path());
        command.stderr(std::process::Stdio::piped());
        let finished = Running::start(command).finish();
        assert_eq!((finished.code(), &*finished.stderr), (Some(2), line), "{words}");
    }
}

/// What coreutils copies, although links lead from one to the other, is copied as well.
#[test]
fn links_that_are_no_danger_are_copied() {
    if !has("timeout") {
        return;
    }
    let cases = [
        ("echo data > f; ln -s f g; ln -s f h", "-P g h"),
        ("echo data > f; ln -s $PWD/f g; mkdir d; ln -s $PWD/f d/g", "-a g d"),
        ("echo data > f; echo other > o; ln -s f g", "-P g o"),
        ("echo data > f; echo other > o; ln -s f g", "o g"),
        ("ln -s nowhere g; echo other > o", "-P g o"),
        ("ln -s nowhere g; ln -s nowhere h", "-P g h"),
        // Two names of one link need no copy.
        ("echo data > f; ln -s f g; ln g h", "-P g h"),
        ("mkdir a b; ln -s nowhere a/g; ln a/g b/g; echo data > a/x", "-aT a b"),
        ("ln -s g g; echo other > o", "-P g o"),
        ("mkdir d; echo data > f; ln -s ../f d/f; ln -s d/f l", "-P l n"),
        // With -n a folder is not written to.
        ("mkdir -p s/t; echo data > s/f; ln -s f s/t/l", "-rn s ."),
        ("mkdir -p s/t; echo data > s/f; ln -s f s/t/l", "-an s/t s"),
    ];
    for (script, words) in cases {
        let Both { theirs, ours, .. } = both(script, words);
        assert!(theirs.0, "coreutils refuses: {script}: {words}");
        assert_eq!(ours.0, Some(0), "{script}: {words}: {}", ours.1);
        let clean = |found: BTreeMap<PathBuf, String>| {
            let root = |text: String| match text.rsplit_once('/') {
                Some((_, name)) if text.starts_with("-> /") => format!("-> /{name}"),
                _ => text,
            };
            found.into_iter().map(|(path, text)| (path, root(text))).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(clean(ours.2), clean(theirs.1), "{script}: {words}");
    }
}

#[test]
fn two_names_of_one_link_exist_for_no_clobber() {
    let here = folder();
    prepare("ln -s nowhere g; ln g h", here.path());
    let run = |option| cp_in(here.path(), &["--json", "-P", option, "g", "h"]);
    assert_eq!(run("-n").succeeded().receipt()["kept"], 1);
    assert_eq!(run("--update=none-fail").code(), Some(2));
    assert_eq!(run("--update=all").succeeded().receipt()["kept"], 0);
}

/// Where coreutils destroys something, this program does not.
#[test]
fn copies_onto_links_do_not_destroy_their_sources() {
    if !has("timeout") {
        return;
    }
    let cases = [
        // The link that the source leads to would become one to itself.
        ("echo data > f; ln -s f g; ln -s g h", "-P h g"),
        ("echo data > f; ln -s f g; ln -s g h; ln -s h i", "-a i g"),
        ("mkdir d; echo data > d/f; ln -s f d/g; ln -s d/g g", "-r g d"),
        // A file that is copied to its own end.
        ("echo data > f", "f - >> f"),
        ("echo data > f", "- - < f >> f"),
    ];
    for (script, words) in cases {
        let Both { before, ours, .. } = both(script, words);
        assert_eq!(ours.0.filter(|code| *code != 0), ours.0, "{script}: {words}");
        assert_eq!(ours.2, before, "{script}: {words}");
    }
    let (here, program) = (folder(), format!("{} cp", underpass().get_program().display()));
    prepare("mkdir a b t; echo 1 > a/x; echo 2 > b/x", here.path());
    let finished = shell(here.path(), &program, "-r -j8 a/x b/. t");
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("which this command has just created"), "{}", finished.stderr);
    assert_eq!(fs::read_to_string(here.path().join("t/x")).unwrap(), "1\n");
    // Writing to an open file does not remove its name.
    for (number, path) in [(1, "/dev/stdout"), (2, "/dev/stderr"), (7, "/dev/fd/7")] {
        let script = format!(
            "exec {number}>>out; echo first >&{number}; {program} -q a/x {path}; echo last >&{number}"
        );
        let _ = fs::remove_file(here.path().join("out"));
        let finished = shell(here.path(), "", &script);
        assert_eq!(finished.code(), Some(0), "{}", finished.stderr);
        let out = fs::read_to_string(here.path().join("out")).unwrap();
        assert_eq!(out, "first\n1\nlast\n", "{path}");
    }
}

/// Containers refuse pidfd_getfd(2) without CAP_SYS_PTRACE, and old kernels do not have it.
#[test]
fn an_open_file_is_written_to_where_processes_share_nothing() {
    if !has("strace") {
        return;
    }
    let here = folder();
    fs::write(here.path().join("a"), "data\n").unwrap();
    let refused = "pidfd_open,pidfd_getfd";
    let (trace, inject) = (format!("trace={refused}"), format!("inject={refused}:error=EPERM"));
    let mut command = traced(&here.path().join("log"), &["-e", &trace, "-e", &inject]);
    command.args(["cp", "-q", "a", "/dev/stderr"]).current_dir(here.path());
    let finished = Running::start(command).finish();
    assert_eq!((finished.code(), &*finished.stderr), (Some(0), "data\n"));
}
