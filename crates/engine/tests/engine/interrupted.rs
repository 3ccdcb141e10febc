//! Transfers whose source shrinks or grows, whose peer leaves or stops, or whose process dies.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::rig::scratch::{Held, PATIENCE, Scratch, Shell, assert_reset, pattern, tcp_pair};
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, memfd_create};
use rustix::io::Errno;
use underpass_engine::Mechanism::{CopyFileRange, Mmap, ReadWrite, Sendfile, Splice};
use underpass_engine::wait::StallDetector;
use underpass_engine::{
    Error, Integrity, Mechanism, Options, Policy, Report, Sink, Source, Status, Transfer, socket,
};

const LEN: usize = 4 << 20;
const FIRST: usize = 1 << 20;
const PAGE: usize = 4096;

/// The mechanisms that can move a file to a socket.
const TO_A_SOCKET: [Mechanism; 4] = [Sendfile, Splice, Mmap, ReadWrite];

/// The mechanisms that can move a file into another one of the same file system, of any type.
const TO_A_FILE: [Mechanism; 5] = [CopyFileRange, Sendfile, Splice, Mmap, ReadWrite];

fn require(mechanism: Mechanism) -> Options<'static> {
    Options::default().policy(Policy::Require(mechanism))
}

fn assert_io<T>(outcome: Result<T, Error>, errnos: &[Errno]) -> Box<Report> {
    let Err(Error::Io { source, report, .. }) = outcome else {
        panic!("{:?}", outcome.err());
    };
    let is_expected = |errno: &Errno| source.raw_os_error() == Some(errno.raw_os_error());
    assert!(errnos.iter().any(is_expected), "{source}");
    report
}

/// Copies a file that is changed after the first quarter, and returns what the sink then holds.
fn copy(mechanism: Mechanism, change: impl FnOnce(&File)) -> (Result<Status, Error>, u64, Vec<u8>) {
    let scratch = Scratch::new();
    let path = scratch.file("source", LEN);
    let file = File::open(&path).unwrap();
    let sink = File::create_new(scratch.path("sink")).unwrap();
    let quarter = LEN / 4;
    let mut transfer = Transfer::new(Source::of(&file).unwrap(), Sink::of(&sink).unwrap())
        .options(require(mechanism).step(quarter).turn(quarter as u64));
    assert_eq!(transfer.advance().unwrap(), Status::Yielded, "{mechanism}");
    assert_eq!(transfer.report().bytes(), quarter as u64);
    change(&File::options().append(true).open(&path).unwrap());
    let outcome = loop {
        match transfer.advance() {
            Ok(Status::Yielded) => {}
            outcome => break outcome,
        }
    };
    (outcome, transfer.report().bytes(), fs::read(scratch.path("sink")).unwrap())
}

#[test]
fn a_source_that_is_reset_has_not_ended() {
    for mechanism in [Splice, ReadWrite] {
        let scratch = Scratch::new();
        let sink = File::create_new(scratch.path("sink")).unwrap();
        let (mut sender, reader) = tcp_pair();
        sender.write_all(b"part").unwrap();
        let mut transfer = Transfer::new(Source::of(&reader).unwrap(), Sink::of(&sink).unwrap())
            .options(require(mechanism).turn(1));
        // The bytes arrive before the reset.
        while transfer.report().bytes() < 4 {
            transfer.advance().unwrap();
        }
        socket::arm_reset(&sender).unwrap();
        drop(sender);
        let report = assert_io(transfer.run(), &[Errno::CONNRESET]);
        assert_eq!(report.bytes(), 4, "{mechanism}");
    }
}

#[test]
fn a_source_truncated_while_it_is_sent_is_an_error_and_a_reset() {
    let cut = 3 * FIRST + PAGE / 2 + 123;
    for mechanism in TO_A_SOCKET {
        let scratch = Scratch::new();
        let path = scratch.file("source", LEN);
        let mut held = Held::send(&path, require(mechanism));
        held.read(FIRST);
        File::options().write(true).open(&path).unwrap().set_len(cut as u64).unwrap();
        let (peer, sender) = held.finish();
        assert_reset(&peer);
        let error = sender.unwrap_err();
        let ended = matches!(error, Error::SourceEnded { expected, .. } if expected == LEN as u64);
        assert!(ended, "{error:?}");
        let moved = FIRST as u64..=cut as u64;
        assert!(moved.contains(&error.bytes()), "{mechanism}: {error}");
    }
}

