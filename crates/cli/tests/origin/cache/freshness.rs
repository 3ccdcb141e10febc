//! Freshness: when the origin gets another request, and stale responses when it fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::cache::restarts::files;
use crate::node::{End, Node, Reply, until_stored};
use crate::rig::{noise, until};
use crate::scripted_origin::{Gate, Object, Origin};

fn object(lines: &str) -> Object {
    Object::new(b"hello".to_vec(), "a").with(lines)
}

#[test]
fn a_stale_object_is_validated_and_sent_once() {
    let object = object("Cache-Control: no-cache\nX-Other: 1\nContent-Language: en");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    let first = node.get("/a");
    first.assert_is(200, b"hello");
    assert_eq!(first.field("content-language"), Some("en"));
    assert_eq!(first.field("x-other"), Some("1"));
    until_stored(&node, 5);
    let second = node.get("/a");
    second.assert_is(200, b"hello");
    assert!(second.cache().contains("fwd=stale; fwd-status=304"), "{}", second.cache());
    let requests = origin.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].field("if-none-match"), Some("\"a\""));
    assert_eq!(origin.sent(), 5);
}

#[test]
fn a_response_with_the_same_version_changes_nothing() {
    for lines in ["Cache-Control: no-cache", "Cache-Control: no-cache\nContent-Encoding: gzip"] {
        let object = object(lines);
        let origin = Origin::new(move |request, sending| {
            let mut request = request.clone();
            request.fields.retain(|(name, _)| !name.eq_ignore_ascii_case("if-none-match"));
            object.send(&request, sending);
        });
        let node = Node::new(&origin.url(), &[]);
        for count in 1..4 {
            let reply = node.get("/a");
            reply.assert_is(200, b"hello");
            assert_eq!(reply.cache().contains("fwd=stale; fwd-status=200"), count > 1, "{reply:?}");
            until_stored(&node, 5);
            assert_eq!(origin.requests().len(), count);
        }
        assert_eq!(node.metric("changed_total"), 0, "{lines}");
    }
}

#[test]
fn an_answer_with_another_weak_tag_is_another_version() {
    // Both have the same date and length, as pages of a template do.
    for (framing, tags) in [("Content-Length: 5", true), ("Transfer-Encoding: chunked", false)] {
        let count = AtomicUsize::new(0);
        let origin = Origin::new(move |_, sending| {
            let (tag, bytes) = match count.fetch_add(1, Ordering::Relaxed) {
                0 => (1, "hello"),
                _ => (2, "world"),
            };
            let tag = if tags { format!("ETag: W/\"{tag}\"\n") } else { String::new() };
            let lines = "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\n\
                         Date: Tue, 02 Jan 2024 00:00:00 GMT\nCache-Control: no-cache";
            sending.head(&format!("HTTP/1.1 200 OK\n{tag}{lines}\n{framing}"));
            let is_chunked = framing.ends_with("chunked");
            sending.body(if is_chunked { b"5\r\n" } else { b"" });
            sending.body(bytes.as_bytes());
            sending.body(if is_chunked { b"\r\n0\r\n\r\n" } else { b"" });
        });
        let node = Node::new(&origin.url(), &[]);
        node.get("/a").assert_is(200, b"hello");
        node.get("/a").assert_is(200, b"world");
        assert_eq!(node.metric("changed_total"), 1, "{framing}");
    }
}

#[test]
fn an_answer_that_has_the_same_version_again_has_the_fields_from_then_on() {
    let count = AtomicUsize::new(0);
    let origin = Origin::new(move |_, sending| {
        let lines = match count.fetch_add(1, Ordering::Relaxed) {
            0 => "Cache-Control: no-cache\nContent-Disposition: attachment",
            _ => "X-Other: 1\nExpires: Thu, 01 Jan 1970 00:00:00 GMT",
        };
        sending.answer(&format!("HTTP/1.1 200 OK\nETag: \"a\"\n{lines}"), b"hello");
    });
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").assert_is(200, b"hello");
    until_stored(&node, 5);
    let again = node.get("/a");
    again.assert_is(200, b"hello");
    assert_eq!(node.metric("changed_total"), 0);
    assert_eq!(again.field("x-other"), Some("1"));
    for withdrawn in ["content-disposition", "cache-control"] {
        assert_eq!(again.field(withdrawn), None, "{}", again.head);
    }
}

