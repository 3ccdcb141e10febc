//! A client's process against a server's, and what both of them spent.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use super::clients::Words;
use super::record::Memory;
use crate::child::{Finished, Running};
use crate::counted::Tally;
use crate::counter::Counter;
use crate::data::Noise;
use crate::error::{BenchError, Result, WithPath};
use crate::record::{Process, Role, Side};
use crate::rounds::{Measured, Verdict};
use crate::serve::{Kind, Meter, Server, Site};
use crate::way::Way;

/// Everything that a sample needs.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    /// The folder, and how servers are started.
    pub(crate) site: Site,
    /// What files are made of.
    pub(crate) noise: Noise,
    /// The program dufs, if there is one.
    pub(crate) dufs: Option<PathBuf>,
    /// How samples find the memory.
    pub(crate) memory: Memory,
    /// Who counts, if somebody does.
    pub(crate) counter: Option<Counter>,
    /// Set by a signal.
    pub(crate) cancel: &'a AtomicBool,
    /// The digest of what is moved at the present size.
    pub(crate) sha256: String,
}

impl Stage<'_> {
    /// Runs a client, who is told the address as `http://HOST:PORT/`, against a new server, and fails
    /// unless it succeeds. It may run on every core.
    pub(crate) fn run(
        &self,
        way: Way,
        kind: &Kind,
        words: impl FnOnce(&str) -> Words,
    ) -> Result<Measured> {
        let server = self.site.start(kind)?;
        let command = self.command(&server, words);
        let before = server.meter();
        let finished = self.succeeded(way, command)?;
        let after = server.meter();
        let wall_s = finished.cost.wall_s;
        let side = |role, process: Process| Side {
            role,
            elapsed_s: wall_s,
            thread: None,
            process: Some(process),
        };
        let served = after.since(&before);
        let all_cpu_s = after.since(&Meter::zero()).cpu_s;
        let client = side(Role::Client, finished.cost);
        let besides_cpu_s = all_cpu_s - served.cpu_s;
        let peer = Some(side(Role::Server, served));
        Ok(Measured { besides_cpu_s, ..Measured::new(wall_s, client, peer) })
    }

    /// The same once more, with the system calls of both; none if nobody counts.
    pub(crate) fn count(
        &self,
        way: Way,
        kind: &Kind,
        words: impl FnOnce(&str) -> Words,
    ) -> Result<Vec<Tally>> {
        let Some(counter) = &self.counter else { return Ok(Vec::new()) };
        let server = self.site.start(kind)?;
        let command = self.command(&server, words);
        let watch = counter.attach(|| server.processes())?;
        self.succeeded(way, counter.watch(&command, Role::Client))?;
        Ok(vec![counter.tally(Role::Client)?, Tally::new(Role::Server, watch.end()?)])
    }

    /// The client, who is told the address of the server.
    fn command(&self, server: &Server, words: impl FnOnce(&str) -> Words) -> Command {
        words(&format!("http://{}/", server.address)).command(self.site.folder.path())
    }

    /// Runs a client to its end, and fails unless it succeeds.
    fn succeeded(&self, way: Way, command: Command) -> Result<Finished> {
        let finished = Running::start(command, None)?.finish(None, self.cancel)?;
        match finished.status.success() {
            true => Ok(finished),
            false => Err(finished.failure(way.to_string())),
        }
    }

    /// Lets the next sample, of `size` bytes, find the memory like all others: what one has left in
    /// many small pieces is dearer to fill than what another one has left in few large ones, and in
    /// turns each would always come behind the same one.
    pub(crate) fn even(&self, size: u64) -> Result<()> {
        let folder = &self.site.folder;
        let file = folder.file(LEVEL);
        match self.memory {
            Memory::Found => Ok(()),
            Memory::Even => {
                self.noise.scatter(&file, size)?;
                folder.clear(&file)
            }
        }
    }

    /// What to say of a digest that has arrived.
    pub(crate) fn judge(&self, way: Way, arrived: String) -> Result<Verdict> {
        match arrived == self.sha256 {
            true => Ok(Verdict::Arrived(arrived)),
            false => Err(differs(way)),
        }
    }
}

/// Fails unless a file is as long as it should be.
pub(crate) fn require_size(way: Way, file: &Path, size: u64) -> Result<()> {
    let found = fs::metadata(file).with_path("looking at", file)?.len();
    if found == size { Ok(()) } else { Err(differs(way)) }
}

/// The file that takes and leaves the memory.
const LEVEL: &str = "level";

/// What arrived was something else.
pub(crate) fn differs(way: Way) -> BenchError {
    BenchError::Differs { what: way.to_string() }
}
