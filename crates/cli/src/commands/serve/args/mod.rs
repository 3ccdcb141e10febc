//! The options of `underpass serve`, spelled as in dufs where it has the same ones.

mod access;
mod limits;
mod listening;
mod origin;
mod responses;
mod setup;
mod usage;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use underpass_engine::Integrity;
use underpass_sandbox::User;
use underpass_server::{HostPattern, Redirect};

use super::certificate::args::TlsArgs;
use crate::args::{EngineArgs, When, integrity};
use crate::commands::manual::completions::GenerateArgs;
use crate::failure::{Failure, Result};
use access::AccessArgs;
use responses::PageArgs;
use setup::SetupArgs;

pub(super) use access::ChangeArgs;
pub(super) use limits::LimitArgs;
pub(super) use listening::PlaceArgs;
pub(super) use origin::OriginArgs;
pub(super) use setup::LoggingArgs;
pub(super) use usage::{AcmeUsage, ConfigUsage, OptionsError, OriginUsage, TlsUsage};
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
