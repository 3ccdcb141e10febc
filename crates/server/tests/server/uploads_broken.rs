//! Uploads that break off: nothing under the name, and a part that can be resumed.

use std::fs;
use std::io::Write;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock, inotify};
use rustix::io::Errno;
use rustix::net::sockopt;
use underpass_engine::{Mechanism, Policy};

use super::rig::{Running, pattern, request, wait_until};
use super::uploads::{leave, names, open_site, put, put_by_another, send};

/// Sends the head for `total` bytes, and the first of them; then leaves.
fn break_off(server: &Running, path: &str, total: usize, sent: usize) {
    let mut client = server.connect();
    let length = format!("Content-Length: {total}");
    client.send(request("PUT", path, &[&length]));
    client.send(&pattern(total)[..sent]);
    drop(client);
}

/// The number of bytes of a file that the server reports to have.
fn offset(server: &Running, path: &str) -> Option<u64> {
    let reply = server.ask("HEAD", &format!("{path}?partial"), &[]);
    assert!(matches!(reply.status, 204 | 404), "{reply:?}");
    reply.field("Upload-Offset").map(|offset| offset.parse().unwrap())
}

/// Waits until this much of a file is kept.
fn kept(server: &Running, path: &str, len: u64) {
    wait_until("a part is kept", || offset(server, path) == Some(len));
}

/// Sends the rest of a file of `total` bytes from `first` on; returns the status.
fn go_on(server: &Running, path: &str, first: usize, total: usize) -> u16 {
    let range = format!("Content-Range: bytes {first}-{}/{total}", total - 1);
    put(server, path, &[&range], &pattern(total)[first..]).status
}

#[test]
fn a_broken_upload_leaves_nothing_under_its_name() {
    let server = open_site().start();
    fs::write(server.path("old"), "old").unwrap();
    for sent in [0, 1, 1000, 100_000] {
        break_off(&server, "/file", 200_000, sent);
        break_off(&server, "/old", 200_000, sent);
    }
    let broken = || server.lines().iter().filter(|line| line.contains("\"reset\"")).count();
    wait_until("all have ended", || broken() == 8);
    assert_eq!(names(&server), ["old"]);
    assert_eq!(fs::read(server.path("old")).unwrap(), b"old");
    assert_eq!(server.metric("responses_failed_total{reason=\"reset\"}"), 8.0);
}

#[test]
fn a_whole_upload_forgets_what_an_earlier_one_has_left() {
    let server = open_site().start();
    break_off(&server, "/file", 3 << 20, 2 << 20);
    kept(&server, "/file", 2 << 20);
    // Too little to be kept: the rest of this one does not go behind the start of that one.
    wait_until("nothing is kept", || {
        // A busy server may find the client gone before it begins to receive.
        break_off(&server, "/file", 3 << 20, 1000);
        (0..200).any(|_| {
            thread::sleep(Duration::from_millis(5));
            offset(&server, "/file").is_none()
        })
    });
    assert_eq!(go_on(&server, "/file", 2 << 20, 3 << 20), 416);
    wait_until("nothing is left", || names(&server).is_empty());
}

#[test]
fn a_chunked_body_without_its_end_is_none() {
    let server = open_site().start();
    let mut client = server.connect();
    client.send(request("PUT", "/file", &["Transfer-Encoding: chunked"]));
    client.send("5\r\nhello\r\n");
    client.stream.shutdown(Shutdown::Write).unwrap();
    let reply = client.reply();
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("too early"), "{}", reply.text());
    assert_eq!(names(&server), [""; 0]);
}

#[test]
fn a_large_part_is_kept_and_resumed() {
    const TOTAL: usize = 4_000_000;
    let server = open_site().start();
    assert_eq!(offset(&server, "/file"), None);
    break_off(&server, "/file", TOTAL, 2_000_000);
    kept(&server, "/file", 2_000_000);
    assert!(server.get("/?json").text().len() < 10_000 && server.get("/file").status == 404);
    assert_eq!(server.get("/?simple").text(), "");
    // The response tells what is missing, and nothing changes.
    assert_eq!(go_on(&server, "/file", 2_000_001, TOTAL), 416);
    kept(&server, "/file", 2_000_000);
    // Uncertain clients send some of the bytes again.
    assert_eq!(go_on(&server, "/file", 1_500_000, TOTAL), 201);
    assert!(fs::read(server.path("file")).unwrap() == pattern(TOTAL));
    assert_eq!(names(&server), ["file"]);
    assert_eq!(offset(&server, "/file"), None);
}

