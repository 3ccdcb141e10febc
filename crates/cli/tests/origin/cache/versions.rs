//! One version or a visible failure.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use underpass_protocol::response::validator::push_date;

use crate::node::{End, Node, until_stored};
use crate::rig::{noise, until};
use crate::scripted_origin::{Gate, Object, Origin, Sending};

const MIB: usize = 1 << 20;

/// Two versions of an object.
fn versions() -> (Object, Object) {
    let new: Vec<u8> = noise(4 * MIB).into_iter().map(|byte| !byte).collect();
    (Object::new(noise(4 * MIB), "old"), Object::new(new, "new"))
}

#[test]
fn a_new_version_resets_running_downloads_and_serves_new_ones() {
    let (old, new) = versions();
    let (old_bytes, new_bytes) = (old.bytes.clone(), new.bytes.clone());
    let origin = Origin::new(move |request, sending| {
        let (head, body) = match request.field("range").or(request.field("if-none-match")) {
            None if request.path == "/a" => old.answer(request),
            _ => new.answer(request),
        };
        sending.head(&head);
        let is_old = head.contains("old");
        // The old version breaks off, and is a new one by the time it is resumed.
        sending.closes = is_old;
        sending.body(if is_old { &body[..MIB] } else { body });
    });
    let node = Node::new(&origin.url(), &[]);
    let broken = node.get("/a");
    assert_eq!((broken.status, broken.end), (200, End::Reset));
    assert_eq!(broken.field("etag"), Some("\"old\""));
    assert!(old_bytes.starts_with(&broken.body));
    let changed = node.metric("changed_total");
    assert_eq!(changed, 1);
    // What comes then is of the new version alone.
    let next = node.range("/a", "0-99");
    next.assert_is(206, &new_bytes[..100]);
    assert_eq!(next.field("etag"), Some("\"new\""));
}

#[test]
fn a_hole_is_never_filled_with_another_version() {
    for of_206 in [true, false] {
        let (old, new) = versions();
        let (old_bytes, new_bytes) = (old.bytes.clone(), new.bytes.clone());
        let asked_before = AtomicUsize::new(0);
        let origin = Origin::new(move |request, sending| {
            if asked_before.fetch_add(1, Ordering::Relaxed) == 0 {
                return old.send(request, sending);
            }
            let mut request = request.clone();
            if of_206 {
                // It sends a part of another version than the one that was asked for.
                request.fields.retain(|(name, _)| name != "If-Range");
            }
            new.send(&request, sending);
        });
        let node = Node::new(&origin.url(), &[]);
        node.range("/a", "0-99").assert_is(206, &old_bytes[..100]);
        until_stored(&node, MIB as u64);
        // Nothing was sent of it, so the client gets the new version.
        let reply = node.range("/a", &format!("{}-", 2 * MIB));
        reply.assert_is(206, &new_bytes[2 * MIB..]);
        node.range("/a", "0-99").assert_is(206, &new_bytes[..100]);
    }
}

#[test]
fn a_hole_is_never_filled_from_a_response_without_a_tag() {
    let (old, new) = versions();
    let (old_bytes, new_bytes) = (old.bytes.clone(), new.bytes.clone());
    let asked_before = AtomicUsize::new(0);
    let origin = Origin::new(move |request, sending| {
        if asked_before.fetch_add(1, Ordering::Relaxed) == 0 {
            return old.send(request, sending);
        }
        let mut request = request.clone();
        request.fields.retain(|(name, _)| name != "If-Range");
        let (head, body) = new.answer(&request);
        sending.head(&head.replace("ETag: \"new\"\n", ""));
        sending.body(body);
    });
    let node = Node::new(&origin.url(), &[]);
    node.range("/a", "0-99").assert_is(206, &old_bytes[..100]);
    until_stored(&node, MIB as u64);
    let reply = node.range("/a", &format!("{}-", 2 * MIB));
    assert_ne!(reply.field("etag"), Some("\"old\""), "{}", reply.head);
    reply.assert_is(206, &new_bytes[2 * MIB..]);
}

