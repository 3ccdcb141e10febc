//! What each integrity level promises, while another process writes to the file.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::rig::scratch::{
    Held, Scratch, Shell, assert_reset, pattern, shell, tcp_pair, wait_until,
};
use rustix::io::Errno;
use underpass_engine::{
    DeclineReason, Declined, Error, Integrity, Mechanism, Options, Policy, Report, Sink, Source,
    Status, Transfer, Wait,
};
use underpass_testkit::is_root;
use underpass_testkit::mounts::{FileSystem, Mounted};

/// Many times what the buffers of a connection hold.
const LEN: usize = 4 << 20;

/// The bytes after which the writer begins.
const FIRST: usize = 1 << 20;

const OVERWRITE: &str = r#"dd if=/dev/zero of="$1" bs=1M count=4 conv=notrunc"#;

fn options(level: Integrity) -> Options<'static> {
    Options::default().integrity(level)
}

/// What the peer and the sender saw of a file that a shell changes in mid-transfer.
struct Seen {
    peer: std::io::Result<Vec<u8>>,
    sender: Result<Report, Error>,
}

fn disturb(level: Integrity, script: &str) -> Seen {
    let scratch = Scratch::new();
    let file = scratch.file("source", LEN);
    let other = scratch.file("other", LEN / 2);
    let mut held = Held::send(&file, options(level));
    held.read(FIRST);
    shell(script, &[&file, &other]).succeed();
    let (peer, sender) = held.finish();
    Seen { peer, sender }
}

/// Asserts that the old version arrived whole.
fn assert_old_version(seen: &Seen) {
    assert_eq!(seen.sender.as_ref().unwrap().bytes(), LEN as u64);
    assert!(*seen.peer.as_ref().unwrap() == pattern(LEN));
}

fn assert_changed(seen: &Seen, noticed_by: Integrity) {
    let error = seen.sender.as_ref().unwrap_err();
    assert!(
        matches!(error, Error::SourceChanged { level, .. } if *level == noticed_by),
        "{error:?}"
    );
    assert_reset(&seen.peer);
}

#[test]
fn fast_delivers_the_promised_length_of_a_file_that_is_written_to() {
    for script in [OVERWRITE, r#"cat "$2" >>"$1""#] {
        let seen = disturb(Integrity::Fast, script);
        assert_eq!(seen.sender.unwrap().bytes(), LEN as u64, "{script}");
        assert_eq!(seen.peer.unwrap().len(), LEN, "{script}");
    }
}

