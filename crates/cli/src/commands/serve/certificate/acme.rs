//! Certificates from a certificate authority.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use underpass_acme::{
    Acme, AcmeError, AcmeOptions, InvalidHostname, LETS_ENCRYPT, Names, NamesControl, is_public,
};
use underpass_client::{TlsSetup, Url, environment};
use underpass_engine::hint::Action;
use underpass_sandbox::User;
use underpass_transport::tls::{Identities, Trust};

use super::super::args::{AcmeUsage, ServeArgs};
use super::args::TlsArgs;
use super::print;
use crate::failure::{Failure, Result, WithPath};

/// The certificates that a certificate authority issues.
#[derive(Debug)]
pub(crate) struct Orders {
    acme: Acme,
    directory: Url,
    has_default: bool,
}

/// Changes the names of the ordered certificates while the server runs.
#[derive(Debug)]
pub(crate) struct OrdersControl {
    control: Arc<NamesControl>,
    folder: PathBuf,
    has_default: bool,
}

/// The names with certificates from a certificate authority.
#[derive(Debug)]
pub(crate) struct OrderedNames(Names);

impl OrdersControl {
    /// Returns the names in these options.
    pub(crate) fn names(&self, args: &ServeArgs) -> Result<OrderedNames> {
        names(args, self.has_default).map(OrderedNames)
    }

    /// Checks that the keys are not in this served folder.
    pub(crate) fn check_root(&self, root: &Path) -> Result<()> {
        let root = fs::canonicalize(root).with_path(Action::Serving, root)?;
        if !self.folder.starts_with(&root) {
            return Ok(());
        }
        Err(AcmeUsage::KeysServed { folder: self.folder.clone(), root }.into())
    }

    /// Orders and renews certificates for these names from now on.
    pub(crate) fn replace(&self, names: OrderedNames) {
        self.control.replace(names.0);
    }
}

impl Orders {
    /// Opens the folder of the state, and adds the certificates in it to `identities`. `None` if no
    /// authority is used. One of them is also for clients that send no server name (SNI), unless
    /// there is another default certificate.
    pub(crate) fn open(
        args: &ServeArgs,
        identities: &Identities,
        has_default: bool,
        user: Option<&User>,
    ) -> Result<Option<Self>> {
        let TlsArgs { acme_email, acme_directory, acme_state, acme_ca, .. } = &args.tls;
        if !args.is_acme() {
            return Ok(None);
        }
        let names = names(args, has_default)?;
        let directory = directory(acme_directory.as_deref().unwrap_or(LETS_ENCRYPT))?;
        let tls = TlsSetup::new(Trust { authorities: acme_ca.clone(), ..Trust::default() });
        // Later the sandbox prevents reading the files of trusted authorities.
        tls.connector().map_err(Failure::line)?;
        let state = acme_state.clone().or_else(default_folder);
        let state = state.ok_or(AcmeUsage::NoStateFolder)?;
        let options = AcmeOptions {
            names,
            email: acme_email.clone(),
            directory: directory.clone(),
            state: state.clone(),
            tls,
        };
        let open = || Acme::open(options, identities.clone());
        let acme = match user {
            Some(user) => {
                let own = Acme::folder_of(&state, &directory);
                user.create_folder(&own).with_path(Action::Writing, &own)?;
                user.run_as(open).with_path(Action::Writing, &state)?
            }
            None => open(),
        }?;
        Ok(Some(Self { acme, directory, has_default }))
    }

    /// Returns the folder that this process must be able to write to.
    pub(crate) fn folder(&self) -> &Path {
        self.acme.folder()
    }

    /// Returns the port of the authority.
    pub(crate) fn port(&self) -> u16 {
        self.directory.port_or_known_default().unwrap_or(443)
    }

    /// Returns the handle that changes the names later.
    pub(crate) fn control(&self) -> OrdersControl {
        let folder = self.folder().to_owned();
        OrdersControl { control: self.acme.control(), folder, has_default: self.has_default }
    }

    /// Checks that this process, with its current rights, can store certificates.
    pub(crate) fn check(&self) -> Result<()> {
        Ok(self.acme.check()?)
    }

    /// Prints which certificates are still missing.
    pub(crate) fn announce(&self) {
        print::missing(&self.acme.missing(), self.host());
    }

    /// Orders and renews certificates from now on.
    pub(crate) fn start(self, has_http: bool, is_quiet: bool) -> Result<()> {
        let host = self.host().to_owned();
        let started = self.acme.start(has_http, move |event| print::event(event, &host, is_quiet));
        started.map_err(|source| Failure::System { action: "starting a thread", source })
    }

    fn host(&self) -> &str {
        self.directory.host_str().unwrap_or_default()
    }
}

/// Returns the names for which certificates are ordered: those of `--acme`, and those of sites with
/// `acme = true`.
fn names(args: &ServeArgs, has_default: bool) -> Result<Names> {
    // A private authority certifies any name.
    let is_possible = |name: &str| args.tls.acme_directory.is_some() || is_public(name);
    let mut all = args.tls.acme.clone();
    if let Some(name) = all.iter().find(|name| !is_possible(name)) {
        return Err(Failure::value(format_args!("--acme {name}"), AcmeUsage::PrivateName));
    }
    for site in args.sites.iter().filter(|site| site.is_ordered) {
        if site.names.is_empty() {
            return Err(Failure::value(&site.place, AcmeUsage::WithoutNames));
        }
        for pattern in &site.names {
            let name =
                pattern.exact().ok_or(InvalidHostname::Wildcard).and_then(underpass_acme::name);
            let place = format_args!("{}: acme: {pattern}", site.place);
            let name = name.map_err(|bad| Failure::value(place, bad))?;
            if !is_possible(&name) {
                return Err(Failure::value(place, AcmeUsage::PrivateName));
            }
            all.push(name);
        }
    }
    let of_sites = || {
        let site = args.sites.iter().find(|site| site.is_default).or(args.sites.first());
        let site = site.filter(|site| site.is_ordered)?;
        underpass_acme::name(site.names.first()?.exact()?).ok()
    };
    let default = if has_default { None } else { args.tls.acme.first().cloned().or_else(of_sites) };
    Ok(Names { default, ..Names::new(all) })
}

fn directory(text: &str) -> Result<Url> {
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "https" && url.has_host());
    url.ok_or_else(|| {
        let place = format_args!("--acme-directory {text:?}");
        Failure::value(place, "write a URL that begins with https://")
    })
}

/// Returns the folder for persistent state: that of the service manager, or of the user. If the
/// manager gives several, it is the last one, because the first may be served.
fn default_folder() -> Option<PathBuf> {
    let folders = env::var_os("STATE_DIRECTORY").filter(|folders| !folders.is_empty());
    let of_service = folders.and_then(|folders| env::split_paths(&folders).last());
    let of_user = || Some(environment::state_folder()?.join("underpass"));
    Some(of_service.or_else(of_user)?.join("acme"))
}

impl From<AcmeError> for Failure {
    fn from(error: AcmeError) -> Self {
        Self::line(format!("--acme-state: {error}"))
    }
}