#[test]
fn a_hole_is_never_filled_from_a_response_with_another_weak_tag() {
    // Both have the same date, which is strong enough for parts.
    let lines = "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\n\
                 Date: Tue, 02 Jan 2024 00:00:00 GMT\nCache-Control: max-age=1000000000";
    let [old, new] = [1, 2].map(|seed: u8| vec![seed; 3 * MIB]);
    let (old_bytes, new_bytes) = (old.clone(), new.clone());
    let asked_before = AtomicUsize::new(0);
    let origin = Origin::new(move |request, sending| {
        let (bytes, tag) = match asked_before.fetch_add(1, Ordering::Relaxed) {
            0 => (&old, "W/\"old\""),
            _ => (&new, "W/\"new\""),
        };
        let Range { start, end } = request.range(bytes.len()).unwrap();
        let head = format!(
            "HTTP/1.1 206 Partial\nETag: {tag}\n{lines}\n\
             Content-Range: bytes {start}-{}/{}",
            end - 1,
            bytes.len()
        );
        sending.answer(&head, &bytes[start..end]);
    });
    let node = Node::new(&origin.url(), &[]);
    node.range("/a", "0-99").assert_is(206, &old_bytes[..100]);
    until_stored(&node, MIB as u64);
    node.range("/a", &format!("{}-", 2 * MIB)).assert_is(206, &new_bytes[2 * MIB..]);
    node.range("/a", "0-99").assert_is(206, &new_bytes[..100]);
}

/// The page of a proxy that is sent as a success shows no other version.
#[test]
fn an_answer_that_names_no_version_costs_nothing_that_is_stored() {
    for lines in ["X-Any: 1", "Cache-Control: no-store", "Cache-Control: max-age=1000"] {
        let object = Object::new(noise(4 * MIB), "a").with("Cache-Control: max-age=1");
        let (bytes, is_stray) = (Arc::clone(&object.bytes), Gate::default());
        let stray = is_stray.clone();
        let is_well = Gate::default();
        let well = is_well.clone();
        let origin = Origin::new(move |request, sending| {
            if stray.is_open() && !well.is_open() {
                return sending.answer(&format!("HTTP/1.1 200 OK\n{lines}"), b"sorry");
            }
            let fresh = object.clone().with("Cache-Control: max-age=1000");
            (if request.path == "/part" { &fresh } else { &object }).send(request, sending);
        });
        let node = Node::new(&origin.url(), &[]);
        node.range("/part", "0-99").assert_is(206, &bytes[..100]);
        node.get("/whole").assert_is(200, &bytes);
        until_stored(&node, 5 * MIB as u64);
        is_stray.open();
        let missing = format!("{}-", 2 * MIB);
        let failed = node.range("/part", &missing);
        assert_eq!(failed.status, 502, "{lines}: {}", failed.head);
        assert!(failed.cache().contains("detail=origin-no-version"), "{}", failed.cache());
        node.range("/part", "0-99").assert_is(206, &bytes[..100]);
        // It has become stale meanwhile, and new requests get the origin's response.
        let page = node.get("/whole");
        page.assert_is(200, b"sorry");
        assert!(!page.cache().contains("stored"), "{}", page.cache());
        is_well.open();
        let sent = origin.sent();
        node.range("/part", &missing).assert_is(206, &bytes[2 * MIB..]);
        let whole = node.get("/whole");
        whole.assert_is(200, &bytes);
        assert!(whole.cache().contains("fwd=stale; fwd-status=304"), "{}", whole.cache());
        assert!(origin.sent() - sent <= 3 * MIB as u64, "{lines}: it was fetched again");
        assert_eq!(node.metric("changed_total"), 0, "{lines}");
    }
}

#[test]
fn readers_of_an_old_version_keep_what_is_there() {
    let (old, new) = versions();
    let (old_bytes, new_bytes) = (old.bytes.clone(), new.bytes.clone());
    let current = Arc::new(Mutex::new(old.with("Cache-Control: max-age=0")));
    let served = Arc::clone(&current);
    let origin = Origin::new(move |request, sending| {
        let object = served.lock().unwrap().clone();
        object.send(request, sending);
    });
    let node = Node::new(&origin.url(), &[]);
    let mut slow = node.client("GET", "/a", &[]);
    slow.read_body(1);
    until_stored(&node, 4 * MIB as u64);
    *current.lock().unwrap() = new;
    node.get("/a").assert_is(200, &new_bytes);
    slow.finish().assert_is(200, &old_bytes);
}

