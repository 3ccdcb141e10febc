//! DELETE and MKCOL: what is removed, what is created, and what remains.

use std::fs;
use std::os::unix::fs::symlink;

use super::rig::{Running, Site, age, request};

/// A site where everything may be changed, with these files.
pub(crate) fn open_site(files: &[(&str, &[u8])]) -> Site {
    Site::of(files).with_site(|site| {
        site.changes.upload = true;
        site.changes.delete = true;
    })
}

/// Sends requests one after the other, and compares the statuses.
#[track_caller]
pub(crate) fn statuses(site: &Running, rows: &[(&str, &str, &[&str], u16)]) {
    let mut client = site.connect();
    for (verb, path, fields, expected) in rows {
        let reply = client.ask(verb, path, fields);
        assert_eq!(reply.status, *expected, "{verb} {path} {fields:?}: {}", reply.text());
    }
}

#[test]
fn a_removed_file_is_no_longer_served_by_any_worker() {
    let site = open_site(&[("a/file", b"x"), ("a/other", b"y")]);
    let site = site.with(|settings| settings.workers = 3).start();
    age(&site.path("a/file"), 3600);
    let mut clients: Vec<_> = (0..12).map(|_| site.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/a/file").status, 200);
    }
    assert_eq!(site.ask("DELETE", "/a/file", &[]).status, 204);
    for client in &mut clients {
        assert_eq!(client.get("/a/file").status, 404);
    }
    assert_eq!(site.ask("DELETE", "/a/file", &[]).status, 404);
    assert!(site.path("a/other").exists() && !site.path("a/file").exists());
}

#[test]
fn deleting_a_folder_removes_its_entries_but_no_link_targets() {
    let site = open_site(&[("a/b/c/d", b"x"), ("a/e", b"y"), ("kept/file", b"z"), ("top", b"t")]);
    let outside = super::rig::folder();
    fs::write(outside.path().join("file"), "outside").unwrap();
    symlink(outside.path(), site.path("a/b/out")).unwrap();
    symlink("../kept", site.path("a/beside")).unwrap();
    symlink(outside.path(), site.path("door")).unwrap();
    symlink("kept", site.path("within")).unwrap();
    let site = site.start();
    statuses(
        &site,
        &[
            ("DELETE", "/door/file", &[], 403), // out of the root
            ("DELETE", "/top/", &[], 404),      // no folder
            ("DELETE", "/top/x", &[], 404),
            ("DELETE", "/a/", &[], 204),
            ("GET", "/a/e", &[], 404),
            ("DELETE", "/door", &[], 204), // the link
            ("DELETE", "/within", &[], 204),
            ("DELETE", "/", &[], 403),
            ("DELETE", "/kept/..", &[], 403),
            ("DELETE", "/.underpass/metrics", &[], 403),
        ],
    );
    assert!(!site.path("a").exists() && !site.path("door").is_symlink());
    assert_eq!(fs::read(site.path("kept/file")).unwrap(), b"z");
    assert_eq!(fs::read(outside.path().join("file")).unwrap(), b"outside");
}

#[test]
fn a_folder_is_removed_in_one_step() {
    let site = open_site(&[("folder/first", b"x")]);
    fs::create_dir(site.path("folder/many")).unwrap();
    for number in 0..3_000 {
        fs::write(site.path(&format!("folder/many/{number}")), "").unwrap();
    }
    let site = site.start();
    std::thread::scope(|scope| {
        let deleting = scope.spawn(|| site.ask("DELETE", "/folder", &[]).status);
        while site.path("folder/first").exists() {
            std::thread::yield_now();
        }
        // Another request could still move the folder, and with it what is left.
        assert!(!site.path("folder").exists(), "a part of it is gone, and the rest is there");
        assert_eq!(deleting.join().unwrap(), 204);
    });
    assert_eq!(fs::read_dir(site.path(".")).unwrap().count(), 0);
}

