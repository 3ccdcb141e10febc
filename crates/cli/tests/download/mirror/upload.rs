//! `put --update` and `--create-parents`: which files are sent, and which exist on the server.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::mirror::origin::{Origin, Page};
use crate::mirror::peers::Peer;
use crate::rig::{Finished, Running, folder, names, noise, underpass, until};

fn put(here: &Path, args: &[&str]) -> Finished {
    let mut command = underpass();
    command.env("HOME", here).env_remove("XDG_STATE_HOME").env_remove("http_proxy");
    command.current_dir(here).arg("put").args(args);
    Running::start(command).finish()
}

#[test]
fn a_failed_upload_has_the_requested_integrity() {
    let (origin, here) = (Origin::start(), folder());
    write(&here.path().join("file"), b"one", 0);
    origin.set("/file", Page { status: Some(403), ..Page::default() });
    // One that is refused, and one that was never begun.
    for url in [&origin.url("/file"), "http://127.0.0.1:1/file"] {
        for (args, level) in [(&[][..], "detect"), (&["--integrity", "fast"], "fast")] {
            let args = [&["--json", "--retries", "0", "file", url], args].concat();
            let receipt = put(here.path(), &args).failed(1, &[]).receipt();
            assert_eq!(receipt["integrity"], level, "{url}");
        }
    }
}

fn write(path: &Path, bytes: &[u8], age: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000 + age);
    File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
}

