//! Downloads over TLS: the same promises, certificates, and announced ends of connections.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use underpass_client::download::{DownloadError, DownloadFailed};
use underpass_client::{
    ClientError, ConnectionError, Credentials, Proxies, TlsSetup, UnusableUrl, Url,
};
use underpass_transport::tls::{EncryptedBy, HandshakeError, KernelTlsObstacle, Trust};

use crate::front::Front;
use crate::rig::{Client, Server, TAG, give, hang_up, head, noise, say};

/// A client that trusts a front.
fn client(front: &Front) -> Client {
    let mut client = Client::new();
    client.tls = front.trusted();
    client
}

fn https(front: &Front, path: &str) -> Url {
    Url::parse(&format!("https://localhost:{}{path}", front.address.port())).unwrap()
}

/// Returns the handshake error of a failed download.
fn handshake(failed: &DownloadFailed) -> &HandshakeError {
    match &failed.error {
        DownloadError::Client(ClientError::Connection(ConnectionError::Tls { error, .. })) => error,
        error => panic!("{error}"),
    }
}

#[test]
fn connections_for_pieces_resume_one_tls_session() {
    let bytes = noise((40 << 20) + 7);
    let server = Server::of(&bytes);
    let front = Front::of(server.address);
    let mut client = client(&front);
    client.options.connections = Some(3);
    let done = client.get(&https(&front, "/f")).unwrap();
    assert!(std::fs::read(client.path()).unwrap() == *bytes);
    assert_eq!(client.names(), ["file"]);
    // Once from the socket and once to the file.
    assert_eq!(done.report.user_space_bytes(), 2 * bytes.len() as u64);
    let tls = done.tls.unwrap();
    assert_eq!(
        (tls.version, tls.encrypted_by),
        ("TLSv1.3", EncryptedBy::UserSpace(KernelTlsObstacle::Unwanted))
    );
    assert_eq!(front.connections(), 3, "connections are used again for the next piece");
    assert_eq!(front.resumed(), 2);
}

#[test]
fn a_broken_download_goes_on_where_it_was() {
    let bytes = noise(4 << 20);
    let body = Arc::clone(&bytes);
    let server = Server::start(move |request, stream| {
        if request.number > 0 {
            return give(request, stream, &body, TAG);
        }
        let (head, range) = head(request, &body, TAG);
        say(stream, &head)?;
        stream.write_all(&body[range][..3 << 20])?;
        hang_up()
    });
    let front = Front::of(server.address);
    let client = client(&front);
    let done = client.get(&https(&front, "/")).unwrap();
    assert!(std::fs::read(client.path()).unwrap() == *bytes);
    assert!(done.report.bytes() < 5 << 20, "{}", done.report.bytes());
    assert_eq!(client.events("Retrying"), 1);
    assert!(server.requests()[1].range(bytes.len()).unwrap().start > 0);
}

#[test]
fn a_body_of_unknown_length_is_whole_only_if_its_end_was_announced() {
    let bytes = noise(100_000);
    let body = Arc::clone(&bytes);
    let server = Server::start(move |_, stream| {
        say(stream, "HTTP/1.1 200 OK\n\n")?;
        stream.write_all(&body)?;
        hang_up()
    });
    let front = Front::of(server.address);
    let mut client = client(&front);
    client.options.retries = 0;
    client.get(&https(&front, "/")).unwrap();
    assert!(std::fs::read(client.path()).unwrap() == *bytes);

    std::fs::remove_file(client.path()).unwrap();
    front.cut_ends();
    client.fails(&https(&front, "/"), "the connection was cut: no close_notify");
}

#[test]
fn a_body_of_known_length_is_complete_however_the_connection_ends() {
    let bytes = noise(100_000);
    let body = Arc::clone(&bytes);
    let server = Server::start(move |request, stream| {
        give(request, stream, &body, TAG)?;
        hang_up()
    });
    let front = Front::of(server.address);
    front.cut_ends();
    let client = client(&front);
    client.get(&https(&front, "/")).unwrap();
    assert!(std::fs::read(client.path()).unwrap() == *bytes);
    assert_eq!(client.events("Retrying"), 0);
}