#[test]
fn a_source_truncated_while_it_is_copied_is_an_error() {
    for mechanism in TO_A_FILE {
        for cut in [LEN / 4, LEN / 2 + PAGE, LEN / 2 + PAGE / 2 + 1] {
            let (outcome, bytes, sink) = copy(mechanism, |file| {
                file.set_len(cut as u64).unwrap();
            });
            let error = outcome.unwrap_err();
            assert!(matches!(error, Error::SourceEnded { .. }), "{mechanism}: {error:?}");
            assert_eq!((error.bytes(), bytes), (cut as u64, cut as u64), "{mechanism}");
            assert!(sink == pattern(LEN)[..cut], "{mechanism}, {cut}");
        }
    }
}

#[test]
fn a_source_that_grows_is_cut_at_the_promise() {
    for mechanism in TO_A_FILE {
        let (outcome, bytes, sink) = copy(mechanism, |mut file| {
            file.write_all(&[b'x'; 2 * PAGE]).unwrap();
        });
        assert_eq!(outcome.unwrap(), Status::Done, "{mechanism}");
        assert_eq!(bytes, LEN as u64);
        assert!(sink == pattern(LEN), "{mechanism}");
    }
    for mechanism in TO_A_SOCKET {
        let scratch = Scratch::new();
        let path = scratch.file("source", LEN);
        let mut held = Held::send(&path, require(mechanism));
        held.read(FIRST);
        File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        let (peer, sender) = held.finish();
        assert_eq!(sender.unwrap().bytes(), LEN as u64, "{mechanism}");
        assert!(peer.unwrap() == pattern(LEN), "{mechanism}");
    }
}

/// Returns a file in memory, whose size always changes before its pages do.
fn memory_file() -> File {
    memfd_create("interrupted", MemfdFlags::CLOEXEC).unwrap().into()
}

#[test]
fn a_source_truncated_while_mapped_is_an_error() {
    const LEN: usize = 64 * PAGE;
    let contents = pattern(LEN);
    let (source, sink) = (memory_file(), memory_file());
    // The round in which the other thread is to truncate, and the last in which it has.
    let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let mut ended = 0;
    let truncate = || {
        while !is_over.load(Ordering::Acquire) {
            let round = begun.load(Ordering::Acquire);
            if round > done.load(Ordering::Relaxed) {
                (0..round * 37 % 4000).for_each(|_| std::hint::spin_loop());
                // Usually in the middle of a page.
                source.set_len(round * 7919 % LEN as u64).unwrap();
                done.store(round, Ordering::Release);
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(truncate);
        let start = Instant::now();
        for round in 1.. {
            source.set_len(0).unwrap();
            source.write_all_at(&contents, 0).unwrap();
            sink.set_len(0).unwrap();
            let from = Source::of(&source).unwrap();
            let transfer =
                Transfer::new(from, Sink::of(&sink).unwrap()).options(require(Mmap).step(5 * PAGE));
            begun.store(round, Ordering::Release);
            let bytes = match transfer.run() {
                Ok(report) => report.bytes(),
                Err(error @ Error::SourceEnded { .. }) => {
                    ended += 1;
                    error.bytes()
                }
                Err(error) => panic!("{error:?}"),
            };
            while done.load(Ordering::Acquire) < round {
                thread::yield_now();
            }
            let mut taken = vec![0; bytes as usize];
            sink.read_exact_at(&mut taken, 0).unwrap();
            assert!(taken == contents[..taken.len()], "{bytes} bytes in round {round}");
            if start.elapsed() > Duration::from_secs(1) {
                break;
            }
        }
        is_over.store(true, Ordering::Release);
    });
    assert!(ended > 0, "no truncation came in time to matter");
}

#[test]
fn zeros_past_the_end_of_a_mapped_file_end_the_connection() {
    // One page, which remains when the file becomes shorter.
    const LEN: usize = PAGE;
    let contents = pattern(LEN);
    let file = memory_file();
    let begun = Instant::now();
    for round in 0.. {
        if begun.elapsed() > Duration::from_millis(500) {
            break;
        }
        file.set_len(0).unwrap();
        file.write_all_at(&contents, 0).unwrap();
        let source = Source::of(&file).unwrap();
        let (sender, mut reader) = tcp_pair();
        let (is_ready, go) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                is_ready.store(true, Ordering::Release);
                while !go.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                (0..round * 37 % 4000).for_each(|_| std::hint::spin_loop());
                file.set_len(PAGE as u64 / 2).unwrap();
            });
            while !is_ready.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            go.store(true, Ordering::Release);
            // A single step: if it fails, nothing was counted as delivered.
            let outcome =
                Transfer::new(source, Sink::of(&sender).unwrap()).options(require(Mmap)).run();
            drop(sender);
            let mut bytes = Vec::new();
            let seen = reader.read_to_end(&mut bytes);
            match outcome {
                Ok(report) => assert_eq!(report.bytes(), bytes.len() as u64),
                Err(Error::SourceEnded { .. }) if seen.is_ok() => {
                    assert!(!bytes.contains(&0), "zeros and a clean end in round {round}");
                }
                Err(Error::SourceEnded { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        });
    }
}

