//! Access to the real server, and the cost of refusing clients.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::symlink;

use crate::rig::{Running, folder, has, serve_by, traced};
use underpass_testkit::http::Client;
use underpass_testkit::mounts::{FileSystem, Mounted};

/// `secret`, in 32 MiB of memory.
const HASH: &str = "$argon2id$v=19$m=32768,t=1,p=1$c2FsdHN0cmluZw$\
    a7XsjjIZycL0ShHOW+qma7Cmpwx+hgtXyDndbsUPlBY";

/// `me:secret` in Base64.
const RIGHT: &str = "bWU6c2VjcmV0";

/// Digits of Base64, of which any make a wrong password.
const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOP";

/// A server of an empty folder with these options.
fn serve(served: &std::path::Path, args: &[&str]) -> Running {
    crate::rig::serve(served, &[&["-q"], args].concat())
}

fn ask(server: &Running, fields: &str) -> Client {
    send(server, "GET /", fields)
}

/// Sends a request with this method and path.
fn send(server: &Running, line: &str, fields: &str) -> Client {
    let (host, mut client) = (server.host(), Client::new(server.connect()));
    client.send(format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n"));
    client
}

/// The most memory that a process had, in MiB.
fn peak(server: &Running) -> u64 {
    server.peak_kib().unwrap() / 1024
}

#[test]
fn passwords_are_checked_in_the_memory_of_one_check() {
    let folder = folder();
    let server = serve(folder.path(), &["-a", &format!("me:{HASH}@/")]);
    let before = peak(&server);
    let guessing: Vec<_> = DIGITS
        .iter()
        .map(|digit| {
            let digit = char::from(*digit);
            ask(&server, &format!("Authorization: Basic bWU6eHh4{digit}{digit}{digit}{digit}\r\n"))
        })
        .collect();
    let right = format!("Authorization: Basic {RIGHT}\r\n");
    assert_eq!(ask(&server, &right).finish().status, 200);
    for client in guessing {
        assert!(matches!(client.finish().status, 401 | 429));
    }
    let more = peak(&server) - before;
    assert!(more < 96, "{more} MiB for {} passwords of 32 MiB each", DIGITS.len());
}

#[test]
fn anonymous_write_access_is_warned_of() {
    let folder = folder();
    let warning = |args: &[&str]| {
        let server = serve(folder.path(), args);
        server.signal("TERM");
        server.finish().stderr.contains("WARNING: anyone on the network may change files")
    };
    assert!(warning(&["-A", "-b", "0.0.0.0"]));
    assert!(warning(&["--allow-upload", "-b", "0.0.0.0", "-a", "@/in:rw", "-a", "me:word@/"]));
    assert!(!warning(&["-A"]), "only this machine can connect");
    assert!(!warning(&["-b", "0.0.0.0"]), "nothing can be changed");
    assert!(!warning(&["-A", "-b", "0.0.0.0", "-a", "me:word@/:rw", "-a", "@/"]));
}

#[test]
fn an_unknown_host_name_is_refused_on_loopback() {
    let folder = folder();
    fs::write(folder.path().join("a"), "contents").unwrap();
    let status = |server: &Running, host: &str| {
        // Every address is printed with an example behind it.
        let address = server.host().replace("0.0.0.0", "127.0.0.1");
        let mut client = Client::new(TcpStream::connect(address).unwrap());
        client.send(format!("GET /a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        client.finish().status
    };
    let strict = serve(folder.path(), &["-A"]);
    assert_eq!((status(&strict, "rebound.example"), status(&strict, "localhost")), (421, 200));
    let all = serve(folder.path(), &["-b", "0.0.0.0"]);
    assert_eq!(status(&all, "rebound.example"), 421, "it came to a loopback address all the same");
    let named =
        serve(folder.path(), &["--allow-host", "files.example", "--allow-host", "b.example"]);
    assert_eq!((status(&named, "files.example"), status(&named, "c.example")), (200, 421));
}

#[test]
fn a_confined_server_follows_links_and_knows_where_they_lead() {
    let folder = folder();
    fs::create_dir(folder.path().join("real")).unwrap();
    fs::write(folder.path().join("real/file"), "contents").unwrap();
    fs::write(folder.path().join(".hidden"), "hidden").unwrap();
    symlink("real", folder.path().join("link")).unwrap();
    symlink(".hidden", folder.path().join("shown")).unwrap();
    let server = serve(folder.path(), &["-A"]);
    let status = |verb: &str, path: &str| {
        send(&server, &format!("{verb} {path}"), "Content-Length: 0\r\n").finish().status
    };
    assert_eq!(status("GET", "/link/file"), 200);
    assert_eq!(status("GET", "/shown"), 404);
    assert_eq!(status("PUT", "/link/new"), 201);
    assert!(folder.path().join("real/new").exists());
}

#[test]
fn hidden_names_are_hidden_in_any_case_where_the_file_system_ignores_it() {
    let Some(mounted) = Mounted::new(FileSystem::NoCase, 16) else { return };
    let served = mounted.root();
    fs::create_dir(served.join("private")).unwrap();
    for file in ["x.log", "private/file", "seen"] {
        fs::write(served.join(file), "text").unwrap();
    }
    let server = serve(&served, &["--hide", "*.log", "--hide", "/private/**", "--allow-all"]);
    for path in ["x.log", "x.LOG", "X.Log", "private/file", "PRIVATE/file", "Private/FILE"] {
        for method in ["GET", "DELETE"] {
            let reply = send(&server, &format!("{method} /{path}"), "").finish();
            assert!(matches!(reply.status, 400..410), "{method} {path}: {reply:?}");
        }
    }
    assert_eq!(send(&server, "GET /SEEN", "").finish().status, 200);
    assert!(served.join("x.log").exists() && served.join("private/file").exists());
}

#[test]
fn rules_and_locks_hold_in_any_case_where_the_file_system_ignores_it() {
    let Some(mounted) = Mounted::new(FileSystem::NoCase, 16) else { return };
    let served = mounted.root();
    for folder in ["kept", "pub", "d/sub"] {
        fs::create_dir_all(served.join(folder)).unwrap();
    }
    for file in ["kept/s.txt", "pub/doc", "d/f", "d/sub/f"] {
        fs::write(served.join(file), "text").unwrap();
    }
    let server = serve(&served, &["-A", "-a", "bob:pw@/:rw,/kept", "-a", "eve:e@/:rw"]);
    let status = |user: &str, line: &str, fields: &str| {
        let fields = format!("Authorization: Basic {user}\r\n{fields}Content-Length: 0\r\n");
        send(&server, line, &fields).finish().status
    };
    let (bob, eve) = ("Ym9iOnB3", "ZXZlOmU=");
    for folder in ["kept", "KEPT", "Kept"] {
        for line in
            ["PUT /DIR/n", "PUT /DIR/s.txt", "PUT /DIR/S.TXT", "DELETE /DIR", "MKCOL /DIR/n"]
        {
            let line = line.replace("DIR", folder);
            assert_eq!(status(bob, &line, ""), 403, "{line}");
        }
        let moved = format!("MOVE /{folder}/s.txt");
        assert_eq!(status(bob, &moved, "Destination: /pub/moved\r\n"), 403, "{moved}");
        let over = format!("Destination: /{folder}/s.txt\r\n");
        assert_eq!(status(bob, "COPY /pub/doc", &over), 403, "{over}");
        assert_eq!(fs::read(served.join(folder).join("s.txt")).unwrap(), b"text");
    }
    let is_inside = ["MOVE /d/sub /D", "COPY /d /D/x", "MOVE /d /D/sub/x", "COPY /D/SUB /d"];
    for line in is_inside {
        let (line, to) = line.rsplit_once(' ').unwrap();
        let fields = format!("Destination: {to}\r\nOverwrite: T\r\n");
        assert_eq!(status(eve, line, &fields), 403, "{line} {to}");
    }
    assert!(served.join("d/f").exists() && served.join("d/sub/f").exists());
    let lock = "<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope>\
                <locktype><write/></locktype></lockinfo>";
    let locked = |user: &str, path: &str| {
        let fields = format!("Authorization: Basic {user}\r\nContent-Length: {}\r\n", lock.len());
        let mut client = send(&server, &format!("LOCK {path}"), &fields);
        client.send(lock);
        client.finish().status
    };
    assert_eq!(locked(bob, "/pub/doc"), 200);
    for line in ["PUT /pub/DOC", "PUT /PUB/doc", "DELETE /PUB", "DELETE /Pub/Doc"] {
        assert_eq!(status(eve, line, ""), 423, "{line}");
    }
    assert_eq!(locked(eve, "/Pub/Doc"), 423);
    assert_eq!(status(eve, "PUT /PUB/new", ""), 201);
}

#[test]
fn a_link_that_cannot_be_followed_for_want_of_descriptors_is_not_replaced() {
    if !has("strace") {
        return;
    }
    let (served, other) = (folder(), folder());
    let link = served.path().join("in/link");
    for name in ["in", "private"] {
        fs::create_dir(served.path().join(name)).unwrap();
    }
    fs::write(served.path().join("private/file"), "text").unwrap();
    symlink("../private/file", &link).unwrap();
    let rules = ["--workers", "1", "-A", "-a", "bob:pw@/in:rw", "-a", "eve:e@/:rw"];
    let fields = "Authorization: Basic Ym9iOnB3\r\nContent-Length: 0\r\n";
    // Calls of the thread that receives the upload; those of the start are fewer.
    let mut refused = 0;
    for when in 4..9 {
        let inject = format!("inject=openat2:error=EMFILE:when={when}");
        let command = traced(&other.path().join("trace"), &["-e", "trace=openat2", "-e", &inject]);
        let server = serve_by(command, &served, &rules);
        let reply = send(&server, "PUT /in/link", fields).finish();
        assert!(matches!(reply.status, 403 | 503), "call {when}: {reply:?}");
        assert!(link.is_symlink(), "call {when}");
        refused += u32::from(reply.status == 503);
    }
    assert!(refused > 0, "no call of the thread was reached");
}
