//! Clients behind proxies: who they are by fields and by the PROXY protocol, if the proxy is trusted.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use underpass_server::{Changes, Settings, TrustedProxies};

use super::rig::{Certificate, Client, Running, Site, Usable, over, request};

/// Sets the proxies of a site.
fn trust(settings: &mut Settings, networks: &[&str]) {
    let mut proxies = TrustedProxies::default();
    networks.iter().for_each(|network| proxies.add(network).unwrap());
    settings.trusted_proxies = proxies;
}

/// A site that trusts 127.0.0.1, with or without the PROXY protocol.
fn site(proxy_protocol: bool) -> Site {
    Site::of(&[("a", b"first"), ("b", b"second")]).with(|settings| {
        trust(settings, &["127.0.0.1", "10.0.0.0/8", "unix"]);
        settings.proxy_protocol = proxy_protocol;
    })
}

/// A connection from another address of this machine than clients usually have.
fn connect_from(site: &Running, address: &str) -> Client {
    let from: SocketAddr = format!("{address}:0").parse().unwrap();
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&stream, &from).unwrap();
    connect(&stream, &site.socket()).unwrap();
    Client::new(TcpStream::from(stream))
}

/// The address that the log names for a target.
fn remote(site: &Running, target: &str) -> String {
    site.record(&format!("\"{target}\""))["remote"].as_str().unwrap().to_owned()
}

/// A line of the PROXY protocol.
fn line(client: &str) -> String {
    format!("PROXY TCP4 {client} 127.0.0.1 5555 80\r\n")
}

#[test]
fn fields_of_trusted_proxies_name_the_client_of_each_request() {
    let site = site(false).start();
    let mut proxy = site.connect();
    for (target, field, expected) in [
        ("/a?1", "X-Forwarded-For: 198.51.100.9, 192.0.2.1, 10.1.1.1", "192.0.2.1"),
        ("/a?2", "Forwarded: for=\"[2001:db8::1]:80\";proto=https", "2001:db8::1"),
        ("/a?3", "X-Other: 192.0.2.1", "127.0.0.1"),
        ("/a?4", "X-Forwarded-For: unknown", "127.0.0.1"),
    ] {
        assert_eq!(proxy.ask("GET", target, &[field]).text(), "first");
        assert_eq!(remote(&site, target), expected, "{field}");
    }
    let mut stranger = connect_from(&site, "127.0.0.2");
    assert_eq!(stranger.ask("GET", "/a?5", &["X-Forwarded-For: 192.0.2.1"]).status, 200);
    assert_eq!(remote(&site, "/a?5"), "127.0.0.2");
}

#[test]
fn fields_that_contradict_each_other_are_refused() {
    let site = site(false).start();
    let fields = ["Forwarded: for=192.0.2.1", "X-Forwarded-For: 192.0.2.2"];
    let reply = site.ask("GET", "/a", &fields);
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("X-Forwarded-For"), "{}", reply.text());
    assert_eq!(connect_from(&site, "127.0.0.2").ask("GET", "/a", &fields).status, 200);
}

#[test]
fn a_page_over_http_changes_nothing_behind_a_proxy_with_https() {
    let changes = Changes { upload: true, ..Changes::default() };
    let site = site(false).with_site(|site| site.changes = changes).start();
    let put = |name: &str, proto: &str| {
        let fields = [proto, "Origin: http://localhost", "Content-Length: 0"];
        site.ask("PUT", name, &fields).status
    };
    assert_eq!(put("/new", "X-Forwarded-Proto: https"), 403);
    assert_eq!(put("/new", "X-Forwarded-Proto: http"), 201);
    let fields = ["X-Forwarded-Proto: https", "Origin: https://localhost", "Content-Length: 0"];
    assert_eq!(site.ask("PUT", "/other", &fields).status, 201);
}

