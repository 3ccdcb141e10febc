//! What signs the requests to a store, and what it has learned from its answers.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use jiff::{SignedDuration, Timestamp};
use underpass_protocol::response::validator::parse_date;
use url::Url;

use super::credentials::{Chain, Keys};
use super::signing::{UNSIGNED, UnsignedRequest};
use crate::error::ClientError;
use crate::http::{Response, Sign, Signature, StoreRefusal};

/// Signs requests with the newest keys.
#[derive(Debug)]
pub(super) struct Signer {
    chain: Chain,
    /// The region in the URLs that were made.
    region: String,
    /// Whether the host depends on the region.
    moves: bool,
    state: Mutex<State>,
    /// Held while keys are looked for.
    search: Mutex<()>,
}

#[derive(Debug)]
struct State {
    keys: Option<Arc<Keys>>,
    region: String,
    /// How far the clock of the store is ahead.
    skew: SignedDuration,
    /// When keys were last looked for, and whether others were found then.
    searched: Option<(Instant, bool)>,
}

impl Signer {
    pub(super) fn new(chain: Chain, keys: Option<Keys>, region: &str, moves: bool) -> Self {
        let state = State {
            keys: keys.map(Arc::new),
            region: region.to_owned(),
            skew: SignedDuration::ZERO,
            searched: None,
        };
        let (state, region) = (Mutex::new(state), region.to_owned());
        Self { chain, region, moves, state, search: Mutex::default() }
    }

    /// Returns the folders and the port that are needed to replace keys.
    pub(super) fn needs(&self) -> (Vec<PathBuf>, Option<u16>) {
        self.chain.needs()
    }

