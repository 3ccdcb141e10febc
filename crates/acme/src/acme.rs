//! The thread that orders and renews certificates.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use instant_acme::{Account, AccountCredentials, NewAccount};
use underpass_client::{TlsSetup, Url};
use underpass_transport::tls::{Identities, Identity, TlsError};

use crate::error::{AcmeError, Result};
use crate::http::{Http, block_on};
use crate::names::{Names, NamesControl};
use crate::order::{Challenge, order};
use crate::schedule::{self, FailureKind};
use crate::state::{StateFolder, folder_name};

/// Which certificates to get, and from where.
#[derive(Debug)]
pub struct AcmeOptions {
    /// The names with certificates.
    pub names: Names,
    /// The address that is given to the certificate authority for messages.
    pub email: Option<String>,
    /// The URL of the certificate authority's directory.
    pub directory: Url,
    /// The folder of accounts and certificates.
    pub state: PathBuf,
    /// How the certificate authority's server is verified.
    pub tls: TlsSetup,
}

/// The URL of Let's Encrypt's directory.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// An event to report to the operator.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcmeEvent<'a> {
    /// An account was created.
    Registered {
        /// The URL of the accepted terms of service.
        terms: Option<String>,
    },
    /// A new certificate was obtained and is used from now on.
    Obtained {
        /// The name that it is for.
        name: &'a str,
        /// When it expires.
        until: SystemTime,
        /// Whether another process has ordered it.
        is_from_other: bool,
    },
    /// No certificate was obtained; the attempt is repeated.
    Failed {
        /// The name that it is for.
        name: &'a str,
        /// The reason.
        error: &'a AcmeError,
        /// The time until the next attempt.
        wait: Duration,
        /// When the current certificate expires, if there is one.
        until: Option<SystemTime>,
    },
    /// A certificate is used, but could not be stored for the next start.
    NotKept {
        /// The name that it is for.
        name: &'a str,
        /// The reason.
        error: &'a AcmeError,
    },
}

/// Gets and renews the certificates of a server.
#[derive(Debug)]
pub struct Acme {
    options: AcmeOptions,
    state: StateFolder,
    identities: Identities,
    /// The source of replaced names.
    control: Arc<NamesControl>,
    domains: Vec<Domain>,
    /// The account, if it could not be stored: certificate authorities limit the number of new
    /// ones.
    unkept_account: Option<Vec<u8>>,
    /// Whether challenges over plain HTTP are answered, besides those over TLS.
    has_http: bool,
}

/// A name and its certificate.
#[derive(Debug)]
struct Domain {
    name: String,
    /// When its certificate expires, if there is one.
    until: Option<SystemTime>,
    /// When the certificate has to be renewed; in the past if there is none.
    due: SystemTime,
    /// The pause after an order, during which no further order is placed.
    pause: Duration,
    /// The earliest time of the next attempt.
    not_before: Instant,
    /// The number of refusals by the certificate authority since the last success.
    refusals: u32,
    /// The number of consecutive other failures.
    uncounted: u32,
}

impl Acme {
    /// Returns the folder below `state` in which [`open`](Self::open) stores the files of the
    /// certificate authority with this directory.
    #[must_use]
    pub fn folder_of(state: &Path, directory: &Url) -> PathBuf {
        state.join(folder_name(directory))
    }

    /// Opens the folder, and adds the certificates in it to `identities`.
    ///
    /// # Errors
    ///
    /// [`AcmeError::Folder`] if the folder cannot be created or read.
    pub fn open(options: AcmeOptions, identities: Identities) -> Result<Self, AcmeError> {
        let state = StateFolder::open(&options.state, &options.directory)?;
        let names = options.names.all.iter();
        let domains = names.map(|name| Domain::new(name.clone())).collect();
        let control = Arc::default();
        let mut acme = Self {
            options,
            state,
            identities,
            control,
            domains,
            unkept_account: None,
            has_http: false,
        };
        for index in 0..acme.domains.len() {
            acme.load(index)?;
        }
        Ok(acme)
    }