#[test]
fn a_part_is_locked_for_other_processes_until_it_has_its_name() {
    let server = open_site().start();
    let try_lock = || {
        let part = names(&server).into_iter().find(|name| name.ends_with(".upload")).unwrap();
        flock(fs::File::open(server.path(&part)).unwrap(), FlockOperation::NonBlockingLockExclusive)
    };
    let mut client = server.connect();
    client.send(request("PUT", "/file", &["Upload-Complete: ?1", "Content-Length: 2"]));
    client.send("a");
    wait_until("it has begun", || names(&server).len() == 1);
    wait_until("it is locked", || try_lock() == Err(Errno::WOULDBLOCK));
    client.send("b");
    assert_eq!(client.reply().status, 201);
    let mut client = server.connect();
    let fields = ["Content-Range: bytes 2-3/4", "Content-Length: 2", "Expect: 100-continue"];
    client.send(request("PUT", "/file", &fields));
    assert_eq!(client.head().unwrap().status, 100);
    assert_eq!(try_lock(), Err(Errno::WOULDBLOCK));
    client.send("c");
    leave(&server, client);
    wait_until("it waits", || try_lock() == Ok(()));
}

#[test]
fn a_client_that_leaves_before_100_continue_leaves_no_space_reserved() {
    const TOTAL: usize = 64 << 20;
    let server = open_site().start();
    let first = format!("Content-Range: bytes 0-99999/{TOTAL}");
    assert_eq!(put(&server, "/file", &[&first], &pattern(100_000)).status, 202);
    let part = server.path(&names(&server)[0]);
    let space = || fs::metadata(&part).unwrap().blocks() * 512;
    // The server waits for another process, and the client has left before it goes on.
    let locked = fs::File::open(&part).unwrap();
    flock(&locked, FlockOperation::NonBlockingLockExclusive).unwrap();
    let watch = inotify::init(inotify::CreateFlags::empty()).unwrap();
    inotify::add_watch(&watch, &part, inotify::WatchFlags::OPEN).unwrap();
    let mut client = server.connect();
    let range = format!("Content-Range: bytes 100000-{}/{TOTAL}", TOTAL - 1);
    let length = format!("Content-Length: {}", TOTAL - 100_000);
    client.send(request("PUT", "/file", &[&range, &length, "Expect: 100-continue"]));
    inotify::Reader::new(&watch, &mut [MaybeUninit::uninit(); 512]).next().unwrap();
    sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO)).unwrap();
    drop(client);
    drop(locked);
    server.line("\"reset\"");
    assert!(space() < 1 << 20, "{} bytes are reserved", space());
    assert_eq!(offset(&server, "/file"), Some(100_000));
}

#[test]
fn of_two_servers_of_a_folder_the_newest_upload_leaves_its_part() {
    const TOTAL: usize = 4_000_000;
    let older = open_site().start();
    let newer = open_site().with_site(|site| site.root = Some(older.path(""))).start();
    let begin = |server: &Running, sent: usize| {
        let mut client = server.connect();
        let fields = [&format!("Content-Length: {TOTAL}"), "Expect: 100-continue"];
        client.send(request("PUT", "/file", &fields));
        assert_eq!(client.head().unwrap().status, 100);
        client.send(&pattern(TOTAL)[..sent]);
        // Files get the time of the last tick of the clock.
        thread::sleep(Duration::from_millis(25));
        client
    };
    for is_older_last in [true, false] {
        let first = begin(&older, 2_000_000);
        let last = begin(&newer, 3_000_000);
        if is_older_last {
            leave(&newer, last);
            leave(&older, first);
        } else {
            leave(&older, first);
            leave(&newer, last);
        }
        assert_eq!(offset(&newer, "/file"), Some(3_000_000), "{is_older_last}");
    }
}

#[test]
fn a_part_can_break_off_again_and_again() {
    const TOTAL: usize = 3_000_000;
    let server = open_site().start();
    break_off(&server, "/file", TOTAL, 1_200_000);
    kept(&server, "/file", 1_200_000);
    for (first, sent) in [(1_200_000, 1), (1_200_001, 700_000), (1_900_001, 50_000)] {
        let mut client = server.connect();
        let range = format!("Content-Range: bytes {first}-{}/{TOTAL}", TOTAL - 1);
        let length = format!("Content-Length: {}", TOTAL - first);
        client.send(request("PUT", "/file", &[&range, &length]));
        client.send(&pattern(TOTAL)[first..first + sent]);
        leave(&server, client);
        kept(&server, "/file", (first + sent) as u64);
    }
    assert_eq!(go_on(&server, "/file", 1_950_001, TOTAL), 201);
    assert!(fs::read(server.path("file")).unwrap() == pattern(TOTAL));
    assert_eq!(names(&server), ["file"]);
}

