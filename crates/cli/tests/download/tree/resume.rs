//! Folders whose download was interrupted: by a kill, by a server that ends, by a folder that
//! changed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use underpass_testkit::{is_root, skip};

use crate::rig::{
    Finished, Running, folder, has, names, noise, noise_file, run, traced, underpass, until,
};
use crate::tree::site::{address, contents, get, ours, same};

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

/// A server of the folder `t`, and a place to fetch it into.
struct Site {
    server: Running,
    url: String,
    /// Where the folder is at the server.
    root: PathBuf,
    source: TempDir,
    target: TempDir,
}

impl Site {
    fn new(fill: impl FnOnce(&Path), args: &[&str]) -> Self {
        let (source, target) = (folder(), folder());
        let root = source.path().join("t");
        fs::create_dir(&root).unwrap();
        fill(&root);
        let server = ours(source.path(), args);
        let url = format!("{}t/", address(&server));
        Self { server, url, root, source, target }
    }

    /// A path in the place into which it is fetched.
    fn at(&self, name: &str) -> PathBuf {
        self.target.path().join(name)
    }

    fn begin(&self) -> Running {
        let mut command = underpass();
        command.args(["get", "-r", "-q", "--json", &self.url, "-d"]).arg(self.target.path());
        Running::start(command)
    }

    /// Begins to fetch it, and kills that when there are more bytes in `part`.
    fn kill_at(&self, part: &Path, bytes: u64) {
        let running = self.begin();
        until("some bytes", || bytes_in(part) > bytes);
        running.signal("KILL");
        assert!(!running.finish().status.success());
    }

    fn get(&self, args: &[&str]) -> Finished {
        get(&self.url, self.target.path(), args)
    }

    /// Checks that what has arrived is what the server has.
    #[track_caller]
    fn check(&self) {
        same(&contents(&self.at("t")), &contents(&self.root), "");
    }
}

/// A server at this rate takes some seconds for the [`tree`].
const SLOW: [&str; 2] = ["--rate", "8M"];

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
        // The file may have just got its name.
        let Ok(facts) = fs::symlink_metadata(&path) else { return 0 };
        if facts.is_dir() { bytes_in(&path) } else { facts.len() }
    });
    sizes.sum()
}

#[test]
fn a_killed_run_is_resumed() {
    let site = Site::new(tree, &SLOW);
    let (all, part) = (bytes_in(&site.root), site.at("t.part"));
    let mut before = 0;
    // Amid the small files, in each of the large ones.
    for share in [10, 35, 60, 85] {
        site.kill_at(&part, all * share / 100);
        assert!(!site.at("t").exists(), "an unfinished folder has its name");
        let here = bytes_in(&part);
        assert!(here > before, "{here} bytes after {before}");
        before = here;
    }
    let got = site.get(&["--json"]).succeeded().receipt();
    site.check();
    assert_eq!(names(site.target.path()), ["t"], "something was left behind");
    let (moved, resumed) = (got["bytes"].as_u64().unwrap(), got["resumed_at"].as_u64().unwrap());
    assert!(resumed > 0 && moved < all, "{got}");
    assert!(moved <= all - before + (1 << 20), "{moved} of {all} with {before} here");
}

#[test]
fn a_run_that_ends_while_a_large_file_gets_its_name_is_resumed() {
    if !has("strace") {
        return;
    }
    let files = [("a", 300_000), ("b", 700_001), ("c", 400_000), ("d", 150_000)];
    let fill =
        |root: &Path| files.into_iter().for_each(|(name, len)| drop(noise_file(root, name, len)));
    let site = Site::new(fill, &[]);
    for call in ["fchmod", "utimensat", "renameat", "renameat2"] {
        for when in if call == "renameat2" { 1..=1 } else { 1..=4 } {
            for fault in ["error=EIO", "signal=KILL"] {
                let target = folder();
                let inject = format!("inject={call}:{fault}:when={when}");
                let trace = target.path().join("trace");
                let mut command = traced(&trace, &["-e", &format!("trace={call}"), "-e", &inject]);
                command.args(["get", "-r", "-q", &site.url, "-d"]).arg(target.path());
                let broken = Running::start(command).finish();
                assert!(!broken.status.success(), "{inject}");
                fs::remove_file(trace).unwrap();
                get(&site.url, target.path(), &[]).succeeded();
                same(&contents(&target.path().join("t")), &contents(&site.root), &inject);
                assert_eq!(names(target.path()), ["t"], "{inject}");
            }
        }
    }
}

