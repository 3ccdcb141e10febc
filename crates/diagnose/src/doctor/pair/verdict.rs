//! The findings about two ends: which mechanism a command would use, and why.

use underpass_engine::{DeclineReason, Declined, Integrity, Mechanism};

use super::{PairTrials, Trial, TrialOutcome};
use crate::doctor::finding::{Finding, FindingState};

/// Returns the findings for these trials: first the mechanism used, then each mechanism, then
/// each guard.
pub(crate) fn findings(trials: &PairTrials) -> Vec<Finding> {
    let mut findings = vec![way(trials)];
    findings.extend(trials.alone.iter().map(|(mechanism, trial)| of(trials, *mechanism, trial)));
    findings.extend(
        trials.guards.iter().map(|(level, trial)| of_guard(*level, trial, trials.has_proc)),
    );
    findings
}

/// Returns the finding about the mechanism that a command would use.
fn way(trials: &PairTrials) -> Finding {
    let found = match &trials.way.outcome {
        TrialOutcome::Moved => return open_way(trials),
        TrialOutcome::Differs => Finding::closed("way")
            .finding(format!("{} moved wrong bytes", movers(trials)))
            .consequence("copies and transfers of such files are wrong")
            .remedy("copy with --no-zero-copy, and compare with cp --verify"),
        TrialOutcome::Declined(_) => Finding::closed("way")
            .finding("everything was declined")
            .consequence("a command fails in the same way")
            .remedy(of_failure(trials)),
        TrialOutcome::Failed(why) => Finding::closed("way")
            .finding(why)
            .consequence("a command fails in the same way, or it could not be tried")
            .remedy(of_failure(trials)),
    };
    let finding = format!("{} to {}: {}", trials.from, trials.to, found.finding);
    found.finding(finding)
}

/// Returns the finding about that mechanism if the bytes arrived.
fn open_way(trials: &PairTrials) -> Finding {
    let report = &trials.way.report;
    let declined = declined(trials);
    let crossings = report.user_space_bytes().checked_div(report.bytes()).unwrap_or(0);
    let is_buffered = crossings > 0 && declined.is_empty() && !trials.appends;
    let refused: Vec<_> = declined
        .iter()
        .map(|(mechanism, refusal)| format!("{mechanism} was declined: {}", refusal.name()))
        .collect();
    let refused =
        if refused.is_empty() { String::new() } else { format!(" ({})", refused.join(", ")) };
    let consequence = match crossings {
        0 if report.bytes() == 0 => "there was nothing to move",
        0 => "no byte of the file enters user space",
        _ if is_buffered => "a file this small goes through a buffer, which takes the fewest calls",
        1 => "each byte of the file is copied once from user space into the kernel",
        _ => "each byte of the file is copied into user space and back",
    };
    let state = match (crossings > 0 && !is_buffered, declined.is_empty()) {
        (true, _) => FindingState::Closed,
        (false, true) => FindingState::Best,
        (false, false) => FindingState::Limited,
    };
    let remedy = (state != FindingState::Best).then(|| match declined.last() {
        _ if trials.appends => APPENDED.to_owned(),
        Some(&(mechanism, refusal)) => remedy(mechanism, refusal),
        None => of_failure(trials).to_owned(),
    });
    let finding = format!("{} to {}: {}{refused}", trials.from, trials.to, movers(trials));
    Finding { name: "way", state, finding, consequence: consequence.to_owned(), remedy }
}

/// Returns the mechanisms that moved the bytes.
fn movers(trials: &PairTrials) -> String {
    let movers = trials.way.report.mechanisms();
    let movers: Vec<_> = movers.map(|(mechanism, _)| mechanism.name()).collect();
    if movers.is_empty() { "nothing".to_owned() } else { movers.join(" and ") }
}

/// Returns the mechanisms that a command would have preferred to the one it uses.
fn declined(trials: &PairTrials) -> Vec<(Mechanism, DeclineReason)> {
    let declined = trials.way.report.declined().iter();
    declined
        .filter_map(|decline| match decline.what {
            Declined::Mechanism(mechanism) => Some((mechanism, decline.reason)),
            Declined::Integrity(_) => None,
        })
        .collect()
}

/// Returns the finding about one mechanism alone.
fn of(trials: &PairTrials, mechanism: Mechanism, trial: &Trial) -> Finding {
    let name = mechanism.name();
    match &trial.outcome {
        TrialOutcome::Moved => {
            let (bytes, calls) = (trial.report.bytes(), trial.report.calls());
            let times = if calls == 1 { "call" } else { "calls" };
            Finding::best(name)
                .finding(format!("moved {bytes} bytes in {calls} {times}"))
                .consequence(means(mechanism, trials.is_stream))
        }
        TrialOutcome::Declined(refusal) => {
            let finding = format!("declined ({})", refusal.name());
            if declined(trials).iter().any(|(missed, _)| *missed == mechanism) {
                Finding::limited(name)
                    .finding(finding)
                    .consequence("a transfer tries it first, and then the next mechanism")
                    .remedy(remedy(mechanism, *refusal))
            } else {
                Finding::unneeded(name)
                    .finding(finding)
                    .consequence("no transfer between these two needs it")
            }
        }
        TrialOutcome::Differs => Finding::closed(name)
            .finding("moved wrong bytes")
            .consequence("transfers by this mechanism are wrong")
            .remedy("choose another one with --mechanism"),
        // The error has its own finding already.
        outcome @ TrialOutcome::Failed(why) if *outcome == trials.way.outcome => {
            Finding::unneeded(name)
                .finding(format!("fails as well: {why}"))
                .consequence("see the finding about the way")
        }
        TrialOutcome::Failed(why) => Finding::closed(name)
            .finding(why)
            .consequence("transfers by this mechanism fail")
            .remedy(of_failure(trials)),
    }
}

