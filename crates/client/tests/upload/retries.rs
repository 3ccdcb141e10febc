//! Uploads that are retried, and those that are not.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use underpass_client::{HttpClient, Request};
use underpass_engine::hint::Hinted;

use super::rig::{Conn, Sample, Scripted, field, noise, put, script};

const LEN: usize = 4 << 20;

#[test]
fn a_connection_that_breaks_is_replaced_and_everything_sent_anew() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let server = Scripted::new(vec![
        script(|mut conn| {
            conn.head_and_body(LEN / 2);
            conn.answer("503 Service Unavailable", &["Retry-After: 0", "Connection: close"]);
        }),
        script(|mut conn| {
            conn.head_and_body(LEN / 2);
            conn.reset();
        }),
        script(move |mut conn| {
            conn.head();
            conn.say_continue();
            conn.accept(&expected);
        }),
    ]);
    let outcome = sample.put(&server.url("/file"));
    assert_eq!(outcome.events.len(), 2, "{:?}", outcome.events);
    assert!(outcome.events.iter().all(|event| event.starts_with("again (false)")));
    outcome.done();
}

#[test]
fn a_proxy_that_fails_because_of_104_gets_the_next_attempt_without_resumption() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let server = Scripted::new(vec![
        script(|mut conn| {
            conn.head();
            conn.answer("204 No Content", &["Upload-Limit: min-size=0"]);
            let head = conn.head();
            assert_eq!(field(&head, "upload-complete"), Some("?1"));
            // It would have to pass 104 on before it invites the body.
            conn.answer("417 Expectation Failed", &["Connection: close"]);
        }),
        script(|mut conn| {
            let head = conn.head();
            assert_eq!(field(&head, "upload-complete"), Some("?1"));
            conn.take(LEN);
            conn.answer("503 Backend fetch failed", &["Retry-After: 0", "Connection: close"]);
        }),
        script(move |mut conn| {
            let head = conn.head();
            assert!(head.starts_with("PUT /file HTTP/1.1"), "{head}");
            assert_eq!(field(&head, "upload-complete"), None);
            conn.say_continue();
            conn.accept(&expected);
        }),
    ]);
    assert!(!sample.put_resumably(&server.url("/file")).done().is_resumable);
}

#[test]
fn a_proxy_that_invites_the_body_before_104_gets_it_without_resumption() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let server = Scripted::new(vec![
        script(|mut conn| {
            conn.head();
            conn.answer("204 No Content", &["Upload-Limit: min-size=0"]);
            let head = conn.head();
            assert_eq!(field(&head, "upload-complete"), Some("?1"));
            // As nginx, which then takes the 104 of the server for its response.
            conn.say_continue();
            assert!(conn.rest().0.is_empty(), "sent in vain");
        }),
        script(move |mut conn| {
            let head = conn.head();
            assert!(head.starts_with("PUT /file HTTP/1.1"), "{head}");
            assert_eq!(field(&head, "upload-complete"), None);
            conn.say_continue();
            conn.accept(&expected);
        }),
    ]);
    let outcome = sample.put_resumably(&server.url("/file"));
    assert_eq!(outcome.events, [""; 0]);
    assert!(!outcome.done().is_resumable && !sample.journal().exists());
}

#[test]
fn a_proxy_that_never_answers_because_of_104_gets_the_next_attempt_without_resumption() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let server = Scripted::new(vec![
        script(|mut conn| {
            conn.head();
            conn.answer("204 No Content", &["Upload-Limit: min-size=0"]);
            conn.head();
            conn.answer("417 Expectation Failed", &["Connection: close"]);
        }),
        script(|mut conn| {
            let head = conn.head();
            assert_eq!(field(&head, "upload-complete"), Some("?1"));
            conn.take(LEN);
            conn.wait_for_the_end();
        }),
        script(move |mut conn| {
            let head = conn.head();
            assert_eq!(field(&head, "upload-complete"), None);
            conn.accept(&expected);
        }),
    ]);
    let journal = sample.journal();
    let outcome = sample.put_with(&server.url("/file"), |options| {
        options.journal = Some(journal);
        options.timeout = Duration::from_millis(300);
    });
    assert!(outcome.events[0].contains("time limit"), "{:?}", outcome.events);
    assert!(!outcome.done().is_resumable && !sample.journal().exists());
}

