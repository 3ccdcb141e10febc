//! Ranges: only what is missing is fetched, and parts of one version make the whole.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::node::{Client, End, Node, Reply, until_stored};
use crate::rig::{noise, until};
use crate::scripted_origin::{Gate, Object, Origin, Request};

const MIB: usize = 1 << 20;

#[test]
fn a_range_is_fetched_in_whole_mib_and_the_rest_later() {
    let object = Object::new(noise(10 * MIB), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    let part = node.range("/a", &format!("{}-{}", 5 * MIB + 7, 5 * MIB + 99));
    part.assert_is(206, &object.bytes[5 * MIB + 7..5 * MIB + 100]);
    assert_eq!(part.field("content-range"), Some("bytes 5242887-5242979/10485760"));
    until_stored(&node, MIB as u64);
    assert_eq!(origin.sent(), MIB as u64);
    // The same bytes and their neighbours are stored.
    node.range("/a", &format!("{}-{}", 5 * MIB, 6 * MIB - 1))
        .assert_is(206, &object.bytes[5 * MIB..6 * MIB]);
    assert_eq!(origin.requests().len(), 1);
    node.range("/a", "-3").assert_is(206, &object.bytes[10 * MIB - 3..]);
    node.range("/a", "0-0,9999999-9999999");
    node.get("/a").assert_is(200, &object.bytes);
    until_stored(&node, 10 * MIB as u64);
    assert_eq!(origin.sent(), 10 * MIB as u64, "{:#?}", origin.requests());
    let requests = origin.requests();
    assert!(
        requests[1..].iter().all(|request| request.field("if-range") == Some("\"a\"")),
        "{requests:?}"
    );
}

#[test]
fn ranges_near_the_largest_offset_are_unsatisfiable() {
    let object = Object::new(noise(100), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    let last = u64::MAX;
    for (path, range) in [
        ("/a", format!("{last}-")),
        ("/b", format!("{}-{last}", last - 1)),
        ("/c", format!("{}-", 1_u64 << 63)),
        ("/d", format!("{}-", (1_u64 << 63) - 1)),
        ("/e", format!("{last}-{last}")),
        ("/f", "9-5".to_owned()),
    ] {
        assert_eq!(node.range(path, &range).status, 416, "{range}");
    }
    for request in origin.requests() {
        let Some(range) = request.field("range") else { continue };
        let (start, end) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        assert!(start.parse::<u64>().unwrap() <= end.parse().unwrap(), "{range}");
    }
}

#[test]
fn a_range_far_ahead_of_a_fill_does_not_wait_for_it() {
    let object = Object::new(noise(20 * MIB), "a");
    let (origin, gate) = Origin::holding(&object, MIB, |request| request.field("range").is_none());
    let node = Node::new(&origin.url(), &[]);
    let mut whole = node.client("GET", "/a", &[]);
    whole.read_body(MIB);
    node.range("/a", &format!("{}-", 15 * MIB)).assert_is(206, &object.bytes[15 * MIB..]);
    gate.open();
    whole.finish().assert_is(200, &object.bytes);
}

#[test]
fn a_range_near_a_slow_fill_does_not_wait_for_it() {
    let object = Object::new(noise(8 * MIB), "a");
    let (origin, gate) = Origin::holding(&object, 1000, |request| request.field("range").is_none());
    let node = Node::new(&origin.url(), &["--timeout", "10"]);
    let mut whole = node.client("GET", "/a", &[]);
    whole.read_body(1000);
    node.range("/a", "4194304-4194399").assert_is(206, &object.bytes[4 * MIB..4 * MIB + 96]);
    gate.open();
    whole.finish().assert_is(200, &object.bytes);
}

#[test]
fn a_fill_that_fails_elsewhere_ends_no_other_download() {
    let object = Object::new(noise(40 * MIB), "a");
    let bytes = object.bytes.clone();
    let is_well = Arc::new(AtomicBool::new(false));
    let recovered = Arc::clone(&is_well);
    let origin = Origin::new(move |request, sending| {
        let is_late = request.range(40 * MIB).is_some_and(|range| range.start >= 30 * MIB);
        if is_late && !recovered.load(Ordering::Relaxed) {
            sending.answer("HTTP/1.1 401 No", b"")
        } else {
            object.send(request, sending)
        }
    });
    let node = Node::new(&origin.url(), &[]);
    // More than sockets take at once: the client below does not come to what is missing.
    let begin = 20 * MIB;
    node.range("/a", &format!("0-{}", begin - 1)).assert_is(206, &bytes[..begin]);
    let mut slow = node.client("GET", "/a", &[]);
    slow.read_body(1);
    assert_eq!(node.range("/a", &format!("{}-", 30 * MIB)).status, 502);
    is_well.store(true, Ordering::Relaxed);
    slow.finish().assert_is(200, &bytes);
}

/// Bytes before a client's new position arrive slowly.
#[test]
fn each_seek_of_a_client_is_answered() {
    const SEEKS: usize = 40;
    let object = Object::new(noise(2 * SEEKS * MIB), "a");
    let gate = Gate::default();
    let end = gate.clone();
    let origin = Origin::new(move |request, sending| {
        let (head, body) = object.answer(request);
        sending.head(&head);
        let (first, rest) = body.split_at(64 << 10);
        sending.body(first);
        for byte in rest.chunks(1).take_while(|_| !end.is_open()) {
            sending.body(byte);
            thread::sleep(Duration::from_millis(20));
        }
        sending.closes = true;
    });
    let node = Node::new(&origin.url(), &[]);
    for seek in (0..SEEKS).rev() {
        let start = 2 * seek * MIB;
        let mut client = node.client("GET", "/a", &[&format!("Range: bytes={start}-")]);
        client.read_body(1000);
    }
    gate.open();
}

#[test]
fn many_clients_at_different_places_are_answered_at_once() {
    const CLIENTS: usize = 20;
    let object = Object::new(noise(2 * CLIENTS * MIB), "a");
    let bytes = object.bytes.clone();
    let (origin, gate) = Origin::holding(&object, 1000, |_| true);
    let node = Node::new(&origin.url(), &[]);
    let range = |number| 2 * number * MIB..(2 * number + 1) * MIB;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let Range { start, end } = range(number);
            let line = format!("Range: bytes={start}-{}", end - 1);
            let mut client = node.client("GET", "/a", &[&line]);
            client.read_body(1000);
            client
        })
        .collect();
    gate.open();
    for (number, client) in clients.into_iter().enumerate() {
        client.finish().assert_is(206, &bytes[range(number)]);
    }
}

