//! Several connections for one file.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use underpass_client::download::{DownloadError, DownloadEvent, Downloader, Target};
use underpass_protocol::digest::hex;

use crate::rig::{Client, Server, TAG, give, hang_up, head, noise, say};
use underpass_testkit::wait_until;

const LEN: usize = 64 << 20;

#[test]
fn several_connections_share_the_work() {
    let bytes = noise(LEN);
    // Nothing after the first piece is sent until three requests have arrived.
    let (body, together) = (bytes.clone(), Barrier::new(3));
    let arrived = AtomicUsize::new(0);
    let server = Server::start(move |request, stream| {
        if request.number > 0 && arrived.fetch_add(1, Ordering::Relaxed) < 3 {
            together.wait();
        }
        give(request, stream, &body, TAG)
    });
    let done = Client::with(4).gets(&server.url("/"), &bytes);
    assert!(done.connections >= 3, "{}", done.connections);
    let requests = server.requests();
    assert!(requests[1..].iter().all(|request| request.field("if-range") == Some(TAG)));
    // Each byte was requested once: the pieces do not overlap.
    let mut ranges: Vec<_> = requests.iter().map(|request| request.range(LEN).unwrap()).collect();
    ranges.sort_by_key(|range| range.start);
    assert_eq!(ranges.iter().map(ExactSizeIterator::len).sum::<usize>(), LEN);
}

#[test]
fn each_part_is_compared_with_its_digest() {
    let bytes = noise(LEN);
    for is_right in [true, false] {
        let body = bytes.clone();
        let server = Server::start(move |request, stream| {
            let (head, range) = head(request, &body, TAG);
            // One part is wrong, but not the first.
            let is_right = is_right || range.start < LEN / 2;
            let sum = Sha256::digest(if is_right { &body[range.clone()] } else { b"other" });
            let digest = format!("Content-Digest: sha-256=:{}:", STANDARD.encode(sum));
            say(stream, &format!("{}\n{digest}\n\n", head.trim_end()))?;
            stream.write_all(&body[range])
        });
        let client = Client::with(4);
        if is_right {
            client.gets(&server.url("/"), &bytes);
            continue;
        }
        let failed = client.get(&server.url("/")).expect_err("a wrong digest");
        assert!(matches!(failed.error, DownloadError::Digest(_)), "{failed}");
        assert!(failed.kept.is_none());
    }
}

