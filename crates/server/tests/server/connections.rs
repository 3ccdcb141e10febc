//! Connections: kept, shared by pipelined requests, closed; and those of HTTP/1.0.

use std::io::Write;
use std::time::Duration;

use super::rig::{Running, Site, pattern, request};

fn site() -> Running {
    let site = Site::of(&[("a", b"first"), ("b", b"second"), ("folder/c", b"third")]);
    site.write("large", &pattern(300_000));
    site.start()
}

#[test]
fn a_connection_serves_one_request_after_another() {
    let site = site();
    let mut client = site.connect();
    for _ in 0..50 {
        assert_eq!(client.get("/a").text(), "first");
        assert_eq!(client.get("/nothing").status, 404);
        assert_eq!(client.ask("HEAD", "/b", &[]).field("Content-Length"), Some("6"));
        assert_eq!(client.get("/b").text(), "second");
    }
    assert_eq!(client.get("/large").body, pattern(300_000));
    assert_eq!(site.metric("connections_accepted_total"), 2.0);
}

#[test]
fn head_has_the_status_and_fields_of_get() {
    let site = site();
    for path in ["/a", "/large", "/nothing", "/folder"] {
        let (head, get) = (site.ask("HEAD", path, &[]), site.get(path));
        let named = |fields: &[(String, String)]| {
            let kept = fields.iter().filter(|(name, _)| name != "Date");
            kept.cloned().collect::<Vec<_>>()
        };
        assert_eq!((head.status, named(&head.fields)), (get.status, named(&get.fields)), "{path}");
        assert!(head.body.is_empty());
    }
}

#[test]
fn many_requests_in_one_write_are_answered_in_their_order() {
    let site = site();
    let mut client = site.connect();
    let mut requests = String::new();
    for at in 0..300 {
        let path = ["/a", "/b", "/nothing", "/folder/", "/folder/c"][at % 5];
        requests += &request(if at % 7 == 3 { "HEAD" } else { "GET" }, path, &[]);
    }
    let mut writer = client.stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(requests.as_bytes()).unwrap());
    for at in 0..300 {
        let is_head = at % 7 == 3;
        let reply = client.try_reply(!is_head).unwrap();
        let (status, text) =
            [(200, "first"), (200, "second"), (404, ""), (200, ""), (200, "third")][at % 5];
        assert_eq!(reply.status, status, "request {at}");
        if !text.is_empty() && !is_head {
            assert_eq!(reply.text(), text, "request {at}");
        }
    }
    writing.join().unwrap();
    assert_eq!(client.get("/a").text(), "first");
}

#[test]
fn a_request_may_arrive_in_any_two_pieces() {
    let site = site();
    let mut client = site.connect();
    let one = request("GET", "/a", &["X-A: b"]);
    let two = one.clone() + &request("GET", "/b", &[]);
    for at in 1..two.len() {
        client.send(&two[..at]);
        std::thread::sleep(Duration::from_micros(300));
        client.send(&two[at..]);
        assert_eq!(client.reply().text(), "first", "split at {at}");
        assert_eq!(client.reply().text(), "second", "split at {at}");
    }
    for byte in two.bytes() {
        client.send([byte]);
    }
    assert_eq!(client.reply().text(), "first");
    assert_eq!(client.reply().text(), "second");
}

#[test]
fn empty_lines_before_a_request_are_ignored() {
    let site = site();
    let mut client = site.connect();
    client.send(format!("\r\n{}\r\n", request("GET", "/a", &[])));
    client.send(request("GET", "/b", &[]));
    assert_eq!(client.reply().text(), "first");
    assert_eq!(client.reply().text(), "second");
}

#[test]
fn connection_close_gets_a_response_and_a_clean_end() {
    let site = site();
    for path in ["/a", "/large", "/nothing", "/folder/"] {
        let mut client = site.connect();
        let reply = client.ask("GET", path, &["Connection: close"]);
        assert_eq!(reply.field("Connection"), Some("close"), "{path}");
        assert!(client.is_closed(), "{path}");
    }
    let mut client = site.connect();
    let both = request("GET", "/a", &["Connection: foo, Close"]) + &request("GET", "/b", &[]);
    client.send(both);
    assert_eq!(client.reply().text(), "first");
    assert!(client.is_closed(), "nothing after a close is answered");
}

#[test]
fn a_half_closed_client_still_gets_everything() {
    let site = site();
    let mut client = site.connect();
    client.send(request("GET", "/large", &[]) + &request("GET", "/a", &[]));
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.reply().body, pattern(300_000));
    assert_eq!(client.reply().text(), "first");
    assert!(client.is_closed());
}

#[test]
fn http_1_0_closes_unless_it_asks_not_to() {
    let site = site();
    let mut client = site.connect();
    client.send("GET /a HTTP/1.0\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.text().as_str(), reply.field("Connection")), ("first", Some("close")));
    assert!(client.is_closed());

    let mut client = site.connect();
    for _ in 0..3 {
        client.send("GET /a HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
        let reply = client.reply();
        let said = reply.field("Connection").map(str::to_ascii_lowercase);
        assert_eq!((reply.text().as_str(), said.as_deref()), ("first", Some("keep-alive")));
    }
}

#[test]
fn http_1_0_gets_a_listing_without_chunks_whose_length_is_known() {
    let site = site();
    let mut client = site.connect();
    client.send("GET /folder/?simple HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.text().as_str(), reply.field("Transfer-Encoding")), ("c\n", None));
    assert_eq!(
        (reply.field("Content-Length"), reply.field("Connection")),
        (Some("2"), Some("keep-alive"))
    );
}

#[test]
fn an_absolute_target_works_like_a_path() {
    let site = site();
    let mut client = site.connect();
    for target in ["http://localhost/a", "HTTP://LocalHost:80/a", "http://[::1]/a"] {
        assert_eq!(client.get(target).text(), "first", "{target}");
    }
    assert_eq!(client.get("http://localhost").status, 200, "no path is the root");
}

#[test]
fn options_lists_the_allowed_methods() {
    let site = site();
    let mut client = site.connect();
    for target in ["*", "/a", "/folder/", "/nothing"] {
        let reply = client.ask("OPTIONS", target, &[]);
        assert_eq!(reply.status, 204, "{target}");
        assert_eq!(reply.field("Allow"), Some("GET, HEAD, OPTIONS, PROPFIND"), "{target}");
        assert_eq!(reply.field("Content-Length"), None, "RFC 9110, section 8.6");
    }
    let reply = client.ask("OPTIONS", "/folder/?archive=zip", &[]);
    assert_eq!(reply.field("Allow"), Some("GET, HEAD, OPTIONS, PROPFIND, POST"));
}

#[test]
fn each_response_has_its_date() {
    let site = site();
    for path in ["/a", "/nothing", "/folder", "/folder/", "/.underpass/health"] {
        let reply = site.get(path);
        let date = httpdate::parse_http_date(reply.field("Date").unwrap()).unwrap();
        let age = std::time::SystemTime::now().duration_since(date).unwrap();
        assert!(age < Duration::from_secs(20), "{path}");
    }
}

#[test]
fn several_workers_share_one_address() {
    let site = Site::of(&[("a", b"first")]).with(|settings| settings.workers = 4).start();
    let mut clients: Vec<_> = (0..40).map(|_| site.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/a").text(), "first");
    }
}
