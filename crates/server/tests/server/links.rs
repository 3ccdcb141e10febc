//! Links within the root: rules and patterns also apply to their targets.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::rig::{Running, Site, folder, request};
use underpass_server::Changes;

const BOB: &str = "Authorization: Basic Ym9iOnNlY3JldDI="; // bob:secret2
const ALICE: &str = "Authorization: Basic YWxpY2U6c2VjcmV0MQ=="; // alice:secret1

/// Links in `in`, where bob may write: to files and folders that he may not read, may only read, or
/// that are hidden.
fn site() -> Running {
    let site = Site::of(&[
        ("private/s", b"secret"),
        ("private/deep/s", b"secret"),
        ("kept/k", b"kept"),
        ("hidden/h", b"hidden"),
        ("in/own/o", b"own"),
        ("in/plain", b"plain"),
        ("in/plain2", b"plain"),
    ]);
    for (link, target) in [
        ("in/to_private", "../private"),
        ("in/to_secret", "../private/s"),
        ("in/to_kept", "../kept"),
        ("in/to_k", "../kept/k"),
        ("in/to_hidden", "../hidden"),
        ("in/to_h", "../hidden/h"),
        ("in/to_own", "own"),
        ("in/plain2.br", "../private/s"),
        ("in/to_nothing", "own/nothing"),
        ("in/to_gone", "../private/gone"),
        ("in/to_gone_by_link", "to_private/gone"),
        ("in/to_gone_above", "../../gone"),
        ("in/to_gone_hidden", "../hidden/gone"),
        ("in/own/to_deep", "../../private/deep"),
    ] {
        symlink(target, site.path(link)).unwrap();
    }
    symlink(site.path("in/plain"), site.path("in/to_whole_path")).unwrap();
    let changes = Changes { upload: true, delete: true, ..Changes::default() };
    site.with_site(|site| {
        site.changes = changes;
        site.changes.create_parents = true;
        site.hide = vec!["/hidden/**".to_owned()];
    })
    .auth(&["alice:secret1@/:rw", "bob:secret2@/in:rw,/kept"])
    .start()
}

fn put(site: &Running, path: &str) -> u16 {
    let mut client = site.connect();
    client.send(request("PUT", path, &[BOB, "Content-Length: 3"]) + "new");
    client.reply().status
}

#[test]
fn links_do_not_give_access_to_forbidden_paths() {
    let site = site();
    for path in [
        "/in/to_secret",
        "/in/to_private/s",
        "/in/to_private/deep/s",
        "/in/to_private/",
        "/in/to_private/?json",
        "/in/to_private/?archive=tar",
        "/in/to_secret?hash",
    ] {
        let reply = site.ask("GET", path, &[BOB]);
        assert_eq!(reply.status, 403, "{path}");
        assert!(!reply.text().contains("secret"), "{path}");
        // Also while it is open for another client.
        assert_eq!(site.ask("GET", path, &[ALICE]).status, 200, "{path}");
        assert_eq!(site.ask("GET", path, &[BOB]).status, 403, "{path}");
    }
    // Nor does a response reveal which names exist.
    for path in ["/in/to_private/none", "/in/to_private/deep/none/s", "/in/to_private/s/none"] {
        assert_eq!(site.ask("GET", path, &[BOB]).status, 403, "{path}");
        assert_eq!(site.ask("GET", path, &[ALICE]).status, 404, "{path}");
    }
    assert_eq!(site.ask("GET", "/in/to_own/none", &[BOB]).status, 404);
    let packed = site.ask("GET", "/in/plain2", &[BOB, "Accept-Encoding: br"]);
    assert_eq!((packed.status, packed.text().as_str()), (200, "plain"));
    for (path, contents) in
        [("/in/to_k", "kept"), ("/in/to_kept/k", "kept"), ("/in/to_own/o", "own")]
    {
        assert_eq!(site.ask("GET", path, &[BOB]).text(), contents, "{path}");
    }
}

#[test]
fn a_retargeted_link_is_noticed_by_the_next_request() {
    use std::os::unix::fs::symlink;
    let site = Site::of(&[("v1/a", b"one"), ("v2/a", b"two")]);
    symlink("v1", site.path("current")).unwrap();
    let site = site.start();
    for version in ["v2", "v1", "v2"] {
        let before = site.get("/current/a").text();
        symlink(version, site.path("new")).unwrap();
        fs::rename(site.path("new"), site.path("current")).unwrap();
        assert_ne!(site.get("/current/a").text(), before);
    }
    fs::remove_file(site.path("current")).unwrap();
    assert_eq!(site.get("/current/a").status, 404);
}

