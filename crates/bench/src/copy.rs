//! `bench copy` and `bench article-copy`: a file to another file by one process, ours or a peer's.
//! What counts is the life of the process, as that is all that can be known of a peer.

use std::process::Command;
use std::sync::atomic::AtomicBool;

use super::child::{Cores, Finished, Running, this_program};
use super::counted::Tally;
use super::counter::{Counter, watched};
use super::data::{Folder, Noise, chill, digest};
use super::net::{SOURCE, TARGET, checked_receipt, declined};
use super::peers::{Told, Workshop};
use super::plan::Variant;
use super::record::{Role, Side, Thread};
use super::rounds::{Course, Measured, Verdict};
use super::way::{Step, Way};
use crate::error::{BenchError, Result};

/// A file to another file.
#[derive(Debug)]
pub(crate) struct Copy<'a> {
    /// Where the source is.
    pub(crate) source: Folder,
    /// Where the target is.
    pub(crate) target: Folder,
    /// What the source is made of.
    pub(crate) noise: Noise,
    /// The programs from the articles, if any take part.
    pub(crate) workshop: Option<Workshop>,
    /// Whether the source is to be out of the page cache.
    pub(crate) cold: bool,
    /// Who counts, if somebody does.
    pub(crate) counter: Option<Counter>,
    /// Where the process runs.
    pub(crate) cores: Cores,
    /// Set by a signal.
    pub(crate) cancel: &'a AtomicBool,
    /// The source's digest.
    pub(crate) sha256: String,
}

impl Course for Copy<'_> {
    fn prepare(&mut self, size: u64) -> Result<()> {
        self.sha256 = self.noise.write(&self.source.file(SOURCE), size)?;
        Ok(())
    }

    fn verify(&mut self, size: u64, variant: Variant) -> Result<Verdict> {
        let finished = self.copy(size, variant, None)?;
        if !finished.status.success() {
            return match declined(&finished.stdout, variant.way) {
                Some(errno) => Ok(Verdict::Declined(errno)),
                None => Err(finished.failure(variant.to_string())),
            };
        }
        let target = self.target.file(TARGET);
        let arrived = digest(&target)?;
        self.target.clear(&target)?;
        match arrived == self.sha256 {
            true => Ok(Verdict::Arrived(arrived)),
            false => Err(BenchError::Differs { what: variant.to_string() }),
        }
    }

    fn measure(&mut self, size: u64, variant: Variant) -> Result<Measured> {
        let finished = self.succeeded(size, variant, None)?;
        let wall_s = finished.cost.wall_s;
        let (elapsed_s, thread) = match variant.way {
            Way::Cp => (wall_s, None),
            Way::Peer(_) => (Told::read(&finished, &variant.to_string(), size)?.elapsed_s, None),
            way => {
                let receipt = checked_receipt(&finished, size, Some(way))?;
                (receipt.elapsed_s, Some(Thread::from(&receipt)))
            }
        };
        let process = Some(finished.cost);
        let measured = Side { role: Role::Copier, elapsed_s, thread, process };
        Ok(Measured::new(wall_s, measured, None))
    }

    fn count(&mut self, size: u64, variant: Variant) -> Result<Vec<Tally>> {
        let Some(counter) = &self.counter else { return Ok(Vec::new()) };
        self.succeeded(size, variant, Some(counter))?;
        Ok(vec![counter.tally(Role::Copier)?])
    }
}

impl Copy<'_> {
    fn succeeded(
        &self,
        size: u64,
        variant: Variant,
        counter: Option<&Counter>,
    ) -> Result<Finished> {
        let finished = self.copy(size, variant, counter)?;
        match finished.status.success() {
            true => Ok(finished),
            false => Err(finished.failure(variant.to_string())),
        }
    }

    /// One file to another, which was not there before.
    fn copy(&self, size: u64, variant: Variant, counter: Option<&Counter>) -> Result<Finished> {
        let (source, target) = (self.source.file(SOURCE), self.target.file(TARGET));
        self.target.clear(&target)?;
        if self.cold {
            chill(&source)?;
        }
        let buffer = match variant.step {
            Step::Bytes(bytes) => bytes,
            Step::Default | Step::Whole => 0,
        };
        let workshop = self.workshop.as_ref().zip(variant.way.peer());
        let peer =
            workshop.and_then(|(workshop, peer)| workshop.copier(peer, buffer, &source, &target));
        let command = peer.unwrap_or_else(|| {
            let mut command = match variant.way {
                Way::Cp => Command::new("cp"),
                _ => {
                    let mut command = this_program();
                    command.args(["cp", "--json"]).args(variant.arguments(size));
                    command
                }
            };
            command.arg(&source).arg(&target);
            command
        });
        let command = watched(counter, command, Role::Copier);
        Running::start(command, self.cores.first)?.finish(None, self.cancel)
    }
}
