//! The files that clients move, and their samples.
//!
//! The folders of earlier samples stay, without the bytes of their large files. ext4 reuses the
//! inode of a removed file only after minutes, and until then checks each such inode whenever it
//! needs a new one: after the removal of thousands of files, creating as many new ones takes
//! several times as long, whichever program does it.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::clients::{download, download_tree, isolated, upload};
use crate::error::{BenchError, Result};
use crate::load::{DUFS, NGINX_DAV, RunningServer, ServedSite, ServerKind, ServerUsage};
use crate::record::{Cell, CommandLine, Contender, Counted, MemoryState, Role, Side};
use crate::run::{
    CallTracer, CommandWords, Content, Context, FileTree, Finished, Measured, Noise, Running,
    Scenario, SystemCongestion, Verification, digest,
};

#[derive(Clone, Debug)]
pub(super) enum Payload {
    /// A file from this server.
    Download(Contender),
    /// A file to the server of the contender, with the program of dufs.
    Upload(Option<PathBuf>),
    /// A folder of many small files and a few large ones, from ours.
    Tree(FileTree),
}

impl Payload {
    /// Returns the command of a client for a server; `path` is the client's own file or folder.
    fn words(&self, contender: Contender, url: &str, path: &Path) -> CommandWords {
        match self {
            Self::Download(_) => download(contender, &format!("{url}file"), path),
            Self::Upload(_) => upload(contender, path, &format!("{url}target")),
            Self::Tree(_) => download_tree(contender, url, path),
        }
    }

    fn server(&self, contender: Contender) -> ServerKind {
        match (self, contender) {
            (Self::Download(from), _) => (*from).into(),
            (Self::Tree(_), _) => ServerKind::Underpass(&[]),
            (Self::Upload(dufs), Contender::CurlToDufs) => ServerKind::Other(&DUFS, dufs.clone()),
            (_, Contender::CurlToNginx) => ServerKind::Other(&NGINX_DAV, None),
            (_, Contender::UnderpassSynced) => ServerKind::Underpass(&["--allow-upload"]),
            // Neither of the other servers waits for the disk.
            _ => ServerKind::Underpass(&["--allow-upload", "--sync", "off"]),
        }
    }

    /// Returns the command lines of each contender for the record.
    pub(super) fn commands(&self, contenders: &[Contender]) -> Vec<CommandLine> {
        let path = match self {
            Self::Download(_) => "FOLDER/TARGET",
            Self::Upload(_) => "SOURCE",
            Self::Tree(_) => "TARGET",
        };
        let command = |contender: &Contender| CommandLine {
            client: Some(self.words(*contender, "http://SERVER/", path.as_ref()).to_string()),
            server: Some(self.server(*contender).command_line()),
            ..CommandLine::of(*contender)
        };
        contenders.iter().map(command).collect()
    }

    fn digest(&self, path: &Path) -> Result<String> {
        match self {
            Self::Tree(_) => Content::survey(path)?.sha256_of_files(),
            _ => digest(path),
        }
    }
}

/// Samples of clients, each with a new target.
#[derive(Debug)]
pub(super) struct Transfer<'a> {
    pub(super) payload: Payload,
    pub(super) site: ServedSite<'a>,
    pub(super) noise: Noise,
    pub(super) memory: MemoryState,
    pub(super) context: &'a Context<'a>,
    /// Restored on drop.
    pub(super) _congestion: SystemCongestion,
    pub(super) turn: u32,
    pub(super) sha256: String,
}

impl Scenario for Transfer<'_> {
    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        let source = self.source();
        if let Payload::Tree(tree) = self.payload {
            tree.create(&source, &mut self.noise)?;
            self.site.folder.sync()?;
            self.sha256 = self.payload.digest(&source)?;
        } else {
            self.sha256 = self.noise.write(&source, cell.size)?;
        }
        Ok(())
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verification> {
        self.moved(cell)?;
        let arrived = self.payload.digest(&self.target())?;
        self.clear()?;
        Verification::compare(arrived, &self.sha256, cell.variant)
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        self.even_memory(cell.size)?;
        let measured = self.moved(cell)?;
        let found = Content::survey(&self.target())?;
        self.clear()?;
        let files = if let Payload::Tree(tree) = self.payload { tree.count() } else { 1 };
        let is_whole = (found.files, found.bytes) == (files, cell.size);
        if is_whole { Ok(measured) } else { Err(BenchError::differs(cell.variant)) }
    }

    fn count(&mut self, cell: &Cell, tracer: &CallTracer) -> Result<Vec<Counted>> {
        self.turn += 1;
        let (server, command) = self.begin(cell.variant.contender)?;
        let watch = tracer.attach(|| server.processes())?;
        self.run(cell.variant.contender, tracer.watch(&command, Role::Client))?;
        let calls = [tracer.tally(Role::Client)?, Counted::new(Role::Server, watch.end()?)];
        self.clear()?;
        Ok(calls.into())
    }
}

