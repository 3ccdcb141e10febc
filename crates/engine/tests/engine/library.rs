//! The library as its callers use it: threads, turns, observers, reports and refusals.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::rig::scratch::{Scratch, pattern, tcp_pair, wait_until};
use rustix::io::Errno;
use underpass_engine::{
    Chain, DeclineReason, Error, Integrity, Kind, Mechanism, Options, Policy, Progress, Report,
    Sink, Source, Status, Transfer, Usage, Wait, buffered, socket,
};
use underpass_sys::processor_time;
use underpass_testkit::{is_root, skip};

const LEN: usize = 1 << 20;
const PAGE: usize = 4096;

fn dev_null() -> File {
    File::options().write(true).open("/dev/null").unwrap()
}

fn assert_errno<T>(outcome: io::Result<T>, errno: Errno) {
    assert_eq!(outcome.err().and_then(|e| e.raw_os_error()), Some(errno.raw_os_error()));
}

/// Compiles only if values of the type may be sent to and shared with other threads.
const fn is_send<T: Send>() {}
const fn is_sync<T: Sync>() {}

const _: () = {
    is_send::<Transfer<'static, OwnedFd, OwnedFd>>();
    is_send::<Chain<File>>();
    is_send::<Error>();
    is_sync::<Error>();
    is_send::<Report>();
    is_sync::<Report>();
    is_sync::<underpass_engine::Capabilities>();
    is_sync::<underpass_engine::PipePool>();
};

#[test]
fn a_transfer_can_move_to_another_thread() {
    let scratch = Scratch::new();
    for mechanism in [Mechanism::Sendfile, Mechanism::Splice, Mechanism::Mmap] {
        let file = File::open(scratch.file("source", LEN)).unwrap();
        let sink = File::create(scratch.path("sink")).unwrap();
        let mut transfer = Transfer::new(Source::of(file).unwrap(), Sink::of(sink).unwrap())
            .options(Options::default().policy(Policy::Require(mechanism)).step(PAGE).turn(1));
        while transfer.report().bytes() < LEN as u64 {
            // It takes a mapping, a pipe or a cursor along.
            transfer = thread::spawn(move || {
                for _ in 0..50 {
                    transfer.advance().unwrap();
                }
                transfer
            })
            .join()
            .unwrap();
        }
        assert_eq!(transfer.advance().unwrap(), Status::Done);
        assert!(fs::read(scratch.path("sink")).unwrap() == pattern(LEN), "{mechanism}");
    }
}

#[test]
fn unacknowledged_bytes_are_counted() {
    let (mut near, mut far) = UnixStream::pair().unwrap();
    assert_eq!(socket::unacknowledged(&near).unwrap(), 0);
    near.write_all(&[1; 5000]).unwrap();
    // A Unix socket also counts the kernel's own memory.
    assert!(socket::unacknowledged(&near).unwrap() >= 5000);
    far.read_exact(&mut [0; 5000]).unwrap();
    assert_eq!(socket::unacknowledged(&near).unwrap(), 0);

    let (sender, mut reader) = tcp_pair();
    sender.set_nonblocking(true).unwrap();
    let sent: usize = std::iter::from_fn(|| (&sender).write(&[1; PAGE]).ok()).sum();
    let waiting = socket::unacknowledged(&sender).unwrap();
    assert!((1..sent as u64).contains(&waiting), "{waiting} of {sent}");
    reader.read_exact(&mut vec![0; sent]).unwrap();
    wait_until("all is acknowledged", || socket::unacknowledged(&sender).unwrap() == 0);

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert_errno(socket::unacknowledged(&listener), Errno::INVAL);
}

#[test]
fn usage_grows_with_work() {
    let before = Usage::of_this_thread();
    let zeros = File::open("/dev/zero").unwrap();
    let work = || {
        let source = Source::of(&zeros).unwrap().len(64 << 20);
        let options = Options::default().policy(Policy::Require(Mechanism::ReadWrite));
        Transfer::new(source, Sink::of(dev_null()).unwrap()).options(options).run().unwrap()
    };
    let report = work();
    // Clock ticks may be as long as 10 milliseconds.
    while (Usage::of_this_thread() - before).system < Duration::from_millis(30) {
        work();
    }
    thread::sleep(Duration::from_millis(1));
    // More than an allocator reuses, so it is mapped anew.
    std::hint::black_box(vec![1u8; 64 << 20]);
    let spent = Usage::of_this_thread() - before;
    assert!(spent.voluntary_switches >= 1);
    assert!(spent.minor_faults >= 1);
    let reported = report.usage().unwrap();
    assert!(reported.system <= spent.system && reported.user <= spent.user);
    // Another thread's work is not ours.
    let idle = thread::spawn(Usage::of_this_thread).join().unwrap();
    assert!(idle.system + idle.user < spent.system + spent.user);
}

