//! Folders whose fetching was broken off: by a kill, by a server that ends, by a folder that
//! changed.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::rig::{Running, folder, has, names, noise, noise_file, traced, underpass, until};
use crate::site::{address, contents, get, ours, same};

/// A folder with many small files and some large ones.
fn tree(root: &Path) {
    for index in 0..300 {
        let inner = root.join(format!("folder {}", index % 7));
        fs::create_dir_all(&inner).unwrap();
        noise_file(&inner, &format!("file {index}"), 1_000 + index * 37);
    }
    for index in 0..2 {
        noise_file(root, &format!("large {index}"), 12_000_000 + index);
    }
}

/// Starts to fetch from a server that sends slowly.
fn begin(url: &str, dir: &Path) -> Running {
    let mut command = underpass();
    command.args(["get", "-r", "-q", "--json", url, "-d"]).arg(dir);
    Running::start(command)
}

/// A mount point, unmounted when it is dropped.
struct Mounted<'m>(&'m Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// How many bytes are in the files of a folder.
fn bytes_in(root: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(root) else { return 0 };
    let sizes = entries.map(|entry| {
        let path = entry.unwrap().path();
        // It may just have got its name.
        let Ok(facts) = fs::symlink_metadata(&path) else { return 0 };
        if facts.is_dir() { bytes_in(&path) } else { facts.len() }
    });
    sizes.sum()
}

#[test]
fn a_killed_run_is_resumed() {
    let (source, target) = (folder(), folder());
    let root = source.path().join("t");
    tree(&root);
    let all = bytes_in(&root);
    let server = ours(source.path(), &["--rate", "8M"]);
    let url = format!("{}t/", address(&server));
    let mut before = 0;
    // Amid the small files, in each of the large ones.
    for share in [10, 35, 60, 85] {
        let running = begin(&url, target.path());
        let part = target.path().join("t.part");
        until("some bytes", || bytes_in(&part) > all * share / 100);
        running.signal("KILL");
        assert!(!running.finish().status.success());
        assert!(!target.path().join("t").exists(), "an unfinished folder has its name");
        let here = bytes_in(&part);
        assert!(here > before, "{here} bytes after {before}");
        before = here;
    }
    let got = get(&url, target.path(), &["--json"]).succeeded().receipt();
    same(&contents(&target.path().join("t")), &contents(&root), "");
    assert_eq!(names(target.path()), ["t"], "something was left behind");
    let (moved, resumed) = (got["bytes"].as_u64().unwrap(), got["resumed_at"].as_u64().unwrap());
    assert!(resumed > 0 && moved < all, "{got}");
    assert!(moved <= all - before + (1 << 20), "{moved} of {all} with {before} here");
}

#[test]
fn a_run_that_ends_while_a_large_file_gets_its_name_is_resumed() {
    if !has("strace") {
        return;
    }
    let source = folder();
    let root = source.path().join("t");
    fs::create_dir(&root).unwrap();
    for (name, len) in [("a", 300_000), ("b", 700_001), ("c", 400_000), ("d", 150_000)] {
        noise_file(&root, name, len);
    }
    let server = ours(source.path(), &[]);
    let url = format!("{}t/", address(&server));
    for call in ["fchmod", "utimensat", "renameat", "renameat2"] {
        for when in if call == "renameat2" { 1..=1 } else { 1..=4 } {
            for fault in ["error=EIO", "signal=KILL"] {
                let target = folder();
                let inject = format!("inject={call}:{fault}:when={when}");
                let trace = target.path().join("trace");
                let mut command = traced(&trace, &["-e", &format!("trace={call}"), "-e", &inject]);
                command.args(["get", "-r", "-q", &url, "-d"]).arg(target.path());
                let broken = Running::start(command).finish();
                assert!(!broken.status.success(), "{inject}");
                fs::remove_file(trace).unwrap();
                get(&url, target.path(), &[]).succeeded();
                same(&contents(&target.path().join("t")), &contents(&root), &inject);
                assert_eq!(names(target.path()), ["t"], "{inject}");
            }
        }
    }
}

#[test]
fn a_killed_run_into_a_folder_that_exists_is_resumed() {
    let (source, target) = (folder(), folder());
    let root = source.path().join("t");
    tree(&root);
    let all = bytes_in(&root);
    let server = ours(source.path(), &["--rate", "8M"]);
    let url = format!("{}t/", address(&server));
    let mine = target.path().join("t");
    fs::create_dir(&mine).unwrap();
    for share in [20, 70] {
        let running = begin(&url, target.path());
        until("some bytes", || bytes_in(&mine) > all * share / 100);
        running.signal("KILL");
        running.finish();
    }
    let before = bytes_in(&mine);
    let got = get(&url, target.path(), &["--json"]).succeeded().receipt();
    same(&contents(&mine), &contents(&root), "");
    let moved = got["bytes"].as_u64().unwrap();
    assert!(moved <= all - before + (1 << 20), "{moved} of {all} with {before} here");
}

