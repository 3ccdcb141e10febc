//! A file that is uploaded in several requests has bytes of one version, or none.

use std::fs;

use rustix::fs::removexattr;
use underpass_protocol::digest::{Algorithm, Hasher, write_digests};

use super::rig::{Client, FileSystem, Mounted, Reply, Running, request, wait_until};
use super::uploads::{leave, names, open_site, put, put_by_another, send};

const MIB: usize = 1 << 20;

/// Begins a PUT of 4 MiB of a version, of which this many have arrived.
fn begin(server: &Running, version: u8, mebibytes: usize) -> Client {
    let mut client = server.connect();
    client.send(request("PUT", "/file", &["Content-Length: 4194304", "Expect: 100-continue"]));
    assert_eq!(client.head().unwrap().status, 100);
    client.send(vec![version; mebibytes * MIB]);
    client
}

/// Sends the bytes of a range of the file.
fn put_range(server: &Running, fields: &[&str], range: &str, body: &[u8]) -> Reply {
    let range = format!("Content-Range: bytes {range}");
    put(server, "/file", &[&[range.as_str()], fields].concat(), body)
}

fn kept(server: &Running) -> Option<usize> {
    let reply = server.ask("HEAD", "/file?partial", &[]);
    assert!(matches!(reply.status, 204 | 404), "{reply:?}");
    reply.field("Upload-Offset").map(|offset| offset.parse().unwrap())
}

/// Begins an upload that has an address; returns that.
fn create(server: &Running, fields: &[&str]) -> String {
    let created = server.ask("PUT", "/file", &[&["Upload-Complete: ?0"], fields].concat());
    assert_eq!(created.status, 201, "{created:?}");
    created.upload_of("/file")
}

/// Sends the next bytes of such an upload, perhaps the last.
fn patch(server: &Running, url: &str, at: usize, end: u8, fields: &[&str], body: &[u8]) -> Reply {
    let mut client = server.connect();
    let (at, end) = (format!("Upload-Offset: {at}"), format!("Upload-Complete: ?{end}"));
    let own = [at.as_str(), &end, "Content-Type: application/partial-upload"];
    send(&mut client, "PATCH", url, &[&own[..], fields].concat(), body);
    client.reply()
}

fn digest(field: &str, body: &[u8]) -> String {
    let mut hasher = Hasher::new(Algorithm::Sha256);
    hasher.update(body);
    format!("{field}: {}", write_digests([&hasher.finish()]))
}

#[test]
fn an_older_upload_does_not_take_the_place_of_what_a_newer_one_has_left() {
    let server = open_site().start();
    let older = begin(&server, b'A', 2);
    let newer = begin(&server, b'B', 3);
    leave(&server, newer);
    wait_until("a part is kept", || kept(&server) == Some(3 * MIB));
    leave(&server, older);
    assert_eq!(kept(&server), Some(3 * MIB));
    let rest = vec![b'B'; MIB];
    assert_eq!(put_range(&server, &[], "3145728-4194303/4194304", &rest).status, 201);
    assert!(server.get("/file").body == vec![b'B'; 4 * MIB]);
    // Nor that of an upload in pieces.
    fs::remove_file(server.path("file")).unwrap();
    let older = begin(&server, b'A', 2);
    assert_eq!(put_range(&server, &[], "0-1/4194304", b"BB").status, 202);
    leave(&server, older);
    assert_eq!(kept(&server), Some(2));
}

#[test]
fn a_newer_upload_ends_an_older_one_that_is_resumed() {
    let server = open_site().start();
    let resume = |range: &str| {
        leave(&server, begin(&server, b'A', 2));
        wait_until("a part is kept", || kept(&server) == Some(2 * MIB));
        let mut older = server.connect();
        let fields = ["Content-Length: 2097152", "Expect: 100-continue", range];
        older.send(request("PUT", "/file", &fields));
        assert_eq!(older.head().unwrap().status, 100);
        older.send(vec![b'A'; 1000]);
        older
    };
    let mut older = resume("Content-Range: bytes 2097152-4194303/4194304");
    let newer = begin(&server, b'B', 3);
    assert_eq!(older.reply().status, 409);
    leave(&server, newer);
    wait_until("a part is kept", || kept(&server) == Some(3 * MIB));
    let rest = vec![b'B'; MIB];
    assert_eq!(put_range(&server, &[], "3145728-4194303/4194304", &rest).status, 201);
    assert!(server.get("/file").body == vec![b'B'; 4 * MIB]);
    // A newer one with an address, or one that begins by its range.
    fs::remove_file(server.path("file")).unwrap();
    let _older = resume("Content-Range: bytes 2097152-4194303/4194304");
    create(&server, &[]);
    assert_eq!(kept(&server), None);
    leave(&server, begin(&server, b'A', 2));
    wait_until("a part is kept", || kept(&server) == Some(2 * MIB));
    // One that is refused leaves it.
    let refused = put(&server, "/file", &["Upload-Complete: ?1", "Upload-Length: 5"], b"123");
    assert_eq!((refused.status, kept(&server)), (400, Some(2 * MIB)));
    create(&server, &[]);
    assert_eq!(kept(&server), None);
}