#[test]
fn the_same_version_in_chunks_is_not_another_one() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |_, sending| {
        let lines = "ETag: \"a\"\nCache-Control: max-age=0\nTransfer-Encoding: chunked";
        sending.head(&format!("HTTP/1.1 200 OK\n{lines}"));
        sending.body(b"5\r\nhello\r\n");
        held.wait();
        sending.body(b"6\r\n world\r\n0\r\n\r\n");
    });
    let node = Node::new(&origin.url(), &[]);
    let mut clients: Vec<_> = (0..3)
        .map(|_| {
            let mut client = node.client("GET", "/a", &[]);
            client.read_body(5);
            client
        })
        .collect();
    gate.open();
    clients.drain(..).for_each(|client| client.finish().assert_is(200, b"hello world"));
    node.get("/a").assert_is(200, b"hello world");
    assert_eq!((origin.requests().len(), node.metric("changed_total")), (4, 0));
}

#[test]
fn a_304_for_another_version_is_ignored() {
    let versions = AtomicUsize::new(0);
    let origin = Origin::new(move |request, sending| {
        let number = versions.fetch_add(1, Ordering::Relaxed);
        let head = format!("Cache-Control: max-age=0\nETag: \"{number}\"");
        match request.field("if-none-match") {
            Some(_) => sending.head(&format!("HTTP/1.1 304 Not Modified\n{head}")),
            None => sending.answer(&format!("HTTP/1.1 200 OK\n{head}"), b"hello"),
        }
    });
    let node = Node::new(&origin.url(), &[]);
    for expected in ["\"0\"", "\"2\"", "\"4\""] {
        assert_eq!(node.get("/a").field("etag"), Some(expected));
        until_stored(&node, 5);
    }
}

