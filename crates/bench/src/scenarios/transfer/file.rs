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
use crate::run::{
    CommandWords, Context, Measured, RunArgs, Scenario, Verification, digest, largest,
};

/// What can be typed after `bench get`.
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

/// What can be typed after `bench put`.
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
    fn measure(&self, run: &RunArgs, context: &Context<'_>) -> Result<Record> {
        let server = ServerKind::from(self.from);
        let programs = Programs::look(None, &self.client, Some(self.from))?;
        let example = FileDirection::Get(server.clone());
        let words = |contender| {
            let url = "http://SERVER/";
            example.words(contender, url, Path::new("FOLDER/TARGET"))
        };
        let commands = programs.commands(words, |_| server.clone());
        let transfers = Transfers { server: Some(self.from), commands, ..Transfers::default() };
        let direction = FileDirection::Get(server);
        measure(direction, &self.sizes, transfers, programs, &self.common, run, context)
    }
}

impl Measure for PutArgs {
    fn measure(&self, run: &RunArgs, context: &Context<'_>) -> Result<Record> {
        let programs = Programs::look(self.dufs.as_deref(), &self.way, None)?;
        let words =
            |contender| FileDirection::Put.words(contender, "http://SERVER/", Path::new("SOURCE"));
        let commands = programs.commands(words, |contender| server(contender, None));
        let transfers = Transfers { commands, ..Transfers::default() };
        measure(FileDirection::Put, &self.sizes, transfers, programs, &self.common, run, context)
    }
}

fn measure(
    direction: FileDirection,
    sizes: &[u64],
    transfers: Transfers,
    programs: Programs,
    common: &ClientArgs,
    run: &RunArgs,
    context: &Context<'_>,
) -> Result<Record> {
    // Source and target.
    let room = largest(sizes).saturating_mul(2);
    let (plan, fixture) = common.open(run, sizes, room, transfers, programs, context)?;
    let (about, baseline) = match direction {
        FileDirection::Get(_) => (&GET, Contender::Curl),
        FileDirection::Put => (&PUT, Contender::CurlToNginx),
    };
    let baseline = Variant::plain(baseline);
    plan.measure(about, &mut Moved { fixture, direction }, baseline, context)
}

/// A file that clients move.
#[derive(Debug)]
struct Moved<'a> {
    fixture: ClientFixture<'a>,
    direction: FileDirection,
}

/// Which way the file goes.
#[derive(Clone, Debug)]
enum FileDirection {
    /// From this server, the same for all clients.
    Get(ServerKind),
    /// To a server, of each contender its own.
    Put,
}

impl FileDirection {
    /// Returns the command of a client for the server at `url`; `file` is the client's own.
    fn words(&self, contender: Contender, url: &str, file: &Path) -> CommandWords {
        match self {
            Self::Get(_) => download(contender, &format!("{url}file"), file),
            Self::Put => upload(contender, file, &format!("{url}target")),
        }
    }
}

impl Scenario for Moved<'_> {
    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        let source = match self.direction {
            FileDirection::Get(_) => self.fixture.site.file("file"),
            FileDirection::Put => self.own_file(),
        };
        self.fixture.sha256 = self.fixture.noise.write(&source, cell.size)?;
        Ok(())
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verification> {
        self.moved(cell)?;
        let target = self.target();
        let arrived = digest(&target)?;
        self.fixture.site.folder.clear(&target)?;
        Verification::compare(arrived, &self.fixture.sha256, cell.variant)
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        let target = self.target();
        self.fixture.site.folder.clear(&target)?;
        self.fixture.even_memory(cell.size)?;
        let measured = self.moved(cell)?;
        let found = fs::metadata(&target).with_path("looking at", &target)?.len();
        if found == cell.size { Ok(measured) } else { Err(BenchError::differs(cell.variant)) }
    }

    fn count(&mut self, cell: &Cell) -> Result<Vec<Counted>> {
        let contender = cell.variant.contender;
        self.fixture.site.folder.clear(&self.target())?;
        let words = |url: &str| self.direction.words(contender, url, &self.own_file());
        self.fixture.count(contender, &self.server(contender), words)
    }
}

impl Moved<'_> {
    /// Returns the file of the client.
    fn own_file(&self) -> PathBuf {
        self.fixture.site.folder.file(match self.direction {
            FileDirection::Get(_) => "target",
            FileDirection::Put => "source",
        })
    }

    /// Returns the file that is made anew for each sample.
    fn target(&self) -> PathBuf {
        match self.direction {
            FileDirection::Get(_) => self.own_file(),
            FileDirection::Put => self.fixture.site.file("target"),
        }
    }

    fn server(&self, contender: Contender) -> ServerKind {
        match &self.direction {
            FileDirection::Get(kind) => kind.clone(),
            FileDirection::Put => server(contender, self.fixture.dufs.as_deref()),
        }
    }

    fn moved(&self, cell: &Cell) -> Result<Measured> {
        let contender = cell.variant.contender;
        self.fixture.site.folder.clear(&self.target())?;
        let words = |url: &str| self.direction.words(contender, url, &self.own_file());
        self.fixture.run(contender, &self.server(contender), words)
    }
}

/// Returns the server to which a contender uploads.
fn server(contender: Contender, dufs: Option<&Path>) -> ServerKind {
    match contender {
        Contender::CurlToDufs => ServerKind::Other(&DUFS, dufs.map(Path::to_owned)),
        Contender::CurlToNginx => ServerKind::Other(&NGINX_DAV, None),
        Contender::UnderpassSynced => ServerKind::Underpass(&["--allow-upload"]),
        // Neither of the peers waits for the disk.
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
