//! Redirects of the origin: which are followed, and what the other host gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::node::Node;
use crate::rig::{noise, until};
use crate::scripted_origin::{Gate, Object, Origin};

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

#[test]
fn a_redirect_that_leads_to_a_silent_host_is_remembered() {
    let (gate, hangs) = (Gate::default(), Arc::new(AtomicBool::new(true)));
    let (held, is_hanging) = (gate.clone(), Arc::clone(&hangs));
    let store = Origin::new(move |_, sending| {
        if is_hanging.load(Ordering::Relaxed) {
            held.wait();
        }
        sending.answer("HTTP/1.1 200 OK\nCache-Control: max-age=0\nETag: \"a\"", b"hello");
    });
    let base = store.address.clone();
    let origin = redirecting(move |path| format!("http://{base}{path}"));
    let args = ["--origin-redirect", &store.address, "--timeout", "2"];
    let node = Node::new(&origin.url(), &args);
    // A few files that are late tell nothing about the others.
    let clients: Vec<_> =
        (0..4).map(|number| node.client("GET", &format!("/{number}"), &[])).collect();
    for client in clients {
        let reply = client.finish();
        assert_eq!(reply.status, 504);
        assert!(reply.cache().contains("detail=origin-timeout"), "{}", reply.cache());
    }
    let began = Instant::now();
    let reply = node.get("/5");
    assert_eq!(reply.status, 504);
    assert!(reply.cache().contains("detail=origin-timeout"), "{}", reply.cache());
    assert!(reply.field("retry-after").is_some());
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(store.requests().len(), 4);
    hangs.store(false, Ordering::Relaxed);
    gate.open();
    until("an answer of the host", || node.get("/6").status == 200);
    node.get("/7").assert_is(200, b"hello");
}

#[test]
fn a_host_of_several_origins_is_not_skipped_for_one_late_file() {
    let gate = Gate::default();
    let held = gate.clone();
    let store = Origin::new(move |request, sending| {
        if request.path == "/late" {
            held.wait();
        }
        sending.answer("HTTP/1.1 200 OK\nETag: \"a\"", b"hello");
    });
    let [first, second] = [(); 2].map(|()| {
        let base = store.address.clone();
        redirecting(move |path| format!("http://{base}{path}"))
    });
    let second = second.url();
    let args = ["--origin", &second, "--origin-redirect", &store.address, "--timeout", "1"];
    let node = Node::new(&first.url(), &args);
    assert_eq!(node.get("/late").status, 504);
    node.get("/other").assert_is(200, b"hello");
    gate.open();
}
