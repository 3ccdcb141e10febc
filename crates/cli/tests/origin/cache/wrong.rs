//! Invalid responses of origins: none of them is stored.

use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::node::{End, Node};
use crate::rig::{folder, noise, run, until};
use crate::scripted_origin::{Gate, Object, Origin};

const MIB: usize = 1 << 20;

#[test]
fn where_ranges_have_no_usable_answer_the_whole_is_requested() {
    let all = noise(4 * MIB);
    let bytes = all.clone();
    for head in [
        "HTTP/1.1 400 Bad\nCache-Control: max-age=1000\nContent-Length: 1048576",
        "HTTP/1.1 403 No\nCache-Control: max-age=1000\nContent-Length: 1048576",
        "HTTP/1.1 405 No\nContent-Length: 1048576",
        "HTTP/1.1 501 No\nContent-Length: 1048576",
        // A gateway that makes 200 of each 206.
        "HTTP/1.1 200 OK\nETag: \"a\"\nContent-Range: bytes 0-1048575/4194304\nContent-Length: 1048576",
        "HTTP/1.1 200 OK\nETag: \"a\"\nContent-Range: bytes 0-1048575/*\nContent-Length: 1048576",
        "HTTP/1.1 200 OK\nETag: \"a\"\nContent-Range: bytes=0-1048575/4194304\nContent-Length: 1048576",
        // Another start, another end, another total, none, and a length that contradicts.
        "Content-Range: bytes 1-1048576/4194304\nContent-Length: 1048576",
        "Content-Range: bytes 0-2097151/4194304\nContent-Length: 2097152",
        "Content-Range: bytes 0-1048575/*\nContent-Length: 1048576",
        "Content-Length: 1048576",
        "Content-Range: bytes 0-1048575/4194304\nContent-Length: 1048570",
        "Content-Range: bytes 0-1048575/4194304\nTransfer-Encoding: chunked",
        "Content-Range: bytes 5-4/4194304\nContent-Length: 0",
        "Content-Range: octets 0-1048575/4194304\nContent-Length: 1048576",
    ] {
        let (all, object) = (all.clone(), Object::new(bytes.clone(), "a"));
        let whole = AtomicUsize::new(0);
        let origin = Origin::new(move |request, sending| {
            sending.closes = true;
            if request.field("range").is_some() {
                let part = format!("HTTP/1.1 206 Partial\nETag: \"a\"\n{head}");
                sending.head(if head.starts_with("HTTP") { head } else { &part });
                return sending.body(&all[..MIB]);
            }
            let (head, body) = object.answer(request);
            sending.head(&head);
            // What was whole before it breaks off once is so again.
            let is_cut = whole.fetch_add(1, Ordering::Relaxed) == 1;
            sending.body(if is_cut { &body[..2 * MIB] } else { body });
        });
        let node = Node::new(&origin.url(), &[]);
        let first = node.ask("HEAD", "/a", &[]);
        assert_eq!((first.status, first.field("content-length")), (200, Some("4194304")), "{head}");
        node.range("/a", "3000000-3000099").assert_is(206, &bytes[3_000_000..3_000_100]);
        assert_eq!(node.ask("PURGE", "/a", &[]).status, 200);
        node.get("/a").assert_is(200, &bytes);
        node.get("/a").assert_is(200, &bytes);
        let paths = origin.requests();
        let ranges = paths.iter().filter(|request| request.field("range").is_some()).count();
        assert_eq!((paths.len(), ranges), (5, 2), "{head}");
    }
}

#[test]
fn parts_without_a_version_are_not_combined() {
    let all = noise(4 * MIB);
    let bytes = all.clone();
    for tag in ["ETag: W/\"a\"", "X: y"] {
        let all = all.clone();
        let origin = Origin::new(move |request, sending| match request.range(4 * MIB) {
            Some(Range { start, end }) => {
                let range = format!("Content-Range: bytes {start}-{}/{}", end - 1, 4 * MIB);
                sending.answer(&format!("HTTP/1.1 206 Partial\n{tag}\n{range}"), &all[start..end]);
            }
            None => sending.answer(&format!("HTTP/1.1 200 OK\n{tag}"), &all),
        });
        let node = Node::new(&origin.url(), &[]);
        node.range("/a", "2000000-2000099").assert_is(206, &bytes[2_000_000..2_000_100]);
    }
}

