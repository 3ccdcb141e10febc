//! Bodies that arrive too slowly, and the space that stays free on the disk.

use std::fs;
use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

use underpass_server::MinFree;

use super::rig::{FileSystem, Mounted, Running, Site, pattern, request, wait_until};
use super::uploads::{names, open_site, put};

#[test]
fn a_body_below_the_minimum_rate_is_aborted() {
    let site = open_site().with(|settings| {
        settings.timeout = Duration::from_secs(2);
        settings.sites[0].changes.min_rate = 1000;
    });
    let server = site.start();
    let mut slow = server.connect();
    slow.send(request("PUT", "/slow", &["Content-Length: 100000"]));
    // The head of a chunk puts nothing into the file.
    let mut framing = server.connect();
    framing.send(request("PUT", "/framing", &["Transfer-Encoding: chunked"]) + "5;name=");
    let mut quick = server.connect();
    quick.send(request("PUT", "/quick", &["Content-Length: 8000000"]));
    let (bytes, began, mut sent) = (pattern(8_000_000), Instant::now(), 0);
    // A byte ten times a second never stands still.
    while began.elapsed() < super::rig::PATIENCE {
        let _ = slow.stream.write_all(b"x");
        let _ = framing.stream.write_all(b"x");
        if sent < 8_000_000 {
            quick.send(&bytes[sent..sent + 200_000]);
            sent += 200_000;
        }
        let ended = server.lines().iter().filter(|line| line.contains("\"too_slow\"")).count();
        if ended == 2 && sent == 8_000_000 {
            break;
        }
        sleep(Duration::from_millis(100));
    }
    for (client, path) in [(&mut slow, "/slow"), (&mut framing, "/framing")] {
        assert_eq!(client.reply().status, 408, "{path}");
        assert_eq!(server.record(&format!("\"{path}\""))["failure"], "too_slow");
    }
    assert_eq!(quick.reply().status, 201);
    assert_eq!(names(&server), ["quick"]);
}

/// A server of a file system of 32 MiB, of which half is to stay free.
fn half_free(kind: FileSystem, min_free: MinFree) -> Option<(Running, Mounted)> {
    let disk = Mounted::new(kind, 32)?;
    let folder = disk.root().join("folder");
    fs::create_dir(&folder).unwrap();
    let site: Site = open_site().with_site(|site| {
        site.root = Some(folder);
        site.changes.min_free = min_free;
    });
    Some((site.start(), disk))
}

fn free(disk: &Mounted) -> u64 {
    let facts = rustix::fs::statvfs(disk.root()).unwrap();
    facts.f_bavail * facts.f_frsize
}

#[test]
fn uploads_leave_the_configured_space_free() {
    const KEPT: u64 = 16 << 20;
    for (kind, min_free) in [
        (FileSystem::Tmpfs, MinFree::Bytes(KEPT)),
        (FileSystem::Tmpfs, MinFree::Percent(50)),
        (FileSystem::Ext4, MinFree::Bytes(KEPT)),
    ] {
        let Some((server, disk)) = half_free(kind, min_free) else { return };
        // Of known length: before the body, however it is sent.
        let large = free(&disk) - KEPT + 4096;
        let length = format!("Content-Length: {large}");
        for fields in [&[][..], &["Upload-Complete: ?1"], &["Upload-Complete: ?0"]] {
            let mut client = server.connect();
            let fields = [fields, &[length.as_str(), "Expect: 100-continue"]].concat();
            client.send(request("PUT", "/file", &fields));
            assert_eq!(client.reply().status, 507, "{kind:?} {fields:?}");
        }
        // Of unknown length: when there is no more.
        let mut client = server.connect();
        client.send(request("PUT", "/file", &["Transfer-Encoding: chunked"]));
        client.send("1400000\r\n");
        let mut sender = client.stream.try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            let _ = sender.write_all(&pattern(20 << 20));
        });
        assert_eq!(client.head().unwrap().status, 507, "{kind:?}");
        drop(client);
        sending.join().unwrap();
        assert_eq!(server.record("\"full\"")["status"], 507);
        let received = server.record("\"full\"")["received"].as_u64().unwrap();
        assert!((1 << 20..=large + (1 << 20)).contains(&received), "{kind:?} {received}");
        assert_eq!(names_of(&disk), [""; 0]);
        // Two at once have room for one.
        let len = usize::try_from((free(&disk) - KEPT) / 3 * 2).unwrap();
        let mut first = server.connect();
        first.send(request("PUT", "/first", &[&format!("Content-Length: {len}")]));
        first.send("x");
        wait_until("it is received", || server.metric("transfers_open") > 0.0);
        assert_eq!(put(&server, "/second", &[], &pattern(len)).status, 507, "{kind:?}");
        first.send(&pattern(len)[1..]);
        assert_eq!(first.reply().status, 201);
        // Nor can it be copied as often as one likes.
        assert_eq!(server.ask("COPY", "/first", &["Destination: /copy"]).status, 507);
        // A change makes a copy, too.
        let update = ["X-Update-Range: append", "Content-Length: 0"];
        assert_eq!(server.ask("PATCH", "/first", &update).status, 507);
        assert_eq!(put(&server, "/small", &[], b"small").status, 201);
        assert_eq!(server.ask("PATCH", "/small", &update).status, 204);
        assert!(free(&disk) >= KEPT, "{kind:?}");
        drop(server);
    }
}

#[test]
fn a_change_takes_no_more_room_than_its_body_until_that_is_complete() {
    let Some((server, disk)) = half_free(FileSystem::Tmpfs, MinFree::Bytes(0)) else { return };
    assert_eq!(put(&server, "/file", &[], &pattern(8 << 20)).status, 201);
    let before = free(&disk);
    let mut clients = [(); 5].map(|()| server.connect());
    for client in &mut clients {
        let fields = ["X-Update-Range: append", "Content-Length: 2", "Expect: 100-continue"];
        client.send(request("PATCH", "/file", &fields));
        assert_eq!(client.head().unwrap().status, 100);
        client.send("a");
    }
    assert!(free(&disk) + (1 << 20) > before);
    for client in &mut clients {
        client.send("b");
        assert_eq!(client.reply().status, 204);
    }
    let file = fs::read(disk.root().join("folder/file")).unwrap();
    assert!(file == [pattern(8 << 20), b"ab".repeat(5)].concat());
    assert_eq!(names_of(&disk), ["file"]);
    drop(server);
}

/// All names in the folder that is served.
fn names_of(disk: &Mounted) -> Vec<String> {
    underpass_testkit::names(&disk.root().join("folder"))
}
