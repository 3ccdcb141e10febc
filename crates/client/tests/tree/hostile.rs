//! Archives and listings of malicious servers: nothing of them leaves the folder.

use std::fs;
use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

use tar::EntryType;
use tempfile::TempDir;
use underpass_client::tree::{TreeEvent, TreeFailed, TreeGauge, TreeOptions, TreeOutcome, fetch};
use underpass_client::{HttpClient, Url};
use underpass_testkit::http::{close, serve_until_exit};
use underpass_testkit::names;

use crate::tar_reader::{blocks, header, pax};

/// Starts a server whose responses depend on the requested path.
pub(crate) fn serve(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Url {
    serve_by(move |_, target| answer(target))
}

/// Starts a server whose responses depend on the method, too.
pub(crate) fn serve_by(answer: impl Fn(&str, &str) -> Vec<u8> + Send + Sync + 'static) -> Url {
    let url = serve_until_exit(move |request, stream| {
        let mut bytes = answer(&request.method, &request.path);
        if request.method == "HEAD" {
            bytes.truncate(head_len(&bytes));
        }
        stream.write_all(&bytes)?;
        // A body without a length ends with the connection.
        if bytes.starts_with(b"HTTP/1.0") { close() } else { Ok(()) }
    });
    Url::parse(&format!("{url}x/")).unwrap()
}

/// Returns the length of the head of a response.
fn head_len(response: &[u8]) -> usize {
    response.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4
}

pub(crate) fn response(media_type: &str, body: &[u8]) -> Vec<u8> {
    let len = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {len}\r\n\
         ETag: \"e\"\r\nLast-Modified: Sun, 09 Sep 2001 01:46:40 GMT\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// The outcome of a download, and the entries that were left out.
pub(crate) struct Outcome {
    /// The folder that contains everything, one level below the one that must not change.
    pub(crate) place: TempDir,
    pub(crate) outcome: Result<TreeOutcome, TreeFailed>,
    pub(crate) left_out: Vec<String>,
}

pub(crate) fn attempt(url: &Url) -> Outcome {
    let options = TreeOptions { retries: 0, ..TreeOptions::default() };
    attempt_again(tempfile::tempdir().unwrap(), &options, url)
}

pub(crate) fn agent() -> HttpClient<'static> {
    HttpClient {
        connect_timeout: Duration::from_secs(10),
        timeout: Duration::from_secs(10),
        max_redirects: 3,
        ..HttpClient::default()
    }
}

/// Fetches into a folder that may have contents already.
pub(crate) fn attempt_again(place: TempDir, options: &TreeOptions, url: &Url) -> Outcome {
    fs::write(place.path().join("outside"), "untouched").unwrap();
    let left_out = Mutex::new(Vec::new());
    let report = |event: &TreeEvent<'_>| {
        if let TreeEvent::LeftOut { path, reason } = event {
            left_out.lock().unwrap().push(format!("{}: {reason}", path.escape_ascii()));
        }
    };
    let target = place.path().join("x");
    let outcome = fetch(&agent(), options, url, &target, &TreeGauge::default(), &report);
    assert_eq!(fs::read(place.path().join("outside")).unwrap(), b"untouched");
    assert_eq!(names(place.path()).len(), 1 + usize::from(target.exists()) + unfinished(&place));
    let left_out = left_out.into_inner().unwrap();
    Outcome { place, outcome, left_out }
}

/// Returns how many names an unfinished folder has: its own and its journal's.
fn unfinished(place: &TempDir) -> usize {
    if place.path().join("x.part").exists() { 2 } else { 0 }
}

fn archive(members: &[Vec<u8>]) -> Url {
    let body = [members.concat(), vec![0; 1024]].concat();
    serve(move |_| response("application/x-tar", &body))
}

pub(crate) fn file(name: &[u8], contents: &[u8]) -> Vec<u8> {
    let header = header(name, EntryType::Regular, contents.len() as u64);
    [header.as_bytes().to_vec(), blocks(contents)].concat()
}

fn link(name: &[u8], target: &[u8], kind: EntryType) -> Vec<u8> {
    let mut header = header(name, kind, 0);
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target);
    header.set_cksum();
    header.as_bytes().to_vec()
}

