//! Received bodies arrive whole, or are refused.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use underpass_transport::incoming::{BodyFraming, Incoming, ReceiveError, ReceiveOptions};

/// Receives a body of which some bytes were read in advance; returns how many are in the file.
fn receive(
    framing: BodyFraming,
    (ahead, rest): (&[u8], &[u8]),
    limit: Option<u64>,
) -> (Result<(), ReceiveError>, u64) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.write_all(rest).unwrap();
    drop(theirs);
    let file = tempfile::tempfile().unwrap();
    let timeout = Some(Duration::from_secs(30));
    let mut incoming = Incoming::new(&ours, ahead.to_vec(), timeout, None);
    let options = ReceiveOptions { limit, reserve: true, ..ReceiveOptions::default() };
    let received = incoming.body(framing, &file, 0, &options, &mut |_| {});
    assert_eq!(file.metadata().unwrap().len(), received.report.bytes());
    (received.outcome, received.report.bytes())
}

#[test]
fn a_body_without_a_length_has_a_limit() {
    for (ahead, rest) in [(&b""[..], &b"12345"[..]), (b"12", b"345"), (b"12345", b"")] {
        for limit in [None, Some(5), Some(6), Some(u64::MAX)] {
            let (outcome, bytes) = receive(BodyFraming::UntilEnd, (ahead, rest), limit);
            assert_eq!((outcome.unwrap(), bytes), ((), 5), "{limit:?}");
        }
        for limit in [0, 1, 4] {
            let (outcome, bytes) = receive(BodyFraming::UntilEnd, (ahead, rest), Some(limit));
            assert!(matches!(outcome, Err(ReceiveError::TooLong)), "{limit}: {outcome:?}");
            assert!(bytes <= limit + 1, "{bytes} of {limit}");
        }
    }
}

#[test]
fn a_length_is_kept_whatever_the_limit() {
    let (outcome, bytes) = receive(BodyFraming::Length(5), (b"1", b"2345"), Some(1));
    assert_eq!((outcome.unwrap(), bytes), ((), 5));
    let (outcome, bytes) = receive(BodyFraming::Length(6), (b"1", b"2345"), Some(9));
    assert!(outcome.is_err());
    assert_eq!(bytes, 5);
}