impl Transfer<'_> {
    fn source(&self) -> PathBuf {
        match self.payload {
            Payload::Download(_) => self.site.file("file"),
            Payload::Upload(_) => self.site.folder.file("source"),
            Payload::Tree(_) => self.site.file(""),
        }
    }

    fn target(&self) -> PathBuf {
        match self.payload {
            Payload::Download(_) => self.site.folder.file("target"),
            Payload::Upload(_) => self.site.file("target"),
            Payload::Tree(_) => self.site.folder.file(&format!("target{}", self.turn)),
        }
    }

    /// Returns the client's file or folder.
    fn path(&self) -> PathBuf {
        if let Payload::Upload(_) = self.payload { self.source() } else { self.target() }
    }

    /// Starts a server, and returns it with the command of a client.
    fn begin(&self, contender: Contender) -> Result<(RunningServer, Command)> {
        let server = self.site.start(&self.payload.server(contender))?;
        let url = format!("http://{}/", server.address);
        let words = self.payload.words(contender, &url, &self.path());
        let command = match contender {
            Contender::BareClient => words.given_to(Command::new(self.site.bare_client()?)),
            _ => words.command(self.context),
        };
        Ok((server, command))
    }

    /// Runs a client, on whichever core, and fails unless it succeeds.
    fn run(&self, contender: Contender, command: Command) -> Result<Finished> {
        let command = isolated(command, self.site.folder.path());
        Running::start(command, None)?.finish(None, self.context.cancel)?.succeeded(contender)
    }

    fn moved(&mut self, cell: &Cell) -> Result<Measured> {
        self.turn += 1;
        self.site.folder.sync()?;
        let (server, command) = self.begin(cell.variant.contender)?;
        let before = server.usage();
        let finished = self.run(cell.variant.contender, command)?;
        let after = server.usage();
        let (wall_s, served) = (finished.cost.wall_s, after.since(&before));
        let client = Side::process(Role::Client, wall_s, finished.cost);
        let besides_cpu_s = after.since(&ServerUsage::zero()).cpu_s - served.cpu_s;
        let peer = Some(Side::process(Role::Server, wall_s, served));
        Ok(Measured { besides_cpu_s, ..Measured::new(wall_s, client, peer) })
    }

    /// Gives each sample of `size` bytes the same state of memory: pages that the contender before
    /// has freed in many small pieces are slower to fill than a few large ones.
    fn even_memory(&self, size: u64) -> Result<()> {
        if self.memory == MemoryState::Found {
            return Ok(());
        }
        let file = self.site.folder.file("level");
        self.noise.scatter(&file, size)?;
        self.site.folder.clear(&file)
    }

    /// Removes the target; of a folder only the bytes of its large files.
    fn clear(&self) -> Result<()> {
        match self.payload {
            Payload::Tree(tree) => tree.truncate_large(&self.target()),
            _ => self.site.folder.clear(&self.target()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_contender_that_is_named_so_waits_for_the_disk() {
        let dufs = Some(PathBuf::from("/opt/dufs"));
        let server = |contender| Payload::Upload(dufs.clone()).server(contender);
        let to_memory = ServerKind::Underpass(&["--allow-upload", "--sync", "off"]);
        assert_eq!(server(Contender::Underpass), to_memory);
        assert_eq!(server(Contender::CurlToUnderpass), to_memory);
        let synced = ServerKind::Underpass(&["--allow-upload"]);
        assert_eq!(server(Contender::UnderpassSynced), synced);
        assert_eq!(server(Contender::CurlToNginx), ServerKind::Other(&NGINX_DAV, None));
        assert_eq!(server(Contender::CurlToDufs), ServerKind::Other(&DUFS, dufs.clone()));
    }
}