#[test]
fn on_this_machine_and_for_small_files_one_is_enough() {
    let bytes = noise(LEN);
    let server = Server::of(&bytes);
    assert_eq!(Client::new().gets(&server.url("/"), &bytes).connections, 1);
    assert_eq!(server.requests().len(), 1);
    assert_eq!(server.requests()[0].field("range"), None);
    let small = noise(1 << 20);
    let server = Server::of(&small);
    assert_eq!(Client::with(8).gets(&server.url("/"), &small).connections, 1);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_slow_connection_does_not_hold_up_the_end() {
    let bytes = noise(LEN);
    let body = bytes.clone();
    let is_slow = AtomicBool::new(true);
    let server = Server::start(move |request, stream| {
        // The first piece is sent at 256 KiB/s: this connection alone would take a minute.
        if request.number == 0 && is_slow.swap(false, Ordering::Relaxed) {
            let (head, range) = head(request, &body, TAG);
            say(stream, &head)?;
            for piece in body[range].chunks(16 << 10) {
                stream.write_all(piece)?;
                std::thread::sleep(Duration::from_millis(62));
            }
            return Ok(());
        }
        give(request, stream, &body, TAG)
    });
    Client::with(3).gets(&server.url("/"), &bytes);
    // Another connection requested a part of the first piece again.
    let requests = server.requests();
    let first = requests[0].range(LEN).unwrap();
    assert!(requests[1..].iter().any(|request| first.contains(&request.range(LEN).unwrap().start)));
}

#[test]
fn a_connection_that_stalls_is_cut_off_and_its_bytes_fetched_by_another() {
    let bytes = noise(LEN);
    let body = bytes.clone();
    let server = Server::start(move |request, stream| {
        if request.number == 1 {
            let (head, range) = head(request, &body, TAG);
            say(stream, &head)?;
            stream.write_all(&body[range.start..range.start + 1000])?;
            // Waits until the client hangs up.
            while stream.write_all(b"").is_ok() && stream.peek(&mut [0]).is_err() {}
            return hang_up();
        }
        give(request, stream, &body, TAG)
    });
    // If it were not cut off, this would take the whole timeout.
    let mut client = Client::with(2);
    client.timeout = Duration::from_secs(600);
    client.gets(&server.url("/"), &bytes);
    let requests = server.requests();
    let stalled = requests[1].range(LEN).unwrap();
    let again = requests[2..]
        .iter()
        .any(|request| request.range(LEN).unwrap().start == stalled.start + 1000);
    assert!(again, "{requests:?}");
}

#[test]
fn a_server_that_takes_one_connection_only_is_enough() {
    let bytes = noise(LEN);
    let body = bytes.clone();
    let open = AtomicUsize::new(0);
    let server = Server::start(move |request, stream| {
        let is_second = open.fetch_add(1, Ordering::Relaxed) > 0;
        let outcome = if is_second {
            say(stream, "HTTP/1.1 503 Busy\nContent-Length: 0\n\n")
        } else {
            give(request, stream, &body, TAG)
        };
        open.fetch_sub(1, Ordering::Relaxed);
        outcome
    });
    let mut client = Client::with(4);
    client.options.retries = 2;
    client.gets(&server.url("/"), &bytes);
}

#[test]
fn parts_of_several_servers_without_a_digest_are_reported() {
    let bytes = noise(LEN);
    let sum = Sha256::digest(&*bytes);
    for is_checked in [false, true] {
        let is_asked = Arc::new(AtomicBool::new(false));
        let (body, asks) = (bytes.clone(), is_asked.clone());
        let first = Server::start(move |request, stream| {
            let (head, range) = head(request, &body, TAG);
            say(stream, &head)?;
            stream.write_all(&body[range.start..range.start + 1])?;
            wait_until("the mirror", || asks.load(Ordering::Relaxed));
            stream.write_all(&body[range.start + 1..range.end])
        });
        let body = bytes.clone();
        let mirror = Server::start(move |request, stream| {
            give(request, stream, &body, TAG)?;
            is_asked.store(true, Ordering::Relaxed);
            Ok(())
        });
        let mut client = Client::with(2);
        if is_checked {
            client.options.expected = vec![format!("sha-256:{}", hex(&sum)).parse().unwrap()];
        }
        let folder: OwnedFd = fs::File::open(client.folder.path()).unwrap().into();
        let (name, if_exists) = (OsStr::new("file"), client.if_exists);
        let target = Target::Named { folder: &folder, name, if_exists };
        let downloader = Downloader::new(client.agent(None), client.options.clone());
        let downloader = downloader.with_mirrors(vec![(client.agent(None), mirror.url("/"))]);
        let warned = AtomicBool::new(false);
        let on_event = |event: &DownloadEvent<'_>| {
            if matches!(event, DownloadEvent::OnlyTagsCompared) {
                warned.store(true, Ordering::Relaxed);
            }
        };
        downloader.fetch(&first.url("/"), &target, &client.gauge, &on_event).unwrap();
        assert_eq!(warned.into_inner(), !is_checked);
    }
}

#[test]
fn the_others_do_the_work_of_a_permanently_refused_connection() {
    let bytes = noise(LEN);
    for status in ["400 Bad", "401 Who", "403 No", "404 Gone", "509 Too much"] {
        let (body, serving) = (bytes.clone(), AtomicUsize::new(0));
        let refused = AtomicUsize::new(0);
        let server = Server::start(move |request, stream| {
            let is_second = serving.fetch_add(1, Ordering::Relaxed) > 0;
            let outcome = if is_second {
                refused.fetch_add(1, Ordering::Relaxed);
                say(stream, &format!("HTTP/1.1 {status}\nContent-Length: 0\n\n"))
            } else {
                let (head, range) = head(request, &body, TAG);
                say(stream, &head)?;
                stream.write_all(&body[range.start..range.start + 1])?;
                if request.number == 0 {
                    wait_until("another", || refused.load(Ordering::Relaxed) > 0);
                }
                stream.write_all(&body[range.start + 1..range.end])
            };
            serving.fetch_sub(1, Ordering::Relaxed);
            outcome
        });
        Client::with(4).gets(&server.url("/"), &bytes);
    }
}