#[test]
fn fast_does_not_pass_a_truncated_file_off_as_whole() {
    let seen = disturb(Integrity::Fast, r#"truncate -s 2M "$1""#);
    let error = seen.sender.unwrap_err();
    assert!(matches!(error, Error::SourceEnded { expected, .. } if expected == LEN as u64));
    assert_eq!(error.bytes(), 2 << 20);
    assert_reset(&seen.peer);
}

#[test]
fn detect_notices_each_way_of_writing_in_place() {
    for script in [
        OVERWRITE,
        r#"printf x | dd of="$1" bs=1 seek=4000000 conv=notrunc"#,
        r#"cat "$2" >>"$1""#,
        r#"touch -d @1 "$1""#,
    ] {
        assert_changed(&disturb(Integrity::Detect, script), Integrity::Detect);
    }
}

#[test]
fn detect_does_not_pass_a_truncated_file_off_as_whole() {
    let seen = disturb(Integrity::Detect, r#"truncate -s 2M "$1""#);
    assert!(matches!(seen.sender, Err(Error::SourceEnded { .. })));
    assert_reset(&seen.peer);
}

#[test]
fn detect_lets_a_file_be_replaced_unlinked_or_given_a_second_name() {
    for script in [r#"mv "$2" "$1""#, r#"rm "$1""#, r#"ln "$1" "$1.second""#] {
        let seen = disturb(Integrity::Detect, script);
        assert_old_version(&seen);
        assert_eq!(seen.sender.unwrap().integrity(), Integrity::Detect);
    }
}

#[test]
fn detect_compares_with_the_version_whose_length_was_promised() {
    let scratch = Scratch::new();
    let path = scratch.file("source", 4096);
    let file = File::open(&path).unwrap();
    let source = Source::of(&file).unwrap();
    shell(r#"printf x | dd of="$1" bs=1 conv=notrunc"#, &[&path]).succeed();
    let sink = File::create(scratch.path("sink")).unwrap();
    let outcome =
        Transfer::new(source, Sink::of(&sink).unwrap()).options(options(Integrity::Detect)).run();
    assert!(matches!(outcome, Err(Error::SourceChanged { level: Integrity::Detect, .. })));
}

/// Returns whether a writer waits for the lease on this file to be released.
fn is_lease_breaking(file: &Path) -> bool {
    let inode = format!(":{} ", fs::metadata(file).unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|lock| lock.contains("BREAKING") && lock.contains(&inode))
}

/// Starts a writer that the kernel blocks until the lease on the file is released.
fn blocked_writer(script: &str, file: &Path) -> Shell {
    let mut writer = shell(script, &[file]);
    wait_until("the writer is blocked", || is_lease_breaking(file));
    assert!(writer.is_running());
    writer
}

#[test]
fn a_lease_holds_writers_up_until_the_peer_has_the_old_version() {
    for script in [OVERWRITE, r#": >"$1""#, r#"echo more >>"$1""#] {
        let scratch = Scratch::new();
        let file = scratch.file("source", LEN);
        let mut held = Held::send(&file, options(Integrity::Lease));
        held.read(FIRST);
        let mut writer = blocked_writer(script, &file);
        held.read(FIRST);
        assert!(writer.is_running(), "{script}");
        assert!(fs::read(&file).unwrap() == pattern(LEN), "{script}");
        let (peer, sender) = held.finish();
        let released = Instant::now();
        let seen = Seen { peer, sender };
        assert_old_version(&seen);
        assert_eq!(seen.sender.unwrap().integrity(), Integrity::Lease);
        writer.succeed();
        // The kernel alone would have let it proceed after 45 seconds.
        assert!(released.elapsed() < Duration::from_secs(10));
        assert!(fs::read(&file).unwrap() != pattern(LEN), "{script}");
    }
}

/// Returns what a peer gets that begins to read after the sender has finished and a writer has
/// changed the file.
fn read_late(level: Integrity, sink: impl AsFd + Send, mut reader: impl Read + AsFd) -> Seen {
    let scratch = Scratch::new();
    let path = scratch.file("source", SMALL);
    let file = File::open(&path).unwrap();
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let outcome = Transfer::new(Source::of(&file).unwrap(), Sink::of(&sink).unwrap())
                .options(options(level))
                .run();
            drop(sink);
            outcome
        });
        let is_here = |waiting| waiting == Ok(SMALL as u64);
        wait_until("all was handed over", || is_here(rustix::io::ioctl_fionread(&reader)));
        assert!(!sender.is_finished(), "{level}: the peer has read nothing yet");
        let blocked = match level {
            Integrity::Lease => Some(blocked_writer(OVERWRITE, &path)),
            _ => {
                shell(r#"printf x | dd of="$1" bs=1 conv=notrunc"#, &[&path]).succeed();
                None
            }
        };
        let mut bytes = Vec::new();
        let peer = reader.read_to_end(&mut bytes).map(|_| bytes);
        blocked.into_iter().for_each(Shell::succeed);
        Seen { peer, sender: sender.join().unwrap() }
    })
}

/// Fits into the buffers of every kind of stream.
const SMALL: usize = 32 << 10;

#[test]
fn a_lease_holds_until_a_peer_on_this_machine_has_read_what_it_was_given() {
    let (sender, reader) = tcp_pair();
    let (near, far) = UnixStream::pair().unwrap();
    let (out, into) = std::io::pipe().unwrap();
    for seen in [
        read_late(Integrity::Lease, sender, reader),
        read_late(Integrity::Lease, near, far),
        read_late(Integrity::Lease, into, out),
    ] {
        assert_eq!(seen.sender.unwrap().integrity(), Integrity::Lease);
        assert!(seen.peer.unwrap() == pattern(SMALL));
    }
}

