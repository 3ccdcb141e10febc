//! `bench get`: a file from a server into a file that was not there before.

use std::path::{Path, PathBuf};

use super::clients::{Words, download};
use super::stage::{Stage, require_size};
use crate::counted::Tally;
use crate::data::digest;
use crate::error::Result;
use crate::plan::Variant;
use crate::rounds::{Course, Measured, Verdict};
use crate::serve::Kind;
use crate::way::Way;

/// Downloads, all from the same server.
#[derive(Debug)]
pub(crate) struct Get<'a> {
    /// Where they take place.
    pub(crate) stage: Stage<'a>,
    /// The server.
    pub(crate) from: Kind,
}

impl Course for Get<'_> {
    fn prepare(&mut self, size: u64) -> Result<()> {
        self.stage.sha256 = self.stage.noise.write(&self.stage.site.file(FILE), size)?;
        Ok(())
    }

    fn verify(&mut self, _size: u64, variant: Variant) -> Result<Verdict> {
        self.download(variant.way)?;
        let target = self.target();
        let arrived = digest(&target)?;
        self.stage.site.folder.clear(&target)?;
        self.stage.judge(variant.way, arrived)
    }

    fn measure(&mut self, size: u64, variant: Variant) -> Result<Measured> {
        self.stage.site.folder.clear(&self.target())?;
        self.stage.even(size)?;
        let measured = self.download(variant.way)?;
        require_size(variant.way, &self.target(), size)?;
        Ok(measured)
    }

    fn count(&mut self, _size: u64, variant: Variant) -> Result<Vec<Tally>> {
        let way = variant.way;
        self.stage.site.folder.clear(&self.target())?;
        self.stage.count(way, &self.from, |url| self.words(way, url))
    }
}

impl Get<'_> {
    fn target(&self) -> PathBuf {
        self.stage.site.folder.file(TARGET)
    }

    fn download(&self, way: Way) -> Result<Measured> {
        self.stage.site.folder.clear(&self.target())?;
        self.stage.run(way, &self.from, |url| self.words(way, url))
    }

    /// What a client of the server with this address is told.
    fn words(&self, way: Way, url: &str) -> Words {
        download(way, &format!("{url}{FILE}"), &self.target())
    }
}

/// What a way runs, for the record.
pub(crate) fn example(way: Way) -> Words {
    download(way, &format!("http://SERVER/{FILE}"), Path::new("FOLDER/TARGET"))
}

const FILE: &str = "file";

const TARGET: &str = "target";
