//! Uploads resume after interruptions, in the same process and in another one, and never mix two
//! versions of a file.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::rig::{Conn, Sample, Scripted, field, payload, script};
use underpass_client::upload::{Condition, ConditionError, UnconfirmedUpload, UploadError};

const LEN: usize = 4 << 20;
const HALF: usize = LEN / 2;

/// Answers the request whether uploads can be resumed.
fn can_resume(conn: &mut Conn) {
    let head = conn.head();
    assert!(head.starts_with("OPTIONS /file HTTP/1.1"), "{head}");
    conn.answer("204 No Content", &["Upload-Limit: min-size=0"]);
}

/// Receives the beginning of a body, and names the URL at which it can be resumed.
fn begin(conn: &mut Conn) -> Vec<u8> {
    let head = conn.head();
    assert!(head.starts_with("PUT /file HTTP/1.1"), "{head}");
    assert_eq!(field(&head, "upload-complete"), Some("?1"));
    assert_eq!(field(&head, "upload-length"), Some(LEN.to_string().as_str()));
    assert_eq!(field(&head, "expect"), Some("100-continue"));
    conn.say("HTTP/1.1 104 Upload Resumption Supported\r\nLocation: /file?upload=7\r\n\r\n");
    conn.say_continue();
    conn.take(HALF)
}

/// Reports the offset.
fn offset(conn: &mut Conn, offset: usize) {
    let head = conn.head();
    assert!(head.starts_with("HEAD /file?upload=7 HTTP/1.1"), "{head}");
    let offset = format!("Upload-Offset: {offset}");
    conn.say(&format!("HTTP/1.1 204 No Content\r\n{offset}\r\nUpload-Complete: ?0\r\n\r\n"));
}

/// Receives the rest.
fn append(conn: &mut Conn, offset: usize) -> Vec<u8> {
    let head = conn.head();
    assert!(head.starts_with("PATCH /file?upload=7 HTTP/1.1"), "{head}");
    assert_eq!(field(&head, "content-type"), Some("application/partial-upload"));
    assert_eq!(field(&head, "upload-offset"), Some(offset.to_string().as_str()));
    assert_eq!(field(&head, "upload-complete"), Some("?1"));
    assert_eq!(field(&head, "content-length"), Some((LEN - offset).to_string().as_str()));
    if field(&head, "expect").is_some() {
        conn.say_continue();
    }
    conn.take(LEN - offset)
}

fn done(conn: &mut Conn) {
    conn.answer("201 Created", &["Upload-Complete: ?1"]);
}

#[test]
fn a_broken_upload_goes_on_in_the_same_process() {
    let sample = Sample::of(LEN);
    let (expected, journal) = (sample.bytes.clone(), sample.journal());
    let server = Scripted::new(vec![
        script(move |mut conn| {
            can_resume(&mut conn);
            begin(&mut conn);
            let text = fs::read_to_string(&journal).unwrap();
            assert!(text.contains("upload=7"), "written before the first byte: {text}");
            conn.reset();
        }),
        script(move |mut conn| {
            offset(&mut conn, HALF - 7);
            assert!(append(&mut conn, HALF - 7) == expected[HALF - 7..]);
            done(&mut conn);
        }),
    ]);
    let outcome = sample.put_resumably(&server.url("/file"));
    assert!(outcome.events[0].starts_with("again (true)"), "{:?}", outcome.events);
    assert_eq!(outcome.events[1..], [format!("resumed at {}", HALF - 7)]);
    let done = outcome.done();
    assert!(done.is_resumable);
    assert_eq!(done.resumed_at, 0, "this process has sent all of it");
    assert!(!sample.journal().exists(), "the journal is left");
}

#[test]
fn a_broken_upload_goes_on_in_another_process() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let server = Scripted::new(vec![
        script(|mut conn| {
            can_resume(&mut conn);
            begin(&mut conn);
            conn.reset();
        }),
        script(move |mut conn| {
            offset(&mut conn, HALF);
            assert!(append(&mut conn, HALF) == expected[HALF..]);
            done(&mut conn);
        }),
    ]);
    let url = server.url("/file");
    let journal = sample.journal();
    let failed = sample
        .put_with(&url, |options| {
            options.journal = Some(journal);
            options.retries = 0;
        })
        .failed();
    assert!(failed.is_kept && sample.journal().exists());
    let done = sample.put_resumably(&url).done();
    assert_eq!(done.resumed_at, HALF as u64);
    assert_eq!(payload(&done.report), HALF as u64);
    assert!(!sample.journal().exists());
}