#[test]
fn members_that_lead_out_are_left_out_and_the_rest_arrives() {
    let url = archive(&[
        file(b"first", b"1"),
        file(b"../outside", b"bad"),
        file(b"/outside", b"bad"),
        file(b"a/../../outside", b"bad"),
        [pax(b"19 path=../outside\n"), file(b"innocent", b"bad")].concat(),
        link(b"up", b"..", EntryType::Symlink),
        link(b"root", b"/", EntryType::Symlink),
        link(b"hard", b"../outside", EntryType::Link),
        link(b"hard2", b"/etc/passwd", EntryType::Link),
        header(b"pipe", EntryType::Fifo, 0).as_bytes().to_vec(),
        file(b".underpass-get.journal", b"bad"),
        // Through a link that is allowed itself, and to a hard link of a link.
        link(b"good", b"folder", EntryType::Symlink),
        file(b"good/file", b"bad"),
        link(b"hard3", b"good", EntryType::Link),
        file(b"first/below", b"bad"),
        file(b"last", b"9"),
    ]);
    let Outcome { place, outcome, left_out } = attempt(&url);
    let done = outcome.unwrap();
    assert_eq!(done.left_out, 13, "{left_out:#?}");
    assert_eq!(names(&place.path().join("x")), ["first", "good", "last"]);
    assert_eq!(fs::read(place.path().join("x/last")).unwrap(), b"9");
    assert_eq!((done.files, done.links), (2, 1));
    for words in ["has a '..'", "absolute", "points out", "neither a file", "unfinished files"] {
        assert!(left_out.iter().any(|line| line.contains(words)), "{words}: {left_out:#?}");
    }
}

#[test]
fn the_last_member_of_a_repeated_name_wins() {
    let url = archive(&[
        file(b"a", b"1"),
        link(b"b", b"a", EntryType::Symlink),
        file(b"b", b"2"),
        file(b"a", b"3 longer"),
        link(b"c", b"a", EntryType::Link),
        header(b"d/", EntryType::Directory, 0).as_bytes().to_vec(),
        header(b"d/", EntryType::Directory, 0).as_bytes().to_vec(),
    ]);
    let Outcome { place, outcome, left_out } = attempt(&url);
    assert_eq!((outcome.unwrap().left_out, left_out), (0, Vec::new()));
    let read = |name| fs::read(place.path().join("x").join(name)).unwrap();
    assert_eq!(
        (read("a"), read("b"), read("c")),
        (b"3 longer".into(), b"2".into(), b"3 longer".into())
    );
    assert_eq!(names(&place.path().join("x")), ["a", "b", "c", "d"]);
}

#[test]
fn a_broken_archive_is_an_error_and_gets_no_name() {
    for (what, broken) in [
        ("checksum of a header", b"no header".repeat(100)[..512].to_vec()),
        ("ends too early", header(b"a", EntryType::Regular, 9_000).as_bytes().to_vec()),
        ("not supported", header(b"a", EntryType::GNUSparse, 0).as_bytes().to_vec()),
    ] {
        let url = archive(&[file(b"first", b"1"), broken]);
        let Outcome { place, outcome, .. } = attempt(&url);
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert!(!place.path().join("x").exists());
    }
}

#[test]
fn a_large_member_that_is_cut_is_no_file() {
    let member = header(b"large", EntryType::Regular, 1_000_000).as_bytes().to_vec();
    let mut body = response("application/x-tar", &[member, vec![7; 1_000_448 + 1_024]].concat());
    body.truncate(700_000);
    let url = serve_until_exit(move |request, stream| {
        let len = if request.method == "HEAD" { head_len(&body) } else { body.len() };
        stream.write_all(&body[..len])?;
        close()
    });
    let url = Url::parse(&format!("{url}x/")).unwrap();
    let Outcome { place, outcome, .. } = attempt(&url);
    let failed = outcome.unwrap_err();
    assert!(failed.to_string().contains("ended before the last byte"), "{failed}");
    let have = failed.done.report.bytes();
    assert!(have > 600_000 && have < 700_000, "{have}");
    assert!(!place.path().join("x").exists());
    assert_eq!(names(&place.path().join("x.part")), [".underpass-get.part"]);
}

