//! What a machine allows, told as findings: what was seen, what it means, what to do about it.
//!
//! Each part of the machine has a module that gathers facts by trying, and a pure function from
//! facts to findings, so that every finding can be tested without the machine that it is about.

mod card;
mod file_system;
pub(crate) mod ktls;
mod machine;
mod pair;
mod place;
mod record;
mod sample;
mod scratch;
mod sharing;
mod storage;
mod target;
mod verdict;

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::failure::Result;
use record::PairRecord;
use sample::Sample;
use target::Target;

/// Tries what can be tried between two ends, and tells what came of it.
pub(crate) fn examine(from: Option<&Path>, to: Option<&OsStr>) -> Result<Diagnosis> {
    let target = Target::understand(to)?;
    let sample = Sample::take(from)?;
    let is_stream = target.is_stream();
    let pair = pair::Facts::gather(&sample, &target)?;
    let mut findings = verdict::findings(&pair);
    findings.extend(file_system::findings(&file_system::Facts::gather(&sample, &target)));
    findings.extend(storage::findings(&storage::Facts::gather(&sample, &target)));
    if is_stream {
        findings.push(sharing::finding(&sharing::gather(&sample)));
    }
    let host = match &target {
        Target::Host(host) => Some(host.as_str()),
        _ => None,
    };
    if host.is_some() || target == Target::Any {
        findings.extend(card::findings(&card::Facts::gather(host)?));
        findings.extend(ktls::findings(&ktls::Facts::gather()));
    }
    findings.extend(machine::findings(&machine::Facts::gather(is_stream)));
    Ok(Diagnosis { pair: Some(PairRecord::from(&pair)), ..Diagnosis::new(findings) })
}

/// Whether /proc is there, by which files without names get one and leases are taken.
fn has_proc() -> bool {
    Path::new("/proc/self/fd").exists()
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What was looked at, by a name that stays.
    pub(crate) name: &'static str,
    /// Whether it is as good as it can be.
    pub(crate) state: State,
    /// What was seen.
    pub(crate) finding: String,
    /// What that means for a transfer.
    pub(crate) consequence: String,
    /// What to do about it; absent if nothing has to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

/// How good something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// As good as it can be.
    Best,
    /// The best way is open, but something about it could be better.
    Limited,
    /// The best way is closed, and another is taken.
    Closed,
    /// It is not there, or not used, and nothing that was asked for is the worse for it.
    Unneeded,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Limited => "limited",
            Self::Closed => "closed",
            Self::Unneeded => "unneeded",
        }
    }
}

/// All that was found; as JSON, one object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Diagnosis {
    /// Whether every best way is open.
    open: bool,
    /// What was seen of the two ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pair: Option<PairRecord>,
    findings: Vec<Finding>,
}

impl Diagnosis {
    /// From the findings of all parts, in the order in which they are told.
    pub(crate) fn new(findings: Vec<Finding>) -> Self {
        let open = findings.iter().all(|finding| finding.state != State::Closed);
        Self { open, pair: None, findings }
    }

    /// How many ways are closed.
    pub(crate) fn closed(&self) -> usize {
        self.findings.iter().filter(|finding| finding.state == State::Closed).count()
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { name, state, finding, consequence, remedy } in &self.findings {
            writeln!(f, "{:<8} {name}: {finding}", state.name())?;
            writeln!(f, "{:<8} {consequence}", "")?;
            if let Some(remedy) = remedy {
                writeln!(f, "{:<8} -> {remedy}", "")?;
            }
        }
        Ok(())
    }
}
