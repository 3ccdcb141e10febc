//! Tests at full size: with `UNDERPASS_FULL`, otherwise much smaller.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use underpass_testkit::{free_port, is_full};

use crate::cache::scale::{config, start};
use crate::node::{Client, Node};
use crate::rig::{Running, folder, has, noise, until};
use crate::scripted_origin::{Gate, Object, Origin, Request, Sending};

const MIB: u64 = 1 << 20;

/// One of two numbers: the second one at full size.
fn sized(small: u64, full: u64) -> u64 {
    if is_full() { full } else { small }
}

/// A server that has a sparse file of this size, `large`.
fn sparse(len: u64) -> (tempfile::TempDir, Running) {
    let here = folder();
    let file = fs::File::create(here.path().join("large")).unwrap();
    file.set_len(len).unwrap();
    let server = crate::rig::serve(&here, &[]);
    (here, server)
}

/// Requests a range on a connection of its own; returns the time to the first byte of the head, and
/// reads the body to its end.
fn first_byte(address: &str, from: u64, len: u64) -> Duration {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!(
        "GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nRange: bytes={from}-{}\r\n\r\n",
        from + len - 1
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = vec![0; 64 << 10];
    let mut read = stream.read(&mut bytes).unwrap();
    let elapsed = begun.elapsed();
    assert!(bytes.starts_with(b"HTTP/1.1 206"));
    while let more @ 1.. = stream.read(&mut bytes).unwrap() {
        read += more;
    }
    assert!((len..len + 4096).contains(&(read as u64)), "{read}");
    elapsed
}

/// The middle one of some times.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn random_ranges_fetch_at_most_twice_the_requested_bytes() {
    let (len, count) = (sized(1 << 30, 10 << 30), sized(64, 1000));
    let (_here, origin) = sparse(len);
    let address = origin.host().to_owned();
    let node = Node::new(&format!("http://{address}/"), &[]);
    let (mut of_origin, mut of_node) = (Vec::new(), Vec::new());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let from = (state >> 16) % (len - MIB);
        of_origin.push(first_byte(&address, from, MIB));
        of_node.push(first_byte(node.address(), from, MIB));
    }
    let fetched = node.metric("origin_bytes_total");
    let ratio = fetched as f64 / (count * MIB) as f64;
    let (of_origin, of_node) = (median(of_origin), median(of_node));
    eprintln!(
        "{count} ranges of 1 MiB over {} GiB: fetched {ratio:.3} times what was asked for; first \
         byte {of_node:?}, of the origin {of_origin:?}",
        len >> 30
    );
    assert!(ratio <= 2.0, "{ratio}");
}

/// A body of one version: each eight bytes of it are its number.
fn body_of(version: u64, len: usize) -> Vec<u8> {
    version.to_le_bytes().repeat(len / 8)
}

/// The version of a body, if it has one alone.
fn version_of(body: &[u8]) -> Option<u64> {
    let first = u64::from_le_bytes(body.get(..8)?.try_into().unwrap());
    (body_of(first, body.len()) == body).then_some(first)
}

/// An origin whose object changes each second, and which takes half a second for a body. One of
/// three bodies breaks off in the middle.
fn changing(len: usize) -> Origin {
    let (begun, count) = (Instant::now(), AtomicU64::new(0));
    Origin::new(move |request: &Request, sending: &mut Sending| {
        let version = begun.elapsed().as_secs();
        let object = Object::new(body_of(version, len), &format!("v{version}"));
        let object = object.with("Cache-Control: max-age=1");
        let (head, body) = object.answer(request);
        sending.head(&head);
        let breaks = body.len() > len / 2 && count.fetch_add(1, Ordering::Relaxed) % 3 == 2;
        let sent = if breaks { body.len() / 2 } else { body.len() };
        for piece in body[..sent].chunks((len / 16).max(1)) {
            sending.body(piece);
            thread::sleep(Duration::from_millis(500 / 16));
        }
        sending.closes = breaks;
    })
}

/// Downloads at a limited rate; the body if it is whole.
fn slow_download(port: u16, len: usize) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let request = b"GET /object HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).ok()?;
    let (mut all, mut bytes) = (Vec::new(), vec![0; 32 << 10]);
    loop {
        match stream.read(&mut bytes).ok()? {
            0 => break,
            read => all.extend_from_slice(&bytes[..read]),
        }
        thread::sleep(Duration::from_millis(5));
    }
    let at = all.windows(4).position(|it| it == b"\r\n\r\n")?;
    let body = all.split_off(at + 4);
    (all.starts_with(b"HTTP/1.1 200") && body.len() == len).then_some(body)
}