#[test]
fn the_time_of_a_process_has_all_of_its_threads_in_it() {
    let me = std::process::id();
    let before = processor_time(me).unwrap();
    let busy = || {
        let total = || Usage::of_this_thread().user + Usage::of_this_thread().system;
        while total() < Duration::from_millis(30) {}
    };
    thread::spawn(busy).join().unwrap();
    let spent = processor_time(me).unwrap() - before;
    assert!(spent >= Duration::from_millis(30), "the thread has ended, its time counts: {spent:?}");

    let mut child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    wait_until("the child has ended", || fs::read_to_string(&stat).unwrap().contains(") Z "));
    let ended = processor_time(child.id()).unwrap();
    assert!(ended > Duration::ZERO, "nobody has waited for it yet");
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(processor_time(child.id()).is_err());
    assert!(processor_time(u32::MAX).is_err());
}

#[test]
fn a_turn_ends_after_its_bytes() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("source", LEN)).unwrap();
    let mut transfer = Transfer::new(Source::of(&file).unwrap(), Sink::of(dev_null()).unwrap())
        .options(Options::default().step(PAGE).turn(10 * PAGE as u64));
    let mut turns = 0;
    while transfer.advance().unwrap() == Status::Yielded {
        turns += 1;
        assert_eq!(transfer.report().bytes(), turns * 10 * PAGE as u64);
    }
    assert_eq!(turns, (LEN as u64 - 1) / (10 * PAGE as u64));
    assert_eq!(transfer.report().bytes(), LEN as u64);
    assert_eq!(transfer.advance().unwrap(), Status::Done);
}

#[test]
fn a_transfer_that_advances_says_what_it_waits_for() {
    let (out, mut into) = io::pipe().unwrap();
    let (near, mut far) = UnixStream::pair().unwrap();
    rustix::io::ioctl_fionbio(&out, true).unwrap();
    near.set_nonblocking(true).unwrap();
    let mut transfer = Transfer::new(Source::of(&out).unwrap(), Sink::of(&near).unwrap());
    assert_eq!(transfer.advance().unwrap(), Status::Waiting(Wait::Source));
    let writer = thread::spawn(move || into.write_all(&pattern(LEN)).unwrap());
    wait_until("the sink is full", || transfer.advance().unwrap() == Status::Waiting(Wait::Sink));
    let reader = thread::spawn(move || {
        let mut bytes = vec![0; LEN];
        far.read_exact(&mut bytes).unwrap();
        bytes
    });
    wait_until("all is moved", || transfer.advance().unwrap() == Status::Done);
    writer.join().unwrap();
    assert!(reader.join().unwrap() == pattern(LEN));
    assert!(transfer.report().waits() >= 2);
}

#[test]
fn the_observer_is_called_rarely_and_at_the_end() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("source", LEN)).unwrap();
    let mut reported: Vec<Progress> = Vec::new();
    let mut transfer = Transfer::new(Source::of(&file).unwrap(), Sink::of(dev_null()).unwrap())
        .options(Options::default().step(PAGE).turn(PAGE as u64).observer(|progress| {
            reported.push(*progress);
        }));
    while transfer.advance().unwrap() != Status::Done {
        thread::sleep(Duration::from_micros(500));
    }
    drop(transfer);
    let last = reported.pop().unwrap();
    assert_eq!((last.bytes, last.expected), (LEN as u64, Some(LEN as u64)));
    assert!(!reported.is_empty() && reported.len() < LEN / PAGE, "{}", reported.len());
    for pair in reported.windows(2) {
        assert!(pair[0].bytes < pair[1].bytes);
        // Both clocks of a pair are read a moment apart.
        let apart = pair[1].elapsed - pair[0].elapsed;
        assert!(apart >= Progress::INTERVAL - Duration::from_millis(1), "{apart:?}");
    }
}

