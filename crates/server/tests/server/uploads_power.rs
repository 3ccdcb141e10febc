//! Which bytes of a broken upload are trusted after a power cut: its length can be on the disk
//! while its bytes are not.
//!
//! A part that records another boot id stands for one left by a power cut, and zeros in it for
//! bytes that never reached the disk.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};

use super::rig::{Client, Running, pattern, request, wait_until};
use super::uploads::{leave, names, open_site, put, send};

const TOTAL: usize = 3_000_000;

const SENT: usize = 2_000_000;

const NOTE: &str = "user.underpass.written";

const BOOT: &str = "00000000-0000-4000-8000-000000000000";

/// Ways to upload in pieces: by `Content-Range`, or as the IETF draft has it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Range,
    Draft,
}

const WAYS: [Way; 2] = [Way::Range, Way::Draft];

impl Way {
    /// Breaks an upload off; returns where it can be queried.
    fn break_off(self, server: &Running) -> String {
        let length = format!("Content-Length: {TOTAL}");
        let mut client = server.connect();
        let location = if self == Self::Range {
            client.send(request("PUT", "/file", &[&length]));
            "/file?partial".to_owned()
        } else {
            let fields = [&length, "Upload-Complete: ?1", "Upload-Draft-Interop-Version: 8"];
            client.send(request("PUT", "/file", &fields));
            client.head().unwrap().upload_of("/file")
        };
        client.send(&pattern(TOTAL)[..SENT]);
        leave(server, client);
        wait_until("the part is kept", || self.offset(server, &location) == Some(SENT));
        location
    }

    fn offset(self, server: &Running, location: &str) -> Option<usize> {
        let reply = server.ask("HEAD", location, &[]);
        assert!(matches!(reply.status, 204 | 404), "{reply:?}");
        reply.field("Upload-Offset").map(|offset| offset.parse().unwrap())
    }

    /// Sends the rest, and checks the file.
    fn go_on(self, server: &Running, location: &str, at: usize) {
        let rest = &pattern(TOTAL)[at..];
        let status = if self == Self::Range {
            let range = format!("Content-Range: bytes {at}-{}/{TOTAL}", TOTAL - 1);
            put(server, "/file", &[&range], rest).status
        } else {
            let at = format!("Upload-Offset: {at}");
            let kind = "Content-Type: application/partial-upload";
            let mut client: Client = server.connect();
            send(&mut client, "PATCH", location, &["Upload-Complete: ?1", &at, kind], rest);
            client.reply().status
        };
        assert_eq!(status, 201, "{self:?} {at}");
        assert_eq!(names(server), ["file"]);
        assert!(fs::read(server.path("file")).unwrap() == pattern(TOTAL), "{self:?} {at}");
        // The whole file has no note.
        assert!(getxattr(server.path("file"), NOTE, &mut [0; 200][..]).is_err());
        fs::remove_file(server.path("file")).unwrap();
    }
}

fn part(server: &Running) -> PathBuf {
    let names = names(server);
    let name = names.iter().find(|name| name.ends_with(".upload")).expect("there is a part");
    server.path(name)
}

/// Whether the file system of the test has attributes.
fn has_notes(server: &Running) -> bool {
    let file = server.path("probe");
    fs::write(&file, "").unwrap();
    let has = setxattr(&file, "user.probe", b"1", XattrFlags::empty()).is_ok();
    fs::remove_file(&file).unwrap();
    has
}

fn note(server: &Running) -> Option<String> {
    let mut value = [0; 200];
    let len = getxattr(part(server), NOTE, &mut value[..]).ok()?;
    Some(String::from_utf8(value[..len].to_vec()).unwrap())
}

/// Makes the part one of an earlier boot, of which `synced` bytes reached the disk.
fn cut_power(server: &Running, synced: Option<usize>) {
    let text = note(server).expect("the part is noted");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let mut other = text.replace(boot.trim(), BOOT);
    assert_ne!(text, other);
    let at = other.find("synced ").unwrap();
    if let Some(synced) = synced {
        other.replace_range(at.., &format!("synced {synced}\n"));
    }
    let known: usize = other[at..].trim()["synced ".len()..].parse().unwrap();
    let file = File::options().write(true).open(part(server)).unwrap();
    file.write_all_at(&vec![0; SENT - known], known as u64).unwrap();
    setxattr(part(server), NOTE, other.as_bytes(), XattrFlags::empty()).unwrap();
}

fn site(sync: bool) -> Running {
    open_site().with_site(|site| site.changes.sync = sync).start()
}

#[test]
fn within_one_boot_all_of_a_part_is_trusted() {
    for (way, sync) in WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let server = site(sync);
        let location = way.break_off(&server);
        way.go_on(&server, &location, SENT);
    }
}

#[test]
fn after_a_reboot_only_synced_bytes_are_trusted() {
    for (way, synced) in WAYS.into_iter().flat_map(|way| [(way, 0), (way, 1_234_567)]) {
        let server = site(false);
        let location = way.break_off(&server);
        if !has_notes(&server) {
            return;
        }
        cut_power(&server, Some(synced));
        assert_eq!(way.offset(&server, &location), Some(synced), "{way:?}");
        way.go_on(&server, &location, synced);
    }
}

#[test]
fn with_sync_a_part_is_on_the_disk_when_its_connection_has_ended() {
    for way in WAYS {
        let server = site(true);
        let location = way.break_off(&server);
        if !has_notes(&server) {
            return;
        }
        let known = || note(&server).unwrap().ends_with(&format!("\nsynced {SENT}\n"));
        wait_until("the part is on the disk", known);
        cut_power(&server, None);
        assert_eq!(way.offset(&server, &location), Some(SENT), "{way:?}");
        way.go_on(&server, &location, SENT);
    }
}

#[test]
fn a_part_without_a_record_starts_over() {
    for way in WAYS {
        let server = site(true);
        let location = way.break_off(&server);
        if !has_notes(&server) {
            return;
        }
        removexattr(part(&server), NOTE).unwrap();
        assert_eq!(way.offset(&server, &location), Some(0), "{way:?}");
        way.go_on(&server, &location, 0);
    }
}

#[test]
fn rewritten_bytes_are_not_covered_by_an_older_record() {
    let server = site(false);
    let location = Way::Range.break_off(&server);
    if !has_notes(&server) {
        return;
    }
    cut_power(&server, Some(1_000_000));
    // Half of the trusted bytes are sent again, and this breaks off, too.
    let mut client = server.connect();
    let range = format!("Content-Range: bytes 500000-{}/{TOTAL}", TOTAL - 1);
    let length = format!("Content-Length: {}", TOTAL - 500_000);
    client.send(request("PUT", "/file", &[&range, &length]));
    client.send(&pattern(TOTAL)[500_000..SENT]);
    leave(&server, client);
    wait_until("it is kept", || Way::Range.offset(&server, &location) == Some(SENT));
    cut_power(&server, None);
    assert_eq!(Way::Range.offset(&server, &location), Some(500_000));
    Way::Range.go_on(&server, &location, 500_000);
}