#[test]
fn a_server_that_ends_amid_it_is_waited_for() {
    let (source, target) = (folder(), folder());
    let root = source.path().join("t");
    tree(&root);
    let server = ours(source.path(), &["--rate", "8M"]);
    let url = format!("{}t/", address(&server));
    let bind = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let running = begin(&url, target.path());
    until("some bytes", || bytes_in(&target.path().join("t.part")) > 4_000_000);
    server.signal("KILL");
    server.finish();
    let mut command = underpass();
    command.args(["serve", "--bind", &bind]).arg(source.path());
    let _server = Running::listening(command);
    let got = running.finish().succeeded().receipt();
    same(&contents(&target.path().join("t")), &contents(&root), "");
    let (all, moved) = (bytes_in(&root), got["bytes"].as_u64().unwrap());
    assert!(moved <= all + (1 << 20), "{moved} of {all}");
}

#[test]
fn a_folder_that_changed_meanwhile_is_never_mixed() {
    let (source, target) = (folder(), folder());
    let root = source.path().join("t");
    tree(&root);
    let all = bytes_in(&root);
    let server = ours(source.path(), &["--rate", "8M"]);
    let url = format!("{}t/", address(&server));
    let running = begin(&url, target.path());
    until("some bytes", || bytes_in(&target.path().join("t.part")) > all * 70 / 100);
    running.signal("KILL");
    running.finish();
    fs::remove_dir_all(root.join("folder 1")).unwrap();
    fs::write(root.join("folder 2/file 2"), noise(777)).unwrap();
    noise_file(&root, "new", 5_000);
    // The server may have kept the list of what was there for a moment.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let got = get(&url, target.path(), &["--json"]).succeeded();
    assert!(got.stderr.contains("starting over"), "{}", got.stderr);
    same(&contents(&target.path().join("t")), &contents(&root), "");
    assert_eq!(names(target.path()), ["t"], "something was left behind");
    let got = got.receipt();
    assert!(got["here"].as_u64().unwrap() > 200, "{got}");
}

#[test]
fn nothing_of_others_is_removed_when_a_folder_is_started_over() {
    let (source, target, other) = (folder(), folder(), folder());
    let root = source.path().join("t");
    tree(&root);
    let server = ours(source.path(), &["--rate", "8M"]);
    let url = format!("{}t/", address(&server));
    let (part, old) = (target.path().join("t.part"), target.path().join("t.part.old"));
    fs::create_dir(&old).unwrap();
    fs::write(old.join("mine"), "mine").unwrap();
    fs::write(other.path().join("mine"), "mine").unwrap();
    let running = begin(&url, target.path());
    until("some bytes", || bytes_in(&part) > 4_000_000);
    running.signal("KILL");
    running.finish();
    noise_file(&root, "new", 5_000);
    let inner = part.join("folder 1/inner");
    fs::create_dir_all(&inner).unwrap();
    let bind = ["--bind", other.path().to_str().unwrap(), inner.to_str().unwrap()];
    if Command::new("mount").args(bind).output().is_ok_and(|output| output.status.success()) {
        let moved = part.join(".underpass-get.old/folder 1/inner");
        let mounted = Mounted(&moved);
        let text = "/t.part/.underpass-get.old: a file system is mounted there (unmount it)";
        get(&url, target.path(), &[]).failed(1, &[text]);
        drop(mounted);
        assert_eq!(names(other.path()), ["mine"]);
    }
    get(&url, target.path(), &[]).succeeded();
    same(&contents(&target.path().join("t")), &contents(&root), "");
    assert_eq!(names(target.path()), ["t", "t.part.old"]);
    assert_eq!(names(&old), ["mine"]);
}

#[test]
fn a_run_killed_while_it_started_over_is_resumed() {
    let (source, target) = (folder(), folder());
    let root = source.path().join("t");
    fs::create_dir(&root).unwrap();
    for name in ["a", "b"] {
        noise_file(&root, name, 3_000_000);
    }
    let server = ours(source.path(), &["--rate", "8M"]);
    let url = format!("{}t/", address(&server));
    let part = target.path().join("t.part");
    let running = begin(&url, target.path());
    until("some bytes", || bytes_in(&part) > 4_000_000);
    running.signal("KILL");
    running.finish();
    // Killed while it started over with another version: the files are aside, or half of them.
    let old = part.join(".underpass-get.old");
    fs::create_dir(&old).unwrap();
    fs::rename(part.join("a"), old.join("a")).unwrap();
    fs::write(part.join("gone"), "").unwrap();
    fs::write(target.path().join("t.part.journal"), "").unwrap();
    get(&url, target.path(), &[]).succeeded();
    same(&contents(&target.path().join("t")), &contents(&root), "");
    assert_eq!(names(target.path()), ["t"]);
}