#[test]
fn mappings_are_removed_after_each_transfer() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("mapped-source", LEN)).unwrap();
    let sink = File::options().write(true).open("/dev/null").unwrap();
    let transfer = || {
        Transfer::new(Source::of(&file).unwrap(), Sink::of(&sink).unwrap())
            .options(require(Mmap).turn(1).step(PAGE))
    };
    let count = || fs::read_to_string("/proc/self/maps").unwrap().matches("mapped-source").count();
    let mut unfinished = transfer();
    assert_eq!(unfinished.advance().unwrap(), Status::Yielded);
    assert_eq!(count(), 1);
    for _ in 0..100 {
        assert_eq!(transfer().run().unwrap().bytes(), LEN as u64);
        transfer().advance().unwrap();
    }
    assert_eq!(count(), 1);
    drop(unfinished);
    assert_eq!(count(), 0);
}

#[test]
fn a_peer_that_leaves_in_mid_transfer_is_an_error_with_the_bytes() {
    for mechanism in TO_A_SOCKET {
        let scratch = Scratch::new();
        let mut held = Held::send(&scratch.file("source", LEN), require(mechanism));
        held.read(FIRST);
        let report = assert_io(held.hang_up(), &[Errno::PIPE, Errno::CONNRESET]);
        assert!((FIRST as u64..LEN as u64).contains(&report.bytes()), "{mechanism}");
    }
}

#[test]
fn a_reader_that_leaves_its_pipe_is_an_error_with_the_bytes() {
    for mechanism in [Splice, Sendfile, ReadWrite] {
        let scratch = Scratch::new();
        let file = File::open(scratch.file("source", LEN)).unwrap();
        let (mut out, into) = std::io::pipe().unwrap();
        let sender = thread::spawn(move || {
            Transfer::new(Source::of(&file).unwrap(), Sink::of(&into).unwrap())
                .options(require(mechanism))
                .run()
        });
        out.read_exact(&mut vec![0; FIRST]).unwrap();
        drop(out);
        let report = assert_io(sender.join().unwrap(), &[Errno::PIPE]);
        assert!((FIRST as u64..LEN as u64).contains(&report.bytes()), "{mechanism}");
    }
}

