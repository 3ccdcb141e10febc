//! `bench tree`: a folder of many small files and a few large ones from a server into a folder that
//! was not there before.
//!
//! The folders of earlier samples stay, though without the bytes of their large files. ext4 gives the
//! inode of a file away again only minutes after the file was removed, and until then looks at each
//! such inode whenever it wants a new one: after the removal of thousands of files, making as many
//! new ones takes several times as long, whoever does it.

use std::path::{Path, PathBuf};

use super::clients::{Words, download_tree};
use super::forest::{Forest, Grown};
use super::stage::{Stage, differs};
use crate::counted::Tally;
use crate::error::Result;
use crate::plan::Variant;
use crate::rounds::{Course, Measured, Verdict};
use crate::serve::Kind;
use crate::way::Way;

/// Downloads of a folder.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    /// Where they take place.
    pub(crate) stage: Stage<'a>,
    /// What is downloaded.
    pub(crate) forest: Forest,
    /// How many downloads there have been.
    pub(crate) turn: u32,
}

impl Course for Tree<'_> {
    fn prepare(&mut self, _size: u64) -> Result<()> {
        let root = self.stage.site.file("");
        self.forest.plant(&root, &mut self.stage.noise)?;
        self.stage.site.folder.settle()?;
        self.stage.sha256 = Grown::survey(&root)?.sha256()?;
        Ok(())
    }

    fn verify(&mut self, _size: u64, variant: Variant) -> Result<Verdict> {
        self.download(variant.way)?;
        let arrived = Grown::survey(&self.target())?.sha256()?;
        self.forest.lighten(&self.target())?;
        self.stage.judge(variant.way, arrived)
    }

    fn measure(&mut self, size: u64, variant: Variant) -> Result<Measured> {
        self.stage.even(size)?;
        let measured = self.download(variant.way)?;
        let grown = Grown::survey(&self.target())?;
        self.forest.lighten(&self.target())?;
        let is_whole = (grown.files(), grown.bytes()) == (self.forest.count(), size);
        if is_whole { Ok(measured) } else { Err(differs(variant.way)) }
    }

    fn count(&mut self, _size: u64, variant: Variant) -> Result<Vec<Tally>> {
        self.turn += 1;
        let (way, target) = (variant.way, self.target());
        let counted = self.stage.count(way, &SERVER, |url| download_tree(way, url, &target))?;
        if !counted.is_empty() {
            self.forest.lighten(&target)?;
        }
        Ok(counted)
    }
}

impl Tree<'_> {
    /// The folder of the present download.
    fn target(&self) -> PathBuf {
        self.stage.site.folder.file(&format!("target{}", self.turn))
    }

    fn download(&mut self, way: Way) -> Result<Measured> {
        self.turn += 1;
        let target = self.target();
        self.stage.site.folder.settle()?;
        self.stage.run(way, &SERVER, |url| download_tree(way, url, &target))
    }
}

/// What a way runs, for the record.
pub(crate) fn example(way: Way) -> Words {
    download_tree(way, "http://SERVER/", Path::new("TARGET"))
}

/// From where all of them download.
pub(crate) const SERVER: Kind = Kind::Underpass(&[]);