    /// Returns the region in the URLs, and the one that requests are signed for now.
    pub(super) fn regions(&self) -> (String, String) {
        (self.region.clone(), self.state().region.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces keys that are about to expire. One thread looks for others while the rest uses the
    /// old ones, and so do all if there are none.
    fn refresh(&self) {
        let is_due = {
            let state = self.state();
            let soon = SystemTime::now() + EARLY;
            let expires = state.keys.as_ref().and_then(|keys| keys.expires);
            expires.is_some_and(|expires| expires < soon)
        };
        if is_due && let Ok(_guard) = self.search.try_lock() {
            self.search();
        }
    }

    /// Looks for keys, unless that was done just before; returns whether there are others now.
    fn search(&self) -> bool {
        let searched = self.state().searched;
        if let Some((_, found)) = searched.filter(|(at, _)| at.elapsed() < SEARCH_INTERVAL) {
            return found;
        }
        let keys = self.chain.find().ok().flatten().map(|(keys, _)| Arc::new(keys));
        let mut state = self.state();
        let is_new = keys.is_some() && keys != state.keys;
        state.searched = Some((Instant::now(), is_new));
        if is_new {
            state.keys = keys;
        }
        is_new
    }
}

impl Sign for Signer {
    fn locate(&self, url: &Url) -> Option<Url> {
        if !self.moves {
            return None;
        }
        let state = self.state();
        let (old, new) = (format!("s3.{}.", self.region), format!("s3.{}.", state.region));
        let host = url.host_str().filter(|host| old != new && host.contains(&old))?;
        let mut moved = url.clone();
        moved.set_host(Some(&host.replacen(&old, &new, 1))).ok()?;
        Some(moved)
    }

    fn sign(
        &self,
        method: &str,
        url: &Url,
        fields: &[(&str, &str)],
    ) -> Result<Signature, ClientError> {
        self.refresh();
        let (keys, region, skew) = {
            let state = self.state();
            (state.keys.clone(), state.region.clone(), state.skew)
        };
        let Some(keys) = keys else {
            return Ok(Signature { fields: Vec::new(), region, skew });
        };
        let now = Timestamp::now().checked_add(skew).unwrap_or_else(|_| Timestamp::now());
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let is_payload =
            |(name, _): &&(&str, &str)| name.eq_ignore_ascii_case("x-amz-content-sha256");
        let payload = fields.iter().find(is_payload).map_or(UNSIGNED, |(_, value)| *value);
        let mut added =
            vec![("x-amz-date", time.clone()), ("x-amz-content-sha256", payload.to_owned())];
        if let Some(token) = &keys.token {
            added.push(("x-amz-security-token", token.clone()));
        }
        // Stores refuse fields of this prefix that are not signed.
        let is_signed = |name: &str| {
            name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("x-amz-"))
                && !added.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
        };
        let given = fields.iter().filter(|(name, _)| is_signed(name));
        let given = given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let own = added.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let fields = own.chain(given).collect();
        let unsigned =
            UnsignedRequest { method, url, fields, payload, time: &time, region: &region };
        let value = unsigned.authorize(&keys);
        added.push(("Authorization", value));
        Ok(Signature { fields: added, region, skew })
    }

    fn learn(&self, response: &Response, refusal: &StoreRefusal, signed: &Signature) -> bool {
        let named = response.fields.text("x-amz-bucket-region").or(refusal.region.as_deref());
        // It becomes a part of a name.
        let is_name = |name: &&str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if let Some(named) =
            named.filter(|name| !name.is_empty() && name.len() < 64).filter(is_name)
        {
            // Another request may have learned the same while this one was on its way.
            if signed.region != named {
                named.clone_into(&mut self.state().region);
                return true;
            }
        }
        if response.status != 403 && !matches!(refusal.code.as_str(), "ExpiredToken") {
            return false;
        }
        let date = response.fields.get("date").and_then(parse_date);
        if let Some(date) = date.and_then(|date| Timestamp::try_from(date).ok()) {
            let skew = date.duration_since(Timestamp::now());
            if (skew - signed.skew).abs() > MAX_SKEW && is_about_time(&refusal.code) {
                self.state().skew = skew;
                return true;
            }
        }
        if self.state().keys.is_none() {
            return false;
        }
        let _guard = self.search.lock().unwrap_or_else(PoisonError::into_inner);
        self.search()
    }
}

/// Returns whether a refusal may come from a wrong clock; that of a HEAD request has no code.
fn is_about_time(code: &str) -> bool {
    matches!(code, "" | "RequestTimeTooSkewed" | "RequestExpired" | "ExpiredToken")
}

/// How long before they expire keys are replaced.
const EARLY: Duration = Duration::from_secs(300);

/// How often keys are looked for at most.
const SEARCH_INTERVAL: Duration = Duration::from_secs(10);

/// The difference between two clocks that stores accept, less the time of a slow request.
const MAX_SKEW: SignedDuration = SignedDuration::from_mins(4);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::TlsSetup;

    #[test]
    fn what_one_request_has_learned_helps_all_that_were_under_way() {
        let chain = Chain::new(Vec::new(), TlsSetup::default());
        let keys = Keys { id: "id".to_owned(), secret: "secret".to_owned(), ..Keys::default() };
        let signer = Signer::new(chain, Some(keys), "us-east-1", false);
        let url = Url::parse("http://localhost/bucket/key").expect("a URL");
        for (head, code) in [
            ("HTTP/1.1 400 No\r\nx-amz-bucket-region: eu-central-1\r\n\r\n", ""),
            (
                "HTTP/1.1 403 No\r\nDate: Sun, 01 Jan 2040 12:00:00 GMT\r\n\r\n",
                "RequestTimeTooSkewed",
            ),
        ] {
            let response = Response::parse(head.as_bytes(), "HEAD").expect("a head");
            let refusal = StoreRefusal { code: code.to_owned(), ..StoreRefusal::default() };
            let sign = || signer.sign("GET", &url, &[]).expect("keys");
            let (one, two) = (sign(), sign());
            assert!(signer.learn(&response, &refusal, &one), "{code}");
            assert!(signer.learn(&response, &refusal, &two), "{code}");
            // A request that was signed with what was learned has nothing more to learn.
            assert!(!signer.learn(&response, &refusal, &sign()), "{code}");
        }
    }
}