fn modified(path: &Path) -> u64 {
    let time = fs::metadata(path).unwrap().modified().unwrap();
    time.duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Waits until the files of a folder are older than what is sent now, by clocks of whole seconds.
fn age() {
    let begun = SystemTime::now();
    until("three seconds have passed", || {
        begun.elapsed().unwrap_or_default() > Duration::from_secs(3)
    });
}

#[test]
fn an_existing_folder_costs_few_requests() {
    let here = folder();
    let site = here.path().join("site");
    for (at, path) in ["a b", "c", "one/d", "one/two/e"].iter().enumerate() {
        write(&site.join(path), &noise(1_000 * (at + 1)), at as u64);
    }
    write(&site.join("large"), &noise(3 << 20), 9);
    age();
    let (ours, json, html, rclone) = (folder(), folder(), folder(), folder());
    let peers = [
        (Some(Peer::ours(ours.path())), &ours, true, 3),
        (Peer::nginx(json.path(), "json"), &json, false, 3),
        (Peer::nginx(html.path(), "html"), &html, false, 3 + 5),
        // It logs no listings.
        (Peer::rclone(rclone.path()), &rclone, false, 5),
    ];
    for (peer, root, keeps_times, requests) in peers {
        let Some(peer) = peer else { continue };
        let name = peer.name;
        put(here.path(), &["-r", "--update", "site", &peer.url]).succeeded();
        let there = root.path().join("site");
        for path in ["a b", "c", "one/d", "one/two/e", "large"] {
            let (sent, kept) = (site.join(path), there.join(path));
            assert!(fs::read(&sent).unwrap() == fs::read(&kept).unwrap(), "{name}: {path}");
            assert_eq!(modified(&sent) == modified(&kept), keeps_times, "{name}: {path}");
        }
        let before = peer.requests().len();
        let again = put(here.path(), &["-r", "--update", "site", &peer.url]).succeeded();
        assert_eq!(again.stderr, "5 files were there already, so nothing was sent\n", "{name}");
        let lines = peer.requests().split_off(before);
        assert_eq!(lines.len(), requests, "{name}: {lines:?}");
        assert!(!lines.iter().any(|line| line.starts_with("PUT")), "{name}: {lines:?}");
        // What has changed, what is new, and what is missing there.
        write(&site.join("c"), &noise(500), 20);
        write(&site.join("new/f"), b"new", 21);
        fs::remove_file(there.join("one/d")).unwrap();
        let before = peer.requests().len();
        let some = put(here.path(), &["-r", "--update", "site", &peer.url]).succeeded();
        assert!(some.stderr.contains("3 files were there already"), "{}", some.stderr);
        let lines = peer.requests().split_off(before);
        let sent = lines.iter().filter(|line| line.starts_with("PUT")).count();
        assert_eq!(sent, 3, "{name}: {lines:?}");
        assert_eq!(names(&there), names(&site), "{name}");
        fs::remove_dir_all(site.join("new")).unwrap();
        write(&site.join("c"), &noise(2_000), 1);
        age();
    }
}

#[test]
fn a_single_file_is_compared_and_sent_if_it_differs() {
    let (here, root) = (folder(), folder());
    let file = here.path().join("file");
    write(&file, b"one", 0);
    let peer = Peer::ours(root.path());
    let url = format!("{}file", peer.url);
    put(here.path(), &["--update", "file", &url]).succeeded();
    assert_eq!(modified(&root.path().join("file")), 1_000_000_000);
    let again = put(here.path(), &["-N", "file", &url, "--json"]).succeeded();
    let receipt = again.receipt();
    assert_eq!((&receipt["was_there"], &receipt["bytes"]), (&true.into(), &0.into()));
    let said = put(here.path(), &["-N", "file", &url]).succeeded().stderr;
    assert!(said.contains("file: already there: http://"), "{said}");
    // The same size, another time.
    write(&file, b"two", 1);
    put(here.path(), &["-N", "file", &url]).succeeded();
    assert_eq!(fs::read(root.path().join("file")).unwrap(), b"two");
    assert_eq!(modified(&root.path().join("file")), 1_000_000_001);
    // A resumable upload, too.
    write(&file, &noise(9 << 20), 2);
    put(here.path(), &["-N", "file", &url]).succeeded();
    assert_eq!(modified(&root.path().join("file")), 1_000_000_002);
    put(here.path(), &["-N", "-n", "file", &url]).failed(2, &["--no-clobber"]);
}

#[test]
fn a_server_without_size_or_time_gets_the_file() {
    let (here, origin) = (folder(), Origin::start());
    write(&here.path().join("file"), b"one", 0);
    let url = origin.url("/file");
    for (page, sends) in [
        (Page::new(b"one", &["Last-Modified: Sun, 09 Sep 2001 01:46:40 GMT"]), false),
        (Page::new(b"one", &["Last-Modified: Sun, 09 Sep 2001 01:46:39 GMT"]), true),
        (Page::new(b"one", &[]), true),
        (Page { status: Some(403), ..Page::default() }, true),
        (Page { status: Some(404), ..Page::default() }, true),
    ] {
        origin.set("/file", page.clone());
        put(here.path(), &["-N", "file", &url, "--retries", "0"]);
        let log = origin.log();
        assert!(log[0].starts_with("HEAD /file"), "{log:?}");
        let has_sent = log.iter().any(|line| line.starts_with("PUT"));
        assert_eq!(has_sent, sends, "{page:?} {log:?}");
    }
    // A later run can check whether the file exists.
    origin.set("/file", Page { status: Some(503), ..Page::default() });
    put(here.path(), &["-N", "file", &url, "--retries", "0"]).failed(1, &["503"]);
    assert_eq!(origin.log(), ["HEAD /file 503 0"]);
}

#[test]
fn a_hidden_file_that_the_server_does_not_list_is_looked_up() {
    let (here, origin) = (folder(), Origin::start());
    for name in [".hidden", "new"] {
        write(&here.path().join("dir").join(name), b"one", 0);
    }
    // As nginx lists them.
    origin.set("/dir/", Page::new(b"[]", &["Content-Type: application/json"]));
    let page = Page::new(b"one", &["Last-Modified: Sun, 09 Sep 2001 01:46:40 GMT"]);
    origin.set("/dir/.hidden", page);
    put(here.path(), &["-r", "-N", "dir", &origin.url("/")]).succeeded();
    let mut log = origin.log();
    log.sort();
    assert_eq!(log, ["GET /dir/ 200 2", "HEAD /dir/.hidden 200 0", "PUT /dir/new 201 0"]);
}

#[test]
fn missing_folders_are_created() {
    let here = folder();
    write(&here.path().join("file"), b"one", 0);
    write(&here.path().join("dir/sub/file"), b"two", 0);
    let (ours, nginx, rclone) = (folder(), folder(), folder());
    let peers = [
        (Some(Peer::ours(ours.path())), &ours),
        (Peer::nginx(nginx.path(), "html"), &nginx),
        (Peer::rclone(rclone.path()), &rclone),
    ];
    for (peer, root) in peers {
        let Some(peer) = peer else { continue };
        let (url, name) = (format!("{}a/b%20c/d/", peer.url), peer.name);
        put(here.path(), &["file", &url, "--create-parents"]).succeeded();
        assert_eq!(fs::read(root.path().join("a/b c/d/file")).unwrap(), b"one", "{name}");
        let before = peer.requests().len();
        put(here.path(), &["file", &url, "--create-parents"]).succeeded();
        let lines = peer.requests().split_off(before);
        let made = lines.iter().filter(|line| line.starts_with("MKCOL")).count();
        assert_eq!(made, 1, "{name}: {lines:?}");
        let deep = format!("{}x/y/", peer.url);
        put(here.path(), &["-r", "-N", "dir", &deep, "--create-parents"]).succeeded();
        assert_eq!(fs::read(root.path().join("x/y/dir/sub/file")).unwrap(), b"two", "{name}");
        // A file is where a folder would have to be.
        fs::write(root.path().join("plain"), "plain").unwrap();
        let below = format!("{}plain/a/b/", peer.url);
        put(here.path(), &["file", &below, "--create-parents"]).failed(1, &["a/b"]);
        put(here.path(), &["file", &format!("{}no/x", peer.url), "--retries", "0"]);
        let _ = fs::remove_dir_all(root.path().join("no"));
    }
}

#[test]
fn a_redirect_to_another_folder_or_page_does_not_count_as_present() {
    let (here, origin) = (folder(), Origin::start());
    write(&here.path().join("dir/file"), b"one", 0);
    let time = "Sun, 09 Sep 2001 01:46:40 GMT";
    let listing = format!(r#"[{{"name":"file","type":"file","mtime":"{time}","size":3}}]"#);
    let is_json = "Content-Type: application/json";
    let to = |place: &str| {
        let fields = [&*format!("Location: {place}")];
        Page { status: Some(302), ..Page::new(b"", &fields) }
    };
    let puts = || origin.log().iter().filter(|line| line.starts_with("PUT")).count();
    // The listing of another folder, or a part of one.
    let part = Page { status: Some(206), ..Page::new(listing.as_bytes(), &[is_json]) };
    for folder in [to("/other/"), part] {
        origin.set("/dir/", folder);
        origin.set("/other/", Page::new(listing.as_bytes(), &[is_json]));
        put(here.path(), &["-r", "-N", "dir", &origin.url("/")]).succeeded();
        assert_eq!(puts(), 1);
    }
    // A page instead of the file, or the file at another place.
    let dated = format!("Last-Modified: {time}");
    origin.set("/login", Page::new(b"one", &[&dated, "Content-Type: text/html"]));
    origin.set("/store/1", Page::new(b"one", &[&dated, "Content-Type: text/plain"]));
    for (place, sent) in [("/login", 1), ("/store/1", 0)] {
        origin.set("/file", to(place));
        put(here.path(), &["-N", "dir/file", &origin.url("/file")]).succeeded();
        assert_eq!(puts(), sent, "{place}");
    }
}
