//! One response, one version of the file: what a client accepts as whole is never a mixture.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use underpass_engine::Integrity;

use super::rig::{
    Client, FileSystem, Mounted, Running, Site, pattern, request, settings, wait_until,
};

const LEN: usize = 24 << 20;

/// A client in the middle of a response, and what it was promised.
fn begun(site: &Running, path: &str) -> Client {
    let mut client = site.connect_narrow();
    client.send(request("GET", path, &[]));
    let head = client.head().unwrap();
    assert_eq!((head.status, head.field("Content-Length")), (200, Some(LEN.to_string().as_str())));
    client.take(1 << 20).unwrap();
    client
}

#[track_caller]
fn assert_reset(client: &mut Client) {
    let end = client.end().map_err(|error| error.kind());
    assert_eq!(end.err(), Some(io::ErrorKind::ConnectionReset));
}

#[test]
fn a_file_that_shrinks_in_mid_response_resets_the_connection() {
    for integrity in [Integrity::Detect, Integrity::Fast] {
        let site = Site::new().with_site(|site| site.integrity = integrity);
        site.write("file", &pattern(LEN));
        let site = site.start();
        let mut client = begun(&site, "/file");
        File::options().write(true).open(site.path("file")).unwrap().set_len(2 << 20).unwrap();
        assert_reset(&mut client);
        let record = site.record("\"target\":\"/file\"");
        assert_eq!(record["complete"], false);
        assert!(["shrank", "changed"].contains(&record["failure"].as_str().unwrap()), "{record}");
        assert!(site.notes().iter().any(|note| note.contains("/file")), "{:?}", site.notes());
    }
}

#[test]
fn a_file_overwritten_in_mid_response_resets_the_connection_before_its_last_byte() {
    let site = Site::new();
    site.write("file", &pattern(LEN));
    let site = site.start();
    let mut client = begun(&site, "/file");
    let file = File::options().write(true).open(site.path("file")).unwrap();
    file.write_all_at(b"other", 5).unwrap();
    assert_reset(&mut client);
    assert_eq!(site.record("\"target\":\"/file\"")["failure"], "changed");
    assert_eq!(site.metric("responses_failed_total{reason=\"changed\"}"), 1.0);
    // The next request gets the new version.
    let again = site.get("/file");
    assert_eq!((again.body.len(), &again.body[5..10]), (LEN, &b"other"[..]));
}

#[test]
fn a_range_of_a_file_that_changes_is_reset_too() {
    let site = Site::new();
    site.write("file", &pattern(LEN));
    let site = site.start();
    for range in ["bytes=0-20000000", "bytes=0-9000000,10000000-20000000"] {
        let mut client = site.connect_narrow();
        client.send(request("GET", "/file", &[&format!("Range: {range}")]));
        assert_eq!(client.head().unwrap().status, 206);
        client.take(1 << 20).unwrap();
        // Far beyond the range, but the version is that of the whole file.
        let file = File::options().write(true).open(site.path("file")).unwrap();
        file.write_all_at(b"other", LEN as u64 - 5).unwrap();
        assert_reset(&mut client);
    }
}

#[test]
fn a_file_replaced_in_mid_response_is_sent_to_its_end() {
    let site = Site::new();
    site.write("file", &pattern(LEN));
    let site = site.start();
    for replace in [
        |path: &Path| {
            fs::write(path.with_extension("new"), b"new").unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        },
        |path: &Path| fs::remove_file(path).unwrap(),
    ] {
        fs::write(site.path("file"), pattern(LEN)).unwrap();
        let mut client = begun(&site, "/file");
        replace(&site.path("file"));
        let rest = client.take(LEN - (1 << 20)).unwrap();
        assert!(rest == pattern(LEN)[1 << 20..]);
    }
}

#[test]
fn a_file_that_grows_meanwhile_is_never_sent_beyond_what_was_promised() {
    let site = Site::new().with_site(|site| site.integrity = Integrity::Fast);
    site.write("file", &pattern(LEN));
    let site = site.start();
    let mut client = begun(&site, "/file");
    File::options().append(true).open(site.path("file")).unwrap().set_len(LEN as u64 * 2).unwrap();
    client.take(LEN - (1 << 20)).unwrap();
    assert_eq!(client.get("/file").field("Content-Length"), Some((LEN * 2).to_string().as_str()));
}

/// Writes all `A`, then all `B`, and so on over the same file, until it is stopped.
fn rewrite(path: &Path, len: usize, is_over: &AtomicBool) {
    let file = File::options().write(true).open(path).unwrap();
    for version in [b'A', b'B'].iter().cycle() {
        file.write_all_at(&vec![*version; len], 0).unwrap();
        if is_over.load(Ordering::Relaxed) {
            break;
        }
    }
}

/// Asks for a file that is rewritten all the time; says how many whole versions were seen.
fn ask_while_rewritten(site: &Running, len: usize, span: Duration) -> usize {
    let path = site.path("file");
    fs::write(&path, vec![b'A'; len]).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| rewrite(&path, len, &is_over));
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let until = Instant::now() + span;
                    let mut whole = 0;
                    while Instant::now() < until {
                        whole += ask_in_a_loop(site, len, until);
                    }
                    whole
                })
            })
            .collect();
        let seen = clients.into_iter().map(|client| client.join()).collect::<Vec<_>>();
        is_over.store(true, Ordering::Relaxed);
        seen.into_iter().map(|seen| seen.unwrap_or_else(|panic| resume_unwind(panic))).sum()
    })
}

