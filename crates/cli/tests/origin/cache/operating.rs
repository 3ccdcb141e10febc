//! The endpoints for operators of a node: filling, expiring, purging and inspecting it.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::Value;

use crate::cache::restarts::{drop_pages, files};
use crate::node::{End, Node, until_stored};
use crate::rig::{folder, has, noise, until};
use crate::scripted_origin::{Gate, Object, Origin};
use underpass_testkit::{is_root, skip};

fn hello() -> Origin {
    let object = Object::new(b"hello".to_vec(), "a");
    Origin::of(&object)
}

pub fn post(node: &Node, target: &str, lines: &[&str]) -> u16 {
    let lines = [lines, &["Content-Length: 0"]].concat();
    node.ask("POST", target, &lines).status
}

#[test]
fn expired_objects_are_validated_even_after_a_restart() {
    let origin = hello();
    let node = Node::new(&origin.url(), &[]);
    for path in ["/a/1", "/a/2", "/b/1"] {
        node.get(path).assert_is(200, b"hello");
    }
    until_stored(&node, 15);
    assert_eq!(post(&node, "/.underpass/expire?prefix=/a/", &[]), 200);
    assert_eq!(origin.requests().len(), 3);
    let first = node.get("/a/1");
    first.assert_is(200, b"hello");
    assert!(first.cache().contains("fwd=stale; fwd-status=304"), "{}", first.cache());
    assert_eq!(node.get("/a/1").cache().split("; ttl").next(), Some("underpass; hit"));
    node.get("/b/1").assert_is(200, b"hello");
    assert_eq!(origin.requests().len(), 4);
    let node = node.again(&origin.url(), &[]);
    node.get("/a/1").assert_is(200, b"hello");
    node.get("/b/1").assert_is(200, b"hello");
    assert_eq!(origin.requests().len(), 4);
    node.get("/a/2").assert_is(200, b"hello");
    assert_eq!(origin.requests().len(), 5);
    // It is a path as in URLs.
    node.get("/c++/1").assert_is(200, b"hello");
    node.get("/c++/1").assert_is(200, b"hello");
    assert_eq!(origin.requests().len(), 6);
    assert_eq!(post(&node, "/.underpass/expire?prefix=/c++/", &[]), 200);
    node.get("/c++/1").assert_is(200, b"hello");
    assert_eq!(origin.requests().len(), 7);
    assert_eq!(post(&node, "/.underpass/expire?prefix=nowhere", &[]), 400);
    // Not for pages of other sites, and not from elsewhere.
    let target = "/.underpass/expire?prefix=/";
    assert_eq!(post(&node, target, &["Origin: http://other.test"]), 403);
    for line in ["X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "Via: 1.1 proxy"] {
        assert_eq!(post(&node, target, &[line]), 403, "{line}");
    }
}

#[test]
fn a_purge_removes_a_file_however_its_path_is_written() {
    let origin = hello();
    let node = Node::new(&origin.url(), &["--vary-on", "X-Kind"]);
    let spellings = ["/a(b)&c", "/a%28b%29%26c", "/a(b)%26c"];
    for purged in spellings {
        spellings.iter().for_each(|path| node.get(path).assert_is(200, b"hello"));
        assert_eq!(node.ask("PURGE", purged, &[]).status, 200);
        for path in spellings {
            let reply = node.ask("HEAD", path, &[]);
            assert!(!reply.cache().contains("hit"), "{purged} {path}: {}", reply.cache());
        }
        assert_eq!(node.ask("PURGE", purged, &[]).status, 200);
        assert_eq!(node.ask("PURGE", purged, &[]).status, 404);
    }
}

