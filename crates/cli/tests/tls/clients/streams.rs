//! `send` and `recv` over TLS.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::clients::site::{Authority, free_port, until_listening};
use crate::rig::{Finished, Running, folder, has, names, noise, noise_file, run, underpass};

const LEN: usize = (8 << 20) + 77;

/// A side that listens, with a certificate made for the occasion; also the pin that it tells.
fn listens(args: &[&str], path: &Path) -> (Running, String) {
    let mut command = underpass();
    command.args(args).args(["--tls", "--listen", "127.0.0.1:0"]).arg(path);
    let mut child = command.spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        line.trim().to_owned()
    };
    let address = line().strip_prefix("listening on ").unwrap().to_owned();
    let pin = line().rsplit_once("--tls --pin ").unwrap().1.to_owned();
    (Running::watched(child, address, errors), pin)
}

/// A side that connects.
fn connects(args: &[&str], paths: [&Path; 2]) -> Finished {
    let mut command = underpass();
    command.args(args).arg("--tls").args(paths);
    Running::start(command).finish()
}

#[test]
fn either_side_may_listen_and_the_other_verifies_its_pin() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", LEN);
    let target = folder.path().join("target");
    let (receiver, pin) = listens(&["recv", "--json"], &target);
    let address = Path::new(&receiver.address).to_owned();
    let sent = connects(&["send", "--json", "--pin", &pin], [&source, &address]).succeeded();
    let received = receiver.finish().succeeded();
    assert!(fs::read(&target).unwrap() == noise(LEN));
    for receipt in [sent.receipt(), received.receipt()] {
        assert_eq!(receipt["bytes"], LEN);
        assert_eq!(receipt["tls"]["version"], "TLSv1.3");
        let copied = if receipt["tls"]["where"] == "kernel" { 0 } else { 2 * LEN };
        assert_eq!(receipt["user_space_bytes"], copied);
    }

    let target = folder.path().join("other");
    let (sender, pin) = listens(&["send", "--explain"], &source);
    let address = Path::new(&sender.address).to_owned();
    connects(&["recv", "--pin", &pin, "--size", &LEN.to_string()], [&address, &target]).succeeded();
    let finished = sender.finish().succeeded();
    assert!(finished.stderr.contains("  tls          TLSv1.3, "), "{}", finished.stderr);
    assert!(fs::read(&target).unwrap() == noise(LEN));
}

#[test]
fn an_unpinned_receiver_gets_no_bytes() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", LEN);
    let wrong = "sha256//47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
    for (args, words) in
        [(&["send", "--pin", wrong][..], "not a pinned"), (&["send"], "self-signed")]
    {
        let target = folder.path().join("target");
        let (receiver, _) = listens(&["recv"], &target);
        let address = Path::new(&receiver.address).to_owned();
        let finished = connects(args, [&source, &address]).failed(1, &[words]);
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
        assert_eq!(receiver.finish().code(), Some(1));
        assert_eq!(names(folder.path()), ["source"]);
    }
}

#[test]
fn a_truncated_stream_is_an_error() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", LEN);
    let target = folder.path().join("target");
    let (receiver, pin) = listens(&["recv"], &target);
    // A relay on the way ends the stream in good order, but too early.
    let cutter = TcpListener::bind("127.0.0.1:0").unwrap();
    let (between, behind) = (cutter.local_addr().unwrap().to_string(), receiver.address.clone());
    let cut = std::thread::spawn(move || {
        let (client, _) = cutter.accept().unwrap();
        let server = TcpStream::connect(behind).unwrap();
        let (mut back, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let answers = std::thread::spawn(move || std::io::copy(&mut back, &mut to_client));
        let (mut some, mut server) = (client.take(1 << 20), server);
        std::io::copy(&mut some, &mut server).unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        // The receiver has its end, and leaves.
        let _ = answers.join().unwrap();
    });
    let between = Path::new(&between);
    let sent = connects(&["send", "--pin", &pin], [&source, between]);
    receiver.finish().failed(1, &["cut", "without close_notify"]);
    cut.join().unwrap();
    assert_eq!(sent.code(), Some(1));
    assert_eq!(names(folder.path()), ["source"], "a part is nothing");
}