#[test]
fn an_answer_without_an_age_is_new() {
    let origin = Origin::new(|request, sending| match request.field("if-none-match") {
        Some(_) => {
            sending.head("HTTP/1.1 304 Not Modified\nETag: \"a\"\nCache-Control: max-age=1000")
        }
        None => object("Cache-Control: max-age=1000\nAge: 5000").send(request, sending),
    });
    let node = Node::new(&origin.url(), &[]);
    let age = |reply: &Reply| reply.field("age").unwrap().parse::<u64>().unwrap();
    assert!(age(&node.get("/a")) >= 5000);
    until_stored(&node, 5);
    let second = node.get("/a");
    second.assert_is(200, b"hello");
    assert!(age(&second) < 1000, "{}", second.head);
    assert!(node.get("/a").cache().contains("hit"));
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn objects_without_a_lifetime_are_fresh_for_the_configured_time() {
    for (args, expected) in [(&["--fresh", "1h"][..], 1), (&[][..], 2)] {
        let object = object("Content-Type: text/plain");
        let origin = Origin::of(&object);
        let node = Node::new(&origin.url(), args);
        node.get("/a").assert_is(200, b"hello");
        until_stored(&node, 5);
        node.get("/a").assert_is(200, b"hello");
        assert_eq!(origin.requests().len(), expected);
    }
}

#[test]
fn a_stale_object_is_served_while_it_is_validated() {
    let object = object("Cache-Control: max-age=0, stale-while-revalidate=1000");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").assert_is(200, b"hello");
    until_stored(&node, 5);
    let second = node.get("/a");
    second.assert_is(200, b"hello");
    assert!(second.cache().ends_with("detail=revalidating"), "{}", second.cache());
    until("a validation", || origin.requests().len() == 2);
    // A file that is not open yet is no exception, even if the origin is gone.
    origin.end();
    let third = node.again(&origin.url(), &[]).get("/a");
    third.assert_is(200, b"hello");
    assert!(third.cache().ends_with("detail=revalidating"), "{}", third.cache());
}

#[test]
fn missing_objects_are_not_requested_again_at_once() {
    let origin = Origin::new(|_, sending| {
        sending.answer("HTTP/1.1 404 Not Found\nContent-Type: text/xml", b"<secret/>");
    });
    let node = Node::new(&origin.url_with_password(), &[]);
    let first = node.get("/a");
    assert_eq!(first.status, 404);
    assert!(!String::from_utf8_lossy(&first.body).contains("secret"));
    let second = node.get("/a");
    assert_eq!(second.status, 404);
    assert_eq!(second.cache(), "underpass; hit; detail=negative");
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn an_object_that_is_gone_is_removed() {
    let count = AtomicUsize::new(0);
    let object = object("Cache-Control: max-age=0");
    let origin = Origin::new(move |request, sending| match count.fetch_add(1, Ordering::Relaxed) {
        0 => object.send(request, sending),
        _ => sending.answer("HTTP/1.1 410 Gone", b""),
    });
    let node = Node::new(&origin.url(), &["--stale-if-error", "1d"]);
    node.get("/a").assert_is(200, b"hello");
    until_stored(&node, 5);
    assert_eq!(node.get("/a").status, 410);
    assert_eq!(node.metric("used_bytes"), 0);
}

#[test]
fn responses_for_one_client_are_relayed_and_not_stored() {
    for line in [
        "Cache-Control: no-store",
        "Cache-Control: private",
        "Cache-Control: max-age=1000\nSet-Cookie: a=b",
        "Cache-Control: max-age=1000\nVary: Cookie",
    ] {
        let object = object(line);
        let origin = Origin::of(&object);
        let node = Node::new(&origin.url(), &[]);
        for _ in 0..2 {
            let reply = node.get("/a");
            reply.assert_is(200, b"hello");
            assert!(!reply.cache().contains("stored"), "{}", reply.cache());
            assert_eq!(reply.field("set-cookie"), None);
        }
        assert_eq!(origin.requests().len(), 2, "{line}");
        assert_eq!(node.metric("objects"), 0);
    }
}

#[test]
fn objects_outlive_an_unreachable_origin() {
    let object = object("Cache-Control: max-age=0");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &["--stale-if-error", "1d"]);
    node.get("/a").assert_is(200, b"hello");
    until_stored(&node, 5);
    origin.end();
    for _ in 0..2 {
        let stale = node.get("/a");
        stale.assert_is(200, b"hello");
        assert!(stale.cache().contains("detail=origin-"), "{}", stale.cache());
    }
    let other = node.get("/b");
    assert_eq!(other.status, 504);
    assert!(other.field("retry-after").is_some());
    assert!(other.cache().contains("detail=origin-unreachable"), "{}", other.cache());
}

#[test]
fn a_version_that_breaks_off_does_not_replace_a_whole_one_while_the_origin_fails() {
    for framing in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
        let count = Arc::new(AtomicUsize::new(0));
        let asked_before = Arc::clone(&count);
        let origin = Origin::new(move |request, sending| {
            let number = asked_before.fetch_add(1, Ordering::Relaxed);
            match number {
                0 => object("Cache-Control: max-age=0").send(request, sending),
                1 => {
                    sending.head(&format!("HTTP/1.1 200 OK\nETag: \"new\"\n{framing}"));
                    sending.body(b"3\r\nnew\r\n");
                    sending.closes = true;
                }
                1000.. => sending.answer("HTTP/1.1 200 OK\nETag: \"new\"", b"newer"),
                _ => sending.closes = true,
            }
        });
        let node = Node::new(&origin.url(), &["--stale-if-error", "1d", "--timeout", "2"]);
        node.get("/a").assert_is(200, b"hello");
        until("a fill that has ended", || node.metric("reserved_bytes") == 0);
        // If it has nothing yet, it gets the old one.
        let first = node.get("/a");
        assert!(first.end == End::Reset || first.body == b"hello", "{}", first.head);
        for _ in 0..2 {
            let stale = node.get("/a");
            stale.assert_is(200, b"hello");
            assert!(stale.cache().contains("detail=origin-cut-off"), "{}", stale.cache());
        }
        assert_eq!(files(node.cache.path(), ".json").len(), 0, "{framing}");
        count.store(1000, Ordering::Relaxed);
        until("the origin is asked again", || node.get("/a").body == b"newer");
        until_stored(&node, 5);
        // Nothing of the first one is left.
        assert_eq!(node.ask("PURGE", "/a", &[]).status, 200);
        count.store(2, Ordering::Relaxed);
        assert_eq!(node.get("/a").status, 504);
    }
}