#[test]
fn a_killed_run_into_a_folder_that_exists_is_resumed() {
    let site = Site::new(tree, &SLOW);
    let (all, mine) = (bytes_in(&site.root), site.at("t"));
    fs::create_dir(&mine).unwrap();
    for share in [20, 70] {
        site.kill_at(&mine, all * share / 100);
    }
    let before = bytes_in(&mine);
    let got = site.get(&["--json"]).succeeded().receipt();
    site.check();
    let moved = got["bytes"].as_u64().unwrap();
    assert!(moved <= all - before + (1 << 20), "{moved} of {all} with {before} here");
}

#[test]
fn a_server_that_ends_during_a_download_is_awaited() {
    let site = Site::new(tree, &SLOW);
    let running = site.begin();
    let Site { server, url, root, source, target } = site;
    let bind = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
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
    let site = Site::new(tree, &SLOW);
    site.kill_at(&site.at("t.part"), bytes_in(&site.root) * 70 / 100);
    let root = &site.root;
    fs::remove_dir_all(root.join("folder 1")).unwrap();
    fs::write(root.join("folder 2/file 2"), noise(777)).unwrap();
    noise_file(root, "new", 5_000);
    // The server may have kept the list of what was there for a moment.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let got = site.get(&["--json"]).succeeded();
    assert!(got.stderr.contains("starting over"), "{}", got.stderr);
    site.check();
    assert_eq!(names(site.target.path()), ["t"], "something was left behind");
    let got = got.receipt();
    assert!(got["here"].as_u64().unwrap() > 200, "{got}");
}

#[test]
fn foreign_files_stay_when_a_download_is_restarted() {
    let (site, other) = (Site::new(tree, &SLOW), folder());
    let (part, old) = (site.at("t.part"), site.at("t.part.old"));
    fs::create_dir(&old).unwrap();
    fs::write(old.join("mine"), "mine").unwrap();
    fs::write(other.path().join("mine"), "mine").unwrap();
    site.kill_at(&part, 4_000_000);
    noise_file(&site.root, "new", 5_000);
    let inner = part.join("folder 1/inner");
    fs::create_dir_all(&inner).unwrap();
    let bind = ["--bind", other.path().to_str().unwrap(), inner.to_str().unwrap()];
    if Command::new("mount").args(bind).output().is_ok_and(|output| output.status.success()) {
        let moved = part.join(".underpass-get.old/folder 1/inner");
        let mounted = Mounted(&moved);
        let text = "/t.part/.underpass-get.old: a file system is mounted there (unmount it)";
        site.get(&[]).failed(1, &[text]);
        drop(mounted);
        assert_eq!(names(other.path()), ["mine"]);
    }
    site.get(&[]).succeeded();
    site.check();
    assert_eq!(names(site.target.path()), ["t", "t.part.old"]);
    assert_eq!(names(&old), ["mine"]);
}

#[test]
fn a_run_killed_while_it_started_over_is_resumed() {
    let fill = |root: &Path| {
        ["a", "b"].into_iter().for_each(|name| drop(noise_file(root, name, 3_000_000)))
    };
    let site = Site::new(fill, &SLOW);
    let part = site.at("t.part");
    site.kill_at(&part, 4_000_000);
    // Killed while it started over with another version: the files are aside, or half of them.
    let old = part.join(".underpass-get.old");
    fs::create_dir(&old).unwrap();
    fs::rename(part.join("a"), old.join("a")).unwrap();
    fs::write(part.join("gone"), "").unwrap();
    fs::write(site.at("t.part.journal"), "").unwrap();
    site.get(&[]).succeeded();
    site.check();
    assert_eq!(names(site.target.path()), ["t"]);
}