#[test]
fn links_are_listed_while_others_are_renamed() {
    let site = Site::of(&[("folder/file", b"1"), ("file", b"2"), ("x", b"3")]);
    (0..50).for_each(|at| symlink("../file", site.path(&format!("folder/{at}"))).unwrap());
    let site = site.start();
    let is_done = AtomicBool::new(false);
    let lists: Vec<_> = thread::scope(|scope| {
        scope.spawn(|| {
            // A failure in the other thread must not leave this one alone.
            let began = std::time::Instant::now();
            while !is_done.load(Ordering::Relaxed) && began.elapsed().as_secs() < 60 {
                fs::rename(site.path("x"), site.path("y")).unwrap();
                fs::rename(site.path("y"), site.path("x")).unwrap();
            }
        });
        let lists = (0..500).map(|_| site.get("/folder/?json")).collect();
        is_done.store(true, Ordering::Relaxed);
        lists
    });
    for list in lists {
        let names = list.text().matches("\"name\"").count();
        assert_eq!((list.status, names), (200, 51), "{}", list.text());
    }
}

#[test]
fn an_archive_has_the_links_that_a_listing_has() {
    let site = site();
    for (user, listed, untold) in [
        (
            BOB,
            &["to_kept", "to_k", "to_own"][..],
            &["private", "to_secret", "to_deep", "plain2.br", "hidden", "gone"][..],
        ),
        (ALICE, &["to_private", "to_deep", "../private/s", "plain2.br"], &[]),
    ] {
        let has = |archive: &[u8], text: &str| {
            archive.windows(text.len()).any(|window| window == text.as_bytes())
        };
        for format in ["tar", "zip"] {
            let reply = site.ask("GET", &format!("/in/?archive={format}"), &[user]);
            assert_eq!(reply.status, 200);
            listed.iter().for_each(|name| assert!(has(&reply.body, name), "{format} {name}"));
            let never = ["../hidden/h", "to_whole_path", "gone_above", "gone_hidden"];
            for name in untold.iter().chain(&never) {
                assert!(!has(&reply.body, name), "{format} {name}");
            }
        }
    }
    let selected = |name: &str, user| {
        site.ask("GET", &format!("/in/?archive=zip&entry={name}"), &[user]).status
    };
    for name in ["to_secret", "to_private", "to_h", "to_gone", "to_whole_path", "none"] {
        assert_eq!(selected(name, BOB), 404, "{name}");
    }
    assert_eq!((selected("to_kept", BOB), selected("to_secret", ALICE)), (200, 200));
}

#[test]
fn a_listing_reveals_nothing_of_unreadable_link_targets() {
    let site = site();
    let ask = |query: &str, user| site.ask("GET", &format!("/in/?{query}"), &[user]).text();
    for query in ["simple", "json", "ndjson", "q=to&below&simple", "sort=size"] {
        let (alice, bob) = (ask(query, ALICE), ask(query, BOB));
        for link in ["to_kept", "to_k", "to_own"] {
            assert!(bob.contains(link) && alice.contains(link), "{query}: {link}: {bob}");
        }
        for link in ["to_private", "to_secret", "plain2.br", "to_h"] {
            assert!(!bob.contains(link), "{query}: {link}: {bob}");
        }
        assert!(alice.contains("to_secret") && !alice.contains("to_h\""), "{query}: {alice}");
    }
    let properties = site.ask("PROPFIND", "/in/", &[BOB, "Depth: 1"]).text();
    assert!(properties.contains("to_k<") && !properties.contains("to_secret"), "{properties}");
}

#[test]
fn hidden_entries_stay_hidden_behind_links() {
    let site = site();
    for user in [ALICE, BOB] {
        assert!(matches!(site.ask("GET", "/in/to_h", &[user]).status, 403 | 404));
        assert!(matches!(site.ask("GET", "/in/to_hidden/h", &[user]).status, 403 | 404));
    }
    let names = site.ask("GET", "/in/to_hidden/?simple", &[ALICE]);
    assert!(!names.text().contains('h'), "{}", names.text());
    let tar = site.ask("GET", "/in/to_hidden/?archive=tar", &[ALICE]);
    assert!(!tar.text().contains("to_hidden/h"));
}

