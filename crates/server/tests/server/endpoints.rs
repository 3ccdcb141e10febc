//! The endpoints of the server about itself: health, metrics, transfers.

use super::rig::{Site, pattern, request, wait_for, wait_until};

const LEN: usize = 12 << 20;

fn site() -> Site {
    let site = Site::of(&[("a", b"first"), (".underpass/health", b"a file")]);
    site.write("large", &pattern(LEN));
    site
}

#[test]
fn health_is_open_to_everyone_and_leaves_no_line() {
    let site = site().auth(&["user:word@/"]).start();
    let reply = site.get("/.underpass/health");
    assert_eq!((reply.status, reply.text().as_str()), (200, "{\"status\":\"OK\"}\n"));
    assert_eq!(reply.field("Cache-Control"), Some("no-store"));
    let head = site.ask("HEAD", "/.underpass/health", &[]);
    assert_eq!((head.status, head.field("Content-Length")), (200, Some("16")));
    assert_eq!(site.ask("POST", "/.underpass/health", &[]).status, 405);
    assert_eq!(site.get("/a").status, 401);
    site.line("\"target\":\"/a\"");
    assert_eq!(site.lines().len(), 1, "{:?}", site.lines());
}

#[test]
fn a_server_whose_folder_was_removed_is_not_healthy() {
    let site = Site::of(&[("a", b"first")]).start();
    assert_eq!(site.get("/.underpass/health").status, 200);
    let root = site.path("");
    std::fs::remove_dir_all(&root).unwrap();
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("a"), "another").unwrap();
    let reply = site.get("/.underpass/health");
    assert_eq!(reply.status, 503);
    assert!(reply.text().contains("removed"), "{}", reply.text());
}

#[test]
fn a_folder_that_was_removed_does_not_look_like_an_empty_one() {
    let site = Site::of(&[("a", b"first")]).start();
    std::fs::remove_dir_all(site.path("")).unwrap();
    for what in ["", "?json", "?q=a&below&simple", "?size", "?archive=tar", "?archive=zip"] {
        assert_eq!(site.get(&format!("/{what}")).status, 404, "{what}");
    }
}

#[test]
fn metrics_and_transfers_need_a_password_where_the_site_has_one() {
    let site = site().auth(&["user:word@/", "guest:word@/public"]).start();
    for path in ["/.underpass/metrics", "/.underpass/transfers", "/.underpass/transfers?json"] {
        assert_eq!(site.get(path).status, 401, "{path}");
        // user:word and guest:word
        let user = site.ask("GET", path, &["Authorization: Basic dXNlcjp3b3Jk"]);
        assert_eq!(user.status, 200, "{path}");
        let guest = site.ask("GET", path, &["Authorization: Basic Z3Vlc3Q6d29yZA=="]);
        assert_eq!(guest.status, 403, "{path}");
    }
}

#[test]
fn readers_of_files_do_not_see_metrics() {
    let site = site().auth(&["user:word@/", "guest:word@/.underpass,/public", "@/"]).start();
    let user = "Authorization: Basic dXNlcjp3b3Jk";
    let guest = "Authorization: Basic Z3Vlc3Q6d29yZA==";
    for path in ["/.underpass/metrics", "/.underpass/transfers", "/.underpass/transfers?json"] {
        assert_eq!(site.get(path).status, 401, "{path}");
        assert_eq!(site.ask("GET", path, &[user]).status, 200, "{path}");
        assert_eq!(site.ask("GET", path, &[guest]).status, 200, "{path}");
    }
    assert_eq!(site.get("/a").status, 200);
}

#[test]
fn transfers_are_listed_for_readers_and_without_tokens() {
    let rules = ["user:word@/", "guest:word@/.underpass,/public"];
    let site = site().auth(&rules).with_site(|site| site.changes.upload = true).start();
    let mut client = site.connect_narrow();
    let user = "Authorization: Basic dXNlcjp3b3Jk";
    client.send(request("GET", "/large?x&upload=token", &[user]));
    client.head().unwrap();
    client.take(1 << 20).unwrap();
    let list = |user: &str| site.ask("GET", "/.underpass/transfers?json", &[user]).text();
    let seen = wait_for("the transfer", || Some(list(user)).filter(|list| list != "[]"));
    assert!(seen.contains("/large?x&upload=*\"") && !seen.contains("token"), "{seen}");
    assert_eq!(list("Authorization: Basic Z3Vlc3Q6d29yZA=="), "[]");
}

#[test]
fn without_users_transfers_are_listed_locally_only() {
    let site = site().start();
    assert_eq!(site.get("/.underpass/transfers").status, 200);
    let forwarded = |version: &str, host: &str| {
        let mut proxy = site.connect();
        let head = format!("GET /.underpass/transfers HTTP/{version}\r\nHost: {host}\r\n\r\n");
        proxy.send(head);
        proxy.reply().status
    };
    assert_eq!(forwarded("1.1", "localhost:80"), 200);
    assert_eq!(forwarded("1.0", "127.0.0.1"), 403, "as nginx forwards by default");
    assert_eq!(forwarded("1.1", "192.0.2.1"), 403, "a name that a client has used");
    for field in [
        "X-Forwarded-For: 192.0.2.1",
        "Forwarded: for=192.0.2.1",
        "Via: 1.1 proxy",
        "X-Real-IP: 192.0.2.1",
        "X-Forwarded-Proto: https",
        "CF-Connecting-IP: 192.0.2.1",
    ] {
        assert_eq!(site.ask("GET", "/.underpass/transfers", &[field]).status, 403, "{field}");
        assert_eq!(site.ask("GET", "/.underpass/metrics", &[field]).status, 200, "{field}");
    }
}

