//! The pipes that splice needs: reused when empty, never reused with bytes inside, and not required
//! when none are left.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use crate::rig::ends::{
    Drain, From, Supply, To, file_with, movers, pattern, set_nonblocking, tcp_pair,
};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::process::{Resource, Rlimit, setrlimit};
use underpass_engine::{
    DeclineReason, Declined, Error, Mechanism, Options, PipePool, Policy, Sink, Source, Status,
    Transfer,
};

const LEN: usize = 3 << 20;

#[test]
fn an_empty_pipe_is_used_again() {
    let pool = PipePool::new();
    assert_eq!(pool.idle(), 0);
    for _ in 0..3 {
        let supply = Supply::new(From::Unix, 100_000);
        let drain = Drain::new(To::File);
        let options = Options::default().pipes(&pool);
        Transfer::new(supply.source(), drain.sink()).options(options).run().unwrap();
        assert!(drain.finish(100_000).unwrap() == supply.bytes);
        assert_eq!(pool.idle(), 1);
    }
}

#[test]
fn a_transfer_through_a_pipe_at_one_end_takes_none() {
    let pool = PipePool::new();
    let (supply, drain) = (Supply::new(From::File, 100_000), Drain::new(To::Pipe));
    let options = Options::default().pipes(&pool);
    let report = Transfer::new(supply.source(), drain.sink()).options(options).run().unwrap();
    assert_eq!(movers(&report), [Mechanism::Splice]);
    assert_eq!(pool.idle(), 0);
}

#[test]
fn a_pipe_with_leftovers_is_not_used_again() {
    let pool = PipePool::new();
    let source = file_with(&pattern(LEN));
    for cancelled in [false, true] {
        let (sink, _unread) = UnixStream::pair().unwrap();
        set_nonblocking(&sink);
        let cancel = AtomicBool::new(true);
        let options = Options::default().policy(Policy::Require(Mechanism::Splice)).pipes(&pool);
        let options = options.cancel(&cancel);
        let ends = (Source::of(&source).unwrap(), Sink::of(&sink).unwrap());
        let mut transfer = Transfer::new(ends.0, ends.1).options(options);
        // The peer does not read, so the socket is full and the pipe is not empty.
        while !matches!(transfer.advance().unwrap(), Status::Waiting(_)) {}
        assert!(transfer.report().bytes() < LEN as u64);
        if cancelled {
            assert!(matches!(transfer.run(), Err(Error::Cancelled { .. })));
        } else {
            drop(transfer);
        }
        assert_eq!(pool.idle(), 0, "cancelled {cancelled}");
    }
    // And the next transfer gets only its own bytes.
    let (supply, drain) = (Supply::new(From::Unix, 100_000), Drain::new(To::File));
    let options = Options::default().pipes(&pool);
    Transfer::new(supply.source(), drain.sink()).options(options).run().unwrap();
    assert!(drain.finish(100_000).unwrap() == supply.bytes);
}

#[test]
fn a_pipe_is_given_back_after_a_failure_that_left_it_empty() {
    let pool = PipePool::new();
    let (mut peer, source) = UnixStream::pair().unwrap();
    peer.write_all(&pattern(1_000)).unwrap();
    drop(peer);
    let sink = file_with(b"");
    let options = Options::default().pipes(&pool);
    let source = Source::of(&source).unwrap().len(2_000);
    let outcome = Transfer::new(source, Sink::of(&sink).unwrap()).options(options).run();
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::SourceEnded { expected: 2_000, .. }), "{error}");
    assert_eq!((error.bytes(), pool.idle()), (1_000, 1));
}

#[test]
fn an_urgent_byte_of_tcp_does_not_end_a_stream() {
    for (to, is_closed) in
        [(To::File, true), (To::File, false), (To::Pipe, true), (To::Pipe, false)]
    {
        let (socket, mut peer) = tcp_pair();
        let bytes = pattern(100_000);
        peer.write_all(&bytes[..50_000]).unwrap();
        send(&peer, b"!", SendFlags::OOB).unwrap();
        peer.write_all(&bytes[50_000..]).unwrap();
        let mut source = Source::of(&socket).unwrap();
        let _open = if is_closed {
            drop(peer);
            None
        } else {
            source = source.len(100_000);
            Some(peer)
        };
        let drain = Drain::new(to);
        let report = Transfer::new(source, drain.sink()).run().unwrap();
        assert_eq!(report.by(Mechanism::Splice).bytes, 50_000, "{to:?} {is_closed}");
        assert_eq!(report.declined()[0].reason, DeclineReason::Nothing);
        assert!(drain.finish(100_000).unwrap() == bytes, "{to:?} {is_closed}");
    }
}

#[test]
fn a_pool_keeps_no_more_than_a_few_pipes() {
    let pool = PipePool::new();
    let mut waiting = Vec::new();
    for _ in 0..20 {
        waiting.push(UnixStream::pair().unwrap());
    }
    let sink = File::options().write(true).open("/dev/null").unwrap();
    let mut transfers = Vec::new();
    for (source, _) in &waiting {
        set_nonblocking(source);
        let ends = (Source::of(source).unwrap(), Sink::of(&sink).unwrap());
        let mut transfer = Transfer::new(ends.0, ends.1).options(Options::default().pipes(&pool));
        assert!(matches!(transfer.advance().unwrap(), Status::Waiting(_)));
        transfers.push(transfer);
    }
    for ((_, peer), transfer) in waiting.iter().zip(&mut transfers) {
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(transfer.advance().unwrap(), Status::Done);
    }
    assert_eq!(pool.idle(), 16);
}

#[test]
fn without_descriptors_left_splice_is_declined() {
    // The limit applies to the whole process, so this test runs in a child process.
    const NAME: &str = "pipes::without_descriptors_left_splice_is_declined";
    if std::env::var_os(NAME).is_none() {
        let itself = std::env::current_exe().unwrap();
        let mut command = Command::new(itself);
        let output = command.args(["--exact", NAME, "--nocapture"]).env(NAME, "1").output();
        let output = output.unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
        assert!(stdout.contains("1 passed"), "{stdout}");
        return;
    }
    let (mut peer, source) = UnixStream::pair().unwrap();
    let (bytes, mut sink) = (pattern(100_000), file_with(b""));
    let feeder = {
        let bytes = bytes.clone();
        std::thread::spawn(move || peer.write_all(&bytes).unwrap())
    };
    let lowest_free = File::open("/dev/null").unwrap();
    let limit = Some(u64::try_from(lowest_free.as_raw_fd()).unwrap());
    drop(lowest_free);
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).unwrap();
    let source = Source::of(&source).unwrap().len(100_000);
    let report = Transfer::new(source, Sink::of(&sink).unwrap()).run().unwrap();
    feeder.join().unwrap();
    let declined = report.declined()[0];
    assert_eq!(declined.what, Declined::Mechanism(Mechanism::Splice));
    assert_eq!(declined.reason, DeclineReason::Errno(Errno::MFILE));
    assert_eq!(movers(&report), [Mechanism::ReadWrite]);
    let mut got = Vec::new();
    std::io::Seek::rewind(&mut sink).unwrap();
    sink.read_to_end(&mut got).unwrap();
    assert!(got == bytes);
}
