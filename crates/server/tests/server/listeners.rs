//! Listening sockets, and a server that runs out of descriptors.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Resource, getrlimit, setrlimit};
use underpass_server::{Address, Control, Server};
use underpass_testkit::KilledOnDrop;

use super::rig::{Client, Site, pattern, request, settings, wait_until};

/// Connects until nothing more can wait to be accepted.
fn fill_backlog(path: &Path) -> Vec<OwnedFd> {
    let address = SocketAddrUnix::new(path).unwrap();
    let connect_once = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        connect(&socket, &address).map(|()| socket)
    };
    std::iter::repeat_with(connect_once).map_while(Result::ok).collect()
}

/// A site at a socket in its own folder.
fn site() -> Site {
    let mut site = Site::of(&[("a", b"first")]);
    site.write("large", &pattern(5 << 20));
    site.address = Address::Unix(site.path("socket"));
    site
}

#[test]
fn a_unix_socket_serves_like_a_port() {
    let site = site().start();
    let path = site.path("socket").display().to_string();
    assert_eq!(site.address, format!("unix:{path}"));
    let mut client = Client::unix(&path).unwrap();
    assert_eq!(client.get("/a").text(), "first");
    assert!(client.get("/large").body == pattern(5 << 20));
    // It cannot be reset, so only a length tells a part from the whole.
    let mut old = Client::unix(&path).unwrap();
    old.send("GET /?simple HTTP/1.0\r\n\r\n");
    let listing = old.reply();
    assert_eq!(listing.field("Content-Length"), Some(&*listing.body.len().to_string()));
    assert_eq!(client.ask("GET", "/a", &["Range: bytes=1-2", "Connection: close"]).text(), "ir");
    assert!(client.is_closed());
    assert_eq!(site.record("\"target\":\"/large\"")["complete"], true);
    site.control.drain();
    wait_until("it has ended", || site.has_ended());
    assert!(!site.path("socket").exists(), "its socket goes with it");
}

#[test]
fn a_unix_socket_has_the_configured_permissions() {
    for mode in [0o600, 0o666] {
        let site = site().with(|settings| settings.socket_mode = Some(mode)).start();
        let found = fs::metadata(site.path("socket")).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode);
    }
}

#[test]
fn a_socket_that_was_left_behind_is_replaced() {
    let site = site();
    drop(UnixListener::bind(site.path("socket")).unwrap());
    assert!(site.path("socket").exists());
    let site = site.start();
    let mut client = Client::unix(&site.path("socket").display().to_string()).unwrap();
    assert_eq!(client.get("/a").text(), "first");
}

#[test]
fn a_server_that_drains_leaves_the_socket_of_its_successor() {
    let site = site().start();
    let path = site.path("socket");
    let mut client = Client::unix(&path.display().to_string()).unwrap();
    client.send(request("GET", "/large", &["Connection: close"]));
    assert_eq!(client.head().unwrap().status, 200);
    site.control.drain();
    wait_until("its path is free", || !path.exists());
    let _successor = UnixListener::bind(&path).unwrap();
    assert!(client.end().is_ok(), "the download ends as it would have");
    site.control.stop();
    wait_until("it has ended", || site.has_ended());
    assert!(path.exists());
}

#[test]
fn a_socket_that_was_replaced_is_left_alone() {
    let site = site().start();
    let path = site.path("socket");
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    site.control.stop();
    wait_until("it has ended", || site.has_ended());
    assert!(path.exists());
}