#[test]
fn a_changing_object_is_whole_in_one_version_or_fails_through_two_tiers() {
    if !has("haproxy") {
        return;
    }
    let (seconds, clients) = (sized(5, 60), sized(16, 64));
    let len = 4 << 20;
    let origin = changing(len);
    let tier = Node::new(&origin.url(), &[]);
    let edges: Vec<_> = (0..3).map(|_| Node::new(&tier.url(), &[])).collect();
    let (here, port) = (folder(), free_port());
    let path = here.path().join("haproxy.cfg");
    fs::write(&path, config("haproxy.cfg", &edges, port)).unwrap();
    let balancer = start("haproxy", &["-db", "-q", "-f", path.to_str().unwrap()], port);
    let (whole, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let end = Instant::now() + Duration::from_secs(seconds);
    let threads: Vec<_> = (0..clients)
        .map(|_| {
            let (whole, failed) = (Arc::clone(&whole), Arc::clone(&failed));
            thread::spawn(move || {
                let mut versions = Vec::new();
                while Instant::now() < end {
                    let Some(body) = slow_download(port, len) else {
                        failed.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    let version = version_of(&body).expect("a body of two versions");
                    whole.fetch_add(1, Ordering::Relaxed);
                    versions.push(version);
                }
                versions
            })
        })
        .collect();
    let mut versions: Vec<_> = threads.into_iter().flat_map(|it| it.join().unwrap()).collect();
    versions.sort_unstable();
    versions.dedup();
    let (whole, failed) = (whole.load(Ordering::Relaxed), failed.load(Ordering::Relaxed));
    eprintln!(
        "{clients} slow clients, {seconds} s, a new version each second: {whole} whole bodies of \
         {} versions, {failed} failures, {} requests to the origin",
        versions.len(),
        origin.requests().len()
    );
    assert!(whole > clients && versions.len() > 1, "{whole} {versions:?}");
    drop(balancer);
}

/// The resident memory of a node, in KiB.
fn resident(node: &Node) -> u64 {
    let path = format!("/proc/{}/status", node.server.child.id());
    let status = fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The memory of a node, in KiB, before its first request, with objects of this length being filled, and
/// with others that were filled and read.
fn memory_with(len: usize, filling: u64, kept: u64, kept_len: usize) -> [u64; 3] {
    let gate = Gate::default();
    let held = gate.clone();
    let bytes = noise(kept_len);
    let origin = Origin::new(move |request: &Request, sending: &mut Sending| {
        if request.path.starts_with("/kept") {
            return Object::new(bytes.clone(), "one").send(request, sending);
        }
        sending.head(&format!("HTTP/1.1 200 OK\nETag: \"one\"\nContent-Length: {len}"));
        sending.body(&[7; 64 << 10]);
        held.wait();
        sending.closes = true;
    });
    // The same one under several names has as many fills.
    let url = origin.url();
    let more = ["--origin", &url, "--origin", &url, "--origin", &url];
    let node = Node::new(&url, &more);
    let begun = resident(&node);
    let clients: Vec<_> =
        (0..filling).map(|at| node.client("GET", &format!("/filling-{at}"), &[])).collect();
    until("fills that run", || node.metric("requests_total") >= filling.min(64));
    thread::sleep(Duration::from_secs(1));
    let in_fills = resident(&node);
    drop(clients);
    gate.open();
    drop(node);
    let node = Node::new(&url, &more);
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let address = node.address().to_owned();
            thread::spawn(move || {
                for at in (thread..kept).step_by(8) {
                    for _ in 0..2 {
                        let mut client = Client::new(TcpStream::connect(&address).unwrap());
                        let path = format!("/kept-{at}");
                        let reply = client.ask("GET", &path, &["Connection: close"]);
                        assert_eq!(reply.body.len(), kept_len);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    until("the last object", || node.metric("objects") == kept);
    [begun, in_fills, resident(&node)]
}

#[test]
fn memory_does_not_depend_on_the_lengths_of_objects() {
    let (filling, kept) = (sized(100, 1000), sized(200, 10_000));
    let small = memory_with(MIB as usize, filling, kept, 4 << 10);
    let large = memory_with(256 << 20, filling, kept, sized(64 << 10, 256 << 10) as usize);
    for (name, [begun, filling_kib, kept_kib]) in [("small", small), ("large", large)] {
        eprintln!(
            "{name} objects: {begun} KiB at the start, {filling_kib} KiB with {filling} being filled, \
             {kept_kib} KiB with {kept} kept"
        );
    }
    // Objects are 64 and 256 times as long.
    for (small, large) in small.into_iter().zip(large) {
        assert!(large < 2 * small && small < 2 * large, "{small} KiB, {large} KiB");
    }
}
