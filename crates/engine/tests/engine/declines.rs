//! Every result of the kernel for every mechanism, at the first byte and in the middle: either the
//! next mechanism continues at that very byte, or the transfer fails and reports its bytes.
//!
//! Which of the two is read from `docs/mechanisms.md`, so the tables there match the code.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::rig::ends::{
    Drain, From, Supply, To, another_file_system, crossings, file_with, movers, pattern,
    set_nonblocking, temporary_files_can_share_blocks,
};
use crate::rig::injection::{Call, advance_a_turn, advance_to_the_end, refusing};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use underpass_engine::{
    Capabilities, Chain, Decline, DeclineReason, Declined, Error, Mechanism, Options, Policy, Sink,
    Source, Status, Transfer, errno,
};
use underpass_testkit::skip;

const STEP: usize = 8 << 10;
const LEN: usize = 5 * STEP + 7;

/// A transfer whose mechanism the kernel is made to refuse.
struct Case {
    mechanism: Mechanism,
    sources: &'static [From],
    sink: To,
    policy: Policy,
    /// The mechanism that continues when it is refused.
    next: Mechanism,
    /// Bytes after which the kernel begins to refuse.
    turn: usize,
    /// The half of a splice through our pipe that is refused; `First` also if there is only one.
    refused: Half,
}

#[derive(Clone, Copy, PartialEq)]
enum Half {
    First,
    Second,
}

/// The effect of one result of the kernel.
enum Outcome {
    FellBack,
    Failed,
}

impl Case {
    const fn new(
        mechanism: Mechanism,
        sources: &'static [From],
        sink: To,
        next: Mechanism,
    ) -> Self {
        let policy = Policy::Auto;
        Self { mechanism, sources, sink, policy, next, turn: 2 * STEP, refused: Half::First }
    }

    /// Prefers the mechanism where it would not come first.
    const fn preferred(mut self) -> Self {
        self.policy = Policy::Prefer(self.mechanism);
        self
    }

    /// Makes the refusals begin with the second file, for mechanisms that move one file at once.
    const fn beginning_with_the_second_file(mut self) -> Self {
        self.turn = LEN;
        self
    }

    const fn in_the_second_half(mut self) -> Self {
        self.refused = Half::Second;
        self
    }

    fn call(&self, sink: BorrowedFd<'_>) -> Call {
        match self.mechanism {
            Mechanism::CopyFileRange => Call::COPY_FILE_RANGE,
            Mechanism::Mmap => Call::MAP_FILE,
            Mechanism::Reflink => Call::CLONE_RANGE,
            Mechanism::Sendfile => Call::SENDFILE,
            Mechanism::Splice if self.refused == Half::Second => Call::splice_into(sink),
            Mechanism::Splice => Call::SPLICE,
            Mechanism::ReadWrite => unreachable!("it never declines"),
        }
    }

