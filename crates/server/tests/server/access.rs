//! The rights of users to read paths.

use super::rig::{Running, Site};

const ALICE: &str = "Authorization: Basic YWxpY2U6c2VjcmV0MQ=="; // alice:secret1
const BOB: &str = "Authorization: Basic Ym9iOnNlY3JldDI="; // bob:secret2
const WRONG: &str = "Authorization: Basic YWxpY2U6d3Jvbmc="; // alice:wrong

fn site() -> Running {
    let files: &[(&str, &[u8])] = &[
        ("public/a", b"public"),
        ("music/a", b"music"),
        ("private/a", b"private"),
        ("top", b"top"),
    ];
    // The password of bob is secret2.
    let hash = "$6$abcdefgh$SWDwEZWRRYiTytOjaHki9le2a6Gb9QWh.kwC8cPkDKnPPbGN\
        ob41yZZrWFkkHj/HdGZ5pwS8KeUaKWpI8srgy.";
    let bob = format!("bob:{hash}@/music");
    Site::of(files).auth(&["alice:secret1@/:rw", &bob, "@/public"]).start()
}

#[test]
fn each_user_reads_only_permitted_paths() {
    let site = site();
    let mut client = site.connect();
    let rows: [(&str, u16, u16, u16); 6] = [
        // path, nobody, alice, bob
        ("/public/a", 200, 200, 200),
        ("/music/a", 401, 200, 200),
        ("/private/a", 401, 200, 403),
        ("/top", 401, 200, 403),
        // Only what leads to readable paths.
        ("/", 200, 200, 200),
        ("/nothing", 401, 404, 403),
    ];
    for (path, nobody, alice, bob) in rows {
        assert_eq!(client.get(path).status, nobody, "nobody {path}");
        assert_eq!(client.ask("GET", path, &[ALICE]).status, alice, "alice {path}");
        assert_eq!(client.ask("GET", path, &[BOB]).status, bob, "bob {path}");
        assert_eq!(client.ask("HEAD", path, &[BOB]).status, bob, "bob {path}");
    }
}

#[test]
fn a_readme_is_shown_only_with_the_right_to_read_it() {
    let files: &[(&str, &[u8])] =
        &[("README.md", b"# For alice"), ("public/README.md", b"# For all")];
    let site = Site::of(files).auth(&["alice:secret1@/", "@/public"]).start();
    let html = "Accept: text/html";
    let has = |path: &str, fields: &[&str], text: &str| {
        let reply = site.ask("GET", path, fields);
        assert_eq!(reply.status, 200);
        reply.text().contains(text)
    };
    assert!(has("/", &[html, ALICE], "For alice</h1>"));
    assert!(!has("/", &[html], "For alice"));
    assert!(has("/public/", &[html], "For all</h1>"));
    // Programs get only the lines of the listing.
    assert!(!has("/public/", &[], "For all"));
}

#[test]
fn a_wrong_password_gets_a_challenge_and_the_connection_is_kept() {
    let site = site();
    let mut client = site.connect();
    let malformed = ["Authorization: Basic !!!", "Authorization: Basic YWxpY2U="];
    for fields in
        [&[][..], &[WRONG], &malformed[..1], &malformed[1..], &["Authorization: Bearer x"]]
    {
        let reply = client.ask("GET", "/top", fields);
        assert_eq!(reply.status, 401, "{fields:?}");
        let challenge = reply.field("WWW-Authenticate").unwrap();
        assert!(challenge.starts_with("Basic realm="), "{challenge}");
        assert!(!reply.text().contains("top"));
    }
    assert_eq!(client.ask("GET", "/top", &[ALICE]).text(), "top");
}

#[test]
fn a_hashed_password_is_accepted_each_time() {
    let site = site();
    let mut client = site.connect();
    for _ in 0..10 {
        assert_eq!(client.ask("GET", "/music/a", &[BOB]).text(), "music");
    }
    let wrong = "Authorization: Basic Ym9iOndyb25n"; // bob:wrong
    assert_eq!(client.ask("GET", "/music/a", &[wrong]).status, 401);
    assert_eq!(client.ask("GET", "/music/a", &[BOB]).text(), "music");
}

#[test]
fn no_spelling_of_a_path_gets_past_a_rule() {
    let site = site();
    for path in [
        "/private//a",
        "//private/a",
        "/./private/a",
        "/%70rivate/a",
        "/public/../private/a",
        "/public/%2e%2e/private/a",
        "/private",
        "/private/",
        "/private/?json",
        "/private/?archive=tar",
        "/?archive=tar",
        "http://localhost/private/a",
    ] {
        assert_eq!(site.get(path).status, 401, "{path}");
        assert_eq!(site.ask("GET", path, &[BOB]).status, 403, "{path}");
    }
    assert_eq!(site.get("/public%2f..%2fprivate/a").status, 404);
    assert_eq!(site.get("/publicity").status, 401, "a rule matches whole names");
}

#[test]
fn the_log_names_the_user_and_never_the_password() {
    let site = site();
    site.ask("GET", "/top", &[ALICE]);
    site.ask("GET", "/private/a", &[WRONG]);
    assert_eq!(site.record("\"target\":\"/top\"")["user"], "alice");
    assert_eq!(site.record("\"target\":\"/private/a\"")["user"], serde_json::Value::Null);
    assert!(site.lines().iter().all(|line| !line.contains("secret1") && !line.contains("wrong")));
}
