//! What can be typed after `serve`. Spellings are those of dufs where it has them: people know them.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use underpass_engine::Integrity;
use underpass_server::server::MinFree;

use super::confine::User;
use crate::args::{EngineArgs, seconds};
use crate::commands::completions::GenerateArgs;
use underpass_engine::Size;

/// What can be typed after `serve`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ServeArgs {
    /// The folder to serve, or a single file
    #[arg(value_name = "DIR or FILE", default_value = ".")]
    pub(in crate::commands::serve) root: PathBuf,

    #[command(flatten)]
    pub(in crate::commands::serve) place: PlaceArgs,

    #[command(flatten)]
    pub(in crate::commands::serve) tls: TlsArgs,

    #[command(flatten)]
    pub(in crate::commands::serve) access: AccessArgs,

    #[command(flatten)]
    pub(in crate::commands::serve) changes: ChangeArgs,

    #[command(flatten)]
    pub(in crate::commands::serve) pages: PageArgs,

    #[command(flatten)]
    pub(in crate::commands::serve) limits: LimitArgs,

    #[command(flatten)]
    pub(in crate::commands::serve) told: ToldArgs,

    #[command(flatten)]
    pub(in crate::commands::serve) engine: EngineArgs,

    /// How sure to be that a response is of one version of the file: fast (trust), detect (reset
    /// the connection if it changed), lease (make writers wait) or snapshot (send a clone)
    #[arg(long, value_name = "LEVEL", default_value = "detect")]
    pub(in crate::commands::serve) integrity: Integrity,

    #[command(flatten)]
    pub(in crate::commands::serve) setup: SetupArgs,
}

/// Where it can be reached.
#[derive(Debug, Args)]
#[command(next_help_heading = "Listening")]
pub(in crate::commands::serve) struct PlaceArgs {
    /// Listen there: an address, a host name, either with :PORT, or unix:PATH; repeat for more
    /// [default: 127.0.0.1, this machine alone; 0.0.0.0 is every address]
    #[arg(short, long, value_name = "ADDRESS")]
    pub(in crate::commands::serve) bind: Vec<String>,

    /// The port; 0 for any that is free
    #[arg(short, long, default_value_t = 5000)]
    pub(in crate::commands::serve) port: u16,

    /// Serve below this path of the URL, such as /files
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    pub(in crate::commands::serve) path_prefix: String,
}

/// With which certificate.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(in crate::commands::serve) struct TlsArgs {
    /// Speak HTTPS, with this certificate and those that vouch for it; read again on SIGHUP
    #[arg(long, value_name = "PEM")]
    pub(in crate::commands::serve) tls_cert: Option<PathBuf>,

    /// The private key of --tls-cert
    #[arg(long, value_name = "PEM")]
    pub(in crate::commands::serve) tls_key: Option<PathBuf>,

    /// Speak HTTPS, with a certificate that is made at the start and that nobody vouches for; what
    /// clients can know it by is told
    #[arg(long, value_name = "WHOSE")]
    pub(in crate::commands::serve) tls: Option<TlsSource>,

    /// Send whoever comes to this port without TLS to where there is TLS; 0 for any that is free
    #[arg(long, value_name = "PORT")]
    pub(in crate::commands::serve) redirect_http: Option<u16>,

    /// Let a network card that encrypts do so with pages of files as they lie in memory: fast, but
    /// whoever writes to a file while it is sent breaks its connections
    #[arg(long)]
    pub(in crate::commands::serve) tls_zero_copy: bool,
}

/// Where a certificate comes from that is in no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::commands::serve) enum TlsSource {
    // Its own key vouches for it. No help of its own, which would spread that of all options.
    #[value(name = "self")]
    SelfSigned,
}

/// Who may see what.
#[derive(Debug, Args)]
#[command(next_help_heading = "Access")]
pub(in crate::commands::serve) struct AccessArgs {
    /// Ask for a password: user:password@/folder,/other; @/folder is for everybody; repeat for
    /// more users. The password may be a $6$ or argon2 hash
    #[arg(short, long, value_name = "RULE")]
    pub(in crate::commands::serve) auth: Vec<String>,

    /// Take requests without a password that name this host, besides localhost, addresses and this
    /// machine's own names, as a reverse proxy passes it on; * for any; repeat for more
    #[arg(long, value_name = "NAME")]
    pub(in crate::commands::serve) allow_host: Vec<String>,

    /// Neither list nor serve what matches: *.log, /private/**; repeat for more
    #[arg(long, value_name = "GLOB")]
    pub(in crate::commands::serve) hide: Vec<String>,