#[test]
fn an_older_part_does_not_take_the_space_of_a_newer_upload() {
    let Some(disk) = Mounted::new(FileSystem::Tmpfs, 6) else { return };
    let site = open_site().with_site(|site| site.root = Some(disk.root()));
    let server = site.start();
    let older = || {
        leave(&server, begin(&server, b'A', 3));
        wait_until("a part is kept", || kept(&server) == Some(3 * MIB));
    };
    older();
    let newer = vec![b'B'; 4 * MIB];
    assert_eq!(put(&server, "/file", &[], &newer).status, 201);
    fs::remove_file(disk.root().join("file")).unwrap();
    older();
    assert_eq!(put_range(&server, &[], "0-4194303/4194304", &newer).status, 201);
    fs::remove_file(disk.root().join("file")).unwrap();
    older();
    assert_eq!(put(&server, "/file", &["Upload-Complete: ?1"], &newer).status, 201);
    fs::remove_file(disk.root().join("file")).unwrap();
    older();
    // Nor does it wait for the rest of one that was refused.
    assert_eq!(put(&server, "/file", &[], &[b'B'; 7 * MIB]).status, 507);
    assert_eq!(kept(&server), None);
    drop(server);
}

#[test]
fn without_attributes_a_part_is_continued_by_its_version_only() {
    let Some(disk) = Mounted::new(FileSystem::Ramfs, 0) else { return };
    let site = open_site().with_site(|site| site.root = Some(disk.root()));
    let server = site.start();
    leave(&server, begin(&server, b'A', 2));
    wait_until("a part is kept", || kept(&server) == Some(2 * MIB));
    let rest = vec![b'A'; 2 * MIB];
    assert_eq!(put_range(&server, &[], "2097152-2097156/2097157", b"other").status, 409);
    assert_eq!(put_by_another(&server, "/file", b"theirs").status, 201);
    assert_eq!(put_range(&server, &[], "2097152-4194303/4194304", &rest).status, 409);
    assert_eq!(server.get("/file").text(), "theirs");
    fs::remove_file(disk.root().join("file")).unwrap();
    assert_eq!(put_range(&server, &[], "2097152-4194303/4194304", &rest).status, 201);
    assert!(server.get("/file").body == vec![b'A'; 4 * MIB]);
    drop(server);
}

#[test]
fn a_part_of_an_unknown_version_is_not_continued() {
    let server = open_site().start();
    leave(&server, begin(&server, b'A', 2));
    wait_until("a part is kept", || kept(&server) == Some(2 * MIB));
    let part = server.path(&names(&server)[0]);
    if removexattr(part, "user.underpass.upload").is_err() {
        return;
    }
    let rest = vec![b'A'; 2 * MIB];
    assert_eq!(put_range(&server, &[], "2097152-4194303/4194304", &rest).status, 409);
    assert_eq!(put_range(&server, &[], "0-4/5", b"whole").status, 201);
}

#[test]
fn a_part_does_not_begin_with_bytes_of_the_file_that_it_replaces() {
    let server = open_site().start();
    let stored = put(&server, "/file", &[], b"0123456789");
    for range in ["3-3/4", "9-10/11", "11-11/12"] {
        let end = if range == "9-10/11" { &b"ab"[..] } else { b"a" };
        let refused = put_range(&server, &[], range, end);
        let offset = refused.field("Upload-Offset");
        assert_eq!((refused.status, offset), (416, Some("0")), "{range}");
        let later = "If-Unmodified-Since: Fri, 01 Jan 2100 00:00:00 GMT";
        for any in [&["If-Match: *"][..], &["If-Match: *", later], &[later]] {
            assert_eq!(put_range(&server, any, range, end).status, 416, "{range} {any:?}");
        }
    }
    // What is appended, and a change of the version that the client names.
    assert_eq!(put_range(&server, &[], "10-10/11", b"a").status, 204);
    assert_eq!(server.get("/file").text(), "0123456789a");
    let outdated = format!("If-Match: {}", stored.field("ETag").unwrap());
    assert_eq!(put_range(&server, &[&outdated], "3-3/4", b"x").status, 412);
    let present = format!("If-Match: {}", server.get("/file").field("ETag").unwrap());
    assert_eq!(put_range(&server, &[&present], "3-3/4", b"x").status, 204);
    assert_eq!(server.get("/file").text(), "012x");
    assert_eq!(names(&server), ["file"]);
}