#[test]
fn a_refused_redirect_target_is_requested_again_from_the_given_url() {
    let bytes = noise(LEN);
    for connections in [1, 4] {
        let body = bytes.clone();
        let (issued, used) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let server = Server::start(move |request, stream| {
            let Some(number) = request.path.strip_prefix("/once/") else {
                let number = 1 + issued.fetch_add(1, Ordering::Relaxed);
                let to = format!("Location: /once/{number}");
                return say(stream, &format!("HTTP/1.1 302 Found\n{to}\nContent-Length: 0\n\n"));
            };
            // Each redirect target accepts one request.
            let mask = 1 << number.parse::<usize>().unwrap();
            if used.fetch_or(mask, Ordering::Relaxed) & mask != 0 {
                return say(stream, "HTTP/1.1 403 No\nContent-Length: 0\n\n");
            }
            give(request, stream, &body, "\"d41d8cd98f00b204e9800998ecf8427e\"")
        });
        Client::with(connections).gets(&server.url("/"), &bytes);
    }
}

#[test]
fn a_rate_holds_for_all_connections_together() {
    let bytes = noise(8 << 20);
    let server = Server::of(&bytes);
    let mut client = Client::with(4);
    client.options.rate = Some(8 << 20);
    let started = Instant::now();
    client.gets(&server.url("/"), &bytes);
    // A busy machine may be slower; faster would be wrong.
    assert!(started.elapsed() > Duration::from_millis(700), "{:?}", started.elapsed());
}

#[test]
fn a_cancelled_download_ends_at_once_and_can_be_resumed() {
    let bytes = noise(LEN);
    let server = Server::of(&bytes);
    for connections in [1, 4] {
        let mut client = Client::with(connections);
        client.options.rate = Some(16 << 20);
        let cancel = AtomicBool::new(false);
        let failed = std::thread::scope(|scope| {
            let running = scope.spawn(|| client.get_until(&server.url("/"), Some(&cancel)));
            wait_until("some of it has come", || client.gauge.done() > 4 << 20);
            cancel.store(true, Ordering::Relaxed);
            running.join().unwrap().unwrap_err()
        });
        assert_eq!(failed.to_string(), "cancelled");
        let kept = failed.kept.unwrap().bytes;
        assert!(kept > 1 << 20);
        client.options.rate = None;
        let done = client.gets(&server.url("/"), &bytes);
        assert_eq!(done.resumed_at, kept);
        assert_eq!(done.report.bytes(), LEN as u64 - kept);
    }
}

#[test]
fn a_complete_file_leaves_no_part_of_another_place_of_it() {
    let bytes = noise(LEN);
    for is_left_by_mirror in [true, false] {
        let is_later = Arc::new(AtomicBool::new(false));
        let (body, is_over) = (Arc::clone(&bytes), Arc::clone(&is_later));
        let broken = Server::start(move |request, stream| {
            if is_over.load(Ordering::Relaxed) {
                return say(stream, "HTTP/1.1 404 x\nContent-Length: 0\n\n");
            }
            let (head, range) = head(request, &body, TAG);
            say(stream, &head)?;
            stream.write_all(&body[range.start..range.start + (4 << 20)])?;
            hang_up()
        });
        // Sends no part, so that none is written.
        let (body, has_begun) = (Arc::clone(&bytes), Arc::clone(&is_later));
        let later = Server::start(move |_, stream| {
            if !has_begun.load(Ordering::Relaxed) {
                return say(stream, "HTTP/1.1 404 x\nContent-Length: 0\n\n");
            }
            say(stream, &format!("HTTP/1.1 200 x\nContent-Length: {}\n\n", body.len()))?;
            stream.write_all(&body)
        });
        let (first, mirror) = if is_left_by_mirror { (later, broken) } else { (broken, later) };
        let mut client = Client::with(1);
        client.options.retries = 0;
        let folder: OwnedFd = fs::File::open(client.folder.path()).unwrap().into();
        let name = OsStr::new("file");
        let target = Target::Named { folder: &folder, name, if_exists: client.if_exists };
        let fetch = || {
            let downloader = Downloader::new(client.agent(None), client.options.clone());
            let downloader = downloader.with_mirrors(vec![(client.agent(None), mirror.url("/"))]);
            downloader.fetch(&first.url("/"), &target, &client.gauge, &|_| {})
        };
        fetch().unwrap_err();
        assert_eq!(client.names(), ["file.part", "file.part.journal"]);
        is_later.store(true, Ordering::Relaxed);
        fetch().unwrap();
        assert!(fs::read(client.path()).unwrap() == *bytes);
        assert_eq!(client.names(), ["file"]);
    }
}
