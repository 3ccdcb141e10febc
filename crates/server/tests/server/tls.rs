//! HTTPS: what is true without TLS is true with it, in both of its versions.

use std::io::Write;
use std::thread;
use std::time::Duration;

use rustls::version::{TLS12, TLS13};

use underpass_server::access_log::LogFormat;

use super::rig::{
    Certificate, Running, Site, Usable, gets_close_notify, pattern, request, wait_until,
};

const LEN: usize = 8 << 20;

fn site(certificate: &Certificate) -> Running {
    let site = Site::of(&[("a", b"first"), ("b", b"second"), ("folder/c", b"third")]);
    site.write("middle", &pattern(60_000));
    site.write("large", &pattern(LEN));
    site.secure(certificate).start()
}

#[test]
fn everything_is_served_as_without_tls() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    for config in certificate.clients() {
        let mut client = site.secure_as(&config);
        assert_eq!(client.get("/a").text(), "first");
        assert_eq!(client.ask("HEAD", "/b", &[]).field("Content-Length"), Some("6"));
        assert_eq!(client.get("/nothing").status, 404);
        assert!(client.get("/middle").body == pattern(60_000));
        assert!(client.get("/large").body == pattern(LEN));
        let part = client.ask("GET", "/large", &["Range: bytes=4000000-7999999"]);
        assert_eq!(part.status, 206);
        assert!(part.body == pattern(LEN)[4_000_000..8_000_000]);
        let parts = client.ask("GET", "/large", &["Range: bytes=1-9,2000000-2999999"]);
        assert!(parts.body.windows(9).any(|nine| nine == &pattern(10)[1..]));
        assert!(parts.body.len() > 1_000_009, "{}", parts.body.len());
        assert!(client.get("/").text().contains("folder"));
        assert!(client.get("/folder/?json").text().contains("\"c\""));
        let tar = client.get("/folder/?archive=tar");
        assert_eq!(tar.field("Content-Length"), Some(&*tar.body.len().to_string()));
        assert!(tar.body.windows(5).any(|five| five == b"third"));
        assert_eq!(client.get("/a").text(), "first");
    }
}

#[test]
fn a_connection_serves_hundreds_of_requests_and_many_at_once() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    for config in certificate.clients() {
        let mut client = site.secure_as(&config);
        for _ in 0..100 {
            assert_eq!(client.get("/a").text(), "first");
            assert_eq!(client.get("/b").text(), "second");
        }
        let many: String = (0..100).map(|at| request("GET", ["/a", "/b"][at % 2], &[])).collect();
        client.send(&many);
        for at in 0..100 {
            assert_eq!(client.reply().text(), ["first", "second"][at % 2]);
        }
    }
    assert_eq!(site.metric("requests_total{code=\"200\"}"), 600.0);
}

#[test]
fn a_request_may_come_in_records_of_a_byte() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    let mut client = site.secure();
    for byte in (request("GET", "/a", &[]) + &request("GET", "/b", &[])).bytes() {
        client.send([byte]);
    }
    assert_eq!(client.reply().text(), "first");
    assert_eq!(client.reply().text(), "second");
}

#[test]
fn a_slow_reader_gets_every_byte() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    let mut client = site.secure_narrow();
    client.send(request("GET", "/large", &[]) + &request("GET", "/a", &[]));
    let head = client.head().unwrap();
    let mut body = Vec::new();
    while body.len() < LEN {
        // Many more are available than are read.
        let more = (LEN - body.len()).min(50_000);
        body.extend(client.take(more).unwrap());
        thread::yield_now();
    }
    assert_eq!(head.status, 200);
    assert!(body == pattern(LEN));
    assert_eq!(client.reply().text(), "first");
    assert_eq!(site.record("/large")["complete"], true);
}

#[test]
fn an_aborted_tls_download_is_logged() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    let mut client = site.secure_narrow();
    client.send(request("GET", "/large", &[]));
    assert_eq!(client.head().unwrap().status, 200);
    drop(client);
    let line = site.record("/large");
    assert_eq!((&line["complete"], &line["failure"]), (&false.into(), &"reset".into()));
    assert_eq!(site.get("/a").text(), "first");
}

