//! Every kind of source to every kind of sink, by every mechanism, at critical lengths: the bytes
//! arrive in the right place by the mechanism that the report names.

use crate::rig::ends::{
    Drain, From, Supply, To, crossings, movers, temporary_files_can_share_blocks,
};
use underpass_engine::{Error, Mechanism, Options, Policy, Transfer};

const PAGE: usize = 4 << 10;
const STEP: usize = 32 << 10;
const PIPE: usize = 64 << 10;

/// Around a page, a step of the transfer, a default pipe and one of ours.
const LENGTHS: [usize; 9] =
    [0, 1, PAGE - 1, PAGE, PAGE + 1, PIPE, PIPE + 1, 3 * STEP + 7, (1 << 20) + 1];

/// The mechanisms that can move bytes between two ends on Linux 6.18, by the kernel's own table of
/// operations.
///
/// Reflink is left out: it depends on the file system and is tested in `file_systems.rs`.
fn is_offered(mechanism: Mechanism, from: From, to: To) -> bool {
    let is_file = matches!(from, From::File | From::Range | From::Memfd);
    let is_stream = matches!(from, From::Pipe | From::Tcp | From::Unix);
    let is_into_file = matches!(to, To::File | To::OddOffset);
    match mechanism {
        Mechanism::ReadWrite => true,
        Mechanism::Mmap => is_file,
        // Through our pipe, unless one end is a pipe.
        Mechanism::Splice => to != To::Append,
        // A socket has no pages, but into a pipe sendfile is splice. A pipe never has any.
        Mechanism::Sendfile if is_stream => from != From::Pipe && to == To::Pipe,
        Mechanism::Sendfile => to != To::Append,
        // A memfd is on another file system.
        Mechanism::CopyFileRange => matches!(from, From::File | From::Range) && is_into_file,
        Mechanism::Reflink => false,
    }
}

/// Returns the mechanism that `Policy::Auto` uses.
fn automatic(from: From, to: To) -> Mechanism {
    match (from, to) {
        (_, To::Append) => Mechanism::ReadWrite,
        (From::Pipe | From::Tcp | From::Unix, _) | (_, To::Pipe) => Mechanism::Splice,
        (From::File | From::Range, To::File | To::OddOffset) => Mechanism::CopyFileRange,
        _ => Mechanism::Sendfile,
    }
}

fn lengths_of(from: From) -> &'static [usize] {
    // The length of virtual files is fixed.
    if matches!(from, From::Procfs | From::Sysfs) { &[0] } else { &LENGTHS }
}

#[test]
fn a_required_mechanism_moves_all_or_is_declined_before_the_first_byte() {
    let can_share = temporary_files_can_share_blocks();
    for_each_pair(|from, to| {
        for mechanism in Mechanism::ALL {
            if mechanism == Mechanism::Reflink && can_share {
                continue;
            }
            for &len in lengths_of(from) {
                require(from, to, mechanism, len);
            }
        }
    });
}

fn require(from: From, to: To, mechanism: Mechanism, len: usize) {
    let case = format!("{len} bytes, {from:?} to {to:?} by {mechanism}");
    let supply = Supply::new(from, len);
    let (drain, len) = (Drain::new(to), supply.bytes.len());
    let options = Options::default().policy(Policy::Require(mechanism)).step(STEP);
    let outcome = Transfer::new(supply.source(), drain.sink()).options(options).run();
    // Nothing can be declined if there is nothing to move.
    if len > 0 && !is_offered(mechanism, from, to) {
        match outcome {
            Err(Error::Declined { mechanism: declined, report, .. }) => {
                assert_eq!((declined, report.bytes()), (mechanism, 0), "{case}");
                assert_eq!(report.user_space_bytes(), 0, "{case}");
            }
            other => panic!("{case} should have been declined: {other:?}"),
        }
        assert_eq!(drain.finish(0).unwrap_or_default(), b"", "{case}");
        return;
    }
    let report = outcome.unwrap_or_else(|error| panic!("{case}: {error}"));
    let moved = len as u64;
    assert_eq!(report.by(mechanism).bytes, moved, "{case}");
    assert_eq!(report.bytes(), moved, "{case}");
    assert_eq!(report.user_space_bytes(), moved * crossings(mechanism), "{case}");
    assert_eq!(report.declined(), [], "{case}");
    assert_eq!(report.calls() > 0, len > 0, "{case}");
    let got = drain.finish(len);
    assert!(got.is_none_or(|got| got == supply.bytes), "{case}: other bytes");
}

#[test]
fn the_cheapest_mechanism_that_the_kernel_offers_is_taken() {
    let can_share = temporary_files_can_share_blocks();
    for_each_pair(|from, to| {
        for &len in lengths_of(from) {
            let case = format!("{len} bytes, {from:?} to {to:?}");
            let supply = Supply::new(from, len);
            let (drain, len) = (Drain::new(to), supply.bytes.len());
            let report = Transfer::new(supply.source(), drain.sink()).run().unwrap();
            let expected = automatic(from, to);
            let ran = movers(&report);
            if expected == Mechanism::CopyFileRange && can_share {
                assert!(ran.iter().all(|ran| *ran <= expected), "{case}: {ran:?}");
            } else {
                let expected = if len == 0 { vec![] } else { vec![expected] };
                assert_eq!(ran, expected, "{case}");
            }
            assert_eq!(report.bytes(), len as u64, "{case}");
            let crossed = if to == To::Append { 2 * len as u64 } else { 0 };
            assert_eq!(report.user_space_bytes(), crossed, "{case}");
            let got = drain.finish(len);
            assert!(got.is_none_or(|got| got == supply.bytes), "{case}: other bytes");
        }
    });
}

#[test]
fn a_preferred_mechanism_moves_what_it_can_and_the_ladder_the_rest() {
    for_each_pair(|from, to| {
        for preferred in Mechanism::ALL {
            let case = format!("{from:?} to {to:?}, rather by {preferred}");
            let supply = Supply::new(from, 3 * STEP + 7);
            let (drain, len) = (Drain::new(to), supply.bytes.len());
            let options = Options::default().policy(Policy::Prefer(preferred)).step(STEP);
            let report =
                Transfer::new(supply.source(), drain.sink()).options(options).run().unwrap();
            assert_eq!(report.bytes(), len as u64, "{case}");
            if is_offered(preferred, from, to) {
                assert_eq!(report.by(preferred).bytes, len as u64, "{case}");
            } else if preferred != Mechanism::Reflink {
                assert_eq!(report.by(preferred).bytes, 0, "{case}");
                assert_eq!(report.declined()[0].what.name(), preferred.name(), "{case}");
            }
            let got = drain.finish(len);
            assert!(got.is_none_or(|got| got == supply.bytes), "{case}: other bytes");
        }
    });
}

/// Checks all pairs, spread over a few threads.
fn for_each_pair(check: impl Fn(From, To) + Sync) {
    std::thread::scope(|scope| {
        for sinks in [&To::ALL[..2], &To::ALL[2..4], &To::ALL[4..]] {
            let check = &check;
            scope.spawn(move || {
                for &to in sinks {
                    for from in From::ALL {
                        check(from, to);
                    }
                }
            });
        }
    });
}
