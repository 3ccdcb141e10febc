//! Fallbacks where the usual calls fail: no hard links, a folder that is not writable, invalid
//! names, more levels than descriptors.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cp::bytes::traced_in;
use crate::cp::cp_in;
use crate::rig::{Running, folder, has, names, noise, noise_file, piped, skip};
use crate::users::{cp_as_user, give_to_user, take_from_user};
use underpass_engine::Grouped;
use underpass_testkit::is_root;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn further_names_are_copied_where_there_are_no_hard_links() {
    if !has("strace") {
        return;
    }
    for errno in ["EPERM", "EOPNOTSUPP", "EMLINK"] {
        let here = folder();
        let a = here.path().join("a");
        for name in ["one", "two"] {
            fs::create_dir_all(a.join(name)).unwrap();
            fs::hard_link(noise_file(&a.join(name), "x", 5000), a.join(name).join("y")).unwrap();
            fs::hard_link(a.join(name).join("x"), a.join(format!("{name}.link"))).unwrap();
        }
        let inject = format!("inject=link,linkat:error={errno}");
        let (finished, log) = traced_in(here.path(), &["-e", &inject], &["-a", "--json", "a", "z"]);
        assert_eq!(finished.code(), Some(0), "{errno}: {} {log}", finished.stderr);
        for name in ["one/x", "one/y", "one.link", "two/x", "two/y", "two.link"] {
            let copy = here.path().join("z").join(name);
            assert_eq!(fs::read(&copy).unwrap(), noise(5000), "{errno}: {name}");
            let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
            assert_eq!(time(&copy), time(&a.join(name)), "{errno}: {name}");
            assert_eq!(fs::metadata(&copy).unwrap().nlink(), 1);
        }
        let receipt = finished.receipt();
        assert_eq!(
            (&receipt["files"], &receipt["hard_links"], &receipt["links_copied"]),
            (&6.into(), &0.into(), &4.into())
        );
        assert!(finished.stderr.contains("4 further names"), "{errno}: {}", finished.stderr);
    }
}

#[test]
fn a_disk_error_is_not_mistaken_for_missing_hard_links() {
    if !has("strace") {
        return;
    }
    let here = folder();
    let write = |name: &str, text: &str| fs::write(here.path().join(name), text).unwrap();
    fs::create_dir(here.path().join("a")).unwrap();
    write("a/f", "one");
    fs::hard_link(here.path().join("a/f"), here.path().join("a/g")).unwrap();
    // A file of a new folder is created under its own name, so each call makes a hard link.
    let inject = ["-e", "inject=linkat:error=EIO"];
    let (finished, _) = traced_in(here.path(), &inject, &["-a", "a", "z"]);
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains(": Input/output error"), "{}", finished.stderr);
    // The first call gives the copy a hidden name, the second one makes the backup.
    for (name, text) in [("f", "new"), ("g", "old"), ("g~", "older")] {
        write(name, text);
    }
    let inject = ["-e", "inject=linkat:error=EIO:when=2+"];
    let (finished, _) = traced_in(here.path(), &inject, &["-b", "f", "g"]);
    finished.failed(1, &["g", "Input/output error"]);
    for (name, text) in [("g", "old"), ("g~", "older")] {
        assert_eq!(fs::read_to_string(here.path().join(name)).unwrap(), text, "{name}");
    }
    assert_eq!(names(here.path()).iter().filter(|name| name.starts_with('.')).count(), 0);
}

