//! Two ends, and how bytes move between them: tested by moving some with the engine.
//!
//! A trial does with a few bytes what the commands would do with all: with the engine's order of
//! mechanisms and its fallback, and for small files like `cp`. So the doctor always agrees with
//! the commands.

pub(super) mod file_system;
pub(super) mod sharing;
pub(super) mod storage;
pub(super) mod verdict;

use std::io;
use std::thread;

use underpass_engine::hint::Plain;
use underpass_engine::{
    DeclineReason, Error, Integrity, Kind, Mechanism, Options, Policy, Report, Status, Transfer,
    Version, buffered,
};

use crate::doctor::ends::sample::{LEN, TrialFile};
use crate::doctor::ends::scratch::{MAX_POLLS, POLL_INTERVAL, Scratch};
use crate::doctor::ends::target::TrialTarget;
use crate::doctor::error::{DoctorError, Result};
use crate::probe;

/// The trials between two ends.
#[derive(Clone, Debug)]
pub struct PairTrials {
    /// The name of the source.
    pub from: String,
    /// The name of the target.
    pub to: String,
    /// Whether the target is a peer.
    pub is_stream: bool,
    /// Whether the target can be written to only at its end.
    pub appends: bool,
    /// The trial of what a command would do.
    pub way: Trial,
    /// A trial of each mechanism alone.
    pub alone: Vec<(Mechanism, Trial)>,
    /// A trial of each integrity level, if the source can have several versions.
    pub guards: Vec<(Integrity, Trial)>,
    /// Whether /proc is mounted.
    pub has_proc: bool,
}

/// The result of moving some bytes.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The engine's report.
    pub report: Report,
    /// The outcome of the trial.
    pub outcome: TrialOutcome,
}

/// The outcome of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialOutcome {
    /// The bytes arrived unchanged.
    Moved,
    /// Other bytes arrived.
    Differs,
    /// The kernel does not offer it for these two ends.
    Declined(DeclineReason),
    /// An error occurred.
    Failed(String),
}

impl PairTrials {
    /// Tries what a command would do, each mechanism alone, and each integrity level.
    pub(crate) fn gather(sample: &TrialFile, target: &TrialTarget) -> Result<Self> {
        let kind = sample.source()?.kind();
        let way = match buffered(sample, target)? {
            Some(trial) => trial,
            None => trial(sample, target, Options::default())?,
        };
        let only = |mechanism| Options::default().policy(Policy::Require(mechanism));
        let alone = Mechanism::ALL
            .into_iter()
            .map(|mechanism| Ok((mechanism, trial(sample, target, only(mechanism))?)))
            .collect::<Result<_>>()?;
        let levels = [Integrity::Lease, Integrity::Snapshot];
        let guards = levels
            .into_iter()
            .filter(|_| kind == Kind::Regular)
            .map(|level| {
                let options = Options::default().integrity(level);
                Ok((level, trial(sample, target, options)?))
            })
            .collect::<Result<_>>()?;
        let appends = target.scratch().is_ok_and(|scratch| {
            let flags = scratch.dest_file().and_then(|file| rustix::fs::fcntl_getfl(file).ok());
            flags.is_some_and(|flags| flags.contains(rustix::fs::OFlags::APPEND))
        });
        let (from, to) = (sample.name().to_owned(), target.name());
        let (is_stream, has_proc) = (target.is_stream(), probe::has_proc());
        Ok(Self { from, to, is_stream, appends, way, alone, guards, has_proc })
    }
}

impl Trial {
    fn failed(error: &io::Error) -> Self {
        Self { report: Report::default(), outcome: TrialOutcome::Failed(Plain(error).to_string()) }
    }
}

