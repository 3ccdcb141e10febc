use rustix::io::Errno;
use underpass_engine::{Report, buffered};

use super::*;
use crate::doctor::finding::{count_closed, text};

fn trial(outcome: TrialOutcome, copied: u64) -> Trial {
    let mut report = Report::default();
    if copied > 0 {
        let sink = std::fs::File::options().write(true).open("/dev/null").unwrap();
        let bytes = vec![1; usize::try_from(copied).unwrap()];
        buffered::write_received(&sink, &bytes, 0, 1, &mut report).unwrap();
    }
    Trial { report, outcome }
}

fn trials(way: Trial) -> PairTrials {
    PairTrials {
        from: "a".to_owned(),
        to: "b".to_owned(),
        is_stream: false,
        appends: false,
        way,
        alone: Vec::new(),
        guards: Vec::new(),
        has_proc: true,
    }
}

fn declined(errno: Errno) -> TrialOutcome {
    TrialOutcome::Declined(DeclineReason::Errno(errno))
}

#[test]
fn verdicts_of_open_and_closed_paths_match_the_snapshots() {
    let failed = TrialOutcome::Failed("Operation not permitted".to_owned());
    let stream = PairTrials { is_stream: true, ..trials(trial(failed.clone(), 0)) };
    let mut rendered = String::new();
    for (trials, closed) in [
        (trials(trial(TrialOutcome::Moved, 1000)), 0),
        (PairTrials { appends: true, ..trials(trial(TrialOutcome::Moved, 1000)) }, 1),
        (trials(trial(TrialOutcome::Differs, 1000)), 1),
        (trials(trial(failed, 0)), 1),
        (stream, 1),
    ] {
        let found = findings(&trials);
        assert_eq!(count_closed(&found), closed, "{found:?}");
        rendered += &text(&found);
    }
    assert_eq!(rendered, include_str!("../snapshots/ways.txt"));
}

#[test]
fn findings_about_single_mechanisms_and_guards_match_the_snapshots() {
    let alone = vec![
        (Mechanism::Reflink, trial(declined(Errno::OPNOTSUPP), 0)),
        (Mechanism::CopyFileRange, trial(TrialOutcome::Differs, 1000)),
        (Mechanism::Sendfile, trial(TrialOutcome::Failed("Input/output error".to_owned()), 0)),
        (Mechanism::ReadWrite, trial(TrialOutcome::Moved, 1000)),
    ];
    let guards = vec![
        (Integrity::Lease, trial(TrialOutcome::Moved, 1000)),
        (Integrity::Snapshot, trial(TrialOutcome::Failed("Input/output error".to_owned()), 0)),
    ];
    let trials = PairTrials { alone, guards, ..trials(trial(TrialOutcome::Moved, 1000)) };
    let rendered = text(&findings(&trials));
    assert_eq!(rendered, include_str!("../snapshots/mechanisms.txt"));
}

#[test]
fn a_failure_of_all_mechanisms_is_one_closed_finding() {
    let failed = || trial(TrialOutcome::Failed("Network is unreachable".to_owned()), 0);
    let alone = Mechanism::ALL.map(|mechanism| (mechanism, failed())).to_vec();
    let found = findings(&PairTrials { alone, ..trials(failed()) });
    assert_eq!(count_closed(&found), 1, "{found:?}");
    assert!(text(&found).contains("unneeded splice: fails as well: Network is"));
}

#[test]
fn each_refusal_has_a_remedy_that_fits() {
    let of = |mechanism, errno| remedy(mechanism, DeclineReason::Errno(errno));
    for mechanism in Mechanism::ALL {
        assert!(of(mechanism, Errno::PERM).contains("seccomp"), "{mechanism}");
        assert!(of(mechanism, Errno::NOSYS).contains("seccomp"), "{mechanism}");
        assert!(of(mechanism, Errno::XDEV).contains("one file system"), "{mechanism}");
    }
    assert!(of(Mechanism::Reflink, Errno::OPNOTSUPP).contains("btrfs"));
    assert!(remedy(Mechanism::CopyFileRange, DeclineReason::Nothing).contains("another file"));
    for (errno, word) in [(Errno::AGAIN, "writing"), (Errno::ACCESS, "owner")] {
        let remedy = guard_remedy(Integrity::Lease, DeclineReason::Errno(errno), true);
        assert!(remedy.contains(word), "{remedy}");
    }
    assert_eq!(guard_remedy(Integrity::Lease, DeclineReason::Nothing, false), "mount /proc");
}
