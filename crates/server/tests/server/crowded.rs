//! A server with more clients than its limits allow.

use std::io::Write;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::limits::{LEN, begun, site};
use super::rig::{Certificate, Client, narrow, pattern, request, wait_for, wait_until};

#[test]
fn silent_connections_do_not_shut_out_other_clients() {
    let site = site().with(|settings| settings.max_connections = 8).start();
    let silent: Vec<_> = (0..40).map(|_| site.connect()).collect();
    for _ in 0..20 {
        assert_eq!(site.get("/a").text(), "first");
        assert_eq!(site.get("/.underpass/health").status, 200);
    }
    assert!(site.metric("connections_evicted_total") >= 30.0);
    drop(silent);
}

#[test]
fn begun_requests_do_not_shut_out_other_clients() {
    let site = site().with(|settings| settings.max_connections = 8).start();
    let begun: Vec<_> = (0..40)
        .map(|_| {
            let mut client = site.connect();
            client.send("GET /a HTTP/1.1\r\nHost: a\r\nX: y");
            client
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(site.get("/a").text(), "first");
    }
    drop(begun);
}

#[test]
fn begun_handshakes_do_not_shut_out_other_clients() {
    let certificate = Certificate::new();
    let site = site().secure(&certificate).with(|settings| settings.max_connections = 8).start();
    let begun: Vec<_> = (0..40)
        .map(|at| {
            let mut client = site.connect();
            client.send(if at % 2 == 0 { &[][..] } else { &[22, 3, 1, 2, 0, 1] });
            client
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(site.get("/a").text(), "first");
    }
    drop(begun);
}

#[test]
fn the_longest_idle_connection_is_the_one_that_is_closed() {
    let site = site().with(|settings| settings.max_connections = 3).start();
    let mut clients: Vec<_> = (0..3).map(|_| site.connect()).collect();
    for at in [1, 0, 2, 0] {
        assert_eq!(clients[at].get("/a").text(), "first");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut new = site.connect();
    assert_eq!(new.get("/a").text(), "first");
    assert!(clients[1].is_closed());
    for client in [&mut clients.remove(0), &mut clients.remove(1), &mut new] {
        assert_eq!(client.get("/a").text(), "first");
    }
}

#[test]
fn a_server_full_of_downloads_answers_its_health_check_and_refuses_the_rest() {
    let site = site().with(|settings| settings.max_connections = 3).start();
    let mut busy: Vec<_> = (0..3).map(|_| begun(&site)).collect();
    for _ in 0..40 {
        let mut other = site.connect();
        let reply = other.get("/a");
        assert_eq!((reply.status, reply.field("Connection")), (503, Some("close")));
        assert!(reply.field("Retry-After").is_some());
        assert!(other.is_closed());
        for method in ["GET", "HEAD"] {
            // The places of the connections before it may not be free yet.
            wait_until("the health check is answered", || {
                let reply = site.connect().try_ask(method, "/.underpass/health", &[]);
                reply.is_ok_and(|reply| reply.status == 200)
            });
        }
    }
    for client in &mut busy {
        assert!(client.take(LEN - 100_000).unwrap() == pattern(LEN)[100_000..]);
        assert_eq!(client.get("/a").text(), "first");
    }
    busy.pop();
    wait_until("there is room again", || {
        site.connect().try_ask("GET", "/a", &[]).is_ok_and(|reply| reply.status == 200)
    });
    assert!(site.metric("connections_refused_total") >= 40.0);
}

#[test]
fn connections_beyond_the_reserve_are_refused_and_its_places_reused() {
    let site = site().with(|settings| settings.max_connections = 1).start();
    let _busy = begun(&site);
    let begun = Instant::now();
    // More than the reserve holds, and none of them asks.
    let mut silent: Vec<_> = (0..60).map(|_| site.connect()).collect();
    for client in &mut silent {
        let reply = client.reply();
        assert_eq!(reply.status, 503);
        assert!(client.is_closed());
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    wait_until("the reserve is free", || {
        site.connect().try_ask("GET", "/.underpass/health", &[]).is_ok_and(|r| r.status == 200)
    });
}

#[test]
fn one_address_cannot_have_every_connection() {
    let site = site().with(|settings| settings.max_connections_per_address = Some(3)).start();
    let mut busy: Vec<_> = (0..3).map(|_| begun(&site)).collect();
    let reply = site.connect().reply();
    assert_eq!((reply.status, reply.field("Connection")), (503, Some("close")));
    for _ in 0..3 {
        assert_eq!(site.connect_from(Ipv4Addr::new(127, 0, 0, 2)).get("/a").text(), "first");
    }
    busy.pop();
    wait_until("there is room again", || {
        site.connect().try_ask("GET", "/a", &[]).is_ok_and(|reply| reply.status == 200)
    });
}

#[test]
fn a_unix_socket_has_no_limit_per_address() {
    let folder = super::rig::folder();
    let path = folder.path().join("socket");
    let mut site = site().with(|settings| settings.max_connections_per_address = Some(2));
    site.address = underpass_server::Address::Unix(path.clone());
    let _site = site.start();
    let connect = |_| Client::unix(path.to_str().unwrap()).unwrap();
    let mut clients: Vec<_> = (0..10).map(connect).collect();
    for client in &mut clients {
        assert_eq!(client.get("/a").text(), "first");
    }
}

#[test]
fn the_first_request_has_to_be_complete_sooner_than_the_timeout() {
    // The timeout of these sites is two minutes.
    let site = site().start();
    let started = Instant::now();
    let (mut silent, mut begun, mut later) = (site.connect(), site.connect(), site.connect());
    begun.send("GET /a HTTP/1.1\r\nHost: a\r\n");
    assert_eq!(later.get("/a").text(), "first");
    later.send("GET /a HTTP/1.1\r\nHost: a\r\n");
    assert!(silent.is_closed());
    assert_eq!(begun.reply().status, 408);
    assert_eq!(later.reply().status, 408, "nor does a later one trickle in for minutes");
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

#[test]
fn an_address_with_idle_connections_gets_one_more_for_one_of_them() {
    let site = site().with(|settings| settings.max_connections_per_address = Some(3)).start();
    let mut clients: Vec<_> = (0..3).map(|_| site.connect()).collect();
    for at in [1, 0, 2] {
        assert_eq!(clients[at].get("/a").text(), "first");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut elsewhere = site.connect_from(Ipv4Addr::new(127, 0, 0, 2));
    assert_eq!(elsewhere.get("/a").text(), "first");
    let mut new = site.connect();
    assert_eq!(new.get("/a").text(), "first");
    assert!(clients[1].is_closed(), "the one that was idle the longest");
    assert_eq!(clients[0].get("/a").text(), "first");
    // Connections that are busy are not closed, nor those of others.
    let _busy: Vec<_> = (0..3)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(60));
            begun(&site)
        })
        .collect();
    assert_eq!(site.connect().reply().status, 503);
    assert_eq!(elsewhere.get("/a").text(), "first");
}

#[test]
fn a_worker_without_idle_connections_has_those_of_others_closed() {
    let site = site()
        .with(|settings| {
            settings.workers = 2;
            settings.max_connections = 8;
            settings.sites[0].health = false;
        })
        .start();
    // Which worker gets a connection is the kernel's choice: in the end all are busy.
    let mut busy = Vec::new();
    for _ in 0..200 {
        let mut client = site.connect_narrow();
        client.send(request("GET", "/large", &[]));
        if client.head().is_ok_and(|head| head.status == 200) {
            client.take(100_000).unwrap();
            busy.push(client);
        }
        let _idle = site.connect();
        if busy.len() == 8 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("only {} of 8", busy.len());
}

#[test]
fn a_client_that_reads_nothing_gets_no_deep_buffer() {
    let site = site().start();
    let stream = narrow(site.socket(), 32 << 10);
    let port = stream.local_addr().unwrap().port();
    let mut client = Client::new(stream);
    client.send(request("GET", "/large", &[]));
    let mut before = 0;
    let queued = wait_for("the socket of the server takes no more", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = queued_to(port);
        (std::mem::replace(&mut before, now) == now && now > 0).then_some(now)
    });
    assert!(queued < 512 << 10, "{queued} bytes wait for a client that has read nothing");
    assert!(client.reply().body == pattern(LEN));
    assert_eq!(client.get("/a").text(), "first");
}

/// Returns the number of bytes that wait in the socket of the server for the client at this port.
fn queued_to(port: u16) -> u64 {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let peer = format!(":{port:04X}");
    let line = sockets
        .lines()
        .find(|line| line.split_whitespace().nth(2).is_some_and(|remote| remote.ends_with(&peer)));
    let queues = line.and_then(|line| line.split_whitespace().nth(4)).unwrap_or("0:0");
    u64::from_str_radix(queues.split(':').next().unwrap(), 16).unwrap()
}

#[test]
fn begun_heads_beyond_their_memory_are_refused_for_a_moment() {
    let site = super::rig::Site::of(&[("a", b"first")]).start();
    let mut begun: Vec<Client> = Vec::new();
    let refused = loop {
        let mut client = site.connect();
        client.send("GET /a HTTP/1.1\r\n");
        client.send(format!("X: {}", "y".repeat(30_000)));
        begun.push(client);
        std::thread::sleep(Duration::from_millis(1));
        let is_answered = |client: &Client| {
            client.stream.set_nonblocking(true).unwrap();
            let is_answered = client.stream.peek(&mut [0]).is_ok_and(|len| len > 0);
            client.stream.set_nonblocking(false).unwrap();
            is_answered
        };
        assert!(begun.len() < 4000, "none is refused");
        if let Some(at) = begun.iter().rev().take(64).position(is_answered) {
            let at = begun.len() - 1 - at;
            break begun.remove(at).reply();
        }
    };
    assert_eq!((refused.status, refused.field("Retry-After")), (503, Some("1")));
}

#[test]
fn requests_of_one_address_leave_memory_to_others() {
    const LEN: usize = 2_000_000;
    let site = super::rig::Site::of(&[("file", b"x")]).start();
    let length = format!("Content-Length: {LEN}");
    let begin = |mut client: Client| {
        client.send(request("POST", "/?archive=zip", &[&length]));
        // The server may stop reading.
        let _ = client.stream.write_all(&b"entry=aa\n".repeat(LEN)[..LEN - 1]);
        client
    };
    // The names take several times their length.
    let greedy = [(); 2].map(|()| begin(site.connect()));
    for client in &greedy {
        client.stream.set_nonblocking(true).unwrap();
    }
    let is_answered = |client: &Client| client.stream.peek(&mut [0]).is_ok_and(|len| len > 0);
    wait_until("one is refused", || greedy.iter().any(is_answered));
    for mut client in greedy.into_iter().filter(is_answered) {
        client.stream.set_nonblocking(false).unwrap();
        let reply = client.head().unwrap();
        assert_eq!((reply.status, reply.field("Retry-After").is_some()), (503, true));
    }
    let mut other = begin(site.connect_from([127, 0, 0, 9].into()));
    other.send("\n");
    assert_eq!(other.reply().status, 404, "none of these names exists");
}