#[test]
fn a_listing_with_loops_or_links_out_of_the_folder_ends() {
    let url = serve(|target| {
        let page = match target.split('?').next().unwrap() {
            "/x/" => {
                "<a href=\"sub/\">s</a><a href=\"/x/\">self</a><a href=\"..%2f..%2foutside\">o</a>\
                 <a href=\"../outside\">up</a><a href=\"file\">f</a>"
            }
            "/x/sub/" => {
                "<a href=\"../\">up</a><a href=\"/x/sub/\">self</a>\
                 <a href=\"http://127.0.0.1:1/x/y\">elsewhere</a><a href=\"inner\">i</a>"
            }
            _ => return response("application/octet-stream", target.as_bytes()),
        };
        response("text/html", page.as_bytes())
    });
    let Outcome { place, outcome, left_out } = attempt(&url);
    let done = outcome.unwrap();
    assert_eq!((done.files, done.folders, done.left_out), (2, 1, 1), "{left_out:?}");
    assert!(left_out[0].contains("has a slash"), "{left_out:?}");
    let x = place.path().join("x");
    assert_eq!(
        (names(&x), names(&x.join("sub"))),
        (vec!["file".into(), "sub".into()], vec!["inner".into()])
    );
    let facts = fs::metadata(x.join("sub/inner")).unwrap();
    let age = facts.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(age, Duration::from_secs(1_000_000_000));
}

/// Such as `latest/`, which redirects to the newest of the versions next to it.
#[test]
fn two_folders_with_one_address_have_the_same_contents() {
    let redirect =
        |to| format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
    for threads in [1, 4] {
        let url = serve(move |target| match target.split('?').next().unwrap() {
            "/x/" => response("text/html", b"<a href=\"latest/\">l</a><a href=\"v1/\">v</a>"),
            "/x/latest/" => redirect("/x/v1/").into_bytes(),
            "/x/v1/" => response("text/html", b"<a href=\"docs/\">d</a>"),
            "/x/v1/docs/" => response("text/html", b"<a href=\"a\">a</a><a href=\"sub/\">s</a>"),
            "/x/v1/docs/sub/" => response("text/html", b"<a href=\"b\">b</a>"),
            _ => response("application/octet-stream", target.as_bytes()),
        });
        let options = TreeOptions { retries: 0, connections: threads, ..TreeOptions::default() };
        let Outcome { place, outcome, left_out } =
            attempt_again(tempfile::tempdir().unwrap(), &options, &url);
        let done = outcome.unwrap();
        assert_eq!((done.files, done.folders, done.left_out), (4, 6, 0), "{left_out:?}");
        for version in ["latest", "v1"] {
            let docs = place.path().join("x").join(version).join("docs");
            assert_eq!(names(&docs), ["a", "sub"]);
            assert_eq!(names(&docs.join("sub")), ["b"]);
        }
    }
}

#[test]
fn a_redirect_to_a_parent_folder_is_reported_and_not_followed_in_circles() {
    let redirect =
        |to| format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
    let url = serve(move |target| match target.split('?').next().unwrap() {
        "/x/" => response("text/html", b"<a href=\"a\">a</a><a href=\"sub/\">s</a>"),
        "/x/sub/" => response("text/html", b"<a href=\"up/\">u</a><a href=\"b\">b</a>"),
        "/x/sub/up/" => redirect("/x/").into_bytes(),
        _ => response("application/octet-stream", target.as_bytes()),
    });
    let Outcome { place, outcome, left_out } = attempt(&url);
    let done = outcome.unwrap();
    assert_eq!((done.files, done.folders, done.left_out), (2, 1, 1), "{left_out:?}");
    assert_eq!(left_out, ["sub/up: it leads back to a folder that it is in"]);
    assert_eq!(names(&place.path().join("x/sub")), ["b"]);
}

