//! The options of `underpass serve`, spelled as in dufs where it has the same ones.

mod usage;
mod values;

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use underpass_cache::RedirectHost;
use underpass_engine::Integrity;
use underpass_server::access_log::LogFormat;
use underpass_server::{HostPattern, MinFree, Redirect};

use super::certificate::args::TlsArgs;
use crate::args::{EngineArgs, When, duration, integrity, rate, seconds};
use crate::commands::manual::completions::GenerateArgs;
use crate::connection::StoreArgs;
use crate::failure::{Failure, Result};
use underpass_engine::Size;
use underpass_sandbox::User;
use values::{cache_control, header, host, min_free, on_or_off, path_prefix, socket_mode, varying};

pub(super) use usage::OptionsError;
pub(super) use values::Header;

/// The options of `serve`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ServeArgs {
    /// The folder to serve, or a single file
    #[arg(value_name = "DIR or FILE", default_value = ".")]
    pub(super) root: PathBuf,

    #[command(flatten)]
    pub(super) place: PlaceArgs,

    #[command(flatten)]
    pub(super) tls: TlsArgs,

    #[command(flatten)]
    pub(super) access: AccessArgs,

    #[command(flatten)]
    pub(super) changes: ChangeArgs,

    #[command(flatten)]
    pub(super) pages: PageArgs,

    #[command(flatten)]
    pub(super) origin: OriginArgs,

    #[command(flatten)]
    pub(super) limits: LimitArgs,

    #[command(flatten)]
    pub(super) logging: LoggingArgs,

    #[command(flatten)]
    pub(super) engine: EngineArgs,

    /// Guard against changes of a file while it is sent: fast (no check), detect (reset the
    /// connection if it changed), lease (make writers wait) or snapshot (send a clone)
    #[arg(long, value_name = "LEVEL", default_value = "detect", value_parser = integrity(),
        hide_possible_values = true)]
    pub(super) integrity: Integrity,

    #[command(flatten)]
    pub(super) setup: SetupArgs,

    /// The sites of the config file; without any, these options are those of the only site.
    #[arg(skip)]
    pub(super) sites: Vec<SiteArgs>,

    /// The options of the whole server, by their names, as any source gives them.
    #[arg(skip)]
    pub(super) of_server: Vec<(String, Vec<OsString>)>,

    /// The words that were typed.
    #[arg(skip)]
    pub(super) typed: Vec<OsString>,

    /// Whether there is a config file that sets nothing.
    #[arg(skip)]
    pub(super) is_config_empty: bool,
}

/// The options of one site.
#[derive(Debug)]
pub(super) struct SiteArgs {
    /// The place in the config file where it begins.
    pub(super) place: String,
    /// Its names.
    pub(super) names: Vec<HostPattern>,
    /// Whether it answers requests for other names.
    pub(super) is_default: bool,
    /// Whether certificates for its names are ordered from a certificate authority.
    pub(super) is_ordered: bool,
    /// Whether any source names the files that it serves.
    pub(super) has_files: bool,
    /// Its options; those of the server where it sets none.
    pub(super) args: ServeArgs,
}

/// Origin.
#[derive(Clone, Debug, PartialEq, Args)]
#[command(next_help_heading = "Origin")]
pub(super) struct OriginArgs {
    /// Serve the files of this origin (http://, https:// or s3://BUCKET/PREFIX) from a cache that
    /// is filled on demand; can be repeated, several are tried in order
    #[arg(long, value_name = "URL")]
    pub(super) origin: Vec<String>,

    /// Keep the cache in this folder, which only one process can use
    #[arg(long, value_name = "DIR")]
    pub(super) cache: Option<PathBuf>,

    /// Limit the size of the cache, such as 500G; the files used least are removed to make room
    #[arg(long, value_name = "SIZE")]
    pub(super) cache_size: Option<Size>,

