//! What becomes the business of one client only after it was stored for all.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::node::{Node, until_stored};
use crate::rig::noise;
use crate::scripted_origin::{Object, Origin};

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
fn what_a_304_declares_private_is_not_served_to_others() {
    for forbidden in FORBIDDEN {
        let versions = AtomicUsize::new(0);
        let origin = Origin::new(move |asked, sending| {
            let number = versions.fetch_add(1, Ordering::Relaxed);
            let lines = match number {
                0 => "Cache-Control: max-age=0".to_owned(),
                _ => format!("X-Any: 1\n{forbidden}\nCDN-Cache-Control: {}", cdn(forbidden)),
            };
            match asked.field("if-none-match") {
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
        node.get("/a").is(200, b"for 0");
        until_stored(&node, 5);
        node.get("/a").is(200, b"for 2");
        node.get("/a").is(200, b"for 3");
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
        let origin = Origin::new(move |asked, sending| {
            let lines = match asked_before.fetch_add(1, Ordering::Relaxed) {
                0 => "Cache-Control: max-age=1000",
                _ => forbidden,
            };
            object.clone().with(lines).send(asked, sending);
        });
        let node = Node::new(&origin.url(), &[]);
        node.range("/a", "0-9").is(206, &bytes[..10]);
        until_stored(&node, MIB as u64);
        for asked in [3, 4] {
            let reply = node.range("/a", &format!("{}-{}", 2 * MIB, 2 * MIB + 9));
            reply.is(206, &bytes[2 * MIB..2 * MIB + 10]);
            assert!(!reply.cache().contains("hit"), "{forbidden}: {}", reply.cache());
            assert_eq!(origin.asked().len(), asked, "{forbidden}");
        }
        assert_eq!(node.metric("objects"), 0, "{forbidden}");
    }
}
