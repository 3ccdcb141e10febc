//! `cp` of trees: what goes where, and what belongs to it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::cp::cp_in;
use crate::rig::{folder, names, noise, noise_file};
use tempfile::TempDir;
use underpass_testkit::Content;

/// A tree `a`, with everything that needs no privilege, in a folder of the test's own.
fn tree() -> TempDir {
    let here = folder();
    let a = here.path().join("a");
    fs::create_dir_all(a.join("b/c")).unwrap();
    fs::create_dir(a.join("empty")).unwrap();
    noise_file(&a, "small", 100);
    noise_file(&a.join("b"), "large", 300_000);
    noise_file(&a.join("b/c"), "nothing", 0);
    fs::write(a.join(OsStr::from_bytes(b"n\xff\n")), "bytes").unwrap();
    symlink("small", a.join("link")).unwrap();
    symlink("nowhere", a.join("b/dangling")).unwrap();
    fs::set_permissions(a.join("b"), fs::Permissions::from_mode(0o2750)).unwrap();
    fs::set_permissions(a.join("small"), fs::Permissions::from_mode(0o4755)).unwrap();
    here
}

/// Everything below a folder, by its path: kind, mode, time, and bytes or what a link leads to.
fn contents(root: &Path) -> Vec<(PathBuf, u32, i64, i64, Content)> {
    let entries = underpass_testkit::tree(root).into_iter().map(|(path, entry)| {
        let facts = entry.facts;
        (path, facts.mode(), facts.mtime(), facts.mtime_nsec(), entry.content)
    });
    entries.collect()
}

#[test]
fn an_archive_is_the_same_in_everything() {
    let here = tree();
    let receipt = cp_in(here.path(), &["-a", "--json", "a", "z"]).succeeded().receipt();
    assert_eq!(contents(&here.path().join("a")), contents(&here.path().join("z")));
    assert_eq!(names(here.path()), ["a", "z"]);
    let count = |name: &str| receipt[name].as_u64().unwrap();
    assert_eq!((count("files"), count("folders"), count("links")), (4, 4, 2));
    assert_eq!(count("bytes"), 300_105);
    let systems = receipt["file_systems"].as_array().unwrap();
    assert_eq!(systems.iter().map(|each| each["files"].as_u64().unwrap()).sum::<u64>(), 4);
    assert_eq!((count("failed"), count("kept")), (0, 0));
}

#[test]
fn names_of_one_file_stay_names_of_one_file() {
    let here = folder();
    let a = here.path().join("a");
    for name in ["one", "two", "three"] {
        fs::create_dir_all(a.join(name)).unwrap();
        fs::hard_link(noise_file(&a.join(name), "x", 10), a.join(name).join("y")).unwrap();
        fs::hard_link(a.join(name).join("x"), a.join(format!("{name}.link"))).unwrap();
    }
    let receipt = cp_in(here.path(), &["-a", "--json", "a", "z"]).succeeded().receipt();
    assert_eq!((&receipt["files"], &receipt["hard_links"]), (&3.into(), &6.into()));
    let number = |path: &str| fs::metadata(here.path().join("z").join(path)).unwrap().ino();
    for name in ["one", "two", "three"] {
        assert_eq!(number(&format!("{name}/x")), number(&format!("{name}/y")));
        assert_eq!(number(&format!("{name}/x")), number(&format!("{name}.link")));
    }
    // A second run finds them linked; without -a each name is a file.
    cp_in(here.path(), &["-aT", "a", "z"]).succeeded();
    assert_eq!(number("one/x"), number("one.link"));
    cp_in(here.path(), &["-r", "a", "y"]).succeeded();
    assert_eq!(fs::metadata(here.path().join("y/one/x")).unwrap().nlink(), 1);
}