/// Leaves an interrupted upload; `next` has the scripts of later connections.
fn broken(sample: &Sample, next: Vec<Box<dyn FnOnce(Conn) + Send>>) -> Scripted {
    let mut scripts = vec![script(|mut conn| {
        can_resume(&mut conn);
        begin(&mut conn);
        conn.reset();
    })];
    scripts.extend(next);
    let server = Scripted::new(scripts);
    let journal = sample.journal();
    let outcome = sample.put_with(&server.url("/file"), |options| {
        options.journal = Some(journal);
        options.retries = 0;
    });
    assert!(outcome.failed().is_kept);
    server
}

#[test]
fn a_changed_file_is_sent_from_the_start_and_the_old_upload_cancelled() {
    let sample = Sample::of(LEN);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let body = Arc::clone(&seen);
    let server = broken(
        &sample,
        vec![script(move |mut conn| {
            let head = conn.head();
            assert!(head.starts_with("DELETE /file?upload=7 HTTP/1.1"), "{head}");
            conn.answer("204 No Content", &[]);
            // The journal tells that the server can resume uploads.
            body.lock().unwrap().extend(begin(&mut conn));
            body.lock().unwrap().extend(conn.take(LEN - HALF));
            done(&mut conn);
        })],
    );
    let other: Vec<u8> = sample.bytes.iter().map(|byte| !byte).collect();
    fs::write(sample.path(), &other).unwrap();
    let outcome = sample.put_resumably(&server.url("/file"));
    assert_eq!(outcome.events, ["started over: the file has changed since"]);
    assert_eq!(outcome.done().resumed_at, 0);
    assert!(*seen.lock().unwrap() == other);
    assert!(!sample.journal().exists());
}

#[test]
fn a_file_changed_just_before_a_power_cut_is_sent_from_the_start() {
    let sample = Sample::of(LEN);
    let server = broken(
        &sample,
        vec![script(move |mut conn| {
            let head = conn.head();
            assert!(head.starts_with("DELETE /file?upload=7 HTTP/1.1"), "{head}");
            conn.answer("204 No Content", &[]);
            begin(&mut conn);
            conn.take(LEN - HALF);
            done(&mut conn);
        })],
    );
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = fs::read_to_string(sample.journal()).unwrap();
    let other = text.replace(boot.trim(), "another");
    assert_ne!(text, other);
    fs::write(sample.journal(), other).unwrap();
    let outcome = sample.put_resumably(&server.url("/file"));
    assert_eq!(outcome.events, ["started over: the file has changed since"]);
    assert_eq!(outcome.done().resumed_at, 0);
}

#[test]
fn an_upload_that_the_server_has_forgotten_begins_anew() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let server = broken(
        &sample,
        vec![script(move |mut conn| {
            assert!(conn.head().starts_with("HEAD /file?upload=7 "));
            conn.answer("404 Not Found", &[]);
            // The upload may be complete; but this is another file of the same size.
            let head = conn.head();
            assert!(head.starts_with("HEAD /file HTTP/1.1"), "{head}");
            assert!(field(&head, "want-repr-digest").unwrap().starts_with("sha-256"));
            let zeros = "A".repeat(43);
            let digest = format!("Repr-Digest: sha-256=:{zeros}=:");
            conn.say(&format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n{digest}\r\n\r\n"));
            let begun = begin(&mut conn);
            assert!([begun, conn.take(LEN - HALF)].concat() == expected);
            done(&mut conn);
        })],
    );
    let outcome = sample.put_resumably(&server.url("/file"));
    assert_eq!(outcome.events, ["started over: the server no longer knows the upload"]);
    outcome.done();
}

#[test]
fn bytes_that_the_server_forgets_do_not_count_as_resumed() {
    let sample = Sample::of(LEN);
    let server = broken(
        &sample,
        vec![
            script(|mut conn| {
                offset(&mut conn, LEN);
                assert!(append(&mut conn, LEN).is_empty());
                conn.answer("404 Not Found", &["Connection: close"]);
            }),
            script(|mut conn| {
                begin(&mut conn);
                conn.take(LEN - HALF);
                done(&mut conn);
            }),
        ],
    );
    assert_eq!(sample.put_resumably(&server.url("/file")).done().resumed_at, 0);
}

