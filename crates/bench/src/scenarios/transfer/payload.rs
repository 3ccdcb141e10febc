//! The files that clients move, and their samples.
//!
//! The folders of earlier samples stay, though without the bytes of their large files. ext4 gives
//! the inode of a file away again only minutes after the file was removed, and until then looks at
//! each such inode whenever it wants a new one: after the removal of thousands of files, making as
//! many new ones takes several times as long, whichever program does it.

use std::path::{Path, PathBuf};

use super::clients::{download, download_tree, upload};
use super::fixture::ClientFixture;
use crate::error::{BenchError, Result};
use crate::load::{DUFS, NGINX_DAV, ServerKind};
use crate::record::{Cell, CommandLine, Contender, Counted};
use crate::run::{CommandWords, Content, FileTree, Measured, Scenario, Verification, digest};

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
    /// Returns the command of a client for the server at a URL, where `path` is the client's own
    /// file or folder.
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

/// Samples of clients, each with a target that was not there before.
#[derive(Debug)]
pub(super) struct Transfer<'a> {
    pub(super) fixture: ClientFixture<'a>,
    pub(super) payload: Payload,
    pub(super) turn: u32,
    pub(super) sha256: String,
}

impl Scenario for Transfer<'_> {
    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        let source = self.source();
        if let Payload::Tree(tree) = self.payload {
            tree.create(&source, &mut self.fixture.noise)?;
            self.fixture.site.folder.sync()?;
            self.sha256 = self.payload.digest(&source)?;
        } else {
            self.sha256 = self.fixture.noise.write(&source, cell.size)?;
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
        self.fixture.even_memory(cell.size)?;
        let measured = self.moved(cell)?;
        let found = Content::survey(&self.target())?;
        self.clear()?;
        let files = if let Payload::Tree(tree) = self.payload { tree.count() } else { 1 };
        let is_whole = (found.files, found.bytes) == (files, cell.size);
        if is_whole { Ok(measured) } else { Err(BenchError::differs(cell.variant)) }
    }

    fn count(&mut self, cell: &Cell) -> Result<Vec<Counted>> {
        self.turn += 1;
        let (contender, path) = (cell.variant.contender, self.path());
        let words = |url: &str| self.payload.words(contender, url, &path);
        let counted = self.fixture.count(contender, &self.payload.server(contender), words)?;
        if !counted.is_empty() {
            self.clear()?;
        }
        Ok(counted)
    }
}

impl Transfer<'_> {
    fn source(&self) -> PathBuf {
        let site = &self.fixture.site;
        match self.payload {
            Payload::Download(_) => site.file("file"),
            Payload::Upload(_) => site.folder.file("source"),
            Payload::Tree(_) => site.file(""),
        }
    }

    fn target(&self) -> PathBuf {
        let site = &self.fixture.site;
        match self.payload {
            Payload::Download(_) => site.folder.file("target"),
            Payload::Upload(_) => site.file("target"),
            Payload::Tree(_) => site.folder.file(&format!("target{}", self.turn)),
        }
    }

    /// Returns the file or folder that is the client's.
    fn path(&self) -> PathBuf {
        if let Payload::Upload(_) = self.payload { self.source() } else { self.target() }
    }

    fn moved(&mut self, cell: &Cell) -> Result<Measured> {
        self.turn += 1;
        let (contender, path) = (cell.variant.contender, self.path());
        self.fixture.site.folder.sync()?;
        let words = |url: &str| self.payload.words(contender, url, &path);
        self.fixture.run(contender, &self.payload.server(contender), words)
    }

    /// Removes the target, of a folder the bytes of its large files.
    fn clear(&self) -> Result<()> {
        match self.payload {
            Payload::Tree(tree) => tree.truncate_large(&self.target()),
            _ => self.fixture.site.folder.clear(&self.target()),
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