#[test]
fn an_origin_without_ranges_is_read_from_the_start_once() {
    let object = Object::new(noise(12 * MIB), "a");
    let bytes = object.bytes.clone();
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |_, sending| {
        let lines = "HTTP/1.1 200 OK\nETag: \"a\"\nCache-Control: max-age=1000";
        sending.head(&format!("{lines}\nContent-Length: {}", 12 * MIB));
        sending.body(&object.bytes[..MIB]);
        held.wait();
        sending.body(&object.bytes[MIB..]);
    });
    let node = Node::new(&origin.url(), &[]);
    let tail = node.client("GET", "/a", &[&format!("Range: bytes={}-{}", 11 * MIB, 12 * MIB - 1)]);
    let mut first = node.client("GET", "/a", &["Range: bytes=0-9"]);
    first.read_body(10);
    gate.open();
    tail.finish().assert_is(206, &bytes[11 * MIB..]);
    until_stored(&node, 12 * MIB as u64);
    assert_eq!((origin.requests().len(), origin.sent()), (1, 12 * MIB as u64));
}

#[test]
fn an_empty_object_and_ranges_beyond_the_end_have_their_answers() {
    let object = Object::new(Vec::new(), "a");
    let small = Object::new(noise(100), "b");
    let origin = Origin::new(move |request, sending| match request.path.as_str() {
        "/empty" => object.send(request, sending),
        _ => small.send(request, sending),
    });
    let node = Node::new(&origin.url(), &[]);
    node.range("/empty", "0-9").assert_is(200, b"");
    node.get("/empty").assert_is(200, b"");
    let beyond = node.range("/small", "5000000-");
    assert_eq!(beyond.status, 416);
    assert_eq!(beyond.field("content-range"), Some("bytes */100"));
}

#[test]
fn ranges_at_random_are_slices_of_the_object() {
    let object = Object::new(noise(30 * MIB + 12345), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    let mut state = 7_u64;
    let mut next = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % most
    };
    thread::scope(|scope| {
        for _ in 0..60 {
            let start = next(object.bytes.len());
            let end = (start + 1 + next(3 * MIB)).min(object.bytes.len());
            let (node, bytes) = (&node, &object.bytes);
            scope.spawn(move || {
                node.range("/a", &format!("{start}-{}", end - 1))
                    .assert_is(206, &bytes[start..end]);
            });
        }
    });
    node.get("/a").assert_is(200, &object.bytes);
}

