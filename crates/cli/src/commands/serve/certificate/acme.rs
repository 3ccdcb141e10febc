//! Certificates from an authority, and what is printed about them.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, fs};

use indicatif::HumanDuration;
use jiff::Timestamp;
use underpass_acme::{Acme, AcmeError, Event, Options};
use underpass_client::{TlsSetup, Url, environment};
use underpass_engine::hint::Action;
use underpass_transport::tls::{Identities, Trust};

use super::super::args::ServeArgs;
use super::args::TlsArgs;
use crate::failure::{Failure, Result, WithPath};
use crate::output::{error_line, note};

/// The certificates that an authority issues.
#[derive(Debug)]
pub(crate) struct Orders {
    acme: Acme,
    directory: Url,
}

impl Orders {
    /// Opens the folder of the state; returns the certificates in it, to which others will be added.
    /// There are none if no authority is to be asked.
    pub(crate) fn open(args: &ServeArgs) -> Result<Option<(Identities, Self)>> {
        let TlsArgs { acme, acme_email, acme_directory, acme_state, acme_ca, .. } = &args.tls;
        if acme.is_empty() {
            return Ok(None);
        }
        let directory = directory(acme_directory.as_deref().unwrap_or(LETS_ENCRYPT))?;
        let tls = TlsSetup::new(Trust { authorities: acme_ca.clone(), ..Trust::default() });
        // Later the files of the authorities cannot be read.
        tls.connector().map_err(Failure::line)?;
        let mut names: Vec<String> = Vec::new();
        for name in acme {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let state = acme_state.clone().or_else(default_folder).ok_or_else(|| {
            let why = "--acme keeps certificates, and there is no folder for them: give one by \
                       --acme-state";
            Failure::Usage(why.to_owned())
        })?;
        let options =
            Options { names, email: acme_email.clone(), directory: directory.clone(), state, tls };
        let identities = Identities::default();
        let acme = Acme::open(options, identities.clone())?;
        if let Some(user) = args.user() {
            for folder in acme.created() {
                user.give(folder).with_path(Action::Writing, folder)?;
            }
        }
        Ok(Some((identities, Self { acme, directory })))
    }

    /// Returns the folder to which this process has to write.
    pub(crate) fn folder(&self) -> &Path {
        self.acme.folder()
    }

    /// Returns the port of the authority.
    pub(crate) fn port(&self) -> u16 {
        self.directory.port_or_known_default().unwrap_or(443)
    }

    /// Checks that nobody is served the keys.
    pub(crate) fn check_root(&self, root: &Path) -> Result<()> {
        let root = fs::canonicalize(root).with_path(Action::Serving, root)?;
        if !self.folder().starts_with(&root) {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "the keys of --acme would be served: {} is in {}; give another folder by --acme-state",
            self.folder().display(),
            root.display()
        )))
    }

    /// Checks that this process, as it is now, can keep certificates.
    pub(crate) fn check(&self) -> Result<()> {
        Ok(self.acme.check()?)
    }

    /// Prints which certificates are still missing.
    pub(crate) fn announce(&self) {
        let missing = self.acme.missing();
        if !missing.is_empty() {
            let (names, host) = (missing.join(" and "), self.host());
            note(&format!(
                "no certificate for {names} yet: clients are refused until {host} has issued one"
            ));
        }
    }

    /// Orders and renews certificates from now on.
    pub(crate) fn start(self, has_http: bool, is_quiet: bool) -> Result<()> {
        let host = self.host().to_owned();
        let started = self.acme.start(has_http, move |event| print(event, &host, is_quiet));
        started.map_err(|source| Failure::System { action: "starting a thread", source })
    }

    fn host(&self) -> &str {
        self.directory.host_str().unwrap_or_default()
    }
}

/// Prints what happened to a certificate.
fn print(event: &Event<'_>, host: &str, is_quiet: bool) {
    match event {
        Event::Registered { terms } => {
            let terms = terms.as_deref().unwrap_or("which it did not name");
            note(&format!("there is an account at {host} now, by its terms: {terms}"));
        }
        Event::Obtained { .. } if is_quiet => {}
        Event::Obtained { name, until, is_from_other } => {
            let by = if *is_from_other { ", which another process has ordered" } else { "" };
            let day = day(*until);
            error_line(&format!("the certificate of {name} from {host} is valid until {day}{by}"));
        }
        Event::Failed { name, error, wait, until } => {
            let wait = HumanDuration(*wait);
            let present = match until {
                Some(until) => format!("; the present one ends on {}", day(*until)),
                None => String::new(),
            };
            note(&format!(
                "no new certificate for {name} from {host}: {error}; next attempt in {wait}{present}"
            ));
        }
        Event::NotKept { name, error } => note(&format!(
            "the certificate of {name} is used, but is lost with the next start: {error}"
        )),
        _ => {}
    }
}

fn day(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::MAX);
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

fn directory(text: &str) -> Result<Url> {
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "https" && url.has_host());
    url.ok_or_else(|| {
        Failure::Usage(format!("--acme-directory {text:?} is no address that begins with https://"))
    })
}

/// Returns the folder for what outlives the process: that of the service manager, or of the user.
/// Of several of the manager, the last; the first may be served.
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

const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
