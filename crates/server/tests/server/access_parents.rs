//! Folders above those that a user may read: listings of what leads there, and nothing else.

use super::rig::{Reply, Running, Site, request};
use underpass_server::Changes;

const BOB: &str = "Authorization: Basic Ym9iOnNlY3JldDI="; // bob:secret2
const EVE: &str = "Authorization: Basic ZXZlOnNlY3JldDM="; // eve:secret3

/// Bob may write in `a/b` and read `a/c/file`; everyone may read `public/open` if `is_public`.
fn site(is_public: bool) -> Running {
    let site = Site::of(&[
        ("a/b/mine", b"mine"),
        ("a/c/file", b"one file"),
        ("a/c/other", b"kept from him"),
        ("a/private", b"kept from him"),
        ("a/bb/private", b"kept from him"),
        ("index.html", b"kept from him"),
        ("top", b"kept from him"),
        ("other/x", b"kept from him"),
        ("public/open/x", b"public"),
        ("public/closed", b"kept from him"),
    ]);
    std::os::unix::fs::symlink("nowhere", site.path("a/lost")).unwrap();
    std::os::unix::fs::symlink("other", site.path("link")).unwrap();
    let rules = ["bob:secret2@/a/b:rw,/a/c/file,/gone/away", "eve:secret3@/other", "@/public/open"];
    let rules = if is_public { &rules[..] } else { &rules[..2] };
    let changes = Changes { upload: true, delete: true, ..Changes::default() };
    site.with_site(|site| site.changes = changes).auth(rules).start()
}

/// The names of a listing.
fn names(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.text().lines().map(str::to_owned).collect()
}

#[test]
fn a_folder_above_lists_only_what_leads_to_what_may_be_read() {
    let site = site(false);
    let ask = |path: &str, who| site.ask("GET", path, &[who]);
    assert_eq!(names(&ask("/?simple", BOB)), ["a/"]);
    assert_eq!(names(&ask("/a/?simple", BOB)), ["b/", "c/"]);
    assert_eq!(names(&ask("/a/c/?simple", BOB)), ["file"]);
    assert_eq!(names(&ask("/a/b/?simple", BOB)), ["mine"]);
    assert_eq!(names(&ask("/?simple", EVE)), ["other/"]);
    assert_eq!(names(&ask("/a/?simple&q=b", BOB)), ["b/"]);
    assert_eq!(names(&ask("/a/?simple&limit=1", BOB)), ["b/"]);
    assert_eq!(ask("/a", BOB).status, 301);

    let json: serde_json::Value = serde_json::from_slice(&ask("/?json", BOB).body).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 1, "{json}");
    assert_eq!((&json[0]["name"], &json[0]["url"]), (&"a".into(), &"./a/".into()));
    assert_eq!(json[0]["mtime"], serde_json::Value::Null, "it would reveal other names");
    let lines = ask("/?ndjson", BOB).text();
    assert!(lines.lines().count() == 1 && lines.contains("\"a\""), "{lines}");

    for (path, accept) in
        [("/", "Accept: text/html"), ("/a/", "Accept: text/html"), ("/a/", "Accept: */*")]
    {
        let reply = site.ask("GET", path, &[BOB, accept]);
        let page = reply.text();
        assert_eq!(reply.status, 200);
        for word in ["private", "other", "top", "index.html", "lost", "link", "bb", "public"] {
            assert!(!page.contains(&format!("href=\"{word}")), "{path} {word}: {page}");
        }
        assert!(!page.contains("name=\"archive\""), "{path}: {page}");
        assert!(!page.contains("data-may") && !page.contains("id=\"files\""), "{path}: {page}");
        assert!(!page.contains("could not") && !page.contains("lead nowhere"), "{path}: {page}");
    }
}

#[test]
fn parent_folders_reveal_nothing_but_the_path_to_permitted_ones() {
    let site = site(false);
    for path in [
        "/?archive=tar",
        "/a/?archive=tar",
        "/a/private",
        "/a/c/other",
        "/top",
        "/other/",
        "/other",
        "/a/bb/",
        "/gone",
        "/gone/",
        "/gone/other",
        "/index.html",
        "/.underpass/metrics",
    ] {
        assert_eq!(site.ask("GET", path, &[BOB]).status, 403, "{path}");
        assert_eq!(site.ask("HEAD", path, &[BOB]).status, 403, "{path}");
        assert_eq!(site.get(path).status, 401, "{path}");
    }
    for (verb, path) in
        [("PUT", "/new"), ("PUT", "/a/new"), ("MKCOL", "/a/new"), ("DELETE", "/a"), ("POST", "/")]
    {
        let mut client = site.connect();
        client.send(request(verb, path, &[BOB, "Content-Length: 0"]));
        assert_eq!(client.reply().status, 403, "{verb} {path}");
    }
    assert!(!site.path("a/new").exists() && site.path("a").exists());
}

#[test]
fn clients_without_rights_below_a_folder_are_refused() {
    let site = site(false);
    for path in ["/", "/a/", "/public/"] {
        let reply = site.get(path);
        assert_eq!(reply.status, 401, "{path}");
        assert!(reply.field("WWW-Authenticate").is_some(), "{path}");
    }
    for path in ["/a/", "/a/b/", "/public/", "/public/open/"] {
        assert_eq!(site.ask("GET", path, &[EVE]).status, 403, "{path}");
    }
}

#[test]
fn everyone_sees_public_paths_and_may_log_in_for_more() {
    let site = site(true);
    assert_eq!(names(&site.get("/?simple")), ["public/"]);
    assert_eq!(names(&site.get("/public/?simple")), ["open/"]);
    assert_eq!(names(&site.ask("GET", "/?simple", &[BOB])), ["a/", "public/"]);
    assert_eq!(site.get("/a/").status, 401);
    let page = site.ask("GET", "/", &["Accept: text/html"]).text();
    assert!(page.contains("name=\"login\""), "{page}");
    assert_eq!(site.get("/?login=1").status, 401);
    assert_eq!(site.ask("GET", "/?login=1&simple", &[BOB]).status, 200);
    assert_eq!(site.get("/?archive=tar").status, 401);
    let wrong = "Authorization: Basic Ym9iOndyb25n"; // bob:wrong
    assert_eq!(site.ask("GET", "/", &[wrong]).status, 401);
    // Pages of other sites, which reach this server by a name of their own.
    let mut client = site.connect();
    client.send("GET /?simple HTTP/1.1\r\nHost: attacker.example\r\n\r\n");
    assert_eq!(client.reply().status, 421);
}