#[test]
fn the_file_size_limit_is_reported_with_the_bytes_written() {
    const LIMIT: usize = 1 << 20;
    if std::env::var_os(ROLE).is_none() {
        // Another process, because the limit applies to all of its files.
        let limit = r#"trap "" XFSZ; ulimit -f "$0"; exec "$@""#;
        let blocks = (LIMIT / 512).to_string();
        let mut command = Command::new("sh");
        command.args(["-c", limit, &blocks]).arg(std::env::current_exe().unwrap());
        let name = "interrupted::the_file_size_limit_is_reported_with_the_bytes_written";
        let folder = Scratch::new();
        folder.file("source", LEN);
        let child = command.args(["--exact", name]).env(ROLE, folder.folder()).output().unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let folder = std::path::PathBuf::from(std::env::var_os(ROLE).unwrap());
    let policies = [Sendfile, Splice, Mmap, ReadWrite].map(Policy::Require);
    for policy in policies.into_iter().chain([Policy::Auto]) {
        let source = File::open(folder.join("source")).unwrap();
        let sink = File::create(folder.join("sink")).unwrap();
        let outcome = Transfer::new(Source::of(&source).unwrap(), Sink::of(&sink).unwrap())
            .options(Options::default().policy(policy))
            .run();
        let report = assert_io(outcome, &[Errno::FBIG]);
        assert_eq!(report.bytes(), LIMIT as u64, "{policy:?}");
        assert!(fs::read(folder.join("sink")).unwrap() == pattern(LEN)[..LIMIT], "{policy:?}");
    }
}

/// Tells a test that it runs in a child process.
const ROLE: &str = "UNDERPASS_TEST_ROLE";

#[test]
fn a_transfer_can_be_cancelled_while_it_waits() {
    let flag = AtomicBool::new(false);
    let (out, into) = std::io::pipe().unwrap();
    let (sender, _reader) = tcp_pair();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            Transfer::new(Source::of(&out).unwrap(), Sink::of(&sender).unwrap())
                .options(Options::default().cancel(&flag))
                .run()
        });
        (&into).write_all(b"something").unwrap();
        thread::sleep(Duration::from_millis(50));
        flag.store(true, Ordering::Relaxed);
        let cancelled = Instant::now();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Cancelled { .. }), "{error:?}");
        assert_eq!(error.bytes(), 9);
        assert!(cancelled.elapsed() < PATIENCE / 3);
    });
}

/// Starts a transfer to a peer that reads slowly for this long, then either fast or not at all.
fn slow_peer(timeout: Duration, slow_for: Duration) -> Held {
    let scratch = Scratch::new();
    let options = Options::default().timeout(timeout);
    let mut held = Held::send_through(&scratch.file("source", LEN), options, 1 << 20);
    let begun = Instant::now();
    while begun.elapsed() < slow_for {
        held.read(8 << 10);
        thread::sleep(Duration::from_millis(100));
    }
    held
}

#[test]
fn a_peer_that_is_slow_but_steady_is_not_stalled() {
    let timeout = Duration::from_millis(1200);
    let (peer, sender) = slow_peer(timeout, 3 * timeout).finish();
    assert_eq!(sender.unwrap().bytes(), LEN as u64);
    assert!(peer.unwrap() == pattern(LEN));
}

#[test]
fn a_peer_that_slowly_reads_what_was_all_handed_over_is_not_stalled() {
    const LEN: usize = 10 * PAGE;
    let timeout = Duration::from_millis(800);
    let scratch = Scratch::new();
    let file = File::open(scratch.file("source", LEN)).unwrap();
    let (mut out, into) = std::io::pipe().unwrap();
    let sender = thread::spawn(move || {
        // A transfer waits until its bytes are read only for a guarded file.
        let options = Options::default().timeout(timeout).integrity(Integrity::Detect);
        Transfer::new(Source::of(&file).unwrap(), Sink::of(&into).unwrap()).options(options).run()
    });
    for _ in 0..LEN / (PAGE / 2) {
        thread::sleep(3 * timeout / (LEN / (PAGE / 2)) as u32);
        out.read_exact(&mut [0; PAGE / 2]).unwrap();
    }
    assert_eq!(sender.join().unwrap().unwrap().bytes(), LEN as u64);
}

#[test]
fn a_peer_that_stops_is_stalled_after_the_timeout() {
    let timeout = Duration::from_millis(400);
    let held = slow_peer(timeout, Duration::from_millis(300));
    let stopped = Instant::now();
    let (peer, sender) = held.finish_late();
    let Err(Error::Stalled { timeout: reported, report }) = sender else { panic!("{sender:?}") };
    assert_eq!(reported, timeout);
    assert!(report.bytes() > 0);
    assert!(stopped.elapsed() < PATIENCE / 3);
    assert_reset(&peer);
}