#[test]
fn a_short_response_is_requested_again() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let server = broken(
        &sample,
        vec![
            script(move |mut conn| {
                offset(&mut conn, HALF);
                assert!(conn.head().starts_with("PATCH "));
                let offset = format!("Upload-Offset: {}", HALF - 1);
                conn.answer("409 Conflict", &[&offset, "Connection: close"]);
            }),
            script(move |mut conn| {
                offset(&mut conn, HALF - 1);
                assert!(append(&mut conn, HALF - 1) == expected[HALF - 1..]);
                done(&mut conn);
            }),
        ],
    );
    sample.put_resumably(&server.url("/file")).done();
}

#[test]
fn a_page_in_response_to_patch_does_not_end_the_upload() {
    let sample = Sample::of(LEN);
    let server = broken(
        &sample,
        vec![
            script(|mut conn| {
                offset(&mut conn, HALF);
                append(&mut conn, HALF);
                // Such as a login page.
                conn.answer("200 OK", &["Content-Type: text/html"]);
                let head = conn.head();
                assert!(head.starts_with("HEAD /file HTTP/1.1"), "{head}");
                conn.answer("404 Not Found", &["Connection: close"]);
            }),
            script(|mut conn| {
                offset(&mut conn, HALF);
                append(&mut conn, HALF);
                done(&mut conn);
            }),
        ],
    );
    let failed = sample.put_resumably(&server.url("/file")).failed();
    assert!(
        matches!(failed.error, UploadError::Unconfirmed(UnconfirmedUpload::NotStored)),
        "{failed}"
    );
    assert!(failed.is_kept && sample.journal().exists());
    assert_eq!(sample.put_resumably(&server.url("/file")).done().resumed_at, HALF as u64);
}

#[test]
fn an_upload_whose_bytes_are_all_there_sends_none() {
    let sample = Sample::of(LEN);
    let server = broken(
        &sample,
        vec![script(|mut conn| {
            offset(&mut conn, LEN);
            assert!(append(&mut conn, LEN).is_empty());
            done(&mut conn);
        })],
    );
    let done = sample.put_resumably(&server.url("/file")).done();
    assert_eq!((done.resumed_at, payload(&done.report)), (LEN as u64, 0));
}

#[test]
fn two_at_once_do_not_work_on_the_same_upload() {
    let sample = Sample::of(LEN);
    let server = broken(&sample, Vec::new());
    let url = server.url("/file");
    let lock = fs::File::open(sample.journal()).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let error = sample.put_resumably(&url).failed().error;
    assert!(matches!(error, UploadError::UnderWay), "{error}");
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_cancelled_on_the_server() {
    let sample = Sample::of(LEN * 4);
    let server = Scripted::new(vec![
        script(|mut conn| {
            can_resume(&mut conn);
            conn.head();
            conn.say("HTTP/1.1 104 x\r\nLocation: /file?upload=7\r\n\r\n");
            conn.say_continue();
            conn.rest();
        }),
        script(|mut conn| {
            assert!(conn.head().starts_with("DELETE /file?upload=7 "));
            conn.answer("204 No Content", &[]);
        }),
    ]);
    let (path, journal) = (sample.path(), sample.journal());
    let mut written = false;
    let failed = sample
        .put_with(&server.url("/file"), |options| {
            options.journal = Some(journal);
            options.watch = Box::new(move |_| {
                if !std::mem::replace(&mut written, true) {
                    use std::os::unix::fs::FileExt;
                    let file = fs::File::options().write(true).open(&path).unwrap();
                    file.write_all_at(b"new", 5).unwrap();
                }
            });
        })
        .failed();
    assert!(matches!(failed.error, UploadError::Source(_)), "{}", failed.error);
    assert!(!failed.is_kept && !sample.journal().exists());
}

#[test]
fn a_server_that_cannot_resume_gets_no_resumption_request() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let server = Scripted::one(move |mut conn| {
        assert!(conn.head().starts_with("OPTIONS "));
        conn.answer("405 Method Not Allowed", &[]);
        let head = conn.head();
        assert!(head.starts_with("PUT "), "{head}");
        assert_eq!(field(&head, "upload-complete"), None);
        conn.say_continue();
        conn.accept(&expected);
    });
    let done = sample.put_resumably(&server.url("/file")).done();
    assert!(!done.is_resumable && !sample.journal().exists());
}

