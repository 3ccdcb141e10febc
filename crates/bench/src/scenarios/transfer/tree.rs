//! `bench tree`: a folder of many small files and a few large ones from a server into a folder that
//! was not there before.
//!
//! The folders of earlier samples stay, though without the bytes of their large files. ext4 gives
//! the inode of a file away again only minutes after the file was removed, and until then looks at
//! each such inode whenever it wants a new one: after the removal of thousands of files, making as
//! many new ones takes several times as long, whichever program does it.

use std::path::{Path, PathBuf};

use clap::Args;

use super::clients::download_tree;
use super::{ClientArgs, ClientFixture, Programs, TREE};
use crate::error::{BenchError, Result};
use crate::load::ServerKind;
use crate::options::{Measure, Named, among, bytes, number};
use crate::record::{Cell, Contender, Counted, Record, Transfers, Variant};
use crate::run::{Content, FileTree, Measured, Scenario, Start, Verification};

/// The arguments of `bench tree`.
#[derive(Debug, Args)]
pub struct TreeArgs {
    /// Create N small files of 1 to 16 KiB, a hundred in each folder
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = number(1))]
    files: u32,

    /// Create N large files
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number(0))]
    large: u32,

    /// Size of each large file
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = bytes)]
    large_size: u64,

    /// Measure these clients; those that are not installed are left out
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = among(CLIENTS))]
    #[arg(default_value = "wget,underpass")]
    client: Vec<Contender>,

    #[command(flatten)]
    common: ClientArgs,
}

const CLIENTS: &[Named] = &[
    ("wget", Contender::Wget, "wget -r"),
    ("underpass", Contender::Underpass, "`underpass get -r`"),
];

impl Measure for TreeArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let tree = FileTree { files: self.files, large: self.large, large_bytes: self.large_size };
        let programs = Programs::look(None, &self.client, None)?;
        let example = |contender| download_tree(contender, "http://SERVER/", Path::new("TARGET"));
        let commands = programs.commands(example, |_| SERVER);
        // Every contender once to verify it, once to count, and in each round.
        let rounds = u64::from(start.run.runs) + u64::from(start.run.warmup) + 2;
        let downloads = rounds.saturating_mul(programs.contenders.len() as u64);
        let earlier = tree.light_room().saturating_mul(downloads);
        let room = tree.room().saturating_mul(2).saturating_add(earlier);
        let transfers = Transfers {
            server: Some(Contender::Underpass),
            files: Some(tree.files),
            large: Some(tree.large),
            large_bytes: Some(tree.large_bytes),
            commands,
            ..Transfers::default()
        };
        let sizes = [tree.bytes()];
        let (plan, fixture) = self.common.open(start, &sizes, room, transfers, programs)?;
        let baseline = Variant::plain(Contender::Wget);
        plan.measure(&TREE, &mut Tree { fixture, tree, turn: 0 }, baseline)
    }
}

#[derive(Debug)]
struct Tree<'a> {
    fixture: ClientFixture<'a>,
    tree: FileTree,
    turn: u32,
}

impl Scenario for Tree<'_> {
    fn prepare(&mut self, _cell: &Cell) -> Result<()> {
        let root = self.fixture.site.file("");
        self.tree.create(&root, &mut self.fixture.noise)?;
        self.fixture.site.folder.sync()?;
        self.fixture.sha256 = Content::survey(&root)?.sha256_of_files()?;
        Ok(())
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verification> {
        self.download(cell)?;
        let arrived = Content::survey(&self.target())?.sha256_of_files()?;
        self.tree.lighten(&self.target())?;
        Verification::compare(arrived, &self.fixture.sha256, cell.variant)
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        self.fixture.even_memory(cell.size)?;
        let measured = self.download(cell)?;
        let found = Content::survey(&self.target())?;
        self.tree.lighten(&self.target())?;
        let is_whole = (found.files, found.bytes) == (self.tree.count(), cell.size);
        if is_whole { Ok(measured) } else { Err(BenchError::differs(cell.variant)) }
    }

    fn count(&mut self, cell: &Cell) -> Result<Vec<Counted>> {
        self.turn += 1;
        let (contender, target) = (cell.variant.contender, self.target());
        let words = |url: &str| download_tree(contender, url, &target);
        let counted = self.fixture.count(contender, &SERVER, words)?;
        if !counted.is_empty() {
            self.tree.lighten(&target)?;
        }
        Ok(counted)
    }
}

impl Tree<'_> {
    fn target(&self) -> PathBuf {
        self.fixture.site.folder.file(&format!("target{}", self.turn))
    }

    fn download(&mut self, cell: &Cell) -> Result<Measured> {
        self.turn += 1;
        let (contender, target) = (cell.variant.contender, self.target());
        self.fixture.site.folder.sync()?;
        self.fixture.run(contender, &SERVER, |url| download_tree(contender, url, &target))
    }
}

/// The server from which all of them download.
const SERVER: ServerKind = ServerKind::Underpass(&[]);
