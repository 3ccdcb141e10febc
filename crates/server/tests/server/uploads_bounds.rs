//! Limits of one client, so that others keep places for uploads, space on the disk, and parts.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::rig::{Client, FileSystem, Mounted, Running, request, wait_until};
use super::uploads::{leave, names, open_site, put, send};

/// A connection from another address of this machine.
fn from_elsewhere(server: &Running, last: u8) -> Client {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0))).unwrap();
    connect(&socket, &server.socket()).unwrap();
    Client::new(TcpStream::from(socket))
}

#[test]
fn one_address_does_not_take_the_places_of_all_others() {
    let server = open_site().start();
    let mut slow: Vec<_> = (0..256)
        .map(|number| {
            let mut client = server.connect();
            client.send(request("PUT", &format!("/slow-{number}"), &["Content-Length: 10"]));
            client.send("x");
            client
        })
        .collect();
    wait_until("all are received", || server.metric("transfers_open") == 256.0);
    let refused = put(&server, "/file", &[], b"more");
    assert_eq!((refused.status, refused.field("Retry-After")), (503, Some("1")));
    // Before its body, which may be as slow as the others.
    let mut unsent = server.connect();
    unsent.send(request("PUT", "/unsent", &["Content-Length: 10"]));
    assert_eq!(unsent.reply().status, 503);
    let mut other = from_elsewhere(&server, 2);
    send(&mut other, "PUT", "/file", &[], b"other");
    assert_eq!(other.reply().status, 201);
    // Its places are free again once they end.
    for client in &mut slow[..10] {
        client.send("123456789");
        assert_eq!(client.reply().status, 201);
    }
    assert_eq!(put(&server, "/file", &[], b"more").status, 204);
    // A request that only reads needs no place.
    assert_eq!(server.get("/file").text(), "more");
}

#[test]
fn space_is_reserved_for_as_long_as_a_connection_sends() {
    use FileSystem::{Btrfs, Ext4, Tmpfs, Xfs};
    const TOTAL: u64 = 40 << 20;
    for kind in [Btrfs, Ext4, Tmpfs, Xfs] {
        let Some(disk) = Mounted::new(kind, if kind == Btrfs { 200 } else { 100 }) else { return };
        let folder = disk.root().join("folder");
        fs::create_dir(&folder).unwrap();
        let reserved = || -> u64 {
            let entries = fs::read_dir(&folder).unwrap();
            entries.map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512).sum()
        };
        // A server that was killed has left a part with all that it had reserved.
        let part = folder.join(".old.0123456789abcdef0123456789abcdef.upload");
        fs::write(&part, "x").unwrap();
        let file = fs::File::options().write(true).open(&part).unwrap();
        fallocate(&file, FallocateFlags::KEEP_SIZE, 0, TOTAL).unwrap();
        assert!(reserved() >= TOTAL, "{kind:?}");
        let server = open_site().with_site(|site| site.root = Some(folder.clone())).start();
        wait_until("it is given back", || reserved() < 1 << 20);
        // Of known length, by a client that sends one byte.
        let mut client = server.connect();
        let length = format!("Content-Length: {TOTAL}");
        client.send(request("PUT", "/a", &["Upload-Complete: ?1", &length]));
        client.send("x");
        // btrfs compresses nothing that is reserved.
        if kind != Btrfs {
            wait_until("it is reserved", || reserved() >= TOTAL);
        }
        leave(&server, client);
        assert!(reserved() < 1 << 20, "{kind:?}");
        // With more bytes announced than are sent.
        let said = format!("Upload-Length: {TOTAL}");
        assert_eq!(put(&server, "/b", &["Upload-Complete: ?0", &said], b"x").status, 201);
        let range = format!("Content-Range: bytes 0-0/{TOTAL}");
        assert_eq!(put(&server, "/c", &[&range], b"x").status, 202);
        assert!(reserved() < 1 << 20, "{kind:?}");
        drop(server);
    }
}

#[test]
fn the_unfinished_parts_of_one_client_are_limited() {
    const MANY: usize = 140;
    const MAX: usize = 128;
    let server = open_site().start();
    let mut other = from_elsewhere(&server, 2);
    let theirs = other.ask("PUT", "/theirs", &["Upload-Complete: ?0"]);
    let theirs = theirs.upload_of("/theirs");
    let mut client = server.connect();
    let locations: Vec<_> = (0..MANY)
        .map(|number| {
            let path = format!("/file-{number}");
            let created = client.ask("PUT", &path, &["Upload-Complete: ?0"]);
            assert_eq!(created.status, 201, "{number}");
            created.upload_of(&path)
        })
        .collect();
    assert_eq!(names(&server).len(), MAX + 1);
    // The newest are there, and that of another client.
    assert_eq!(client.try_ask("HEAD", &locations[0], &[]).unwrap().status, 404);
    assert_eq!(client.try_ask("HEAD", &locations[MANY - 1], &[]).unwrap().status, 204);
    assert_eq!(other.try_ask("HEAD", &theirs, &[]).unwrap().status, 204);
    // They are counted by a server that was restarted, too.
    let (root, changes) = (server.path(""), open_site().settings.sites[0].changes);
    let again = open_site().with_site(|site| (site.root, site.changes) = (Some(root), changes));
    let again = again.start();
    wait_until("the next one takes the place of an old one", || {
        again.ask("PUT", "/next", &["Upload-Complete: ?0"]);
        names(&server).len() <= MAX + 1
    });
    assert_eq!(again.ask("HEAD", &theirs, &[]).status, 204);
}

#[test]
fn a_part_is_removed_when_its_time_has_come() {
    let site = open_site().with_site(|site| site.changes.expiry = Duration::from_secs(1));
    let server = site.start();
    assert_eq!(server.ask("PUT", "/file", &["Upload-Complete: ?0"]).status, 201);
    assert_eq!(names(&server).len(), 1);
    wait_until("it is removed without anybody asking", || names(&server).is_empty());
}

#[test]
fn one_client_does_not_reserve_the_disk_by_many_uploads() {
    let Some(disk) = Mounted::new(FileSystem::Ext4, 100) else { return };
    let folder = disk.root().join("folder");
    fs::create_dir(&folder).unwrap();
    let facts = rustix::fs::statvfs(&folder).unwrap();
    // Two of the one and one of the other exceed the free space.
    let free = usize::try_from(facts.f_bfree * facts.f_frsize).unwrap();
    let (large, small) = (free / 5 * 2, free / 10 * 3);
    let server = open_site().with_site(|site| site.root = Some(folder.clone())).start();
    let begin = |name: &str| {
        let mut client = server.connect();
        let fields = [format!("Content-Length: {large}"), "Expect: 100-continue".to_owned()];
        client.send(request("PUT", name, &[&fields[0], &fields[1]]));
        assert_eq!(client.head().unwrap().status, 100, "{name}");
        client.send("x");
        client
    };
    // One file may reserve the free space; a second one gets no reservation.
    let (mut first, _second) = (begin("/first"), begin("/second"));
    let mut other = from_elsewhere(&server, 2);
    send(&mut other, "PUT", "/other", &[], &vec![b'y'; small]);
    assert_eq!(other.reply().status, 201);
    client_ends(&mut first, large);
    assert_eq!(fs::metadata(folder.join("first")).unwrap().len(), large as u64);
}

/// Sends all but the first byte of a body.
fn client_ends(client: &mut Client, len: usize) {
    client.send(vec![b'x'; len - 1]);
    assert_eq!(client.reply().status, 201);
}
