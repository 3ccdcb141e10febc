//! A port that redirects plain HTTP to HTTPS.

use super::rig::{Certificate, Client, Running, Site, request};

fn site(certificate: &Certificate) -> Running {
    let site = Site::of(&[("a", b"first")]).secure(certificate);
    site.with(|settings| {
        settings.redirect_http = Some(0);
        settings.sites[0].changes.upload = true;
    })
    .start()
}

fn connect(site: &Running) -> Client {
    Client::new(std::net::TcpStream::connect(&site.redirects[0]).unwrap())
}

#[test]
fn every_request_is_redirected_to_the_same_url_over_tls() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    let port = site.socket().port();
    let mut client = connect(&site);
    for (verb, path, status, to) in [
        ("GET", "/a?b=c%20d", 301, "/a?b=c%20d"),
        ("HEAD", "/nothing", 301, "/nothing"),
        ("POST", "/a", 308, "/a"),
        ("OPTIONS", "*", 308, "/"),
        ("GET", "//elsewhere.example/", 301, "//elsewhere.example/"),
        ("GET", "/.well-known/acme-challenge/x", 301, "/.well-known/acme-challenge/x"),
        ("GET", "/.underpass/metrics", 301, "/.underpass/metrics"),
    ] {
        let reply = client.ask(verb, path, &[]);
        let location = format!("https://localhost:{port}{to}");
        assert_eq!((reply.status, reply.field("Location")), (status, Some(&*location)), "{path}");
        assert_eq!(reply.field("Strict-Transport-Security"), None);
    }
    assert_eq!(site.record("\"target\":\"/nothing\"")["status"], 301);
}

#[test]
fn uploads_over_plain_http_are_redirected_and_not_stored() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    let mut client = connect(&site);
    client
        .send(request("PUT", "/new", &["Content-Length: 3"]) + "abc" + &request("GET", "/a", &[]));
    assert_eq!(client.reply().status, 308);
    assert_eq!(client.reply().status, 301);
    client.send(request("PUT", "/new", &["Content-Length: 3", "Expect: 100-continue"]));
    assert_eq!(client.reply().status, 308);
    assert!(client.is_closed());
    assert!(!site.path("new").exists());
}

#[test]
fn no_redirect_without_a_host_field() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    for head in [
        "GET /a HTTP/1.0\r\n\r\n",
        "GET /a HTTP/1.1\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: \r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a@evil.example\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: evil.example/\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ] {
        let mut client = connect(&site);
        client.send(head);
        let reply = client.reply();
        assert_eq!((reply.status, reply.field("Location")), (400, None), "{head}");
        assert!(client.is_closed(), "{head}");
    }
}