#[test]
fn an_upload_that_the_server_has_dropped_begins_again_with_resumption() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let named = "HTTP/1.1 104 Upload\r\nLocation: /file?upload=7\r\n\r\n";
    let server = Scripted::new(vec![
        script(move |mut conn| {
            conn.head();
            conn.answer("204 No Content", &["Upload-Limit: min-size=0"]);
            conn.head();
            conn.say(named);
            conn.say_continue();
            conn.take(LEN / 2);
        }),
        script(|mut conn| {
            assert!(conn.head().starts_with("HEAD /file?upload=7 "));
            conn.answer("404 Not Found", &["Content-Length: 0"]);
            assert!(conn.head().starts_with("HEAD /file "));
            conn.answer("404 Not Found", &["Content-Length: 0", "Connection: close"]);
        }),
        script(|mut conn| {
            assert_eq!(field(&conn.head(), "upload-complete"), Some("?1"));
            conn.take(LEN / 2);
        }),
        script(move |mut conn| {
            // The server has shown that 104 arrives: a failure is none of a proxy.
            assert_eq!(field(&conn.head(), "upload-complete"), Some("?1"));
            conn.say(named);
            conn.say_continue();
            conn.accept(&expected);
        }),
    ]);
    sample.put_resumably(&server.url("/file")).done();
}

#[test]
fn a_server_that_reads_too_slowly_is_given_up() {
    let sample = Sample::of(64 << 20);
    let server = Scripted::one(|mut conn| {
        conn.head();
        conn.say_continue();
        while conn.try_take(64 << 10) {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let outcome = sample.put_with(&server.url("/file"), |options| {
        options.timeout = Duration::from_secs(1);
        (options.min_rate, options.retries) = (1 << 30, 0);
    });
    let failed = outcome.failed();
    assert!(failed.error.to_string().contains("too little progress"), "{failed}");
    assert_eq!(failed.hint().unwrap().to_string(), "set a longer limit with --timeout");
}

#[test]
fn a_proxy_that_blocks_options_prevents_no_upload() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let server = Scripted::new(vec![
        script(reset_options),
        script(reset_options),
        script(move |mut conn| {
            let head = conn.head();
            assert!(head.starts_with("PUT /file HTTP/1.1"), "{head}");
            assert_eq!(field(&head, "upload-complete"), None);
            conn.say_continue();
            conn.accept(&expected);
        }),
    ]);
    assert!(!sample.put_resumably(&server.url("/file")).done().is_resumable);
}

#[test]
fn a_question_that_breaks_off_once_is_asked_again() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let server = Scripted::new(vec![
        script(reset_options),
        script(move |mut conn| {
            assert!(conn.head().starts_with("OPTIONS /file "));
            conn.answer("204 No Content", &["Upload-Limit: min-size=0"]);
            let head = conn.head();
            assert_eq!(field(&head, "upload-complete"), Some("?1"));
            conn.say("HTTP/1.1 104 Upload\r\nLocation: /file?upload=7\r\n\r\n");
            conn.say_continue();
            conn.accept(&expected);
        }),
    ]);
    assert!(sample.put_resumably(&server.url("/file")).done().is_resumable);
}

fn reset_options(mut conn: Conn) {
    assert!(conn.head().starts_with("OPTIONS /file "));
    conn.reset();
}

#[test]
fn an_upload_is_given_up_after_the_last_retry() {
    let sample = Sample::of(10);
    let busy = || {
        script(|mut conn| {
            conn.head();
            conn.take(10);
            conn.refuse("503 Service Unavailable", "come back later\n");
        })
    };
    let server = Scripted::new(vec![busy(), busy(), busy()]);
    let outcome = sample.put(&server.url("/file"));
    assert_eq!(outcome.events.len(), 2);
    assert_eq!(outcome.refused().0, 503);
}

#[test]
fn a_long_retry_after_ends_the_upload() {
    let sample = Sample::of(10);
    let server = Scripted::one(|mut conn| {
        conn.head();
        conn.take(10);
        conn.answer("503 Service Unavailable", &["Retry-After: 3600"]);
    });
    let outcome = sample.put(&server.url("/file"));
    assert!(outcome.events.is_empty());
    assert_eq!(outcome.refused().0, 503);
}

#[test]
fn a_refused_connection_is_reported_at_once() {
    let sample = Sample::of(10);
    let server = Scripted::new(Vec::new());
    let url = server.url("/");
    drop(server);
    let outcome = sample.put(&url);
    assert!(outcome.events.is_empty(), "{:?}", outcome.events);
    assert!(outcome.failed().error.to_string().contains("connecting to"));
}

#[test]
fn a_stream_that_was_begun_is_not_sent_again() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let server = Scripted::one(|mut conn| {
        conn.head_and_body(100);
        conn.reset();
    });
    let feeder = std::thread::spawn(move || {
        // The reader may disconnect at any moment.
        let _ = writer.write_all(&noise(LEN));
    });
    let file = File::from(std::os::fd::OwnedFd::from(reader));
    let outcome = put(&file, &server.url("/stream"), |_| {});
    assert!(outcome.events.is_empty(), "{:?}", outcome.events);
    assert!(outcome.failed().error.is_temporary());
    drop(file);
    feeder.join().unwrap();
}