#[test]
fn hits_are_whole_for_a_client_that_reads_late() {
    const ROUNDS: usize = 40;
    // One is copied behind its head, one is sent by sendfile without a transfer, one in turns.
    for (len, format) in
        [3_000, 100_000, 700_000].map(|len| [(len, "json"), (len, "combined")]).concat()
    {
        let object = Object::new(noise(len), "a").with("Cache-Control: max-age=1000");
        let origin = Origin::of(&object);
        // What a response costs is measured for the log in JSON, by a transfer.
        let node = Node::new(&origin.url(), &["--log-format", format]);
        node.get("/a").assert_is(200, &object.bytes);
        until_stored(&node, len as u64);
        let mut client = Client::new(node.server.connect());
        for round in 0..ROUNDS {
            let end = if round + 1 == ROUNDS { "Connection: close\r\n" } else { "" };
            client.send(format!(
                "GET /a HTTP/1.1\r\nHost: localhost\r\nRange: bytes={round}-\r\n{end}\r\n"
            ));
        }
        for round in 0..ROUNDS {
            let reply = client.reply();
            assert!(reply.status == 206 && reply.cache().contains("; hit"), "{}", reply.head);
            assert!(reply.body == object.bytes[round..], "{len} {round}");
        }
        assert!(client.is_closed());
        assert_eq!(origin.requests().len(), 1);
        if len > 20_000 && format == "json" {
            let lines = node.log();
            let copied = |line: &serde_json::Value| line["user_space_bytes"].as_u64();
            assert!(lines.iter().skip(1).all(|line| copied(line) == Some(0)), "{:#?}", lines[1]);
        }
    }
}

#[test]
fn a_digest_of_the_whole_or_of_a_part_is_not_sent_with_another_part() {
    let digests = "Content-Digest: sha-256=:AAAA:\nContent-MD5: BBBB\nRepr-Digest: sha-256=:CCCC:";
    let lines = format!("Cache-Control: max-age=1000\n{digests}");
    let object = Object::new(noise(3 * MIB), "a").with(&lines);
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    let is_named = |reply: &Reply| {
        ["content-digest", "content-md5", "repr-digest"].map(|name| reply.field(name).is_some())
    };
    assert_eq!(is_named(&node.get("/whole")), [true, true, true]);
    assert_eq!(is_named(&node.range("/whole", "5-9")), [false, false, true]);
    assert_eq!(is_named(&node.range("/part", "0-9")), [false, false, true]);
    assert_eq!(is_named(&node.get("/part")), [false, false, true]);
}

/// An origin may send less than was requested, with and without a disk in between.
#[test]
fn the_rest_of_a_half_sent_range_is_requested() {
    let object = Object::new(noise(3 << 20), "a");
    let bytes = object.bytes.clone();
    let origin = Origin::new(move |request, sending| {
        let (tag, bytes, len) = (&object.tag, &object.bytes, object.bytes.len());
        let Some(Range { start, end }) = request.range(len) else {
            return object.send(request, sending);
        };
        let end = start + (end - start).div_ceil(2).max(1 << 18).min(end - start);
        let range = format!("Content-Range: bytes {start}-{}/{len}", end - 1);
        let head = format!("HTTP/1.1 206 Partial\nETag: {tag}\n{}\n{range}", object.lines);
        sending.answer(&head, &bytes[start..end]);
    });
    for size in ["1K", "100M"] {
        let node = Node::new(&origin.url(), &["--cache-size", size]);
        node.range("/a", "1000000-1999999").assert_is(206, &bytes[1_000_000..2_000_000]);
        node.range("/a", "100-").assert_is(206, &bytes[100..]);
        assert!(node.log().iter().all(|line| line["complete"] == true));
    }
}

#[test]
fn only_a_part_waits_for_the_end_of_what_does_not_say_its_length() {
    let (gate, end) = (Gate::default(), "5\r\nworld\r\n0\r\n\r\n");
    let held = gate.clone();
    let origin = Origin::new(move |_, sending| {
        sending.head("HTTP/1.1 200 OK\nETag: \"a\"\nTransfer-Encoding: chunked");
        sending.body(b"5\r\nhello\r\n");
        held.wait();
        sending.body(end.as_bytes());
    });
    let node = Node::new(&origin.url(), &["--timeout", "10"]);
    let cases: [&[&str]; 3] =
        [&["Range: bytes=0-"], &["Range: items=1-2"], &["Range: bytes=5-", "If-Range: \"b\""]];
    for (number, lines) in cases.into_iter().enumerate() {
        assert_eq!(node.ask("HEAD", &format!("/head/{number}"), lines).status, 200, "{lines:?}");
        let mut client = node.client("GET", &format!("/{number}"), lines);
        client.read_body(5);
    }
    let mut client = node.client("GET", "/whole", cases[0]);
    client.read_body(5);
    let part = node.client("GET", "/part", &["Range: bytes=5-", "If-Range: \"a\""]);
    gate.open();
    client.finish().assert_is(200, b"helloworld");
    part.finish().assert_is(206, b"world");
}

