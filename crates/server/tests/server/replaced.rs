//! After a change, a request on the same connection gets the new state.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::time::{Duration, Instant};

use super::rig::{Client, PATIENCE, Running, Site, pattern};

/// A file that is kept open, because it was requested a moment ago, and its tag.
fn known(site: &Running, path: &str) -> (Client, String) {
    let mut client = site.connect();
    for _ in 0..3 {
        assert_eq!(client.get(path).status, 200);
    }
    let tag = client.get(path).field("ETag").unwrap().to_owned();
    (client, tag)
}

/// Lengths of files that are copied, sent by sendfile, and held back at their end.
const LENGTHS: [usize; 4] = [10, 12 << 10, 100 << 10, 3 << 20];

#[test]
fn a_file_replaced_by_another_is_seen_by_the_next_request() {
    let site = Site::new().start();
    for len in LENGTHS {
        fs::write(site.path("file"), pattern(len)).unwrap();
        let (mut client, tag) = known(&site, "/file");
        for version in 0..5 {
            let contents = vec![b'a' + version; len];
            fs::write(site.path("new"), &contents).unwrap();
            fs::rename(site.path("new"), site.path("file")).unwrap();
            let reply = client.get("/file");
            assert!(reply.body == contents, "{len} bytes, version {version}");
            assert_ne!(reply.field("ETag"), Some(tag.as_str()));
        }
    }
}

#[test]
fn a_file_edited_in_place_is_seen_by_the_next_request() {
    let site = Site::new().start();
    for len in LENGTHS {
        fs::write(site.path("file"), pattern(len)).unwrap();
        let (mut client, _) = known(&site, "/file");
        let file = File::options().write(true).open(site.path("file")).unwrap();
        for version in 0..5 {
            let contents = vec![b'a' + version; len];
            file.write_all_at(&contents, 0).unwrap();
            assert!(client.get("/file").body == contents, "{len} bytes, version {version}");
        }
        file.set_len(5).unwrap();
        assert_eq!(client.get("/file").text(), "eeeee");
        fs::write(site.path("file"), b"longer than before").unwrap();
        assert_eq!(client.get("/file").text(), "longer than before");
    }
}

#[test]
fn a_removed_file_is_gone_for_the_next_request_and_may_come_back() {
    let site = Site::new().start();
    for len in LENGTHS {
        fs::write(site.path("file"), pattern(len)).unwrap();
        let (mut client, _) = known(&site, "/file");
        fs::remove_file(site.path("file")).unwrap();
        for verb in ["GET", "HEAD"] {
            assert_eq!(client.ask(verb, "/file", &[]).status, 404, "{len}");
        }
        fs::write(site.path("file"), b"again").unwrap();
        assert_eq!(client.get("/file").text(), "again");
    }
}

#[test]
fn a_condition_is_never_answered_from_a_version_that_is_gone() {
    let site = Site::of(&[("file", b"before")]).start();
    let (mut client, tag) = known(&site, "/file");
    fs::write(site.path("file"), b"after").unwrap();
    let reply = client.ask("GET", "/file", &[&format!("If-None-Match: {tag}")]);
    assert_eq!((reply.status, reply.text().as_str()), (200, "after"));
    assert_eq!(client.ask("HEAD", "/file", &[]).field("Content-Length"), Some("5"));
    let (mut client, tag) = known(&site, "/file");
    fs::write(site.path("file"), b"later!").unwrap();
    assert_eq!(client.ask("GET", "/file", &["Range: bytes=5-"]).text(), "!");
    fs::write(site.path("file"), b"x").unwrap();
    assert_eq!(client.ask("GET", "/file", &["Range: bytes=5-"]).status, 416);
    assert_eq!(client.ask("GET", "/file", &[&format!("If-Match: {tag}")]).status, 412);
}

#[test]
fn a_file_made_unreadable_or_a_folder_is_seen_by_the_next_request() {
    let site = Site::of(&[("file", b"before")]).start();
    let (mut client, _) = known(&site, "/file");
    fs::remove_file(site.path("file")).unwrap();
    fs::create_dir(site.path("file")).unwrap();
    assert_eq!(client.get("/file").status, 301);
    fs::remove_dir(site.path("file")).unwrap();
    fs::write(site.path("file"), b"after").unwrap();
    assert_eq!(client.get("/file").text(), "after");
    if !super::rig::is_root() {
        fs::set_permissions(site.path("file"), fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(client.get("/file").status, 403);
    }
}

/// Asks until the answer is the expected one.
#[track_caller]
fn until(client: &mut Client, path: &str, status: u16, text: &str) {
    let changed = Instant::now();
    loop {
        let reply = client.get(path);
        if (reply.status, reply.text().as_str()) == (status, text) {
            return;
        }
        assert!(changed.elapsed() < PATIENCE, "{path} is still {}", reply.text());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn changes_of_parent_folders_are_noticed_soon() {
    let site = Site::of(&[("a/b/file", b"old"), ("c/file", b"new")]).start();
    symlink("a/b", site.path("link")).unwrap();
    let (mut client, _) = known(&site, "/a/b/file");
    fs::rename(site.path("a"), site.path("moved")).unwrap();
    let error = "404 Not Found\n";
    until(&mut client, "/a/b/file", 404, error);
    assert_eq!(client.get("/moved/b/file").text(), "old");

    fs::rename(site.path("moved"), site.path("a")).unwrap();
    assert_eq!(client.get("/link/file").text(), "old");
    symlink("c", site.path("next")).unwrap();
    fs::rename(site.path("next"), site.path("link")).unwrap();
    until(&mut client, "/link/file", 200, "new");
}

#[test]
fn a_removed_file_gives_its_space_back_although_it_was_requested() {
    let site = Site::of(&[("file", b"contents")]).start();
    let (mut client, _) = known(&site, "/file");
    let path = fs::canonicalize(site.path("file")).unwrap();
    fs::remove_file(&path).unwrap();
    let is_open = || {
        let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
            // Another test's may be closed by now.
            fs::read_link(entry.ok()?.path()).ok()
        });
        let gone = format!("{} (deleted)", path.display());
        links.into_iter().any(|link| link.as_os_str() == gone.as_str())
    };
    super::rig::wait_until("the file is closed", || !is_open());
    assert_eq!(client.get("/file").status, 404);
}

#[test]
fn a_folder_in_the_place_of_a_file_is_seen_by_the_next_request() {
    let site = Site::new().start();
    fs::write(site.path("name"), pattern(10)).unwrap();
    let (mut client, _) = known(&site, "/name");
    fs::remove_file(site.path("name")).unwrap();
    fs::create_dir(site.path("name")).unwrap();
    fs::write(site.path("name/below"), "below").unwrap();
    let listing = client.ask("GET", "/name/", &["Accept: application/json"]);
    assert_eq!(listing.status, 200);
    assert!(listing.text().contains("below"), "{}", listing.text());
    fs::remove_dir_all(site.path("name")).unwrap();
    fs::write(site.path("name"), pattern(10)).unwrap();
    let (mut client, _) = known(&site, "/name");
    fs::remove_file(site.path("name")).unwrap();
    assert_eq!(client.ask("PROPFIND", "/name", &["Depth: 0"]).status, 404);
}
