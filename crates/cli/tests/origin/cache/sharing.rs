//! Responses that become private to one client only after they were stored for all.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::node::{Node, until_stored};
use crate::rig::{noise, until};
use crate::scripted_origin::{Gate, Object, Origin};

const MIB: usize = 1 << 20;

/// Fields that forbid a shared cache to store a response.
const FORBIDDEN: [&str; 5] = [
    "Cache-Control: no-store",
    "Cache-Control: private",
    "Vary: *",
    "Vary: Cookie",
    "Set-Cookie: a=b",
];

#[test]
fn a_304_that_makes_an_object_private_ends_its_sharing() {
    for forbidden in FORBIDDEN {
        let versions = AtomicUsize::new(0);
        let origin = Origin::new(move |request, sending| {
            let number = versions.fetch_add(1, Ordering::Relaxed);
            let lines = match number {
                0 => "Cache-Control: max-age=0".to_owned(),
                _ => format!("X-Any: 1\n{forbidden}\nCDN-Cache-Control: {}", cdn(forbidden)),
            };
            match request.field("if-none-match") {
                Some(_) => {
                    sending.head(&format!("HTTP/1.1 304 Not Modified\nETag: \"a\"\n{lines}"))
                }
                None => {
                    let head = format!("HTTP/1.1 200 OK\nETag: \"a\"\n{lines}");
                    sending.answer(&head, format!("for {number}").as_bytes());
                }
            }
        });
        let node = Node::new(&origin.url(), &[]);
        node.get("/a").assert_is(200, b"for 0");
        until_stored(&node, 5);
        node.get("/a").assert_is(200, b"for 2");
        node.get("/a").assert_is(200, b"for 3");
        assert_eq!(node.metric("objects"), 0, "{forbidden}");
    }
}

/// The same in the field that replaces `Cache-Control`, which could otherwise not be combined with one
/// about freshness.
fn cdn(forbidden: &str) -> &str {
    forbidden.strip_prefix("Cache-Control: ").unwrap_or("max-age=1000")
}

#[test]
fn a_hole_is_not_filled_with_what_is_private_by_now() {
    for forbidden in FORBIDDEN {
        let bytes = noise(3 * MIB);
        let object = Object::new(bytes.clone(), "a");
        let asked_before = AtomicUsize::new(0);
        let origin = Origin::new(move |request, sending| {
            let lines = match asked_before.fetch_add(1, Ordering::Relaxed) {
                0 => "Cache-Control: max-age=1000",
                _ => forbidden,
            };
            object.clone().with(lines).send(request, sending);
        });
        let node = Node::new(&origin.url(), &[]);
        node.range("/a", "0-9").assert_is(206, &bytes[..10]);
        until_stored(&node, MIB as u64);
        for count in [3, 4] {
            let reply = node.range("/a", &format!("{}-{}", 2 * MIB, 2 * MIB + 9));
            reply.assert_is(206, &bytes[2 * MIB..2 * MIB + 10]);
            assert!(!reply.cache().contains("hit"), "{forbidden}: {}", reply.cache());
            assert_eq!(origin.requests().len(), count, "{forbidden}");
        }
        assert_eq!(node.metric("objects"), 0, "{forbidden}");
    }
}

#[test]
fn malformed_fields_that_forbid_sharing_count() {
    for forbidden in [
        &b"Set-Cookie: a=\xe9"[..],
        b"Cache-Control: private, x=\"\xe9\"",
        b"Cache-Control: x=\"a\\\"b\", private",
        b"Cache-Control: x=\"a, private",
        b"Vary: Cookie, X-\xe9",
        b"Connection: set-cookie\r\nSet-Cookie: a=b",
        b"Connection: cache-control\r\nCache-Control: no-store",
    ] {
        let versions = AtomicUsize::new(0);
        let origin = Origin::new(move |_, sending| {
            let number = versions.fetch_add(1, Ordering::Relaxed);
            sending.raw(b"HTTP/1.1 200 OK\r\nExpires: Fri, 01 Jan 2100 00:00:00 GMT\r\n");
            sending.raw(&[forbidden, b"\r\nContent-Length: 5\r\n\r\n"].concat());
            sending.body(format!("for {number}").as_bytes());
        });
        let node = Node::new(&origin.url(), &[]);
        for expected in [b"for 0", b"for 1"] {
            let reply = node.get("/a");
            reply.assert_is(200, expected);
            let text = String::from_utf8_lossy(forbidden);
            assert!(!reply.cache().contains("stored"), "{text}: {}", reply.cache());
        }
    }
}

#[test]
fn an_answer_for_one_client_is_not_given_to_those_that_wait() {
    for head in [
        "HTTP/1.1 403 No\nCache-Control: private",
        "HTTP/1.1 404 No\nSet-Cookie: a=b",
        "HTTP/1.1 302 Found\nLocation: http://other.test/?token=x\nCache-Control: no-store",
        "HTTP/1.1 203 Changed\nVary: *",
    ] {
        let (gate, versions) = (Gate::default(), AtomicUsize::new(0));
        let held = gate.clone();
        let origin = Origin::new(move |_, sending| {
            let number = versions.fetch_add(1, Ordering::Relaxed);
            if number == 0 {
                held.wait();
            }
            sending.answer(head, format!("for {number}").as_bytes());
        });
        let node = Node::new(&origin.url(), &[]);
        let clients: Vec<_> = (0..8).map(|_| node.client("GET", "/a", &[])).collect();
        until("clients that wait", || node.metric("collapsed_total") == 7);
        gate.open();
        let status = head[9..12].parse().unwrap();
        let mut bodies: Vec<_> = clients.into_iter().map(|client| client.finish()).collect();
        bodies.sort_by(|one, other| one.body.cmp(&other.body));
        for (number, reply) in bodies.iter().enumerate() {
            reply.assert_is(status, format!("for {number}").as_bytes());
        }
    }
}

#[test]
fn a_page_that_changes_with_each_response_is_always_served() {
    let versions = AtomicUsize::new(0);
    let origin = Origin::new(move |_, sending| {
        let number = versions.fetch_add(1, Ordering::Relaxed);
        sending.answer("HTTP/1.1 200 OK", format!("{number:08}").as_bytes());
    });
    let node = &Node::new(&origin.url(), &[]);
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(move || {
                for _ in 0..40 {
                    let reply = node.get("/a");
                    assert_eq!((reply.status, reply.body.len()), (200, 8), "{}", reply.head);
                }
            });
        }
    });
}

/// The tier removes the cookie, so it has to tell the edge otherwise.
#[test]
fn what_has_a_cookie_is_not_kept_by_a_second_tier() {
    for head in [
        "HTTP/1.1 200 OK\nETag: \"a\"\nCache-Control: max-age=1000",
        "HTTP/1.1 200 OK\nETag: \"a\"\nCDN-Cache-Control: max-age=1000",
        "HTTP/1.1 404 Not Found\nCache-Control: max-age=1000",
    ] {
        let count = AtomicUsize::new(0);
        let origin = Origin::new(move |_, sending| {
            let text = format!("for {}", count.fetch_add(1, Ordering::Relaxed));
            sending.answer(&format!("{head}\nSet-Cookie: a=b"), text.as_bytes());
        });
        let tier = Node::new(&origin.url(), &[]);
        let edge = Node::new(&tier.url(), &[]);
        for number in 0..3 {
            let reply = edge.get("/a");
            assert_eq!(reply.body, format!("for {number}").as_bytes(), "{head}: {reply:?}");
            assert_eq!(reply.field("set-cookie"), None);
        }
        assert_eq!(edge.metric("objects"), 0, "{head}");
    }
}
