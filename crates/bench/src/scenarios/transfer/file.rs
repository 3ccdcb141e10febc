//! `bench get` and `bench put`: a file from a server, or to one, under a name that was not there
//! before.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use super::clients::{download, upload};
use super::{ClientArgs, ClientFixture, GET, PUT, Programs};
use crate::error::{BenchError, Result, WithPath};
use crate::load::{DUFS, NGINX_DAV, ServerKind};
use crate::options::{Measure, Named, among, bytes};
use crate::record::{Cell, Contender, Counted, Record, Transfers, Variant};
use crate::run::{CommandWords, Measured, Scenario, Start, Verification, digest, largest};

/// The arguments of `bench get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Measure files of these sizes
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "2G")]
    sizes: Vec<u64>,

    /// Download from this server
    #[arg(long, value_name = "SERVER", value_parser = among(SERVERS))]
    #[arg(default_value = "underpass")]
    from: Contender,

    /// Measure these clients; those that are not installed are left out
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = among(CLIENTS))]
    #[arg(default_value = "curl,wget,aria2c,bare-client,underpass")]
    client: Vec<Contender>,

    #[command(flatten)]
    common: ClientArgs,
}

/// The arguments of `bench put`.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// Measure files of these sizes
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "2G")]
    sizes: Vec<u64>,

    /// Measure these clients with their servers; those that are not installed are left out
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = among(UPLOADS))]
    #[arg(default_value = EVERY_UPLOAD)]
    way: Vec<Contender>,

    /// Run this program as dufs, if it is not in PATH
    #[arg(long, value_name = "FILE")]
    dufs: Option<PathBuf>,

    #[command(flatten)]
    common: ClientArgs,
}

const SERVERS: &[Named] = &[
    ("underpass", Contender::Underpass, "`underpass serve`"),
    ("nginx", Contender::Nginx, "nginx, as `bench serve` runs it"),
];

const CLIENTS: &[Named] = &[
    ("curl", Contender::Curl, "curl -o"),
    ("wget", Contender::Wget, "wget -O"),
    ("aria2c", Contender::Aria2, "aria2c -x4"),
    ("bare-client", Contender::BareClient, "The least that a client can do: splice, in C"),
    ("underpass", Contender::Underpass, "`underpass get`"),
];

const EVERY_UPLOAD: &str = "curl-to-nginx,curl-to-dufs,curl-to-underpass,bare-client,underpass,\
    underpass-synced";

const UPLOADS: &[Named] = &[
    ("curl-to-nginx", Contender::CurlToNginx, "curl -T to nginx"),
    ("curl-to-dufs", Contender::CurlToDufs, "curl -T to dufs"),
    ("curl-to-underpass", Contender::CurlToUnderpass, "curl -T to `serve --sync off`"),
    (
        "bare-client",
        Contender::BareClient,
        "The least that a client can do, sendfile in C, to `serve --sync off`",
    ),
    ("underpass", Contender::Underpass, "`underpass put` to `serve --sync off`"),
    (
        "underpass-synced",
        Contender::UnderpassSynced,
        "`underpass put` to `serve`, which answers once the file is on the disk",
    ),
];

impl Measure for GetArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let programs = Programs::look(None, &self.client, Some(self.from))?;
        measure(Some(self.from), &self.sizes, programs, &self.common, start)
    }
}

impl Measure for PutArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let programs = Programs::look(self.dufs.as_deref(), &self.way, None)?;
        measure(None, &self.sizes, programs, &self.common, start)
    }
}

/// Measures downloads from a server, or uploads if none is given.
fn measure(
    from: Option<Contender>,
    sizes: &[u64],
    programs: Programs,
    common: &ClientArgs,
    start: Start<'_>,
) -> Result<Record> {
    let (about, baseline, example) = match from {
        Some(_) => (&GET, Contender::Curl, "FOLDER/TARGET"),
        None => (&PUT, Contender::CurlToNginx, "SOURCE"),
    };
    let transfer = FileTransfer { from, dufs: programs.dufs.clone() };
    let client = |contender| transfer.words(contender, "http://SERVER/", example.as_ref());
    let commands = programs.commands(client, |contender| transfer.server(contender));
    let transfers = Transfers { server: from, commands, ..Transfers::default() };
    // Source and target.
    let room = largest(sizes).saturating_mul(2);
    let (plan, fixture) = common.open(start, sizes, room, transfers, programs)?;
    let site = &fixture.site;
    let (source, target) = match from {
        Some(_) => (site.file("file"), site.folder.file("target")),
        None => (site.folder.file("source"), site.file("target")),
    };
    plan.measure(about, &mut Moved { fixture, transfer, source, target }, Variant::plain(baseline))
}

