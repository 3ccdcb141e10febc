//! Chunked bodies arrive whole whatever the size of their chunks, and small chunks together.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use underpass_engine::{Mechanism, Policy, SMALL_TRANSFER};
use underpass_protocol::chunked::chunk;
use underpass_transport::incoming::{
    BodyFraming, Incoming, ReceiveError, ReceiveOptions, ReceivedBody,
};

/// The end of a chunked body.
const END: &[u8] = b"0\r\n\r\n";

/// Receives the body at the start of `sent`, which is sent `piece` bytes at a time. Returns the
/// bytes of the file, the result, and what follows the body.
fn receive(sent: Vec<u8>, piece: usize, policy: Policy) -> (Vec<u8>, ReceivedBody, Vec<u8>) {
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let sender = thread::spawn(move || {
        for piece in sent.chunks(piece) {
            theirs.write_all(piece).unwrap();
        }
    });
    let file = tempfile::tempfile().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut incoming = Incoming::new(&ours, Vec::new(), Some(Duration::from_secs(30)), None);
    let options = ReceiveOptions { policy, ..ReceiveOptions::default() };
    let received = incoming.body(BodyFraming::Chunked, &file, 0, &options, &mut |_| {});
    let mut following = incoming.into_ahead();
    ours.set_nonblocking(false).unwrap();
    ours.read_to_end(&mut following).unwrap();
    sender.join().unwrap();
    (content(&file), received, following)
}

fn content(file: &File) -> Vec<u8> {
    let mut content = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut content, 0).unwrap();
    content
}

#[test]
fn chunks_of_all_sizes_arrive_in_order_and_the_next_message_is_kept() {
    let sizes = [1, 2, 50, SMALL_TRANSFER, SMALL_TRANSFER + 1, 70_000, 3, 3, 65_536, 4_096, 4_096];
    let (mut body, mut sent) = (Vec::new(), Vec::new());
    for size in sizes {
        let data: Vec<u8> = (body.len()..body.len() + size).map(|at| (at % 251) as u8).collect();
        sent.extend(chunk(&data));
        body.extend(data);
    }
    sent.extend_from_slice(b"0\r\nTrailer: yes\r\n\r\nthe next message");
    for piece in [7, 1_000, 64 << 10, sent.len()] {
        let (content, received, following) = receive(sent.clone(), piece, Policy::Auto);
        received.outcome.unwrap();
        assert_eq!(received.report.bytes(), body.len() as u64);
        assert!(content == body, "in pieces of {piece}");
        assert_eq!(following, b"the next message");
    }
}

#[test]
fn small_chunks_are_written_together() {
    let sent = [chunk(&[b'x'; 50]).repeat(10_000), END.to_vec()].concat();
    for policy in [Policy::Auto, Policy::Require(Mechanism::ReadWrite)] {
        let (content, received, _) = receive(sent.clone(), sent.len(), policy);
        received.outcome.unwrap();
        assert!(content == [b'x'; 500_000]);
        assert!(received.report.calls() < 1_000, "{}", received.report.calls());
    }
    let (content, received, _) = receive(sent, 4_096, Policy::Require(Mechanism::Splice));
    received.outcome.unwrap();
    assert!(content == [b'x'; 500_000]);
    let used: Vec<_> = received.report.mechanisms().collect();
    assert_eq!((used.len(), used[0].0, used[0].1.bytes), (1, Mechanism::Splice, 500_000));
}

#[test]
fn what_arrives_of_a_small_chunk_is_in_the_file_before_more_is_sent() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let file = tempfile::tempfile().unwrap();
    let seen = file.try_clone().unwrap();
    let sender = thread::spawn(move || {
        let line = chunk(b"a line\n");
        let half = line.len() - 5;
        for count in 0..5 {
            for (part, arrived) in [(&line[..half], 4), (&line[half..], 7)] {
                theirs.write_all(part).unwrap();
                let begun = Instant::now();
                while seen.metadata().unwrap().len() < count * 7 + arrived {
                    assert!(begun.elapsed() < Duration::from_secs(20), "line {count}: {arrived}");
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
        theirs.write_all(END).unwrap();
    });
    let mut incoming = Incoming::new(&ours, Vec::new(), Some(Duration::from_secs(30)), None);
    let options = ReceiveOptions::default();
    let received = incoming.body(BodyFraming::Chunked, &file, 0, &options, &mut |_| {});
    received.outcome.unwrap();
    sender.join().unwrap();
    assert_eq!(content(&file), b"a line\n".repeat(5));
}

#[test]
fn chunks_before_a_bad_one_are_kept() {
    let sent = [chunk(b"one"), chunk(b"two"), chunk(b"three"), b"bad\r\r".to_vec()].concat();
    let (content, received, _) = receive(sent, 4_096, Policy::Auto);
    assert!(matches!(received.outcome, Err(ReceiveError::Chunk(_))), "{:?}", received.outcome);
    assert_eq!((content.as_slice(), received.report.bytes()), (&b"onetwothree"[..], 11));
}