#[test]
fn must_revalidate_overrides_stale_if_error() {
    let object = object("Cache-Control: max-age=0, must-revalidate");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &["--stale-if-error", "1d"]);
    node.get("/a").assert_is(200, b"hello");
    until_stored(&node, 5);
    origin.end();
    assert_eq!(node.get("/a").status, 504);
}

#[test]
fn failures_of_the_origin_are_reported_and_not_retried_for_a_moment() {
    for (status, passed_on) in
        [(500, 500), (503, 503), (429, 429), (403, 502), (401, 502), (302, 502)]
    {
        let origin = Origin::new(move |_, sending| {
            let head = format!("HTTP/1.1 {status} No\nRetry-After: 7\nLocation: http://localhost/");
            sending.answer(&head, b"<Error><SecretKey/></Error>");
        });
        let node = Node::new(&origin.url_with_password(), &[]);
        let reply = node.get("/a");
        assert_eq!(reply.status, passed_on, "{status}");
        assert!(!String::from_utf8_lossy(&reply.body).contains("Secret"), "{status}");
        if matches!(status, 429 | 500 | 503) {
            assert_eq!(reply.field("retry-after"), Some("7"), "{status}");
        }
        assert_eq!(node.metric("objects"), 0);
    }
}

#[test]
fn an_origin_that_asks_for_a_pause_gets_one_while_a_stale_version_is_used() {
    for (line, asked_again) in [("Retry-After: 600", 1), ("X: y", 3)] {
        let object = object("Cache-Control: max-age=0");
        let origin = Origin::new(move |request, sending| match request.field("if-none-match") {
            Some(_) => sending.answer(&format!("HTTP/1.1 429 Too Many Requests\n{line}"), b"no"),
            None => object.send(request, sending),
        });
        let node = Node::new(&origin.url(), &["--stale-if-error", "1d"]);
        node.get("/a").assert_is(200, b"hello");
        until_stored(&node, 5);
        for _ in 0..3 {
            let stale = node.get("/a");
            stale.assert_is(200, b"hello");
            assert!(stale.cache().contains("detail=origin-failed"), "{}", stale.cache());
        }
        assert_eq!(origin.requests().len(), 1 + asked_again, "{line}");
        // Other files are asked for all the same, and what must be validated is.
        node.get("/b").assert_is(200, b"hello");
        assert_eq!(node.ask("POST", "/.underpass/expire?prefix=/a", &[]).status, 200);
        assert_eq!(node.get("/a").status, 429);
    }
}

#[test]
fn a_pause_of_an_origin_ends_with_its_next_answer() {
    for ended_by in ["expire", "purge"] {
        let number = AtomicUsize::new(0);
        let origin = Origin::new(move |_, sending| match number.fetch_add(1, Ordering::Relaxed) {
            1 => sending.answer("HTTP/1.1 503 No\nRetry-After: 600", b""),
            tag => {
                let lines = format!("ETag: \"{tag}\"\nCache-Control: max-age=0");
                sending.answer(&format!("HTTP/1.1 200 OK\n{lines}"), tag.to_string().as_bytes());
            }
        });
        let node = Node::new(&origin.url(), &["--stale-if-error", "1d"]);
        for _ in 0..3 {
            node.get("/a").assert_is(200, b"0");
            until_stored(&node, 1);
        }
        match ended_by {
            "purge" => assert_eq!(node.ask("PURGE", "/a", &[]).status, 200),
            _ => assert_eq!(node.ask("POST", "/.underpass/expire?prefix=/a", &[]).status, 200),
        }
        for body in [b"2", b"3"] {
            node.get("/a").assert_is(200, body);
            until("a fill that has ended", || node.metric("reserved_bytes") == 0);
        }
    }
}

