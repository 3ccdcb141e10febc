//! Listings of a bucket by a node in front of it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::node::Node;
use crate::rig::{folder, noise, run, until};
use crate::s3::serve::{ADDRESS, before, node};
use crate::s3::store::Store;
use crate::scripted_origin::{Gate, Origin, Request, Sending};

/// A page of a listing: objects, folders, and the token of the next page.
fn page(keys: &[&str], folders: &[&str], next: Option<&str>) -> String {
    let keys = keys.iter().map(|key| {
        format!(
            "<Contents><Key>sub/{key}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>\
             <Size>7</Size></Contents>"
        )
    });
    let folders = folders
        .iter()
        .map(|name| format!("<CommonPrefixes><Prefix>sub/{name}</Prefix></CommonPrefixes>"));
    let next = next.map_or("<IsTruncated>false</IsTruncated>".to_owned(), |next| {
        format!(
            "<IsTruncated>true</IsTruncated><NextContinuationToken>{next}</NextContinuationToken>"
        )
    });
    let entries: String = keys.chain(folders).collect();
    format!("<ListBucketResult>{next}{entries}</ListBucketResult>")
}

fn send(sending: &mut Sending, page: &str) {
    sending.answer("HTTP/1.1 200 OK\nContent-Type: application/xml", page.as_bytes());
}

fn is_listing(request: &Request) -> bool {
    request.path.starts_with("/bucket/?") && request.path.contains("list-type=2")
}

fn body(node: &Node, path: &str) -> String {
    let reply = node.get(path);
    assert_eq!(reply.status, 200, "{path}: {}", reply.head);
    String::from_utf8(reply.body).unwrap()
}