#[test]
fn paths_mean_what_they_mean_to_coreutils() {
    // Arguments, and where the file `f` of the folder `a` or `f` itself is then.
    for (words, at) in [
        (&["-r", "a", "new"][..], "new/f"),
        (&["-r", "a/", "new"], "new/f"),
        (&["-r", "a", "new/"], "new/f"),
        (&["-r", "a", "d"], "d/a/f"),
        (&["-r", "a/", "d"], "d/a/f"),
        (&["-r", "a/.", "d"], "d/f"),
        (&["-rT", "a", "d"], "d/f"),
        (&["-r", "-t", "d", "a"], "d/a/f"),
        (&["-t", "d", "f"], "d/f"),
        (&["f", "d"], "d/f"),
        (&["f", "d/"], "d/f"),
        (&["f", "d/g"], "d/g"),
        (&["f", "./g"], "g"),
        (&["-r", "a", "f2", "d"], "d/a/f"),
        (&["f", "f2", "d"], "d/f2"),
        (&["-R", "d/../a", "d"], "d/a/f"),
    ] {
        let here = folder();
        for name in ["a", "d"] {
            fs::create_dir(here.path().join(name)).unwrap();
        }
        for name in ["a/f", "f", "f2"] {
            fs::write(here.path().join(name), "bytes").unwrap();
        }
        cp_in(here.path(), words).succeeded();
        assert_eq!(fs::read(here.path().join(at)).unwrap_or_default(), b"bytes", "{words:?}");
        assert!(!here.path().join("d/d").exists(), "{words:?}");
    }
}

#[test]
fn paths_that_mean_nothing_are_refused() {
    let here = tree();
    fs::create_dir(here.path().join("d")).unwrap();
    fs::write(here.path().join("f"), "").unwrap();
    for (words, code, says) in [
        (&["f"][..], 2, "a source and a target are required"),
        (&["f", "a/small", "new"], 2, "is not a folder"),
        (&["-T", "f", "f", "d"], 2, "-T"),
        (&["f", "new/"], 1, "Not a directory"),
        (&["a", "new"], 1, "add -r to copy folders"),
        (&["-r", "a", "f"], 1, "putting a folder in the place of"),
        (&["-T", "f", "d"], 1, "Is a directory"),
        (&["-r", "a", "a/b/new"], 2, "into itself"),
        (&["-r", "a", "a"], 2, "into itself"),
        (&["-r", "a/.", "a"], 2, "into itself"),
        (&["f", "f"], 2, "same file"),
        (&["-r", "-", "d"], 2, "cannot be combined"),
        (&["f", "-", "d"], 2, "standard input"),
        (&["--reflink=never", "--mechanism", "sendfile", "f", "new"], 2, "--reflink"),
    ] {
        let finished = cp_in(here.path(), words);
        assert_eq!(finished.code(), Some(code), "{words:?}: {}", finished.stderr);
        assert!(finished.stderr.contains(says), "{words:?}: {}", finished.stderr);
    }
    assert_eq!(names(here.path()), ["a", "d", "f"]);
}

#[test]
fn a_file_of_the_same_run_is_not_replaced() {
    let here = tree();
    fs::create_dir(here.path().join("d")).unwrap();
    fs::write(here.path().join("small"), "other").unwrap();
    let finished = cp_in(here.path(), &["a/small", "small", "d"]);
    assert_eq!(finished.code(), Some(1));
    assert!(finished.stderr.contains("just created"), "{}", finished.stderr);
    assert_eq!(fs::read(here.path().join("d/small")).unwrap(), noise(100));
}

#[test]
fn errors_do_not_stop_the_rest() {
    let here = tree();
    fs::create_dir_all(here.path().join("z/small")).unwrap();
    fs::write(here.path().join("z/b"), "in the way").unwrap();
    let finished = cp_in(here.path(), &["-rT", "a", "z"]);
    assert_eq!(finished.code(), Some(1));
    for says in ["z/small: Is a directory", "z/b: Not a directory", "2 problems"] {
        assert!(finished.stderr.contains(says), "{}", finished.stderr);
    }
    assert!(here.path().join("z/link").is_symlink() && here.path().join("z/empty").is_dir());
    let finished = cp_in(here.path(), &["a/small", "missing", "z/empty", "--json"]);
    assert_eq!(finished.code(), Some(1));
    assert_eq!(finished.receipt()["errors"][0], "opening missing: No such file or directory");
    assert_eq!(names(&here.path().join("z/empty")), ["small"]);
}