#[test]
fn passwords_are_not_written_down() {
    let sample = Sample::of(LEN);
    let journal = sample.journal();
    let server = Scripted::one(move |mut conn| {
        can_resume(&mut conn);
        begin(&mut conn);
        let text = fs::read_to_string(&journal).unwrap();
        assert!(!text.contains("secret") && !text.contains("name"), "{text}");
        conn.reset();
    });
    let mut url = server.url("/file");
    url.set_username("name").unwrap();
    url.set_password(Some("secret")).unwrap();
    let journal = sample.journal();
    let outcome = sample.put_with(&url, |options| {
        options.journal = Some(journal);
        options.retries = 0;
    });
    assert!(outcome.failed().is_kept);
}

#[test]
fn an_upload_that_never_gets_any_further_is_given_up() {
    let sample = Sample::of(LEN);
    let stuck = || {
        script(|mut conn: Conn| {
            offset(&mut conn, 2 << 10);
            assert!(conn.head().starts_with("PATCH "));
            conn.say_continue();
            conn.take(1000);
            conn.reset();
        })
    };
    let begun = script(|mut conn| {
        can_resume(&mut conn);
        begin(&mut conn);
        conn.reset();
    });
    // The first of them makes progress, and two failures are allowed.
    let server = Scripted::new(vec![begun, stuck(), stuck(), stuck()]);
    let failed = sample.put_resumably(&server.url("/file")).failed();
    assert!(failed.error.is_temporary() && failed.is_kept, "{}", failed.error);
}

/// Reports the entity tag of the target.
fn target(conn: &mut Conn, tag: &str) {
    let head = conn.head();
    assert!(head.starts_with("HEAD /file HTTP/1.1"), "{head}");
    conn.answer("200 OK", &[&format!("ETag: {tag}")]);
}

#[test]
fn a_condition_is_checked_again_before_the_rest_is_sent() {
    for (retries, tag) in [(0, "\"other\""), (0, "\"old\""), (1, "\"other\"")] {
        let sample = Sample::of(LEN);
        let server = Scripted::new(vec![
            script(|mut conn| {
                target(&mut conn, "\"old\"");
                can_resume(&mut conn);
                begin(&mut conn);
                conn.reset();
            }),
            script(move |mut conn| {
                offset(&mut conn, HALF);
                target(&mut conn, tag);
                if tag == "\"old\"" {
                    append(&mut conn, HALF);
                    done(&mut conn);
                }
                let (rest, _) = conn.rest();
                assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
            }),
        ]);
        let put = || {
            let journal = sample.journal();
            sample.put_with(&server.url("/file"), |options| {
                options.journal = Some(journal);
                options.condition = Condition::Version("\"old\"");
                options.retries = retries;
            })
        };
        let first = put();
        // In another process, or in the same one.
        let last = if retries == 0 { put() } else { first };
        if tag == "\"old\"" {
            last.done();
        } else {
            let error = last.failed().error;
            assert!(
                matches!(error, UploadError::Condition(ConditionError::Precondition { .. })),
                "{error}"
            );
        }
    }
}

#[test]
fn an_announced_body_that_never_arrives_causes_no_wait() {
    let server = Scripted::new(vec![
        script(|mut conn| {
            assert!(conn.head().starts_with("OPTIONS /file "));
            conn.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            assert!(conn.rest().1, "the client waits");
        }),
        script(|mut conn| {
            assert!(conn.head().starts_with("PUT /file "));
            conn.say_continue();
            conn.take(LEN);
            conn.answer("201 Created", &[]);
        }),
    ]);
    let sample = Sample::of(LEN);
    let journal = sample.journal();
    let put = sample.put_with(&server.url("/file"), |options| {
        options.journal = Some(journal);
        options.timeout = Duration::from_secs(600);
    });
    put.done();
}

#[test]
fn a_server_that_claims_to_have_more_than_was_sent_is_not_believed() {
    let sample = Sample::of(32 << 20);
    let server = Scripted::new(vec![
        script(|mut conn| {
            can_resume(&mut conn);
            assert!(conn.head().starts_with("PUT /file "));
            conn.say("HTTP/1.1 104 Upload\r\nLocation: /file?upload=7\r\n\r\n");
            conn.say_continue();
            conn.take(1);
            conn.reset();
        }),
        script(|mut conn| offset(&mut conn, (32 << 20) - 10)),
        script(|mut conn| {
            assert!(conn.head().starts_with("DELETE /file?upload=7 "));
            conn.answer("204 No Content", &[]);
            assert!(conn.head().starts_with("PUT /file "));
            conn.say_continue();
            conn.take(32 << 20);
            done(&mut conn);
        }),
    ]);
    sample.put_resumably(&server.url("/file")).done();
}
