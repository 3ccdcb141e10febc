//! Archives that broke off, and changes before they are resumed.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use underpass_client::Url;
use underpass_client::tree::{TreeMethod, TreeOptions};
use underpass_testkit::http::{Request, close, serve_until_exit};
use underpass_testkit::{names, noise};

use crate::hostile::{Outcome, attempt_again, file};

const LEN: usize = 12 << 20;

/// A server of an archive that breaks off in the middle until `is_well` is set.
fn broken_off(members: &[Vec<u8>], is_well: &Arc<AtomicBool>) -> Url {
    let archive = archive(members);
    let is_well = Arc::clone(is_well);
    let url = serve_until_exit(move |request, stream| {
        let end = if is_well.load(Ordering::Relaxed) { archive.len() } else { archive.len() / 2 };
        let begin = request.range(archive.len()).map_or(0, |range| range.start);
        answer(&request.method, stream, "ETag: \"e\"\r\n", &archive, begin..end)
    });
    Url::parse(&format!("{url}x/")).unwrap()
}

/// Sends a range of an archive and breaks the connection before its end.
fn answer(
    method: &str,
    stream: &mut TcpStream,
    fields: &str,
    archive: &[u8],
    sent: Range<usize>,
) -> std::io::Result<()> {
    let (begin, len) = (sent.start, archive.len());
    let place = format!("Content-Range: bytes {begin}-{}/{len}\r\n", len - 1);
    let (status, place) = if begin > 0 { ("206 Part", place) } else { ("200 OK", String::new()) };
    let length = len - begin;
    let fields = format!("{fields}{place}Content-Type: application/x-tar\r\n");
    write!(stream, "HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n")?;
    if method == "HEAD" {
        return Ok(());
    }
    stream.write_all(archive.get(sent.clone()).unwrap_or_default())?;
    if sent.end < len { close() } else { Ok(()) }
}

/// A server whose responses to GET depend on their number, from 0 on.
fn scripted(
    answers: impl Fn(usize, &Request, &mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
) -> Url {
    let count = AtomicUsize::new(0);
    let url = serve_until_exit(move |request, stream| {
        let number = match request.method.as_str() {
            "GET" => count.fetch_add(1, Ordering::Relaxed),
            _ => count.load(Ordering::Relaxed),
        };
        answers(number, request, stream)
    });
    Url::parse(&format!("{url}x/")).unwrap()
}

fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat(), vec![0; 1024]].concat()
}

#[test]
fn a_part_that_was_replaced_is_not_resumed() {
    let contents = noise(LEN);
    for (is_replaced, is_old) in [(false, false), (true, false), (false, true), (true, true)] {
        let is_well = Arc::default();
        let url = broken_off(&[file(b"large", &contents)], &is_well);
        let options = TreeOptions { retries: 0, ..TreeOptions::default() };
        let Outcome { place, outcome, .. } =
            attempt_again(tempfile::tempdir().unwrap(), &options, &url);
        outcome.unwrap_err();
        is_well.store(true, Ordering::Relaxed);
        let part = place.path().join("x.part/.underpass-get.part");
        if is_replaced {
            let other = place.path().join("x.part/other");
            fs::write(&other, vec![7; LEN + 1]).unwrap();
            fs::rename(&other, &part).unwrap();
        }
        if is_old {
            // Older versions recorded less.
            let journal = place.path().join("x.part.journal");
            let text = fs::read_to_string(&journal).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with("part "));
            fs::write(&journal, lines.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        }
        let Outcome { place, outcome, left_out } = attempt_again(place, &options, &url);
        let done = outcome.unwrap();
        assert_eq!(left_out, Vec::<String>::new());
        assert_eq!(done.resumed_at > 1 << 20, !is_replaced && !is_old, "{is_replaced} {is_old}");
        assert!(fs::read(place.path().join("x/large")).unwrap() == contents, "other bytes");
    }
}

#[test]
fn members_left_out_by_an_earlier_run_are_left_out_again() {
    let contents = noise(LEN);
    let members = [file(b"/abs", b"bad"), file(b"large", &contents)];
    let is_well = Arc::default();
    let url = broken_off(&members, &is_well);
    let options = TreeOptions { retries: 0, ..TreeOptions::default() };
    let mut place = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let broken = attempt_again(place, &options, &url);
        assert_eq!(broken.outcome.unwrap_err().done.left_out, 1);
        place = broken.place;
    }
    is_well.store(true, Ordering::Relaxed);
    let Outcome { place, outcome, left_out } = attempt_again(place, &options, &url);
    let done = outcome.unwrap();
    assert_eq!((done.left_out, left_out.len()), (1, 1));
    assert!(done.resumed_at > 1 << 20, "{done:?}");
    assert!(fs::read(place.path().join("x/large")).unwrap() == contents, "other bytes");
}

