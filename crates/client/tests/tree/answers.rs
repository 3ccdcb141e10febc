//! Responses that are not the whole file or listing that was requested, and other versions.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;

use tempfile::TempDir;
use underpass_client::tree::{TreeGauge, TreeOptions, fetch};
use underpass_client::{HttpClient, Url};
use underpass_testkit::http::serve_until_exit;

use crate::hostile::{Outcome, agent, attempt, attempt_again, file, response, serve, serve_by};

/// Returns a response with this status line and its length.
fn answered(status: &str, media_type: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {len}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Successes that do not have the whole requested content.
const OTHER_SUCCESSES: [&str; 6] = [
    "201 Created",
    "202 Accepted",
    "203 Transformed",
    "204 No Content",
    "206 Partial Content\r\nContent-Range: bytes 0-4/1000",
    "226 IM Used",
];

/// A folder with an older `x/a` and a file that the server does not list.
fn older() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("x")).unwrap();
    fs::write(place.path().join("x/a"), "older").unwrap();
    fs::write(place.path().join("x/unlisted"), "older").unwrap();
    place
}

fn mirroring() -> TreeOptions {
    TreeOptions {
        retries: 0,
        replaces: true,
        archive: false,
        deletes: true,
        ..TreeOptions::default()
    }
}

#[test]
fn only_200_is_a_file_of_a_folder() {
    for status in OTHER_SUCCESSES {
        let url = serve(move |target| match target {
            "/x/" => response("text/html", b"<title>Index of /x</title><a href=\"a\">a</a></html>"),
            _ => answered(status, "text/plain", "first"),
        });
        let Outcome { place, outcome, left_out } = attempt_again(older(), &mirroring(), &url);
        assert_eq!(outcome.unwrap().left_out, 1, "{status}");
        assert!(left_out[0].contains(&status[..3]), "{status}: {left_out:?}");
        assert_eq!(fs::read(place.path().join("x/a")).unwrap(), b"older", "{status}");
        assert!(place.path().join("x/unlisted").exists(), "{status}");
    }
}