#[test]
fn headers_of_the_proxy_protocol_name_the_client_of_a_connection() {
    let site = site(true).start();
    let v2 =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x10\xc0\0\x02\x07\x7f\0\0\x01\x01\x01\0\x50\x04\0\x01\0";
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    // With the values that a proxy adds, it has as many bytes as nginx takes.
    let mut long = [&v2[..28], &[0; 4096 - 28]].concat();
    long[14..16].copy_from_slice(&(4096_u16 - 16).to_be_bytes());
    for (target, header, expected) in [
        ("/a?1", line("192.0.2.1").as_bytes(), "192.0.2.1"),
        ("/a?2", b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n", "2001:db8::1"),
        ("/a?3", b"PROXY UNKNOWN\r\n", "127.0.0.1"),
        ("/a?4", v2, "192.0.2.7"),
        ("/a?5", local, "127.0.0.1"),
        ("/a?6", &long, "192.0.2.7"),
    ] {
        let mut whole = site.connect();
        whole.send([header, request("GET", target, &[]).as_bytes()].concat());
        assert_eq!(whole.reply().text(), "first");
        assert_eq!(whole.get("/b").text(), "second", "{target}");
        assert_eq!(remote(&site, target), expected);
        let slow = format!("{target}-slow");
        let mut pieces = site.connect();
        for byte in header {
            pieces.send([*byte]);
        }
        assert_eq!(pieces.get(&slow).text(), "first");
        assert_eq!(remote(&site, &slow), expected);
    }
    let stranger = connect_from(&site, "127.0.0.2").get("/a?7");
    assert_eq!((stranger.status, remote(&site, "/a?7").as_str()), (200, "127.0.0.2"));
    let mut stranger = connect_from(&site, "127.0.0.2");
    stranger.send(line("192.0.2.1") + &request("GET", "/a", &[]));
    assert_eq!(stranger.reply().status, 400);
}

#[test]
fn fields_count_only_if_the_address_in_the_header_is_trusted_too() {
    let site = site(true).start();
    for (target, client, expected) in
        [("/a?1", "10.0.0.5", "203.0.113.1"), ("/a?2", "192.0.2.1", "192.0.2.1")]
    {
        let mut proxy = site.connect();
        proxy.send(line(client));
        assert_eq!(proxy.ask("GET", target, &["X-Forwarded-For: 203.0.113.1"]).status, 200);
        assert_eq!(remote(&site, target), expected);
    }
}

#[test]
fn a_trusted_proxy_without_a_header_is_refused() {
    let site = site(true).start();
    for start in [request("GET", "/a", &[]), "PROXY TCP4 nonsense\r\n".to_owned()] {
        let mut proxy = site.connect();
        proxy.send(start);
        let reply = proxy.reply();
        assert_eq!(reply.status, 400);
        assert!(reply.text().contains("PROXY protocol"), "{}", reply.text());
    }
    let mut left = site.connect();
    left.send("PROXY TCP4 192.0");
    left.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(left.stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_header_that_does_not_arrive_times_out() {
    let site = site(true).with(|settings| settings.timeout = Duration::from_secs(1)).start();
    for start in ["", "PROXY TCP4 192.0"] {
        let mut proxy = site.connect();
        proxy.send(start);
        assert_eq!(proxy.stream.read(&mut [0]).unwrap(), 0, "{start}");
    }
    let entry = site.record("PROXY TCP4 192.0");
    assert_eq!((entry["status"].as_u64(), entry["failure"].as_str()), (Some(408), Some("timeout")));
    assert_eq!(entry["remote"], "127.0.0.1");
}

#[test]
fn the_header_comes_before_the_tls_handshake() {
    let certificate = Certificate::new();
    let site = site(true).secure(&certificate).start();
    for (at, config) in certificate.clients().iter().enumerate() {
        let mut proxy = site.connect();
        proxy.send(line("192.0.2.1"));
        let target = format!("/a?{at}");
        assert_eq!(over(proxy.stream, config).get(&target).text(), "first");
        assert_eq!(remote(&site, &target), "192.0.2.1");
    }
    let mut plain = site.connect();
    plain.send(request("GET", "/a", &[]));
    assert_eq!(plain.reply().status, 400);
}

#[test]
fn the_limit_of_connections_is_for_each_client_and_not_for_the_proxy() {
    let site = site(true).with(|settings| settings.max_connections_per_address = Some(1)).start();
    let of = |client: &str| {
        let mut proxy = site.connect();
        proxy.send(line(client));
        assert_eq!(proxy.get("/a").text(), "first");
        proxy
    };
    let (mut one, mut two, mut three) = (of("192.0.2.1"), of("192.0.2.2"), of("192.0.2.3"));
    for client in [&mut one, &mut two, &mut three] {
        assert_eq!(client.get("/b").text(), "second");
    }
    let mut again = of("192.0.2.1");
    assert_eq!(one.stream.read(&mut [0]).unwrap(), 0, "it made room for the new one");
    assert_eq!(two.get("/b").text(), "second");
    assert_eq!(again.get("/b").text(), "second");
}

#[test]
fn transfers_are_not_shown_to_clients_of_a_proxy() {
    let site = site(true).start();
    for (client, status) in [("192.0.2.1", 403), ("127.0.0.9", 200)] {
        let mut proxy = site.connect();
        proxy.send(line(client));
        assert_eq!(proxy.get("/.underpass/transfers?json").status, status, "{client}");
    }
}