#[test]
fn detect_notices_a_change_of_what_a_peer_on_this_machine_has_not_read() {
    let (sender, reader) = tcp_pair();
    assert_changed(&read_late(Integrity::Detect, sender, reader), Integrity::Detect);
    let (out, into) = std::io::pipe().unwrap();
    let seen = read_late(Integrity::Detect, into, out);
    assert!(matches!(seen.sender, Err(Error::SourceChanged { .. })));
}

#[test]
fn a_pipe_whose_reader_leaves_without_reading_is_an_error() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("source", SMALL)).unwrap();
    let (out, into) = std::io::pipe().unwrap();
    let mut transfer = Transfer::new(Source::of(&file).unwrap(), Sink::of(&into).unwrap())
        .options(options(Integrity::Detect));
    assert_eq!(transfer.advance().unwrap(), Status::Waiting(Wait::Acknowledgement));
    drop(out);
    // A program that another test starts holds a copy of the reader until its exec.
    let mut error = None;
    wait_until("the error", || {
        error = transfer.advance().err();
        error.is_some()
    });
    let error = error.unwrap();
    assert!(matches!(&error, Error::Io { source, .. } if is(source, Errno::PIPE)), "{error:?}");
}

fn is(error: &std::io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

#[test]
fn a_writer_proceeds_at_once_when_the_transfer_fails() {
    let scratch = Scratch::new();
    let file = scratch.file("source", LEN);
    let mut held = Held::send(&file, options(Integrity::Lease));
    held.read(FIRST);
    let writer = blocked_writer(OVERWRITE, &file);
    assert!(held.hang_up().is_err());
    let failed = Instant::now();
    writer.succeed();
    assert!(failed.elapsed() < Duration::from_secs(4));
}

#[test]
fn a_lease_is_given_up_if_a_slow_peer_would_hold_it_too_long() {
    let scratch = Scratch::new();
    let file = scratch.file("source", LEN);
    let mut held = Held::send(&file, options(Integrity::Lease));
    held.read(FIRST);
    let writer = blocked_writer(OVERWRITE, &file);
    let claimed = Instant::now();
    writer.succeed();
    assert!(claimed.elapsed() > Duration::from_secs(4), "the peer has some seconds");
    let (peer, sender) = held.finish();
    assert_changed(&Seen { peer, sender }, Integrity::Lease);
}

#[test]
fn a_broken_lease_sends_no_signal_that_could_end_the_program() {
    // Only default actions, so that a signal would be fatal here and now.
    // Of this thread: the first one blocks all signals for a moment whenever it starts another.
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    for signal in [libc::SIGIO, libc::SIGURG] {
        let bit = 1 << (signal - 1);
        for name in ["SigBlk:", "SigIgn:", "SigCgt:"] {
            assert_eq!(mask(name) & bit, 0, "{name} {signal}");
        }
    }
    let scratch = Scratch::new();
    let file = scratch.file("source", LEN);
    let mut held = Held::send(&file, options(Integrity::Lease));
    held.read(FIRST);
    let writer = blocked_writer(OVERWRITE, &file);
    assert_old_version(&{
        let (peer, sender) = held.finish();
        Seen { peer, sender }
    });
    writer.succeed();
}

/// Asserts that a lease is refused with this errno: changes are then detected, unless the policy
/// forbids that.
fn assert_lease_refused(file: &File, errno: Errno) {
    let sink = File::options().write(true).open("/dev/null").unwrap();
    let send = |policy| {
        Transfer::new(Source::of(file).unwrap(), Sink::of(&sink).unwrap())
            .options(options(Integrity::Lease).policy(policy))
            .run()
    };
    let report = send(Policy::Auto).unwrap();
    let decline = report.declined()[0];
    assert_eq!(decline.what, Declined::Integrity(Integrity::Lease));
    assert_eq!(decline.what.name(), "lease");
    assert_eq!(decline.reason, DeclineReason::Errno(errno));
    assert_eq!((decline.at, decline.times), (0, 1));
    assert_eq!(report.integrity(), Integrity::Detect);

    let error = send(Policy::Require(Mechanism::ReadWrite)).unwrap_err();
    assert_eq!(error.bytes(), 0);
    let Error::IntegrityDeclined { level, reason, .. } = error else { panic!("{error:?}") };
    assert_eq!((level, reason), (Integrity::Lease, DeclineReason::Errno(errno)));
}

#[test]
fn no_lease_is_granted_while_the_file_is_open_for_writing() {
    let scratch = Scratch::new();
    let path = scratch.file("source", SMALL);
    let mut writer = shell(r#"exec 3<>"$1"; : >"$1.open"; exec sleep 60"#, &[&path]);
    wait_until("the file is open", || scratch.path("source.open").exists());
    assert!(writer.is_running());
    assert_lease_refused(&File::open(path).unwrap(), Errno::AGAIN);
}

#[test]
fn no_lease_is_granted_on_a_file_of_another_user() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("source", SMALL)).unwrap();
    if !is_root() {
        return assert_lease_refused(&File::open("/etc/passwd").unwrap(), Errno::ACCESS);
    }
    let as_nobody = || {
        // SAFETY: the bare system call takes three numbers; it changes this thread alone, which
        // then also lacks CAP_LEASE, and which ends with the test.
        let result = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        assert_eq!(result, 0);
        assert_lease_refused(&file, Errno::ACCESS);
    };
    thread::scope(|scope| scope.spawn(as_nobody).join().unwrap());
}