    /// List and serve names that begin with a dot
    #[arg(long)]
    pub(in crate::commands::serve) show_hidden: bool,

    /// Follow links that lead out of the folder
    #[arg(long)]
    pub(in crate::commands::serve) allow_symlink: bool,
}

/// What may be changed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Uploads")]
#[allow(clippy::struct_excessive_bools)] // each is a switch of its own that users set
pub(in crate::commands::serve) struct ChangeArgs {
    /// Let those who may write put files, make folders and copy
    #[arg(long)]
    pub(in crate::commands::serve) allow_upload: bool,

    /// Let those who may write remove files and folders; with --allow-upload also move them
    #[arg(long)]
    pub(in crate::commands::serve) allow_delete: bool,

    /// The same as --allow-upload --allow-delete
    #[arg(short = 'A', long)]
    pub(in crate::commands::serve) allow_all: bool,

    /// Take no file of more bytes than this, such as 10G
    #[arg(long, value_name = "SIZE")]
    pub(in crate::commands::serve) upload_limit: Option<Size>,

    /// Make the folders on the way to a file that is put
    #[arg(long)]
    pub(in crate::commands::serve) create_parents: bool,

    /// Answer only when a change is on the disk and survives a power cut: on or off
    #[arg(long, value_name = "POLICY", default_value = "on", action = clap::ArgAction::Set,
        value_parser = clap::builder::BoolishValueParser::new())]
    pub(in crate::commands::serve) sync: bool,

    /// Keep an upload that was broken off for so long, to be gone on with
    #[arg(long, value_name = "SECONDS", default_value = "86400", value_parser = seconds)]
    pub(in crate::commands::serve) upload_expiry: Duration,

    /// End an upload that within --timeout brings fewer than BYTES per second; 0 for no limit
    #[arg(long, value_name = "BYTES", default_value = "500")]
    pub(in crate::commands::serve) upload_min_rate: Size,

    /// Refuse uploads and copies that would leave less free on the disk: 10G or 5%
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "0", hide_default_value = true,
        value_parser = min_free)]
    pub(in crate::commands::serve) min_free: MinFree,
}

/// What is answered.
#[derive(Debug, Args)]
#[command(next_help_heading = "Responses")]
pub(in crate::commands::serve) struct PageArgs {
    /// Answer a folder with its index.html, 404 if it has none
    #[arg(long)]
    pub(in crate::commands::serve) render_index: bool,

    /// Answer what does not exist with the index.html of the root: a single-page application
    #[arg(long)]
    pub(in crate::commands::serve) render_spa: bool,

    /// Answer no directory pages
    #[arg(long)]
    pub(in crate::commands::serve) no_listing: bool,

    /// Answer no folder as a tar
    #[arg(long)]
    pub(in crate::commands::serve) no_archive: bool,

    /// Answer no /.underpass/health
    #[arg(long)]
    pub(in crate::commands::serve) no_health: bool,

    /// Answer no /.underpass/metrics
    #[arg(long)]
    pub(in crate::commands::serve) no_metrics: bool,

    /// Answer no /.underpass/transfers
    #[arg(long)]
    pub(in crate::commands::serve) no_transfers: bool,

    /// Let scripts in HTML and SVG files act as pages of this server, even where somebody may
    /// upload or has a password
    #[arg(long)]
    pub(in crate::commands::serve) allow_scripts: bool,

    /// Let pages of every origin read the answers
    #[arg(long)]
    pub(in crate::commands::serve) enable_cors: bool,

    /// The Cache-Control of files, such as max-age=3600
    #[arg(long, value_name = "VALUE")]
    pub(in crate::commands::serve) cache_control: Option<String>,

    /// Add a header to every answer: 'X-Frame-Options: DENY'; repeat for more
    #[arg(long, value_name = "NAME: VALUE")]
    pub(in crate::commands::serve) header: Vec<String>,
}

