//! Requests with unwanted bodies: refused, read to their end, and never treated as requests.

use super::rig::{Running, Site, request};

fn site() -> Running {
    Site::of(&[("a", b"first"), ("b", b"second")]).start()
}

#[test]
fn unsupported_methods_are_refused_with_the_allowed_ones() {
    let site = site();
    let mut client = site.connect();
    for verb in ["PUT", "POST", "DELETE", "PATCH", "MKCOL", "TRACE", "PROPPATCH", "LOCK"] {
        for path in ["/a", "/nothing", "/"] {
            let reply = client.ask(verb, path, &[]);
            assert_eq!(reply.status, 405, "{verb} {path}");
            assert_eq!(reply.field("Allow"), Some("GET, HEAD, OPTIONS, PROPFIND"), "{verb} {path}");
        }
    }
    for verb in ["get", "BREW", "M-SEARCH"] {
        let reply = client.ask(verb, "/a", &[]);
        assert_eq!((reply.status, reply.field("Allow")), (501, None), "{verb}");
    }
    assert_eq!(client.get("/a").text(), "first");
}

#[test]
fn an_unwanted_body_is_skipped_and_the_next_request_answered() {
    let site = site();
    let mut client = site.connect();
    let bodies: &[(&str, &str)] = &[
        ("Content-Length: 5", "GET /"),
        ("Content-Length: 0", ""),
        ("Transfer-Encoding: chunked", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked", "5\r\nGET /\r\n3;a=b\r\nxyz\r\n0\r\nTrailer: x\r\n\r\n"),
    ];
    for verb in ["PUT", "GET", "POST", "HEAD"] {
        for (field, body) in bodies {
            client.send(request(verb, "/a", &[field]) + body + &request("GET", "/b", &[]));
            let status = if matches!(verb, "GET" | "HEAD") { 200 } else { 405 };
            assert_eq!(client.try_reply(verb != "HEAD").unwrap().status, status, "{verb} {field}");
            assert_eq!(client.reply().text(), "second", "{verb} {field}");
        }
    }
}

#[test]
fn a_body_may_arrive_in_any_two_pieces() {
    let site = site();
    let mut client = site.connect();
    let chunked = "4;x=y\r\nabcd\r\nA\r\n0123456789\r\n0\r\nT: u\r\n\r\n";
    for (field, body) in
        [("Content-Length: 12", "GET / HTTP/1"), ("Transfer-Encoding: chunked", chunked)]
    {
        for at in 0..body.len() {
            client.send(request("POST", "/a", &[field]) + &body[..at]);
            std::thread::sleep(std::time::Duration::from_micros(300));
            client.send(body[at..].to_owned() + &request("GET", "/b", &[]));
            assert_eq!(client.reply().status, 405, "{field} {at}");
            assert_eq!(client.reply().text(), "second", "{field} {at}");
        }
    }
}

#[test]
fn a_long_body_is_read_within_bounds() {
    let site = site();
    let mut client = site.connect();
    let body = vec![b'x'; 1 << 20];
    client.send(request("PUT", "/a", &["Content-Length: 1048576"]));
    client.send(&body);
    assert_eq!(client.reply().status, 405);
    assert_eq!(client.get("/b").text(), "second");
}

#[test]
fn a_body_without_bounds_is_not_read_but_the_refusal_arrives() {
    let site = site();
    for field in ["Content-Length: 1000000000000", "Transfer-Encoding: chunked"] {
        let mut client = site.connect();
        client.send(request("PUT", "/a", &[field]));
        // More than the server reads, less than the sockets between hold.
        let chunk = format!("20000\r\n{}\r\n", "x".repeat(0x20000));
        for _ in 0..10 {
            client.send(&chunk);
        }
        let reply = client.reply();
        assert_eq!((reply.status, reply.field("Connection")), (405, Some("close")), "{field}");
    }
}

/// As Python's http.client and `wget --body-file` do.
#[test]
fn a_client_that_sends_all_before_it_reads_gets_the_refusal() {
    let site = site();
    let body = vec![b'x'; 20 << 20];
    let length = format!("Content-Length: {}", body.len());
    for (verb, path, field, status) in [
        ("PUT", "/a", "X: y", 405),
        ("POST", "/b", "X: y", 405),
        ("PUT", "/a/../%", "X: y", 400),
        ("MKCOL", "/x", "X: y", 405),
        ("PUT", "/a", "Host: another", 400),
    ] {
        let mut client = site.connect();
        client.send(request(verb, path, &[&length, field]));
        client.send(&body);
        assert_eq!(client.reply().status, status, "{verb} {path}");
    }
}

#[test]
fn a_refused_head_request_has_no_body() {
    let site = site();
    for (rest, status) in [
        ("/a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        ("/a HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        ("/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
    ] {
        let mut client = site.connect();
        client.send(format!("\r\nHEAD {rest}"));
        assert_eq!(client.try_reply(false).unwrap().status, status, "{rest}");
        assert!(client.is_closed(), "{rest}");
    }
}

#[test]
fn malformed_chunks_end_the_connection() {
    let site = site();
    for body in ["x\r\n", "-1\r\n", "5\r\nabcdefg\r\n", "0x5\r\nabcde\r\n", "5 \nabcde\r\n"] {
        let mut client = site.connect();
        let request = request("POST", "/a", &["Transfer-Encoding: chunked"]);
        client.send(request + body + "GET /b HTTP/1.1\r\nHost: x\r\n\r\n");
        let reply = client.reply();
        assert_eq!(reply.field("Connection"), Some("close"), "{body:?}");
        assert!(client.is_closed(), "{body:?}");
    }
}

#[test]
fn a_refused_upload_gets_no_100_continue() {
    let site = site();
    for field in ["Content-Length: 1000000", "Transfer-Encoding: chunked"] {
        let mut client = site.connect();
        let reply = client.ask("PUT", "/a", &[field, "Expect: 100-continue"]);
        assert_eq!((reply.status, reply.field("Connection")), (405, Some("close")), "{field}");
        assert!(client.is_closed(), "{field}");
    }
    // Without a body there is nothing to wait for.
    let mut client = site.connect();
    assert_eq!(client.ask("GET", "/a", &["Expect: 100-continue"]).text(), "first");
    assert_eq!(client.get("/b").text(), "second");
}