#[test]
fn a_peer_that_moves_too_little_is_stalled() {
    let timeout = Duration::from_millis(400);
    let scratch = Scratch::new();
    let file = File::create(scratch.path("target")).unwrap();
    let (mut peer, from) = tcp_pair();
    let drip = thread::spawn(move || {
        while peer.write_all(b"x").is_ok() {
            thread::sleep(timeout / 10);
        }
    });
    let mut stall = StallDetector::new(Some(timeout), LEN as u64);
    let transfer = Transfer::new(Source::of(&from).unwrap(), Sink::of(&file).unwrap());
    let outcome = transfer.options(Options::default().stall_detector(&mut stall)).run();
    assert!(matches!(outcome, Err(Error::Stalled { .. })), "{outcome:?}");
    drop(from);
    drip.join().unwrap();
}

#[test]
fn the_last_bytes_of_a_transfer_count_for_the_next() {
    let (timeout, scratch) = (Duration::from_secs(60), Scratch::new());
    let file = File::create(scratch.path("target")).unwrap();
    let (mut peer, from) = tcp_pair();
    let mut stall = StallDetector::new(Some(timeout), 1);
    for _ in 0..3 {
        // As if the head of a chunk had been waited for.
        stall.waited(timeout / 2);
        peer.write_all(&[b'x'; 100]).unwrap();
        let transfer = Transfer::new(Source::of(&from).unwrap().len(100), Sink::of(&file).unwrap());
        transfer.options(Options::default().stall_detector(&mut stall)).run().unwrap();
        assert_eq!(stall.left(), Some(timeout));
    }
}

#[test]
fn a_pause_of_a_reader_on_this_side_is_not_the_peers() {
    let timeout = Duration::from_millis(200);
    let (mut peer, from) = tcp_pair();
    let (mut out, into) = std::io::pipe().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || peer.write_all(&pattern(LEN)).unwrap());
        let receiver = scope.spawn(move || {
            let mut stall = StallDetector::new(Some(timeout), 1);
            let (source, sink) = (Source::of(&from).unwrap(), Sink::of(&into).unwrap());
            Transfer::new(source, sink).options(Options::default().stall_detector(&mut stall)).run()
        });
        thread::sleep(4 * timeout);
        let mut bytes = Vec::new();
        out.read_to_end(&mut bytes).unwrap();
        assert_eq!(receiver.join().unwrap().unwrap().bytes(), LEN as u64);
    });
}

#[test]
fn a_sink_whose_peer_is_gone_is_noticed_while_the_source_is_idle() {
    fn idle(sink: impl AsFd + Send, leave: impl FnOnce()) -> Result<Report, Error> {
        let (out, _into) = std::io::pipe().unwrap();
        thread::scope(|scope| {
            let sender = scope.spawn(move || {
                let (source, sink) = (Source::of(&out).unwrap(), Sink::of(&sink).unwrap());
                Transfer::new(source, sink).run()
            });
            thread::sleep(Duration::from_millis(50));
            leave();
            sender.join().unwrap()
        })
    }
    let (sender, reader) = tcp_pair();
    socket::arm_reset(&reader).unwrap();
    assert_io(idle(sender, || drop(reader)), &[Errno::CONNRESET]);
    let (near, far) = UnixStream::pair().unwrap();
    assert_io(idle(near, || drop(far)), &[Errno::CONNRESET]);
}

/// Runs a transfer between a stream and a pipe whose reader leaves after the first bytes; `after`
/// is what the source gives afterwards.
fn abandoned(mechanism: Mechanism, over_tcp: bool, after: &[u8]) -> Result<Report, Error> {
    let (mut writer, source): (Box<dyn Write>, File) = if over_tcp {
        let (writer, source) = tcp_pair();
        (Box::new(writer), OwnedFd::from(source).into())
    } else {
        let (source, writer) = std::io::pipe().unwrap();
        (Box::new(writer), OwnedFd::from(source).into())
    };
    let (mut out, into) = std::io::pipe().unwrap();
    let mover = thread::spawn(move || {
        Transfer::new(Source::of(&source).unwrap(), Sink::of(&into).unwrap())
            .options(require(mechanism))
            .run()
    });
    writer.write_all(&[7; PAGE]).unwrap();
    out.read_exact(&mut [0; PAGE]).unwrap();
    drop(out);
    // Whether the transfer notices before or after the source's end must not matter.
    if !after.is_empty() || over_tcp {
        thread::sleep(Duration::from_millis(50));
    }
    // The transfer may already have failed and closed its end.
    let _ = writer.write_all(after);
    drop(writer);
    mover.join().unwrap()
}

