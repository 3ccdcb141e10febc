//! Uploads to each available file system, to a full one, and to a read-only one.

use std::fs;
use std::process::Command;

use super::rig::{FileSystem, Mounted, Running, Site, pattern, request};
use super::uploads::{leave, open_site, put, send};

/// A server of a file system of this many MiB.
fn mounted(kind: FileSystem, mebibytes: u64) -> Option<(Running, Mounted)> {
    let disk = Mounted::new(kind, mebibytes)?;
    let folder = disk.root().join("folder");
    fs::create_dir(&folder).unwrap();
    let site: Site = open_site().with_site(|site| site.root = Some(folder));
    Some((site.start(), disk))
}

/// All names in the folder that is served, except what the file system itself creates.
fn names(disk: &Mounted) -> Vec<String> {
    underpass_testkit::names(&disk.root().join("folder"))
}

#[test]
fn every_file_system_stores_files_and_resumes_uploads() {
    use FileSystem::{Btrfs, Ext4, Overlay, Tmpfs, Xfs};
    const TOTAL: usize = 4_000_000;
    for kind in [Btrfs, Ext4, Overlay, Tmpfs, Xfs] {
        let size = if kind == Btrfs { 160 } else { 32 };
        let Some((server, disk)) = mounted(kind, size) else { continue };
        assert_eq!(put(&server, "/file", &[], b"old").status, 201, "{kind:?}");
        let mut client = server.connect();
        client.send(request("PUT", "/file", &["Content-Length: 4000000"]));
        client.send(&pattern(TOTAL)[..2_500_000]);
        leave(&server, client);
        assert_eq!(server.get("/file").body, b"old", "{kind:?}");
        let at = server.ask("HEAD", "/file?partial", &[]);
        assert_eq!(at.field("Upload-Offset"), Some("2500000"), "{kind:?}");
        let range = "Content-Range: bytes 2500000-3999999/4000000";
        assert_eq!(put(&server, "/file", &[range], &pattern(TOTAL)[2_500_000..]).status, 204);
        assert!(server.get("/file").body == pattern(TOTAL), "{kind:?}");
        let mut client = server.connect();
        send(&mut client, "PATCH", "/file", &["X-Update-Range: append"], b"more");
        assert_eq!(client.reply().status, 204, "{kind:?}");
        assert!(server.get("/file").body == [&pattern(TOTAL)[..], b"more"].concat(), "{kind:?}");
        assert_eq!(names(&disk), ["file"], "{kind:?}");
        drop(server);
    }
}

#[test]
fn a_full_disk_is_reported_and_leaves_the_old_file() {
    for kind in [FileSystem::Tmpfs, FileSystem::Ext4] {
        let Some((server, disk)) = mounted(kind, 8) else { return };
        assert_eq!(put(&server, "/file", &[], b"old").status, 201);
        // Of known length: before the body.
        let mut client = server.connect();
        let fields = ["Expect: 100-continue", "Content-Length: 20000000"];
        client.send(request("PUT", "/file", &fields));
        assert_eq!(client.reply().status, 507, "{kind:?}");
        let resumable = ["Upload-Complete: ?0", "Upload-Length: 20000000"];
        assert_eq!(server.ask("PUT", "/file", &resumable).status, 507, "{kind:?}");
        // Of unknown length: when it is full.
        let mut client = server.connect();
        client.send(request("PUT", "/file", &["Transfer-Encoding: chunked"]));
        client.send("1312d00\r\n");
        let mut sender = client.stream.try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            use std::io::Write;
            // The server reads no more of it than it has room for.
            let _ = sender.write_all(&pattern(20_000_000));
        });
        assert_eq!(client.head().unwrap().status, 507, "{kind:?}");
        drop(client);
        sending.join().unwrap();
        assert_eq!(server.record("\"failed\"")["status"], 507);
        assert_eq!(server.get("/file").body, b"old");
        assert_eq!(names(&disk), ["file"], "{kind:?}");
        // Its space is free again.
        assert_eq!(put(&server, "/file", &[], &pattern(4_000_000)).status, 204, "{kind:?}");
        drop(server);
    }
}

#[test]
fn a_read_only_disk_refuses_before_the_body() {
    let Some((server, disk)) = mounted(FileSystem::Tmpfs, 8) else { return };
    assert_eq!(put(&server, "/file", &[], b"old").status, 201);
    let remount = ["-o", "remount,ro"];
    assert!(Command::new("mount").args(remount).arg(disk.root()).status().unwrap().success());
    let mut client = server.connect();
    client.send(request("PUT", "/file", &["Expect: 100-continue", "Content-Length: 3"]));
    let reply = client.reply();
    assert_eq!(reply.status, 403);
    assert!(reply.text().contains("the file system is read-only"), "{}", reply.text());
    assert_eq!(server.get("/file").body, b"old");
    drop(server);
}