#[test]
fn rules_without_users_leave_endpoints_to_their_own_checks() {
    let site = site().auth(&["@/public"]).start();
    assert_eq!(site.get("/a").status, 403);
    assert_eq!(site.get("/.underpass/metrics").status, 200);
    assert_eq!(site.get("/.underpass/transfers").status, 200);
    let forwarded = ["X-Forwarded-For: 192.0.2.1"];
    assert_eq!(site.ask("GET", "/.underpass/transfers", &forwarded).status, 403);
    assert_eq!(site.ask("PUT", "/.underpass/a", &[]).status, 403);
}

#[test]
fn pages_of_other_sites_do_not_see_transfers() {
    let site = site().with_site(|site| site.cors = true).start();
    let status = |field| site.ask("GET", "/.underpass/transfers", &[field]).status;
    assert_eq!(status("Origin: http://evil.example"), 403);
    assert_eq!(status("Sec-Fetch-Site: cross-site"), 403);
    assert_eq!(status("Sec-Fetch-Site: same-origin"), 200);
}

#[test]
fn disabled_endpoints_are_not_replaced_by_files() {
    let open = site().with_site(|site| site.shows_hidden = true).start();
    for name in ["health", "metrics", "transfers"] {
        assert_eq!(open.get(&format!("/.underpass/{name}")).status, 200, "{name}");
        let site = site().with_site(|site| {
            site.shows_hidden = true;
            let switch = match name {
                "health" => &mut site.health,
                "metrics" => &mut site.metrics,
                _ => &mut site.transfers,
            };
            *switch = false;
        });
        assert_eq!(site.start().get(&format!("/.underpass/{name}")).status, 404, "{name}");
    }
    for path in ["/.underpass/", "/.underpass", "/.underpass/nothing", "/.underpass/health/x"] {
        assert_eq!(open.get(path).status, 404, "{path}");
    }
}

#[test]
fn metrics_count_what_happened() {
    let site = site().start();
    let mut client = site.connect();
    for _ in 0..7 {
        client.get("/a");
    }
    assert_eq!(client.get("/nothing").status, 404);
    assert_eq!(client.ask("GET", "/a", &["Range: bytes=0-0"]).status, 206);
    assert!(client.get("/large").body == pattern(LEN));
    assert_eq!(site.metric("requests_total{code=\"200\"}"), 8.0);
    assert_eq!(site.metric("requests_total{code=\"404\"}"), 1.0);
    assert_eq!(site.metric("requests_total{code=\"206\"}"), 1.0);
    assert_eq!(site.metric("requests_total{code=\"500\"}"), 0.0);
    // All of the large file, but for the last bytes if it was written too recently to be trusted.
    let moved = site.metric("sent_bytes_total{mechanism=\"sendfile\"}");
    assert!(moved >= (LEN - 3) as f64 && moved <= LEN as f64, "{moved}");
    let copied = site.metric("sent_bytes_total{mechanism=\"read_write\"}");
    assert_eq!(moved + copied, (LEN + 7 * 5 + 1) as f64);
    assert_eq!(site.metric("connections_open"), 2.0);
    assert!(site.metric("connections_accepted_total") >= 7.0);
    assert!(site.metric("request_duration_seconds_count") >= 15.0);
    drop(client);
    wait_until("the connection is counted out", || site.metric("connections_open") == 1.0);
    let reply = site.get("/.underpass/metrics");
    assert!(reply.field("Content-Type").unwrap().starts_with("text/plain; version=0.0.4"));
}

#[test]
fn a_transfer_is_seen_while_it_lasts() {
    let site = site().start();
    let mut client = site.connect_narrow();
    client.send(request("GET", "/large?x", &[]));
    client.head().unwrap();
    client.take(1 << 20).unwrap();
    let list = || -> serde_json::Value {
        serde_json::from_slice(&site.get("/.underpass/transfers?json").body).unwrap()
    };
    let entry = wait_for("the transfer", || {
        let entry = list()[0].clone();
        (entry["bytes"].as_u64()? >= 1 << 20).then_some(entry)
    });
    assert_eq!((&entry["target"], &entry["method"]), (&"/large?x".into(), &"GET".into()));
    assert_eq!((&entry["status"], &entry["expected"]), (&200.into(), &LEN.into()));
    assert_eq!((&entry["peer"], &entry["mechanism"]), (&"127.0.0.1".into(), &"sendfile".into()));
    assert!(entry["bytes"].as_u64() < Some(LEN as u64));
    let page = site.get("/.underpass/transfers");
    assert_eq!(page.field("Content-Type"), Some("text/html; charset=utf-8"));
    assert!(page.text().contains("/large?x"));
    assert_eq!(site.metric("transfers_open"), 1.0);
    client.take(LEN - (1 << 20)).unwrap();
    wait_until("it is over", || list() == serde_json::json!([]));
    assert_eq!(site.metric("transfers_open"), 0.0);
}