#[test]
fn pieces_make_a_file_when_the_last_has_arrived() {
    let server = open_site().start();
    for (range, body, status) in [
        ("0-3/10", "0123", 202),
        ("4-8/10", "45678", 202),
        ("8-9/10", "89", 201),
        // And of an existing file, to which they are appended.
        ("10-11/12", "ab", 204),
    ] {
        let field = format!("Content-Range: bytes {range}");
        let reply = put(&server, "/file", &[&field], body.as_bytes());
        assert_eq!(reply.status, status, "{range}");
    }
    assert_eq!(fs::read(server.path("file")).unwrap(), b"0123456789ab");
    assert_eq!(names(&server), ["file"]);
}

#[test]
fn a_meaningless_content_range_is_not_treated_as_a_whole_file() {
    let server = open_site().start();
    fs::write(server.path("file"), "precious").unwrap();
    for range in ["bytes 0-3/*", "bytes */4", "bytes 3-0/4", "bytes 0-3/3", "lines 0-3/4", "x"] {
        let reply = put(&server, "/file", &[&format!("Content-Range: {range}")], b"0123");
        assert_eq!(reply.status, 400, "{range}");
    }
    let twice = ["Content-Range: bytes 0-3/4", "Content-Range: bytes 0-3/4"];
    assert_eq!(put(&server, "/file", &twice, b"0123").status, 400);
    assert_eq!(put(&server, "/file", &["Content-Range: bytes 0-4/5"], b"0123").status, 400);
    assert_eq!(fs::read(server.path("file")).unwrap(), b"precious");
    assert_eq!(names(&server), ["file"]);
}

#[test]
fn a_chunked_part_has_to_be_as_long_as_it_says() {
    let server = open_site().start();
    for (range, chunks, status) in [
        ("0-4/5", "3\r\nabc\r\n0\r\n\r\n", 400),
        ("0-1/2", "3\r\nabc\r\n0\r\n\r\n", 413),
        ("0-2/3", "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", 201),
    ] {
        let mut client = server.connect();
        let range = format!("Content-Range: bytes {range}");
        client.send(request("PUT", "/file", &[&range, "Transfer-Encoding: chunked"]));
        client.send(chunks);
        assert_eq!(client.reply().status, status, "{range}");
    }
    assert_eq!(fs::read(server.path("file")).unwrap(), b"abc");
    assert_eq!(names(&server), ["file"]);
}

#[test]
fn parts_of_one_user_are_not_those_of_another() {
    let server = open_site().auth(&["me:secret@/:rw", "you:secret@/:rw"]).start();
    // "me:secret" and "you:secret" in base64.
    let me = "Authorization: Basic bWU6c2VjcmV0";
    let you = "Authorization: Basic eW91OnNlY3JldA==";
    let begin = "Content-Range: bytes 0-3/8";
    assert_eq!(put(&server, "/file", &[me, begin], b"mine").status, 202);
    assert_eq!(server.ask("HEAD", "/file?partial", &[you]).status, 404);
    assert_eq!(server.ask("HEAD", "/file?partial", &[me]).field("Upload-Offset"), Some("4"));
    assert_eq!(put(&server, "/file", &[you, "Content-Range: bytes 4-7/8"], b"your").status, 416);
}

#[test]
fn patches_of_dufs_write_into_a_file() {
    let server = open_site().start();
    let patch = |range: &str, body: &str| {
        let mut client = server.connect();
        let field = format!("X-Update-Range: {range}");
        send(&mut client, "PATCH", "/file", &[&field], body.as_bytes());
        client.reply().status
    };
    assert_eq!(patch("append", "x"), 404);
    fs::write(server.path("file"), "0123456789").unwrap();
    let is = |expected: &[u8]| assert_eq!(fs::read(server.path("file")).unwrap(), expected);
    assert_eq!(patch("append", "ab"), 204);
    is(b"0123456789ab");
    assert_eq!(patch("bytes=2-3", "xy"), 204);
    is(b"01xy456789ab");
    assert_eq!(patch("bytes=10-", "AB!"), 204);
    is(b"01xy456789AB!");
    assert_eq!(patch("bytes=-1", "?!"), 204);
    is(b"01xy456789AB?!");
    assert_eq!(patch("bytes=2-3", "xyz"), 400);
    assert_eq!(patch("bytes=15-", "xyz"), 416);
    assert_eq!(patch("bytes=-15", "xyz"), 416);
    assert_eq!(patch("3", "xyz"), 400);
    is(b"01xy456789AB?!");
    let reply = server.ask("PATCH", "/file", &[]);
    assert_eq!(
        (reply.status, reply.field("Accept-Patch")),
        (415, Some("application/partial-upload"))
    );
    assert_eq!(names(&server), ["file"]);
}

#[test]
fn a_broken_patch_changes_nothing() {
    let server = open_site().start();
    fs::write(server.path("file"), pattern(3_000_000)).unwrap();
    let mut client = server.connect();
    let fields = ["X-Update-Range: bytes=0-", "Content-Length: 3000000"];
    client.send(request("PATCH", "/file", &fields));
    client.send([0; 2_000_000]);
    drop(client);
    server.line("\"reset\"");
    assert!(fs::read(server.path("file")).unwrap() == pattern(3_000_000));
    assert_eq!(names(&server), ["file"]);
}