#[test]
fn foreign_journals_are_not_removed() {
    let site = Site::new(|root| drop(noise_file(root, "file", 10)), &[]);
    let journal = site.at("t.part.journal");
    fs::write(&journal, "mine").unwrap();
    site.get(&[]).failed(1, &["t.part.journal is in the way"]);
    assert_eq!(fs::read(&journal).unwrap(), b"mine");
    fs::remove_file(journal).unwrap();
    let mine = site.at("t");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join(".underpass-get.case"), "mine").unwrap();
    site.get(&[]).succeeded();
    assert_eq!(names(&mine), [".underpass-get.case", "file"]);
}

#[test]
fn a_foreign_folder_whose_names_cannot_be_read_does_not_count_as_empty() {
    if !has("strace") {
        return;
    }
    let site = Site::new(|root| drop(noise_file(root, "file", 10)), &[]);
    let part = site.at("t.part");
    fs::create_dir(&part).unwrap();
    fs::write(part.join("file"), "mine").unwrap();
    for call in ["getdents64", "openat"] {
        let inject = format!("inject={call}:error=EIO:when=1");
        let trace = site.source.path().join("trace");
        let mut options = vec!["-e", &inject];
        if call == "openat" {
            options.extend(["-P", "t.part"]);
        }
        let mut command = traced(&trace, &options);
        command.args(["get", "-r", "-q", &site.url, "-d"]).arg(site.target.path());
        Running::start(command).finish().failed(1, &["t.part: Input/output error"]);
        assert_eq!(names(site.target.path()), ["t.part"], "{inject}");
        assert_eq!(fs::read(part.join("file")).unwrap(), b"mine", "{inject}");
    }
}

#[test]
fn a_killed_run_by_listings_is_resumed() {
    let fill = |root: &Path| {
        tree(root);
        noise_file(root, "larger", 40_000_000);
    };
    let site = Site::new(fill, &["--rate", "8M", "--no-archive"]);
    let (all, mine) = (bytes_in(&site.root), site.at("t"));
    let running = site.begin();
    until("a part of the large file", || {
        fs::metadata(mine.join("larger.part")).is_ok_and(|facts| facts.len() > 20_000_000)
    });
    running.signal("KILL");
    running.finish();
    let got = site.get(&["--json"]).succeeded().receipt();
    let (mut here, mut there) = (contents(&mine), contents(&site.root));
    // Its metadata is in the listing of its parent.
    assert!(here.remove(&b""[..]).is_some() && there.remove(&b""[..]).is_some());
    same(&here, &there, "");
    let (moved, resumed) = (got["bytes"].as_u64().unwrap(), got["resumed_at"].as_u64().unwrap());
    assert!(resumed > 18_000_000 && moved < all - resumed + (1 << 20), "{got}");
}

#[test]
fn two_runs_do_not_share_a_folder() {
    let site = Site::new(tree, &["--rate", "5M"]);
    let running = site.begin();
    until("a beginning", || site.at("t.part").exists());
    site.get(&[]).failed(1, &["another process is fetching"]);
    running.signal("TERM");
    running.finish().failed(1, &["cancelled"]);
}

#[test]
fn an_unfinished_folder_of_something_else_stays() {
    let site = Site::new(|root| drop(noise_file(root, "file", 10)), &[]);
    let part = site.at("t.part");
    fs::create_dir(&part).unwrap();
    fs::write(part.join("mine"), "mine").unwrap();
    site.get(&[]).failed(1, &["t.part is in the way"]);
    assert_eq!(names(site.target.path()), ["t.part"]);
    assert_eq!(names(&part), ["mine"]);
    fs::remove_file(part.join("mine")).unwrap();
    site.get(&[]).succeeded();
    assert_eq!(names(site.target.path()), ["t"]);
}