#[test]
fn a_bucket_is_listed_and_fetched_like_a_folder() {
    let Some(store) = Store::new() else { return };
    let here = folder();
    let bytes = noise(3 << 20);
    fs::write(here.path().join("x"), &bytes).unwrap();
    let keys = ["one", "a%20b/%23two%3F", "a%20b/c/three", ".four", "%C3%A9"];
    for key in keys {
        let target = format!("s3://bucket/sub/{key}");
        store.run(here.path(), &["put", "x", &target]).succeeded();
    }
    store.run(here.path(), &["put", "x", "s3://bucket/elsewhere"]).succeeded();
    let args = ["serve", "--origin", ADDRESS];
    let first = node(store.command(here.path(), &args), folder());
    assert_eq!(body(&first, "/?simple"), "a b/\n.four\none\né\n");
    assert_eq!(body(&first, "/a%20b/?simple"), "c/\n#two?\n");
    assert_eq!(body(&first, "/?simple&q=o&sort=name&order=desc"), "one\n.four\n");
    let json: Value = serde_json::from_str(&body(&first, "/a%20b/?json")).unwrap();
    let entry = |at: usize, field: &str| json[at][field].clone();
    assert_eq!((entry(0, "name"), entry(0, "is_dir")), ("c".into(), true.into()));
    assert_eq!((entry(0, "size"), entry(0, "mtime")), (Value::Null, Value::Null));
    assert_eq!((entry(1, "url"), entry(1, "size")), ("./%23two%3F".into(), (3 << 20).into()));
    assert_eq!(entry(1, "mode"), Value::Null);
    assert!(entry(1, "mtime").as_str().unwrap().starts_with("20"));
    let html = first.ask("GET", "/", &["Accept: text/html"]);
    let text = String::from_utf8(html.body.clone()).unwrap();
    assert!(text.contains("href=\"a%20b/\"") && text.contains("1 folder, 3 files, 9.0 MiB"));
    assert!(!text.contains("name=\"archive\""), "an archive is offered");
    assert!(html.field("content-security-policy").is_some() && html.field("age").is_some());
    let head = first.ask("HEAD", "/", &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    // Links on the page need the slash.
    let moved = first.get("/a%20b?json");
    assert_eq!((moved.status, moved.field("location")), (301, Some("./a%20b/?json")));
    for path in ["/none/", "/none", "/one/"] {
        assert_eq!(first.get(path).status, 404, "{path}");
    }
    assert_eq!(first.get("/?archive=tar").status, 501);
    assert_eq!(first.get("/?sort=none").status, 400);
    // The whole tree, from the node, from a tier before it, and from the store.
    let tier = Node::new(&first.url(), &[]);
    let store_itself = format!("{ADDRESS}/");
    for (name, url) in [("node", first.url()), ("tier", tier.url()), ("store", store_itself)] {
        let args = ["get", "-r", &url, "-d", name, "--json"];
        let receipt = store.run(here.path(), &args).succeeded().receipt();
        assert_eq!((&receipt["files"], &receipt["user_space_bytes"]), (&5.into(), &0.into()));
        let got = here.path().join(if name == "store" { "store/sub" } else { name });
        for path in ["one", "a b/#two?", "a b/c/three", ".four", "é"] {
            assert!(fs::read(got.join(path)).unwrap() == bytes, "{name}: {path}");
        }
    }
}

#[test]
fn listings_have_rights_and_what_is_hidden_stays_so() {
    let Some(store) = Store::new() else { return };
    let here = folder();
    for key in ["open/x", "open/build/y", "shut/z", "notes.tmp"] {
        let path = store.path(&format!("sub/{key}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "words").unwrap();
    }
    let serve = |args: &[&str]| {
        let mut all = vec!["serve", "--origin", ADDRESS];
        all.extend(args);
        node(store.command(here.path(), &all), folder())
    };
    let node = serve(&["--no-listing"]);
    assert_eq!(node.get("/").status, 403);
    assert_eq!(node.get("/open").status, 404);
    node.get("/open/x").assert_is(200, b"words");
    let node = serve(&["--hide", "*.tmp", "--hide", "build/"]);
    assert_eq!(body(&node, "/?simple"), "open/\nshut/\n");
    assert_eq!(body(&node, "/open/?simple"), "x\n");
    for path in ["/notes.tmp", "/open/build/y", "/open/build/", "/open/build"] {
        assert_eq!(node.get(path).status, 404, "{path}");
    }
    let node = serve(&["--auth", "a:b@/", "--auth", "@/open"]);
    assert_eq!(body(&node, "/?simple"), "open/\n");
    assert_eq!(body(&node, "/open/?simple"), "build/\nx\n");
    assert_eq!(node.get("/shut/").status, 401);
    let all = node.ask("GET", "/?simple", &["Authorization: Basic YTpi"]);
    all.assert_is(200, b"open/\nshut/\nnotes.tmp\n");
}

#[test]
fn one_request_lists_a_folder_for_a_crowd_and_for_a_while() {
    let gate = Gate::default();
    let held = gate.clone();
    let store = Origin::new(move |request: &Request, sending: &mut Sending| {
        assert!(is_listing(request), "{}", request.path);
        held.wait();
        if request.path.contains("continuation-token=n%26") {
            send(sending, &page(&["b", "c//d", "../up"], &["e/", "/"], None))
        } else {
            send(sending, &page(&["a"], &[".underpass/", "f/"], Some("n&amp;")))
        }
    });
    let node = before(&store, &[]);
    let at_start = store.requests().len();
    let crowd: Vec<_> = (0..20)
        .map(|at| node.client("GET", if at % 2 == 0 { "/?simple" } else { "/?json" }, &[]))
        .collect();
    until("a crowd that waits", || node.metric("collapsed_total") == 19);
    gate.open();
    for (at, client) in crowd.into_iter().enumerate() {
        let reply = client.finish();
        assert_eq!(reply.status, 200);
        assert!(reply.cache().contains("fwd=uri-miss"), "{}", reply.cache());
        if at % 2 == 0 {
            assert_eq!(String::from_utf8(reply.body).unwrap(), "e/\nf/\na\nb\n");
        }
    }
    let reply = node.get("/?simple");
    assert!(reply.cache().contains("hit"), "{}", reply.cache());
    assert_eq!(store.requests().len(), at_start + 2, "pages");
    // An operator can have it listed again at once.
    assert_eq!(node.ask("PURGE", "/", &[]).status, 200);
    assert_eq!(node.ask("PURGE", "/", &[]).status, 404);
    body(&node, "/?simple");
    assert_eq!(store.requests().len(), at_start + 4);
    node.ask("POST", "/.underpass/expire?prefix=/", &[])
        .assert_is(200, b"stale: validated before it is used again\n");
    body(&node, "/?simple");
    assert_eq!(store.requests().len(), at_start + 6);
    let never = before(&store, &["--fresh", "0"]);
    let at_start = store.requests().len();
    body(&never, "/?simple");
    body(&never, "/?simple");
    assert_eq!(store.requests().len(), at_start + 4);
}

#[test]
fn a_failed_listing_is_reported_like_a_failed_object() {
    let store = Origin::new(move |request: &Request, sending: &mut Sending| {
        let refuse = |sending: &mut Sending, status: &str| {
            let body = "<Error><Code>Secret</Code><Message>of bucket</Message></Error>";
            let head = format!("HTTP/1.1 {status}\nContent-Type: application/xml\nRetry-After: 7");
            sending.answer(&head, body.as_bytes());
        };
        let is_of = |name: &str| request.path.contains(&format!("prefix=sub%2F{name}%2F"));
        match () {
            () if is_of("denied") => refuse(sending, "403 No"),
            () if is_of("busy") => refuse(sending, "503 No"),
            () if is_of("gone") => refuse(sending, "404 No"),
            () if is_of("page") => send(sending, "<html>of bucket</html>"),
            () if is_of("circle") => send(sending, &page(&[], &["circle/x/"], Some("again"))),
            () if is_of("endless") => {
                let names: Vec<_> = (0..9000).map(|at| format!("endless/{at}")).collect();
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                let token = format!("{:?}", std::time::Instant::now());
                send(sending, &page(&names, &[], Some(&token.replace(['"', ' '], ""))));
            }
            () => refuse(sending, "500 No"),
        }
    });
    let node = before(&store, &[]);
    for (path, status, word) in [
        ("/denied/", 502, "origin-denied"),
        ("/busy/", 503, "origin-failed"),
        ("/gone/", 404, "fwd=uri-miss"),
        ("/page/", 502, "origin-invalid"),
        ("/circle/", 502, "origin-invalid"),
        ("/endless/", 507, "too-many-entries"),
        ("/other/", 500, "origin-failed"),
    ] {
        let reply = node.get(path);
        assert_eq!(reply.status, status, "{path}: {}", reply.head);
        assert!(reply.cache().contains(word), "{path}: {}", reply.cache());
        let text = String::from_utf8(reply.body.clone()).unwrap();
        assert!(!text.contains("bucket") && !text.contains("Secret"), "{text}");
        assert!(path != "/busy/" || reply.field("retry-after") == Some("7"));
    }
    let here = folder();
    let url = format!("{}endless/", node.url());
    let got = here.path().join("got");
    run(["get".as_ref(), "-r".as_ref(), url.as_ref(), "-d".as_ref(), got.as_os_str()])
        .failed(1, &["507"]);
    store.end();
    let reply = node.get("/more/");
    assert_eq!(reply.status, 504);
    assert!(reply.cache().contains("origin-unreachable") && reply.field("retry-after").is_some());
}

#[test]
fn a_listing_outlives_its_store_if_it_may() {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let store = Origin::new(move |_: &Request, sending: &mut Sending| {
        counted.fetch_add(1, Ordering::Relaxed);
        send(sending, &page(&["a"], &[], None));
    });
    let args = |stale| ["--fresh", "0", "--stale-if-error", stale];
    let (kept, dropped) = (before(&store, &args("1d")), before(&store, &args("0")));
    count.store(0, Ordering::Relaxed);
    for node in [&kept, &dropped] {
        assert_eq!(body(node, "/?simple"), "a\n");
    }
    store.end();
    let reply = kept.get("/?simple");
    reply.assert_is(200, b"a\n");
    assert!(reply.cache().contains("hit") && reply.cache().contains("origin-unreachable"));
    assert_eq!(dropped.get("/?simple").status, 504);
    assert_eq!(count.load(Ordering::Relaxed), 2);
    // The origin is left alone for a while now.
    kept.get("/?simple").assert_is(200, b"a\n");
}