#[test]
fn a_body_that_is_shorter_than_it_says_is_never_taken_for_the_whole() {
    let origin = Origin::new(|request, sending| {
        sending.closes = true;
        if request.field("range").is_none() {
            sending.head("HTTP/1.1 200 OK\nContent-Length: 100\nCache-Control: max-age=1000");
            sending.body(&[b'x'; 60]);
        }
    });
    let node = Node::new(&origin.url(), &[]);
    let reply = node.get("/a");
    assert_eq!((reply.end, reply.body.len()), (End::Reset, 60));
    let chunked = Origin::new(|_, sending| {
        sending.closes = true;
        sending.head("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nCache-Control: max-age=1000");
        sending.body(b"5\r\nhello\r\n");
    });
    let node = Node::new(&chunked.url(), &[]);
    let reply = node.get("/a");
    assert_eq!((reply.end, reply.body.as_slice()), (End::Reset, &b"hello"[..]));
    let reply = node.old_client("/b").finish();
    assert_eq!((reply.end, reply.body.as_slice()), (End::Reset, &b"hello"[..]));
    until("nothing of it is stored", || node.metric("objects") == 0);
}

#[test]
fn heads_that_contradict_themselves_are_refused() {
    let flood = "HTTP/1.1 103 Early\n\n".repeat(101) + "HTTP/1.1 200 OK\nContent-Length: 5";
    let long = format!("HTTP/1.1 200 OK\nContent-Length: 5\nX: {}", "a".repeat(64 << 10));
    let many = format!("HTTP/1.1 200 OK\nContent-Length: 5{}", "\nX: y".repeat(128));
    for head in [
        "HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 6",
        "HTTP/1.1 200 OK\nContent-Length: +5",
        "HTTP/1.1 200 OK\nContent-Length: -5",
        "HTTP/1.1 200 OK\nContent-Length: 5\nTransfer-Encoding: chunked",
        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nContent-Length: 15",
        "HTTP/1.1 200 OK\nTransfer-Encoding: gzip",
        "HTTP/1.1 200 OK\nTransfer-Encoding: gzip, chunked",
        "HTTP/1.1 200 OK\nContent-Length: 5\nX: a\rY: b",
        "HTTP/1.1 000 OK\nContent-Length: 5",
        "HTTP/1.1 101 Other\nUpgrade: other",
        "HTTP/1.1 206 Partial\nContent-Range: bytes 0-4/5\nContent-Length: 5",
        "SSH-2.0-scripted_origin",
        &flood,
        &long,
        &many,
    ] {
        let sent = head.to_owned();
        let origin = Origin::new(move |_, sending| {
            sending.head(&sent);
            // Whichever way it is read, it is there.
            sending.body(b"5\r\nhello\r\n0\r\n\r\n");
            sending.closes = true;
        });
        let node = Node::new(&origin.url(), &[]);
        let reply = node.get("/a");
        let start = &head[..head.len().min(99)];
        assert_eq!(reply.status, 502, "{start}: {}", reply.head);
        assert_eq!(node.metric("objects"), 0, "{start}");
        let here = folder();
        let (url, got) = (format!("{}a", origin.url()), here.path().join("got"));
        let words = ["get", &url, "--retries", "0", "-o"].map(OsStr::new);
        run(words.into_iter().chain([got.as_os_str()])).failed(1, &["invalid response"]);
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0, "{start}");
    }
}

#[test]
fn malformed_chunks_do_not_end_a_body() {
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(20_000));
    for body in [
        &long,
        "5\nhello\n0\n\n",
        "5\r\nhello0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "5 x\r\nhello\r\n0\r\n\r\n",
        "FFFFFFFFFFFFFFFFF\r\nhello",
        "5\r\nhello\r\n0\r\n",
    ] {
        let sent = body.to_owned();
        let origin = Origin::new(move |_, sending| {
            sending.head("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nCache-Control: max-age=9");
            sending.body(sent.as_bytes());
            sending.closes = true;
        });
        let node = Node::new(&origin.url(), &[]);
        let reply = node.get("/a");
        let start = &body[..body.len().min(99)];
        assert!(reply.status == 502 || reply.end == End::Reset, "{start}: {}", reply.head);
        until("a body that is dropped", || node.metric("objects") == 0);
    }
    // An extension means nothing to us.
    let origin = Origin::new(|_, sending| {
        sending.head("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nCache-Control: max-age=9");
        sending.body(b"5;a=b; c=\"d\"\r\nhello\r\n0\r\nX: y\r\n\r\n");
    });
    Node::new(&origin.url(), &[]).get("/a").assert_is(200, b"hello");
}