/// A server shows a link to a parent folder in this way, until it counts too many links.
#[test]
fn a_folder_that_appears_in_itself_again_and_again_is_left_out() {
    let sized =
        "[{\"name\":\"a\",\"type\":\"file\",\"size\":5},{\"name\":\"sub\",\"type\":\"directory\"}]";
    for (media_type, page, files, folders) in [
        ("application/json", sized, 3, 2),
        // Names alone may be equal in different folders.
        ("text/html", "<a href=\"a\">a</a><a href=\"sub/\">s</a>", 5, 4),
        // Folders of digits may have the same names at each level.
        ("text/html", "<a href=\"sub/\">s</a>", 1, 12),
    ] {
        let url =
            serve(move |target| match target.split('?').next().unwrap().strip_prefix("/x/") {
                Some(inner) if inner.matches("sub/").count() == 12 => {
                    response("text/html", b"<a href=\"last\">l</a>")
                }
                Some(inner) if inner.trim_end_matches("sub/").is_empty() => {
                    response(media_type, page.as_bytes())
                }
                _ => response("application/octet-stream", b"bytes"),
            });
        let Outcome { outcome, left_out, .. } = attempt(&url);
        let done = outcome.unwrap();
        assert_eq!((done.files, done.folders), (files, folders), "{left_out:?}");
        let is_same = |line: &String| line.ends_with("that of several folders around it");
        assert!(left_out.iter().all(is_same), "{left_out:?}");
        assert_eq!(left_out.len() as u64, u64::from(files > 1));
    }
}

#[test]
fn a_body_that_ends_before_the_size_of_the_listing_is_no_file() {
    for (size, is_whole) in [(1000, false), (4, false), (5, true)] {
        let url = serve(move |target| {
            if target.split('?').next() == Some("/x/") {
                let entry =
                    "\"name\":\"f\",\"type\":\"file\",\"mtime\":\"Sun, 09 Sep 2001 01:46:40 GMT\"";
                let page = format!("[{{{entry},\"size\":{size}}}]");
                return response("application/json", page.as_bytes());
            }
            b"HTTP/1.0 200 OK\r\n\r\nbytes".to_vec()
        });
        let Outcome { place, outcome, left_out } = attempt(&url);
        assert_eq!(outcome.unwrap().left_out, u64::from(!is_whole), "{size}");
        assert_eq!(place.path().join("x/f").exists(), is_whole, "{size}");
        assert!(left_out.iter().all(|line| line.contains("instead of")), "{left_out:?}");
    }
}

#[test]
fn a_name_without_a_slash_may_turn_out_to_be_a_folder() {
    let url = serve(|target| match target.split('?').next().unwrap() {
        "/x/" => response("text/html", b"<a href=\"sub\">s</a>"),
        "/x/sub/" => response("text/html", b"<a href=\"inner\">i</a>"),
        "/x/sub" => {
            b"HTTP/1.1 301 Moved\r\nLocation: /x/sub/\r\nContent-Length: 0\r\n\r\n".to_vec()
        }
        _ => response("application/octet-stream", b"bytes"),
    });
    let Outcome { place, outcome, .. } = attempt(&url);
    assert_eq!(outcome.unwrap().folders, 1);
    assert_eq!(fs::read(place.path().join("x/sub/inner")).unwrap(), b"bytes");
}

#[test]
fn a_compressed_listing_is_reported() {
    let url = serve(|_| {
        let body = b"\x1f\x8b";
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    });
    let Err(failed) = attempt(&url).outcome else { panic!("it was taken") };
    assert!(failed.to_string().contains("Content-Encoding gzip"), "{failed}");
}

#[test]
fn a_listing_with_too_many_links_is_refused() {
    let link = b"<a href=x>";
    let page = link.repeat(1_000_002);
    let url = serve(move |_| response("text/html", &page));
    let Err(failed) = attempt(&url).outcome else { panic!("it was taken") };
    assert!(failed.to_string().contains("more than 1000000"), "{failed}");
}

#[test]
fn a_file_where_a_folder_should_be_is_reported_without_delete() {
    let url = serve(|target| match target {
        "/x/" => response("application/json", br#"[{"name":"a","type":"directory"}]"#),
        "/x/a/" => response("application/json", br#"[{"name":"b"}]"#),
        _ => response("text/plain", b"b"),
    });
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("x")).unwrap();
    fs::write(place.path().join("x/a"), "mine").unwrap();
    let options = TreeOptions {
        retries: 0,
        replaces: true,
        archive: false,
        deletes: true,
        max_delete: Some(0),
        ..TreeOptions::default()
    };
    let Outcome { outcome, left_out, .. } = attempt_again(place, &options, &url);
    let failed = outcome.unwrap_err();
    assert_eq!(failed.to_string(), "nothing was removed: that would be 1 entry, more than 0");
    assert!(left_out.len() == 1 && left_out[0].starts_with("a: "), "{left_out:?}");
}