#[test]
fn a_stalled_upload_times_out_and_a_slow_one_does_not() {
    let site = open_site().with(|settings| settings.timeout = Duration::from_millis(800));
    let server = site.start();
    let mut client = server.connect();
    client.send(request("PUT", "/slow", &["Content-Length: 8"]));
    let mut stuck = server.connect();
    stuck.send(request("PUT", "/stuck", &["Content-Length: 8"]));
    for byte in 0..8 {
        client.send([byte]);
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(client.reply().status, 201);
    assert_eq!(stuck.reply().status, 408);
    assert!(stuck.is_closed());
    assert_eq!(server.record("/stuck")["failure"], "timeout");
    assert_eq!(names(&server), ["slow"]);
}

#[test]
fn a_server_that_ends_lets_uploads_end_first() {
    let server = open_site().start();
    let mut client = server.connect();
    client.send(request("PUT", "/file", &["Content-Length: 2000000"]));
    client.send(pattern(1_000_000));
    wait_until("it has begun", || server.metric("transfers_open") > 0.0);
    server.control.drain();
    client.send(pattern(1_000_000));
    let reply = client.reply();
    assert_eq!((reply.status, reply.field("Connection")), (201, Some("close")));
    wait_until("it has ended", || server.has_ended());
    assert_eq!(names(&server), ["file"]);
}

#[test]
fn a_server_that_must_end_at_once_cuts_uploads_off() {
    let server = open_site().start();
    let mut client = server.connect();
    client.send(request("PUT", "/file", &["Content-Length: 2000000"]));
    client.send(pattern(1_000));
    wait_until("it has begun", || server.metric("transfers_open") > 0.0);
    let folder = server.path("");
    server.control.stop();
    wait_until("it has ended", || server.has_ended());
    assert!(client.try_reply(true).map_or(true, |reply| reply.status == 400));
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
    assert_eq!(server.finish().cut_off, 1);
}

#[test]
fn every_mechanism_that_can_receive_does() {
    for policy in [
        Policy::Auto,
        Policy::Require(Mechanism::Splice),
        Policy::Require(Mechanism::ReadWrite),
        Policy::Require(Mechanism::Sendfile),
    ] {
        let server = open_site().with(|settings| settings.policy = policy).start();
        let body = pattern(2_000_000);
        assert_eq!(put(&server, "/file", &[], &body).status, 201, "{policy:?}");
        let record = server.record("PUT");
        let by = |name: &str| record["mechanisms"][name].as_u64().unwrap_or(0);
        let copied = policy == Policy::Require(Mechanism::ReadWrite);
        assert_eq!(by("splice") == 0, copied, "{record}");
        assert_eq!(by("splice") + by("read_write"), 2_000_000);
        assert!(fs::read(server.path("file")).unwrap() == body);
    }
}

#[test]
fn small_steps_lose_nothing() {
    let server = open_site().with(|settings| settings.step = Some(777)).start();
    let mut client = server.connect();
    client.send(request("PUT", "/file", &["Content-Length: 300000"]));
    for piece in pattern(300_000).chunks(1_013) {
        client.stream.write_all(piece).unwrap();
    }
    assert_eq!(client.reply().status, 201);
    assert!(fs::read(server.path("file")).unwrap() == pattern(300_000));
}

#[test]
fn a_part_of_another_version_is_not_continued() {
    const TOTAL: usize = 3 << 20;
    let server = open_site().start();
    for (path, stored) in [("/new", 201), ("/old", 204)] {
        if stored == 204 {
            fs::write(server.path("old"), "old").unwrap();
        }
        break_off(&server, path, TOTAL, 2 << 20);
        kept(&server, path, 2 << 20);
        // Another length proves another version; it is refused and not lost.
        assert_eq!(put(&server, path, &["Content-Range: bytes 1-4/5"], b"tail").status, 409);
        kept(&server, path, 2 << 20);
        assert_eq!(put_by_another(&server, path, b"0123456789").status, stored, "{path}");
        assert_eq!(offset(&server, path), None, "{path}");
        // The same length could be any version, and the stored bytes are not the beginning of it.
        assert_eq!(go_on(&server, path, 2 << 20, TOTAL), 409, "{path}");
        assert_eq!(server.get(path).text(), "0123456789");
        let rest = ["Content-Range: bytes 10-14/15"];
        assert_eq!(put(&server, path, &rest, b"+tail").status, 204, "{path}");
        assert_eq!(server.get(path).text(), "0123456789+tail");
        assert_eq!(offset(&server, path), None, "{path}");
    }
    assert_eq!(names(&server), ["new", "old"]);
}