#[test]
fn a_request_with_the_own_cdn_loop_id_gets_508() {
    let object = Object::new(b"hello".to_vec(), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    let before = "underpass-0123456789abcdef";
    node.ask("GET", "/a", &[&format!("CDN-Loop: {before}; x=1")]).assert_is(200, b"hello");
    let passed = origin.requests()[0].field("cdn-loop").unwrap().to_owned();
    assert!(passed.starts_with(&format!("{before}, underpass-")), "{passed}");
    assert_eq!(node.ask("GET", "/b", &[&format!("CDN-Loop: {passed}")]).status, 508);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn no_client_makes_the_next_cache_refuse_a_shared_fetch() {
    let object = Object::new(noise(3 * MIB), "a");
    let origin = Origin::of(&object);
    let parent = Node::new(&origin.url(), &[]);
    let node = Node::new(&parent.url(), &[]);
    for (path, passed, names) in [
        // As long as it may be, and names of others.
        ("/a", "x".repeat(1010), 2),
        ("/b", "other; x=1, underpass-1, underpass-0123456789abcdeg".to_owned(), 2),
        ("/c", vec!["underpass-0123456789abcdef"; 36].join(", "), 18),
    ] {
        let line = format!("CDN-Loop: {passed}");
        node.ask("GET", path, &[&line, "Range: bytes=0-9"]).assert_is(206, &object.bytes[..10]);
        // What begins a fill for all is no other request.
        node.ask("GET", path, &[&line]).assert_is(200, &object.bytes);
        for request in origin.requests().iter().filter(|request| request.path == path) {
            let list = request.field("cdn-loop").unwrap();
            assert_eq!(list.matches("underpass-").count(), names, "{list}");
            assert_eq!(list.split(", ").count(), names, "{list}");
        }
    }
    let long = format!("CDN-Loop: {}", "x".repeat(1025));
    assert_eq!(node.ask("GET", "/d", &[&long]).status, 508);
}

#[test]
fn a_silent_origin_is_given_up() {
    let origin = Origin::new(|_, sending| {
        // Longer than the node waits.
        std::thread::sleep(std::time::Duration::from_secs(20));
        sending.closes = true;
    });
    let node = Node::new(&origin.url(), &["--timeout", "1"]);
    let reply = node.get("/a");
    assert_eq!(reply.status, 504);
    assert!(reply.cache().contains("detail=origin-timeout"), "{}", reply.cache());
}

#[test]
fn an_origin_whose_head_has_no_end_is_given_up() {
    let origin = Origin::new(|_, sending| {
        sending.raw(b"HTTP/1.1 200 OK\r\nX-Slow: ");
        for _ in 0..200 {
            sending.raw(b"a");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        sending.closes = true;
    });
    let node = Node::new(&origin.url(), &["--timeout", "1"]);
    let reply = node.get("/a");
    assert_eq!(reply.status, 504);
    assert!(reply.cache().contains("detail=origin-timeout"), "{}", reply.cache());
}

#[test]
fn an_error_page_that_comes_too_slowly_is_replaced() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |_, sending| {
        sending.head("HTTP/1.1 404 Not Found\nContent-Length: 100");
        sending.raw(b"a");
        held.wait();
        sending.closes = true;
    });
    let node = Node::new(&origin.url(), &[]);
    assert_eq!(node.get("/a").status, 404);
    gate.open();
}

#[test]
fn an_origin_that_cuts_the_connection_is_not_called_late() {
    let origin = Origin::new(|request, sending| {
        sending.closes = true;
        if request.path == "/body" {
            sending
                .head("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nCache-Control: max-age=1000");
            sending.body(b"5\r\nhello\r\n");
        }
    });
    let node = Node::new(&origin.url(), &[]);
    let reply = node.get("/head");
    assert_eq!(reply.status, 504);
    assert!(reply.cache().contains("detail=origin-cut-off"), "{}", reply.cache());
    let text = String::from_utf8(reply.body).unwrap();
    assert!(text.contains("was lost"), "{text}");
    assert_eq!(node.get("/body").body, b"hello");
    let said = node.server.end().stderr;
    let line = said.lines().find(|line| line.starts_with("filled /body")).unwrap();
    assert!(line.contains("was lost"), "{line}");
}

#[test]
fn the_origin_sees_the_path_as_the_client_has_written_it() {
    let origin = Origin::new(|request, sending| {
        let head = "HTTP/1.1 200 OK\nCache-Control: max-age=1000\nETag: \"a\"";
        sending.answer(head, request.path.as_bytes());
    });
    let node = Node::new(&origin.url(), &[]);
    for (path, seen) in [
        ("/a+b;c=1,(d)!'$&*@:", "/a+b;c=1,(d)!'$&*@:"),
        ("/a%2bb", "/a%2Bb"),
        ("/a+b", "/a+b"),
        ("/%61%20b%7e", "/a%20b~"),
    ] {
        node.get(path).assert_is(200, seen.as_bytes());
        let again = node.get(path);
        assert!(again.cache().starts_with("underpass; hit"), "{}", again.cache());
    }
    // Both are below the prefix, however it is written.
    let expire = |prefix: &str| {
        let target = format!("/.underpass/expire?prefix={prefix}");
        assert_eq!(node.ask("POST", &target, &["Content-Length: 0"]).status, 200);
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    expire("/a%252Bb");
    for path in ["/a+b", "/a%2Bb"] {
        let reply = node.get(path);
        assert!(!reply.cache().starts_with("underpass; hit"), "{path}: {}", reply.cache());
    }
    assert!(node.get("/%61%20b%7e").cache().starts_with("underpass; hit"));
}