    /// Makes the kernel return `errno` from the first byte on, or after a turn; checks that every
    /// byte is accounted for.
    fn inject(&self, errno: u32, midway: bool) -> Outcome {
        let case = format!("{} to {:?}: {errno}, midway {midway}", self.mechanism, self.sink);
        let supplies: Vec<_> = self.sources.iter().map(|from| Supply::new(*from, LEN)).collect();
        let expected: Vec<u8> = supplies.iter().flat_map(|supply| supply.bytes.clone()).collect();
        let drain = Drain::new(self.sink);
        let chain = supplies.iter().fold(Chain::new(), |chain, supply| {
            set_nonblocking(supply.fd());
            chain.source(supply.source())
        });
        set_nonblocking(drain.fd());
        let turn = self.turn as u64;
        let options = Options::default().policy(self.policy).step(STEP).turn(turn);
        let mut transfer = Transfer::new(chain, drain.sink()).options(options);
        let before = if midway { advance_a_turn(&mut transfer) } else { 0 };
        let by_next = if self.is_real(midway) { before } else { 0 };
        assert_eq!(transfer.report().by(self.next).bytes, by_next, "{case}");
        let call = self.call(drain.fd());
        let outcome = refusing(call, errno, || advance_to_the_end(&mut transfer));
        let report = transfer.report().clone();
        drop(transfer);
        match outcome {
            Ok(()) => {
                let what = Declined::Mechanism(self.mechanism);
                let refusal = refusal(errno);
                let is_it = |decline: &&Decline| decline.what == what && decline.reason == refusal;
                let decline = report.declined().iter().find(is_it).expect(&case);
                // The bytes that our pipe held by then are copied, and counted as copied.
                let held = decline.at.saturating_sub(before);
                assert_eq!(held > 0, self.refused == Half::Second, "{case}");
                assert!(held <= STEP as u64, "{case}");
                let rescued = held * decline.times;
                let len = expected.len() as u64;
                let copied = if self.next == Mechanism::ReadWrite { len - before } else { rescued };
                let crossed = before * crossings(self.mechanism) + 2 * copied;
                assert_eq!(report.bytes(), len, "{case}");
                assert_eq!(report.by(Mechanism::ReadWrite).bytes, copied, "{case}");
                assert_eq!(report.user_space_bytes(), crossed, "{case}");
                if !self.is_real(midway) {
                    assert_eq!(report.by(self.mechanism).bytes, before, "{case}");
                    assert!(report.by(self.next).bytes >= len - before - rescued, "{case}");
                }
                assert!(drain.finish(expected.len()).unwrap() == expected, "{case}: other bytes");
                Outcome::FellBack
            }
            Err(error) => {
                assert_eq!(error.bytes(), before, "{case}: {error}");
                match &error {
                    Error::Io { mechanism, source, .. } => {
                        assert_eq!(*mechanism, Some(self.mechanism), "{case}");
                        let real = if errno == 0 { libc::EIO } else { errno.cast_signed() };
                        assert_eq!(source.raw_os_error(), Some(real), "{case}");
                    }
                    Error::SourceEnded { .. } if is_an_end(self.mechanism, errno) => {}
                    other => panic!("{case}: {other}"),
                }
                drain.wait_for(before);
                let before = usize::try_from(before).unwrap();
                assert!(drain.finish(before).unwrap() == expected[..before], "{case}: other bytes");
                Outcome::Failed
            }
        }
    }

    /// Returns whether the file system itself already refuses the mechanism.
    fn is_real(&self, midway: bool) -> bool {
        midway && self.mechanism == Mechanism::Reflink
    }

    /// Returns the results that make it fall back, out of all that the kernel might return.
    fn declined_answers(&self, midway: bool) -> BTreeSet<String> {
        let can_be_zero = !matches!(self.mechanism, Mechanism::Reflink | Mechanism::Mmap);
        let answers = u32::from(!can_be_zero)..=HIGHEST_ERRNO;
        answers
            .filter(|answer| !self.is_no_refusal(*answer))
            .filter(|answer| matches!(self.inject(*answer, midway), Outcome::FellBack))
            .map(|answer| refusal(answer).name().into_owned())
            .collect()
    }

    /// Returns whether the result is an interruption or an unready end, tested elsewhere.
    fn is_no_refusal(&self, answer: u32) -> bool {
        let may_wait = matches!(self.mechanism, Mechanism::Sendfile | Mechanism::Splice);
        answer == libc::EINTR as u32 || (may_wait && answer == libc::EAGAIN as u32)
    }
}

fn refusal(answer: u32) -> DeclineReason {
    match answer {
        0 => DeclineReason::Nothing,
        errno => DeclineReason::Errno(Errno::from_raw_os_error(errno.cast_signed())),
    }
}

/// Returns whether this result means that the source has no more bytes.
fn is_an_end(mechanism: Mechanism, answer: u32) -> bool {
    answer == 0 || (mechanism == Mechanism::Mmap && answer == libc::EFAULT as u32)
}

/// EHWPOISON, the highest errno of Linux that leaves the kernel.
const HIGHEST_ERRNO: u32 = 133;

const FILES: &[From] = &[From::File, From::File];

#[test]
fn every_answer_to_reflink_falls_back_or_fails_as_documented() {
    // No file system can share blocks at an odd offset, so the second file is copied.
    let case = Case::new(Mechanism::Reflink, FILES, To::OddOffset, Mechanism::CopyFileRange)
        .beginning_with_the_second_file();
    for midway in [false, true] {
        assert_eq!(case.declined_answers(midway), documented(Mechanism::Reflink), "{midway}");
    }
}