    /// Returns the absolute path of the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.state.top()
    }

    /// Returns the handle for replacing the names while certificates are ordered.
    #[must_use]
    pub fn control(&self) -> Arc<NamesControl> {
        Arc::clone(&self.control)
    }

    /// Returns the names without a certificate.
    #[must_use]
    pub fn missing(&self) -> Vec<&str> {
        let missing = self.domains.iter().filter(|domain| domain.until.is_none());
        missing.map(|domain| domain.name.as_str()).collect()
    }

    /// Checks that the process, with its current rights, can write to the folder: certificates lost
    /// at each restart would soon exhaust the limits of the certificate authority.
    ///
    /// # Errors
    ///
    /// [`AcmeError::Folder`].
    pub fn check(&self) -> Result<(), AcmeError> {
        self.state.check()
    }

    /// Orders and renews the certificates from now on, on a thread that lasts as long as the
    /// process. If `has_http` is true, challenges are answered over plain HTTP as well as TLS.
    ///
    /// # Errors
    ///
    /// The system error if no thread can be started.
    pub fn start(
        mut self,
        has_http: bool,
        on_event: impl Fn(&AcmeEvent<'_>) + Send + 'static,
    ) -> io::Result<()> {
        self.has_http = has_http;
        let thread = thread::Builder::new().name("acme".to_owned());
        thread.spawn(move || self.run(on_event)).map(drop)
    }

    fn run(mut self, on_event: impl Fn(&AcmeEvent<'_>)) {
        loop {
            for index in 0..self.domains.len() {
                if self.domains[index].wait().is_zero() {
                    self.attempt(index, &on_event);
                }
            }
            let wait = self.domains.iter().map(Domain::wait).min().unwrap_or(MAX_SLEEP);
            // The clock may be changed, or the machine suspended.
            if let Some(names) = self.control.wait(wait.min(MAX_SLEEP)) {
                self.replace(names);
            }
        }
    }

    /// Replaces the names. The certificates of remaining names are kept.
    fn replace(&mut self, names: Names) {
        let mut before = std::mem::take(&mut self.domains);
        for name in &names.all {
            let known = before.iter().position(|domain| domain.name == *name);
            let known = known.map(|at| before.swap_remove(at));
            self.domains.push(known.unwrap_or_else(|| Domain::new(name.clone())));
        }
        before.iter().for_each(|domain| self.identities.remove(&domain.name));
        self.options.names = names;
        for index in 0..self.domains.len() {
            if self.domains[index].until.is_none() {
                // The order that follows would report the same error.
                let _ = self.load(index);
            }
            self.show_default(index);
        }
    }

    /// Orders one certificate, unless another process has done so, and schedules the next attempt.
    fn attempt(&mut self, index: usize, on_event: &dyn Fn(&AcmeEvent<'_>)) {
        let http = Http::new(self.options.tls.clone());
        let outcome = self.obtain(index, &http, on_event);
        let domain = &mut self.domains[index];
        let name = &domain.name;
        match outcome {
            Ok(is_from_other) => {
                (domain.refusals, domain.uncounted) = (0, 0);
                let until = domain.until.unwrap_or(SystemTime::UNIX_EPOCH);
                on_event(&AcmeEvent::Obtained { name, until, is_from_other });
            }
            Err(error) => {
                // Without an account the certificate authority has not considered the order. If the
                // account is unknown a second time, that counts as a refusal.
                let is_first = domain.uncounted == 0;
                let is_uncounted = error.is_uncounted() || error.is_unknown_account() && is_first;
                let (kind, count) = if is_uncounted {
                    (FailureKind::Uncounted, &mut domain.uncounted)
                } else {
                    domain.uncounted = 0;
                    (FailureKind::Refused, &mut domain.refusals)
                };
                *count += 1;
                let wait = schedule::wait(*count, kind, http.take_retry_after());
                domain.not_before = Instant::now() + wait;
                on_event(&AcmeEvent::Failed { name, error: &error, wait, until: domain.until });
            }
        }
    }

    /// Gets a certificate; returns whether another process has ordered it.
    fn obtain(
        &mut self,
        index: usize,
        http: &Http,
        on_event: &dyn Fn(&AcmeEvent<'_>),
    ) -> Result<bool> {
        let lock = self.state.lock()?;
        if self.load(index)? {
            return Ok(true);
        }
        let account = self.account(http, on_event)?;
        let Domain { name, refusals, .. } = &self.domains[index];
        let ordered = self.order(&account, http, name, *refusals);
        if ordered.as_ref().is_err_and(AcmeError::is_unknown_account) {
            // The next attempt creates another account.
            self.unkept_account = None;
            let _ = self.state.remove_account();
        }
        let pem = ordered?;
        let identity = Identity::from_pem(&self.state.certificate(name), pem.as_bytes())?;
        if let Err(error) = self.state.write_certificate(name, pem.as_bytes()) {
            on_event(&AcmeEvent::NotKept { name, error: &error });
        }
        drop(lock);
        self.adopt(index, identity)?;
        // Independent of the clock: certificate authorities limit the orders for a certificate.
        let domain = &mut self.domains[index];
        domain.not_before = Instant::now() + domain.pause;
        Ok(false)
    }

    /// Orders a certificate. The first attempt tries both challenges; later attempts alternate,
    /// because certificate authorities limit how often one may fail.
    fn order(&self, account: &Account, http: &Http, name: &str, refusals: u32) -> Result<String> {
        let run = |challenge| order(account, http, name, challenge, &self.identities);
        if !self.has_http {
            return run(Challenge::Tls);
        }
        match refusals {
            0 => match run(Challenge::Tls) {
                Err(error) if error.is_of_challenge() => run(Challenge::Http),
                outcome => outcome,
            },
            odd if odd % 2 == 1 => run(Challenge::Tls),
            _ => run(Challenge::Http),
        }
    }

    /// Returns the account at the certificate authority, creating it if there is none.
    fn account(&mut self, http: &Http, on_event: &dyn Fn(&AcmeEvent<'_>)) -> Result<Account> {
        let builder = Account::builder_with_http(Box::new(http.clone()));
        // An unreadable account is replaced: an account holds nothing worth keeping.
        let kept = match &self.unkept_account {
            Some(bytes) => Some(bytes.clone()),
            None => self.state.read_account()?,
        };
        let kept = kept.and_then(|bytes| serde_json::from_slice::<AccountCredentials>(&bytes).ok());
        self.keep_account();
        if let Some(credentials) = kept {
            return Ok(block_on(builder.from_credentials(credentials))?);
        }
        let contact = self.options.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<_> = contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let directory = self.options.directory.to_string();
        let (account, credentials) = block_on(builder.create(&new, directory, None))?;
        let bytes = serde_json::to_vec(&credentials);
        let bytes = bytes.map_err(|error| AcmeError::Protocol(error.to_string()))?;
        self.unkept_account = Some(bytes);
        self.keep_account();
        on_event(&AcmeEvent::Registered { terms: self.terms(http) });
        Ok(account)
    }

    /// Writes the account to the folder, if it is not stored yet; a failure is repeated later.
    fn keep_account(&mut self) {
        if let Some(bytes) = &self.unkept_account
            && self.state.write_account(bytes).is_ok()
        {
            self.unkept_account = None;
        }
    }

    /// Returns the URL of the certificate authority's terms.
    fn terms(&self, http: &Http) -> Option<String> {
        let directory = http.get(&self.options.directory).ok()?;
        let directory: serde_json::Value = serde_json::from_slice(&directory).ok()?;
        let terms = Url::parse(directory["meta"]["termsOfService"].as_str()?).ok()?;
        Some(terms.into())
    }

    /// Uses the stored certificate; returns whether there is one that need not be renewed.
    fn load(&mut self, index: usize) -> Result<bool> {
        let name = &self.domains[index].name;
        let Some(pem) = self.state.read_certificate(name)? else { return Ok(false) };
        // An unusable certificate is ordered anew, as if it were missing.
        let Ok(identity) = Identity::from_pem(&self.state.certificate(name), &pem) else {
            return Ok(false);
        };
        let is_known = identity.validity().map(|it| it.end) == self.domains[index].until;
        if !is_known {
            self.adopt(index, identity)?;
        }
        Ok(!is_known && self.domains[index].due > SystemTime::now())
    }

    /// Uses a certificate from now on, and notes when to renew it.
    fn adopt(&mut self, index: usize, identity: Identity) -> Result<()> {
        let domain = &mut self.domains[index];
        let malformed = || TlsError::Refused("its period of validity cannot be read".to_owned());
        let validity = identity.validity().ok_or_else(malformed)?;
        domain.until = Some(validity.end);
        domain.due = schedule::renewal(&validity);
        domain.pause = (schedule::lifetime(&validity) / 3).max(MIN_PAUSE);
        self.identities.set(&domain.name, identity);
        self.show_default(index);
        Ok(())
    }

    /// Uses the certificate of a name for clients that request no name, if it is the default one.
    fn show_default(&self, index: usize) {
        let name = &self.domains[index].name;
        if self.options.names.default.as_ref() == Some(name)
            && let Some(identity) = self.identities.get(name)
        {
            self.identities.set_default(identity);
        }
    }
}

impl Domain {
    fn new(name: String) -> Self {
        let due = SystemTime::UNIX_EPOCH;
        let pause = Duration::ZERO;
        Self {
            name,
            until: None,
            due,
            pause,
            not_before: Instant::now(),
            refusals: 0,
            uncounted: 0,
        }
    }

    /// Returns the time until the next attempt.
    fn wait(&self) -> Duration {
        let due = self.due.duration_since(SystemTime::now()).unwrap_or_default();
        due.max(self.not_before.saturating_duration_since(Instant::now()))
    }
}

/// The shortest time between two orders for a name, whatever the lifetime of its certificate.
const MIN_PAUSE: Duration = Duration::from_secs(5);

/// The longest sleep before the clock is checked again.
const MAX_SLEEP: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use std::fs;

    use underpass_transport::tls::Trust;

    use super::*;

    fn acme(state: &Path) -> Result<Acme> {
        acme_for(state, Names { all: vec!["a.example".to_owned()], default: None })
    }

    fn acme_for(state: &Path, names: Names) -> Result<Acme> {
        let options = AcmeOptions {
            names,
            email: None,
            directory: Url::parse("https://ca.example/dir").unwrap(),
            state: state.to_owned(),
            tls: TlsSetup::new(Trust::default()),
        };
        Acme::open(options, Identities::default())
    }

    #[test]
    fn a_damaged_certificate_counts_as_missing() {
        let state = tempfile::tempdir().unwrap();
        let mut acme_of_state = acme(state.path()).unwrap();
        let file = acme_of_state.state.certificate("a.example");
        for damaged in ["", "-----BEGIN CERTIFICATE-----\nAAAA"] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(acme(state.path()).unwrap().missing(), ["a.example"]);
            assert!(!acme_of_state.load(0).unwrap());
        }
    }

    #[test]
    fn the_certificate_of_a_removed_name_is_no_longer_used() {
        let state = tempfile::tempdir().unwrap();
        let names = |name: &str, default: &str| Names {
            all: vec![name.to_owned()],
            default: Some(default.to_owned()),
        };
        let mut acme = acme_for(state.path(), names("a.example", "a.example")).unwrap();
        acme.identities.set("a.example", Identity::self_signed(&["a.example".to_owned()]).unwrap());
        acme.show_default(0);
        acme.replace(names("a.example", "a.example"));
        assert_eq!(acme.identities.expiries().len(), 1);
        acme.replace(Names { default: None, ..names("b.example", "") });
        assert_eq!(acme.identities.expiries(), []);
    }

    #[test]
    fn an_account_that_cannot_be_stored_is_stored_later() {
        let state = tempfile::tempdir().unwrap();
        let mut acme = acme(state.path()).unwrap();
        let blocked = acme.state.top().join("ca.example-dir/account.json");
        fs::create_dir_all(blocked.join("inner")).unwrap();
        acme.unkept_account = Some(b"{}".to_vec());
        acme.keep_account();
        assert!(acme.unkept_account.is_some());
        fs::remove_dir_all(&blocked).unwrap();
        acme.keep_account();
        assert!(acme.unkept_account.is_none());
        assert_eq!(fs::read(&blocked).unwrap(), b"{}");
    }
}
