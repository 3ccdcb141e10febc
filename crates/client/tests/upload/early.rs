//! Responses that arrive before the body is complete.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::rig::{Sample, Scripted, payload, put};
use underpass_client::upload::{UnconfirmedUpload, UploadError};

const LEN: usize = 32 << 20;

#[test]
fn a_refusal_during_an_upload_is_read() {
    let sample = Sample::of(LEN);
    let server = Scripted::one(|mut conn| {
        conn.head_and_body(1 << 20);
        conn.refuse("413 Content Too Large", "no more than a megabyte\n");
        // If the client went on sending, it would fill the buffers and this would wait forever.
        let (rest, _) = conn.rest();
        assert!(rest.len() < LEN - (1 << 20), "everything was sent in vain");
    });
    let failed = sample.put(&server.url("/file")).failed();
    assert!(payload(&failed.report) < LEN as u64);
    assert_eq!(failed.error.status(), Some(413));
    assert!(failed.error.to_string().contains("no more than a megabyte"), "{}", failed.error);
}

#[test]
fn interim_answers_without_end_are_a_failure() {
    for len in [0, 1 << 10] {
        let sample = Sample::of(len);
        let server = Scripted::one(|mut conn| {
            conn.head();
            // Continues until the client has left.
            while conn.try_say("HTTP/1.1 103 Early Hints\r\n\r\n") {}
        });
        let failed = sample.put(&server.url("/file")).failed();
        let text = failed.error.to_string();
        assert!(text.contains("too many interim answers"), "{len}: {text}");
    }
}

#[test]
fn another_protocol_is_reported_at_once() {
    let sample = Sample::of(1 << 10);
    let server = Scripted::one(|mut conn| {
        conn.say("SSH-2.0-OpenSSH_9\r\n");
        conn.rest();
    });
    let failed = sample.put(&server.url("/file")).failed();
    assert!(failed.error.to_string().contains("is not HTTP"), "{}", failed.error);
}

#[test]
fn a_refusal_before_a_reset_is_read() {
    let sample = Sample::of(LEN);
    let server = Scripted::one(|mut conn| {
        conn.head_and_body(1 << 20);
        conn.refuse("507 Insufficient Storage", "the disk is full\n");
        // Closed with bytes unread: the client's next ones cause a reset.
    });
    let (status, text) = sample.put(&server.url("/file")).refused();
    assert_eq!(status, 507);
    assert!(text.contains("the disk is full"), "{text}");
}

/// Uploads to a server that reports success too early and reads no more.
fn refused_as_early(sample: &Sample, server: Scripted) {
    let failed = sample.put(&server.url("/file")).failed();
    assert!(
        matches!(failed.error, UploadError::Unconfirmed(UnconfirmedUpload::Early { status: 201 })),
        "{}",
        failed.error
    );
}

/// Uploads to a server that reports success early and reads everything.
fn accepted(sample: &Sample, server: Scripted) {
    assert_eq!(sample.put(&server.url("/file")).done().status, 201);
}

#[test]
fn an_early_success_counts_only_if_the_whole_body_is_read() {
    let sample = Sample::of(LEN);
    let server = Scripted::one(|mut conn| {
        conn.head_and_body(1 << 20);
        conn.answer("201 Created", &[]);
        conn.reset();
    });
    refused_as_early(&sample, server);

    let expected = sample.bytes.clone();
    let server = Scripted::one(move |mut conn| {
        let begin = conn.head_and_body(1 << 20);
        conn.answer("201 Created", &[]);
        conn.fall_silent();
        let rest = conn.take(LEN - (1 << 20));
        assert!([begin, rest].concat() == expected);
    });
    accepted(&sample, server);
}

#[test]
fn a_stream_is_not_waited_for_once_the_server_is_gone() {
    let server = Scripted::one(|mut conn| {
        conn.head();
        conn.answer("201 Created", &[]);
        conn.reset();
    });
    let (reader, writer) = std::io::pipe().unwrap();
    let (end, ended) = channel();
    let watch = thread::spawn(move || {
        // Must arrive before the end of the stream.
        let is_in_time = ended.recv_timeout(Duration::from_secs(20)).is_ok();
        drop(writer);
        is_in_time
    });
    let source = File::from(OwnedFd::from(reader));
    let failed = put(&source, &server.url("/file"), |_| {}).failed();
    end.send(()).unwrap();
    assert!(
        matches!(failed.error, UploadError::Unconfirmed(UnconfirmedUpload::Early { status: 201 })),
        "{}",
        failed.error
    );
    assert!(watch.join().unwrap());
}

#[test]
fn success_instead_of_continue_counts_only_if_the_body_is_read() {
    let sample = Sample::of(LEN);
    let server = Scripted::one(|mut conn| {
        conn.head();
        conn.answer("201 Created", &[]);
        conn.reset();
    });
    refused_as_early(&sample, server);

    let expected = sample.bytes.clone();
    let server = Scripted::one(move |mut conn| {
        conn.head();
        conn.answer("201 Created", &[]);
        conn.fall_silent();
        assert!(conn.take(LEN) == expected);
    });
    accepted(&sample, server);
}

#[test]
fn malformed_responses_are_reported() {
    let sample = Sample::of(10);
    for (answer, words) in [
        ("SSH-2.0-OpenSSH_9.6\r\n\r\n", "invalid response"),
        ("HTTP/1.1 abc\r\n\r\n", "invalid response"),
        ("HTTP/1.1 201 Created\r\nContent-Length: x\r\n\r\n", "Content-Length"),
    ] {
        let server = Scripted::one(move |mut conn| {
            conn.head();
            conn.take(10);
            conn.say(answer);
        });
        let error = sample.put_with(&server.url("/"), |it| it.retries = 0).failed().error;
        assert!(error.to_string().contains(words), "{error}");
    }
}
