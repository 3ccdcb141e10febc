//! Bounds on the memory that clients without any rights can make the server hold.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::rig::{Running, end, folder, has, limited, serve_by, under, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use underpass_testkit::http::Client;
use underpass_testkit::{is_root, skip};

/// A server of one small file on a free port of loopback.
fn serve(args: &[&str]) -> (tempfile::TempDir, Running) {
    let folder = folder();
    fs::write(folder.path().join("a"), "first").unwrap();
    let server = crate::rig::serve(&folder, &[&["--workers", "1"], args].concat());
    (folder, server)
}

/// The most memory that a process has had resident so far, in MiB.
fn peak_mib(server: &Running) -> u64 {
    server.peak_kib().unwrap() / 1024
}

/// Whether the server still answers another client.
fn answers(server: &Running) -> bool {
    Client::new(server.connect()).get("/a").body == b"first"
}

#[test]
fn unread_responses_are_limited() {
    let (_folder, server) = serve(&[]);
    let before = peak_mib(&server);
    // Each of these requests would be kept for the log until its answer is acknowledged.
    let (query, agent) = ("q".repeat(20_000), "u".repeat(10_000));
    let request =
        format!("GET /a?{query} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {agent}\r\n\r\n");
    let mut client = server.connect();
    client.set_nonblocking(true).unwrap();
    let (mut sent, mut last) = (0, Instant::now());
    while sent < 60 << 20 && last.elapsed() < Duration::from_secs(1) {
        let rest = &request.as_bytes()[sent % request.len()..];
        match client.write(rest) {
            Ok(written) => (sent, last) = (sent + written, Instant::now()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(answers(&server));
    let grown = peak_mib(&server) - before;
    assert!(grown < 8, "{grown} MiB for {sent} bytes of requests");
}

#[test]
fn long_requests_that_are_sent_ahead_delay_a_new_client_by_few_of_them() {
    const CLIENTS: usize = 100;
    const REQUESTS: usize = 12;
    let (_folder, server) = serve(&[]);
    let request = format!("GET /a?{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "q".repeat(5000));
    // All come at the same moment for the server.
    server.signal("STOP");
    let ahead: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = server.connect();
            client.write_all(request.repeat(REQUESTS).as_bytes()).unwrap();
            client
        })
        .collect();
    let mut new = Client::new(server.connect());
    new.send("GET /.underpass/metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    server.signal("CONT");
    let metrics = String::from_utf8(new.finish().body).unwrap();
    let answered: usize = metrics
        .lines()
        .find_map(|line| line.strip_prefix("underpass_requests_total{code=\"200\"} "))
        .map_or(0, |count| count.parse().unwrap());
    // It is accepted last, but each of the others has only one or two before it.
    assert!(answered < CLIENTS / 2, "{answered} of {}", CLIENTS * REQUESTS);
    drop(ahead);
}

#[test]
fn requests_that_are_not_complete_have_a_bound_together() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let (_folder, server) = serve(&["--max-per-address", "0"]);
    let before = peak_mib(&server);
    let head = format!("GET /a HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(31_000));
    let mut clients: Vec<_> = (0..3000)
        .filter_map(|_| {
            let mut client = server.connect();
            // Those that came too late are refused, which may be before all of it is sent.
            match client.write_all(head.as_bytes()) {
                Ok(()) => Some(client),
                Err(_) => None,
            }
        })
        .collect();
    assert!(answers(&server));
    let mut refused = 3000 - clients.len();
    clients.iter().for_each(|client| client.set_nonblocking(true).unwrap());
    // There is room for some 2,100. They are read one after another, behind the one that was answered.
    until("refusals", || {
        for client in &mut clients {
            let mut reply = [0; 12];
            let is_read = matches!(client.read(&mut reply), Ok(12));
            refused += usize::from(is_read && &reply[9..] == b"503");
        }
        refused > 600
    });
    let grown = peak_mib(&server) - before;
    assert!(grown < 110, "{grown} MiB for {} connections", clients.len());
}

#[test]
fn archives_leave_descriptors_to_others() {
    let folder = folder();
    fs::write(folder.path().join("a"), "first").unwrap();
    for number in 0..60 {
        fs::write(folder.path().join(format!("{number}")), vec![b'x'; 100_000]).unwrap();
    }
    let args = ["--workers", "1", "--max-connections", "600"];
    let server = serve_by(limited("-n 1024"), &folder, &args);
    let mut clients: Vec<_> = (0..250)
        .map(|_| {
            let mut client = server.connect();
            client.write_all(b"GET /?archive=tar HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            client
        })
        .collect();
    let mut statuses = [0, 0];
    for client in &mut clients {
        let mut reply = [0; 12];
        client.read_exact(&mut reply).unwrap();
        statuses[usize::from(&reply[9..] == b"503")] += 1;
    }
    assert!(statuses[0] >= 8 && statuses[1] > 0, "{statuses:?}");
    let open = fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count();
    assert!(open < 250 + 150, "{open} descriptors for {statuses:?} archives");
    assert!(answers(&server));
    // A response without files needs none.
    let reply = Client::new(server.connect()).ask("HEAD", "/?archive=tar", &[]);
    assert_eq!(reply.status, 200, "{reply:?}");
    // What they had is given back.
    drop(clients);
    until("an archive is sent again", || {
        let mut client = Client::new(server.connect());
        client.send("GET /?archive=tar HTTP/1.0\r\n\r\n");
        let reply = client.finish();
        reply.status == 200 && reply.body.len() > 6_000_000
    });
}

#[test]
fn each_connection_can_be_sent_a_file_of_its_own() {
    let folder = folder();
    fs::write(folder.path().join("a"), "first").unwrap();
    for number in 0..600 {
        let file = File::create(folder.path().join(format!("{number}"))).unwrap();
        file.set_len(64 << 20).unwrap();
    }
    let args = ["-q", "--workers", "2", "--max-per-address", "0"];
    let server = serve_by(limited("-n 1024"), &folder, &args);
    // Files that are not being sent stay open for a while.
    for number in 0..600 {
        let reply = Client::new(server.connect()).ask("HEAD", &format!("/{number}"), &[]);
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    let clients: Vec<_> = (0..600)
        .map(|number| {
            let mut client = server.connect();
            let request = format!("GET /{number} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            // A connection too many is refused at once.
            let _ = client.write_all(request.as_bytes());
            client
        })
        .collect();
    let count_answers = || {
        let mut statuses = [0, 0];
        for client in &clients {
            let mut head = [0; 12];
            client.set_nonblocking(true).unwrap();
            if client.peek(&mut head).is_ok_and(|len| len == head.len()) {
                statuses[usize::from(&head[9..] == b"503")] += 1;
            }
        }
        statuses
    };
    until("all who may connect are sent a file", || count_answers()[0] >= 240);
    let open = fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count();
    assert!(open < 900, "{open} descriptors, answers {:?}", count_answers());
    drop(clients);
    let (finished, _) = end(server);
    assert!(!finished.stderr.contains("Too many open files"), "{}", finished.stderr);
}

/// Sends a request with a body over a connection of its own.
fn send(server: &Running, head: &str, body: &str) -> TcpStream {
    let mut client = server.connect();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = body.len();
    let head = format!("{head}\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    client.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice()).unwrap();
    client
}

#[test]
fn unread_properties_are_limited() {
    let (_folder, server) = serve(&["--allow-upload", "--sync", "off"]);
    let owner = "o".repeat(900);
    let lock = format!(
        "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:shared/></D:lockscope>\
         <D:locktype><D:write/></D:locktype><D:owner>{owner}</D:owner></D:lockinfo>"
    );
    let mut statuses = Vec::new();
    for _ in 0..256 {
        let mut reply = [0; 12];
        let head = "LOCK / HTTP/1.1\r\nDepth: infinity";
        send(&server, head, &lock).read_exact(&mut reply).unwrap();
        statuses.push(String::from_utf8(reply[9..].to_vec()).unwrap());
    }
    assert_eq!((statuses[0].as_str(), statuses[255].as_str()), ("200", "503"));
    let before = peak_mib(&server);
    let names = "<D:lockdiscovery/>".repeat(64);
    let wanted = format!("<D:propfind xmlns:D='DAV:'><D:prop>{names}</D:prop></D:propfind>");
    let head = "PROPFIND / HTTP/1.1\r\nDepth: 0";
    let mut clients: Vec<_> = (0..10).map(|_| send(&server, head, &wanted)).collect();
    for client in &mut clients {
        let mut reply = [0; 12];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply[9..], b"207");
    }
    let grown = peak_mib(&server) - before;
    assert!(grown < 16, "{grown} MiB for 10 connections");
}

/// The processor time that a server has spent, or a thread of it, in ticks.
fn ticks(server: &Running, thread: &str) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/{thread}stat", server.child.id())).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[test]
fn names_of_an_archive_are_not_sorted_on_worker_threads() {
    let (_folder, server) = serve(&[]);
    let names: String =
        (0..190_000).map(|number| format!("entry={:04x}\n", number % 65_536)).collect();
    let mut reply = [0; 12];
    send(&server, "POST /?archive=zip HTTP/1.1", &names).read_exact(&mut reply).unwrap();
    assert_eq!(&reply[9..], b"404");
    let tasks = fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    let mut worker = None;
    for task in tasks {
        let name = task.unwrap().file_name().into_string().unwrap();
        // Other threads may end meanwhile, but the first ones do not.
        let comm = fs::read_to_string(format!("/proc/{}/task/{name}/comm", server.child.id()));
        if comm.is_ok_and(|comm| comm.starts_with("worker-")) {
            worker = Some(ticks(&server, &format!("task/{name}/")));
        }
    }
    let (worker, all) = (worker.unwrap(), ticks(&server, ""));
    assert!(worker < all / 2, "{worker} of {all} ticks");
}

#[test]
fn uploads_of_one_address_leave_descriptors_for_others() {
    let folder = folder();
    fs::write(folder.path().join("a"), "first").unwrap();
    let args = ["--workers", "1", "--allow-upload", "--max-connections", "300"];
    let server = serve_by(limited("-n 640"), &folder, &args);
    let (mut refused, mut clients) = (0, Vec::new());
    for number in 0..140 {
        let mut client = server.connect();
        let head =
            format!("PUT /u{number} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        clients.push(client);
    }
    // Refused clients get a response; the others wait for the body.
    let deadline = Instant::now() + Duration::from_secs(30);
    while refused < 120 && Instant::now() < deadline {
        clients.retain_mut(|client| {
            client.set_nonblocking(true).unwrap();
            let is_refused = matches!(client.read(&mut [0; 12]), Ok(1..));
            refused += usize::from(is_refused);
            !is_refused
        });
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(refused >= 120, "{refused} were refused");
    let descriptors = fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count();
    assert!(descriptors < 500, "{descriptors} descriptors are open");
    assert!(answers(&server));
}

#[test]
fn a_limit_of_threads_ends_the_start_and_not_the_time_limits() {
    if !is_root() || !has("prlimit") {
        return skip("only root can become another user, and prlimit sets the limit");
    }
    let folder = folder();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut started = 0;
    for threads in 3..12 {
        let mut command = under(&["prlimit", &format!("--nproc={threads}")]);
        command.args(["serve", "-p", "0", "--workers", "1", "--timeout", "1", "--user", "61234"]);
        let mut child = command.arg(folder.path()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let (mut said, mut address) = (String::new(), None);
        while address.is_none() && errors.read_line(&mut said).unwrap() > 0 {
            let line = said.lines().last().unwrap_or_default();
            address = line.split_once(" at http://").map(|(_, at)| at.replace('/', ""));
        }
        let connected = address.and_then(|address| TcpStream::connect(address).ok());
        let Some(mut client) = connected else {
            assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
            continue;
        };
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // It is closed as idle, or the server ends.
        assert!(
            !matches!(client.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        );
        started += 1;
        let _ = child.kill();
        child.wait().unwrap();
    }
    assert!(started > 0);
}
