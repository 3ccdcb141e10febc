//! Programs that mount or list a folder by WebDAV.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use crate::rig::{Finished, Running, folder, has, names, skip, until};
use crate::site::{Site, tree};
use underpass_testkit::is_root;

/// Runs suites of litmus, and returns the tests that failed, without their reasons.
fn litmus(site: &Site, suites: &str) -> Vec<String> {
    let mut command = site.peer("litmus", &["-k", &site.url("")]);
    command.env("TESTS", suites);
    let text = Running::start(command).finish().text();
    let lines = text.split(['\r', '\n']);
    let failed = lines.clone().filter(|line| line.contains("FAIL") || line.contains("WARNING"));
    let summaries = lines.filter(|line| line.starts_with("<- summary")).count();
    assert_eq!(summaries, suites.split(' ').count(), "{text}");
    failed.map(|line| line.trim().to_owned()).collect()
}

#[test]
fn litmus_finds_nothing_wrong() {
    let Some(site) = Site::new(&["litmus"], &["-A"]) else { return };
    assert_eq!(litmus(&site, "basic copymove props locks http"), [""; 0]);
}

/// rclone with the server as its remote, of this kind.
fn rclone(site: &Site, vendor: &str, args: &[&str]) -> Finished {
    let url = site.url("");
    let own = ["--config", "/dev/null", "--webdav-url", &url, "--webdav-vendor", vendor];
    site.fetch("rclone", &[&own[..], args].concat()).succeeded()
}

#[test]
fn rclone_copies_and_syncs_with_times() {
    let Some(site) = Site::new(&["rclone"], &["-A"]) else { return };
    let here = site.target("here");
    fs::create_dir_all(here.join("deep/er")).unwrap();
    fs::write(here.join("deep/er/a b&c.txt"), "one").unwrap();
    fs::write(here.join("two"), crate::rig::noise(300_000)).unwrap();
    let old = UNIX_EPOCH + Duration::from_secs(1_577_934_245);
    fs::File::open(here.join("two")).unwrap().set_modified(old).unwrap();
    rclone(&site, "owncloud", &["copy", "here", ":webdav:copy"]);
    assert_eq!(tree(&here), tree(&site.source("copy")));
    assert_eq!(fs::metadata(site.source("copy/two")).unwrap().modified().unwrap(), old);
    let again = rclone(&site, "owncloud", &["sync", "-v", "here", ":webdav:copy"]);
    assert!(again.stderr.contains("Checks:                 2 / 2"), "{}", again.stderr);
    assert!(!again.stderr.contains("Copied"), "{}", again.stderr);
    fs::remove_file(here.join("deep/er/a b&c.txt")).unwrap();
    fs::write(here.join("two"), "changed").unwrap();
    rclone(&site, "owncloud", &["sync", "here", ":webdav:copy"]);
    assert_eq!(fs::read(site.source("copy/two")).unwrap(), b"changed");
    assert!(!site.source("copy/deep/er/a b&c.txt").exists());
    rclone(&site, "other", &["moveto", ":webdav:copy/two", ":webdav:copy/three"]);
    rclone(&site, "other", &["copy", "--create-empty-src-dirs", ":webdav:copy", "back"]);
    assert_eq!(tree(&site.source("copy")), tree(&site.target("back")));
    let listed = rclone(&site, "other", &["lsf", "-R", "--files-only", ":webdav:copy"]).text();
    assert_eq!(listed, "three\n");
}

#[test]
fn rclone_reads_from_a_server_that_is_read_only() {
    let Some(site) = Site::new(&["rclone"], &[]) else { return };
    fs::create_dir(site.source("dir")).unwrap();
    fs::write(site.source("dir/file"), "contents").unwrap();
    rclone(&site, "other", &["copy", ":webdav:", "back"]);
    assert_eq!(tree(&site.source("")), tree(&site.target("back")));
}