#[test]
fn a_reader_that_leaves_once_it_has_everything_is_no_error() {
    for mechanism in [Splice, ReadWrite] {
        for over_tcp in [false, true] {
            let report = abandoned(mechanism, over_tcp, b"").unwrap();
            assert_eq!(report.bytes(), PAGE as u64, "{mechanism} {over_tcp}");
        }
    }
}

#[test]
fn a_byte_that_comes_after_the_reader_has_left_is_an_error() {
    for mechanism in [Splice, ReadWrite] {
        for over_tcp in [false, true] {
            let report = assert_io(abandoned(mechanism, over_tcp, b"x"), &[Errno::PIPE]);
            assert_eq!(report.bytes(), PAGE as u64, "{mechanism} {over_tcp}");
        }
    }
}

#[test]
fn a_source_that_is_idle_for_a_while_is_waited_for_until_its_end() {
    let (sender, mut reader) = tcp_pair();
    let (out, mut into) = std::io::pipe().unwrap();
    let writer = thread::spawn(move || {
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(30));
            into.write_all(b"a line\n").unwrap();
        }
    });
    let report =
        Transfer::new(Source::of(&out).unwrap(), Sink::of(&sender).unwrap()).run().unwrap();
    writer.join().unwrap();
    drop(sender);
    let mut bytes = String::new();
    reader.read_to_string(&mut bytes).unwrap();
    assert_eq!(bytes, "a line\n".repeat(3));
    assert_eq!(report.bytes(), 21);
    assert!(report.waits() >= 1);
}

#[test]
fn streams_are_as_blocking_afterwards_as_they_were() {
    let is_nonblocking =
        |fd: &dyn AsFd| fcntl_getfl(fd.as_fd()).unwrap().contains(OFlags::NONBLOCK);
    for nonblocking in [false, true] {
        for fails in [false, true] {
            let (out, into) = std::io::pipe().unwrap();
            let (near, far) = UnixStream::pair().unwrap();
            rustix::io::ioctl_fionbio(&out, nonblocking).unwrap();
            near.set_nonblocking(nonblocking).unwrap();
            (&into).write_all(b"bytes").unwrap();
            drop(into);
            if fails {
                drop(far);
            }
            let source = Source::of(&out).unwrap();
            let outcome = Transfer::new(source, Sink::of(&near).unwrap()).run();
            assert_eq!(outcome.is_err(), fails);
            assert_eq!(is_nonblocking(&out), nonblocking);
            assert_eq!(is_nonblocking(&near), nonblocking);
        }
    }
}

#[test]
fn an_armed_reset_reaches_the_peer_of_a_killed_program() {
    const NAME: &str = "interrupted::an_armed_reset_reaches_the_peer_of_a_killed_program";
    if let Some(role) = std::env::var_os(ROLE) {
        let role = role.into_string().unwrap();
        let (address, is_armed) = role.split_once(' ').unwrap();
        let connection = TcpStream::connect(address).unwrap();
        if is_armed == "true" {
            socket::arm_reset(&connection).unwrap();
        }
        let zeros = File::open("/dev/zero").unwrap();
        let source = Source::of(&zeros).unwrap().len(1 << 40);
        let _ = Transfer::new(source, Sink::of(&connection).unwrap()).run();
        return;
    }
    for is_armed in [false, true] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let role = format!("{} {is_armed}", listener.local_addr().unwrap());
        let mut child = Shell(
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", NAME])
                .env(ROLE, role)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap(),
        );
        let mut reader = listener.accept().unwrap().0;
        reader.set_read_timeout(Some(PATIENCE)).unwrap();
        reader.read_exact(&mut vec![0; FIRST]).unwrap();
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        let seen = std::io::copy(&mut reader, &mut std::io::sink());
        if is_armed {
            assert_reset(&seen);
        } else {
            assert!(seen.is_ok(), "without it the peer takes the part for the whole");
        }
    }
}

#[test]
fn an_armed_reset_can_be_taken_back() {
    let (mut sender, mut reader) = tcp_pair();
    socket::arm_reset(&sender).unwrap();
    sender.write_all(b"whole").unwrap();
    socket::disarm_reset(&sender).unwrap();
    drop(sender);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"whole");
}