#[test]
fn readers_of_an_old_version_get_what_is_on_its_way() {
    // None of the answers is known to be the same as another one.
    for (lines, is_chunked) in [
        ("X-Any: 1", false),
        ("ETag: W/\"a\"", false),
        ("ETag: \"NUMBER\"", false),
        ("X-Any: 1", true),
    ] {
        let (gate, count) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
        let (held, asked_before) = (gate.clone(), Arc::clone(&count));
        let origin = Origin::new(move |_, sending| {
            let number = asked_before.fetch_add(1, Ordering::Relaxed);
            let body = vec![u8::try_from(number).unwrap(); 4 * MIB];
            let head = format!("HTTP/1.1 200 OK\n{}", lines.replace("NUMBER", &number.to_string()));
            let halves = body.split_at(2 * MIB);
            let send = |sending: &mut Sending, bytes: &[u8]| {
                let framing = format!("{:x}\r\n", bytes.len());
                sending.raw(if is_chunked { framing.as_bytes() } else { b"" });
                sending.body(bytes);
                sending.raw(if is_chunked { b"\r\n" } else { b"" });
            };
            if is_chunked {
                sending.head(&format!("{head}\nTransfer-Encoding: chunked"))
            } else {
                sending.head(&format!("{head}\nContent-Length: {}", body.len()))
            }
            send(sending, halves.0);
            if number == 0 {
                held.wait();
            }
            send(sending, halves.1);
            sending.raw(if is_chunked { b"0\r\n\r\n" } else { b"" });
        });
        let node = Node::new(&origin.url(), &[]);
        let mut first = node.client("GET", "/a", &[]);
        first.read_body(MIB);
        assert_eq!(node.ask("HEAD", "/a", &[]).status, 200, "{lines}");
        node.range("/a", "0-9").assert_is(206, &[2; 10]);
        node.get("/a").assert_is(200, &[3; 4 * MIB]);
        gate.open();
        first.finish().assert_is(200, &[0; 4 * MIB]);
        assert_eq!(count.load(Ordering::Relaxed), 4, "{lines}");
    }
}

#[test]
fn parts_of_an_object_without_a_version_are_of_one_answer() {
    let len = 20 * MIB;
    let (gate, count) = (Gate::default(), AtomicUsize::new(0));
    let held = gate.clone();
    let origin = Origin::new(move |request, sending| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let body = vec![u8::try_from(number).unwrap(); len];
        let lines = "Cache-Control: max-age=1000";
        match request.range(len) {
            Some(Range { start, end }) => {
                let range = format!("Content-Range: bytes {start}-{}/{len}", end - 1);
                let head = format!("HTTP/1.1 206 Partial\n{lines}\n{range}");
                sending.answer(&head, &body[start..end]);
            }
            None => {
                sending.head(&format!("HTTP/1.1 200 OK\n{lines}\nContent-Length: {len}"));
                sending.body(&body[..MIB]);
                held.wait();
                sending.body(&body[MIB..]);
            }
        }
    });
    let node = Node::new(&origin.url(), &[]);
    let mut whole = node.client("GET", "/a", &[]);
    whole.read_body(MIB);
    let part = node.client("GET", "/a", &[&format!("Range: bytes={}-", 15 * MIB)]);
    until("a reader of what is on its way", || {
        let opened: Value =
            serde_json::from_slice(&node.get("/.underpass/cache?json").body).unwrap();
        opened[0]["readers"] == 2
    });
    gate.open();
    part.finish().assert_is(206, &vec![0; 5 * MIB]);
    whole.finish().assert_is(200, &vec![0; len]);
}

#[test]
fn every_body_that_ends_well_is_one_version() {
    let count = AtomicUsize::new(0);
    let origin = Origin::new(move |request, sending| {
        // Each answer is of another version.
        let number = count.fetch_add(1, Ordering::Relaxed);
        let letter = b'a' + u8::try_from(number % 26).unwrap();
        let object = Object::new(vec![letter; 3 * MIB], &number.to_string());
        object.with("Cache-Control: max-age=0").send(request, sending);
    });
    let node = Node::new(&origin.url(), &[]);
    thread::scope(|scope| {
        for number in 0..40_usize {
            let node = &node;
            scope.spawn(move || {
                let reply = match number % 2 {
                    0 => node.get("/a"),
                    _ => node.range("/a", &format!("{}-", number % 3 * MIB)),
                };
                let Some(first) = reply.body.first() else { return };
                assert!(reply.body.iter().all(|byte| byte == first), "{}", reply.head);
            });
        }
    });
}