/// One connection for as long as it lasts.
fn ask_in_a_loop(site: &Running, len: usize, until: Instant) -> usize {
    let mut client = site.connect();
    let mut whole = 0;
    while Instant::now() < until {
        match client.try_ask("GET", "/file", &[]) {
            Ok(reply) if reply.status == 503 => break,
            Ok(reply) => {
                assert_eq!((reply.status, reply.body.len()), (200, len));
                let first = reply.body[0];
                assert!(matches!(first, b'A' | b'B'));
                let other = reply.body.iter().position(|byte| *byte != first);
                assert_eq!(other, None, "two versions in one response of {len} bytes");
                whole += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
                break;
            }
        }
    }
    whole
}

#[test]
fn no_response_of_a_file_that_is_rewritten_all_the_time_mixes_two_versions() {
    let site = Site::new().with(|settings| settings.workers = 2).start();
    for len in [1 << 10, 12 << 10, 100 << 10, 3 << 20] {
        let whole = ask_while_rewritten(&site, len, Duration::from_millis(1200));
        println!("{len} bytes: {whole} whole responses");
    }
    assert!(!site.notes().iter().any(|note| note.contains("folder")), "{:?}", site.notes());
    wait_until("no connection is left behind", || site.metric("connections_open") == 1.0);
}

#[test]
fn a_file_rewritten_now_and_then_is_served_in_whole_versions() {
    let site = Site::new().start();
    let path = site.path("file");
    for len in [1 << 10, 12 << 10, 100 << 10] {
        let file = File::create(&path).unwrap();
        for at in 0..10 {
            let version = vec![b'A' + at % 2; len];
            file.write_all_at(&version, 0).unwrap();
            assert!(site.get("/file").body == version, "version {at} of {len} bytes");
        }
    }
}

#[test]
fn with_leases_a_writer_waits_for_the_response() {
    let site = Site::new().with_site(|site| site.integrity = Integrity::Lease);
    site.write("file", &pattern(LEN));
    let site = site.start();
    let mut client = begun(&site, "/file");
    thread::scope(|scope| {
        let path = site.path("file");
        let writer = scope.spawn(move || {
            // The kernel tells the holder by a signal to another process only: a shell writes.
            let script = "printf other | dd of=\"$1\" conv=notrunc status=none";
            let status =
                std::process::Command::new("sh").args(["-c", script, "sh"]).arg(path).status();
            assert!(status.unwrap().success());
        });
        thread::sleep(Duration::from_millis(50));
        assert!(!writer.is_finished(), "the writer has to wait");
        assert!(client.take(LEN - (1 << 20)).unwrap() == pattern(LEN)[1 << 20..]);
    });
    assert!(site.get("/file").body.starts_with(b"other"));
}

#[test]
fn with_snapshots_a_response_is_whole_whatever_is_written_meanwhile() {
    let Some(mounted) = Mounted::new(FileSystem::Xfs, 400) else { return };
    let mut site = Site::new();
    site.settings.sites[0].integrity = Integrity::Snapshot;
    site.settings.sites[0].root = Some(mounted.root());
    let path = mounted.root().join("file");
    fs::write(&path, pattern(LEN)).unwrap();
    fs::write(mounted.root().join("small"), b"small").unwrap();
    let site = site.start();
    let mut client = begun(&site, "/file");
    fs::write(&path, b"other").unwrap();
    assert!(client.take(LEN - (1 << 20)).unwrap() == pattern(LEN)[1 << 20..]);
    assert_eq!(client.get("/file").text(), "other");
    assert_eq!(client.get("/small").text(), "small");
    drop((client, site));
}

#[test]
fn an_unavailable_level_is_reported_and_a_weaker_one_used() {
    // ext4 and tmpfs have no snapshots; wherever the tests run, /proc has none either.
    let Some(mounted) = Mounted::new(FileSystem::Tmpfs, 8) else { return };
    let mut site = Site::new();
    site.settings = settings(&mounted.root());
    site.settings.sites[0].integrity = Integrity::Snapshot;
    fs::write(mounted.root().join("file"), pattern(100_000)).unwrap();
    let site = site.start();
    assert!(site.get("/file").body == pattern(100_000));
    let record = site.record("\"target\":\"/file\"");
    let declined = record["declined"].to_string();
    assert!(declined.contains("snapshot"), "{declined}");
}

#[test]
fn an_archive_whose_first_files_change_before_they_are_read_is_reset() {
    for format in ["tar", "zip"] {
        let site = Site::new();
        site.write("folder/000", &pattern(40_000));
        // More files than are open at once.
        for number in 1..40 {
            site.write(&format!("folder/{number:03}"), b"small");
        }
        let site = site.start();
        let target = format!("/folder/?archive={format}");
        assert_eq!(site.get(&target).status, 200, "nothing has changed");
        let mut client = site.connect();
        client.send(request("GET", &target, &[]));
        assert_eq!(client.head().unwrap().status, 200);
        wait_until("all but the end waits for the client", || {
            let rows = site.get("/.underpass/transfers?json").text();
            let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
            let row = |name: &str| rows[0][name].as_u64();
            row("bytes").zip(row("expected")).is_some_and(|(sent, len)| len - sent <= 16 << 10)
        });
        // The pages in the socket's buffer are those of the file.
        let file = File::options().write(true).open(site.path("folder/000")).unwrap();
        file.write_all_at(b"other", 20_000).unwrap();
        assert_reset(&mut client);
        assert_eq!(site.record("\"complete\":false")["failure"], "changed", "{format}");
    }
}