#[test]
fn a_socket_in_use_and_a_file_are_left_alone() {
    let taken = site();
    let path = taken.path("socket");
    let listener = UnixListener::bind(&path).unwrap();
    // Even if its program accepts nothing, and no other connection can wait for that.
    rustix::net::listen(&listener, 0).unwrap();
    let waiting = fill_backlog(&path);
    let error = taken.try_start().err().unwrap().to_string();
    assert!(error.contains("socket") && error.contains("in use"), "{error}");
    drop((waiting, listener));

    let taken = site();
    let path = taken.path("socket");
    taken.write("socket", b"a file");
    let mut other = Site::new();
    other.address = taken.address.clone();
    let error = other.try_start().err().unwrap().to_string();
    assert!(error.contains("non-socket"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"a file");
}

#[test]
fn a_port_in_use_is_refused_even_if_its_owner_would_share_it() {
    let first = Site::of(&[("a", b"first")]).with(|settings| settings.workers = 2).start();
    let mut second = Site::new();
    second.address = Address::Tcp(first.socket());
    let error = second.try_start().err().unwrap().to_string();
    assert!(error.contains(&first.address), "{error}");
    assert_eq!(first.get("/a").text(), "first");
}

#[test]
fn an_inherited_socket_is_served() {
    let site = Site::of(&[("a", b"first")]).with(|settings| settings.workers = 2);
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let server = Server::bind(settings(&site.path("")), &[], vec![OwnedFd::from(socket)]);
    let server = server.unwrap();
    assert_eq!(server.addresses(), [address.to_string()]);
    let control = Control::new();
    let remote = control.clone();
    let thread = std::thread::spawn(move || server.run(remote, |_| {}, |_| {}).unwrap());
    for _ in 0..10 {
        let mut client = Client::new(TcpStream::connect(address).unwrap());
        assert_eq!(client.get("/a").text(), "first");
    }
    control.stop();
    assert_eq!(thread.join().unwrap().requests, 10);
}

#[test]
fn ipv6_is_served_too() {
    let mut site = Site::of(&[("a", b"first")]);
    site.address = Address::Tcp("[::1]:0".parse().unwrap());
    let Ok(site) = site.try_start() else {
        super::rig::skip("there is no IPv6 here");
        return;
    };
    assert_eq!(site.get("/a").text(), "first");
    assert_eq!(site.record("\"target\":\"/a\"")["remote"], "::1");
}

/// Tells a process of this test binary to be the server.
const IS_SERVER: &str = "UNDERPASS_TEST_IS_SERVER";

/// Not a test: the server of the test below, in a process that may open few files.
#[test]
#[ignore = "started by another test"]
fn server_with_few_descriptors() {
    if std::env::var_os(IS_SERVER).is_none() {
        return;
    }
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(40);
    setrlimit(Resource::Nofile, limit).unwrap();
    let site = Site::of(&[("a", b"first")]).start();
    eprintln!("listening on {}", site.address);
    // Until the test closes the pipe.
    let _ = std::io::stdin().read(&mut [0]);
    eprintln!("notes: {:?}", site.notes());
}

#[test]
fn a_server_out_of_descriptors_recovers_when_some_are_free() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "listeners::server_with_few_descriptors"])
        .env(IS_SERVER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut served = KilledOnDrop(child.unwrap());
    let mut said = BufReader::new(served.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("listening on ") {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "it never listened");
    }
    let address = line.trim_end().strip_prefix("listening on ").unwrap().to_owned();
    let connect = || Client::new(TcpStream::connect(&address).unwrap());
    // More than it can have: the first are closed so that the last can be served.
    let mut clients: Vec<_> = (0..80).map(|_| connect()).collect();
    std::thread::sleep(Duration::from_millis(300));
    // Its file may have no descriptor left, but it gets an answer.
    let reply = clients[79].get("/a");
    assert!(matches!(reply.status, 200 | 503), "{reply:?}");
    clients.drain(..72);
    for client in &mut clients {
        // How many had to make room depends on the descriptors with which this process began.
        if let Ok(reply) = client.try_ask("GET", "/a", &[]) {
            assert!(matches!(reply.status, 200 | 503), "{reply:?}");
        }
    }
    drop(clients);
    wait_until("it serves as before", || {
        connect().try_ask("GET", "/a", &[]).is_ok_and(|reply| reply.text() == "first")
    });
    drop(served.stdin.take());
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("AcceptFailed"), "{rest}");
    assert_eq!(rest.matches("AcceptFailed").count(), 1, "reported at most once a minute");
}