#[test]
fn hidden_entries_cannot_be_removed_made_or_detected() {
    let files: &[(&str, &[u8])] = &[
        (".secret", b"x"),
        ("project/.git/config", b"x"),
        ("project/readme", b"x"),
        ("deep/er/private/file", b"x"),
        ("free/file", b"x"),
        ("free/.x.0123456789abcdef0123456789abcdef.upload", b"a part"),
    ];
    let site = open_site(files).with_site(|site| site.hide = vec!["private".into()]).start();
    statuses(
        &site,
        &[
            ("DELETE", "/.secret", &[], 403),
            ("DELETE", "/.nothing", &[], 403),
            ("DELETE", "/project/.git", &[], 403),
            ("DELETE", "/project", &[], 403),
            ("DELETE", "/deep/", &[], 403),
            ("MKCOL", "/private", &[], 403),
            ("MKCOL", "/.new", &[], 403),
            ("DELETE", "/free", &[], 204),
        ],
    );
    for (path, _) in &files[..4] {
        assert!(site.path(path).exists(), "{path}");
    }
}

#[test]
fn deleting_a_folder_removes_leftovers_of_changes() {
    let files: &[(&str, &[u8])] = &[
        ("removed/file", b"x"),
        ("removed/.rest.0123456789abcdef0123456789abcdef.upload/a/.git/b", b"x"),
        ("removed/.aside.61736964000000000000000000000000.upload/a/b", b"x"),
        ("replaced/.rest.0123456789abcdef0123456789abcdef.upload/a/b", b"x"),
        ("new/file", b"x"),
    ];
    let site = open_site(files).start();
    let to: &[&str] = &["Destination: /replaced", "Overwrite: T"];
    statuses(&site, &[("DELETE", "/removed", &[], 204), ("MOVE", "/new", to, 204)]);
    assert_eq!(underpass_testkit::names(&site.path(".")), ["replaced"]);
    assert_eq!(underpass_testkit::names(&site.path("replaced")), ["file"]);
}

#[test]
fn a_folder_with_hidden_entries_in_a_leftover_is_not_removed() {
    let files: &[(&str, &[u8])] = &[
        ("one/.aside.61736964000000000000000000000000.upload/a/.git/b", b"x"),
        ("two/.private.61736964000000000000000000000000.upload/a", b"x"),
        ("one/file", b"x"),
        ("two/file", b"x"),
    ];
    let site = open_site(files).with_site(|site| site.hide = vec!["private".into()]).start();
    statuses(&site, &[("DELETE", "/one", &[], 403), ("DELETE", "/two", &[], 403)]);
    for (path, _) in files {
        assert!(site.path(path).exists(), "{path}");
    }
}

#[test]
fn conditions_protect_a_file_that_was_changed() {
    let site = open_site(&[("file", b"one"), ("folder/x", b"x")]).start();
    let reply = site.get("/file");
    let old = reply.field("ETag").unwrap().to_owned();
    let date = reply.field("Last-Modified").unwrap().to_owned();
    fs::write(site.path("file"), "another").unwrap();
    age(&site.path("file"), 60);
    let new = site.get("/file").field("ETag").unwrap().to_owned();
    assert_ne!(old, new);
    let (is_old, is_new) = (format!("If-Match: {old}"), format!("If-Match: {new}"));
    let not_new = format!("If-None-Match: {new}");
    let unmodified = format!("If-Unmodified-Since: {date}");
    statuses(
        &site,
        &[
            ("DELETE", "/file", &[&is_old], 412),
            ("DELETE", "/file", &[&not_new], 412),
            ("DELETE", "/file", &["If-None-Match: *"], 412),
            ("DELETE", "/file", &["If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"], 412),
            ("MOVE", "/file", &[&is_old, "Destination: /moved"], 412),
            ("COPY", "/file", &[&is_old, "Destination: /copied"], 412),
            ("DELETE", "/nothing", &["If-Match: *"], 412),
            ("DELETE", "/folder", &[&is_new], 412),
            ("MKCOL", "/folder", &["If-None-Match: *"], 412),
            ("MKCOL", "/new", &["If-Match: *"], 412),
            ("MKCOL", "/new", &["If-None-Match: *"], 201),
            ("DELETE", "/folder", &["If-Match: *"], 204),
            ("DELETE", "/file", &[&is_new, &unmodified], 204),
        ],
    );
    assert_eq!(site.get("/?simple").text(), "new/\n");
}

