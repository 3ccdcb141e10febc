//! `bench put`: a file to a server, under a name that was not there before.

use std::path::{Path, PathBuf};

use super::clients::{Words, upload};
use super::stage::{Stage, require_size};
use crate::counted::Tally;
use crate::data::digest;
use crate::error::Result;
use crate::plan::Variant;
use crate::rounds::{Course, Measured, Verdict};
use crate::serve::Kind;
use crate::way::Way;

/// Uploads, each way to its own server.
#[derive(Debug)]
pub(crate) struct Put<'a>(pub(crate) Stage<'a>);

impl Course for Put<'_> {
    fn prepare(&mut self, size: u64) -> Result<()> {
        let source = self.source();
        self.0.sha256 = self.0.noise.write(&source, size)?;
        Ok(())
    }

    fn verify(&mut self, _size: u64, variant: Variant) -> Result<Verdict> {
        self.upload(variant.way)?;
        let target = self.target();
        let arrived = digest(&target)?;
        self.0.site.folder.clear(&target)?;
        self.0.judge(variant.way, arrived)
    }

    fn measure(&mut self, size: u64, variant: Variant) -> Result<Measured> {
        self.0.site.folder.clear(&self.target())?;
        self.0.even(size)?;
        let measured = self.upload(variant.way)?;
        require_size(variant.way, &self.target(), size)?;
        Ok(measured)
    }

    fn count(&mut self, _size: u64, variant: Variant) -> Result<Vec<Tally>> {
        self.0.site.folder.clear(&self.target())?;
        self.0.count(variant.way, &self.server(variant.way), |url| self.words(variant.way, url))
    }
}

impl Put<'_> {
    fn source(&self) -> PathBuf {
        self.0.site.folder.file(SOURCE)
    }

    fn target(&self) -> PathBuf {
        self.0.site.file(TARGET)
    }

    fn upload(&self, way: Way) -> Result<Measured> {
        self.0.site.folder.clear(&self.target())?;
        self.0.run(way, &self.server(way), |url| self.words(way, url))
    }

    fn server(&self, way: Way) -> Kind {
        server(way, self.0.dufs.as_deref())
    }

    /// What a client of the server with this address is told.
    fn words(&self, way: Way, url: &str) -> Words {
        upload(way, &self.source(), &format!("{url}{TARGET}"))
    }
}

/// The server to which a way uploads.
pub(crate) fn server(way: Way, dufs: Option<&Path>) -> Kind {
    match way {
        Way::CurlToDufs => Kind::Dufs(dufs.unwrap_or(Path::new("dufs")).to_owned()),
        Way::CurlToNginx => Kind::NginxDav,
        Way::UnderpassSynced => Kind::Underpass(&["--allow-upload"]),
        // Neither of the peers waits for the disk.
        _ => Kind::Underpass(&["--allow-upload", "--sync", "off"]),
    }
}

/// What a way runs, for the record.
pub(crate) fn example(way: Way) -> Words {
    upload(way, Path::new("SOURCE"), &format!("http://SERVER/{TARGET}"))
}

const SOURCE: &str = "source";

const TARGET: &str = "target";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_way_that_is_named_so_waits_for_the_disk() {
        let options = |way| match server(way, None) {
            Kind::Underpass(options) => options.join(" "),
            other => other.to_string(),
        };
        assert_eq!(options(Way::Underpass), "--allow-upload --sync off");
        assert_eq!(options(Way::CurlToUnderpass), "--allow-upload --sync off");
        assert_eq!(options(Way::UnderpassSynced), "--allow-upload");
        assert_eq!(options(Way::CurlToNginx), "nginx");
        let dufs = server(Way::CurlToDufs, Some(Path::new("/opt/dufs")));
        assert_eq!(dufs, Kind::Dufs("/opt/dufs".into()));
    }
}