#[test]
fn a_size_that_has_arrived_is_no_end_either() {
    let folder = folder();
    let target = folder.path().join("target");
    let (receiver, pin) = listens(&["recv", "--size", "100000"], &target);
    let mut command = underpass();
    command.args(["send", "--tls", "--pin", &pin, "-", &receiver.address]).stdin(Stdio::piped());
    let mut sender = Running::start(command);
    sender.child.stdin.as_mut().unwrap().write_all(&noise(100_000)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    sender.signal("KILL");
    receiver.finish().failed(1, &["target"]);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn openssl_speaks_with_either_side() {
    if !has("openssl") {
        return;
    }
    let folder = folder();
    let source = noise_file(folder.path(), "source", 1 << 20);
    let authority = Authority::new();
    let (certificate, key) = authority.issue("localhost");
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let sender = {
        let mut command = underpass();
        command.args(["send", "--tls", "--tls-cert", certificate, "--tls-key", key]);
        Running::listening({
            command.args(["--listen", &listen]).arg(&source);
            command
        })
    };
    let mut client = Command::new("openssl");
    client.args(["s_client", "-quiet", "-verify_return_error", "-CAfile", &authority.path()]);
    client.args(["-connect", &format!("localhost:{port}"), "-verify_hostname", "localhost"]);
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = Running::start(client);
    let input = client.child.stdin.take();
    sender.finish().succeeded();
    drop(input);
    assert!(client.finish().stdout == noise(1 << 20));

    let port = free_port();
    let mut server = Command::new("openssl");
    server.args(["s_server", "-quiet", "-naccept", "2", "-cert", certificate, "-key", key]);
    server.args(["-accept", &format!("127.0.0.1:{port}")]);
    server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Running::start(server);
    // At the end of its input it would leave with what it has not printed yet.
    let input = server.child.stdin.take();
    // The first of the two that it takes.
    until_listening(port);
    let address = format!("localhost:{port}");
    let args = ["send", "--cacert", &authority.path()];
    connects(&args, [&source, Path::new(&address)]).succeeded();
    assert!(server.finish().stdout == noise(1 << 20));
    drop(input);
}

#[test]
fn contradicting_tls_options_are_refused() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 10);
    let source = source.to_str().unwrap();
    for (args, words) in [
        (&["send", source, "127.0.0.1:1", "--insecure"][..], "--tls"),
        (&["send", source, "unix:/x", "--tls"], "Unix"),
        (&["send", source, "127.0.0.1:1", "--tls", "--tls-cert", "a", "--tls-key", "b"], "listens"),
        (&["recv", "--listen", "127.0.0.1:0", "--tls", "-k"], "connects"),
        (&["recv", "--listen", "127.0.0.1:0", "--tls", "--tls-cert", "a"], "--tls-key"),
    ] {
        run(args).failed(2, &[words]);
    }
    run(["recv", "--listen", "127.0.0.1:0", "--tls", "--tls-cert", "/no/a", "--tls-key", "/no/b"])
        .failed(1, &["/no/a"]);
}

#[test]
fn a_peer_without_tls_is_reported() {
    let folder = folder();
    let target = folder.path().join("target");
    let (receiver, _) = listens(&["recv"], &target);
    let mut peer = TcpStream::connect(&receiver.address).unwrap();
    peer.write_all(b"just some words without any TLS at all\n").unwrap();
    receiver.finish().failed(1, &["does not speak TLS"]);
    assert_eq!(names(folder.path()), [""; 0]);
    until_gone(&mut peer);
}

/// The peer has ended the connection.
fn until_gone(peer: &mut TcpStream) {
    let _ = peer.read_to_end(&mut Vec::new());
}
