//! The programs and the place of a run, and how a client is run against a server.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::clients::isolated;
use crate::error::Result;
use crate::load::{ServedSite, Server, ServerKind, ServerUsage};
use crate::record::{Contender, Counted, MemoryState, Role, Side};
use crate::run::{
    CallTracer, CommandWords, Context, Finished, Measured, Noise, Running, SystemCongestion, find,
    nginx_version, version,
};
use crate::scenarios::installed;

/// The programs of a run: those that are installed.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) contenders: Vec<Contender>,
    pub(super) missing: Vec<&'static str>,
    pub(super) dufs: Option<PathBuf>,
    pub(super) nginx: Option<String>,
    pub(super) versions: Vec<String>,
}

impl Programs {
    /// Looks for what the contenders need, and for what the server `from` does.
    pub(super) fn look(
        dufs: Option<&Path>,
        requested: &[Contender],
        from: Option<Contender>,
    ) -> Result<Self> {
        let dufs = dufs.map(Path::to_owned).or_else(|| find("dufs"));
        let has = |program: &str| match program {
            "dufs" => dufs.as_deref().is_some_and(Path::is_file),
            program => find(program).is_some(),
        };
        let (contenders, missing) = installed(requested, has)?;
        if let Some(from) = from {
            installed(&[from], has)?;
        }
        let needed = |name: &str| {
            let mut all = contenders.iter().chain(&from);
            all.any(|contender| contender.programs().contains(&name))
        };
        let nginx = nginx_version().filter(|_| needed("nginx"));
        let places = ["curl", "wget", "aria2c"].map(|name| (name, find(name)));
        let places = places.into_iter().chain([("dufs", dufs.clone())]);
        let used = places.filter(|(name, _)| needed(name));
        let versions = used.filter_map(|(_, place)| version(&place?)).collect();
        Ok(Self { contenders, missing, dufs, nginx, versions })
    }
}

#[derive(Debug)]
pub(super) struct ClientFixture<'a> {
    pub(super) site: ServedSite<'a>,
    pub(super) noise: Noise,
    pub(super) memory: MemoryState,
    pub(super) tracer: Option<CallTracer>,
    pub(super) context: &'a Context<'a>,
    /// Put back at the end.
    pub(super) _congestion: SystemCongestion,
}

impl ClientFixture<'_> {
    /// Runs a client, which gets the address as `http://HOST:PORT/`, against a new server, and
    /// fails unless it succeeds. It may run on every core.
    pub(super) fn run(
        &self,
        contender: Contender,
        kind: &ServerKind,
        words: impl FnOnce(&str) -> CommandWords,
    ) -> Result<Measured> {
        let server = self.site.start(kind)?;
        let command = self.command(contender, &server, words)?;
        let before = server.usage();
        let finished = self.succeeded(contender, command)?;
        let after = server.usage();
        let wall_s = finished.cost.wall_s;
        let served = after.since(&before);
        let all_cpu_s = after.since(&ServerUsage::zero()).cpu_s;
        let client = Side::process(Role::Client, wall_s, finished.cost);
        let besides_cpu_s = all_cpu_s - served.cpu_s;
        let peer = Some(Side::process(Role::Server, wall_s, served));
        Ok(Measured { besides_cpu_s, ..Measured::new(wall_s, client, peer) })
    }

    /// Runs a client once more, with the system calls of both; none without a tracer.
    pub(super) fn count(
        &self,
        contender: Contender,
        kind: &ServerKind,
        words: impl FnOnce(&str) -> CommandWords,
    ) -> Result<Vec<Counted>> {
        let Some(tracer) = &self.tracer else { return Ok(Vec::new()) };
        let server = self.site.start(kind)?;
        let command = self.command(contender, &server, words)?;
        let watch = tracer.attach(|| server.processes())?;
        self.succeeded(contender, tracer.watch(&command, Role::Client))?;
        Ok(vec![tracer.tally(Role::Client)?, Counted::new(Role::Server, watch.end()?)])
    }

    fn command(
        &self,
        contender: Contender,
        server: &Server,
        words: impl FnOnce(&str) -> CommandWords,
    ) -> Result<Command> {
        let words = words(&format!("http://{}/", server.address));
        Ok(match contender {
            Contender::BareClient => words.given_to(Command::new(self.site.bare_client()?)),
            _ => words.command(self.context),
        })
    }

    fn succeeded(&self, contender: Contender, command: Command) -> Result<Finished> {
        let command = isolated(command, self.site.folder.path());
        let finished = Running::start(command, None)?.finish(None, self.context.cancel)?;
        finished.succeeded(contender)
    }

    /// Gives each sample of `size` bytes the same state of memory: pages that one contender has
    /// freed in many small pieces are slower to fill than a few large ones, and in a fixed order
    /// each contender would always follow the same other one.
    pub(super) fn even_memory(&self, size: u64) -> Result<()> {
        let folder = &self.site.folder;
        let file = folder.file("level");
        match self.memory {
            MemoryState::Found => Ok(()),
            MemoryState::Even => {
                self.noise.scatter(&file, size)?;
                folder.clear(&file)
            }
        }
    }
}