#[test]
fn too_many_requests_are_passed_on_with_and_without_a_time() {
    for line in ["Retry-After: 7", "Retry-After: Sun, 01 Jan 2040 00:00:00 GMT", "X: y"] {
        let origin = Origin::new(move |_, sending| {
            sending.answer(&format!("HTTP/1.1 429 Too Many Requests\n{line}"), b"slower");
        });
        let node = Node::new(&origin.url(), &[]);
        let reply = node.get("/a");
        reply.assert_is(429, b"slower");
        let (name, value) = line.split_once(": ").unwrap();
        assert_eq!(reply.field(name), Some(value));
        assert_eq!(reply.field("retry-after").is_some(), name != "X");
        assert_eq!(node.metric("objects"), 0);
        // It is about one request, and the origin is asked for the next one.
        assert_eq!(node.get("/a").status, 429);
        assert_eq!(origin.requests().len(), 2);
    }
}

#[test]
fn a_body_goes_on_after_the_pause_that_the_origin_asks_for() {
    let object = Object::new(noise(200_000), "a");
    let bytes = object.bytes.clone();
    let count = AtomicUsize::new(0);
    let refused = Mutex::new(None);
    let origin = Origin::new(move |request, sending| match count.fetch_add(1, Ordering::Relaxed) {
        0 => {
            let (head, body) = object.answer(request);
            sending.head(&head);
            sending.body(&body[..100_000]);
            sending.closes = true;
        }
        1 => {
            *refused.lock().unwrap() = Some(Instant::now());
            sending.answer("HTTP/1.1 429 Too Many Requests\nRetry-After: 3", b"");
        }
        _ => {
            // An earlier request ends the body without the rest.
            let at = refused.lock().unwrap().unwrap();
            if at.elapsed() >= Duration::from_secs(3) {
                object.send(request, sending)
            } else {
                sending.answer("HTTP/1.1 404 No", b"")
            }
        }
    });
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").assert_is(200, &bytes);
    assert_eq!(origin.requests().len(), 3);
}

#[test]
fn the_next_origin_answers_for_one_that_fails() {
    let object = object("Cache-Control: max-age=1000");
    let gone = Origin::new(|_, _| {});
    gone.end();
    let broken = Origin::new(|_, sending| sending.answer("HTTP/1.1 503 No", b""));
    let good = Origin::of(&object);
    let (second, third) = (broken.url(), good.url());
    let node = Node::new(&gone.url(), &["--origin", &second, "--origin", &third]);
    for path in ["/a", "/b", "/c"] {
        node.get(path).assert_is(200, b"hello");
    }
    // A status may be about one object, so it is asked for the others too.
    assert_eq!(broken.requests().len(), 3);
    assert_eq!(good.requests().len(), 3);
}

#[test]
fn an_object_that_fails_does_not_stop_the_others() {
    let object = object("Cache-Control: max-age=1000");
    let origin = Origin::new(move |request, sending| match request.path.as_str() {
        "/broken" => sending.answer("HTTP/1.1 500 No", b""),
        "/cut" => sending.closes = true,
        _ => object.send(request, sending),
    });
    let node = Node::new(&origin.url(), &[]);
    for number in 0..5 {
        assert_eq!(node.get("/broken").status, 500);
        assert_eq!(node.get("/cut").status, 504);
        node.get(&format!("/{number}")).assert_is(200, b"hello");
    }
}