#[test]
fn every_answer_to_copy_file_range_falls_back_or_fails_as_documented() {
    let case = Case::new(Mechanism::CopyFileRange, FILES, To::OddOffset, Mechanism::Sendfile);
    let mut documented = documented(Mechanism::CopyFileRange);
    assert_eq!(case.declined_answers(false), documented);
    // Once it has copied, the file system supports it, and these results are real.
    documented.retain(|answer| answer != "EIO" && answer != "0");
    assert_eq!(case.declined_answers(true), documented);
}

#[test]
fn every_answer_to_sendfile_falls_back_or_fails_as_documented() {
    let case = Case::new(Mechanism::Sendfile, FILES, To::Unix, Mechanism::Splice);
    for midway in [false, true] {
        assert_eq!(case.declined_answers(midway), documented(Mechanism::Sendfile), "{midway}");
    }
}

#[test]
fn every_answer_to_splice_falls_back_or_fails_as_documented() {
    let from_socket = Case::new(Mechanism::Splice, &[From::Unix], To::File, Mechanism::ReadWrite);
    let from_pipe = Case::new(Mechanism::Splice, &[From::Pipe], To::Unix, Mechanism::ReadWrite);
    let to_pipe = Case::new(Mechanism::Splice, FILES, To::Pipe, Mechanism::Sendfile);
    for case in [from_socket, from_pipe, to_pipe] {
        for midway in [false, true] {
            assert_eq!(case.declined_answers(midway), documented_for_splice(), "{midway}");
        }
    }
}

#[test]
fn bytes_in_the_pipe_are_copied_when_the_sink_refuses_them() {
    let to_file = Case::new(Mechanism::Splice, &[From::Unix], To::File, Mechanism::ReadWrite);
    let to_socket = Case::new(Mechanism::Splice, FILES, To::Unix, Mechanism::Sendfile).preferred();
    for case in [to_file.in_the_second_half(), to_socket.in_the_second_half()] {
        for midway in [false, true] {
            assert_eq!(case.declined_answers(midway), documented_for_splice(), "{midway}");
        }
    }
}

#[test]
fn every_errno_of_pipe2_declines_splice() {
    for answer in 1..=HIGHEST_ERRNO {
        let supply = Supply::new(From::Unix, LEN);
        let drain = Drain::new(To::File);
        let transfer = Transfer::new(supply.source(), drain.sink());
        let report = refusing(Call::MAKE_PIPE, answer, || transfer.run()).unwrap();
        let what = Declined::Mechanism(Mechanism::Splice);
        let reason = refusal(answer);
        assert_eq!(report.declined(), [Decline { what, reason, at: 0, times: 1 }]);
        assert_eq!(movers(&report), [Mechanism::ReadWrite]);
        assert!(drain.finish(LEN).unwrap() == supply.bytes);
    }
}

#[test]
fn every_answer_to_mmap_falls_back_or_fails_as_documented() {
    let case = Case::new(Mechanism::Mmap, FILES, To::Unix, Mechanism::Sendfile)
        .preferred()
        .beginning_with_the_second_file();
    for midway in [false, true] {
        assert_eq!(case.declined_answers(midway), documented(Mechanism::Mmap), "{midway}");
    }
}

/// Returns the documented results without those that only pipe2(2) returns.
fn documented_for_splice() -> BTreeSet<String> {
    let mut documented = documented(Mechanism::Splice);
    documented.retain(|answer| answer != "EMFILE" && answer != "ENFILE");
    documented
}

/// Returns the results in a mechanism's table of `docs/mechanisms.md`, and checks that the tests
/// named there exist.
fn documented(mechanism: Mechanism) -> BTreeSet<String> {
    let heading = format!("## {}\n", mechanism.name());
    let section = DOCUMENT.split_once(&heading).expect("a section").1;
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let (answer, rest) = row.split_once('`').unwrap();
        let test = rest.rsplit('`').nth(1).unwrap();
        assert!(TESTS.contains(&format!("fn {test}()")), "{mechanism}: no test {test}");
        answer.to_owned()
    })
    .collect()
}

const DOCUMENT: &str = include_str!("../../../../docs/mechanisms.md");
const TESTS: &str = concat!(include_str!("declines.rs"), include_str!("pipes.rs"));