#[test]
fn a_folder_is_created_if_its_parent_exists() {
    let site = open_site(&[("file", b"x"), ("a/b", b"x")]).start();
    statuses(
        &site,
        &[
            ("MKCOL", "/new", &[], 201),
            ("MKCOL", "/new/", &[], 405),
            ("MKCOL", "/new/100%25%20%23%3F/", &[], 201),
            ("MKCOL", "/file", &[], 405),
            ("MKCOL", "/file/x", &[], 409),
            ("MKCOL", "/missing/x", &[], 409),
            ("MKCOL", "/", &[], 403),
        ],
    );
    assert!(site.path("new/100% #?").is_dir());
    let mut client = site.connect();
    client.send(request("MKCOL", "/with-a-body", &["Content-Length: 1"]) + "x");
    assert_eq!(client.reply().status, 415);
    let reply = client.ask("MKCOL", "/file", &[]);
    assert!(reply.field("Allow").unwrap().contains("MKCOL"), "{:?}", reply.fields);
    assert!(!site.path("missing").exists() && !site.path("with-a-body").exists());
}

#[test]
fn parent_folders_are_created_only_if_enabled() {
    let site = open_site(&[("file", b"x")]);
    let site = site.with_site(|site| site.changes.create_parents = true).start();
    statuses(
        &site,
        &[
            ("MKCOL", "/a/b/c", &[], 201),
            ("MKCOL", "/file/b/c", &[], 409),
            ("PUT", "/none/b/c", &["If-Match: *", "Content-Length: 0"], 412),
            ("COPY", "/file", &["Destination: /none/b/", "Overwrite: T"], 409),
            ("MOVE", "/file", &["Destination: /none/b/", "Overwrite: T"], 409),
            ("COPY", "/file", &["Destination: /d/e/copy"], 201),
            ("MOVE", "/file", &["Destination: /f/g/moved"], 201),
        ],
    );
    assert!(!site.path("none").exists() && site.path("a/b/c").is_dir());
    assert_eq!(fs::read(site.path("d/e/copy")).unwrap(), b"x");
    assert_eq!(fs::read(site.path("f/g/moved")).unwrap(), b"x");
}

#[test]
fn each_method_needs_its_switch() {
    let to: &[&str] = &["Destination: /b"];
    for (upload, delete) in [(false, false), (true, false), (false, true), (true, true)] {
        let site = Site::of(&[("file", b"x")]).with_site(|site| {
            site.changes.upload = upload;
            site.changes.delete = delete;
        });
        let site = site.start();
        let when = |is_allowed: bool, status: u16| if is_allowed { status } else { 405 };
        statuses(
            &site,
            &[
                ("MKCOL", "/a", &[], when(upload, 201)),
                ("COPY", "/file", &["Destination: /copy"], when(upload, 201)),
                ("MOVE", "/file", to, when(upload && delete, 201)),
                ("DELETE", "/copy", &[], when(delete, if upload { 204 } else { 404 })),
            ],
        );
        let allow = site.ask("OPTIONS", "/", &[]).field("Allow").unwrap().to_owned();
        for (verb, is_allowed) in
            [("DELETE", delete), ("MKCOL", upload), ("COPY", upload), ("MOVE", upload && delete)]
        {
            assert_eq!(allow.contains(verb), is_allowed, "{allow}");
        }
    }
}

#[test]
fn a_single_served_file_cannot_be_changed() {
    let site = open_site(&[("file", b"x"), ("beside", b"y")]);
    let file = site.path("file");
    let site = site.with_site(|site| site.root = Some(file)).start();
    statuses(
        &site,
        &[
            ("DELETE", "/", &[], 403),
            ("DELETE", "/file", &[], 403),
            ("DELETE", "/beside", &[], 403),
            ("MKCOL", "/new", &[], 403),
            ("MOVE", "/file", &["Destination: /other"], 403),
        ],
    );
    assert!(site.path("file").exists() && site.path("beside").exists());
}
