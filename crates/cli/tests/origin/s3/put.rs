//! Uploads to a store.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::rig::{Finished, Running, folder, noise, until};
use crate::s3::store::{Store, command};
use crate::scripted_origin::{Gate, Origin, Request, Sending};

#[test]
fn files_go_by_sendfile_in_parts_if_they_are_large() {
    let Some(store) = Store::new() else { return };
    let here = folder();
    for (name, len, is_in_parts) in
        [("empty", 0, false), ("small", 100_000, false), ("large", (40 << 20) + 1, true)]
    {
        let bytes = noise(len);
        fs::write(here.path().join(name), &bytes).unwrap();
        for more in [&[][..], &["--digest", "sha-256"]] {
            let args = [&["put", name, "s3://bucket/to/", "--json"], more].concat();
            let receipt = store.run(here.path(), &args).succeeded().receipt();
            assert!(fs::read(store.path("to").join(name)).unwrap() == bytes, "{name}");
            assert_eq!(receipt["user_space_bytes"], 0);
            assert_eq!(receipt["url"], format!("s3://bucket/to/{name}"));
            assert_eq!(receipt["resumable"], is_in_parts);
            if !more.is_empty() {
                let read = if is_in_parts { 2 * len } else { len };
                assert_eq!(receipt["digest"]["read_bytes"], read);
            }
        }
        let args = ["put", "-n", name, "s3://bucket/to/", "--json"];
        let receipt = store.run(here.path(), &args).succeeded().receipt();
        assert_eq!(receipt["was_there"], true);
        let args = ["put", "--if-match", "other", name, "s3://bucket/to/"];
        store.run(here.path(), &args).failed(1, &["another version"]);
    }
    fs::create_dir(here.path().join("tree")).unwrap();
    fs::write(here.path().join("tree/a b"), "ab").unwrap();
    store.run(here.path(), &["put", "-r", "tree", "s3://bucket"]).succeeded();
    assert_eq!(fs::read(store.path("tree/a b")).unwrap(), b"ab");
    store.run(here.path(), &["put", "small", "s3://elsewhere/x"]).failed(1, &["NoSuchBucket"]);
    store.run(here.path(), &["put", "large", "s3://elsewhere/x"]).failed(1, &["NoSuchBucket"]);
    let mut command = store.command(here.path(), &["put", "-", "s3://bucket/x"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    running.child.stdin.take().unwrap().write_all(b"some").unwrap();
    running.finish().failed(1, &["its length is unknown", "save it to a file"]);
    // Nothing is left of uploads that were begun.
    assert!(
        !store.path(".sgwtmp/multipart").exists() || is_empty(&store.path(".sgwtmp/multipart"))
    );
}

/// A small object has no multipart upload that could be queried.
#[test]
fn an_object_whose_response_was_lost_is_recognized_by_its_tag() {
    // The MD5 digests of what is sent, and of something else.
    for (tag, is_ours) in
        [("5D41402ABC4B2A76B9719D911017C592", true), ("7d793037a0760186574b0282f2f435e7", false)]
    {
        for condition in [&["-n"][..], &["--if-match", "old"]] {
            let puts = Arc::new(AtomicU32::new(0));
            let count = Arc::clone(&puts);
            let has_old = condition.len() == 2;
            let origin = Origin::new(move |request, sending| match request.method.as_str() {
                "PUT" => {
                    count.fetch_add(1, Ordering::Relaxed);
                    sending.closes = true;
                }
                "HEAD" if count.load(Ordering::Relaxed) > 0 => {
                    sending.head(&format!("HTTP/1.1 200 OK\nContent-Length: 5\nETag: \"{tag}\""));
                }
                "HEAD" if has_old => {
                    sending.head("HTTP/1.1 200 OK\nContent-Length: 3\nETag: \"old\"");
                }
                method => {
                    assert_eq!(method, "HEAD");
                    sending.head("HTTP/1.1 404 Not Found\nContent-Length: 0");
                }
            });
            let here = folder();
            fs::write(here.path().join("file"), "hello").unwrap();
            let args = [&["put", "file", "s3://bucket/x"], condition].concat();
            let finished = Running::start(command(&origin.url(), here.path(), &args)).finish();
            assert_eq!(finished.status.success(), is_ours, "{condition:?}: {}", finished.stderr);
            assert_eq!(puts.load(Ordering::Relaxed), 1);
        }
    }
}

fn is_empty(folder: &std::path::Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

/// A store that takes uploads in parts, and keeps what it got.
#[derive(Clone, Default)]
struct Taken {
    /// The parts by their numbers.
    parts: Arc<Mutex<BTreeMap<usize, Vec<u8>>>>,
    done: Arc<Mutex<Option<Vec<u8>>>>,
    begun: Arc<AtomicU32>,
}

impl Taken {
    fn query(request: &Request, name: &str) -> Option<String> {
        let (_, query) = request.path.split_once('?')?;
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
    }

    fn xml(sending: &mut Sending, status: &str, body: &str) {
        let head = format!("HTTP/1.1 {status}\nContent-Type: application/xml");
        sending.answer(&head, body.as_bytes());
    }

    fn answer(&self, request: &Request, sending: &mut Sending) {
        let id = Self::query(request, "uploadId");
        match request.method.as_str() {
            "POST" if id.is_none() => {
                self.begun.fetch_add(1, Ordering::Relaxed);
                let body = "<R><UploadId>u/1&amp;</UploadId></R>";
                Self::xml(sending, "200 OK", body);
            }
            "PUT" => {
                let number = Self::query(request, "partNumber").unwrap().parse().unwrap();
                assert_eq!(id.as_deref(), Some("u%2F1%26"));
                let mut parts = self.parts.lock().unwrap();
                parts.insert(number, request.body.clone());
                sending.answer(&format!("HTTP/1.1 200 OK\nETag: \"t{number}\""), b"");
            }
            "GET" => {
                let parts = self.parts.lock().unwrap();
                let after =
                    Self::query(request, "part-number-marker").map_or(0, |it| it.parse().unwrap());
                // A page has one part.
                let page: Vec<_> =
                    parts.iter().filter(|(number, _)| **number > after).take(1).collect();
                let more = page.first().filter(|(number, _)| parts.keys().any(|it| it > number));
                let next = more.map_or(String::new(), |(number, _)| {
                    format!(
                        "<NextPartNumberMarker>{number}</NextPartNumberMarker>\
                     <IsTruncated>true</IsTruncated>"
                    )
                });
                let part = |(number, body): (&usize, &Vec<u8>)| {
                    let len = body.len();
                    format!(
                        "<Part><PartNumber>{number}</PartNumber><ETag>&quot;t{number}&quot;</ETag><Size>{len}</Size></Part>"
                    )
                };
                let list: String = page.into_iter().map(part).collect();
                Self::xml(
                    sending,
                    "200 OK",
                    &format!("<ListPartsResult>{list}{next}</ListPartsResult>"),
                );
            }
            "POST" => {
                let text = String::from_utf8(request.body.clone()).unwrap();
                let parts = self.parts.lock().unwrap();
                for number in parts.keys() {
                    assert!(text.contains(&format!("<PartNumber>{number}</PartNumber>")));
                }
                let whole = parts.values().flatten().copied().collect();
                *self.done.lock().unwrap() = Some(whole);
                let result = "<CompleteMultipartUploadResult><ETag>&quot;t&quot;</ETag>\
                              </CompleteMultipartUploadResult>";
                Self::xml(sending, "200 OK", result);
            }
            "DELETE" => {
                self.parts.lock().unwrap().clear();
                sending.answer("HTTP/1.1 204 Gone", b"");
            }
            method => panic!("{method}"),
        }
    }
}

/// Uploads the file that [`with_a_large_file`] makes.
const IN_PARTS: [&str; 6] = ["put", "file", "s3://bucket/x", "-j", "2", "--json"];

/// Makes a folder with a file of 40 MiB, and returns its bytes too.
fn with_a_large_file() -> (tempfile::TempDir, Vec<u8>) {
    let (here, bytes) = (folder(), noise(40 << 20));
    fs::write(here.path().join("file"), &bytes).unwrap();
    (here, bytes)
}

#[test]
fn an_upload_that_was_killed_is_resumed_by_its_parts() {
    let (taken, gate) = (Taken::default(), Gate::default());
    let (store, opened) = (taken.clone(), gate.clone());
    let origin = Origin::new(move |request, sending| {
        if Taken::query(request, "partNumber").as_deref() == Some("3") {
            opened.wait();
        }
        store.answer(request, sending);
    });
    let (here, bytes) = with_a_large_file();
    let args = [&IN_PARTS[..], &["--digest", "sha-256"]].concat();
    let mut running = Running::start(command(&origin.url(), here.path(), &args));
    // The third one follows the first acknowledgement; the second one may be on its way.
    until("a third part", || {
        let requests = origin.requests();
        requests.iter().any(|request| Taken::query(request, "partNumber").as_deref() == Some("3"))
    });
    running.child.kill().unwrap();
    running.finish();
    gate.open();
    let finished = Running::start(command(&origin.url(), here.path(), &args)).finish();
    let receipt = finished.succeeded().receipt();
    // The part in flight may have arrived.
    let number = |name: &str| receipt[name].as_u64().unwrap();
    assert!(number("resumed_at") >= 16 << 20);
    assert_eq!(number("resumed_at") + number("bytes"), 40 << 20);
    assert_eq!(receipt["user_space_bytes"], 0);
    // The whole was read for its digest, and the parts that were sent for theirs.
    assert_eq!(receipt["digest"]["read_bytes"], (40 << 20) + number("bytes"));
    assert!(taken.done.lock().unwrap().take() == Some(bytes));
    assert_eq!(taken.begun.load(Ordering::Relaxed), 1);
    // Its journal is gone: the next upload is another one.
    Running::start(command(&origin.url(), here.path(), &IN_PARTS)).finish().succeeded();
    assert_eq!(taken.begun.load(Ordering::Relaxed), 2);
}

/// Two stores can have buckets of the same name.
#[test]
fn an_upload_to_another_store_leaves_an_unfinished_one_alone() {
    let (taken, gate) = (Taken::default(), Gate::default());
    let (store, opened) = (taken.clone(), gate.clone());
    let origin = Origin::new(move |request, sending| {
        if Taken::query(request, "partNumber").as_deref() == Some("3") {
            opened.wait();
        }
        store.answer(request, sending);
    });
    let (here, bytes) = with_a_large_file();
    let mut running = Running::start(command(&origin.url(), here.path(), &IN_PARTS));
    until("a third part", || {
        let requests = origin.requests();
        requests.iter().any(|request| Taken::query(request, "partNumber").as_deref() == Some("3"))
    });
    running.child.kill().unwrap();
    running.finish();
    gate.open();
    let elsewhere = Taken::default();
    let store = elsewhere.clone();
    let other = Origin::new(move |request, sending| store.answer(request, sending));
    Running::start(command(&other.url(), here.path(), &IN_PARTS)).finish().succeeded();
    assert!(elsewhere.done.lock().unwrap().take().as_ref() == Some(&bytes));
    Running::start(command(&origin.url(), here.path(), &IN_PARTS)).finish().succeeded();
    assert!(taken.done.lock().unwrap().take() == Some(bytes));
    assert_eq!(taken.begun.load(Ordering::Relaxed), 1);
}

#[test]
fn a_part_that_was_not_acknowledged_is_sent_again() {
    let (taken, gate) = (Taken::default(), Gate::default());
    let (store, opened) = (taken.clone(), gate.clone());
    let first = AtomicU32::new(0);
    let origin = Origin::new(move |request, sending| {
        let is_second = Taken::query(request, "partNumber").as_deref() == Some("2");
        if is_second && first.fetch_add(1, Ordering::Relaxed) == 0 {
            // As a store does whose connection was cut: it has the length, and zeros.
            store.parts.lock().unwrap().insert(2, vec![0; request.body.len()]);
            opened.wait();
            sending.closes = true;
            return;
        }
        store.answer(request, sending);
    });
    let (here, bytes) = with_a_large_file();
    let mut running = Running::start(command(&origin.url(), here.path(), &IN_PARTS));
    until("three parts", || taken.parts.lock().unwrap().len() == 3);
    running.child.kill().unwrap();
    running.finish();
    gate.open();
    Running::start(command(&origin.url(), here.path(), &IN_PARTS)).finish().succeeded();
    assert!(taken.done.lock().unwrap().take() == Some(bytes));
    assert_eq!(taken.begun.load(Ordering::Relaxed), 1);
}

#[test]
fn a_connection_that_the_store_refuses_leaves_its_part_to_the_others() {
    let (taken, gate) = (Taken::default(), Gate::default());
    let store = taken.clone();
    let count = AtomicU32::new(0);
    let origin = Origin::new(move |request, sending| {
        if request.method == "PUT" {
            match count.fetch_add(1, Ordering::Relaxed) {
                // The first one is served until the other was refused.
                0 => gate.wait(),
                1 => {
                    let body = "<Error><Code>SlowDown</Code></Error>";
                    Taken::xml(sending, "503 Slow Down", body);
                    return gate.open();
                }
                _ => {}
            }
        }
        store.answer(request, sending);
    });
    let (here, bytes) = with_a_large_file();
    let args = [&IN_PARTS[..], &["--retries", "0"]].concat();
    Running::start(command(&origin.url(), here.path(), &args)).finish().succeeded();
    assert!(taken.done.lock().unwrap().take() == Some(bytes));
}

#[test]
fn an_upload_that_cannot_be_resumed_leaves_no_parts() {
    for (args, status) in [(&["--no-resume"][..], "403 No"), (&[], "400 No")] {
        let taken = Taken::default();
        let store = taken.clone();
        let origin = Origin::new(move |request, sending| {
            match Taken::query(request, "partNumber").as_deref() {
                Some("2") => {
                    let body = "<Error><Code>Odd</Code><Message>It is odd.</Message></Error>";
                    Taken::xml(sending, status, body);
                }
                _ => store.answer(request, sending),
            }
        });
        let here = folder();
        fs::write(here.path().join("file"), noise(20 << 20)).unwrap();
        let args = [&["put", "file", "s3://bucket/x"], args].concat();
        let finished = Running::start(command(&origin.url(), here.path(), &args)).finish();
        finished.failed(1, &["It is odd. (Odd)"]);
        assert!(origin.requests().iter().any(|request| request.method == "DELETE"));
        assert!(taken.parts.lock().unwrap().is_empty());
    }
}

#[test]
fn an_upload_whose_keys_have_expired_is_resumed_with_others() {
    for (status, code) in [
        ("400 Bad Request", "ExpiredToken"),
        ("400 Bad Request", "InvalidToken"),
        ("400 Bad Request", "RequestTimeout"),
        ("403 Forbidden", "AccessDenied"),
    ] {
        let taken = Taken::default();
        let (store, is_refusing) = (taken.clone(), Arc::new(AtomicU32::new(1)));
        let refuses = Arc::clone(&is_refusing);
        let origin = Origin::new(move |request, sending| {
            match Taken::query(request, "partNumber").as_deref() {
                Some("3") if refuses.load(Ordering::Relaxed) == 1 => {
                    let body = format!("<Error><Code>{code}</Code><Message>No.</Message></Error>");
                    Taken::xml(sending, status, &body);
                }
                _ => store.answer(request, sending),
            }
        });
        let (here, bytes) = with_a_large_file();
        let args = ["put", "file", "s3://bucket/x", "-j", "1", "--json", "--retries", "0"];
        let finished = Running::start(command(&origin.url(), here.path(), &args)).finish();
        finished.failed(1, &[&format!("({code})")]);
        assert!(!origin.requests().iter().any(|request| request.method == "DELETE"), "{code}");
        is_refusing.store(0, Ordering::Relaxed);
        let finished = Running::start(command(&origin.url(), here.path(), &args)).finish();
        assert_eq!(finished.succeeded().receipt()["resumed_at"], 32 << 20, "{code}");
        assert!(taken.done.lock().unwrap().take() == Some(bytes), "{code}");
        assert_eq!(taken.begun.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_failure_in_a_body_of_success_is_a_failure() {
    let taken = Taken::default();
    let (store, count) = (taken, AtomicU32::new(0));
    let origin = Origin::new(move |request, sending| {
        let is_last = request.method == "POST" && Taken::query(request, "uploadId").is_some();
        if is_last && count.fetch_add(1, Ordering::Relaxed) == 0 {
            let body = "<Error><Code>InternalError</Code><Message>Again.</Message></Error>";
            return Taken::xml(sending, "200 OK", body);
        }
        if is_last {
            let body = "<Error><Code>InvalidPart</Code><Message>A part is gone.</Message></Error>";
            return Taken::xml(sending, "200 OK", body);
        }
        store.answer(request, sending);
    });
    let here = folder();
    fs::write(here.path().join("file"), noise(20 << 20)).unwrap();
    let args = ["put", "file", "s3://bucket/x"];
    let finished = Running::start(command(&origin.url(), here.path(), &args)).finish();
    finished.failed(1, &["A part is gone. (InvalidPart)"]);
}

#[test]
fn a_success_without_a_result_is_believed_only_if_the_object_is_there() {
    for (body, is_there) in [("", false), ("<html>Welcome</html>", false), ("  \n<Err", true)] {
        let store = Taken::default();
        let origin = Origin::new(move |request, sending| match request.method.as_str() {
            "POST" if Taken::query(request, "uploadId").is_some() => {
                sending.closes = true;
                // It ends with the connection, as one that breaks off does.
                sending.head("HTTP/1.1 200 OK\nConnection: close");
                sending.body(body.as_bytes());
            }
            "HEAD" if is_there => sending.head(&format!(
                "HTTP/1.1 200 OK\nETag: \"x-2\"\nLast-Modified: {LATER}\nContent-Length: {}",
                20 << 20
            )),
            "HEAD" => sending.answer("HTTP/1.1 404 No", b""),
            "POST" => {
                let head = format!("HTTP/1.1 200 OK\nDate: {LATER}");
                sending.answer(&head, b"<R><UploadId>u/1&amp;</UploadId></R>");
            }
            _ => store.answer(request, sending),
        });
        let here = folder();
        fs::write(here.path().join("file"), noise(20 << 20)).unwrap();
        let args = ["put", "file", "s3://bucket/x"];
        let finished = Running::start(command(&origin.url(), here.path(), &args)).finish();
        if is_there {
            finished.succeeded()
        } else {
            finished.failed(1, &["does not say that it has put the parts together"])
        };
    }
}

/// A time at the store.
const LATER: &str = "Fri, 01 Jan 2100 00:00:00 GMT";

#[test]
fn a_target_that_appears_during_an_upload_is_left_alone() {
    let taken = Taken::default();
    let store = taken.clone();
    let origin = Origin::new(move |request, sending| {
        let is_last = request.method == "POST" && Taken::query(request, "uploadId").is_some();
        match request.method.as_str() {
            "HEAD" => sending.answer("HTTP/1.1 404 No", b""),
            _ if is_last => {
                assert_eq!(request.field("if-none-match"), Some("*"));
                let body = "<Error><Code>PreconditionFailed</Code></Error>";
                Taken::xml(sending, "412 No", body);
            }
            _ => store.answer(request, sending),
        }
    });
    let here = folder();
    fs::write(here.path().join("file"), noise(20 << 20)).unwrap();
    let args = ["put", "-n", "file", "s3://bucket/x", "--json"];
    let finished = Running::start(command(&origin.url(), here.path(), &args)).finish();
    assert_eq!(finished.succeeded().receipt()["was_there"], true);
    assert!(taken.parts.lock().unwrap().is_empty());
}

/// The tag of a part, as if it were empty, and that of two such parts.
const TAG: &str = "d41d8cd98f00b204e9800998ecf8427e";
const WHOLE_TAG: &str = "5873dd45edd01f09c1ef2e7819369e8e-2";

/// Uploads two parts to a store that answers a repeated request to put them together with this
/// status, and the first one too unless that answer is lost; it then has an object with this tag.
fn put_together(status: &'static str, is_lost: bool, tag: &'static str, more: &[&str]) -> Finished {
    let (store, count) = (Taken::default(), AtomicU32::new(0));
    let origin = Origin::new(move |request, sending| {
        let is_last = request.method == "POST" && Taken::query(request, "uploadId").is_some();
        match request.method.as_str() {
            "HEAD" if count.load(Ordering::Relaxed) == 0 => {
                sending.answer("HTTP/1.1 404 No", b"");
            }
            // The time is that at which the upload was begun.
            "HEAD" => sending.head(&format!(
                "HTTP/1.1 200 OK\nETag: \"{tag}\"\nContent-Length: {}\n\
                 Last-Modified: Sun, 01 Jan 2023 12:00:00 GMT",
                20 << 20
            )),
            "PUT" => sending.answer(&format!("HTTP/1.1 200 OK\nETag: \"{TAG}\""), b""),
            _ if is_last && count.fetch_add(1, Ordering::Relaxed) == 0 && is_lost => {
                sending.closes = true;
            }
            _ if is_last => Taken::xml(sending, status, "<Error><Code>Odd</Code></Error>"),
            _ => store.answer(request, sending),
        }
    });
    let here = folder();
    fs::write(here.path().join("file"), noise(20 << 20)).unwrap();
    let args = [&["put", "file", "s3://bucket/x", "--json"], more].concat();
    Running::start(command(&origin.url(), here.path(), &args)).finish()
}

#[test]
fn the_own_object_is_recognized_after_a_lost_response() {
    for (status, more) in [("404 No", &[][..]), ("412 No", &["-n"])] {
        let receipt = put_together(status, true, WHOLE_TAG, more).succeeded().receipt();
        assert_ne!(receipt["was_there"], true, "{status}");
    }
    let receipt = put_together("412 No", true, "of-another-2", &["-n"]).succeeded().receipt();
    assert_eq!(receipt["was_there"], true);
    put_together("404 No", true, "of-another-2", &[]).failed(1, &["404"]);
    // Nothing was lost, so it cannot be ours.
    put_together("404 No", false, WHOLE_TAG, &[]).failed(1, &["404"]);
}

#[test]
fn parts_that_the_store_does_not_remove_are_reported() {
    let here = folder();
    fs::write(here.path().join("file"), noise(20 << 20)).unwrap();
    for (status, is_told) in [("204 Gone", false), ("404 No", false), ("403 No", true)] {
        let taken = Taken::default();
        let origin = Origin::new(move |request, sending| match request.method.as_str() {
            "DELETE" => sending.answer(&format!("HTTP/1.1 {status}"), b""),
            "PUT" => Taken::xml(sending, "400 No", "<Error><Code>EntityTooLarge</Code></Error>"),
            _ => taken.answer(request, sending),
        });
        for more in [&[][..], &["-q"]] {
            let args = [&["put", "file", "s3://bucket/x"], more].concat();
            let finished = Running::start(command(&origin.url(), here.path(), &args)).finish();
            let is_there = finished.stderr.contains("still has parts of the upload u/1&");
            assert_eq!(is_there, is_told, "{status}: {}", finished.stderr);
            finished.failed(1, &["EntityTooLarge"]);
        }
    }
}

#[test]
fn a_target_without_an_entity_tag_is_not_replaced() {
    let origin = Origin::new(|_, sending| sending.answer("HTTP/1.1 200 OK", b""));
    let (here, _) = with_a_large_file();
    fs::write(here.path().join("small"), "small").unwrap();
    for name in ["file", "small"] {
        let args = ["put", name, "s3://bucket/x", "--if-match", "\"t\""];
        let finished = Running::start(command(&origin.url(), here.path(), &args)).finish();
        finished.failed(1, &["no entity tag"]);
    }
    assert!(origin.requests().iter().all(|request| request.method == "HEAD"));
}

#[test]
fn another_server_gets_no_signature_after_a_redirect() {
    let other = Origin::new(|_, sending| sending.answer("HTTP/1.1 404 Not Found", b""));
    let redirect = format!("HTTP/1.1 307 Elsewhere\nLocation: {}x", other.url());
    let store = Origin::new(move |request, sending| match request.method.as_str() {
        "HEAD" => sending.answer("HTTP/1.1 404 Not Found", b""),
        _ => sending.answer(&redirect, b""),
    });
    let here = folder();
    fs::write(here.path().join("small"), "small").unwrap();
    let args = ["put", "-n", "small", "s3://bucket/x"];
    Running::start(command(&store.url(), here.path(), &args)).finish().failed(1, &["404"]);
    for (server, is_signed) in [(&store, true), (&other, false)] {
        let requests = server.requests();
        assert_eq!(requests.len(), 2, "{requests:?}");
        let signed = |request: &Request| request.field("authorization").is_some();
        assert!(requests.iter().all(|request| signed(request) == is_signed), "{requests:?}");
    }
}
