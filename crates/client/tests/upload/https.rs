//! The same promises over TLS.

use std::fs::File;
use std::io::Write;

use underpass_client::Url;
use underpass_client::upload::UploadError;
use underpass_transport::tls::{EncryptedBy, KernelTlsObstacle};

use super::front::Front;
use super::rig::{Sample, Scripted, field, payload, put, script};

const LEN: usize = 32 << 20;

/// Returns a TLS front of a scripted server, and a URL on it.
fn front(server: &Scripted) -> (Front, Url) {
    let front = Front::of(server.address.parse().unwrap());
    let url = Url::parse(&format!("https://localhost:{}/file", front.address.port())).unwrap();
    (front, url)
}

#[test]
fn a_file_arrives_whole_and_the_receipt_says_how() {
    let sample = Sample::of(LEN);
    let expected = sample.bytes.clone();
    let server = Scripted::one(move |mut conn| {
        let head = conn.head();
        assert_eq!(field(&head, "expect"), Some("100-continue"));
        assert!(field(&head, "host").unwrap().starts_with("localhost:"), "{head}");
        conn.say_continue();
        conn.accept(&expected);
    });
    let (front, url) = front(&server);
    let done = sample.put_with(&url, |it| it.tls = front.trusted()).done();
    assert_eq!((done.status, payload(&done.report)), (201, LEN as u64));
    assert!(done.report.user_space_bytes() >= 2 * LEN as u64);
    assert_eq!(done.tls.unwrap().encrypted_by, EncryptedBy::UserSpace(KernelTlsObstacle::Unwanted));
}

#[test]
fn a_stream_goes_in_chunks() {
    let (read, mut write) = std::io::pipe().unwrap();
    let bytes = super::rig::noise(300_000);
    let expected = bytes.clone();
    let server = Scripted::one(move |mut conn| {
        conn.head();
        conn.say_continue();
        assert!(conn.chunks() == expected);
        conn.answer("201 Created", &[]);
    });
    let (front, url) = front(&server);
    let feeder = std::thread::spawn(move || {
        for piece in bytes.chunks(7_001) {
            write.write_all(piece).unwrap();
        }
    });
    let source = File::from(std::os::fd::OwnedFd::from(read));
    put(&source, &url, |it| it.tls = front.trusted()).done();
    feeder.join().unwrap();
}

#[test]
fn a_refusal_during_an_upload_is_read() {
    let sample = Sample::of(LEN);
    let server = Scripted::one(|mut conn| {
        conn.head_and_body(1 << 20);
        conn.say("HTTP/1.1 102 Processing\r\n\r\n");
        conn.take(1 << 20);
        conn.refuse("413 Content Too Large", "no more than two megabytes\n");
        // If the client went on sending, it would fill the buffers and this would wait forever.
        let (rest, _) = conn.rest();
        assert!(rest.len() < LEN - (2 << 20), "everything was sent in vain");
    });
    let (front, url) = front(&server);
    let outcome = sample.put_with(&url, |it| it.tls = front.trusted());
    let (status, text) = outcome.refused();
    assert_eq!(status, 413);
    assert!(text.contains("no more than two megabytes"), "{text}");
}

#[test]
fn an_upload_continues_after_a_lost_connection() {
    let sample = Sample::of(4 << 20);
    let (expected, half) = (sample.bytes.clone(), 2 << 20);
    let server = Scripted::new(vec![
        script(move |mut conn| {
            assert!(conn.head().starts_with("OPTIONS "));
            conn.answer("204 No Content", &["Upload-Limit: min-size=0"]);
            assert!(conn.head().starts_with("PUT "));
            conn.say("HTTP/1.1 104 x\r\nLocation: /file?upload=7\r\n\r\n");
            conn.say_continue();
            conn.take(half);
            conn.reset();
        }),
        script(move |mut conn| {
            assert!(conn.head().starts_with("HEAD /file?upload=7 "));
            let offset = format!("Upload-Offset: {half}");
            conn.say(&format!("HTTP/1.1 204 x\r\n{offset}\r\nUpload-Complete: ?0\r\n\r\n"));
            assert!(conn.head().starts_with("PATCH /file?upload=7 "));
            conn.say_continue();
            assert!(conn.take(expected.len() - half) == expected[half..]);
            conn.answer("201 Created", &["Upload-Complete: ?1"]);
        }),
    ]);
    let (front, url) = front(&server);
    let journal = sample.journal();
    let outcome = sample.put_with(&url, |it| {
        it.tls = front.trusted();
        it.journal = Some(journal);
    });
    assert!(outcome.events[0].starts_with("again (true)"), "{:?}", outcome.events);
    assert_eq!(outcome.events[1..], [format!("resumed at {half}")]);
    assert!(outcome.done().is_resumable);
    assert_eq!((front.connections(), front.resumed()), (2, 1));
}

#[test]
fn an_untrusted_server_gets_no_bytes() {
    let sample = Sample::of(10);
    let server = Scripted::one(|mut conn| assert_eq!(conn.rest().0, b""));
    let (_front, url) = front(&server);
    let stranger = Front::of(server.address.parse().unwrap());
    let failed = sample.put_with(&url, |it| it.tls = stranger.trusted()).failed();
    let UploadError::Client(error) = &failed.error else { panic!("{}", failed.error) };
    assert!(error.to_string().contains("certificate"), "{error}");
    assert!(!error.is_temporary());
}