#[test]
fn a_client_that_closes_before_it_reads_the_alert_has_all_of_it() {
    let certificate = Certificate::new();
    let site = Site::of(&[("file", &pattern(300_000))]).secure(&certificate);
    let site = site.with(|settings| settings.log = Some(LogFormat::parse("json").unwrap())).start();
    for number in 0..20 {
        let mut client = site.secure();
        let reply = client.ask("GET", &format!("/file?{number}"), &["Connection: close"]);
        assert_eq!(reply.body.len(), 300_000);
        thread::sleep(Duration::from_millis(3));
        // Its unread data makes its kernel reset the connection.
        drop(client);
        let record = site.record(&format!("\"target\":\"/file?{number}\""));
        assert_eq!(record["acknowledged"], 300_000, "{record}");
        assert_eq!(record["complete"], true, "{record}");
    }
}

#[test]
fn close_notify_is_sent_before_the_connection_is_closed() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    for config in certificate.clients() {
        for path in ["/a", "/large", "/nothing", "/"] {
            let mut client = site.secure_as(&config);
            let reply = client.ask("GET", path, &["Connection: close"]);
            assert_eq!(reply.field("Connection"), Some("close"), "{path}");
            assert!(gets_close_notify(&mut client), "{path}");
        }
        // Nothing else marks the end here.
        let mut client = site.secure_as(&config);
        client.send("GET /?json HTTP/1.0\r\n\r\n");
        assert!(client.reply().text().contains("middle"));
        assert!(gets_close_notify(&mut client));
        // A close_notify is answered by one.
        let mut client = site.secure_as(&config);
        assert_eq!(client.get("/a").text(), "first");
        client.stream.conn.send_close_notify();
        client.stream.flush().unwrap();
        assert!(gets_close_notify(&mut client));
    }
}

#[test]
fn a_response_that_breaks_off_has_no_end() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    let mut client = site.secure_narrow();
    client.send(request("GET", "/large", &[]));
    assert_eq!(client.head().unwrap().status, 200);
    std::fs::write(site.path("large"), b"another version").unwrap();
    let end = client.end();
    assert!(end.is_err(), "{end:?}");
}

#[test]
fn idle_clients_get_close_notify_at_shutdown() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    let mut client = site.secure();
    assert_eq!(client.get("/a").text(), "first");
    site.control.drain();
    assert!(gets_close_notify(&mut client));
    wait_until("it has ended", || site.has_ended());
}

#[test]
fn a_handshake_may_end_at_shutdown_and_its_request_is_answered() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    let mut idle = site.secure();
    assert_eq!(idle.get("/a").text(), "first");
    let mut client = site.secure();
    // Including the one that asks.
    wait_until("it is accepted", || site.metric("connections_open") == 3.0);
    site.control.drain();
    assert!(gets_close_notify(&mut idle));
    let reply = client.get("/a");
    assert_eq!((reply.text().as_str(), reply.field("Connection")), ("first", Some("close")));
    assert!(gets_close_notify(&mut client));
}

#[test]
fn log_metrics_and_receipts_tell_of_tls() {
    let certificate = Certificate::new();
    let site = site(&certificate);
    let kernel = |version| {
        let mut client = site.secure_as(&certificate.client(version));
        let reply = client.ask("GET", "/a", &["Underpass-Explain: 1"]);
        let timing = reply.field("Server-Timing").unwrap().to_owned();
        timing.contains("tls;desc=\"kernel\"")
    };
    assert_eq!(kernel(&[&TLS13]), kernel(&[&TLS12]));
    for version in ["TLSv1.3", "TLSv1.2"] {
        let tls = &site.record(&format!("\"version\":\"{version}\""))["tls"];
        assert!(tls["suite"].as_str().unwrap().starts_with("TLS_"), "{tls}");
        assert_eq!(tls["resumed"], false);
        assert_eq!(tls["where"] == "kernel", tls["why"].is_null(), "{tls}");
    }
    // Without another ticket than that of the first connection.
    let resuming = certificate.client(&[&TLS13]);
    for _ in 0..2 {
        let mut client = site.secure_as(&resuming);
        assert_eq!(client.get("/b").text(), "second");
    }
    site.line("\"resumed\":true");
    assert_eq!(site.metric("tls_resumed_total"), 1.0);
    let text = site.get("/.underpass/metrics").text();
    let counted = text.lines().filter(|line| line.starts_with("underpass_tls_connections_total{"));
    let sum: f64 =
        counted.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum();
    assert_eq!(sum, 6.0, "{text}");
}