#[test]
fn fields_of_the_origin_are_passed_on_but_for_those_of_its_connection_and_host() {
    let lines = "Cache-Control: max-age=1000\nContent-Type: text/plain\nX-Any: 1\nConnection: X-Hop\n\
                 X-Hop: 2\nServer: other\nX-Content-Type-Options: other\nX-Own: other\n\
                 Strict-Transport-Security: max-age=1\nx-amz-id-2: 3\nKeep-Alive: 4\n\
                 NEL: {}\nReport-To: {}\nAccept-CH: Width\nExpect-CT: max-age=1";
    let object = object(lines);
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &["--header", "X-Own: mine"]);
    let reply = node.get("/a");
    reply.assert_is(200, b"hello");
    assert_eq!(reply.field("x-any"), Some("1"));
    let of_connection = ["x-hop", "keep-alive"];
    let of_host =
        ["strict-transport-security", "x-amz-id-2", "nel", "report-to", "accept-ch", "expect-ct"];
    for name in of_connection.into_iter().chain(of_host) {
        assert_eq!(reply.field(name), None, "{name}");
    }
    for (name, value) in
        [("server", "underpass"), ("x-content-type-options", "nosniff"), ("x-own", "mine")]
    {
        let lines = reply.head.to_ascii_lowercase();
        assert_eq!(lines.matches(&format!("\n{name}:")).count(), 1, "{}", reply.head);
        assert_eq!(reply.field(name), Some(value));
    }
}

#[test]
fn a_header_for_some_files_replaces_that_of_the_origin_and_is_not_on_errors() {
    let expires = "Expires: Fri, 01 Jan 2100 00:00:00 GMT";
    let object = object(&format!("Cache-Control: max-age=1000\nX-Own: other\n{expires}"));
    let origin = Origin::new(move |request, sending| match request.path.as_str() {
        "/a.js" => object.send(request, sending),
        "/b.js" => sending.answer("HTTP/1.1 302 Found\nLocation: /a.js\nX-Own: other", b""),
        _ => sending.answer("HTTP/1.1 404 Not Found\nX-Own: other", b"gone"),
    });
    let own = ["--header", "*.js Cache-Control: immutable", "--header", "*.js X-Own: mine"];
    let values = |reply: &Reply, name: &str| -> Vec<String> {
        let lines = reply.head.lines().filter_map(|line| line.split_once(": "));
        let named = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.trim().to_owned()).collect()
    };
    for (more, of_error) in [
        (&[][..], "other"),
        (&["--cache-control", "private"], "other"),
        (&["--header", "X-Own: common"], "common"),
    ] {
        let node = Node::new(&origin.url(), &[more, &own].concat());
        for (status, line) in [
            (200, "X-Any: first"),
            (200, "X-Any: second"),
            (206, "Range: bytes=1-2"),
            (304, "If-None-Match: \"a\""),
        ] {
            let reply = node.ask("GET", "/a.js", &[line]);
            assert_eq!(reply.status, status, "{}", reply.head);
            assert_eq!(values(&reply, "cache-control"), ["immutable"], "{}", reply.head);
            assert_eq!(values(&reply, "x-own"), ["mine"], "{}", reply.head);
            assert!(values(&reply, "expires").is_empty(), "{}", reply.head);
        }
        for (path, status) in [("/b.js", 302), ("/c.js", 404)] {
            let reply = node.get(path);
            assert_eq!(reply.status, status, "{}", reply.head);
            assert!(values(&reply, "cache-control").is_empty(), "{}", reply.head);
            assert_eq!(values(&reply, "x-own"), [of_error], "{}", reply.head);
        }
    }
}

#[test]
fn a_media_type_of_the_operator_replaces_that_of_the_origin() {
    let object = object("Content-Type: text/html");
    let origin = Origin::of(&object);
    let types =
        ["--mime", "webm=video/webm", "--mime", "x=a/x", "--header", "/b.x Content-Type: a/b"];
    let node = Node::new(&origin.url(), &types);
    for (path, expected) in [
        ("/a.webm", "video/webm"),
        ("/folder/A.WEBM?query.x", "video/webm"),
        ("/a.x", "a/x"),
        ("/b.x", "a/b"),
        ("/a.html", "text/html"),
        ("/x", "text/html"),
    ] {
        for _ in 0..2 {
            assert_eq!(node.get(path).field("content-type"), Some(expected), "{path}");
        }
    }
}

#[test]
fn a_crowd_is_answered_by_one_validation() {
    let object = object("Cache-Control: max-age=0");
    let count = Arc::new(AtomicUsize::new(0));
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").assert_is(200, b"hello");
    until_stored(&node, 5);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                node.get("/a").assert_is(200, b"hello");
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 20);
    assert_eq!(origin.sent(), 5);
}