#[test]
fn no_lease_counts_where_a_writer_may_have_a_mapping_of_another_file() {
    let Some(mounted) = Mounted::new(FileSystem::Overlay, 16) else { return };
    let file = mounted.root().join("source");
    fs::write(&file, pattern(SMALL)).unwrap();
    assert_lease_refused(&File::open(file).unwrap(), Errno::OPNOTSUPP);
}

const NOBODY: libc::uid_t = 65534;

#[test]
fn a_snapshot_keeps_the_old_version_whole_while_the_file_is_overwritten() {
    for kind in [FileSystem::Xfs, FileSystem::Btrfs] {
        let Some(mounted) = Mounted::new(kind, 300) else { continue };
        for script in [OVERWRITE, r#": >"$1""#, r#"echo more >>"$1""#] {
            let file = mounted.root().join("source");
            fs::write(&file, pattern(LEN)).unwrap();
            let mut held = Held::send(&file, options(Integrity::Snapshot));
            held.read(FIRST);
            shell(script, &[&file]).succeed();
            assert!(fs::read(&file).unwrap() != pattern(LEN), "{kind:?}: {script}");
            let (peer, sender) = held.finish();
            let seen = Seen { peer, sender };
            assert_old_version(&seen);
            assert_eq!(seen.sender.unwrap().integrity(), Integrity::Snapshot);
        }
        let left: Vec<_> = fs::read_dir(mounted.root()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}

#[test]
fn a_file_system_that_cannot_share_blocks_falls_back_to_detect() {
    for kind in [FileSystem::Ext4, FileSystem::Tmpfs] {
        let Some(mounted) = Mounted::new(kind, 16) else { continue };
        let file = mounted.root().join("source");
        fs::write(&file, pattern(LEN)).unwrap();
        let mut held = Held::send(&file, options(Integrity::Snapshot));
        held.read(FIRST);
        shell(OVERWRITE, &[&file]).succeed();
        let (peer, sender) = held.finish();
        let seen = Seen { peer, sender };
        assert_changed(&seen, Integrity::Detect);
        let error = seen.sender.unwrap_err();
        assert_eq!(error.report().integrity(), Integrity::Detect);
        let decline = error.report().declined()[0];
        assert_eq!(decline.what, Declined::Integrity(Integrity::Snapshot));
        assert_eq!(decline.reason, DeclineReason::Errno(Errno::OPNOTSUPP), "{kind:?}");
    }
}

#[test]
fn a_stream_needs_no_guard() {
    for level in Integrity::ALL {
        let (out, mut into) = std::io::pipe().unwrap();
        into.write_all(b"stream").unwrap();
        drop(into);
        let sink = File::options().write(true).open("/dev/null").unwrap();
        let report = Transfer::new(Source::of(&out).unwrap(), Sink::of(&sink).unwrap())
            .options(options(level))
            .run()
            .unwrap();
        assert_eq!((report.bytes(), report.integrity()), (6, Integrity::Fast));
        assert!(!report.declined().iter().any(|d| matches!(d.what, Declined::Integrity(_))));
    }
}