    /// Leave this much of the disk free: 10G or 5%
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "5%", value_parser = min_free)]
    pub(super) cache_free: MinFree,

    /// Treat a file as fresh for this time, such as 60s, if the origin says nothing about caching
    /// [default: a tenth of the time since it was changed]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) fresh: Option<Duration>,

    /// Serve a file for this time after it has become stale if the origin fails, such as 1d
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0")]
    pub(super) stale_if_error: Duration,

    /// Follow redirects of the origin to this host, such as *.hf.co or cdn.example.org:8443; can be
    /// repeated
    #[arg(long, value_name = "HOST")]
    pub(super) origin_redirect: Vec<RedirectHost>,

    /// Pass this request header on to the origin, and keep a file for each of its values; can be
    /// repeated
    #[arg(long, value_name = "NAME", value_parser = varying)]
    pub(super) vary_on: Vec<String>,

    /// Trust the certificate authorities in this PEM file instead of the system's for origins
    #[arg(long, value_name = "FILE")]
    pub(super) origin_cacert: Option<PathBuf>,

    #[command(flatten)]
    pub(super) store: StoreArgs,
}

/// Listening.
#[derive(Debug, Args)]
#[command(next_help_heading = "Listening")]
pub(super) struct PlaceArgs {
    /// Listen on an address or host name, with or without :PORT, or on unix:PATH; can be repeated.
    /// 0.0.0.0 is every IPv4 address, :: every IPv6 address and no other, :PORT every address of
    /// both [default: 127.0.0.1, only this machine; with --acme every address]
    #[arg(short, long, value_name = "ADDRESS")]
    pub(super) bind: Vec<String>,

    /// Listen on this port; 0 for any free port [default: 5000, with --acme 443]
    #[arg(short, long)]
    pub(super) port: Option<u16>,

    /// Print the first address for other devices as a QR code: auto (if standard error is a
    /// terminal), always or never
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub(super) qr: When,

    /// Serve below this path of the URL, such as /files
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true,
        value_parser = path_prefix)]
    pub(super) path_prefix: String,

    /// Trust Forwarded, X-Forwarded-For and X-Forwarded-Proto from proxies at this address, in this
    /// network (10.0.0.0/8), or at Unix sockets (unix); can be repeated
    #[arg(long, value_name = "CIDR")]
    pub(super) trusted_proxy: Vec<String>,

    /// Create Unix sockets with this mode, in octal: write permission allows connecting [default:
    /// those that the umask leaves]
    #[arg(long, value_name = "MODE", value_parser = socket_mode)]
    pub(super) socket_mode: Option<u32>,

    /// Require each connection of a trusted proxy to begin with a PROXY protocol header, version 1
    /// or 2
    #[arg(long)]
    pub(super) proxy_protocol: bool,
}

/// Access.
#[derive(Debug, Args)]
#[command(next_help_heading = "Access")]
pub(super) struct AccessArgs {
    /// Require a password: user:password@/folder,/other; @/folder is open to everyone; can be
    /// repeated. The password may be a $6$ or argon2 hash
    #[arg(short, long, value_name = "RULE")]
    pub(super) auth: Vec<String>,

    /// Accept requests without a password for this host name, such as the one that a reverse proxy
    /// passes on; localhost, addresses and this machine's names are always accepted. * is any name;
    /// can be repeated
    #[arg(long, value_name = "NAME", value_parser = host)]
    pub(super) allow_host: Vec<String>,

    /// Neither list nor serve paths that match, such as *.log or /private/**; can be repeated
    #[arg(long, value_name = "GLOB")]
    pub(super) hide: Vec<String>,

    /// List and serve names that begin with a dot
    #[arg(long)]
    pub(super) show_hidden: bool,

    /// Follow symbolic links that lead out of the folder
    #[arg(long)]
    pub(super) allow_symlink: bool,
}

/// Uploads and other changes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Uploads")]
#[allow(clippy::struct_excessive_bools)] // each is a switch of its own that users set
pub(super) struct ChangeArgs {
    /// Allow clients with write access to upload and copy files and to create folders
    #[arg(long)]
    pub(super) allow_upload: bool,

    /// Allow clients with write access to delete; with --allow-upload also to move
    #[arg(long)]
    pub(super) allow_delete: bool,

    /// The same as --allow-upload --allow-delete
    #[arg(short = 'A', long)]
    pub(super) allow_all: bool,

    /// Refuse uploads that are larger than this, such as 10G
    #[arg(long, value_name = "SIZE")]
    pub(super) upload_limit: Option<Size>,