#[test]
fn reports_add_up() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("source", LEN)).unwrap();
    let copy = || {
        let sink = File::options().append(true).create(true).open(scratch.path("sink")).unwrap();
        let options = Options::default().policy(Policy::Prefer(Mechanism::Sendfile));
        let (source, sink) = (Source::of(&file).unwrap(), Sink::of(&sink).unwrap());
        Transfer::new(source, sink).options(options).run().unwrap()
    };
    let (first, second) = (copy(), copy());
    let mut sum = first.clone();
    sum.add(&second);
    assert_eq!(sum.bytes(), 2 * LEN as u64);
    assert_eq!(sum.by(Mechanism::ReadWrite).bytes, 2 * LEN as u64);
    assert_eq!(sum.calls(), first.calls() + second.calls());
    assert_eq!(sum.user_space_bytes(), 4 * LEN as u64);
    assert_eq!(sum.elapsed(), first.elapsed() + second.elapsed());
    assert_eq!(sum.usage(), Some(first.usage().unwrap() + second.usage().unwrap()));
    let [decline] = sum.declined() else { panic!("{:?}", sum.declined()) };
    assert_eq!((decline.what.name(), decline.at, decline.times), ("sendfile", 0, 2));
    assert_eq!(decline.reason, DeclineReason::Errno(Errno::INVAL));

    let mut later = Report::default();
    let header = Chain::<File>::new().bytes(&b"header"[..]);
    later.add(&Transfer::new(header, Sink::of(dev_null()).unwrap()).run().unwrap());
    later.add(&first);
    assert_eq!(later.declined()[0].at, 6);
    assert_eq!(later.memory().bytes, 6);
}

#[test]
fn a_sum_of_reports_has_the_weakest_integrity() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("source", PAGE)).unwrap();
    let copy = |level| {
        let sink = File::create(scratch.path("sink")).unwrap();
        let (source, sink) = (Source::of(&file).unwrap(), Sink::of(&sink).unwrap());
        Transfer::new(source, sink).options(Options::default().integrity(level)).run().unwrap()
    };
    let (fast, detect) = (copy(Integrity::Fast), copy(Integrity::Detect));
    for parts in [[&fast, &detect], [&detect, &fast]] {
        let mut sum = Report::default();
        parts.iter().for_each(|part| sum.add(part));
        assert_eq!(sum.integrity(), Integrity::Fast);
    }
    let mut sum = Report::default();
    sum.add(&detect);
    // A report of nothing leaves the level as it is.
    sum.add(&Report::default());
    assert_eq!(sum.integrity(), Integrity::Detect);
}

#[test]
fn bytes_through_the_buffer_of_the_caller_are_counted_by_the_engine() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("source", LEN)).unwrap();
    let sink = scratch.file("sink", 0);
    let copy = File::options().read(true).write(true).open(&sink).unwrap();
    let (mut report, mut buffer) = (Report::default(), vec![0; LEN + 1]);
    let have = buffered::read_whole(&file, LEN, &mut buffer, &mut report).unwrap();
    assert_eq!((have, report.bytes(), report.user_space_bytes()), (Some(LEN), 0, LEN as u64));
    buffered::write_all(&copy, &buffer[..PAGE], &mut report).unwrap();
    buffered::write_at(&copy, &buffer[PAGE..LEN], PAGE as u64, &mut report).unwrap();
    assert_eq!((report.bytes(), report.user_space_bytes()), (LEN as u64, 2 * LEN as u64));
    assert_eq!(report.by(Mechanism::ReadWrite).calls, report.calls());
    assert_eq!(fs::read(&sink).unwrap(), pattern(LEN));

    let mut compared = Report::default();
    let have = buffered::read_at(&copy, &mut buffer, 1, &mut compared).unwrap();
    assert_eq!((have, compared.calls()), (LEN - 1, 1));
    assert_eq!((compared.bytes(), compared.user_space_bytes()), (0, LEN as u64 - 1));

    let mut received = Report::default();
    buffered::write_received(&copy, b"header", 3, 2, &mut received).unwrap();
    assert_eq!((received.bytes(), received.user_space_bytes(), received.calls()), (6, 12, 3));
    let error = buffered::write_all(&File::open("/dev/null").unwrap(), b"x", &mut received);
    assert_eq!(error, Err(Errno::BADF));
    assert_eq!((received.bytes(), received.calls()), (6, 4));
}