#[test]
fn notes_of_something_else_stay() {
    let (source, target) = (folder(), folder());
    fs::create_dir(source.path().join("t")).unwrap();
    noise_file(&source.path().join("t"), "file", 10);
    let server = ours(source.path(), &[]);
    let url = format!("{}t/", address(&server));
    let journal = target.path().join("t.part.journal");
    fs::write(&journal, "mine").unwrap();
    get(&url, target.path(), &[]).failed(1, &["t.part.journal is in the way"]);
    assert_eq!(fs::read(&journal).unwrap(), b"mine");
    fs::remove_file(journal).unwrap();
    let mine = target.path().join("t");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join(".underpass-get.case"), "mine").unwrap();
    get(&url, target.path(), &[]).succeeded();
    assert_eq!(names(&mine), [".underpass-get.case", "file"]);
}

#[test]
fn a_killed_run_by_listings_is_resumed() {
    let (source, target) = (folder(), folder());
    let root = source.path().join("t");
    tree(&root);
    noise_file(&root, "larger", 40_000_000);
    let all = bytes_in(&root);
    let server = ours(source.path(), &["--rate", "8M", "--no-archive"]);
    let url = format!("{}t/", address(&server));
    let running = begin(&url, target.path());
    let mine = target.path().join("t");
    until("a part of the large file", || {
        fs::metadata(mine.join("larger.part")).is_ok_and(|facts| facts.len() > 20_000_000)
    });
    running.signal("KILL");
    running.finish();
    let got = get(&url, target.path(), &["--json"]).succeeded().receipt();
    let (mut here, mut there) = (contents(&mine), contents(&root));
    // Its own facts are in the listing of the folder above.
    assert!(here.remove(&b""[..]).is_some() && there.remove(&b""[..]).is_some());
    same(&here, &there, "");
    let (moved, resumed) = (got["bytes"].as_u64().unwrap(), got["resumed_at"].as_u64().unwrap());
    assert!(resumed > 18_000_000 && moved < all - resumed + (1 << 20), "{got}");
}

#[test]
fn two_runs_do_not_share_a_folder() {
    let (source, target) = (folder(), folder());
    let root = source.path().join("t");
    tree(&root);
    let server = ours(source.path(), &["--rate", "5M"]);
    let url = format!("{}t/", address(&server));
    let running = begin(&url, target.path());
    until("a beginning", || target.path().join("t.part").exists());
    get(&url, target.path(), &[]).failed(1, &["another process is fetching"]);
    running.signal("TERM");
    running.finish().failed(1, &["cancelled"]);
}

#[test]
fn an_unfinished_folder_of_something_else_stays() {
    let (source, target) = (folder(), folder());
    fs::create_dir(source.path().join("t")).unwrap();
    noise_file(&source.path().join("t"), "file", 10);
    let server = ours(source.path(), &[]);
    let url = format!("{}t/", address(&server));
    let part = target.path().join("t.part");
    fs::create_dir(&part).unwrap();
    fs::write(part.join("mine"), "mine").unwrap();
    get(&url, target.path(), &[]).failed(1, &["t.part is in the way"]);
    assert_eq!(names(target.path()), ["t.part"]);
    assert_eq!(names(&part), ["mine"]);
    fs::remove_file(part.join("mine")).unwrap();
    get(&url, target.path(), &[]).succeeded();
    assert_eq!(names(target.path()), ["t"]);
}

#[test]
fn a_full_disk_is_reported_and_resumed() {
    let space = folder();
    let mount = ["-t", "tmpfs", "-o", "size=8m", "tmpfs", space.path().to_str().unwrap()];
    if !Command::new("mount").args(mount).output().is_ok_and(|output| output.status.success()) {
        return crate::rig::skip("file systems cannot be mounted here");
    }
    let _mounted = Mounted(space.path());
    let source = folder();
    let root = source.path().join("t");
    tree(&root);
    let server = ours(source.path(), &[]);
    let url = format!("{}t/", address(&server));
    get(&url, space.path(), &[]).failed(1, &["No space left on device", "the disk is full"]);
    assert!(!space.path().join("t").exists());
    let more = ["-o", "remount,size=80m", space.path().to_str().unwrap()];
    assert!(Command::new("mount").args(more).status().unwrap().success());
    let got = get(&url, space.path(), &["--json"]).succeeded().receipt();
    assert!(got["resumed_at"].as_u64().unwrap() > 0, "{got}");
    same(&contents(&space.path().join("t")), &contents(&root), "");
}
