//! Traced programs: where they stop, and what the tracer sees.

#![allow(clippy::unwrap_used)]

use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use underpass_diagnose::trace::{
    CallBoundary, CallFilter, Filter, Program, Resume, TraceEvent, TraceStart, TraceStop, call,
    resume, wait,
};
use underpass_engine::Usage;

/// A wait for any child would take the children of other tests, too.
static ALONE: Mutex<()> = Mutex::new(());

/// A recorded call: its number, arguments and result.
type Seen = (i64, [u64; 6], Result<u64, Errno>);

/// Follows a program to its end: how it ended, what it called, and how its start was.
fn follow(words: &[&str], filter: Option<&Filter>) -> (TraceEvent, Vec<Seen>, TraceStart) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let words: Vec<_> = words.iter().map(|word| CString::new(*word).unwrap()).collect();
    let program = Program::start(&words, filter).unwrap();
    let (mut seen, mut begun) = (Vec::new(), None);
    let mut is_running = false;
    let mut start = None;
    loop {
        let (tid, event) = wait().unwrap().expect("an event before the end of the program");
        let TraceEvent::Stopped(stop) = event else {
            assert_eq!(tid, program.pid());
            return (event, seen, start.unwrap_or_else(|| program.started()));
        };
        let mut signal = 0;
        match stop {
            TraceStop::Exec => {
                is_running = true;
                start = Some(program.started());
            }
            TraceStop::Filter | TraceStop::Call if is_running => match call(tid).unwrap() {
                CallBoundary::Begins { number, arguments } => {
                    begun = Some((number.unwrap(), arguments))
                }
                CallBoundary::Ends(result) => {
                    seen.extend(begun.take().map(|(number, given)| (number, given, result)));
                }
            },
            TraceStop::Signal(number) => signal = number,
            _ => {}
        }
        let to_call = is_running && (filter.is_none() || begun.is_some());
        resume(tid, if to_call { Resume::ToCall } else { Resume::Free }, signal).unwrap();
    }
}

fn writes() -> Filter {
    Filter::new(&[(libc::SYS_write, CallFilter::Always)]).unwrap()
}

#[test]
fn a_program_stops_at_what_the_filter_names_and_nowhere_else() {
    let words = ["sh", "-c", "echo hello > /dev/null; echo > /dev/null; exit 3"];
    let (ended, seen, start) = follow(&words, Some(&writes()));
    assert_eq!(ended, TraceEvent::Exited(3));
    assert_eq!(start, TraceStart::Filtered);
    let told = seen.iter().map(|(number, given, result)| (*number, given[2], *result));
    let expected = [(libc::SYS_write, 6, Ok(6)), (libc::SYS_write, 1, Ok(1))];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[test]
fn without_a_filter_it_stops_everywhere() {
    let words = ["sh", "-c", "echo hello > /dev/null; echo bad >&-"];
    let (ended, seen, _) = follow(&words, None);
    assert!(matches!(ended, TraceEvent::Exited(_)), "{ended:?}");
    let by = |wanted: i64| seen.iter().filter(move |(number, ..)| *number == wanted);
    assert!(by(libc::SYS_mmap).count() > 0 && seen.len() > 20, "{seen:?}");
    assert!(by(libc::SYS_write).any(|(.., result)| *result == Ok(6)));
    assert!(by(libc::SYS_write).any(|(.., result)| *result == Err(Errno::BADF)), "{seen:?}");
}

#[test]
fn the_end_of_a_program_is_reported() {
    let (ended, ..) = follow(&["sh", "-c", "kill -KILL $$"], Some(&writes()));
    assert_eq!(ended, TraceEvent::Killed(libc::SIGKILL));
    let before = Usage::of_ended_children();
    let (ended, ..) = follow(&["sh", "-c", "kill -TERM $$"], Some(&writes()));
    assert_eq!(ended, TraceEvent::Killed(libc::SIGTERM));
    let after = Usage::of_ended_children();
    assert!(after.minor_faults > before.minor_faults, "a shell has page faults");
}

#[test]
fn a_program_that_cannot_be_started_reports_the_errno() {
    let (_, _, start) = follow(&["/no/such/program"], Some(&writes()));
    assert_eq!(start, TraceStart::Failed(Errno::NOENT));
    let (_, _, start) = follow(&["/"], None);
    assert_eq!(start, TraceStart::Failed(Errno::ACCESS));
}

#[test]
fn a_filter_that_the_kernel_refuses_is_reported_and_the_program_runs() {
    // More instructions than it takes (BPF_MAXINSNS).
    let watched: Vec<_> = (0..3000).map(|number| (number, CallFilter::Always)).collect();
    let (ended, _, start) = follow(&["true"], Filter::new(&watched).as_ref());
    assert_eq!((ended, start), (TraceEvent::Exited(0), TraceStart::Unfiltered));
}