#[test]
fn a_file_that_is_not_as_long_as_its_facts_say_is_left_to_the_engine() {
    let scratch = Scratch::new();
    let (mut report, mut buffer) = (Report::default(), vec![0; PAGE]);
    let path = scratch.file("source", 100);
    for promised in [101, PAGE] {
        let file = File::open(&path).unwrap();
        let outcome = buffered::read_whole(&file, promised, &mut buffer, &mut report);
        assert_eq!(outcome, Ok(None), "{promised}");
    }
    let long = File::open(scratch.file("long", PAGE + 1)).unwrap();
    assert_eq!(buffered::read_whole(&long, 0, &mut buffer, &mut report), Ok(None));
    // The bytes that were read count all the same.
    assert_eq!((report.bytes(), report.user_space_bytes()), (0, 2 * 100 + PAGE as u64));
    // procfs gives a page at a time.
    let maps = File::open("/proc/self/smaps").unwrap();
    let mut large = vec![0; LEN];
    let have = buffered::read_whole(&maps, 0, &mut large, &mut report).unwrap().unwrap();
    assert!(have > PAGE, "{have}");
    // Without a promise, the whole file is whatever there is.
    let file = File::open(&path).unwrap();
    assert_eq!(buffered::read_whole(&file, 0, &mut buffer, &mut report), Ok(Some(100)));
}

#[test]
fn ends_without_a_byte_stream_are_refused() {
    let folder = File::open("/").unwrap();
    assert_errno(Source::of(&folder), Errno::ISDIR);
    assert_errno(Sink::of(&folder), Errno::ISDIR);
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_errno(Sink::of(&udp), Errno::PROTOTYPE);
    let (datagrams, _peer) = UnixDatagram::pair().unwrap();
    assert_errno(Sink::of(&datagrams), Errno::PROTOTYPE);
}

#[test]
fn each_kind_of_end_is_recognized() {
    let scratch = Scratch::new();
    let (near, _far) = UnixStream::pair().unwrap();
    let (out, _into) = io::pipe().unwrap();
    let kind = |fd: &dyn AsFd| Source::of(fd.as_fd()).unwrap().kind();
    assert_eq!(kind(&File::open(scratch.file("file", 1)).unwrap()), Kind::Regular);
    assert_eq!(kind(&File::open(scratch.file("empty", 0)).unwrap()), Kind::Regular);
    assert_eq!(kind(&File::open("/proc/self/status").unwrap()), Kind::Virtual);
    assert_eq!(kind(&File::open("/dev/zero").unwrap()), Kind::CharDevice);
    assert_eq!(kind(&near), Kind::Socket);
    assert_eq!(kind(&out), Kind::Pipe);
    assert_eq!(Sink::of(&near).unwrap().kind(), Kind::Socket);
}

#[test]
fn ranges_count_from_the_offset() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("source", 1000)).unwrap();
    let source = || Source::of(&file).unwrap();
    assert_eq!(source().promised(), Some(1000));
    assert_eq!(source().at(300).promised(), Some(700));
    assert_eq!(source().at(300).at(100).promised(), Some(900));
    assert_eq!(source().at(2000).promised(), Some(0));
    assert_eq!(source().at(300).len(50).promised(), Some(50));
    assert_eq!(source().len(50).at(30).promised(), Some(20));
    let (out, _into) = io::pipe().unwrap();
    assert_eq!(Source::of(&out).unwrap().at(300).promised(), None);
    assert_eq!(Source::range(&file, 5, 6).promised(), Some(6));

    let sink = File::create_new(scratch.path("sink")).unwrap();
    let chain = Chain::new().source(source().at(10).len(20)).source(source().at(990));
    let report = Transfer::new(chain, Sink::of(&sink).unwrap().at(5)).run().unwrap();
    assert_eq!(report.bytes(), 30);
    let all = pattern(1000);
    let expected = [&[0; 5][..], &all[10..30], &all[990..]].concat();
    assert_eq!(fs::read(scratch.path("sink")).unwrap(), expected);
}

#[test]
fn nothing_to_move_is_done_at_once() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("empty", 0)).unwrap();
    for level in Integrity::ALL {
        for policy in [Policy::Auto, Policy::Prefer(Mechanism::Mmap)] {
            let (sender, _reader) = tcp_pair();
            let chain = Chain::new().bytes(&b""[..]).source(Source::of(&file).unwrap());
            assert!(chain.is_empty());
            let mut last = None;
            let options = Options::default().policy(policy).integrity(level);
            let report = Transfer::new(chain, Sink::of(&sender).unwrap())
                .options(options.observer(|progress| last = Some(progress.bytes)))
                .run()
                .unwrap();
            assert_eq!((report.bytes(), report.calls()), (0, 0));
            assert_eq!(last, Some(0));
        }
    }
    let none = Chain::<File>::new();
    assert_eq!(Transfer::new(none, Sink::of(dev_null()).unwrap()).run().unwrap().bytes(), 0);
}