    /// Create missing parent folders of an upload
    #[arg(long)]
    pub(super) create_parents: bool,

    /// Respond only once a change is on disk and survives a power cut: on or off
    #[arg(long, value_name = "POLICY", default_value = "on", action = clap::ArgAction::Set,
        value_parser = on_or_off(), ignore_case = true, hide_possible_values = true)]
    pub(super) sync: bool,

    /// Keep an unfinished upload for this time, so that it can be resumed
    #[arg(long, value_name = "TIME", default_value = "86400", value_parser = seconds)]
    pub(super) upload_expiry: Duration,

    /// Abort an upload that, over the --timeout period, is slower than SIZE per second; 0 for no
    /// limit
    #[arg(long, value_name = "SIZE", default_value = "500")]
    pub(super) upload_min_rate: Size,

    /// Refuse uploads and copies that would leave less free space on the disk: 10G or 5%
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "0", hide_default_value = true,
        value_parser = min_free)]
    pub(super) min_free: MinFree,
}

/// Responses.
#[derive(Debug, Args)]
#[command(next_help_heading = "Responses")]
pub(super) struct PageArgs {
    /// Respond to a folder with its index.html, or with 404 if it has none
    #[arg(long)]
    pub(super) render_index: bool,

    /// Respond to unknown paths with the index.html of the root, for a single-page application
    #[arg(long)]
    pub(super) render_spa: bool,

    /// Disable directory listings, and archives of folders
    #[arg(long)]
    pub(super) no_listing: bool,

    /// Disable downloads of folders as tar and zip archives
    #[arg(long)]
    pub(super) no_archive: bool,

    /// Disable /.underpass/health
    #[arg(long)]
    pub(super) no_health: bool,

    /// Disable /.underpass/metrics
    #[arg(long)]
    pub(super) no_metrics: bool,

    /// Disable /.underpass/transfers
    #[arg(long)]
    pub(super) no_transfers: bool,

    /// Let scripts in HTML and SVG files run as pages of this server, even with uploads or
    /// passwords
    #[arg(long)]
    pub(super) allow_scripts: bool,

    /// Let pages of every origin read responses (CORS)
    #[arg(long)]
    pub(super) enable_cors: bool,

    /// Send this Cache-Control with files, such as max-age=3600
    #[arg(long, value_name = "VALUE", value_parser = cache_control)]
    pub(super) cache_control: Option<String>,

    /// Add a header to every response ('X-Frame-Options: DENY') or, after a pattern that begins
    /// with / or *, to files that match ('*.js Cache-Control: immutable'); can be repeated
    #[arg(long, value_name = "HEADER", value_parser = header)]
    pub(super) header: Vec<Header>,

    /// Redirect a path, or with * every path that begins with it, with 301, 302, 307 or 308: '/old
    /// /new 301', '/old/* /new/* 308', or to a URL with a host; can be repeated, the first match
    /// counts
    #[arg(long, value_name = "REDIRECT")]
    pub(super) redirect: Vec<Redirect>,

    /// Send files with this extension as this media type: gguf=application/x-gguf; can be repeated
    #[arg(long, value_name = "EXT=TYPE")]
    pub(super) mime: Vec<String>,
}

/// Limits.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct LimitArgs {
    /// Serve with N threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) workers: Option<u16>,

    /// Limit the number of connections [default: by the limit of open files, up to 65536]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_connections: Option<u32>,

    /// Limit the number of connections from one address, 0 for no limit; a reverse proxy is one
    /// address, unless it is a --trusted-proxy [default: half of all]
    #[arg(long, value_name = "N")]
    pub(super) max_per_address: Option<u32>,

    /// Refuse archives of more entries than this, subfolders included
    #[arg(long, value_name = "N", default_value = "1000000")]
    pub(super) max_archive_entries: NonZeroUsize,

    /// Limit each connection to SIZE per second, such as 512K
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(super) rate: Option<Size>,

    /// Drop from the page cache what a download has read from disk, so that files that are read
    /// once do not displace files that are read often
    #[arg(long)]
    pub(super) drop_behind: bool,

    /// Close a connection on which nothing has moved for this time
    #[arg(long, value_name = "TIME", default_value = "75", value_parser = seconds)]
    pub(super) timeout: Duration,

    /// After SIGTERM, wait this long for running transfers
    #[arg(long, value_name = "TIME", default_value = "25", value_parser = duration)]
    pub(super) drain: Duration,
}