#[test]
fn redirects_lead_into_tls_and_never_out_of_it() {
    let bytes = noise(1000);
    let body = Arc::clone(&bytes);
    let server = Server::start(move |request, stream| match request.path.as_str() {
        "/f" => give(request, stream, &body, TAG),
        to => {
            let to = percent_encoding::percent_decode_str(&to[1..]).decode_utf8().unwrap();
            say(stream, &format!("HTTP/1.1 302 x\nLocation: {to}\nContent-Length: 0\n\n"))
        }
    });
    let front = Front::of(server.address);
    let mut client = client(&front);
    client.credentials = Credentials::Bearer("secret".to_owned());
    let into = https(&front, "/f").to_string();
    client.get(&server.url(&format!("/{}", into.replace(':', "%3A")))).unwrap();
    let requests = server.requests();
    assert_eq!(requests[0].field("authorization"), Some("Bearer secret"));
    assert_eq!(requests[1].path, "/f");
    assert_eq!(requests[1].field("authorization"), None, "another scheme is another server");

    std::fs::remove_file(client.path()).unwrap();
    let out = server.url("/f").to_string();
    let failed = client.fails(&https(&front, &format!("/{}", out.replace(':', "%3A"))), "http:");
    let error = &failed.error;
    assert!(
        matches!(error, DownloadError::Client(ClientError::Url(UnusableUrl::Downgrade { .. }))),
        "{error}"
    );
}

#[test]
fn an_untrusted_server_gets_no_request() {
    let server = Server::of(&noise(10));
    let front = Front::of(server.address);
    let elsewhere = Front::of(server.address);
    let mut client = client(&elsewhere);
    let failed = client.fails(&https(&front, "/"), "TLS with localhost:");
    assert!(matches!(handshake(&failed), HandshakeError::Certificate { .. }), "{failed}");
    assert!(!failed.to_string().contains('\n'));

    // The certificate is trusted, but for another name.
    client.tls = front.trusted();
    let other = Url::parse(&format!("https://127.0.0.2:{}/", front.address.port())).unwrap();
    let proxies = Proxies { https: Some(blind_proxy(front.address)), ..Proxies::default() };
    client.proxies = proxies;
    let failed = client.fails(&other, "127.0.0.2");
    assert!(matches!(handshake(&failed), HandshakeError::Certificate { .. }), "{failed}");
    client.proxies = Proxies::default();

    let pins = vec!["sha256//47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=".parse().unwrap()];
    client.tls = TlsSetup::new(Trust { insecure: true, pins, ..Trust::default() });
    let failed = client.fails(&https(&front, "/"), "sha256//");
    let HandshakeError::NotPinned { key } = handshake(&failed) else { panic!("{failed}") };
    assert_eq!(server.requests().len(), 0);

    let pins = vec![*key];
    client.tls = TlsSetup::new(Trust { insecure: true, pins, ..Trust::default() });
    client.get(&https(&front, "/")).unwrap();
}

/// A proxy that connects every client to this address.
fn blind_proxy(to: std::net::SocketAddr) -> Url {
    proxy(move |head, client| {
        assert!(head.starts_with("CONNECT 127.0.0.2:"), "{head}");
        client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").unwrap();
        Some(to)
    })
}

/// A proxy that reads a head and connects to the address that the closure returns, if any.
fn proxy(
    answer: impl Fn(&str, &mut std::net::TcpStream) -> Option<std::net::SocketAddr> + Send + 'static,
) -> Url {
    use std::io::{Read, copy};
    use std::net::{Shutdown, TcpStream};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("http://me:pw@{}", listener.local_addr().unwrap())).unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            let head = String::from_utf8(head).unwrap();
            let Some(to) = answer(&head, &mut client) else { continue };
            let server = TcpStream::connect(to).unwrap();
            let (mut up, mut down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let (mut client, mut server) = (client, server);
            std::thread::spawn(move || {
                let _ = copy(&mut up, &mut server);
                let _ = server.shutdown(Shutdown::Write);
            });
            std::thread::spawn(move || {
                let _ = copy(&mut down, &mut client);
                let _ = client.shutdown(Shutdown::Write);
            });
        }
    });
    url
}