#[test]
fn a_folder_is_not_called_missing_where_there_is_no_proc() {
    let probe = Command::new("unshare").args(["-rm", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        return skip("no namespace of mounts can be had here");
    }
    let here = folder();
    let file = noise_file(here.path(), "a", 5000);
    let mut command = piped("unshare");
    command.args(["-rm", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"]);
    command.arg(env!("CARGO_BIN_EXE_underpass")).args(["cp", "a", "z"]).current_dir(here.path());
    let finished = Running::start(command).finish();
    match finished.code() {
        Some(0) => assert_eq!(fs::read(here.path().join("z")).unwrap(), fs::read(file).unwrap()),
        // A kernel before 6.10.
        _ => drop(finished.failed(1, &["Function not implemented"])),
    }
}

#[test]
fn a_file_whose_acl_is_out_of_reach_without_proc_is_replaced() {
    let here = folder();
    let (file, new) = (noise_file(here.path(), "a", 5000), here.path().join("z"));
    fs::write(&new, "old").unwrap();
    set_mode(&new, 0o262);
    let script = "mount -t tmpfs none /proc &&
        exec setpriv --bounding-set=-all --inh-caps=-all \"$@\" < a";
    let without_proc = |command: &str, words: &[&str]| {
        let mut run = piped("unshare");
        run.args(["-rm", "sh", "-c", script, "sh", command]).args(words).current_dir(here.path());
        Running::start(run).finish()
    };
    if without_proc("true", &[]).code() != Some(0) {
        return skip("no namespace of mounts can be had here");
    }
    let finished = without_proc(env!("CARGO_BIN_EXE_underpass"), &["cp", "-", "z"]);
    match finished.code() {
        Some(0) => assert_eq!(fs::metadata(&new).unwrap().permissions().mode() & 0o777, 0o202),
        // A kernel before 6.10.
        _ => return drop(finished.failed(1, &["Function not implemented"])),
    }
    set_mode(&new, 0o600);
    assert_eq!(fs::read(new).unwrap(), fs::read(file).unwrap());
}

#[test]
fn a_file_in_a_folder_that_is_not_writable_is_written_in_place() {
    let here = folder();
    set_mode(here.path(), 0o777);
    noise_file(here.path(), "a", 5000);
    noise_file(here.path(), "large", 300_000);
    for name in ["z", "sticky"] {
        fs::create_dir(here.path().join(name)).unwrap();
        for file in ["a", "b", "large"] {
            fs::write(here.path().join(name).join(file), vec![0; 400_000]).unwrap();
            set_mode(&here.path().join(name).join(file), 0o666);
        }
    }
    give_to_user(here.path());
    set_mode(&here.path().join("z"), 0o555);
    let number = |name: &str| fs::metadata(here.path().join(name)).unwrap().ino();
    for (words, target, len) in [
        (&["a", "z/a"][..], "z/a", 5000),
        (&["-p", "a", "z/b"], "z/b", 5000),
        (&["large", "z"], "z/large", 300_000),
    ] {
        let before = number(target);
        let Some(finished) = cp_as_user(here.path(), words) else { return };
        let finished = finished.succeeded();
        assert!(
            finished.stderr.contains(&format!("{target} was written in place")),
            "{}",
            finished.stderr
        );
        assert!(fs::read(here.path().join(target)).unwrap() == noise(len), "{words:?}");
        assert_eq!(number(target), before, "{words:?}");
    }
    // A file to be removed first, so that its other names keep its bytes, is not written to.
    let Some(finished) = cp_as_user(here.path(), &["--remove-destination", "large", "z/a"]) else {
        return;
    };
    finished.failed(1, &["z/a", "Permission denied"]);
    assert!(fs::read(here.path().join("z/a")).unwrap() == noise(5000));
    // A new name cannot be created there, and a file that is not writable stays unchanged.
    let Some(finished) = cp_as_user(here.path(), &["a", "z/new"]) else { return };
    finished.failed(1, &["z/new", "Permission denied"]);
    set_mode(&here.path().join("z/b"), 0o444);
    cp_as_user(here.path(), &["large", "z/b"]).unwrap().failed(1, &["z/b", "Permission denied"]);
    let streamed = cp_as_user(here.path(), &["/dev/null", "z/a"]).unwrap().succeeded();
    assert!(streamed.stderr.contains("z/a was written in place"), "{}", streamed.stderr);
    assert_eq!(fs::read(here.path().join("z/a")).unwrap(), b"");
    fs::write(here.path().join("z/a"), "old").unwrap();
    let streamed = cp_as_user(here.path(), &["-", "z/a"]).unwrap().succeeded();
    assert!(streamed.stderr.contains("z/a was written in place"), "{}", streamed.stderr);
    assert_eq!(fs::read(here.path().join("z/a")).unwrap(), b"");
    // In a folder like /tmp a file of another user may be written to, but not replaced.
    let sticky = here.path().join("sticky");
    if take_from_user(&sticky.join("a")).is_some() {
        take_from_user(&sticky).unwrap();
        set_mode(&sticky, 0o1777);
        let finished = cp_as_user(here.path(), &["-t", "sticky", "--json", "large", "a"]).unwrap();
        let finished = finished.succeeded();
        assert!(finished.stderr.contains("sticky/a was written in place"), "{}", finished.stderr);
        assert_eq!(finished.receipt()["in_place"], 1);
        assert_eq!(fs::read(sticky.join("a")).unwrap(), noise(5000));
        assert_eq!(fs::read(sticky.join("large")).unwrap(), noise(300_000));
        assert_eq!(names(&sticky), ["a", "b", "large"]);
    }
    set_mode(&here.path().join("z"), 0o755);
}

#[test]
fn an_invalid_name_is_one_clear_line_and_the_others_are_copied() {
    let here = folder();
    noise_file(here.path(), "a", 10);
    fs::create_dir(here.path().join("t")).unwrap();
    let finished = cp_in(here.path(), &["a", "", "t/"]);
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("'': No such file or directory"), "{}", finished.stderr);
    assert_eq!(fs::read(here.path().join("t/a")).unwrap(), noise(10));
    for words in [&["", "t"][..], &["a", ""], &["-r", "", "new"], &["-t", "", "a"], &["a", "a", ""]]
    {
        let finished = cp_in(here.path(), words);
        assert!(matches!(finished.code(), Some(1 | 2)), "{words:?}: {}", finished.stderr);
        assert!(finished.stderr.contains("''"), "{words:?}: {}", finished.stderr);
        assert_eq!(finished.stderr.lines().count(), 1, "{words:?}: {}", finished.stderr);
    }
    assert_eq!(names(here.path()), ["a", "t"]);
    assert_eq!(names(&here.path().join("t")), ["a"]);
}

#[test]
fn a_tree_with_more_levels_than_descriptors_is_copied() {
    let here = folder();
    // The names of 300 levels are longer than a path may be, too.
    let make = "mkdir a; cd a; for i in $(seq 300); do echo $i >f; mkdir ddddddddddddddd e; \
                echo $i >e/h; ln f g; cd -P ddddddddddddddd; done; echo deep >last";
    let look = "cd $0; find . -printf '%d %f %y %m %n %s %T@\\n' | sort";
    let run = |script: &str, words: &[&str]| {
        let mut command = Command::new("bash");
        let output = command.args(["-ec", script]).args(words).current_dir(here.path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(make, &[]);
    let before = run(look, &["a"]);
    for (limit, words) in
        [(64, "-a -j4 --progress"), (64, "-aH --resume -j1 --progress"), (256, "-a -j4 --progress")]
    {
        let script = format!("ulimit -n {limit}; exec \"$0\" cp {words} a z 2>&1");
        let said = run(&script, &[env!("CARGO_BIN_EXE_underpass")]);
        assert!(said.contains("601 files"), "{words}: {said}");
        assert!(run(look, &["z"]) == before, "{words}");
        // Removing a tree by its paths would not do.
        run("rm -rf z", &[]);
    }
    run("rm -rf a", &[]);
}

#[test]
fn links_and_fifos_are_copied_without_proc() {
    let without_proc = |script: &str, here: &Path| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &format!("umount -l /proc && {script}")]);
        command.arg(env!("CARGO_BIN_EXE_underpass")).current_dir(here).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::start(command).finish()
    };
    let here = folder();
    if !is_root() || without_proc("true", here.path()).code() != Some(0) {
        return skip("/proc cannot be unmounted");
    }
    let at = |path: &str| here.path().join(path);
    fs::create_dir(at("s")).unwrap();
    fs::write(at("s/file"), "text").unwrap();
    std::os::unix::fs::symlink("file", at("s/link")).unwrap();
    assert!(Command::new("mkfifo").arg(at("s/fifo")).status().unwrap().success());
    std::os::unix::fs::chown(at("s/fifo"), Some(1234), Some(1234)).unwrap();
    let finished = without_proc(r#"exec "$0" cp -a s k"#, here.path()).succeeded();
    assert_eq!(finished.stderr, "");
    assert_eq!(names(&at("k")), ["fifo", "file", "link"]);
    let facts = |path: &str| {
        let found = fs::symlink_metadata(at(path)).unwrap();
        (found.uid(), found.mode(), found.modified().unwrap())
    };
    for name in ["fifo", "file", "link"] {
        assert_eq!(facts(&format!("k/{name}")), facts(&format!("s/{name}")), "{name}");
    }
}

#[test]
fn a_copy_that_ends_early_tells_how_far_it_got() {
    if !has("strace") {
        return;
    }
    let here = folder();
    noise_file(here.path(), "a", 1 << 20);
    let interrupt = ["-e", "trace=pwrite64", "-e", "inject=pwrite64:signal=SIGINT:when=2"];
    let (finished, trace) = traced_in(here.path(), &interrupt, &["--sparse=always", "a", "z"]);
    let counts = trace.lines().filter_map(|line| line.rsplit_once("= ")?.1.parse::<u64>().ok());
    let written = Grouped(counts.sum()).to_string();
    finished.failed(1, &[&format!("interrupted after {written} bytes")]);
    // The second extent begins after 8 MiB.
    let file = File::options().write(true).open(here.path().join("a")).unwrap();
    file.write_all_at(&noise(1 << 20), 8 << 20).unwrap();
    let fail = ["-e", "trace=sendfile", "-e", "inject=sendfile:error=EIO:when=2"];
    let (finished, _) = traced_in(here.path(), &fail, &["--mechanism", "sendfile", "a", "z"]);
    finished.failed(1, &["sendfile failed after 8,388,608 bytes"]);
    assert_eq!(names(here.path()), ["a"]);
}
