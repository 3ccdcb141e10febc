//! Rights to make changes, and the origins that a browser names.

use super::changes_delete::{open_site, statuses};
use super::rig::{Running, Site};

const ALICE: &str = "Authorization: Basic YWxpY2U6c2VjcmV0MQ=="; // alice:secret1
const BOB: &str = "Authorization: Basic Ym9iOnNlY3JldDI="; // bob:secret2

fn site() -> Running {
    let files: &[(&str, &[u8])] = &[
        ("inbox/file", b"x"),
        ("bob/file", b"x"),
        ("bob/kept/file", b"x"),
        ("bob/free/file", b"x"),
        ("shared/file", b"x"),
        ("top", b"x"),
    ];
    let bob = "bob:secret2@/bob:rw,/bob/kept,/shared,/shared/own:rw";
    open_site(files).auth(&["alice:secret1@/:rw", bob, "@/inbox:rw"]).start()
}

#[test]
fn a_right_to_write_is_needed_at_both_paths_and_at_all_beneath() {
    let site = site();
    let to = |path: &str| format!("Destination: {path}");
    let rows: [(&str, &str, &[&str], u16); 22] = [
        ("DELETE", "/top", &[], 401),
        ("DELETE", "/top", &[BOB], 403),
        ("DELETE", "/shared/file", &[BOB], 403),
        ("DELETE", "/bob", &[BOB], 403), // there is something that may only be read
        ("DELETE", "/bob/kept/file", &[BOB], 403),
        ("MOVE", "/bob", &[BOB, &to("/shared/own")], 403),
        ("MOVE", "/bob/kept", &[BOB, &to("/bob/x")], 403),
        ("MOVE", "/bob/free", &[BOB, &to("/bob/kept/free")], 403),
        ("MOVE", "/bob/free", &[BOB, &to("/top")], 403),
        ("COPY", "/bob/free", &[BOB, &to("/shared/free")], 403),
        ("COPY", "/shared/file", &[BOB, &to("/bob/file")], 403),
        ("MKCOL", "/shared/x", &[BOB], 403),
        ("MOVE", "/inbox/file", &[&to("/bob/file")], 401),
        ("COPY", "/bob/free", &[BOB, &to("/shared/own")], 201),
        ("DELETE", "/shared/own", &[BOB], 204),
        ("MOVE", "/bob/free", &[BOB, &to("/inbox/free")], 201),
        ("DELETE", "/inbox/free", &[], 204),
        ("MKCOL", "/inbox/new", &[], 201),
        ("DELETE", "/inbox", &[ALICE], 204),
        ("DELETE", "/bob", &[ALICE], 204),
        ("DELETE", "/top", &["Authorization: Basic YWxpY2U6d3Jvbmc="], 401),
        ("DELETE", "/top", &[ALICE], 204),
    ];
    statuses(&site, &rows);
    assert!(!site.path("bob").exists() && site.path("shared/file").exists());
}

#[test]
fn pages_of_other_sites_cannot_change_anything() {
    let site = open_site(&[("a", b"x"), ("b", b"x"), ("c", b"x")]);
    let site = site.with_site(|site| site.cors = true).start();
    let evil = "Origin: http://example.org";
    statuses(
        &site,
        &[
            ("DELETE", "/a", &[evil], 403),
            ("DELETE", "/a", &["Origin: null"], 403),
            ("DELETE", "/a", &["Sec-Fetch-Site: cross-site"], 403),
            ("DELETE", "/a", &["Sec-Fetch-Site: same-site", "Origin: http://localhost"], 403),
            ("MKCOL", "/x", &[evil], 403),
            ("MOVE", "/a", &[evil, "Destination: /x"], 403),
            ("COPY", "/a", &[evil, "Destination: /x"], 403),
            ("PUT", "/x", &[evil, "Content-Length: 0"], 403),
            ("PATCH", "/a", &[evil, "Content-Length: 0"], 403),
            ("GET", "/a", &[evil], 200),
            ("DELETE", "/a", &["Origin: http://localhost"], 204),
            ("DELETE", "/b", &["Origin: https://elsewhere", "Sec-Fetch-Site: same-origin"], 204),
            ("DELETE", "/c", &[], 204),
        ],
    );
    let preflight = site.ask("OPTIONS", "/a", &[evil, "Access-Control-Request-Method: DELETE"]);
    let methods = preflight.field("Access-Control-Allow-Methods").unwrap();
    assert_eq!(methods, "GET, HEAD, OPTIONS");
}

#[test]
fn the_page_offers_changes_only_with_the_right_to_make_them() {
    let site = site();
    let offers = |path: &str, fields: &[&str]| {
        let fields = [fields, &["Sec-Fetch-Dest: document", "Sec-Fetch-Mode: navigate"]].concat();
        let reply = site.ask("GET", path, &fields);
        assert_eq!(reply.status, 200, "{path}");
        assert!(reply.field("Content-Security-Policy").unwrap().contains("script-src 'sha256-"));
        let page = reply.text();
        let is_offered = page.contains("data-may=\"upload delete\"");
        for word in ["data-may", "MKCOL", "Upload files", "DELETE"] {
            assert_eq!(page.contains(word), is_offered, "{path} {word}");
        }
        is_offered
    };
    assert!(offers("/", &[ALICE]) && offers("/shared/", &[ALICE]) && offers("/bob/", &[ALICE]));
    assert!(offers("/bob/", &[BOB]) && offers("/inbox/", &[BOB]) && offers("/inbox/", &[]));
    assert!(!offers("/shared/", &[BOB]) && !offers("/bob/kept/", &[BOB]));
    // No password is requested where everyone may read: the page has a way to log in.
    let open = open_site(&[("file", b"x")]).auth(&["alice:secret1@/:rw", "@/"]).start();
    let page = open.ask("GET", "/", &["Accept: text/html"]).text();
    assert!(page.contains("name=\"login\"") && !page.contains("data-may"));
    let reply = open.get("/?login=1");
    assert_eq!((reply.status, reply.field("WWW-Authenticate").is_some()), (401, true));
    let page = open.ask("GET", "/?login=1", &[ALICE, "Accept: text/html"]).text();
    assert!(!page.contains("name=\"login\"") && page.contains("data-may"));
    let closed = Site::of(&[("file", b"x")]).start();
    assert!(!closed.ask("GET", "/", &["Accept: text/html"]).text().contains("data-may"));
}