#[test]
fn a_part_whose_digest_differs_is_not_kept() {
    let server = open_site().start();
    let (right, wrong) = (digest("Content-Digest", b"good"), digest("Content-Digest", b"bad!"));
    let url = create(&server, &[]);
    assert_eq!(patch(&server, &url, 0, 0, &[&right], b"good").status, 204);
    assert_eq!(patch(&server, &url, 4, 0, &[&right], b"bad!").status, 400);
    assert_eq!(server.ask("HEAD", &url, &[]).field("Upload-Offset"), Some("4"));
    // Nor is the last part a reason to lose the others.
    assert_eq!(patch(&server, &url, 4, 1, &[&right], b"bad!").status, 400);
    assert_eq!(server.ask("HEAD", &url, &[]).field("Upload-Offset"), Some("4"));
    assert_eq!(patch(&server, &url, 4, 1, &[&wrong], b"bad!").status, 201);
    assert_eq!(server.get("/file").text(), "goodbad!");
    // With the first request, and by Content-Range.
    assert_eq!(put(&server, "/file", &["Upload-Complete: ?0", &right], b"bad!").status, 400);
    assert_eq!(put_range(&server, &[&right], "0-3/12", b"bad!").status, 400);
    assert_eq!(kept(&server), None);
    for total in [12, 8] {
        let [first, second] = ["0-3", "4-7"].map(|range| format!("{range}/{total}"));
        assert_eq!(put_range(&server, &[&right], &first, b"good").status, 202);
        assert_eq!(put_range(&server, &[&right], &second, b"bad!").status, 400);
        assert_eq!(kept(&server), Some(4));
    }
    assert_eq!(server.get("/file").text(), "goodbad!");
}

#[test]
fn the_digest_of_the_first_request_is_that_of_the_whole_upload() {
    let server = open_site().start();
    let whole = digest("Repr-Digest", b"good");
    let url = create(&server, &[&whole]);
    assert_eq!(patch(&server, &url, 0, 0, &[], b"go").status, 204);
    assert_eq!(patch(&server, &url, 2, 1, &[], b"ne").status, 400);
    assert_eq!(names(&server), [""; 0]);
    let url = create(&server, &[&whole]);
    assert_eq!(patch(&server, &url, 0, 1, &[], b"good").status, 201);
    // The client may have read the file anew since.
    let url = create(&server, &[&whole]);
    let other = digest("Repr-Digest", b"bad!");
    assert_eq!(patch(&server, &url, 0, 1, &[&other], b"bad!").status, 400);
    assert_eq!(server.get("/file").text(), "good");
}

#[test]
fn conditions_of_webdav_hold_for_the_whole_upload() {
    let server = open_site().start();
    for form in ["([TAG])", "</file> ([TAG])"] {
        let stored = put(&server, "/file", &[], b"old");
        let condition = format!("If: {}", form.replace("TAG", stored.field("ETag").unwrap()));
        let url = create(&server, &[&condition]);
        assert_eq!(put(&server, "/file", &[], b"theirs").status, 204);
        assert_eq!(patch(&server, &url, 0, 1, &[], b"ours").status, 412, "{form}");
        assert_eq!(server.get("/file").text(), "theirs");
    }
}

#[test]
fn an_upload_that_replaces_any_version_makes_no_new_file() {
    let server = open_site().start();
    put(&server, "/file", &[], b"old");
    let url = create(&server, &["If-Match: *"]);
    assert_eq!(put(&server, "/file", &[], b"theirs").status, 204);
    assert_eq!(patch(&server, &url, 0, 1, &[], b"ours").status, 204);
    let url = create(&server, &["If-Match: *"]);
    fs::remove_file(server.path("file")).unwrap();
    assert_eq!(patch(&server, &url, 0, 1, &[], b"ours").status, 412);
    assert_eq!(names(&server), [""; 0]);
}

#[test]
fn a_length_given_later_is_that_of_the_upload() {
    let server = open_site().start();
    let url = create(&server, &[]);
    let length = |len: usize| format!("Upload-Length: {len}");
    assert_eq!(patch(&server, &url, 0, 0, &[&length(4)], b"ab").status, 204);
    assert_eq!(server.ask("HEAD", &url, &[]).field("Upload-Length"), Some("4"));
    assert_eq!(patch(&server, &url, 2, 0, &[&length(5)], b"c").status, 400);
    assert_eq!(patch(&server, &url, 2, 1, &[], b"cde").status, 400);
    // A last request that breaks off says the length, too.
    assert_eq!(patch(&server, &url, 2, 1, &[], b"cd").status, 201);
    let url = create(&server, &[]);
    let mut client = server.connect();
    let fields = ["Upload-Offset: 0", "Upload-Complete: ?1", "Content-Length: 9"];
    let media_type = ["Content-Type: application/partial-upload"];
    client.send(request("PATCH", &url, &[&fields[..], &media_type].concat()));
    client.send("abc");
    leave(&server, client);
    assert_eq!(patch(&server, &url, 3, 1, &[], b"d").status, 400);
    assert_eq!(patch(&server, &url, 3, 1, &[], b"defghi").status, 204);
    assert_eq!(server.get("/file").text(), "abcdefghi");
}