#[test]
fn every_documented_errno_has_a_name() {
    for mechanism in Mechanism::ALL {
        for answer in documented(mechanism) {
            let is_known = (1..=HIGHEST_ERRNO).any(|raw| {
                errno::name(Errno::from_raw_os_error(raw.cast_signed())) == answer.as_str()
            });
            assert!(is_known || answer == "0", "{answer}");
        }
    }
    assert!(documented(Mechanism::ReadWrite).is_empty(), "it never declines");
}

/// A mechanism in use, between ends for which the ladder or the policy puts it first.
const AT_WORK: [(Mechanism, From, To, Policy); 5] = [
    (Mechanism::CopyFileRange, From::File, To::OddOffset, Policy::Auto),
    (Mechanism::Sendfile, From::File, To::Unix, Policy::Auto),
    (Mechanism::Splice, From::Unix, To::File, Policy::Auto),
    (Mechanism::Splice, From::File, To::Pipe, Policy::Auto),
    (Mechanism::Mmap, From::File, To::Unix, Policy::Prefer(Mechanism::Mmap)),
];

#[test]
fn an_interruption_moves_nothing_and_loses_nothing() {
    interrupt(libc::EINTR as u32, |status| status == Status::Yielded, &AT_WORK);
}

#[test]
fn an_end_that_is_not_ready_moves_nothing_and_loses_nothing() {
    // A file as the sink is always ready, so `EAGAIN` from it is an error.
    let at_work = [AT_WORK[1], AT_WORK[3]];
    interrupt(libc::EAGAIN as u32, |status| matches!(status, Status::Waiting(_)), &at_work);
}

#[test]
fn a_socket_for_which_the_kernel_has_no_memory_is_waited_for() {
    let supply = Supply::new(From::File, LEN);
    let drain = Drain::new(To::Unix);
    let options = Options::default().timeout(Duration::from_secs(2));
    let transfer = Transfer::new(supply.source(), drain.sink()).options(options);
    // The file can be read, and poll(2) reports the socket as ready.
    let outcome = refusing(Call::SENDFILE, libc::EAGAIN as u32, || transfer.run());
    assert!(matches!(outcome, Err(Error::Stalled { .. })), "{outcome:?}");
}

/// Makes the kernel return `errno` in the middle of a transfer, for one call or for one half of it.
fn interrupt(errno: u32, is_right: fn(Status) -> bool, at_work: &[(Mechanism, From, To, Policy)]) {
    for &(mechanism, from, to, policy) in at_work {
        for half in [Half::First, Half::Second] {
            let case = format!("{mechanism}, {from:?} to {to:?}");
            let supply = Supply::new(from, LEN);
            let drain = Drain::new(to);
            set_nonblocking(supply.fd());
            set_nonblocking(drain.fd());
            let first = Chain::new().bytes(&b"head"[..]).source(supply.source());
            let options = Options::default().policy(policy).step(STEP).turn(1);
            let mut transfer = Transfer::new(first, drain.sink()).options(options);
            let mut before = advance_a_turn(&mut transfer);
            if mechanism != Mechanism::Mmap {
                // A mapping is made once, at its first byte.
                before = advance_a_turn(&mut transfer);
            }
            let case_of = Case::new(mechanism, &[], to, mechanism);
            let call = match half {
                Half::First => case_of.call(drain.fd()),
                Half::Second => case_of.in_the_second_half().call(drain.fd()),
            };
            let status = refusing(call, errno, || {
                for _ in 0..3 {
                    assert!(is_right(transfer.advance().unwrap()), "{case}");
                }
                transfer.advance().unwrap()
            });
            assert!(is_right(status), "{case}");
            assert_eq!(transfer.report().bytes(), before, "{case}");
            advance_to_the_end(&mut transfer).unwrap();
            assert_eq!(transfer.report().by(mechanism).bytes, LEN as u64, "{case}");
            drop(transfer);
            let expected = [b"head", &supply.bytes[..]].concat();
            assert!(drain.finish(expected.len()).unwrap() == expected, "{case}: other bytes");
        }
    }
}