#[test]
fn link_options_decide_which_links_are_followed() {
    let here = tree();
    symlink("a", here.path().join("named")).unwrap();
    cp_in(here.path(), &["-r", "named", "p"]).succeeded();
    assert!(here.path().join("p").is_symlink());
    cp_in(here.path(), &["-rH", "named", "h"]).succeeded();
    assert!(here.path().join("h/link").is_symlink() && !here.path().join("h").is_symlink());
    fs::remove_file(here.path().join("a/b/dangling")).unwrap();
    cp_in(here.path(), &["-rL", "named", "l"]).succeeded();
    assert!(!here.path().join("l/link").is_symlink());
    assert_eq!(fs::read(here.path().join("l/link")).unwrap(), noise(100));
    cp_in(here.path(), &["-P", "a/link", "one"]).succeeded();
    assert!(here.path().join("one").is_symlink());
}

#[test]
fn the_target_of_several_symlinks_is_copied_as_one_file() {
    let here = tree();
    fs::create_dir(here.path().join("many")).unwrap();
    fs::write(here.path().join("many/file"), noise(5000)).unwrap();
    for name in ["many/first", "many/second"] {
        symlink("file", here.path().join(name)).unwrap();
    }
    let inode = |name: &str| fs::symlink_metadata(here.path().join(name)).unwrap().ino();
    cp_in(here.path(), &["-aL", "many", "one"]).succeeded();
    assert_eq!(fs::read(here.path().join("one/second")).unwrap(), noise(5000));
    assert_eq!(inode("one/first"), inode("one/file"));
    assert_eq!(inode("one/second"), inode("one/file"));
    // Without the option each name becomes a separate file.
    cp_in(here.path(), &["-rL", "many", "three"]).succeeded();
    assert_ne!(inode("three/first"), inode("three/file"));
}

#[test]
fn links_in_a_circle_are_reported_and_left_out() {
    let here = tree();
    fs::remove_file(here.path().join("a/b/dangling")).unwrap();
    symlink("..", here.path().join("a/b/up")).unwrap();
    symlink("self", here.path().join("a/self")).unwrap();
    let finished = cp_in(here.path(), &["-rL", "a", "z"]);
    assert_eq!(finished.code(), Some(1));
    assert!(
        finished.stderr.contains("the link points to a folder that contains it"),
        "{}",
        finished.stderr
    );
    assert!(finished.stderr.contains("a/self"), "{}", finished.stderr);
    assert_eq!(fs::read(here.path().join("z/b/large")).unwrap(), noise(300_000));
    assert!(!here.path().join("z/b/up").exists());
}

#[test]
fn a_link_in_the_way_is_replaced_and_not_followed() {
    let here = tree();
    fs::create_dir(here.path().join("outside")).unwrap();
    fs::write(here.path().join("outside/file"), "mine").unwrap();
    fs::create_dir(here.path().join("z")).unwrap();
    symlink("../outside/file", here.path().join("z/small")).unwrap();
    symlink("../outside", here.path().join("z/b")).unwrap();
    let finished = cp_in(here.path(), &["-aT", "a", "z"]);
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    assert_eq!(fs::read(here.path().join("outside/file")).unwrap(), b"mine");
    assert_eq!(names(&here.path().join("outside")), ["file"]);
    assert!(!here.path().join("z/small").is_symlink());
}

#[test]
fn overwrite_options_decide_which_files_are_replaced() {
    let here = folder();
    let place = |name: &str| here.path().join(name);
    fs::create_dir_all(place("a")).unwrap();
    let write = |name: &str, text: &str, time: u64| {
        fs::write(place(name), text).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(time);
        fs::File::options().write(true).open(place(name)).unwrap().set_modified(time).unwrap();
    };
    for (option, older, newer) in [("-n", "old", "old"), ("-u", "old", "new"), ("-f", "new", "new")]
    {
        fs::create_dir_all(place("z")).unwrap();
        write("a/older", "new", 1000);
        write("a/newer", "new", 3000);
        write("z/older", "old", 2000);
        write("z/newer", "old", 2000);
        cp_in(here.path(), &["-rT", option, "a", "z"]).succeeded();
        assert_eq!(fs::read_to_string(place("z/older")).unwrap(), older, "{option}");
        assert_eq!(fs::read_to_string(place("z/newer")).unwrap(), newer, "{option}");
        fs::remove_dir_all(place("z")).unwrap();
    }
}