#[test]
fn errors_are_declared_stale_too() {
    let origin = Origin::new(|_, sending| sending.answer("HTTP/1.1 404 No", b"words"));
    // They would be believed for ten seconds; on a slow machine that passes.
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").assert_is(404, b"words");
    assert_eq!(post(&node, "/.underpass/expire?prefix=/a", &[]), 200);
    node.get("/a").assert_is(404, b"words");
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_node_is_filled_and_expired_by_clients_with_write_access() {
    let origin = hello();
    let args = ["--auth", "w:w@/:rw", "--auth", "r:r@/", "--auth", "@/a/"];
    let node = Node::new(&origin.url(), &args);
    let (writer, reader) = ("Authorization: Basic dzp3", "Authorization: Basic cjpy"); // w:w, r:r
    for target in ["/.underpass/expire?prefix=/a/", "/.underpass/fill?path=/a/b"] {
        assert_eq!(post(&node, target, &[]), 401, "{target}");
        assert_eq!(post(&node, target, &[reader]), 403, "{target}");
        assert_eq!(post(&node, target, &[writer]), 200, "{target}");
    }
    assert_eq!(node.get("/.underpass/popular").status, 401);
    assert_eq!(node.ask("GET", "/.underpass/popular", &[reader]).status, 200);
}

#[test]
fn a_range_is_filled_without_being_sent() {
    let bytes = noise(5 << 20);
    let object = Object::new(bytes.clone(), "a");
    let origin = Origin::new(move |request, sending| match request.path.as_str() {
        "/a%20b" => object.send(request, sending),
        _ => sending.answer("HTTP/1.1 404 No", b""),
    });
    let node = Node::new(&origin.url(), &[]);
    let fill = |query: &str| {
        let reply = node.ask("POST", &format!("/.underpass/fill?path=/a%2520b{query}"), &[]);
        assert_eq!(reply.status, 200);
        serde_json::from_slice::<Value>(&reply.body).unwrap()
    };
    let filled = fill("&from=0&to=1048576");
    assert_eq!((&filled["length"], origin.sent()), (&(5 << 20).into(), 1 << 20), "{filled}");
    fill("");
    let filled = fill("");
    assert_eq!((&filled["fetched"], origin.sent()), (&0.into(), 5 << 20), "{filled}");
    node.get("/a%20b").assert_is(200, &bytes);
    assert_eq!(origin.sent(), 5 << 20);
    assert_eq!(post(&node, "/.underpass/fill?path=/none", &[]), 404);
    assert_eq!(post(&node, "/.underpass/fill?path=/a%2520b&from=x", &[]), 400);
    assert_eq!(post(&node, "/.underpass/fill", &[]), 400);
}

#[test]
fn a_fill_passes_on_how_long_the_origin_asks_to_wait() {
    let origin = Origin::new(|_, sending| {
        sending.answer("HTTP/1.1 503 Busy\nRetry-After: 7", b"");
    });
    let fill = || {
        let node = Node::new(&origin.url(), &[]);
        node.ask("POST", "/.underpass/fill?path=/a", &["Content-Length: 0"])
    };
    let reply = fill();
    assert_eq!((reply.status, reply.field("retry-after")), (503, Some("7")));
    origin.end();
    let reply = fill();
    assert_eq!(reply.status, 504);
    assert!(reply.field("retry-after").is_some(), "{}", reply.head);
}

#[test]
fn a_fill_serves_clients_with_the_same_fields() {
    let origin = hello();
    let node = Node::new(&origin.url(), &["--vary-on", "X-Kind"]);
    assert_eq!(post(&node, "/.underpass/fill?path=/a", &[]), 200);
    assert_eq!(post(&node, "/.underpass/fill?path=/a", &["X-Kind: one"]), 200);
    assert_eq!(origin.requests().len(), 2);
    node.get("/a").assert_is(200, b"hello");
    node.ask("GET", "/a", &["X-Kind: one"]).assert_is(200, b"hello");
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_node_shows_what_it_has_and_what_is_popular() {
    let origin = hello();
    let node = Node::new(&origin.url(), &[]);
    for path in ["/often", "/often", "/once"] {
        node.get(path).assert_is(200, b"hello");
    }
    assert_eq!(node.get("/.underpass/popular").body, b"/often 2\n/once 1\n");
    assert_eq!(node.get("/.underpass/popular?n=1").body, b"/often 2\n");
    let answered = |status: &str| node.metric(&format!("responses_total{{status=\"{status}\"}}"));
    assert_eq!((answered("hit"), answered("miss"), answered("stale")), (1, 2, 0));
    until_stored(&node, 10);
    let shown = node.get("/.underpass/cache?json");
    let rows: Value = serde_json::from_slice(&shown.body).unwrap();
    assert_eq!(rows[0]["path"], "/often");
    assert_eq!((&rows[1]["length"], &rows[1]["present"]), (&5.into(), &5.into()));
    let page = node.get("/.underpass/cache");
    assert!(page.field("content-security-policy").is_some());
    assert!(String::from_utf8(page.body).unwrap().contains("2 kept"));
    // Without users only for this machine.
    let forwarded = "X-Forwarded-For: 192.0.2.1";
    for path in ["/.underpass/popular", "/.underpass/cache"] {
        assert_eq!(node.ask("GET", path, &[forwarded]).status, 403, "{path}");
    }
}

#[test]
fn the_metrics_have_the_cache_of_each_site() {
    let origin = hello();
    let (here, cache) = (folder(), folder());
    let config = here.path().join("sites.toml");
    let sites = format!(
        "[[site]]\nnames = ['a.test']\ndefault = true\n\
         [[site]]\nnames = ['b.test']\ncache = '{}'\n",
        cache.path().display()
    );
    fs::write(&config, sites).unwrap();
    let node = Node::new(&origin.url(), &["--config", config.to_str().unwrap()]);
    for _ in 0..2 {
        node.get("http://b.test/a").assert_is(200, b"hello");
    }
    let metrics = node.get("/.underpass/metrics").text();
    for line in [
        "requests_total{site=\"a.test\"} 0",
        "requests_total{site=\"b.test\"} 1",
        "responses_total{site=\"a.test\",status=\"miss\"} 0",
        "responses_total{site=\"b.test\",status=\"hit\"} 1",
        "responses_total{site=\"b.test\",status=\"miss\"} 1",
    ] {
        assert!(metrics.contains(&format!("\nunderpass_cache_{line}\n")), "{line}: {metrics}");
    }
    assert_eq!(metrics.matches("# TYPE underpass_cache_requests_total ").count(), 1);
}

/// The list is for `underpass fill`, which reports what other nodes cannot keep.
#[test]
fn only_files_that_nodes_store_count_as_popular() {
    let kept = Object::new(b"hello".to_vec(), "a");
    let private = kept.clone().with("Cache-Control: private");
    let origin = Origin::new(move |request, sending| match request.path.as_str() {
        "/kept" => kept.send(request, sending),
        "/private" => private.send(request, sending),
        "/moved" => sending.answer("HTTP/1.1 302 Found\nLocation: /kept", b""),
        "/broken" => sending.answer("HTTP/1.1 500 No", b""),
        _ => sending.answer("HTTP/1.1 404 No", b""),
    });
    let node = Node::new(&origin.url(), &[]);
    for path in ["/kept", "/private", "/moved", "/broken", "/wp-login.php", "/wp-login.php"] {
        node.get(path);
    }
    assert_eq!(node.get("/.underpass/popular").body, b"/kept 1\n");
}

#[test]
fn a_file_that_is_not_in_memory_is_as_popular_as_it_is_requested() {
    let origin = hello();
    let node = Node::new(&origin.url(), &[]);
    for _ in 0..4 {
        node.get("/a").assert_is(200, b"hello");
        until_stored(&node, 5);
        let files = files(node.cache.path(), "").into_iter();
        let mut bodies = files.filter(|file| file.extension().is_some_and(|it| it != "json"));
        drop_pages(&bodies.next().unwrap());
    }
    assert_eq!(node.get("/.underpass/popular").body, b"/a 4\n");
}

/// `underpass fill --rate` has a file filled part by part.
#[test]
fn fills_make_nothing_popular() {
    let origin = hello();
    let node = Node::new(&origin.url(), &[]);
    for part in ["&from=0&to=2", "&from=2&to=5", ""] {
        assert_eq!(post(&node, &format!("/.underpass/fill?path=/a{part}"), &[]), 200);
    }
    assert_eq!(node.get("/.underpass/popular").body, b"");
    node.get("/a").assert_is(200, b"hello");
    assert_eq!(node.get("/.underpass/popular").body, b"/a 1\n");
}

/// A proxy on this machine may add nothing to what it forwards; its user is another one.
#[test]
fn without_users_only_programs_of_the_operator_may_operate_a_node() {
    if !is_root() || !has("curl") || !has("setpriv") {
        return skip("there is no root, curl or setpriv");
    }
    let origin = hello();
    let node = Node::new(&origin.url(), &[]);
    let ask = |user: &str, words: &[&str], path: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups", "curl", "-sS", "-o"]);
        command.args(["/dev/null", "-w", "%{http_code}"]).args(words);
        command.arg(format!("http://{}{path}", node.address()));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    node.get("/a").assert_is(200, b"hello");
    for (words, path) in [
        (&[][..], "/.underpass/popular"),
        (&[], "/.underpass/transfers"),
        (&["-X", "PURGE"], "/a"),
        (&["-X", "POST"], "/.underpass/expire?prefix=/"),
    ] {
        assert_eq!(ask("65534", words, path), "403", "{words:?} {path}");
        assert_eq!(ask("0", words, path), "200", "{words:?} {path}");
    }
    assert_eq!(ask("65534", &[], "/a"), "200");
}

/// The disk syncs the folder of what is removed before its removal is acknowledged.
#[test]
fn purged_objects_are_gone_after_a_power_cut_too() {
    if !has("strace") {
        return;
    }
    let is_gone = Arc::new(AtomicBool::new(false));
    let at_origin = Arc::clone(&is_gone);
    let object = Object::new(b"hello".to_vec(), "a").with("Cache-Control: max-age=0");
    let origin = Origin::new(move |request, sending| {
        if at_origin.load(Ordering::Relaxed) {
            sending.answer("HTTP/1.1 404 No", b"")
        } else {
            object.send(request, sending)
        }
    });
    let node = Node::new(&origin.url(), &[]);
    for path in ["/a", "/b", "/c"] {
        node.get(path).assert_is(200, b"hello");
    }
    until_stored(&node, 15);
    let stop = |mut node: Node| {
        node.server.signal("TERM");
        node.server.child.wait().unwrap();
        node.cache
    };
    let (cache, traces) = (stop(node), folder());
    let trace = traces.path().join("trace");
    let strace = ["-y", "-e", "trace=fsync", "-o", trace.to_str().unwrap()];
    let node = Node::traced_on(cache, &strace, &origin.url(), &[]);
    let synced = || fs::read_to_string(&trace).unwrap().matches("/objects/").count();
    assert_eq!((node.ask("PURGE", "/a", &[]).status, synced()), (200, 1));
    is_gone.store(true, Ordering::Relaxed);
    node.get("/b").assert_is(404, b"");
    assert_eq!(synced(), 2);
    // What is not here costs nothing.
    node.get("/none").assert_is(404, b"");
    assert_eq!(synced(), 2);
    let strace = ["-e", "trace=fsync", "-e", "inject=fsync:error=EIO"];
    let node = Node::traced_on(stop(node), &strace, &origin.url(), &[]);
    let reply = node.ask("PURGE", "/c", &[]);
    let text = String::from_utf8(reply.body).unwrap();
    assert!(reply.status == 500 && text.contains("removing it from the disk failed"), "{text}");
    node.get("/c").assert_is(404, b"");
}

#[test]
fn an_object_purged_while_it_is_fetched_is_not_stored() {
    for status in ["200 OK", "404 Not Found"] {
        let gate = Gate::default();
        let (held, first) = (gate.clone(), AtomicBool::new(true));
        let origin = Origin::new(move |_, sending| {
            let head = format!("HTTP/1.1 {status}\nCache-Control: max-age=1000\nETag: \"a\"");
            if first.swap(false, Ordering::Relaxed) {
                held.wait();
                return sending.answer(&head, b"old");
            }
            sending.answer(&head, b"new");
        });
        let node = Node::new(&origin.url(), &[]);
        let old = node.client("GET", "/a", &[]);
        until("the first request", || origin.requests().len() == 1);
        assert_eq!(node.ask("PURGE", "/a", &[]).status, 404);
        // The next request does not wait for what was purged.
        let now = status[..3].parse().unwrap();
        node.get("/a").assert_is(now, b"new");
        gate.open();
        old.finish().assert_is(now, b"old");
        node.get("/a").assert_is(now, b"new");
        assert_eq!(origin.requests().len(), 2, "{status}");
    }
}

#[test]
fn a_purged_object_that_was_too_large_is_stored_once_it_fits() {
    let number = AtomicUsize::new(0);
    let origin = Origin::new(move |_, sending| {
        if number.fetch_add(1, Ordering::Relaxed) > 0 {
            let lines = "HTTP/1.1 200 OK\nETag: \"a\"\nCache-Control: max-age=1000";
            return sending.answer(lines, b"hello");
        }
        sending.head("HTTP/1.1 200 OK\nTransfer-Encoding: chunked");
        for _ in 0..32 {
            sending.body(format!("{:x}\r\n{}\r\n", 1 << 17, "x".repeat(1 << 17)).as_bytes());
        }
        sending.body(b"0\r\n\r\n");
    });
    let node = Node::new(&origin.url(), &["--cache-size", "1M"]);
    assert_eq!(node.client("GET", "/a", &[]).finish().end, End::Reset);
    // It is not there, but that it did not fit is forgotten, too.
    assert_eq!(node.ask("PURGE", "/a", &[]).status, 404);
    let reply = node.get("/a");
    reply.assert_is(200, b"hello");
    assert!(
        reply.cache().contains("stored") && !reply.cache().contains("no-room"),
        "{}",
        reply.cache()
    );
    until_stored(&node, 5);
}

#[test]
fn paths_that_are_not_served_are_not_filled() {
    let origin = hello();
    let node = Node::new(&origin.url(), &["--hide", "secret", "--hide", "*.key"]);
    for path in ["/.underpass/health", "/.underpass/a", "/a/secret", "/secret/a", "/b.key"] {
        assert_eq!(post(&node, &format!("/.underpass/fill?path={path}"), &[]), 404, "{path}");
    }
    assert!(origin.requests().is_empty());
    assert_eq!(post(&node, "/.underpass/fill?path=/a", &[]), 200);
}
