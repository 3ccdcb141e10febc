//! A file that is moved from a source to a target, and the preparation of each sample.

use std::fmt;
use std::path::{Path, PathBuf};

use super::context::{Context, Start};
use super::files::{Noise, RunFolder, digest, drop_cached, largest};
use super::process::Cores;
use super::schedule::{RunPlan, Verification};
use super::survey::survey;
use crate::error::Result;

/// The folders of source and target, and what samples need.
#[derive(Debug)]
pub(crate) struct SampleEnds<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) source: RunFolder,
    pub(crate) target: RunFolder,
    noise: Noise,
    /// Whether the source is to be out of the page cache.
    cold: bool,
    pub(crate) cores: Cores,
    pub(crate) sha256: String,
}

impl<'a> SampleEnds<'a> {
    /// Makes folders with room for the largest file, and plans to measure these sizes.
    pub(crate) fn open(
        start: Start<'a>,
        to: Option<&Path>,
        sizes: &[u64],
        cold: bool,
        no_count: bool,
    ) -> Result<(Self, RunPlan<'a>)> {
        let (largest, cores) = (largest(sizes), Cores::available());
        let Start { context, run } = start;
        let source = RunFolder::create(&run.dir)?;
        let target = RunFolder::create(to.unwrap_or(&run.dir))?;
        // Source and target in one folder share its space.
        source.require_space(largest.saturating_mul(if to.is_none() { 2 } else { 1 }))?;
        target.require_space(largest)?;
        let mut plan = RunPlan::new(start, sizes, survey(cores, source.path(), None));
        plan.arguments.cold = cold;
        plan.count_calls_unless(no_count, &source);
        let (noise, sha256) = (Noise::new(largest)?, String::new());
        Ok((Self { context, source, target, noise, cold, cores, sha256 }, plan))
    }

    pub(crate) fn from(&self) -> PathBuf {
        self.source.file("source")
    }

    pub(crate) fn to(&self) -> PathBuf {
        self.target.file("target")
    }

    pub(crate) fn create_source(&mut self, size: u64) -> Result<()> {
        self.sha256 = self.noise.write(&self.from(), size)?;
        Ok(())
    }

    /// Drops the source from the page cache, if it is to be cold.
    pub(crate) fn evict(&self) -> Result<()> {
        if self.cold { drop_cached(&self.from()) } else { Ok(()) }
    }

    /// Removes the target, and drops the source from the page cache if it is to be cold.
    pub(crate) fn reset(&self) -> Result<()> {
        self.target.clear(&self.to())?;
        self.evict()
    }

    /// Compares the target with the source, and removes it.
    pub(crate) fn verify(&self, what: impl fmt::Display) -> Result<Verification> {
        let arrived = digest(&self.to())?;
        self.target.clear(&self.to())?;
        Verification::compare(arrived, &self.sha256, what)
    }
}
