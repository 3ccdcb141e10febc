//! Answers of the origin that are not objects, and the fields of clients by which objects vary.

use std::thread;

use crate::node::Node;
use crate::scripted_origin::{Object, Origin};

/// A node in front of an origin that always sends this.
fn node(head: &'static str, body: &'static [u8]) -> (Origin, Node) {
    let origin = Origin::new(move |_, sending| sending.answer(head, body));
    let node = Node::new(&origin.url(), &[]);
    (origin, node)
}

#[test]
fn error_responses_of_the_origin_are_passed_on() {
    let (origin, node) = node(
        "HTTP/1.1 404 Not Found\nContent-Type: text/html\nX-Any: 1\nSet-Cookie: a=b\nETag: \"x\"",
        b"<p>no such file",
    );
    let first = node.get("/a");
    first.assert_is(404, b"<p>no such file");
    assert_eq!(first.field("content-type"), Some("text/html"));
    assert_eq!(first.field("x-any"), Some("1"));
    assert_eq!(first.field("set-cookie"), None);
    let head = node.ask("HEAD", "/b", &[]);
    head.assert_is(404, b"");
    assert_eq!(head.field("content-length"), Some("15"));
    // A cookie is for one client, so this is not for the next one.
    node.get("/a").assert_is(404, b"<p>no such file");
    assert_eq!(origin.requests().len(), 3);
}

#[test]
fn any_final_status_is_passed_on_and_believed_as_long_as_it_says() {
    for (head, count) in [
        ("HTTP/1.1 201 Created", 2),
        ("HTTP/1.1 403 No", 2),
        ("HTTP/1.1 403 No\nCache-Control: max-age=1000", 1),
        ("HTTP/1.1 404 No", 1),
        ("HTTP/1.1 404 No\nCache-Control: max-age=0", 2),
        ("HTTP/1.1 404 No\nCache-Control: no-store", 2),
        ("HTTP/1.1 418 Tea\nCache-Control: max-age=1000", 1),
        ("HTTP/1.1 599 No\nCache-Control: max-age=1000, must-understand", 2),
        ("HTTP/1.1 301 Moved\nLocation: http://other.test/", 2),
    ] {
        let (origin, node) = node(head, b"words");
        let status = head[9..12].parse().unwrap();
        for _ in 0..2 {
            node.get("/a").assert_is(status, b"words");
        }
        assert_eq!(origin.requests().len(), count, "{head}");
        assert_eq!(node.metric("objects"), 0, "{head}");
    }
}

#[test]
fn a_response_without_content_ends_where_its_head_does() {
    for (status, body, len) in [("204 No Content", "", None), ("205 Reset", "words", Some("0"))] {
        let len_line = if body.is_empty() { "X-None: 1" } else { "Content-Length: 5" };
        let head = format!("HTTP/1.1 {status}\nX-Any: 1\n{len_line}");
        let origin = Origin::new(move |_, sending| {
            sending.head(&head);
            sending.body(body.as_bytes());
        });
        let node = Node::new(&origin.url(), &[]);
        let reply = node.get("/a");
        reply.assert_is(status[..3].parse().unwrap(), b"");
        assert_eq!((reply.field("x-any"), reply.field("content-length")), (Some("1"), len));
        // As a fill it is reported as a failure.
        let filled = node.ask("POST", "/.underpass/fill?path=/a", &[]);
        assert_eq!(filled.status, 404, "{status}: {}", filled.head);
    }
}

#[test]
fn long_bodies_without_an_object_are_not_passed_on() {
    let (_origin, node) = node("HTTP/1.1 404 No\nX-Any: 1", &[b'x'; 17 << 10]);
    let reply = node.get("/a");
    assert_eq!((reply.status, reply.field("x-any")), (404, None));
    assert!(reply.body.len() < 1000);
}

#[test]
fn a_success_without_its_body_is_a_failure() {
    let long = [b'x'; 17 << 10];
    for status in ["203 Changed", "302 Found\nLocation: /b"] {
        let head = format!("HTTP/1.1 {status}");
        let (of_long, of_cut) = (head.clone(), head.clone());
        for origin in [
            Origin::new(move |_, sending| sending.answer(&of_long, &long)),
            Origin::new(move |_, sending| {
                sending.head(&format!("{of_cut}\nContent-Length: 100"));
                sending.body(b"words");
                sending.closes = true;
            }),
        ] {
            let reply = Node::new(&origin.url(), &[]).get("/a");
            assert_eq!(reply.status, 502, "{head}");
            assert!(reply.cache().contains("origin-invalid"), "{}", reply.cache());
        }
    }
    let origin = Origin::new(|_, sending| sending.answer("HTTP/1.1 203 Changed", b"words"));
    assert_eq!(Node::new(&origin.url_with_password(), &[]).get("/a").status, 502);
}