#[test]
fn a_server_that_takes_nothing_is_given_up() {
    let sample = Sample::of(64 << 20);
    let server = Scripted::one(|mut conn| {
        conn.head();
        conn.say_continue();
        // As long as the client stays.
        conn.wait_for_the_end();
    });
    let outcome = sample.put_with(&server.url("/file"), |options| {
        options.timeout = Duration::from_millis(300);
        options.retries = 0;
    });
    let failed = outcome.failed();
    assert!(failed.error.to_string().contains("too little progress"), "{failed}");
    assert_eq!(failed.hint().unwrap().to_string(), "set a longer limit with --timeout");
}

#[test]
fn a_slow_server_is_not_a_stalled_one() {
    let sample = Sample::of(8 << 20);
    let expected = sample.bytes.clone();
    let server = Scripted::one(move |mut conn| {
        conn.head();
        conn.say_continue();
        let mut body = Vec::new();
        while body.len() < expected.len() {
            std::thread::sleep(Duration::from_millis(50));
            body.extend(conn.take((1 << 18).min(expected.len() - body.len())));
        }
        assert!(body == expected);
        conn.answer("201 Created", &[]);
    });
    let outcome = sample.put_with(&server.url("/file"), |it| {
        it.timeout = Duration::from_secs(1);
        it.retries = 0;
    });
    outcome.done();
}

#[test]
fn a_stream_cannot_be_sent_to_another_address_once_begun() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let server = Scripted::one(|mut conn| {
        conn.head();
        conn.say_continue();
        conn.chunks();
        conn.answer("307 Temporary Redirect", &["Location: /there"]);
    });
    writer.write_all(b"once").unwrap();
    drop(writer);
    let file = File::from(std::os::fd::OwnedFd::from(reader));
    let error = put(&file, &server.url("/stream"), |_| {}).failed().error;
    assert!(error.to_string().contains("only once"), "{error}");
}

/// It may have been carried out before the connection broke: the caller decides on a retry.
#[test]
fn a_request_that_must_not_be_repeated_has_a_connection_of_its_own() {
    let server = Scripted::new(vec![
        script(|mut conn| {
            assert!(conn.head().starts_with("HEAD /file "));
            conn.answer("200 OK", &[]);
            let (rest, _) = conn.rest();
            assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
        }),
        script(|mut conn| {
            assert!(conn.head().starts_with("POST /file "));
            assert_eq!(conn.take(4), b"body");
        }),
    ]);
    let (client, url) = (HttpClient::default(), server.url("/file"));
    let request = |method| Request { method, fields: &[] };
    let answer = client.execute(None, &request("HEAD"), &url).unwrap();
    let idle = answer.connection.finish(&answer.response);
    assert!(idle.is_some());
    assert!(client.send(idle, &request("POST"), &url, b"body").is_err());
}