#[test]
fn nothing_is_changed_through_a_link_where_it_may_not_be() {
    let site = site();
    for path in [
        "/in/to_kept/new",
        "/in/to_kept/k",
        "/in/to_private/new",
        "/in/to_hidden/new",
        "/in/to_kept/a/b",
    ] {
        assert_eq!(put(&site, path), 403, "{path}");
    }
    assert_eq!(site.ask("DELETE", "/in/to_kept/k", &[BOB]).status, 403);
    assert_eq!(site.ask("MKCOL", "/in/to_kept/new", &[BOB]).status, 403);
    assert_eq!(site.ask("MOVE", "/in/to_kept/k", &[BOB, "Destination: /in/k"]).status, 403);
    assert_eq!(site.ask("COPY", "/in/to_secret", &[BOB, "Destination: /in/s"]).status, 403);
    assert_eq!(site.ask("COPY", "/in/to_private/s", &[BOB, "Destination: /in/s"]).status, 403);
    for verb in ["COPY", "MOVE"] {
        let there = ["Destination: /in/to_kept/p", BOB];
        assert_eq!(site.ask(verb, "/in/plain", &there).status, 403, "{verb}");
    }
    let mut client = site.connect();
    let fields = [BOB, "X-Update-Range: append", "Content-Length: 3"];
    client.send(request("PATCH", "/in/to_secret", &fields) + "new");
    assert_eq!(client.reply().status, 403, "the rest would be copied from there");
    assert!(!site.path("kept/a").exists());
    assert_eq!(fs::read_dir(site.path("kept")).unwrap().count(), 1);
    assert_eq!(fs::read(site.path("kept/k")).unwrap(), b"kept");
    assert!(!site.path("in/s").exists() && site.path("in/plain").exists());
}

#[test]
fn a_link_that_takes_the_place_of_a_file_meanwhile_is_not_read() {
    let site = site();
    let mut client = site.connect();
    let fields = [BOB, "X-Update-Range: append", "Content-Length: 3", "Expect: 100-continue"];
    client.send(request("PATCH", "/in/plain", &fields));
    assert_eq!(client.head().unwrap().status, 100);
    fs::remove_file(site.path("in/plain")).unwrap();
    symlink("../private/s", site.path("in/plain")).unwrap();
    client.send("new");
    assert_eq!(client.reply().status, 403);
    assert_eq!(fs::read(site.path("private/s")).unwrap(), b"secret");
    assert_eq!(fs::read_link(site.path("in/plain")).unwrap().as_os_str(), "../private/s");
}

#[test]
fn hidden_entries_below_the_target_of_a_link_are_not_copied() {
    let site = Site::of(&[("ok/secret/f", b"s"), ("ok/sub/top", b"s"), ("ok/fine", b"f")]);
    fs::create_dir(site.path("in")).unwrap();
    symlink("../ok", site.path("in/link")).unwrap();
    let site = site
        .with_site(|site| {
            site.changes.upload = true;
            site.hide = vec!["/ok/secret/".to_owned(), "/ok/sub/top".to_owned()];
        })
        .start();
    assert_eq!(site.ask("COPY", "/in/link", &["Destination: /in/copy"]).status, 201);
    assert_eq!(fs::read(site.path("in/copy/fine")).unwrap(), b"f");
    assert!(!site.path("in/copy/secret").exists() && !site.path("in/copy/sub/top").exists());
}

#[test]
fn uploads_through_a_link_need_rights_at_its_target() {
    let site = site();
    assert_eq!(put(&site, "/in/to_own/new"), 201);
    assert_eq!(fs::read(site.path("in/own/new")).unwrap(), b"new");
    assert_eq!(put(&site, "/in/to_own/a/b/c"), 201);
    assert_eq!(fs::read(site.path("in/own/a/b/c")).unwrap(), b"new");
    let there = [BOB, "Destination: /in/to_own/moved"];
    assert_eq!(site.ask("MOVE", "/in/plain", &there).status, 201);
    assert_eq!(site.ask("DELETE", "/in/to_own/moved", &[BOB]).status, 204);
    assert_eq!(site.ask("DELETE", "/in/to_secret", &[BOB]).status, 204, "the link itself");
    assert!(site.path("private/s").exists());
}

#[test]
fn files_of_the_server_itself_are_not_found_behind_links_out_of_the_root() {
    let outside = folder();
    let at = |name: &str| outside.path().join(name);
    fs::create_dir(at("state")).unwrap();
    for name in ["key", "keys", "state/key"] {
        fs::write(at(name), "secret").unwrap();
    }
    let site = Site::new();
    symlink(outside.path(), site.path("out")).unwrap();
    symlink(at("key"), site.path("link")).unwrap();
    let own = [at("key"), at("state"), site.path("log")];
    let site = site.with_site(|site| {
        site.allows_symlinks_outside = true;
        own.iter().for_each(|path| site.hide_file(path));
    });
    let site = site.start();
    for path in ["/link", "/out/key", "/out/state/", "/out/state/key"] {
        assert_eq!(site.get(path).status, 404, "{path}");
    }
    assert_eq!(site.get("/out/keys").text(), "secret");
    assert_eq!(site.get("/?simple").text(), "out/\n");
    assert_eq!(site.get("/out/?simple").text(), "keys\n");
    let archive = site.get("/out/?archive=tar").text();
    assert!(archive.contains("out/keys") && !archive.contains("state"), "{archive}");
}