#[test]
fn a_full_disk_is_reported_and_resumed() {
    let space = folder();
    let mount = ["-t", "tmpfs", "-o", "size=8m", "tmpfs", space.path().to_str().unwrap()];
    if !Command::new("mount").args(mount).output().is_ok_and(|output| output.status.success()) {
        return skip("file systems cannot be mounted here");
    }
    let _mounted = Mounted(space.path());
    let site = Site::new(tree, &[]);
    get(&site.url, space.path(), &[]).failed(1, &["No space left on device", "the disk is full"]);
    assert!(!space.path().join("t").exists());
    let more = ["-o", "remount,size=80m", space.path().to_str().unwrap()];
    assert!(Command::new("mount").args(more).status().unwrap().success());
    let got = get(&site.url, space.path(), &["--json"]).succeeded().receipt();
    assert!(got["resumed_at"].as_u64().unwrap() > 0, "{got}");
    same(&contents(&space.path().join("t")), &contents(&site.root), "");
}

#[test]
fn an_unfinished_folder_of_another_user_is_not_resumed() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for name in ["t.part", "t.part.journal"] {
        let site = Site::new(tree, &SLOW);
        site.kill_at(&site.at("t.part"), 1_000_000);
        chown(site.at(name), Some(1234), None).unwrap();
        site.get(&[]).failed(1, &["t.part", "is in the way"]);
        assert!(!site.at("t").exists());
    }
}

/// Makes a folder one that all users share, as /tmp.
fn share(folder: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o1777)).unwrap();
}

#[test]
fn a_folder_that_another_user_has_put_into_a_shared_one_is_in_the_way() {
    if !is_root() {
        return skip("only root can make files of another user");
    }
    let site = Site::new(|root| drop(noise_file(root, "file", 10)), &[]);
    site.get(&[]).succeeded();
    share(site.target.path());
    for options in [&[][..], &["-N"], &["-f"]] {
        chown(site.at("t"), Some(1234), None).unwrap();
        site.get(options).failed(1, &["t is in the way"]);
        // One below the folder that is named is left out.
        let top = site.url.strip_suffix("t/").unwrap();
        let all = get(top, site.target.path(), options).failed(1, &["lacks"]);
        assert!(all.stderr.contains("t is left out: another user has put"), "{}", all.stderr);
        chown(site.at("t"), Some(0), None).unwrap();
        site.get(options).succeeded();
    }
    // Nor is a link followed that another user has made.
    let elsewhere = folder();
    fs::rename(site.at("t"), elsewhere.path().join("t")).unwrap();
    symlink(elsewhere.path().join("t"), site.at("t")).unwrap();
    site.get(&[]).succeeded();
    lchown(site.at("t"), Some(1234), None).unwrap();
    for options in [&[][..], &["-N"]] {
        site.get(options).failed(1, &["t is in the way"]);
    }
    // Nor one to the folder of -d, or above it.
    symlink(elsewhere.path(), site.at("link")).unwrap();
    lchown(site.at("link"), Some(1234), None).unwrap();
    let before = fs::read_dir(elsewhere.path()).unwrap().count();
    let file = format!("{}file", site.url);
    for dir in ["link", "link/new"] {
        let dir = site.at(dir);
        get(&site.url, &dir, &[]).failed(1, &["following the link", "link: Permission denied"]);
        let named = dir.join("file");
        for (option, path) in [("-d", &dir), ("-o", &named)] {
            let fetched = run(["get", &file, option, path.to_str().unwrap()]);
            fetched.failed(1, &["following the link", "link: Permission denied"]);
        }
    }
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), before);
}

#[test]
fn a_fifo_named_like_a_journal_does_not_block() {
    let site = Site::new(|root| drop(noise_file(root, "file", 10)), &[]);
    fs::create_dir(site.at("t")).unwrap();
    // The FIFO has no writer.
    let fifo = |name: &str| {
        assert!(Command::new("mkfifo").arg(site.at(name)).status().unwrap().success());
    };
    fifo("t.part.journal");
    site.get(&[]).succeeded();
    fifo("t/.underpass-get.log");
    for options in [&["-f"][..], &["-N"]] {
        site.get(options).failed(1, &["t/.underpass-get.log is in the way"]);
    }
    fs::remove_file(site.at("t/.underpass-get.log")).unwrap();
    if is_root() {
        fs::write(site.at("t/.underpass-get.log"), "").unwrap();
        chown(site.at("t/.underpass-get.log"), Some(1234), None).unwrap();
        site.get(&["-f"]).failed(1, &["t/.underpass-get.log is in the way"]);
    }
}