#[test]
fn an_existing_folder_is_checked_again_and_its_large_file_is_resumed() {
    // Few enough bytes to be discarded, or enough for another request.
    for len in [LEN, 40 << 20] {
        let contents = noise(len);
        let members = [file(b"a", b"new"), file(b"b", b"b"), file(b"large", &contents)];
        let is_well = Arc::default();
        let url = broken_off(&members, &is_well);
        let options = TreeOptions { retries: 0, ..TreeOptions::default() };
        let place = tempfile::tempdir().unwrap();
        let mine = place.path().join("x");
        fs::create_dir(&mine).unwrap();
        fs::write(mine.join("a"), "different").unwrap();
        let Outcome { place, outcome, .. } = attempt_again(place, &options, &url);
        assert_eq!(outcome.unwrap_err().done.left_out, 1);
        fs::remove_file(mine.join("b")).unwrap();
        is_well.store(true, Ordering::Relaxed);
        let options = TreeOptions { replaces: true, ..options };
        let Outcome { place: _place, outcome, left_out } = attempt_again(place, &options, &url);
        let done = outcome.unwrap();
        assert_eq!((left_out, done.files), (Vec::new(), 3));
        assert!(done.resumed_at > 1 << 20, "{done:?}");
        let read = |name: &str| fs::read(mine.join(name)).unwrap();
        assert_eq!((read("a"), read("b")), (b"new".to_vec(), b"b".to_vec()));
        assert!(read("large") == contents, "other bytes");
    }
}

#[test]
fn an_archive_without_a_tag_is_not_resumed() {
    // Both have the same length, and the empty If-Range is ignored.
    let versions = [b"old", b"new"].map(|name| archive(&[file(name, b"1"), file(b"z", b"2")]));
    let url = scripted(move |number, request, stream| {
        let (archive, begin) = (&versions[number.min(1)], request.range(9_999));
        let begin = begin.map_or(0, |range| range.start);
        let end = if number == 0 { 1536 } else { archive.len() };
        answer(&request.method, stream, "", archive, begin..end)
    });
    let Outcome { place, outcome, .. } =
        attempt_again(tempfile::tempdir().unwrap(), &TreeOptions::default(), &url);
    outcome.unwrap();
    assert_eq!(names(&place.path().join("x")), ["new", "z"]);
}

#[test]
fn counts_are_of_the_version_that_arrived() {
    let old = archive(&[file(b"/abs", b"bad"), file(b"a", b"1"), file(b"b", b"2")]);
    let new = archive(&[file(b"a", b"1"), file(b"b", b"2")]);
    let url = scripted(move |number, request, stream| match number {
        0 => answer(&request.method, stream, "ETag: \"old\"\r\n", &old, 0..2560),
        _ => answer(&request.method, stream, "ETag: \"new\"\r\n", &new, 0..new.len()),
    });
    let Outcome { outcome, left_out, .. } =
        attempt_again(tempfile::tempdir().unwrap(), &TreeOptions::default(), &url);
    let done = outcome.unwrap();
    assert_eq!(left_out.len(), 1);
    assert_eq!((done.files, done.here, done.left_out), (1, 1, 0));
}

#[test]
fn a_break_after_the_last_byte_of_a_member_is_no_damage() {
    let contents = noise(300_001);
    // A large file, and a member that is left out.
    for name in [&b"large"[..], b"/abs"] {
        let archive = archive(&[file(name, &contents), file(b"z", b"z")]);
        let url = scripted(move |number, request, stream| {
            let begin = request.range(archive.len()).map_or(0, |range| range.start);
            let end = if number == 0 { 512 + 300_001 } else { archive.len() };
            answer(&request.method, stream, "ETag: \"e\"\r\n", &archive, begin..end)
        });
        let Outcome { place, outcome, left_out } =
            attempt_again(tempfile::tempdir().unwrap(), &TreeOptions::default(), &url);
        let done = outcome.unwrap();
        assert_eq!(done.left_out as usize, left_out.len());
        assert_eq!(done.files + done.left_out, 2);
        assert_eq!(fs::read(place.path().join("x/z")).unwrap(), b"z");
    }
}

#[test]
fn a_resumed_archive_does_not_skip_the_same_bytes_repeatedly() {
    // A server without range support, and a folder that keeps changing.
    for changes in [false, true] {
        let contents = vec![7; 17 << 20];
        let archive = archive(&[file(b"a", b"1"), file(b"large", &contents), file(b"z", b"2")]);
        let requests = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&requests);
        let url = scripted(move |number, request, stream| {
            if number == 10 {
                return close();
            }
            seen.store(number, Ordering::Relaxed);
            let tag = format!("ETag: \"{}\"\r\n", if changes { number } else { 0 });
            answer(&request.method, stream, &tag, &archive, 0..archive.len())
        });
        let options = TreeOptions { retries: 0, ..TreeOptions::default() };
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("x")).unwrap();
        let Outcome { place, outcome, .. } = attempt_again(place, &options, &url);
        outcome.unwrap();
        requests.store(0, Ordering::Relaxed);
        let Outcome { outcome, .. } = attempt_again(place, &options, &url);
        assert_eq!(outcome.unwrap().here, 3);
        assert!(requests.load(Ordering::Relaxed) <= 3, "{requests:?}");
    }
}

#[test]
fn an_archive_is_requested_again_from_a_busy_server() {
    let (archive, is_ready) = (archive(&[file(b"a", b"1")]), AtomicBool::new(false));
    let url = scripted(move |_, request, stream| {
        if !is_ready.swap(true, Ordering::Relaxed) {
            return write!(stream, "HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\n");
        }
        answer(&request.method, stream, "ETag: \"e\"\r\n", &archive, 0..archive.len())
    });
    let Outcome { outcome, .. } =
        attempt_again(tempfile::tempdir().unwrap(), &TreeOptions::default(), &url);
    let done = outcome.unwrap();
    assert_eq!((done.method, done.files), (TreeMethod::Archive, 1));
}
