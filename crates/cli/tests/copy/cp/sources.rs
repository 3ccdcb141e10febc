//! Several sources of one name, and existing targets that are not files.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cp::cp_in;
use crate::rig::{Running, folder, names, underpass, until};
use crate::users::cp_as_user;

#[test]
fn folders_of_one_name_become_one_and_none_of_their_files_is_replaced() {
    let here = folder();
    for (name, text) in [("a/x/f", "a"), ("a/x/deep/f", "a"), ("b/x/g", "b"), ("b/x/deep/f", "b")] {
        fs::create_dir_all(here.path().join(name).parent().unwrap()).unwrap();
        fs::write(here.path().join(name), text).unwrap();
    }
    std::os::unix::fs::symlink("there", here.path().join("a/x/link")).unwrap();
    std::os::unix::fs::symlink("elsewhere", here.path().join("b/x/link")).unwrap();
    fs::create_dir(here.path().join("d")).unwrap();
    let finished = cp_in(here.path(), &["-r", "a/x", "b/x", "d"]);
    assert_eq!(finished.code(), Some(1));
    for says in [
        "b/x/deep/f would replace d/x/deep/f, which this command has just created",
        "b/x/link would replace d/x/link, which this command has just created",
        "2 problems",
    ] {
        assert!(finished.stderr.contains(says), "{}", finished.stderr);
    }
    assert_eq!(names(&here.path().join("d")), ["x"]);
    assert_eq!(names(&here.path().join("d/x")), ["deep", "f", "g", "link"]);
    assert_eq!(fs::read(here.path().join("d/x/deep/f")).unwrap(), b"a");
    // An existing file is replaced by the first of them.
    let finished = cp_in(here.path(), &["-r", "b/x", "a/x", "d"]);
    assert_eq!(finished.code(), Some(1));
    assert_eq!(fs::read(here.path().join("d/x/deep/f")).unwrap(), b"b");
}

#[test]
fn sources_named_twice_are_copied_once() {
    let here = folder();
    for name in ["a/x", "d"] {
        fs::create_dir_all(here.path().join(name)).unwrap();
    }
    for name in ["a/x/f", "f"] {
        fs::write(here.path().join(name), "bytes").unwrap();
    }
    let words = ["-r", "--json", "a/x", "f", "a/x/", "./f", "d"];
    let finished = cp_in(here.path(), &words).succeeded();
    assert!(finished.stderr.contains("a/x/ was named twice"), "{}", finished.stderr);
    assert!(finished.stderr.contains("./f was named twice"), "{}", finished.stderr);
    assert_eq!(finished.receipt()["files"], 2);
    assert_eq!(names(&here.path().join("d")), ["f", "x"]);
}

#[test]
fn an_absolute_and_a_relative_path_are_two_sources() {
    let here = folder();
    let root = here.path().join("k");
    let below = here.path().join(root.strip_prefix("/").unwrap());
    for (folder, name) in [(&root, "f"), (&below, "f"), (&below, "g")] {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(name), folder.join(name).as_os_str().as_encoded_bytes()).unwrap();
    }
    let (absolute, f) = (root.join("f"), root.strip_prefix("/").unwrap().join("f"));
    let g = f.with_file_name("g");
    let words = [&absolute, &g, &f].map(|path| path.to_str().unwrap());
    for (words, code) in [(&words[..2], 0), (&words[..], 1)] {
        let target = here.path().join("t");
        fs::create_dir(&target).unwrap();
        let finished = cp_in(here.path(), &[&["--parents"], words, &["t"]].concat());
        assert_eq!(finished.code(), Some(code), "{}", finished.stderr);
        let copied = |path: &Path| fs::read_to_string(target.join(path)).unwrap();
        if code == 0 {
            assert_eq!(copied(&f), absolute.to_str().unwrap());
        } else {
            assert!(
                finished.stderr.contains("which this command has just created"),
                "{}",
                finished.stderr
            );
        }
        assert_eq!(copied(&g), below.join("g").to_str().unwrap());
        fs::remove_dir_all(&target).unwrap();
    }
}

#[test]
fn a_path_without_a_name_stands_for_everything_in_it() {
    let here = folder();
    let source = here.path().join("s");
    fs::create_dir_all(source.join("a")).unwrap();
    for name in ["f", "a/g"] {
        fs::write(source.join(name), name).unwrap();
    }
    for words in ["-r --parents .", "-a --parents ./", "-r --parents a/g ./. f"] {
        let target = here.path().join("t");
        fs::create_dir(&target).unwrap();
        let words: Vec<_> = words.split(' ').chain(["../t"]).collect();
        let finished = cp_in(&source, &words).succeeded();
        assert_eq!(finished.stderr, "", "{words:?}");
        assert_eq!(names(&target), ["a", "f"], "{words:?}");
        assert_eq!(fs::read(target.join("a/g")).unwrap(), b"a/g", "{words:?}");
        fs::remove_dir_all(&target).unwrap();
    }
}