#[test]
fn a_block_device_is_moved_from_its_first_byte_to_its_last() {
    let scratch = Scratch::new();
    let image = scratch.file("image", LEN);
    if !is_root() {
        return skip("only root may make loop devices");
    }
    let output = Command::new("losetup").args(["-r", "-f", "--show"]).arg(image).output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        return skip("losetup makes no loop device");
    };
    let device = Loop(String::from_utf8(output.stdout).unwrap().trim().to_owned());
    let block = File::open(&device.0).unwrap();
    let source = Source::of(&block).unwrap();
    assert_eq!((source.kind(), source.promised()), (Kind::Block, Some(LEN as u64)));
    let sink = File::create_new(scratch.path("sink")).unwrap();
    let chain = Chain::new().source(source);
    let report = Transfer::new(chain, Sink::of(&sink).unwrap()).run().unwrap();
    assert_eq!(report.by(Mechanism::Sendfile).bytes, LEN as u64);
    assert!(fs::read(scratch.path("sink")).unwrap() == pattern(LEN));
}

/// A loop device that is detached when its test ends.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn each_error_says_what_happened_and_how_far_it_came() {
    let scratch = Scratch::new();
    let moved = {
        let file = File::open(scratch.file("source", LEN)).unwrap();
        Transfer::new(Source::of(&file).unwrap(), Sink::of(dev_null()).unwrap()).run().unwrap()
    };
    let report = || Box::new(moved.clone());
    let errno = |errno| DeclineReason::Errno(errno);
    let errors = [
        (Error::Cancelled { report: report() }, "interrupted after 1,048,576 bytes"),
        (
            Error::Declined {
                mechanism: Mechanism::Reflink,
                reason: errno(Errno::XDEV),
                report: report(),
            },
            "reflink is not available between these two ends (EXDEV)",
        ),
        (
            Error::IntegrityDeclined {
                level: Integrity::Lease,
                reason: errno(Errno::AGAIN),
                report: report(),
            },
            "integrity level lease is refused (EAGAIN: a program has the file open for writing)",
        ),
        (
            Error::Io {
                mechanism: Some(Mechanism::Splice),
                source: Errno::NOSPC.into(),
                report: report(),
            },
            "splice failed after 1,048,576 bytes: No space left on device",
        ),
        (
            Error::Io { mechanism: None, source: Errno::PIPE.into(), report: report() },
            "failed after 1,048,576 bytes: Broken pipe",
        ),
        (
            Error::SourceChanged { level: Integrity::Lease, report: report() },
            "a program opened the source for writing after 1,048,576 bytes, before the end",
        ),
        (
            Error::SourceChanged { level: Integrity::Detect, report: report() },
            "the source changed during the transfer, after 1,048,576 bytes",
        ),
        (
            Error::SourceEnded { expected: 2_000_000, report: report() },
            "the source ended after 1,048,576 of 2,000,000 bytes",
        ),
        (
            Error::Stalled { timeout: Duration::from_secs(30), report: report() },
            "too little progress in 30s, after 1,048,576 bytes",
        ),
    ];
    for (error, sentence) in errors {
        assert_eq!(error.to_string(), sentence);
        assert_eq!(error.bytes(), LEN as u64);
        let is_io = matches!(error, Error::Io { .. });
        assert_eq!(std::error::Error::source(&error).is_some(), is_io);
    }
}

#[test]
fn a_paced_socket_takes_its_time() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("source", LEN)).unwrap();
    let (sender, mut receiver) = tcp_pair();
    socket::set_pacing_rate(&sender, (LEN * 2) as u64).unwrap();
    let reader = thread::spawn(move || receiver.read_exact(&mut vec![0; LEN]));
    let started = std::time::Instant::now();
    let options = Options::default().integrity(Integrity::Detect);
    let source = Source::of(&file).unwrap();
    Transfer::new(source, Sink::socket(&sender)).options(options).run().unwrap();
    reader.join().unwrap().unwrap();
    assert!(started.elapsed() > Duration::from_millis(250), "{:?}", started.elapsed());
}
