//! The identities of a server by name, and its answers to the challenges of certificate
//! authorities.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::SystemTime;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use underpass_engine::wait::unpoison;
use underpass_protocol::request::host_map::HostMap;

use super::super::error::TlsError;
use super::super::suites;
use super::identity::{Identity, signed_by_itself};

/// The protocol by which a certificate authority checks that a server has a name (TLS-ALPN-01, RFC
/// 8737).
pub(in crate::tls) const ACME_PROTOCOL: &[u8] = b"acme-tls/1";

/// The identities of a server, which may change while it runs. All clones share them; a change
/// applies to handshakes that begin later.
#[derive(Clone, Debug, Default)]
pub struct Identities(Arc<RwLock<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// For clients that request no name, or one without its own identity.
    default: Option<Identity>,
    /// In lower case, as rustls reports names.
    by_name: BTreeMap<String, Identity>,
    /// The identities of sites; `None` for sites that use the default one.
    of_sites: HostMap<Option<Identity>>,
    /// The certificates that answer challenges, by the name being checked.
    tls_answers: HashMap<String, Arc<CertifiedKey>>,
    /// The texts that answer challenges over plain HTTP (RFC 8555 8.3), by token.
    http_answers: HashMap<String, String>,
    is_slow: bool,
}

impl Identities {
    /// Uses this identity for clients that request no name, or one without its own identity.
    pub fn set_default(&self, identity: Identity) {
        self.change(|known| known.default = Some(identity));
    }

    /// Uses this identity for clients that request `name`.
    pub fn set(&self, name: &str, identity: Identity) {
        self.change(|known| {
            known.by_name.insert(name.to_ascii_lowercase(), identity);
        });
    }

    /// Returns the identity of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Identity> {
        self.read().by_name.get(&name.to_ascii_lowercase()).cloned()
    }

    /// Removes the identity of a name, also for clients that request no name.
    pub fn remove(&self, name: &str) {
        self.change(|known| {
            let removed = known.by_name.remove(&name.to_ascii_lowercase());
            known.default.take_if(|default| removed.is_some_and(|it| it.is_same(default)));
        });
    }

    /// Uses these identities for clients that request the names of sites, and the default one for
    /// sites without one. Each session then records the name that its client requested.
    pub fn set_sites(&self, of_sites: HostMap<Option<Identity>>) {
        self.change(|known| known.of_sites = of_sites);
    }

    /// Returns whether there are sites with names.
    pub(in crate::tls) fn has_sites(&self) -> bool {
        !self.read().of_sites.is_empty()
    }

    /// Begins to answer the challenge of a certificate authority for `name` over TLS; `digest` is
    /// the SHA-256 of the expected text.
    ///
    /// # Errors
    ///
    /// [`TlsError::Name`] if no certificate can have this name.
    pub fn answer_over_tls(&self, name: &str, digest: &[u8]) -> Result<(), TlsError> {
        let answer = Arc::new(answer(name, digest)?);
        self.change(|known| known.tls_answers.insert(name.to_ascii_lowercase(), answer));
        Ok(())
    }

    /// Begins to answer the challenge with this token over plain HTTP.
    pub fn answer_over_http(&self, token: &str, text: &str) {
        self.change(|known| known.http_answers.insert(token.to_owned(), text.to_owned()));
    }

    /// Stops answering challenges.
    pub fn end_answers(&self) {
        self.change(|known| {
            known.tls_answers.clear();
            known.http_answers.clear();
        });
    }

    /// Returns the answer to the challenge with this token over plain HTTP.
    #[must_use]
    pub fn http_answer(&self, token: &str) -> Option<String> {
        self.read().http_answers.get(token).cloned()
    }

    /// Returns when each identity expires, with its name. The default identity has an empty name,
    /// and is left out if a name also uses it.
    #[must_use]
    pub fn expiries(&self) -> Vec<(String, SystemTime)> {
        let known = self.read();
        let of_sites = known.of_sites.iter().filter_map(|(name, identity)| {
            // As in handshakes, the identity of a name takes precedence over that of a site.
            let is_shown = !known.by_name.contains_key(&name);
            identity.as_ref().filter(|_| is_shown).map(|identity| (name, identity))
        });
        let by_name = known.by_name.iter().map(|(name, identity)| (name.clone(), identity));
        let mut all: Vec<_> = by_name.chain(of_sites).collect();
        let is_named = |default: &&Identity| all.iter().any(|(_, named)| named.is_same(default));
        let default = known.default.as_ref().filter(|default| !is_named(default));
        all.extend(default.map(|identity| (String::new(), identity)));
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all.into_iter()
            .filter_map(|(name, identity)| Some((name, identity.validity()?.end)))
            .collect()
    }

    /// Returns whether a signature by one of them takes long.
    pub(in crate::tls) fn is_slow(&self) -> bool {
        self.read().is_slow
    }

    fn change<T>(&self, change: impl FnOnce(&mut Known) -> T) {
        let mut known = unpoison(self.0.write());
        change(&mut known);
        known.is_slow = {
            let of_sites = known.of_sites.values().flatten();
            let mut all = known.default.iter().chain(known.by_name.values()).chain(of_sites);
            all.any(Identity::is_slow)
        };
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        unpoison(self.0.read())
    }
}

impl ResolvesServerCert for Identities {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name();
        let known = self.read();
        // RFC 8737 3: a certificate authority offers this protocol and no other.
        if hello.alpn().is_some_and(|offered| offered.eq([ACME_PROTOCOL])) {
            return known.tls_answers.get(name?).cloned();
        }
        let of_site = |name: &str| known.of_sites.get(name.as_bytes())?.as_ref();
        let named = name.and_then(|name| known.by_name.get(name).or_else(|| of_site(name)));
        let identity = named.or(known.default.as_ref());
        identity.map(|identity| Arc::clone(identity.key()))
    }
}

/// Makes the certificate that proves to a certificate authority that a server has this name (RFC
/// 8737 3). It is not an [`Identity`]: other clients do not know its critical extension.
fn answer(name: &str, digest: &[u8]) -> Result<CertifiedKey, TlsError> {
    let params = rcgen::CertificateParams::new([name.to_owned()]);
    let mut params = params.map_err(|_| TlsError::Name(name.to_owned()))?;
    params.custom_extensions = vec![rcgen::CustomExtension::new_acme_identifier(digest)];
    let (chain, key) = signed_by_itself(&params)?;
    let key = suites::provider(None).key_provider.load_private_key(key);
    Ok(CertifiedKey::new(chain, key.map_err(|error| TlsError::Refused(error.to_string()))?))
}