/// Logging.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct LoggingArgs {
    /// Format of the access log: combined, vhost_combined, json, or a text with $variables
    #[arg(long, value_name = "FORMAT", default_value = "combined",
        value_parser = LogFormat::parse)]
    pub(super) log_format: LogFormat,

    /// Append the access log to this file, reopened on SIGHUP [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(super) log_file: Option<PathBuf>,

    /// Print no access log, and only the addresses at the start; --log-file is still written
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// Configuration.
#[derive(Debug, Args)]
#[command(next_help_heading = "Configuration")]
pub(super) struct SetupArgs {
    /// Read options that are not given on the command line from this TOML file, such as port =
    /// 8080. Its tables named site are sites with names of their own; SIGHUP reloads it
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Switch to this user once the sockets are open: a name or a number, optionally with :GROUP;
    /// for servers started by root
    // A text, because the databases of users are out of reach when it is parsed again on SIGHUP.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(super) user: Option<String>,

    /// Disable the sandbox: no Landlock, no seccomp, capabilities are kept
    #[arg(long)]
    pub(super) no_sandbox: bool,

    #[command(flatten)]
    pub(super) generate: GenerateArgs,
}

impl ServeArgs {
    /// Returns what to print instead of serving.
    pub(crate) fn generate(&self) -> &GenerateArgs {
        &self.setup.generate
    }

    /// Returns the sites, of which there may be only one.
    pub(super) fn each_site(&self) -> impl Iterator<Item = &Self> {
        let only = self.sites.is_empty().then_some(self);
        only.into_iter().chain(self.sites.iter().map(|site| &site.args))
    }

    /// Returns whether a redirect answers every request, so that no file is served.
    pub(super) fn redirects_all(&self) -> bool {
        self.pages.redirect.iter().any(Redirect::is_for_all)
    }

    /// Looks up the user to whom the server switches.
    pub(super) fn user(&self) -> Result<Option<User>> {
        let wrong = |name, error| Failure::value(format_args!("--user {name}"), error);
        let user = self.setup.user.as_ref();
        user.map(|name| name.parse().map_err(|error| wrong(name, error))).transpose()
    }

    /// Returns the config file, by a path that does not depend on the present folder.
    pub(super) fn config_file(&self) -> Option<PathBuf> {
        self.setup.config.as_deref().and_then(|file| std::path::absolute(file).ok())
    }

    /// Returns the port on which plain HTTP is redirected, if there is one. A server that is to be
    /// reached under a name, and for which nothing else was said, has the ports of browsers.
    pub(crate) fn redirect_http(&self) -> Option<u16> {
        let place = &self.place;
        let is_usual = self.is_acme() && place.bind.is_empty() && place.port.is_none();
        self.tls.redirect_http.or(is_usual.then_some(80))
    }

    /// Returns whether the server is reached under names for which it gets certificates.
    pub(crate) fn is_acme(&self) -> bool {
        !self.tls.acme.is_empty() || self.sites.iter().any(|site| site.is_ordered)
    }

    /// Returns whether the first address for other devices is printed as a QR code.
    pub(crate) fn prints_qr(&self) -> bool {
        self.place.qr.is_shown() && (self.place.qr == When::Always || !self.logging.quiet)
    }

    /// Returns the port of addresses without one.
    pub(crate) fn port(&self) -> u16 {
        self.place.port.unwrap_or(if self.is_acme() { 443 } else { 5000 })
    }
}

const AFTER_HELP: &str = "\
Each option can also be set in the environment, as UNDERPASS_ and its name in capitals
(UNDERPASS_MAX_CONNECTIONS=100; UNDERPASS_ROOT is the folder), and in --config FILE. The command
line wins over the environment, which wins over the file. docs/serve.md is the guide, and
docs/operating.md has a section about several sites in one process, the [[site]] tables of the file.";