#[test]
fn a_decline_is_reported_even_after_the_last_byte() {
    for policy in [Policy::Prefer(Mechanism::Splice), Policy::Require(Mechanism::Splice)] {
        let supply = Supply::new(From::File, 1_000);
        let drain = Drain::new(To::Unix);
        let options = Options::default().policy(policy);
        let transfer = Transfer::new(supply.source(), drain.sink()).options(options);
        let call = Call::splice_into(drain.fd());
        let outcome = refusing(call, libc::EINVAL as u32, || transfer.run());
        let report = match (policy, &outcome) {
            (Policy::Prefer(_), Ok(report)) => report,
            (Policy::Require(_), Err(error @ Error::Declined { .. })) => error.report(),
            other => panic!("{other:?}"),
        };
        assert_eq!(report.by(Mechanism::ReadWrite).bytes, 1_000);
        assert_eq!((report.declined().len(), report.declined()[0].at), (1, 1_000));
        assert!(drain.finish(1_000).unwrap() == supply.bytes);
    }
}

#[test]
fn a_call_that_the_kernel_lacks_is_remembered_but_tried_if_required() {
    let known = Capabilities::new();
    let transfer = |policy| {
        let supply = Supply::new(From::File, LEN);
        let drain = Drain::new(To::Unix);
        let options = Options::default().policy(policy).capabilities(&known);
        let transfer = Transfer::new(supply.source(), drain.sink()).options(options);
        refusing(Call::SENDFILE, libc::ENOSYS as u32, || transfer.run())
    };
    assert!(!known.lacks(Mechanism::Sendfile));
    let first = transfer(Policy::Auto).unwrap();
    assert_eq!(first.by(Mechanism::Sendfile).calls, 1);
    assert!(known.lacks(Mechanism::Sendfile) && !known.lacks(Mechanism::Splice));
    let second = transfer(Policy::Prefer(Mechanism::Sendfile)).unwrap();
    assert_eq!(second.by(Mechanism::Sendfile).calls, 0);
    assert_eq!(second.declined(), []);
    let required = transfer(Policy::Require(Mechanism::Sendfile)).unwrap_err();
    assert_eq!(required.report().by(Mechanism::Sendfile).calls, 1);
}

#[test]
fn only_a_missing_call_is_remembered() {
    let known = Capabilities::new();
    let supply = Supply::new(From::File, LEN);
    let drain = Drain::new(To::Unix);
    let options = Options::default().capabilities(&known);
    let transfer = Transfer::new(supply.source(), drain.sink()).options(options);
    refusing(Call::SENDFILE, libc::EPERM as u32, || transfer.run()).unwrap();
    assert!(!known.lacks(Mechanism::Sendfile));
}

#[test]
fn a_sink_set_to_append_midway_is_written_to_the_end() {
    for (from, mechanism) in [
        (From::File, Mechanism::CopyFileRange),
        (From::Memfd, Mechanism::Sendfile),
        (From::Unix, Mechanism::Splice),
    ] {
        let supply = Supply::new(from, LEN);
        let sink = file_with(b"");
        set_nonblocking(supply.fd());
        let options = Options::default().policy(Policy::Prefer(mechanism));
        let options = options.step(STEP).turn(STEP as u64);
        let sink_end = Sink::of(&sink).unwrap();
        let mut transfer = Transfer::new(supply.source(), sink_end).options(options);
        let before = advance_a_turn(&mut transfer);
        fcntl_setfl(&sink, fcntl_getfl(&sink).unwrap() | OFlags::APPEND).unwrap();
        advance_to_the_end(&mut transfer).unwrap();
        let report = transfer.report();
        assert_eq!(report.by(mechanism).bytes, before, "{from:?}");
        assert_eq!(report.by(Mechanism::ReadWrite).bytes, LEN as u64 - before, "{from:?}");
        assert!(contents(&sink) == supply.bytes, "{from:?}: other bytes");
    }
}

#[test]
fn files_of_two_file_systems_are_sent_instead_of_copied() {
    let Some(elsewhere) = another_file_system() else {
        return skip("only one file system can be written to");
    };
    let bytes = pattern(LEN);
    let source = file_with(&bytes);
    let sink = tempfile::tempfile_in(elsewhere).unwrap();
    let report =
        Transfer::new(Source::of(&source).unwrap(), Sink::of(&sink).unwrap()).run().unwrap();
    let reason = DeclineReason::Errno(Errno::XDEV);
    let expected = [Mechanism::Reflink, Mechanism::CopyFileRange].map(|mechanism| Decline {
        what: Declined::Mechanism(mechanism),
        reason,
        at: 0,
        times: 1,
    });
    assert_eq!(report.declined(), expected);
    assert_eq!(movers(&report), [Mechanism::Sendfile]);
    assert_eq!(report.user_space_bytes(), 0);
    assert!(contents(&sink) == bytes);
}