#[test]
fn redirects_below_the_origin_lead_to_the_node() {
    let origin = Origin::new(|request, sending| {
        let host = request.field("host").unwrap();
        let place = match request.path.as_str() {
            "/files/a" => "/files/b".to_owned(),
            "/files/b" => format!("http://{host}/files/c?d"),
            _ => format!("http://{host}/other"),
        };
        sending.answer(&format!("HTTP/1.1 302 Found\nLocation: {place}"), b"");
    });
    let node = Node::new(&format!("{}files/", origin.url()), &["--path-prefix", "/here"]);
    let place = |path: &str| {
        let reply = node.get(path);
        assert_eq!(reply.status, 302);
        reply.field("location").unwrap().to_owned()
    };
    assert_eq!(place("/here/a"), "/here/b");
    assert_eq!(place("/here/b"), "/here/c?d");
    assert_eq!(place("/here/c"), format!("{}other", origin.url()));
}

#[test]
fn objects_vary_by_the_fields_that_are_passed_on() {
    let origin = Origin::new(|request, sending| {
        let value = request.field("x-kind").unwrap_or("none").to_owned();
        let lines = "Cache-Control: max-age=1000\nVary: X-Kind";
        Object::new(value.clone().into_bytes(), &value).with(lines).send(request, sending);
    });
    let node = Node::new(&origin.url(), &["--vary-on", "X-Kind"]);
    for _ in 0..2 {
        node.get("/a").assert_is(200, b"none");
        node.ask("GET", "/a", &["X-Kind: one", "Cookie: x"]).assert_is(200, b"one");
        node.ask("GET", "/a", &["X-Kind: one", "X-Kind:two"]).assert_is(200, b"one, two");
        node.ask("GET", "/a", &["X-Kind: one,  two"]).assert_is(200, b"one, two");
    }
    assert_eq!(origin.requests().len(), 3);
    assert!(origin.requests().iter().all(|request| request.field("cookie").is_none()));
    assert_eq!(node.ask("GET", "/a", &[&format!("X-Kind: {}", "x".repeat(2000))]).status, 431);
    assert_eq!(node.ask("PURGE", "/a", &["X-Kind: one"]).status, 200);
    node.get("/a").assert_is(200, b"none");
    node.ask("GET", "/a", &["X-Kind: one"]).assert_is(200, b"one");
    assert_eq!(origin.requests().len(), 4);
}

#[test]
fn a_304_brings_fields_that_are_not_about_the_bytes() {
    let origin = Origin::new(|request, sending| {
        match request.field("if-none-match") {
        Some(_) => sending.head(
            "HTTP/1.1 304 Not Modified\nETag: \"a\"\nContent-Type: text/new\nContent-MD5: new\nX-Any: 2\n\
             Date: Sun, 06 Nov 1994 08:49:37 GMT",
        ),
        None => sending.answer(
            "HTTP/1.1 200 OK\nETag: \"a\"\nContent-Type: text/old\nContent-MD5: old\nX-Any: 1",
            b"hello",
        ),
    }
    });
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").assert_is(200, b"hello");
    let second = node.get("/a");
    second.assert_is(200, b"hello");
    for (name, value) in [
        ("content-type", "text/new"),
        ("content-md5", "old"),
        ("x-any", "2"),
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ] {
        assert_eq!(second.field(name), Some(value), "{name}");
    }
}

#[test]
fn a_length_that_becomes_known_meanwhile_changes_no_framing() {
    let origin = Origin::new(|_, sending| {
        let framing = "Cache-Control: max-age=1000\r\nTransfer-Encoding: chunked";
        let all = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
        sending.raw(all.as_bytes());
    });
    let node = &Node::new(&origin.url(), &[]);
    thread::scope(|scope| {
        for client in 0..4 {
            scope.spawn(move || {
                (0..100).for_each(|number| {
                    node.get(&format!("/{client}/{number}")).assert_is(200, b"hello");
                });
            });
        }
    });
}

#[test]
fn a_redirect_in_latin_1_keeps_its_place() {
    let origin = Origin::new(|_, sending| {
        sending.raw(b"HTTP/1.1 302 Found\r\nLocation: /caf\xe9\r\nContent-Length: 0\r\n\r\n");
    });
    let reply = Node::new(&origin.url(), &[]).get("/a");
    assert_eq!((reply.status, reply.field("location")), (302, Some("/caf%E9")));
}
