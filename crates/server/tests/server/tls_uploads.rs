//! Uploads over TLS.

use std::fs;
use std::net::Shutdown;

use super::rig::{Certificate, Running, Secure, Site, Usable, pattern, request, wait_for};

const LEN: usize = 5 << 20;

fn site(certificate: &Certificate) -> Running {
    let site = Site::new().secure(certificate);
    site.with_site(|site| site.changes.upload = true).start()
}

fn length() -> String {
    format!("Content-Length: {LEN}")
}

#[test]
fn files_are_put_one_after_the_other_on_a_connection() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    for config in certificate.clients() {
        let mut client = site.secure_as(&config);
        for name in ["/one", "/two"] {
            client.send(request("PUT", name, &[&length()]));
            client.send(pattern(LEN));
            assert!(matches!(client.reply().status, 201 | 204));
            assert!(fs::read(site.path(&name[1..])).unwrap() == pattern(LEN));
        }
        // A body that comes with its head, and the next request with it.
        client.send(
            request("PUT", "/small", &["Content-Length: 3"])
                + "abc"
                + &request("GET", "/small", &[]),
        );
        assert!(matches!(client.reply().status, 201 | 204));
        assert_eq!(client.reply().text(), "abc");
        client.send(request("PUT", "/chunks", &["Transfer-Encoding: chunked"]));
        for piece in pattern(300_000).chunks(70_001) {
            client.send(format!("{:x}\r\n", piece.len()));
            client.send(piece);
            client.send("\r\n");
        }
        client.send("0\r\n\r\n".to_owned() + &request("GET", "/chunks", &[]));
        assert!(matches!(client.reply().status, 201 | 204));
        assert!(client.reply().body == pattern(300_000));
    }
    assert_eq!(site.record("/one")["received"], LEN);
}

#[test]
fn expect_100_continue_is_answered() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    for config in certificate.clients() {
        let mut client = site.secure_as(&config);
        client.send(request("PUT", "/file", &["Expect: 100-continue", &length()]));
        assert_eq!(client.head().unwrap().status, 100);
        client.send(pattern(LEN));
        assert!(matches!(client.reply().status, 201 | 204));
        client.send(request("PUT", "/no/folder", &["Expect: 100-continue", &length()]));
        assert_eq!(client.reply().status, 409);
    }
    assert!(fs::read(site.path("file")).unwrap() == pattern(LEN));
}

/// Begins a resumable upload.
fn begin(site: &Running) -> (Secure, String) {
    let mut client = site.secure();
    let fields = ["Upload-Complete: ?1", "Upload-Draft-Interop-Version: 8", &length()];
    client.send(request("PUT", "/file", &fields));
    let interim = client.head().unwrap();
    assert_eq!(interim.status, 104);
    let location = interim.upload_of("/file");
    (client, location)
}

#[test]
fn an_interrupted_upload_is_resumed() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    let (mut client, location) = begin(&site);
    client.send(&pattern(LEN)[..3_000_000]);
    // Without a close_notify.
    client.stream.sock.shutdown(Shutdown::Both).unwrap();
    site.line("\"failure\":\"reset\"");
    let offset = wait_for("the part", || {
        let reply = site.ask("HEAD", &location, &[]);
        reply.field("Upload-Offset").map(|offset| offset.parse::<usize>().unwrap())
    });
    assert!(offset > 0 && offset <= 3_000_000, "{offset}");
    let mut client = site.secure();
    let rest = &pattern(LEN)[offset..];
    let fields = [
        "Upload-Complete: ?1",
        &format!("Upload-Offset: {offset}"),
        "Content-Type: application/partial-upload",
        &format!("Content-Length: {}", rest.len()),
    ];
    client.send(request("PATCH", &location, &fields));
    client.send(rest);
    assert_eq!(client.reply().status, 201);
    assert!(fs::read(site.path("file")).unwrap() == pattern(LEN));
}

#[test]
fn an_upload_is_whole_or_is_not_there() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    let mut client = site.secure();
    client.send(request("PUT", "/short", &["Content-Length: 500000"]));
    client.send(pattern(499_999));
    client.stream.conn.send_close_notify();
    std::io::Write::flush(&mut client.stream).unwrap();
    site.line("/short");
    assert!(!site.path("short").exists());
}

#[test]
fn pages_that_came_without_tls_change_nothing_here() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    let mut client = site.secure();
    for (origin, status) in [
        ("Origin: https://localhost", 201),
        ("Origin: http://localhost", 403),
        ("Origin: https://elsewhere.example", 403),
    ] {
        client.send(request("PUT", "/page", &[origin, "Content-Length: 0"]));
        assert_eq!(client.reply().status, status, "{origin}");
    }
}
