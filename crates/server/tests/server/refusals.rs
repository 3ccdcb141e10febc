//! Ambiguous requests: refused, and nothing after them is answered.

use super::rig::{Client, Running, Site, request};

fn site() -> Running {
    Site::of(&[("a", b"first")]).start()
}

/// The status of the response to these bytes, after which the connection ends without any others.
#[track_caller]
fn refused(site: &Running, bytes: impl AsRef<[u8]>) -> u16 {
    let mut client: Client = site.connect();
    client.send(bytes);
    client.send(request("GET", "/a", &[]));
    let reply = client.reply();
    assert_eq!(reply.field("Connection"), Some("close"));
    assert!(client.is_closed());
    reply.status
}

#[test]
fn an_ambiguous_head_is_refused() {
    let site = site();
    for head in [
        "GET /a HTTP/1.1\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: user@a\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nNo colon\r\n\r\n",
        "GET  /a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a\r\nHost: a\r\n\r\n",
        "/a\r\n\r\n",
        "GET a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT /a HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
    ] {
        assert_eq!(refused(&site, head), 400, "{head:?}");
    }
    let coded = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n";
    assert_eq!(refused(&site, coded), 501);
}

#[test]
fn other_versions_are_named_as_the_error() {
    let site = site();
    assert_eq!(refused(&site, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
    assert_eq!(refused(&site, "GET /a HTTP/3.0\r\nHost: a\r\n\r\n"), 505);
    let mut client = site.connect();
    client.send("GET /a HTTP/1.2\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.reply().status, 200);
}

#[test]
fn a_host_is_needed_and_only_in_1_1() {
    let site = site();
    let mut client = site.connect();
    for host in
        ["Host: localhost", "Host: a.localhost:8080", "Host: [::1]:80", "Host:", "HOST: 127.0.0.1"]
    {
        client.send(format!("GET /a HTTP/1.1\r\n{host}\r\n\r\n"));
        assert_eq!(client.reply().text(), "first", "{host}");
    }
    client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.reply().text(), "first");
}

#[test]
fn long_targets_get_414_and_long_heads_431() {
    let site = site();
    let long = "x".repeat(40_000);
    assert_eq!(refused(&site, format!("GET /{long}")), 414);
    assert_eq!(refused(&site, format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")), 414);
    assert_eq!(refused(&site, format!("GET /a HTTP/1.1\r\nHost: a\r\nX: {long}")), 431);
    assert_eq!(refused(&site, format!("GET /a HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n")), 431);
    let many = "X: y\r\n".repeat(200);
    assert_eq!(refused(&site, format!("GET /a HTTP/1.1\r\nHost: a\r\n{many}\r\n")), 431);
}

#[test]
fn a_head_is_too_long_however_it_arrives() {
    let site = site();
    let usual = request("GET", "/a", &[]);
    let long = "x".repeat(32_800);
    for (path, field, status) in
        [("/a", &*format!("X: {long}"), 431), (&format!("/{long}"), "X: y", 414)]
    {
        let head = request("GET", path, &[field]);
        let mut client = site.connect();
        // The beginning is read together with a request before it: then no read ends at the limit.
        client.send([usual.as_bytes(), &head.as_bytes()[..1000]].concat());
        assert_eq!(client.reply().status, 200);
        client.send(&head[1000..]);
        assert_eq!(client.reply().status, status);
        assert!(client.is_closed());
    }
}

#[test]
fn a_usual_long_head_is_no_problem() {
    let site = site();
    let mut client = site.connect();
    let cookie = format!("Cookie: {}", "x".repeat(8000));
    let mut fields = vec![cookie.as_str(); 3];
    fields.extend(["X: y"; 40]);
    assert_eq!(client.ask("GET", "/a", &fields).text(), "first");
    assert_eq!(client.get(&format!("/a?{}", "x".repeat(20_000))).text(), "first");
}

#[test]
fn a_refusal_names_no_reason_that_the_client_gave() {
    let site = site();
    let mut client = site.connect();
    client.send(
        "GET /<script>alert(1)</script> HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n",
    );
    let reply = client.reply();
    assert_eq!(reply.status, 404);
    assert!(!reply.text().contains("<script>"), "{}", reply.text());
}