#[derive(Debug)]
struct FileTransfer {
    /// The server of downloads; none for uploads.
    from: Option<Contender>,
    dufs: Option<PathBuf>,
}

impl FileTransfer {
    /// Returns the command of a client for the server at a URL; the file is the client's own.
    fn words(&self, contender: Contender, url: &str, file: &Path) -> CommandWords {
        match self.from {
            Some(_) => download(contender, &format!("{url}file"), file),
            None => upload(contender, file, &format!("{url}target")),
        }
    }

    fn server(&self, contender: Contender) -> ServerKind {
        self.from.map_or_else(|| server(contender, self.dufs.as_deref()), ServerKind::from)
    }
}

#[derive(Debug)]
struct Moved<'a> {
    fixture: ClientFixture<'a>,
    transfer: FileTransfer,
    source: PathBuf,
    /// The file that is made anew for each sample.
    target: PathBuf,
}

impl Scenario for Moved<'_> {
    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        self.fixture.sha256 = self.fixture.noise.write(&self.source, cell.size)?;
        Ok(())
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verification> {
        self.moved(cell)?;
        let arrived = digest(&self.target)?;
        self.fixture.site.folder.clear(&self.target)?;
        Verification::compare(arrived, &self.fixture.sha256, cell.variant)
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        self.fixture.site.folder.clear(&self.target)?;
        self.fixture.even_memory(cell.size)?;
        let measured = self.moved(cell)?;
        let found = fs::metadata(&self.target).with_path("looking at", &self.target)?.len();
        if found == cell.size { Ok(measured) } else { Err(BenchError::differs(cell.variant)) }
    }

    fn count(&mut self, cell: &Cell) -> Result<Vec<Counted>> {
        let contender = cell.variant.contender;
        self.fixture.site.folder.clear(&self.target)?;
        let words = |url: &str| self.transfer.words(contender, url, self.own());
        self.fixture.count(contender, &self.transfer.server(contender), words)
    }
}

impl Moved<'_> {
    fn moved(&self, cell: &Cell) -> Result<Measured> {
        let contender = cell.variant.contender;
        self.fixture.site.folder.clear(&self.target)?;
        let words = |url: &str| self.transfer.words(contender, url, self.own());
        self.fixture.run(contender, &self.transfer.server(contender), words)
    }

    /// Returns the file that is the client's.
    fn own(&self) -> &Path {
        if self.transfer.from.is_some() { &self.target } else { &self.source }
    }
}

/// Returns the server to which a contender uploads.
fn server(contender: Contender, dufs: Option<&Path>) -> ServerKind {
    match contender {
        Contender::CurlToDufs => ServerKind::Other(&DUFS, dufs.map(Path::to_owned)),
        Contender::CurlToNginx => ServerKind::Other(&NGINX_DAV, None),
        Contender::UnderpassSynced => ServerKind::Underpass(&["--allow-upload"]),
        // Neither of the other servers waits for the disk.
        _ => ServerKind::Underpass(&["--allow-upload", "--sync", "off"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_contender_that_is_named_so_waits_for_the_disk() {
        let options = |contender| match server(contender, None) {
            ServerKind::Underpass(options) => options.join(" "),
            other => other.to_string(),
        };
        assert_eq!(options(Contender::Underpass), "--allow-upload --sync off");
        assert_eq!(options(Contender::CurlToUnderpass), "--allow-upload --sync off");
        assert_eq!(options(Contender::UnderpassSynced), "--allow-upload");
        assert_eq!(options(Contender::CurlToNginx), "nginx");
        let dufs = server(Contender::CurlToDufs, Some(Path::new("/opt/dufs")));
        assert_eq!(dufs, ServerKind::Other(&DUFS, Some("/opt/dufs".into())));
    }
}