/// Two tiers, slow clients, and an object that changes all the time.
#[test]
fn through_two_tiers_every_body_that_ends_well_is_one_version() {
    let begun = Instant::now();
    let origin = Origin::new(move |request, sending| {
        // Another version five times in a second, each of one letter.
        let number = begun.elapsed().as_millis() / 200;
        let letter = b'a' + u8::try_from(number % 26).unwrap();
        let object = Object::new(vec![letter; 3 * MIB], &number.to_string());
        object.with("Cache-Control: max-age=0").send(request, sending);
    });
    let parent = Node::new(&origin.url(), &["--fresh", "0"]);
    let nodes = [0, 1].map(|_| Node::new(&parent.url(), &["--fresh", "0"]));
    let (whole, reset) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..32_usize {
            let (node, whole, reset) = (&nodes[number % 2], &whole, &reset);
            scope.spawn(move || {
                while begun.elapsed() < Duration::from_secs(4) {
                    let lines = [format!("Range: bytes={}-", number % 3 * MIB)];
                    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
                    let mut client =
                        node.client("GET", "/a", if number % 4 < 2 { &[] } else { &lines });
                    // It reads nothing for as long as several versions are served.
                    if number % 5 == 0 {
                        client.read_head();
                        thread::sleep(Duration::from_millis(700));
                    }
                    let reply = client.finish();
                    if !matches!(reply.status, 200 | 206) {
                        continue;
                    }
                    let first = reply.body.first().copied().unwrap_or_default();
                    assert!(reply.body.iter().all(|byte| *byte == first), "{}", reply.head);
                    let len: usize = reply.field("content-length").unwrap().parse().unwrap();
                    let is_whole = reply.end == End::Closed;
                    assert_eq!(is_whole, reply.body.len() == len, "{}", reply.head);
                    let count = if is_whole { whole } else { reset };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (whole, reset) = (whole.into_inner(), reset.into_inner());
    println!("{whole} whole bodies of one version each, {reset} reset");
    assert!(whole > 0);
}

#[test]
fn a_body_that_cannot_go_on_is_reset_and_the_next_client_gets_the_new_version() {
    // What origins say when the rest of a version is asked for that is not there any more.
    for status in ["404 Gone", "409 Other", "410 Gone", "412 Other", "416 No", "200 Other"] {
        let (old, new) = versions();
        let (old_bytes, new_bytes) = (old.bytes.clone(), new.bytes.clone());
        let count = AtomicUsize::new(0);
        let origin =
            Origin::new(move |request, sending| match count.fetch_add(1, Ordering::Relaxed) {
                0 => {
                    let (head, body) = old.answer(request);
                    sending.head(&head);
                    sending.body(&body[..MIB]);
                    sending.closes = true;
                }
                1 if !status.starts_with("200") => {
                    assert_eq!(request.field("if-range"), Some("\"old\""));
                    sending.answer(&format!("HTTP/1.1 {status}"), b"");
                }
                _ => new.send(request, sending),
            });
        let node = Node::new(&origin.url(), &[]);
        let reply = node.get("/a");
        assert_eq!((reply.status, reply.end), (200, End::Reset), "{status}");
        assert!(reply.body.len() <= MIB && old_bytes.starts_with(&reply.body), "{status}");
        node.get("/a").assert_is(200, &new_bytes);
    }
}

#[test]
fn tags_that_are_no_utf_8_tell_versions_apart() {
    let len = 3 * MIB;
    for prefix in ["", "W/"] {
        let version = Arc::new(AtomicUsize::new(1));
        let current = Arc::clone(&version);
        let origin = Origin::new(move |request, sending| {
            let number = current.load(Ordering::Relaxed);
            let is_known = request.field("if-modified-since").is_some();
            let range = request.range(len).filter(|_| !is_known);
            let status = match &range {
                _ if is_known => "304 Not Modified".to_owned(),
                None => format!("200 OK\r\nContent-Length: {len}"),
                Some(Range { start, end }) => {
                    let (last, part) = (end - 1, end - start);
                    let lines = format!("Content-Range: bytes {start}-{last}/{len}");
                    format!("206 Partial\r\n{lines}\r\nContent-Length: {part}")
                }
            };
            sending.raw(format!("HTTP/1.1 {status}\r\nETag: {prefix}\"").as_bytes());
            sending.raw(b"\xe9");
            // The date stays the same, as that of a second within which it changed twice.
            let lines = "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n\
                         Date: Tue, 02 Jan 2024 00:00:00 GMT\r\nCache-Control: no-cache";
            sending.raw(format!("{number}\"\r\n{lines}\r\n\r\n").as_bytes());
            let part = if is_known { 0..0 } else { range.unwrap_or(0..len) };
            sending.body(&vec![u8::try_from(number).unwrap(); part.len()]);
        });
        let node = Node::new(&origin.url(), &[]);
        node.range("/part", "0-9").assert_is(206, &[1; 10]);
        node.get("/whole").assert_is(200, &vec![1; len]);
        version.store(2, Ordering::Relaxed);
        for path in ["/part", "/whole"] {
            node.get(path).assert_is(200, &vec![2; len]);
        }
    }
}

#[test]
fn conditions_hold_for_objects_whose_length_is_not_known_yet() {
    for control in ["no-store", "max-age=1000"] {
        let lines = format!(
            "HTTP/1.1 200 OK\nETag: \"b\"\nLast-Modified: Tue, 02 Jan 2024 00:00:00 GMT\n\
             Cache-Control: {control}\nTransfer-Encoding: chunked"
        );
        let origin = Origin::new(move |_, sending| {
            sending.head(&lines);
            sending.body(b"5\r\nhello\r\n");
            thread::sleep(Duration::from_millis(500));
            sending.body(b"0\r\n\r\n");
        });
        let node = Node::new(&origin.url(), &[]);
        for (number, (line, status)) in [
            ("If-Match: \"a\"", 412),
            ("If-Match: \"a\", \"b\"", 200),
            ("If-None-Match: \"b\"", 304),
            ("If-None-Match: \"a\"", 200),
            ("If-Unmodified-Since: Mon, 01 Jan 2024 00:00:00 GMT", 412),
            ("If-Modified-Since: Tue, 02 Jan 2024 00:00:00 GMT", 304),
        ]
        .into_iter()
        .enumerate()
        {
            let path = format!("/{number}");
            let reply = node.ask("GET", &path, &[line]);
            assert_eq!(reply.status, status, "{line} {}", reply.head);
            assert_eq!(reply.body == b"hello", status == 200, "{line}");
            assert_eq!(reply.field("etag").is_some(), status != 412, "{line}");
            let head = node.ask("HEAD", &format!("{path}?head"), &[line]);
            assert_eq!((head.status, &*head.body), (status, &b""[..]), "{line}");
        }
    }
}

#[test]
fn a_date_that_another_version_may_share_continues_no_download() {
    let date_of = |time| {
        let mut date = Vec::new();
        push_date(&mut date, time);
        String::from_utf8(date).unwrap()
    };
    let changed = SystemTime::now();
    let date = date_of(changed);
    // Within the second of its change, the file may have changed again (RFC 9110 8.8.2.2).
    for (tag, sent, status) in [
        ("", changed, 200),
        ("", changed + Duration::from_secs(1), 206),
        ("ETag: \"a\"\n", changed, 200),
        ("ETag: \"a\"\n", changed + Duration::from_secs(1), 206),
        ("ETag: W/\"a\"\n", changed, 200),
    ] {
        let lines = format!("{tag}Last-Modified: {date}\nCache-Control: max-age=0");
        let first = format!("HTTP/1.1 200 OK\n{lines}\nDate: {}", date_of(sent));
        let origin = Origin::new(move |request, sending| {
            let fields = ["if-none-match", "if-modified-since"];
            if fields.iter().any(|name| request.field(name).is_some()) {
                let later = date_of(changed + Duration::from_secs(9));
                return sending.head(&format!("HTTP/1.1 304 No\n{lines}\nDate: {later}"));
            }
            sending.answer(&first, b"hello");
        });
        let node = Node::new(&origin.url(), &[]);
        node.get("/a").assert_is(200, b"hello");
        until_stored(&node, 5);
        until("a date of the past", || changed.elapsed().unwrap() >= Duration::from_secs(2));
        let lines = ["Range: bytes=3-", &format!("If-Range: {date}")];
        let reply = node.ask("GET", "/a", &lines);
        // A validation of the tag, but not of the date, proves that the file is the same.
        let status = if tag.contains(" \"") { 206 } else { status };
        reply.assert_is(status, if status == 206 { b"lo" } else { b"hello" });
    }
}
