//! OpenSSL's programs as peers, which can request what rustls cannot: new keys, another handshake.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use underpass_engine::TlsTransport;
use underpass_testkit::{KilledOnDrop, has};
use underpass_transport::tls::Connector;

use crate::rig::{Certificate, Ours, Usable, accept, connect};

/// A program that is killed at the end of the test.
struct Program(KilledOnDrop);

impl Program {
    /// Types a command, and waits until it has been read: commands are recognized only on their
    /// own.
    fn type_in(&mut self, text: &str) {
        let stdin = self.0.stdin.as_mut().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        while rustix::io::ioctl_fionread(&*stdin).unwrap() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Runs `openssl s_client` as the peer of our server.
fn client(certificate: &Certificate, arguments: &[&str]) -> (Ours, Program) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let program = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-servername", "localhost"])
        .arg("-CAfile")
        .arg(certificate.folder.path().join("cert.pem"))
        .args(["-verify_return_error", "-brief"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let program = Program(KilledOnDrop(program.unwrap()));
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    (Ours(accept(&socket, &certificate.acceptor()).unwrap(), socket), program)
}

/// Returns the next line that the client sends.
fn line(ours: &Ours) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while byte != *b"\n" {
        assert_eq!(ours.receive(&mut byte), Ok(1));
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

#[test]
fn openssl_changes_its_keys_and_asks_for_ours() {
    if !has("openssl") {
        return;
    }
    let certificate = Certificate::new();
    let (ours, mut program) = client(&certificate, &["-tls1_3"]);
    for command in ["k\n", "K\n", "K\n"] {
        program.type_in("one\n");
        assert_eq!(line(&ours), "one\n");
        ours.send(b"two\n").unwrap();
        program.type_in(command);
    }
    program.type_in("three\n");
    assert_eq!(line(&ours), "three\n");
    ours.send(b"four\n").unwrap();
    ours.close();
    let mut heard = String::new();
    program.0.stdout.as_mut().unwrap().read_to_string(&mut heard).unwrap();
    assert!(heard.ends_with("two\ntwo\ntwo\nfour\n"), "{heard}");
}

#[test]
fn renegotiation_is_refused() {
    if !has("openssl") {
        return;
    }
    let certificate = Certificate::new();
    let (ours, mut program) = client(&certificate, &["-tls1_2"]);
    program.type_in("one\n");
    assert_eq!(line(&ours), "one\n");
    program.type_in("R\n");
    // OpenSSL treats our no_renegotiation as a failure and disconnects.
    let end = ours.receive(&mut [0]);
    assert!(matches!(end, Err(Errno::CONNRESET | Errno::CONNABORTED)), "{end:?}");
}

#[test]
fn our_client_reads_what_openssl_serves() {
    if !has("openssl") {
        return;
    }
    let certificate = Certificate::new();
    for version in ["-tls1_2", "-tls1_3"] {
        let (_program, port) = server(&certificate, version);
        let connector: Connector = certificate.connector();
        for round in 0..2 {
            let socket = reach(port);
            socket.set_nonblocking(true).unwrap();
            let ours = Ours(connect(&socket, &connector).unwrap(), socket);
            ours.send(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            let page = String::from_utf8(ours.receive_all(5000).unwrap()).unwrap();
            assert!(page.starts_with("HTTP/1.0 200 ok\r\n"), "{page}");
            assert!(page.contains("s_server"), "{page}");
            assert_eq!(ours.0.facts().is_resumed, round == 1, "{version}");
            ours.close();
            assert!(ours.0.flush(ours.1.as_fd()).is_ok());
        }
    }
}

/// Runs `openssl s_server`, and returns it with its port.
fn server(certificate: &Certificate, version: &str) -> (Program, u16) {
    let folder = certificate.folder.path();
    // Another process may take the port first.
    for _ in 0..10 {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let program = Command::new("openssl")
            .args(["s_server", "-accept", &port.to_string(), "-www", "-quiet", version])
            .arg("-cert")
            .arg(folder.join("cert.pem"))
            .arg("-key")
            .arg(folder.join("key.pem"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut program = Program(KilledOnDrop(program.unwrap()));
        while program.0.try_wait().unwrap().is_none() {
            // A connection that ends at once makes it print nothing.
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return (program, port);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    panic!("openssl cannot listen on any port");
}

/// Connects to a server that may not have started yet.
fn reach(port: u16) -> TcpStream {
    for _ in 0..500 {
        if let Ok(socket) = TcpStream::connect(("127.0.0.1", port)) {
            return socket;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("nobody listens on port {port}");
}