#[test]
fn excluded_entries_are_not_copied() {
    let here = tree();
    let words = ["-r", "--exclude", "*ng", "--exclude", "/b/c", "--json", "a", "z"];
    let receipt = cp_in(here.path(), &words).succeeded().receipt();
    assert_eq!(names(&here.path().join("z/b")), ["large"]);
    assert_eq!(receipt["excluded"], 2);
}

#[test]
fn a_dry_run_prints_and_changes_nothing() {
    let here = tree();
    let finished = cp_in(here.path(), &["-a", "--dry-run", "a", "z"]).succeeded();
    assert!(finished.text().contains("a/b/large -> z/b/large\n"), "{}", finished.text());
    assert!(finished.stderr.starts_with("would copy 4 files"), "{}", finished.stderr);
    assert_eq!(names(here.path()), ["a"]);
    fs::create_dir_all(here.path().join("z/a/b")).unwrap();
    fs::write(here.path().join("z/a/b/large"), "").unwrap();
    let finished = cp_in(here.path(), &["-rn", "--dry-run", "a", "z"]).succeeded();
    assert!(!finished.text().contains("large"), "{}", finished.text());
}

#[test]
fn a_tree_deeper_than_any_path_is_copied() {
    let here = folder();
    // 40 × 200 bytes: twice what a path may have.
    let name = "d".repeat(200);
    let script = format!(
        "mkdir a; cd a; for i in $(seq 40); do mkdir {name}; cd -P {name}; done; echo deep > file"
    );
    let run = |program: &str, words: &[&str]| {
        let mut command = std::process::Command::new(program);
        let output = command.args(words).current_dir(here.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    run("bash", &["-ec", &script]);
    let receipt = cp_in(here.path(), &["-a", "--json", "a", "z"]).succeeded().receipt();
    assert_eq!((&receipt["files"], &receipt["folders"]), (&1.into(), &41.into()));
    let script = format!("cd z; for i in $(seq 40); do cd -P {name}; done; cat file");
    assert_eq!(run("bash", &["-ec", &script]), b"deep\n");
    // Removing a tree by its paths would not do.
    run("rm", &["-rf", "a", "z"]);
}

#[test]
fn many_levels_and_many_threads_make_the_same_copy() {
    let here = folder();
    let mut at = here.path().join("a");
    for level in 0..300 {
        at.push("d");
        fs::create_dir_all(&at).unwrap();
        fs::write(at.join("f"), level.to_string()).unwrap();
    }
    for jobs in ["1", "2", "16"] {
        cp_in(here.path(), &["-a", "-j", jobs, "a", "z"]).succeeded();
        assert_eq!(contents(&here.path().join("a")), contents(&here.path().join("z")), "{jobs}");
        fs::remove_dir_all(here.path().join("z")).unwrap();
    }
}

#[test]
fn a_folder_of_many_entries_is_copied_in_parts() {
    let here = folder();
    let a = here.path().join("a");
    fs::create_dir(&a).unwrap();
    for number in 0..9000 {
        if number % 3 == 0 {
            fs::create_dir(a.join(format!("folder-{number}"))).unwrap();
        } else {
            fs::write(a.join(format!("file-{number}")), number.to_string()).unwrap();
        }
    }
    let receipt = cp_in(here.path(), &["-r", "--json", "a", "z"]).succeeded().receipt();
    assert_eq!((&receipt["files"], &receipt["folders"]), (&6000.into(), &3001.into()));
    assert_eq!(contents(&a), contents(&here.path().join("z")));
    assert_eq!(names(here.path()), ["a", "z"]);
}