#[test]
fn a_fifo_in_the_way_is_not_replaced_by_a_file() {
    let here = folder();
    fs::create_dir(here.path().join("a")).unwrap();
    fs::create_dir(here.path().join("z")).unwrap();
    fs::write(here.path().join("a/f"), "bytes").unwrap();
    let fifo = here.path().join("z/f");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let finished = cp_in(here.path(), &["-aT", "a", "z"]);
    assert_eq!(finished.code(), Some(1));
    assert!(finished.stderr.contains("z/f"), "{}", finished.stderr);
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
    // Named itself, it takes the bytes, also for those who always say -a.
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::read(fifo).unwrap()
    });
    cp_in(here.path(), &["-a", "a/f", "z/f"]).succeeded();
    assert_eq!(reader.join().unwrap(), b"bytes");
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
    let words = ["--parents", "a/f", "z/f"];
    cp_in(here.path(), &words).failed(2, &["--parents puts sources into a folder"]);
    cp_in(here.path(), &["-aT", "--force", "a", "z"]).succeeded();
    assert_eq!(fs::read(&fifo).unwrap(), b"bytes");
}

#[test]
fn a_dry_run_does_not_write_to_streams() {
    let here = folder();
    fs::write(here.path().join("a"), "bytes").unwrap();
    for words in [["--dry-run", "a", "-"], ["--dry-run", "-", "z"]] {
        let output = cp_in(here.path(), &words).succeeded().text();
        assert_eq!(output, format!("{} -> {}\n", words[1], words[2]));
    }
    // What would fail, or copy nothing, does so.
    fs::write(here.path().join("b"), "").unwrap();
    for (words, code) in [("nosuch -", 1), ("- nosuch/z", 1), ("a /dev/fd/0", 2), ("-n - b", 0)] {
        let mut command = underpass();
        command.args(["cp", "--dry-run"]).args(words.split(' ')).current_dir(here.path());
        command.stdin(File::open(here.path().join("a")).unwrap());
        let finished = Running::start(command).finish();
        assert_eq!(finished.code(), Some(code), "{words}: {}", finished.stderr);
        assert_eq!(finished.text(), "", "{words}");
    }
    // Nobody writes to it.
    assert!(Command::new("mkfifo").arg(here.path().join("p")).status().unwrap().success());
    let output = cp_in(here.path(), &["--dry-run", "p", "z"]).succeeded().text();
    assert!(output.starts_with("p -> z\n"), "{output}");
    assert_eq!(names(here.path()), ["a", "b", "p"]);
    // Nobody may read it.
    fs::set_permissions(here.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(here.path().join("p"), fs::Permissions::from_mode(0o200)).unwrap();
    if let Some(finished) = cp_as_user(here.path(), &["--dry-run", "p", "z"]) {
        finished.failed(1, &["p", "Permission denied"]);
    }
}

#[test]
fn options_that_need_a_file_are_refused_for_streams() {
    let here = folder();
    for word in
        ["--verify", "--resume", "--update", "--sparse=always", "--reflink=always", "--in-place"]
    {
        let finished = cp_in(here.path(), &[word, "-", "z"]);
        let name = word.split('=').next().unwrap();
        finished.failed(2, &[name, "read or written only once"]);
        assert_eq!(names(here.path()), [] as [&str; 0]);
    }
    // What can be is kept.
    fs::write(here.path().join("a"), vec![1; 1 << 20]).unwrap();
    let mut command = underpass();
    command.args(["cp", "--json", "--reflink=never", "--sync", "-", "z"]);
    command.current_dir(here.path()).stdin(File::open(here.path().join("a")).unwrap());
    let receipt = Running::start(command).finish().succeeded().receipt();
    assert_eq!(receipt["mechanisms"][0]["name"], "sendfile", "{receipt}");
    assert_eq!(fs::metadata(here.path().join("z")).unwrap().size(), 1 << 20);
}

#[test]
fn control_characters_of_names_are_printed_escaped() {
    let here = folder();
    let finished = cp_in(here.path(), &["missing\u{1b}[31m\nline", "z"]);
    finished.failed(1, &["missing\\u{1b}[31m\\nline"]);
    fs::write(here.path().join("a\nb"), "").unwrap();
    let output = cp_in(here.path(), &["--dry-run", "a\nb", "z"]).succeeded().text();
    assert_eq!(output, "a\\nb -> z\n");
}

#[test]
fn receipts_name_the_kind_of_the_source() {
    let here = folder();
    fs::write(here.path().join("file"), "bytes").unwrap();
    for (source, kind) in [("file", "file"), ("/proc/cpuinfo", "other"), ("/dev/null", "device")] {
        let receipt = cp_in(here.path(), &["--json", source, "z"]).succeeded().receipt();
        assert_eq!((&receipt["from"], &receipt["to"]), (&kind.into(), &"file".into()), "{source}");
    }
    fs::create_dir(here.path().join("d")).unwrap();
    let receipt =
        cp_in(here.path(), &["--json", "file", "/proc/cpuinfo", "d"]).succeeded().receipt();
    assert_eq!((receipt.get("from"), &receipt["to"]), (None, &"file".into()), "{receipt}");
}

#[test]
fn a_copy_of_a_missing_source_has_a_receipt() {
    let here = folder();
    for words in [["--json", "nosuch", "z"], ["--json", "nosuch", "/dev/null"]] {
        let receipt = cp_in(here.path(), &words).failed(1, &["nosuch"]).receipt();
        assert!(receipt["error"].as_str().unwrap().contains("nosuch"), "{receipt}");
        assert_eq!((&receipt["failed"], &receipt["bytes"]), (&1.into(), &0.into()), "{receipt}");
    }
    assert!(cp_in(here.path(), &["--json", "-n", "-u", "nosuch"]).stdout.is_empty());
}

#[test]
fn a_file_that_appears_while_a_stream_is_copied_is_replaced_as_the_options_say() {
    for (option, code, text) in [
        ("-p", 0, "stream"),
        ("-f", 0, "stream"),
        ("-n", 1, "mine"),
        ("--update=none-fail", 1, "mine"),
    ] {
        let here = folder();
        let mut command = underpass();
        command.args(["cp", "--json", option, "-", "late"]).current_dir(here.path());
        command.stdin(Stdio::piped());
        let mut copy = Running::start(command);
        copy.child.stdin.as_mut().unwrap().write_all(b"str").unwrap();
        // The file without a name is there: the target was looked at.
        let descriptors = format!("/proc/{}/fd", copy.child.id());
        let root = here.path().canonicalize().unwrap();
        until("it copies", || {
            let opened = fs::read_dir(&descriptors).unwrap().flatten();
            let mut paths = opened.filter_map(|it| fs::read_link(it.path()).ok());
            paths.any(|path| {
                path.starts_with(&root) && path.to_string_lossy().ends_with("(deleted)")
            })
        });
        fs::write(here.path().join("late"), "mine").unwrap();
        copy.child.stdin.as_mut().unwrap().write_all(b"eam").unwrap();
        let finished = copy.finish();
        assert_eq!(finished.code(), Some(code), "{option}: {}", finished.stderr);
        assert_eq!(fs::read_to_string(here.path().join("late")).unwrap(), text, "{option}");
        assert_eq!(names(here.path()), ["late"], "{option}");
        assert_eq!(finished.receipt()["error"].is_null(), code == 0, "{option}");
    }
}

#[test]
fn streams_that_are_not_copied_have_receipts() {
    let here = folder();
    fs::write(here.path().join("there"), "old").unwrap();
    let kept = cp_in(here.path(), &["--json", "-n", "-", "there"]).succeeded().receipt();
    assert_eq!((&kept["kept"], &kept["files"], &kept["bytes"]), (&1.into(), &0.into(), &0.into()));
    let dry = cp_in(here.path(), &["--json", "--dry-run", "-", "new"]).succeeded().receipt();
    assert_eq!(
        (&dry["dry_run"], &dry["files"], &dry["bytes"]),
        (&true.into(), &1.into(), &0.into())
    );
    let refused = cp_in(here.path(), &["--json", "--update=none-fail", "-", "there"]);
    assert!(refused.receipt()["error"].as_str().unwrap().contains("there"));
}

#[test]
fn a_dry_run_refuses_a_second_source_of_a_name_as_the_copy_does() {
    let here = folder();
    for name in ["a", "b", "t"] {
        fs::create_dir(here.path().join(name)).unwrap();
    }
    for name in ["a/f", "b/f"] {
        fs::write(here.path().join(name), name).unwrap();
    }
    for words in [["--dry-run", "a/f", "b/f", "t"].as_slice(), &["a/f", "b/f", "t"]] {
        let mut command = underpass();
        command.arg("cp").args(words).current_dir(here.path());
        let finished = Running::start(command).finish();
        let told = "b/f would replace t/f, which this command has just created";
        assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
        assert!(finished.stderr.contains(told), "{}", finished.stderr);
    }
    assert_eq!(fs::read_to_string(here.path().join("t/f")).unwrap(), "a/f");
}
