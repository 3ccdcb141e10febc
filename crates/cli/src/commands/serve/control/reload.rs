//! Reads the configuration again, and serves the sites that it has now.

use std::ffi::OsString;

use underpass_sandbox::AllowedAccess;
use underpass_server::SiteControl;

use super::super::args::{AcmeUsage, ConfigUsage, OptionsError, ServeArgs, TlsUsage};
use super::super::certificate::{Certificate, OrdersControl, check_sites, default_files};
use super::super::settings::{OpenSites, add_needs, caches_of};
use super::super::sources::{self, Reading};
use crate::failure::{Failure, Result};
use crate::output::{counted, note};

/// The state that SIGHUP reads again.
#[derive(Debug)]
pub(crate) struct Reload {
    /// The words that were typed.
    pub(crate) typed: Vec<OsString>,
    /// The options of the whole server, which a reload cannot change.
    pub(crate) of_server: Vec<(String, Vec<OsString>)>,
    /// Whether the server began with a config file that sets nothing.
    pub(crate) is_config_empty: bool,
    pub(crate) certificate: Option<Certificate>,
    /// The orders of certificates, if the server began with any.
    pub(crate) orders: Option<OrdersControl>,
    pub(crate) open: OpenSites,
    pub(crate) sites: SiteControl,
    /// The access that the sandbox allows, if there is one.
    pub(crate) confined_to: Option<AllowedAccess>,
}

impl Reload {
    /// Reads the certificate and the configuration again. After an error in the configuration, the
    /// previous one stays in use.
    pub(crate) fn run(&mut self) {
        let args = sources::merge_sources(&self.typed, Reading::Again);
        let has_other_files = args.as_ref().is_ok_and(|args| self.has_other_files(args));
        if !has_other_files {
            // First: the folders of sites may be on a disk that does not answer.
            self.certificate.iter().for_each(Certificate::renew);
        }
        let outcome = args.and_then(|args| self.sites(&args));
        if has_other_files {
            self.certificate.iter().for_each(Certificate::renew);
        }
        match outcome {
            Ok(number) => note(&format!("reloaded {}", counted(number as u64, "site", "sites"))),
            Err(failure) => note(&format!("{failure}; the previous sites stay in use")),
        }
    }

    /// Returns whether the configuration now names other files for the server's certificate.
    fn has_other_files(&self, args: &ServeArgs) -> bool {
        let files = self.certificate.as_ref().and_then(Certificate::files);
        files.is_some_and(|files| default_files(args).is_ok_and(|now| now.as_ref() != Some(files)))
    }

    /// Serves the sites that the configuration has now, and returns their number.
    fn sites(&mut self, args: &ServeArgs) -> Result<usize> {
        // Without its root and passwords, the current folder would be served to everyone.
        let is_emptied = args.is_config_empty && !self.is_config_empty;
        if let Some(file) = args.setup.config.as_ref().filter(|_| is_emptied) {
            return Err(Failure::value(file.display(), ConfigUsage::Empty));
        }
        self.refuse_tls(args)?;
        // The previous sites keep their open files until they are replaced.
        let mut open = self.open.clone();
        // The kernel's error for a new cache would not say that the sandbox refuses it.
        let explained = |failure| self.refuse_denied(&caches_of(args)).err().unwrap_or(failure);
        let opened = open.open(args).map_err(explained)?;
        let mut needed = AllowedAccess::default();
        add_needs(&mut needed, args, &opened);
        self.refuse_denied(&needed)?;
        let names = self.orders.as_ref().map(|orders| orders.names(args)).transpose()?;
        let mut roots = opened.sites.iter().filter_map(|site| site.root.as_deref());
        if let Some(orders) = &self.orders {
            roots.try_for_each(|root| orders.check_root(root))?;
        }
        let number = opened.sites.len();
        self.sites.replace(opened.sites)?;
        self.open = open;
        if let (Some(orders), Some(names)) = (&self.orders, names) {
            orders.replace(names);
        }
        if let Some(certificate) = &mut self.certificate {
            certificate.set_files(args)?;
        }
        opened.notes.iter().for_each(|text| note(text));
        self.warn(args);
        Ok(number)
    }

    /// Refuses what the running sandbox does not allow.
    fn refuse_denied(&self, needed: &AllowedAccess) -> Result<()> {
        match self.confined_to.as_ref().and_then(|own| own.lacks(needed)) {
            Some(lack) => Err(OptionsError::Sandboxed(lack).into()),
            None => Ok(()),
        }
    }

    /// Refuses certificates for a server that does not speak TLS, and none for one that does.
    fn refuse_tls(&self, args: &ServeArgs) -> Result<()> {
        let lacks = |site: &ServeArgs| site.tls.tls_cert.is_some() && self.certificate.is_none();
        if args.is_acme() && self.orders.is_none() {
            return Err(AcmeUsage::Later.into());
        }
        if args.each_site().any(lacks) {
            return Err(TlsUsage::Later.into());
        }
        if self.certificate.is_some() { check_sites(args) } else { Ok(()) }
    }

    /// Warns of changes that need a restart.
    fn warn(&self, args: &ServeArgs) {
        let value = |of: &[(String, Vec<OsString>)], name: &str| {
            of.iter().find(|(known, _)| known == name).map(|(_, values)| values.clone())
        };
        let mut names: Vec<_> =
            self.of_server.iter().chain(&args.of_server).map(|(n, _)| n).collect();
        names.sort_unstable();
        names.dedup();
        let reads_files = args.tls.tls_cert.is_some()
            && self.certificate.as_ref().is_some_and(|it| it.files().is_some());
        let is_taken = |name: &str| reads_files && matches!(name, "tls-cert" | "tls-key");
        for name in names.into_iter().filter(|name| !is_taken(name)) {
            if value(&self.of_server, name) != value(&args.of_server, name) {
                note(&format!("{name} has changed: it takes effect after a restart of the server"));
            }
        }
    }
}