/// Returns the benefit of a mechanism that works.
const fn means(mechanism: Mechanism, is_stream: bool) -> &'static str {
    match mechanism {
        Mechanism::Reflink => "a copy shares the blocks of its original: no byte moves at all",
        Mechanism::CopyFileRange => "the file system, or its server, copies by itself",
        Mechanism::Sendfile if is_stream => "the file's pages go to the socket as they are",
        Mechanism::Sendfile => "the kernel copies from file to file",
        Mechanism::Splice => "the file's pages go through a pipe within the kernel",
        Mechanism::Mmap => "each byte is copied once, from where the file is mapped",
        Mechanism::ReadWrite => {
            "each byte is copied twice, into a buffer and out of it; works everywhere"
        }
    }
}

/// Returns what can be done about a refusal.
fn remedy(mechanism: Mechanism, refusal: DeclineReason) -> String {
    use rustix::io::Errno;
    let DeclineReason::Errno(errno) = refusal else {
        return "name another file: the kernel cannot move this one by this mechanism".to_owned();
    };
    match (mechanism, errno) {
        (_, Errno::NOSYS | Errno::PERM) => {
            let call = match mechanism {
                Mechanism::Reflink => "ioctl(2) with FICLONERANGE",
                Mechanism::CopyFileRange => "copy_file_range(2)",
                Mechanism::Sendfile => "sendfile(2)",
                Mechanism::Splice => "splice(2) and pipe2(2)",
                Mechanism::Mmap => "mmap(2) of files",
                Mechanism::ReadWrite => "read(2) and write(2)",
            };
            format!("let the system call filter (seccomp) allow {call}, or run a newer kernel")
        }
        (_, Errno::XDEV) => "keep both on one file system".to_owned(),
        (Mechanism::Reflink, Errno::OPNOTSUPP | Errno::NOTTY) => {
            "XFS and btrfs share the blocks of copies".to_owned()
        }
        (_, Errno::ACCESS) => "a security module refuses it: ask the administrator".to_owned(),
        _ => "files of another file system may support it".to_owned(),
    }
}

/// Returns what can be done if no mechanism works.
const fn of_failure(trials: &PairTrials) -> &'static str {
    if trials.is_stream {
        "let this program open connections to 127.0.0.1 or ::1, read the file, and send"
    } else {
        "check that the file is readable, that there is space, and that the target is writable"
    }
}

/// Returns the finding about an integrity level.
fn of_guard(level: Integrity, trial: &Trial, has_proc: bool) -> Finding {
    let name = level.name();
    let refusal =
        trial.report.declined().iter().find_map(|decline| {
            (decline.what == Declined::Integrity(level)).then_some(decline.reason)
        });
    match (refusal, &trial.outcome, level) {
        (None, TrialOutcome::Moved, Integrity::Lease) => Finding::best(name)
            .finding("granted")
            .consequence("--integrity lease makes writers wait until the peer has everything"),
        (None, TrialOutcome::Moved, _) => Finding::best(name)
            .finding("the file can be cloned")
            .consequence("--integrity snapshot moves a clone, which no program can write to"),
        (Some(refusal), ..) => {
            let reason = if has_proc { level.meaning(refusal) } else { "/proc is not mounted" };
            Finding::limited(name)
                .finding(format!("refused ({}: {reason})", refusal.name()))
                .consequence("--integrity detect holds instead: a change makes a transfer fail")
                .remedy(guard_remedy(level, refusal, has_proc))
        }
        (None, outcome, _) => {
            let why = match outcome {
                TrialOutcome::Failed(why) => why,
                _ => "it could not be tried",
            };
            Finding::limited(name)
                .finding(why)
                .consequence("it is unknown whether it is available")
                .remedy("see the finding about the way")
        }
    }
}

fn guard_remedy(level: Integrity, refusal: DeclineReason, has_proc: bool) -> &'static str {
    use rustix::io::Errno;
    match (level, refusal) {
        _ if !has_proc => "mount /proc",
        (Integrity::Lease, DeclineReason::Errno(Errno::AGAIN)) => {
            "close it in programs that have it open for writing, or use --integrity detect"
        }
        (Integrity::Lease, DeclineReason::Errno(Errno::ACCESS)) => {
            "run as the file's owner, or with CAP_LEASE"
        }
        (Integrity::Lease, _) => "use --integrity detect, or a local file system",
        (_, DeclineReason::Errno(Errno::ACCESS | Errno::ROFS)) => {
            "let this user write to the file's folder, or use --integrity detect"
        }
        _ => "keep it on XFS or btrfs, or use --integrity detect",
    }
}

/// `O_APPEND`.
const APPENDED: &str = "only read_write writes to a file opened with O_APPEND: use > instead of \
                        >>, name the file, or recv --append";

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
