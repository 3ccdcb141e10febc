//! The source of a certificate: files, which are read again on SIGHUP, this process, or a
//! certificate authority.

use underpass_sandbox::User;
use underpass_server::Credentials;
use underpass_transport::tls::{Acceptor, Identities, Identity, KeyFiles, Pin, TlsError};

use super::super::args::{AcmeUsage, ServeArgs, SiteArgs, TlsUsage};
use super::acme::Orders;
use super::args::TlsArgs;
use crate::failure::{Failure, Result};
use crate::output;

/// The certificate of the server, and its source.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    credentials: Credentials,
    source: CertificateSource,
    /// The reason why clients may refuse it.
    warning: Option<String>,
}

/// The source of a certificate.
#[derive(Clone, Debug)]
enum CertificateSource {
    /// PEM files, which may be renewed while the server runs.
    Files(KeyFiles),
    /// A certificate that this process has created.
    SelfSigned(SelfSigned),
    /// A certificate authority, which may have issued none yet.
    Authority,
}

/// Returns the files that these arguments name, if any.
pub(crate) fn key_files(args: &TlsArgs) -> Result<Option<KeyFiles>> {
    match (&args.tls_cert, &args.tls_key) {
        (Some(certificates), Some(key)) => Ok(Some(KeyFiles::new(certificates, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(TlsUsage::WithoutKey.into()),
        (None, Some(_)) => Err(TlsUsage::WithoutCertificate.into()),
    }
}

/// The data by which clients can verify a self-signed certificate.
#[derive(Clone, Debug)]
pub(crate) struct SelfSigned {
    /// SHA-256 of the certificate, as browsers show it.
    pub(crate) fingerprint: String,
    /// SHA-256 of the public key, in the form that curl and `underpass get` accept.
    pub(crate) pin: Pin,
}

impl Certificate {
    /// Returns the certificate that these arguments request, and the orders of those that an
    /// authority issues; `None` if they request none.
    pub(crate) fn of(
        args: &ServeArgs,
        user: Option<&User>,
    ) -> Result<Option<(Self, Option<Orders>)>> {
        check(args)?;
        let TlsArgs { tls, tls_zero_copy, .. } = &args.tls;
        let in_kernel = args.engine.policy().allows_kernel_tls();
        let files = default_files(args)?;
        let identity = match &files {
            Some(files) => Some(files.load()?),
            None if tls.is_some() => Some(Identity::self_signed(&names(args))?),
            None => None,
        };
        let identities = Identities::default();
        let orders = Orders::open(args, &identities, identity.is_some(), user)?;
        if identity.is_none() && orders.is_none() {
            return Ok(None);
        }
        let warning = identity.as_ref().and_then(Identity::warning).map(str::to_owned);
        let source = match (files, &identity) {
            (Some(files), _) => CertificateSource::Files(files),
            (None, Some(own)) => CertificateSource::SelfSigned(SelfSigned {
                fingerprint: own.fingerprint(),
                pin: own.pin(),
            }),
            (None, None) => CertificateSource::Authority,
        };
        identity.into_iter().for_each(|identity| identities.set_default(identity));
        let mut acceptor = Acceptor::with_identities(identities, in_kernel)?;
        if orders.is_some() {
            acceptor = acceptor.for_challenges();
        }
        let credentials = Credentials::new(acceptor.zero_copy(*tls_zero_copy));
        Ok(Some((Self { credentials, source, warning }, orders)))
    }

    /// Returns the credentials of the server.
    pub(crate) fn credentials(&self) -> Credentials {
        self.credentials.clone()
    }

    /// Returns the data by which clients can verify it, if only this process knows them.
    pub(crate) fn made(&self) -> Option<&SelfSigned> {
        match &self.source {
            CertificateSource::SelfSigned(made) => Some(made),
            CertificateSource::Files(_) | CertificateSource::Authority => None,
        }
    }

    /// Returns the reason why clients may refuse it.
    pub(crate) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Returns the files that are read again on SIGHUP.
    pub(crate) fn files(&self) -> Option<&KeyFiles> {
        match &self.source {
            CertificateSource::Files(files) => Some(files),
            CertificateSource::SelfSigned(_) | CertificateSource::Authority => None,
        }
    }

    /// Sets the files to those that the configuration names now, which [`renew`](Self::renew) then
    /// reads. If the default certificate came from an authority before, they are read now.
    pub(crate) fn set_files(&mut self, args: &ServeArgs) -> Result<()> {
        match (&mut self.source, default_files(args)?) {
            (CertificateSource::Files(files), Some(now)) => *files = now,
            (CertificateSource::Authority, Some(now)) => self.credentials.renew(now.load_again()?),
            _ => (),
        }
        Ok(())
    }

    /// Reads the files again. If they are invalid, the old certificate stays in use, and the
    /// error is logged.
    pub(crate) fn renew(&self) {
        let CertificateSource::Files(files) = &self.source else { return };
        match files.load_again() {
            Ok(identity) => {
                let warning = identity.warning().map(str::to_owned);
                self.credentials.renew(identity);
                output::note(&format!("reloaded {}", files.certificates().display()));
                warning.iter().for_each(|warning| output::note(warning));
            }
            Err(error) => output::note(&format!("{error}; the previous certificate stays in use")),
        }
    }
}

/// Refuses sites of which some or all have no certificate, for a server that speaks TLS.
pub(crate) fn check_sites(args: &ServeArgs) -> Result<()> {
    let TlsArgs { tls, tls_cert, acme, .. } = &args.tls;
    if tls.is_some() || tls_cert.is_some() || !acme.is_empty() {
        return Ok(());
    }
    of_sites(args)?;
    let has_any = args.sites.iter().any(|it| it.is_ordered || it.args.tls.tls_cert.is_some());
    if has_any { Ok(()) } else { Err(TlsUsage::RemovedLater.into()) }
}

/// Returns the files of the certificate for clients that name no site, if it is in files.
pub(crate) fn default_files(args: &ServeArgs) -> Result<Option<KeyFiles>> {
    match key_files(&args.tls)? {
        None if args.tls.tls.is_none() && args.tls.acme.is_empty() => of_sites(args),
        files => Ok(files),
    }
}

/// Returns the files for clients that name no site, if only sites have certificates: those of the
/// default site, or of the first one.
fn of_sites(args: &ServeArgs) -> Result<Option<KeyFiles>> {
    let mut with_files = Vec::new();
    for site in &args.sites {
        with_files.push((site, key_files(&site.args.tls)?));
    }
    let has_one =
        |(site, files): &&(&SiteArgs, Option<KeyFiles>)| site.is_ordered || files.is_some();
    if !with_files.iter().any(|site| has_one(&site)) {
        return Ok(None);
    }
    if let Some((site, _)) = with_files.iter().find(|site| !has_one(site)) {
        return Err(Failure::value(&site.place, TlsUsage::SiteWithoutCertificate));
    }
    let default = with_files.iter().find(|(site, _)| site.is_default);
    Ok(default.or(with_files.first()).and_then(|(_, files)| files.clone()))
}

/// Returns the names that a certificate is made for.
fn names(args: &ServeArgs) -> Vec<String> {
    let names = args.sites.iter().flat_map(|site| &site.names);
    let exact = names.filter_map(|name| name.exact()).map(str::to_owned);
    Identity::names_of_this_host().into_iter().chain(exact).collect()
}

/// Refuses options that do not fit together.
fn check(args: &ServeArgs) -> Result<()> {
    let has_site =
        args.sites.iter().any(|site| site.is_ordered || site.args.tls.tls_cert.is_some());
    let is_acme = args.is_acme();
    let args = &args.tls;
    let TlsArgs { tls_cert, tls_key, tls, redirect_http, tls_zero_copy, .. } = args;
    let of_acme = [
        (args.acme_email.is_some(), "--acme-email"),
        (args.acme_directory.is_some(), "--acme-directory"),
        (args.acme_state.is_some(), "--acme-state"),
        (args.acme_ca.is_some(), "--acme-ca"),
    ];
    if let Some((_, option)) = of_acme.iter().find(|(is_given, _)| *is_given && !is_acme) {
        return Err(AcmeUsage::WithoutAcme(option).into());
    }
    match (tls, tls_cert, tls_key) {
        (None, None, None) if is_acme || has_site => Ok(()),
        _ if !args.acme.is_empty() => Err(AcmeUsage::AndOther.into()),
        (None, None, None) if redirect_http.is_some() => {
            Err(TlsUsage::WithoutTls { option: "--redirect-http" }.into())
        }
        (None, None, None) if *tls_zero_copy => {
            Err(TlsUsage::WithoutTls { option: "--tls-zero-copy" }.into())
        }
        // The presence of both files is checked where they are named.
        (Some(_), None, None) | (None, ..) => Ok(()),
        (Some(_), ..) => Err(TlsUsage::SelfSignedAndFiles.into()),
    }
}

impl From<TlsError> for Failure {
    fn from(error: TlsError) -> Self {
        Self::line(error)
    }
}