#[test]
fn a_relay_whose_origin_stops_in_the_middle_is_reset() {
    let object = Object::new(noise(3 << 20), "a");
    let origin = Origin::new(move |request, sending| {
        if request.range(object.bytes.len()).is_some_and(|range| range.start > 0) {
            return sending.answer("HTTP/1.1 500 No", b"");
        }
        let (tag, range) = (&object.tag, "Content-Range: bytes 0-1499999/3145728");
        let head = format!("HTTP/1.1 206 Partial\nETag: {tag}\n{}\n{range}", object.lines);
        sending.answer(&head, &object.bytes[..1_500_000]);
    });
    let node = Node::new(&origin.url(), &["--cache-size", "1K"]);
    let reply = node.range("/a", "1000000-1999999");
    assert_eq!((reply.status, reply.body.len(), reply.end), (206, 500_000, End::Reset));
    assert!(node.log().iter().all(|line| line["complete"] == false));
}

#[test]
fn parts_of_an_object_in_a_coding_are_combined_if_they_have_the_same() {
    let lines = "Content-Encoding: gzip\nCache-Control: max-age=1000";
    let object = Object::new(noise(3 * MIB), "a").with(lines);
    let bytes = object.bytes.clone();
    let is_other = Arc::new(AtomicBool::new(false));
    let switched = Arc::clone(&is_other);
    let origin = Origin::new(move |request, sending| {
        let (head, body) = object.answer(request);
        let coding = if switched.load(Ordering::Relaxed) { "br" } else { "gzip" };
        sending.head(&head.replace("gzip", coding));
        sending.body(body);
    });
    let node = Node::new(&origin.url(), &[]);
    // What a client learns first of an object does not depend on what is in the cache.
    for _ in 0..2 {
        let head = node.ask("HEAD", "/a", &[]);
        head.assert_is(200, b"");
        assert_eq!(head.field("content-encoding"), Some("gzip"));
        assert_eq!(head.field("content-length"), Some(&*bytes.len().to_string()));
    }
    let part = node.range("/a", &format!("{}-", 2 * MIB));
    part.assert_is(206, &bytes[2 * MIB..]);
    assert_eq!(part.field("content-encoding"), Some("gzip"));
    // The coding is of the object, not of the parts around it.
    let several = node.range("/a", "0-9,20-29");
    several.assert_is(200, &bytes);
    assert_eq!(several.field("content-encoding"), Some("gzip"));
    assert_eq!(node.ask("PURGE", "/a", &[]).status, 200);
    node.range("/a", "0-9").assert_is(206, &bytes[..10]);
    until_stored(&node, MIB as u64);
    // The same bytes are in another coding now: none of them are added to those that are here.
    is_other.store(true, Ordering::Relaxed);
    let part = node.range("/a", &format!("{}-", 2 * MIB));
    part.assert_is(206, &bytes[2 * MIB..]);
    assert_eq!(part.field("content-encoding"), Some("br"));
    assert_eq!(node.get("/a").field("content-encoding"), Some("br"));
}

#[test]
fn an_origin_that_refuses_everything_for_a_moment_still_has_ranges() {
    let object = Object::new(noise(12 * MIB), "a");
    let bytes = object.bytes.clone();
    let is_refusing = Gate::default();
    let refuses = is_refusing.clone();
    let count = AtomicUsize::new(0);
    let origin = Origin::new(move |request, sending| {
        if refuses.is_open() && count.fetch_add(1, Ordering::Relaxed) < 2 {
            sending.answer("HTTP/1.1 403 No", b"")
        } else {
            object.send(request, sending)
        }
    });
    let node = Node::new(&origin.url(), &[]);
    node.range("/a", "0-9").assert_is(206, &bytes[..10]);
    is_refusing.open();
    assert_eq!(node.range("/a", &format!("{0}-{0}", 6 * MIB)).status, 502);
    node.range("/a", &format!("{0}-{0}", 11 * MIB)).assert_is(206, &bytes[11 * MIB..=11 * MIB]);
    assert_eq!(origin.sent(), 2 * MIB as u64);
}

/// The fill of the whole comes to bytes that a reader ahead of it has had fetched.
#[test]
fn bytes_that_two_fills_bring_count_once() {
    let object = Object::new(noise(6 * MIB), "a");
    let holds = |request: &Request| request.field("range").is_none();
    let (origin, gate) = Origin::holding(&object, MIB, holds);
    let node = Node::new(&origin.url(), &[]);
    let mut whole = node.client("GET", "/a", &[]);
    whole.read_body(MIB);
    // Until it is slow enough not to be waited for.
    thread::sleep(Duration::from_secs(1));
    let range = node.range("/a", &format!("{}-{}", 4 * MIB, 4 * MIB + 9));
    range.assert_is(206, &object.bytes[4 * MIB..4 * MIB + 10]);
    gate.open();
    whole.finish().assert_is(200, &object.bytes);
    until("fills that have ended", || node.metric("reserved_bytes") == 0);
    assert_eq!(origin.requests().len(), 2);
    assert_eq!(node.metric("used_bytes"), 6 * MIB as u64);
}