/// Copies a small file as `cp` does; returns `None` for a file that the engine moves.
fn buffered(sample: &TrialFile, target: &TrialTarget) -> Result<Option<Trial>> {
    let stat = sample.stat()?;
    if !target.is_copy() || !buffered::is_small(&stat) {
        return Ok(None);
    }
    let before = Version::of(sample.file()).ok();
    let mut buffer = vec![0; buffered::BUFFER];
    let promised = usize::try_from(stat.st_size).unwrap_or(0);
    let scratch = target.scratch()?;
    let mut report = Report::default();
    let copied = match buffered::read_whole(sample.file(), promised, &mut buffer, &mut report) {
        Ok(None) => return Ok(None),
        Ok(Some(have)) => match scratch.dest_file() {
            None => return Ok(None),
            Some(file) => buffered::write_all(file, &buffer[..have], &mut report).map(|()| have),
        },
        Err(errno) => Err(errno),
    };
    let have = match copied {
        Ok(copied) => copied,
        Err(errno) => return Ok(Some(Trial::failed(&errno.into()))),
    };
    let outcome = compared(sample, before, scratch.read_back(Vec::new(), have));
    Ok(Some(Trial { report, outcome }))
}

/// Moves some bytes. It fails only if no temporary sink can be created.
fn trial(sample: &TrialFile, target: &TrialTarget, options: Options<'_>) -> Result<Trial> {
    let scratch = match target.scratch() {
        Ok(scratch) => scratch,
        // A failed connection is a finding, and not the only one.
        Err(DoctorError::System { source, .. }) => return Ok(Trial::failed(&source)),
        Err(error) => return Err(error),
    };
    let before = Version::of(sample.file()).ok();
    let options = options.turn(LEN);
    let options = if target.is_copy() { options.reserve() } else { options };
    let mut arrived = Vec::new();
    let moved = run(sample, &scratch, options, &mut arrived)?;
    Ok(match moved {
        Ok(report) => {
            let len = usize::try_from(report.bytes()).unwrap_or(0);
            let outcome = compared(sample, before, scratch.read_back(arrived, len));
            Trial { report, outcome }
        }
        Err(error) => {
            let report = error.report().clone();
            let outcome = match error {
                Error::Declined { reason, .. } => TrialOutcome::Declined(reason),
                error => TrialOutcome::Failed(error.to_string()),
            };
            Trial { report, outcome }
        }
    })
}

fn compared(
    sample: &TrialFile,
    before: Option<Version>,
    arrived: io::Result<Vec<u8>>,
) -> TrialOutcome {
    match arrived {
        Ok(bytes) if sample.begins_with(&bytes, before) => TrialOutcome::Moved,
        Ok(_) => TrialOutcome::Differs,
        Err(error) => TrialOutcome::Failed(Plain(&error).to_string()),
    }
}

/// Runs the transfer, and reads what arrives whenever it has to wait.
fn run(
    sample: &TrialFile,
    scratch: &Scratch,
    options: Options<'_>,
    arrived: &mut Vec<u8>,
) -> Result<std::result::Result<Report, Error>> {
    let action = "looking at the sink";
    let sink = scratch.sink().map_err(|source| DoctorError::System { action, source })?;
    let mut transfer = Transfer::new(sample.source()?, sink).options(options);
    let mut looks = 0;
    let error = loop {
        match transfer.advance() {
            Ok(Status::Done) => return Ok(Ok(transfer.report().clone())),
            // A file of procfs may have no end.
            Ok(Status::Yielded) if transfer.report().bytes() >= LEN => {
                return Ok(Ok(transfer.report().clone()));
            }
            Ok(Status::Yielded) => continue,
            Ok(Status::Waiting(_)) => {}
            Err(error) => break error,
        }
        let report = || Box::new(transfer.report().clone());
        match scratch.drain(arrived) {
            Ok(true) => looks = 0,
            Ok(false) if looks == MAX_POLLS => {
                break Error::Stalled { timeout: MAX_POLLS * POLL_INTERVAL, report: report() };
            }
            Ok(false) => {
                looks += 1;
                thread::sleep(POLL_INTERVAL);
            }
            Err(source) => break Error::Io { mechanism: None, source, report: report() },
        }
    };
    Ok(Err(error))
}