#[test]
fn a_file_system_that_cannot_share_blocks_is_reported() {
    if temporary_files_can_share_blocks() {
        return skip("temporary files can share blocks");
    }
    let (source, sink) = (file_with(&pattern(LEN)), file_with(b""));
    let report =
        Transfer::new(Source::of(&source).unwrap(), Sink::of(&sink).unwrap()).run().unwrap();
    assert_eq!(report.declined()[0].what, Declined::Mechanism(Mechanism::Reflink));
    assert_eq!(report.declined()[0].reason, DeclineReason::Errno(Errno::OPNOTSUPP));
    assert_eq!(movers(&report), [Mechanism::CopyFileRange]);
}

#[test]
fn a_required_mechanism_that_is_excluded_is_declined() {
    for mechanism in Mechanism::ALL {
        let (source, sink) = (file_with(&pattern(LEN)), file_with(b""));
        let options = Options::default().policy(Policy::Require(mechanism)).unshared();
        let ends = (Source::of(&source).unwrap(), Sink::of(&sink).unwrap());
        let outcome = Transfer::new(ends.0, ends.1).options(options).run();
        if matches!(mechanism, Mechanism::Reflink | Mechanism::CopyFileRange) {
            let error = outcome.unwrap_err();
            let expected =
                format!("{mechanism} is not available between these two ends (excluded)");
            assert_eq!(error.to_string(), expected);
            assert!(matches!(error, Error::Declined { mechanism: it, .. } if it == mechanism));
            assert_eq!((error.bytes(), contents(&sink)), (0, Vec::new()));
        } else {
            assert_eq!(movers(&outcome.unwrap()), [mechanism]);
        }
    }
}

#[test]
fn procfs_declines_what_needs_a_size() {
    for mechanism in [Mechanism::Reflink, Mechanism::CopyFileRange, Mechanism::Mmap] {
        let supply = Supply::new(From::Procfs, 0);
        let drain = Drain::new(To::File);
        let options = Options::default().policy(Policy::Prefer(mechanism));
        let report = Transfer::new(supply.source(), drain.sink()).options(options).run().unwrap();
        let Decline { what, reason, .. } = report.declined()[0];
        assert_eq!(what, Declined::Mechanism(mechanism));
        let is_asked = mechanism == Mechanism::CopyFileRange;
        assert_eq!(reason == DeclineReason::UnsuitableEnds, !is_asked, "{mechanism}");
        assert_eq!(movers(&report), [Mechanism::Sendfile], "{mechanism}");
        assert!(drain.finish(supply.bytes.len()).unwrap() == supply.bytes);
    }
}

#[test]
fn a_mapping_that_ends_early_before_a_stream_says_what_was_expected_of_it() {
    let (file, stream) = (Supply::new(From::File, LEN), Supply::new(From::Unix, LEN));
    let drain = Drain::new(To::Unix);
    let chain = Chain::new().source(file.source()).source(Source::of(stream.fd()).unwrap());
    let options = Options::default().policy(Policy::Require(Mechanism::Mmap));
    let transfer = Transfer::new(chain, drain.sink()).options(options);
    let outcome = refusing(Call::MAP_FILE, libc::EFAULT as u32, || transfer.run());
    let expected = LEN as u64;
    assert!(
        matches!(outcome, Err(Error::SourceEnded { expected: it, .. }) if it == expected),
        "{outcome:?}"
    );
}

#[test]
fn a_short_source_is_an_error_with_every_mechanism() {
    for to in [To::File, To::Unix, To::Pipe] {
        for mechanism in Mechanism::ALL {
            let source = file_with(&pattern(LEN));
            let drain = Drain::new(to);
            let options = Options::default().policy(Policy::Prefer(mechanism)).step(STEP);
            let source = Source::of(&source).unwrap().len(LEN as u64 + 1);
            let error = Transfer::new(source, drain.sink()).options(options).run().unwrap_err();
            assert!(
                matches!(error, Error::SourceEnded { expected, .. } if expected == LEN as u64 + 1),
                "{mechanism}: {error}"
            );
            assert_eq!(error.bytes(), LEN as u64, "{mechanism}");
        }
    }
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, 0).unwrap();
    bytes
}