#[test]
fn only_200_is_a_listing() {
    for status in OTHER_SUCCESSES {
        let url = serve(move |target| match target {
            "/x/" => answered(status, "application/json", r#"[{"name":"a","type":"file"}]"#),
            _ => response("text/plain", b"newer"),
        });
        let Outcome { place, outcome, .. } = attempt_again(older(), &mirroring(), &url);
        let failed = outcome.unwrap_err();
        assert!(failed.to_string().contains(&status[..3]), "{status}: {failed}");
        assert!(place.path().join("x/unlisted").exists(), "{status}");
    }
}

#[test]
fn only_200_is_an_archive() {
    let body = [file(b"a", b"1"), vec![0; 1024]].concat();
    let url = serve(move |_| {
        let head = format!(
            "HTTP/1.1 202 Accepted\r\nContent-Type: application/x-tar\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), &body].concat()
    });
    let failed = attempt(&url).outcome.unwrap_err();
    assert!(failed.to_string().contains("202"), "{failed}");
}

#[test]
fn a_file_has_the_time_of_the_version_that_came() {
    // From 16 MiB on, another function receives it.
    for len in [50, 16 << 20] {
        for (date, second) in [
            // A cache has an older version.
            ("Sun, 09 Sep 2001 01:46:41 GMT", 1_000_000_000),
            // The listed time is later than the server's clock.
            ("Sun, 09 Sep 2001 01:46:40 GMT", 1_735_689_600),
        ] {
            let url = serve(move |target| match target {
                "/x/" => {
                    let entry = "\"name\":\"a\",\"mtime\":\"2025-01-01T00:00:00Z\"";
                    response("application/json", format!("[{{{entry},\"size\":{len}}}]").as_bytes())
                }
                _ => {
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: {len}\r\n\
                         Last-Modified: Sun, 09 Sep 2001 01:46:40 GMT\r\n\r\n"
                    );
                    [head.as_bytes(), &vec![7; len]].concat()
                }
            });
            let options = TreeOptions { archive: false, ..mirroring() };
            let Outcome { place, outcome, .. } = attempt_again(older(), &options, &url);
            outcome.unwrap();
            let found = fs::metadata(place.path().join("x/a")).unwrap();
            assert_eq!((found.len(), found.mtime()), (len as u64, second), "{date}");
        }
    }
}

#[test]
fn a_large_file_that_cannot_be_created_is_left_out_as_a_small_one_is() {
    let url = serve(|target| match target {
        "/x/" => response("application/json", br#"[{"name":"a"},{"name":"z"}]"#),
        "/x/z" => response("text/plain", b"small"),
        // A file that can be resumed has a partial file from the start.
        _ => {
            let fields = "text/plain\r\nAccept-Ranges: bytes";
            response(fields, &vec![7; 16 << 20])
        }
    });
    let place = tempfile::tempdir().unwrap();
    // The name of its partial file is taken.
    fs::create_dir_all(place.path().join("x/a.part")).unwrap();
    fs::write(place.path().join("x/a"), "precious").unwrap();
    let options = TreeOptions {
        retries: 0,
        archive: false,
        connections: 1,
        replaces: true,
        deletes: true,
        ..TreeOptions::default()
    };
    let Outcome { place, outcome, left_out } = attempt_again(place, &options, &url);
    assert_eq!(outcome.unwrap().left_out, 1);
    assert_eq!(
        left_out,
        ["a: a.part is in the way: it belongs to no download that can be resumed"]
    );
    assert_eq!(fs::read(place.path().join("x/z")).unwrap(), b"small");
    // An obstacle to the new file is no reason to remove the old one.
    assert_eq!(fs::read(place.path().join("x/a")).unwrap(), b"precious");
}

#[test]
fn files_of_connections_that_a_server_refuses_are_fetched_over_another() {
    let (is_taken, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    let url = serve(move |target| match target {
        "/x/" => response(
            "application/json",
            br#"[{"name":"a"},{"name":"b"},{"name":"c"},{"name":"d"}]"#,
        ),
        // The first request is only answered once all others were refused.
        _ if !is_taken.swap(true, Ordering::Relaxed) => {
            while refused.load(Ordering::Relaxed) < 3 {
                thread::yield_now();
            }
            response("text/plain", b"served")
        }
        _ if refused.fetch_add(1, Ordering::Relaxed) < 3 => {
            answered("503 Busy", "text/plain", "one at a time")
        }
        _ => response("text/plain", b"served"),
    });
    let options = TreeOptions { archive: false, retries: 0, ..TreeOptions::default() };
    let Outcome { outcome, left_out, .. } =
        attempt_again(tempfile::tempdir().unwrap(), &options, &url);
    assert_eq!((outcome.unwrap().files, left_out), (4, Vec::new()));
}

#[test]
fn a_folder_that_answers_with_a_page_is_left_out() {
    let url = serve(move |target| match target {
        "/x/" => response("application/json", br#"[{"name":"s","type":"directory"},{"name":"a"}]"#),
        "/x/s/" => response("text/html", b"<h1>Welcome</h1><a href=/>home</a>"),
        _ => response("text/plain", b"a"),
    });
    let options = TreeOptions { archive: false, ..TreeOptions::default() };
    let Outcome { outcome, left_out, .. } =
        attempt_again(tempfile::tempdir().unwrap(), &options, &url);
    assert_eq!(outcome.unwrap().files, 1);
    assert!(left_out.len() == 1 && left_out[0].starts_with('s'), "{left_out:?}");
}

/// Fetches twice into one folder, and expects that the second run finds everything.
fn fetch_twice(url: &Url) {
    let options = TreeOptions { replaces: true, archive: false, ..TreeOptions::default() };
    let place = tempfile::tempdir().unwrap();
    let Outcome { place, outcome, .. } = attempt_again(place, &options, url);
    assert_eq!(outcome.unwrap().files, 1);
    let Outcome { outcome, left_out, .. } = attempt_again(place, &options, url);
    let done = outcome.unwrap();
    assert_eq!((done.files, done.here, left_out), (0, 1, Vec::new()));
}

#[test]
fn a_server_that_refuses_head_gets_a_get() {
    for status in ["400 Bad", "403 No", "405 No", "501 No"] {
        let url = serve_by(move |method, target| match (method, target) {
            (_, "/x/") => response("text/html", b"<a href=a>a</a>"),
            ("HEAD", _) => answered(status, "text/plain", ""),
            _ => response("text/plain", b"bytes"),
        });
        fetch_twice(&url);
    }
}

#[test]
fn a_listing_of_another_port_removes_nothing() {
    let other =
        serve(|_| response("text/html", b"<title>Index of /x/s</title><a href=z>z</a></html>"));
    let redirect = format!(
        "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: {}\r\n\r\n",
        other.join("s/").unwrap()
    );
    let url = serve(move |target| match target {
        "/x/" => response("text/html", b"<title>Index of /x</title><a href=s/>s</a></html>"),
        _ => redirect.clone().into_bytes(),
    });
    let place = tempfile::tempdir().unwrap();
    fs::create_dir_all(place.path().join("x/s")).unwrap();
    fs::write(place.path().join("x/s/mine"), "older").unwrap();
    let Outcome { place, outcome, .. } = attempt_again(place, &mirroring(), &url);
    let failed = outcome.unwrap_err();
    assert!(failed.to_string().contains("nothing was removed"), "{failed}");
    assert!(place.path().join("x/s/mine").exists());
}

#[test]
fn a_file_of_another_length_than_listed_is_left_out_unless_it_has_changed() {
    for (listed, now, is_changed) in [
        ("2001-09-09T01:46:40Z", "01:47:00", false),
        ("2001-09-08T01:46:40Z", "01:47:00", true),
        // A log that is constantly written to has each response's second.
        ("2001-09-09T01:46:40Z", "01:46:40", true),
        ("2001-09-09T01:46:39Z", "01:46:40", true),
        ("2001-09-09T01:46:40Z", "01:46:41", true),
    ] {
        let url = serve(move |target| match target {
            "/x/" => {
                let entry = format!(r#"[{{"name":"a","size":100,"mtime":"{listed}"}}]"#);
                response("application/json", entry.as_bytes())
            }
            _ => {
                let date = format!("200 OK\r\nDate: Sun, 09 Sep 2001 {now} GMT");
                let answer = String::from_utf8(response("text/plain", b"bytes")).unwrap();
                answer.replacen("200 OK", &date, 1).into_bytes()
            }
        });
        let Outcome { place, outcome, left_out } = attempt_again(older(), &mirroring(), &url);
        assert_eq!(outcome.is_ok_and(|done| done.left_out == 0), is_changed, "{left_out:?}");
        let expected: &[u8] = if is_changed { b"bytes" } else { b"older" };
        assert_eq!(fs::read(place.path().join("x/a")).unwrap(), expected);
        let reason = "the server sends 5 bytes, but the listing says 100";
        assert_eq!(left_out.iter().any(|line| line.contains(reason)), !is_changed, "{left_out:?}");
    }
}

#[test]
fn a_link_in_the_place_of_a_large_file_is_replaced() {
    let large = vec![7; 16 << 20];
    for leads in ["folder", "large", "missing"] {
        let bytes = large.clone();
        let url = serve(move |target| match target {
            "/x/" => response("text/html", b"<a href=large>large</a><a href=z>z</a>"),
            "/x/large" => response("text/plain", &bytes),
            _ => response("text/plain", b"bytes"),
        });
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("x/folder")).unwrap();
        symlink(leads, place.path().join("x/large")).unwrap();
        let options = TreeOptions { replaces: true, archive: false, ..TreeOptions::default() };
        let Outcome { place, outcome, left_out } = attempt_again(place, &options, &url);
        assert_eq!((outcome.unwrap().files, left_out), (2, Vec::new()), "{leads}");
        let found = fs::symlink_metadata(place.path().join("x/large")).unwrap();
        assert!(found.is_file() && found.len() == 16 << 20, "{leads}");
    }
}

#[test]
fn a_folder_without_a_slash_is_entered_again() {
    let url = serve(|target| match target {
        "/x/" => response("text/html", b"<a href=sub>sub</a>"),
        "/x/sub/" => response("text/html", b"<a href=inner>i</a>"),
        "/x/sub" => {
            b"HTTP/1.1 302 Found\r\nLocation: /x/sub/\r\nContent-Length: 0\r\n\r\n".to_vec()
        }
        _ => response("text/plain", b"bytes"),
    });
    fetch_twice(&url);
}

#[test]
fn a_fault_of_one_file_does_not_end_the_others() {
    let redirect = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: ";
    for b in [
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nbytes".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        "no HTTP\r\n\r\n".to_owned(),
        format!("{redirect}/x/b\r\n\r\n"),
        format!("{redirect}ftp://h/b\r\n\r\n"),
        format!("{redirect}http://127.0.0.1:1/b\r\n\r\n"),
        // It breaks off, as HTTP/1.0 connections end after the response.
        "HTTP/1.0 200 OK\r\nContent-Length: 500\r\n\r\nbytes".to_owned(),
    ] {
        let answer = b.clone();
        let url = serve(move |target| match target {
            "/x/" => response("text/html", b"<a href=a>a</a><a href=b>b</a><a href=c>c</a>"),
            "/x/b" => answer.clone().into_bytes(),
            _ => response("text/plain", b"bytes"),
        });
        let options = TreeOptions { connections: 1, deletes: false, ..mirroring() };
        let Outcome { outcome, left_out, .. } = attempt_again(older(), &options, &url);
        let done = outcome.unwrap();
        assert_eq!((done.files, done.left_out), (2, 1), "{b}: {left_out:?}");
        assert!(left_out[0].starts_with("b: "), "{left_out:?}");
        assert!(!left_out[0].contains("without a response"), "{left_out:?}");
    }
}

#[test]
fn a_large_file_is_requested_once() {
    let requests = std::sync::Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let url = serve(move |target| match target {
        "/x/" => response("text/html", b"<a href=a>a</a>"),
        _ if count.fetch_add(1, Ordering::Relaxed) == 0 => response("text/plain", &[7; 17 << 20]),
        // The redirect target accepts one request.
        _ => answered("429 Too Many", "text/plain", ""),
    });
    let options = TreeOptions { retries: 0, archive: false, ..TreeOptions::default() };
    let Outcome { outcome, left_out, .. } =
        attempt_again(tempfile::tempdir().unwrap(), &options, &url);
    assert_eq!((outcome.unwrap().files, left_out), (1, Vec::new()));
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}

#[test]
fn an_answer_without_a_media_type_is_no_folder() {
    let url = serve(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbytes".to_vec());
    let failed = attempt(&url).outcome.unwrap_err().to_string();
    assert!(failed.contains("answers with no media type, neither"), "{failed}");
}

#[test]
fn a_lost_server_ends_the_whole_download() {
    let url = serve(|target| match target {
        "/x/" => response("text/html", b"<a href=a>a</a><a href=b>b</a><a href=c>c</a>"),
        _ => b"HTTP/1.0 200 OK\r\nContent-Length: 500\r\n\r\nbytes".to_vec(),
    });
    let options = TreeOptions { connections: 1, deletes: false, ..mirroring() };
    let Outcome { outcome, left_out, .. } = attempt_again(older(), &options, &url);
    assert_eq!((outcome.is_err(), left_out.len()), (true, 1), "{left_out:?}");
}

#[test]
fn a_digest_that_the_server_sends_is_compared() {
    // The SHA-256 of `bytes`.
    let digest = "J3CJ2RwL308uaGK6fkoHYFEZQx9dE/cm3TUrBvGyBqk=";
    for (digest, is_right) in
        [(digest, true), ("2SmKENGwc1g33EvYXaxkGw887yekfl1TpU8vP1svz/o=", false)]
    {
        for name in ["Repr-Digest", "Content-Digest"] {
            let field = format!("HTTP/1.1 200 OK\r\n{name}: sha-256=:{digest}:");
            let url = serve(move |target| match target {
                "/x/" => response("text/html", b"<title>Index of /x</title><a href=a>a</a></html>"),
                _ => answered(&field["HTTP/1.1 ".len()..], "text/plain", "bytes"),
            });
            let Outcome { place, outcome, left_out } = attempt_again(older(), &mirroring(), &url);
            let done = outcome;
            assert_eq!(done.is_ok_and(|it| it.left_out == 0), is_right, "{name}: {left_out:?}");
            let found = fs::read(place.path().join("x/a")).unwrap();
            assert_eq!(found, if is_right { b"bytes" } else { b"older" }, "{name}");
        }
    }
}

#[test]
fn a_file_in_chunks_of_another_length_than_listed_is_left_out() {
    for date in ["", "Last-Modified: Sun, 09 Sep 2001 01:46:41 GMT\r\n"] {
        let url = serve(move |target| match target {
            "/x/" => {
                let mtime = r#""mtime":"2001-09-09T01:46:40Z""#;
                let entry = format!(r#"[{{"name":"a","size":100000,{mtime}}}]"#);
                response("application/json", entry.as_bytes())
            }
            _ => {
                let head = format!("HTTP/1.1 200 OK\r\n{date}Transfer-Encoding: chunked");
                format!("{head}\r\n\r\n5\r\nlogin\r\n0\r\n\r\n").into_bytes()
            }
        });
        let Outcome { place, outcome, left_out } = attempt_again(older(), &mirroring(), &url);
        // A file with another time is another version.
        let is_other = !date.is_empty();
        assert_eq!(outcome.unwrap().left_out, u64::from(!is_other), "{left_out:?}");
        let found = fs::read(place.path().join("x/a")).unwrap();
        assert_eq!(found, if is_other { b"login" } else { b"older" });
        let reason = "the server sends 5 bytes, but the listing says 100000";
        assert_eq!(left_out.iter().any(|line| line.contains(reason)), !is_other, "{left_out:?}");
        assert_eq!(place.path().join("x/unlisted").exists(), !is_other);
    }
}

#[test]
fn a_page_to_which_a_redirect_leads_is_not_the_file() {
    for (name, to, media_type, is_file) in [
        ("a", "/login.html?to=a", "text/html; charset=utf-8", false),
        ("a", "/", "TEXT/HTML", false),
        ("a", "/mirror/a", "text/html", true),
        ("a", "/blob/123", "application/octet-stream", true),
        ("a.html", "/pages/1", "text/html", true),
    ] {
        let url = serve(move |target| match target {
            "/x/" => {
                let page = format!("<title>Index of /x</title><a href={name}>a</a></html>");
                response("text/html", page.as_bytes())
            }
            _ if target.starts_with("/x/") => {
                let head = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: ";
                format!("{head}{to}\r\n\r\n").into_bytes()
            }
            _ => response(media_type, b"page"),
        });
        let Outcome { place, outcome, left_out } = attempt_again(older(), &mirroring(), &url);
        assert_eq!(outcome.unwrap().left_out, u64::from(!is_file), "{to}: {left_out:?}");
        assert_eq!(place.path().join("x/unlisted").exists(), !is_file, "{to}");
        let found = fs::read(place.path().join("x").join(name)).unwrap();
        assert_eq!(found, if is_file { b"page".as_slice() } else { b"older" }, "{to}");
        let says_so = left_out.iter().any(|line| line.contains("a redirect leads to the page"));
        assert_eq!(says_so, !is_file, "{left_out:?}");
    }
}

#[test]
fn a_file_that_several_pages_link_to_is_fetched_once() {
    for len in [200_000, 17 << 20] {
        let requests = std::sync::Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        let url = serve(move |target| match target {
            "/x/" => response("text/html", b"<a href=posts/>p</a><a href=posts/pic>i</a>"),
            "/x/posts/" => response("text/html", b"<a href=pic>i</a><a href=../posts/pic>i</a>"),
            _ => {
                count.fetch_add(1, Ordering::Relaxed);
                response("image/png", &vec![7; len])
            }
        });
        let options = TreeOptions { archive: false, ..TreeOptions::default() };
        let Outcome { outcome, left_out, .. } =
            attempt_again(tempfile::tempdir().unwrap(), &options, &url);
        assert_eq!((outcome.unwrap().files, left_out), (1, Vec::new()), "{len}");
        assert_eq!(requests.load(Ordering::Relaxed), 1, "{len}");
    }
}

#[test]
fn credentials_go_to_no_url_that_another_server_has_named() {
    let requests = std::sync::Arc::new(Mutex::new(Vec::new()));
    let other = std::sync::Arc::new(OnceLock::<Url>::new());
    let (record, leads) = (requests.clone(), other.clone());
    let redirect = |to: &Url| {
        let head = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: ";
        format!("{head}{to}\r\n\r\n").into_bytes()
    };
    let url = serve_until_exit(move |request, stream| {
        let has_key = request.field("x-key").is_some();
        record.lock().unwrap().push((request.path.clone(), has_key));
        stream.write_all(&match request.path.as_str() {
            "/x/" => response("text/html", b"<a href=s/>s</a><a href=own>o</a>"),
            "/x/s/" => redirect(leads.get().unwrap()),
            "/private/" => response("text/html", b"<a href=secret>s</a><a href=sub/>s</a>"),
            "/private/sub/" => response("text/html", b"<a href=more>s</a>"),
            _ => response("text/plain", b"bytes"),
        })
    });
    let url = Url::parse(&url).unwrap();
    let private = url.join("private/").unwrap();
    other.set(serve(move |_| redirect(&private))).unwrap();
    let client = HttpClient { headers: vec![("X-Key".to_owned(), "k".to_owned())], ..agent() };
    let options = TreeOptions { archive: false, ..TreeOptions::default() };
    let place = tempfile::tempdir().unwrap();
    let (target, gauge) = (place.path().join("x"), TreeGauge::default());
    let done = fetch(&client, &options, &url.join("x/").unwrap(), &target, &gauge, &|_| {});
    assert_eq!(done.unwrap().files, 3);
    let mut requests = requests.lock().unwrap();
    requests.sort();
    let expected = [
        ("/private/", false),
        ("/private/secret", false),
        ("/private/sub/", false),
        ("/private/sub/more", false),
        ("/x/", true),
        ("/x/own", true),
        ("/x/s/", true),
    ];
    assert_eq!(*requests, expected.map(|(path, has_key)| (path.to_owned(), has_key)));
}