/// How much of the machine it may use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(in crate::commands::serve) struct LimitArgs {
    /// Threads that serve [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(in crate::commands::serve) workers: Option<u16>,

    /// Connections at once [default: what the limit of open files allows, up to 65536]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::commands::serve) max_connections: Option<u32>,

    /// Connections at once from one address, 0 for any number; a reverse proxy is one address
    /// [default: half of all]
    #[arg(long, value_name = "N")]
    pub(in crate::commands::serve) max_per_address: Option<u32>,

    /// Answer no folder as a tar that has more entries than this, with all folders in it
    #[arg(long, value_name = "N", default_value = "1000000")]
    pub(in crate::commands::serve) max_archive_entries: NonZeroUsize,

    /// Bytes a second for each connection, such as 512K
    #[arg(long, value_name = "BYTES", value_parser = rate)]
    pub(in crate::commands::serve) rate: Option<Size>,

    /// Give the memory of pages back that a download brought in from a disk, once it has them: what
    /// is read once does not push out what is read often
    #[arg(long)]
    pub(in crate::commands::serve) drop_behind: bool,

    /// Give up a connection on which nothing has moved for so long
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(in crate::commands::serve) timeout: Duration,

    /// After SIGTERM, let running transfers end for so long
    #[arg(long, value_name = "SECONDS", default_value = "25", value_parser = seconds_or_none)]
    pub(in crate::commands::serve) drain: Duration,
}

/// What is told.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(in crate::commands::serve) struct ToldArgs {
    /// The line of a request: combined, json, or a text with $variables
    #[arg(long, value_name = "FORMAT", default_value = "combined")]
    pub(in crate::commands::serve) log_format: String,

    /// Append the lines of requests to this file, re-opened on SIGHUP [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(in crate::commands::serve) log_file: Option<PathBuf>,

    /// Write no line of requests, and at the start nothing but the addresses
    #[arg(short, long)]
    pub(in crate::commands::serve) quiet: bool,
}

/// Where the settings come from, and what the program may do.
#[derive(Debug, Args)]
#[command(next_help_heading = "Configuration")]
pub(in crate::commands::serve) struct SetupArgs {
    /// Take what is not typed from this TOML file: port = 8080
    #[arg(long, value_name = "FILE")]
    pub(in crate::commands::serve) config: Option<PathBuf>,

    /// Become this user once the sockets are open: a name or a number, or either with :GROUP; for
    /// servers that root starts
    #[arg(long, value_name = "NAME")]
    pub(in crate::commands::serve) user: Option<User>,

    /// Do not confine the program: no Landlock, no seccomp, capabilities stay
    #[arg(long)]
    pub(in crate::commands::serve) no_sandbox: bool,

    #[command(flatten)]
    pub(in crate::commands::serve) generate: GenerateArgs,
}

impl ServeArgs {
    /// What is to be printed instead of serving.
    pub(crate) fn generate(&self) -> &GenerateArgs {
        &self.setup.generate
    }

    /// Whether nothing but addresses and errors is to be told.
    pub(crate) fn is_quiet(&self) -> bool {
        self.told.quiet
    }

    /// The user to become once the sockets are open.
    pub(crate) fn user(&self) -> Option<&User> {
        self.setup.user.as_ref()
    }

    /// Whether the program is to be confined.
    pub(crate) fn wants_sandbox(&self) -> bool {
        !self.setup.no_sandbox
    }

    /// Where to listen as it was typed; nothing if nothing was.
    pub(crate) fn binds(&self) -> &[String] {
        &self.place.bind
    }

    /// The port for those without TLS, if there is one.
    pub(crate) fn redirect_http(&self) -> Option<u16> {
        self.tls.redirect_http
    }

    /// The port of addresses that have none of their own.
    pub(crate) fn port(&self) -> u16 {
        self.place.port
    }

    /// Where lines of requests go, if not to standard output; nothing if they are not wanted.
    pub(crate) fn log_file(&self) -> Option<&PathBuf> {
        self.told.log_file.as_ref().filter(|_| !self.told.quiet)
    }
}

/// A rate at which something moves.
fn rate(text: &str) -> Result<Size, String> {
    match text.parse() {
        Ok(Size(0)) => Err("at a rate of 0 nothing would ever arrive".to_owned()),
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
}

/// A number of bytes, or hundredths of the file system.
fn min_free(text: &str) -> Result<MinFree, String> {
    let fail = || "write a size such as 10G, or a share of the disk from 0% to 99%".to_owned();
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent = percent.parse().ok().filter(|percent| *percent < 100);
            percent.map(MinFree::Percent).ok_or_else(fail)
        }
        None => text.parse().map(|Size(bytes)| MinFree::Bytes(bytes)).map_err(|_| fail()),
    }
}

/// Seconds, of which there may be none.
fn seconds_or_none(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { seconds(text) }
}

const AFTER_HELP: &str = "\
Each option can also be given by the environment, as UNDERPASS_ and its name in capitals
(UNDERPASS_MAX_CONNECTIONS=100; UNDERPASS_ROOT is the folder), and by --config FILE. Typed options
win over the environment, which wins over the file. docs/serve.md is the whole guide.";
