//! Bodies arrive unchanged, whatever their length, and are moved inside the kernel.

use std::fs::File;
use std::io::Write;

use underpass_engine::Mechanism;

use super::rig::{Sample, Scripted, field, noise, payload, put};

#[test]
fn every_length_arrives_behind_one_head() {
    for len in [0_usize, 1, 2, 8191, 8192, 8193, 65_535] {
        let sample = Sample::of(len);
        let expected = sample.bytes.clone();
        let server = Scripted::one(move |mut conn| {
            let head = conn.head();
            assert!(head.starts_with("PUT /a/b%20c?q=1 HTTP/1.1\r\n"), "{head}");
            assert_eq!(field(&head, "content-length"), Some(expected.len().to_string().as_str()));
            assert_eq!(field(&head, "expect"), None);
            assert_eq!(field(&head, "transfer-encoding"), None);
            conn.accept(&expected);
            assert!(conn.rest().0.is_empty(), "more than was announced");
        });
        let done = sample.put(&server.url("/a/b%20c?q=1#fragment")).done();
        assert_eq!((done.status, done.resumed_at, done.is_resumable), (201, 0, false));
        assert_eq!(payload(&done.report), len as u64);
    }
}

#[test]
fn a_large_upload_waits_for_100_continue_and_bypasses_user_space() {
    let sample = Sample::of(5 << 20);
    let expected = sample.bytes.clone();
    let server = Scripted::one(move |mut conn| {
        let head = conn.head();
        assert_eq!(field(&head, "expect"), Some("100-continue"));
        conn.say_continue();
        assert!(conn.take(expected.len()) == expected);
        conn.answer("204 No Content", &[]);
    });
    let done = sample.put(&server.url("/file")).done();
    assert_eq!(done.status, 204);
    assert_eq!(done.report.user_space_bytes(), 0);
    assert_eq!(done.report.by(Mechanism::Sendfile).bytes, 5 << 20);
}

#[test]
fn a_stream_goes_in_chunks_by_splice() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let bytes = noise(3 << 20);
    let expected = bytes.clone();
    let server = Scripted::one(move |mut conn| {
        let head = conn.head();
        assert_eq!(field(&head, "transfer-encoding"), Some("chunked"));
        assert_eq!(field(&head, "content-length"), None);
        conn.say_continue();
        assert!(conn.chunks() == expected);
        conn.answer("201 Created", &[]);
        assert!(conn.rest().0.is_empty());
    });
    let feeder = std::thread::spawn(move || {
        // In pieces that come one at a time, and pieces that fill the pipe.
        writer.write_all(&bytes[..1]).unwrap();
        writer.write_all(&bytes[1..100_000]).unwrap();
        writer.write_all(&bytes[100_000..]).unwrap();
    });
    let file = File::from(std::os::fd::OwnedFd::from(reader));
    let done = put(&file, &server.url("/stream"), |_| {}).done();
    feeder.join().unwrap();
    assert_eq!(payload(&done.report), 3 << 20);
    assert_eq!(done.report.by(Mechanism::Splice).bytes, 3 << 20);
    assert_eq!(done.report.user_space_bytes(), 0);
}

#[test]
fn an_empty_stream_is_an_empty_file() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    let server = Scripted::one(|mut conn| {
        conn.head();
        conn.say_continue();
        assert!(conn.chunks().is_empty());
        conn.answer("201 Created", &[]);
    });
    let file = File::from(std::os::fd::OwnedFd::from(reader));
    assert_eq!(put(&file, &server.url("/stream"), |_| {}).done().status, 201);
}

#[test]
fn files_without_a_size_are_read_and_counted() {
    let expected = std::fs::read("/proc/version").unwrap();
    let len = expected.len() as u64;
    let server = Scripted::one(move |mut conn| {
        conn.head();
        conn.say_continue();
        assert!(conn.chunks() == expected);
        conn.answer("201 Created", &[]);
    });
    let file = File::open("/proc/version").unwrap();
    let done = put(&file, &server.url("/version"), |_| {}).done();
    assert_eq!(done.report.user_space_bytes(), 2 * len);
}

#[test]
fn progress_counts_the_body_alone() {
    let sample = Sample::of(3 << 20);
    let expected = sample.bytes.clone();
    let server = Scripted::one(move |mut conn| {
        conn.head();
        conn.say_continue();
        conn.accept(&expected);
    });
    let (sender, seen) = std::sync::mpsc::channel();
    sample
        .put_with(&server.url("/file"), |options| {
            options.watch = Box::new(move |bytes| sender.send(bytes).unwrap());
        })
        .done();
    let seen: Vec<_> = seen.into_iter().collect();
    assert!(seen.is_sorted(), "{seen:?}");
    assert_eq!(seen.last(), Some(&(3 << 20)));
}
