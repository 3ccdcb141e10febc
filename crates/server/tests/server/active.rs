//! Files that a browser would run: they must not act as pages of this server.

use super::rig::{Running, Site};

fn site() -> Site {
    Site::of(&[
        ("a.html", b"<script>1</script>"),
        ("a.xhtml", b"<html/>"),
        ("a.svg", b"<svg/>"),
        ("a.xml", b"<a/>"),
        ("a.mml", b"<math/>"),
        ("a.rss", b"<rss/>"),
        ("a.txt", b"text"),
        ("a.png", b"image"),
        ("a.js", b"script"),
        ("index.html", b"<p>home"),
    ])
}

const ACTIVE: [&str; 6] = ["a.html", "a.xhtml", "a.svg", "a.xml", "a.rss", "index.html"];

fn policy(site: &Running, path: &str) -> Option<String> {
    let reply = site.get(&format!("/{path}"));
    assert_eq!(reply.field("X-Content-Type-Options"), Some("nosniff"), "{path}");
    reply.field("Content-Security-Policy").map(str::to_owned)
}

#[test]
fn active_files_are_sandboxed_on_sites_with_uploads_or_passwords() {
    let everybody = ["@/", "alice:secret@/:rw"];
    let sites = [
        site().with_site(|site| site.changes.upload = true),
        site().with_site(|site| site.changes.delete = true),
        site().auth(&everybody),
    ];
    for site in sites {
        let site = site.start();
        for name in ACTIVE {
            assert_eq!(policy(&site, name).as_deref(), Some("sandbox"), "{name}");
        }
        for name in ["a.txt", "a.png", "a.js"] {
            assert_eq!(policy(&site, name), None, "{name}");
        }
        let part = site.ask("GET", "/a.svg", &["Range: bytes=0-1"]);
        assert_eq!((part.status, part.field("Content-Security-Policy")), (206, Some("sandbox")));
    }
}

#[test]
fn scripts_run_on_read_only_sites_or_if_allowed() {
    let trusted = site().auth(&["@/", "a:b@/:rw"]).with_site(|site| {
        site.changes.upload = true;
        site.allows_scripts = true;
    });
    for site in [site(), trusted] {
        let site = site.start();
        assert_eq!(policy(&site, "a.html"), None);
    }
}

#[test]
fn pages_of_the_server_have_a_policy_and_forbid_sniffing() {
    let site = site().start();
    for path in ["/nothing", "/", "/.underpass/transfers"] {
        let reply = site.ask("GET", path, &["Accept: text/html"]);
        let policy = reply.field("Content-Security-Policy").unwrap_or_default().to_owned();
        assert!(policy.starts_with("default-src 'none'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(reply.field("X-Content-Type-Options"), Some("nosniff"), "{path}");
    }
    let mut client = site.connect();
    client.send("GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.status, reply.field("X-Content-Type-Options")), (400, Some("nosniff")));
}