#[test]
fn a_proxy_leads_to_the_server_and_learns_nothing_but_its_address() {
    let bytes = noise(3 << 20);
    let server = Server::of(&bytes);
    let front = Front::of(server.address);
    let (address, heads) = (front.address, Arc::new(std::sync::Mutex::new(Vec::new())));
    let log = Arc::clone(&heads);
    let through = proxy(move |head, client| {
        log.lock().unwrap().push(head.to_owned());
        // The framing fields of this response are ignored (RFC 9110 9.3.6).
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nVia: x\r\n\r\n").unwrap();
        Some(address)
    });
    let mut client = client(&front);
    client.proxies = Proxies { https: Some(through), ..Proxies::default() };
    client.credentials = Credentials::Bearer("secret".to_owned());
    // Only the proxy can resolve this address; the certificate is for it.
    client.get(&Url::parse("https://localhost:1/secret-path?x").unwrap()).unwrap();
    assert!(std::fs::read(client.path()).unwrap() == *bytes);
    for head in &*heads.lock().unwrap() {
        assert!(
            head.starts_with("CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\n"),
            "{head}"
        );
        assert!(head.contains("Proxy-Authorization: Basic bWU6cHc=\r\n"), "{head}");
        assert!(!head.contains("secret"), "{head}");
    }
    let request = &server.requests()[0];
    assert_eq!(request.path, "/secret-path?x");
    assert_eq!(request.field("authorization"), Some("Bearer secret"));
    assert_eq!(request.field("proxy-authorization"), None);
}

#[test]
fn errors_of_a_proxy_are_not_attributed_to_the_server() {
    for (answer, words) in [
        ("", "it closed the connection without a response"),
        ("HTTP/1.1 200", "it closed the connection without a response"),
        ("SSH-2.0-x\r\n", "invalid response from the proxy"),
    ] {
        let through = proxy(move |_, client| {
            client.write_all(answer.as_bytes()).unwrap();
            None
        });
        let mut client = Client::new();
        client.options.retries = 0;
        client.proxies = Proxies { https: Some(through), ..Proxies::default() };
        let failed = client.fails(&Url::parse("https://localhost:1/").unwrap(), words);
        let text = failed.to_string();
        assert!(text.contains("the proxy 127.0.0.1:") && !text.contains("localhost"), "{text}");
    }
}

#[test]
fn a_failing_proxy_is_reported_in_one_line() {
    for (answer, words) in [
        ("407 Who?\r\nContent-Length: 0", "refuses to connect to localhost:1: 407"),
        ("502 x\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\nno route\n", "no route"),
    ] {
        let through = proxy(move |_, client| {
            client.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).unwrap();
            None
        });
        let mut client = Client::new();
        client.options.retries = 0;
        client.proxies = Proxies { https: Some(through), ..Proxies::default() };
        let failed = client.fails(&Url::parse("https://localhost:1/").unwrap(), words);
        let error = &failed.error;
        assert!(matches!(error, DownloadError::Client(ClientError::Proxy(_))), "{error}");
    }
}

#[test]
fn a_server_without_tls_is_distinguished_from_one_that_hangs_up() {
    let server = Server::start(|_, stream| say(stream, "HTTP/1.1 400 x\n\n"));
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = plain.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in plain.incoming() {
            // Responds in plain text to any input, as many servers do.
            let _ = client.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let front = Front::of(server.address);
    let client = client(&front);
    let url = Url::parse(&format!("https://localhost:{port}/")).unwrap();
    client.fails(&url, "does not speak TLS");

    let rude = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = rude.local_addr().unwrap().port();
    std::thread::spawn(move || rude.incoming().for_each(drop));
    let url = Url::parse(&format!("https://localhost:{port}/")).unwrap();
    let failed = client.get(&url).unwrap_err();
    assert!(!failed.to_string().is_empty());
    assert_eq!(client.events("Retrying"), 0, "nobody has ever answered there");
}

#[test]
fn a_handshake_that_never_ends_is_given_up_and_can_be_cancelled() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("https://{}/", silent.local_addr().unwrap())).unwrap();
    let mut client = Client::new();
    client.tls = TlsSetup::new(Trust { insecure: true, ..Trust::default() });
    client.connect_timeout = Duration::from_millis(200);
    client.fails(&url, "TLS handshake with 127.0.0.1");

    client.connect_timeout = Duration::from_secs(600);
    let cancel = AtomicBool::new(false);
    let failed = std::thread::scope(|scope| {
        // The connection of the first attempt, and the one to be cancelled; both stay open.
        let held = scope.spawn(|| {
            let held = (silent.accept().unwrap(), silent.accept().unwrap());
            cancel.store(true, Ordering::Relaxed);
            held
        });
        let failed = client.get_until(&url, Some(&cancel)).unwrap_err();
        held.join().unwrap();
        failed
    });
    assert!(matches!(failed.error, DownloadError::Client(ClientError::Cancelled)), "{failed}");
}
