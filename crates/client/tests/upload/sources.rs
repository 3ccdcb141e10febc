//! Sources that change or break while they are being sent never appear as complete.

use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use underpass_client::upload::UploadError;
use underpass_engine::Error;

use super::rig::{Sample, Scripted, put};

const LEN: u64 = 32 << 20;

/// A server that reads a body and finds less than was announced.
fn taking_a_part() -> Scripted {
    Scripted::one(|mut conn| {
        conn.head();
        conn.say_continue();
        let (body, is_in_order) = conn.rest();
        assert!((body.len() as u64) < LEN, "the whole length arrived");
        assert!(!is_in_order, "an orderly end");
    })
}

#[test]
fn a_file_cut_short_is_reset() {
    let sample = Sample::of(LEN as usize);
    let server = taking_a_part();
    let path = sample.path();
    let mut cut = false;
    let outcome = sample.put_with(&server.url("/file"), |options| {
        options.watch = Box::new(move |_| {
            if !std::mem::replace(&mut cut, true) {
                File::options().write(true).open(&path).unwrap().set_len(LEN / 2).unwrap();
            }
        });
    });
    let error = outcome.failed().error;
    let UploadError::Source(error) = &error else { panic!("{error}") };
    let is_cut = matches!(**error, Error::SourceEnded { .. } | Error::SourceChanged { .. });
    assert!(is_cut, "{error}");
}

#[test]
fn a_file_written_to_is_reset_before_its_last_byte() {
    let sample = Sample::of(LEN as usize);
    let server = taking_a_part();
    let path = sample.path();
    let mut written = false;
    let outcome = sample.put_with(&server.url("/file"), |options| {
        options.watch = Box::new(move |_| {
            if !std::mem::replace(&mut written, true) {
                use std::os::unix::fs::FileExt;
                File::options().write(true).open(&path).unwrap().write_all_at(b"new", 5).unwrap();
            }
        });
    });
    let error = outcome.failed().error;
    let UploadError::Source(error) = &error else { panic!("{error}") };
    assert!(matches!(**error, Error::SourceChanged { .. }), "{error}");
}

#[test]
fn a_socket_that_is_reset_has_not_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let source = File::from(OwnedFd::from(listener.accept().unwrap().0));
    let server = Scripted::one(move |mut conn| {
        conn.head();
        conn.say_continue();
        sender.write_all(b"part").unwrap();
        assert_eq!(conn.take(7), b"4\r\npart");
        underpass_engine::socket::arm_reset(&sender).unwrap();
        drop(sender);
        let (rest, _) = conn.rest();
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    });
    let error = put(&source, &server.url("/file"), |_| {}).failed().error;
    assert!(matches!(error, UploadError::Source(_)), "{error}");
    assert!(error.to_string().contains("reset"), "{error}");
}