#[test]
fn cadaver_lists_locks_and_stores_properties() {
    let Some(site) = Site::new(&["cadaver"], &["-A"]) else { return };
    fs::write(site.source("a.txt"), "first").unwrap();
    fs::write(site.target("new"), "second").unwrap();
    let lines = [
        "ls",
        "lock a.txt",
        "discover a.txt",
        "put new a.txt",
        "propset a.txt color blue",
        "propget a.txt color",
        "mkcol dir",
        "copy a.txt dir/b.txt",
        "unlock a.txt",
        "move a.txt dir/c.txt",
        "ls dir",
        "quit",
    ];
    let mut command = site.peer("cadaver", &[&site.url("")]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert!(!said.contains("failed"), "{said}");
    for part in ["a.txt", "Lock token <urn:uuid:", "color is: blue", "b.txt", "c.txt"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(names(&site.source("")), ["dir"]);
    for name in ["dir/b.txt", "dir/c.txt"] {
        assert_eq!(fs::read(site.source(name)).unwrap(), b"second", "{name}");
    }
}

/// A folder mounted by davfs2, which is unmounted at the end.
struct DavMount<'a>(&'a Path);

impl Drop for DavMount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}

#[test]
fn davfs2_mounts_a_folder() {
    let is_here = Path::new("/sbin/mount.davfs").exists();
    if !is_here || !Path::new("/dev/fuse").exists() || !is_root() {
        if has("mount.davfs") {
            skip("mounting needs root and /dev/fuse");
        }
        return;
    }
    let Some(site) = Site::new(&[], &["-A"]) else { return };
    fs::write(site.source("a.txt"), "first").unwrap();
    let point = folder();
    fs::write(site.target("conf"), "ask_auth 0\nuse_locks 1\ndelay_upload 0\n").unwrap();
    let options = format!("conf={}", site.target("conf").display());
    let args = ["-o", &options, &site.url(""), point.path().to_str().unwrap()];
    let mounted = site.fetch("/sbin/mount.davfs", &args);
    if mounted.code() != Some(0) && mounted.stderr.contains("/dev/fuse") {
        return skip("this machine does not let anybody mount");
    }
    mounted.succeeded();
    let mount = DavMount(point.path());
    assert_eq!(fs::read(point.path().join("a.txt")).unwrap(), b"first");
    fs::create_dir(point.path().join("dir")).unwrap();
    fs::rename(point.path().join("a.txt"), point.path().join("dir/b.txt")).unwrap();
    fs::write(point.path().join("new.txt"), "second").unwrap();
    // What is written is sent at the latest when it is unmounted.
    drop(mount);
    until("the new file", || fs::read(site.source("new.txt")).is_ok_and(|it| it == b"second"));
    assert_eq!(fs::read(site.source("dir/b.txt")).unwrap(), b"first");
    let log = site.end();
    let methods: Vec<_> = log.iter().map(|line| line["method"].as_str().unwrap()).collect();
    for method in ["PROPFIND", "LOCK", "PUT", "UNLOCK"] {
        assert!(methods.contains(&method), "{method}: {methods:?}");
    }
}

#[test]
fn gvfs_lists_reads_and_writes() {
    let Some(site) = Site::new(&["gio", "dbus-run-session"], &["-A"]) else { return };
    if !Path::new("/usr/libexec/gvfsd-dav").exists()
        && !Path::new("/usr/lib/gvfs/gvfsd-dav").exists()
    {
        assert!(!has("gvfsd-dav"));
        return;
    }
    fs::write(site.source("a.txt"), "first\n").unwrap();
    let base = site.url("").replacen("http", "dav", 1);
    let script = format!(
        "set -e; gio mount {base}; gio list {base}; gio cat {base}a.txt; gio mkdir {base}dir\n\
         echo second | gio save {base}b.txt; gio move {base}b.txt {base}dir/c.txt\n\
         gio info {base}dir/c.txt; gio remove {base}a.txt; gio mount -u {base}"
    );
    let mut command = site.peer("dbus-run-session", &["--", "sh", "-c", &script]);
    command.env("XDG_RUNTIME_DIR", site.target(""));
    let done = Running::start(command).finish().succeeded();
    for part in ["a.txt", "first", "standard::size: 7", "etag::value"] {
        assert!(done.text().contains(part), "{part}: {}", done.text());
    }
    assert_eq!(names(&site.source("")), ["dir"]);
    assert_eq!(fs::read(site.source("dir/c.txt")).unwrap(), b"second\n");
}
