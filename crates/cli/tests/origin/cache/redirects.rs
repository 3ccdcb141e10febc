//! Redirects of the origin: which are followed, and what the other host gets.

use crate::node::Node;
use crate::rig::noise;
use crate::scripted_origin::{Object, Origin};

/// An origin that sends everything elsewhere.
fn redirecting(to: impl Fn(&str) -> String + Send + Sync + 'static) -> Origin {
    Origin::new(move |request, sending| {
        let place = to(&request.path);
        sending.answer(&format!("HTTP/1.1 302 Found\nLocation: {place}"), b"");
    })
}

#[test]
fn redirects_to_a_named_host_are_followed_without_secrets() {
    let bytes = noise(3 << 20);
    let object = Object::new(bytes.clone(), "a");
    let store = Origin::of(&object);
    let base = store.address.clone();
    let origin = redirecting(move |path| format!("http://x:y@{base}/store{path}"));
    let args = ["--origin-redirect", &store.address, "--vary-on", "X-Kind"];
    let node = Node::new(&origin.url_with_password(), &args);
    let reply = node.ask("GET", "/a", &["X-Kind: one", "Range: bytes=0-9"]);
    reply.assert_is(206, &bytes[..10]);
    node.ask("GET", "/a", &["X-Kind: one"]).assert_is(200, &bytes);
    node.ask("GET", "/a", &["X-Kind: one"]).assert_is(200, &bytes);
    assert!(origin.requests().iter().all(|request| request.field("authorization").is_some()));
    assert!(origin.requests().iter().all(|request| request.field("x-kind") == Some("one")));
    let requests = store.requests();
    assert_eq!(store.sent(), 3 << 20);
    for request in requests {
        assert_eq!(request.path, "/store/a");
        assert_eq!(request.field("accept-encoding"), Some("identity"));
        for name in ["authorization", "x-kind"] {
            assert_eq!(request.field(name), None, "{name}");
        }
    }
}

#[test]
fn redirects_to_other_hosts_are_not_followed() {
    let store = Origin::new(|_, sending| sending.answer("HTTP/1.1 200 OK", b"hello"));
    let base = store.address.clone();
    let origin = redirecting(move |path| format!("http://{base}{path}"));
    // Another port, and another name of the same machine.
    let localhost = store.address.replace("127.0.0.1", "localhost");
    for rule in ["127.0.0.1:1", &localhost, "*.localhost"] {
        let node = Node::new(&origin.url(), &["--origin-redirect", rule]);
        let reply = node.get("/a");
        assert_eq!((reply.status, reply.body.len()), (302, 0), "{rule}");
        assert_eq!(reply.field("location"), Some(&*format!("{}a", store.url())), "{rule}");
        let node = Node::new(&origin.url_with_password(), &["--origin-redirect", rule]);
        let reply = node.get("/a");
        assert_eq!((reply.status, reply.field("location")), (502, None), "{rule}");
        assert!(reply.cache().contains("detail=origin-redirects"), "{}", reply.cache());
    }
    assert!(store.requests().is_empty());
}

#[test]
fn redirects_without_an_end_are_given_up() {
    let origin = redirecting(|path| format!("{path}x"));
    let node = Node::new(&origin.url(), &["--origin-redirect", &origin.address]);
    assert_eq!(node.get("/a").status, 502);
    assert_eq!(origin.requests().len(), 6);
}

#[test]
fn the_next_origin_is_tried_if_a_redirect_fails() {
    let gone = Origin::new(|_, _| {});
    gone.end();
    let base = gone.address.clone();
    let first = redirecting(move |path| format!("http://{base}{path}"));
    let circle = redirecting(|path| format!("{path}x"));
    let next = Origin::of(&Object::new(b"hello".to_vec(), "a"));
    for (origin, rule) in [(&first, &gone.address), (&circle, &circle.address)] {
        let node = Node::new(&origin.url(), &["--origin", &next.url(), "--origin-redirect", rule]);
        node.get("/a").assert_is(200, b"hello");
    }
}
