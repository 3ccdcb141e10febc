//! The signer of requests to a store, with the corrections from the store's responses.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use jiff::{SignedDuration, Timestamp};
use underpass_engine::wait::lock;
use underpass_protocol::response::validator::parse_date;
use url::Url;

use super::credentials::{KeySources, Keys};
use super::signing::{UNSIGNED, UnsignedRequest};
use crate::error::ClientError;
use crate::http::{Response, Sign, Signature, StoreRefusal};

/// Signs requests with the latest keys.
#[derive(Debug)]
pub(super) struct Signer {
    chain: KeySources,
    /// The region in the original URLs.
    region: String,
    /// Whether the host depends on the region.
    moves: bool,
    state: Mutex<State>,
    /// Held during a search for keys.
    search: Mutex<()>,
}

#[derive(Debug)]
struct State {
    keys: Option<Arc<Keys>>,
    region: String,
    /// How far the clock of the store is ahead.
    skew: SignedDuration,
    /// How often the keys were replaced.
    key_changes: u64,
    /// When keys were last searched for, and why none could be obtained then.
    searched: Option<(Instant, Option<String>)>,
}

impl Signer {
    pub(super) fn new(chain: KeySources, keys: Option<Keys>, region: &str, moves: bool) -> Self {
        let state = State {
            keys: keys.map(Arc::new),
            region: region.to_owned(),
            skew: SignedDuration::ZERO,
            key_changes: 0,
            searched: None,
        };
        let (state, region) = (Mutex::new(state), region.to_owned());
        Self { chain, region, moves, state, search: Mutex::default() }
    }

    /// Returns the files and the port that are needed to replace keys.
    pub(super) fn needs(&self) -> (Vec<PathBuf>, Option<u16>) {
        self.chain.needs()
    }

    /// Returns the region in the original URLs.
    pub(super) fn region(&self) -> &str {
        &self.region
    }

    /// Returns the region for which requests are currently signed.
    pub(super) fn signed_region(&self) -> String {
        lock(&self.state).region.clone()
    }

    /// Replaces keys that are about to expire. One thread searches while the others use the old
    /// keys, or wait for it if these have expired. If there are no new keys, all use the old ones.
    fn refresh(&self) {
        let expires = lock(&self.state).keys.as_ref().and_then(|keys| keys.expires);
        let Some(expires) = expires.filter(|expires| *expires < SystemTime::now() + EARLY) else {
            return;
        };
        let guard = if expires <= SystemTime::now() {
            Some(lock(&self.search))
        } else {
            self.search.try_lock().ok()
        };
        if guard.is_some() {
            self.search();
        }
    }

    /// Searches for keys, unless that was done within [`SEARCH_INTERVAL`].
    fn search(&self) {
        let is_recent = |(at, _): &(Instant, _)| at.elapsed() < SEARCH_INTERVAL;
        if lock(&self.state).searched.as_ref().is_some_and(is_recent) {
            return;
        }
        let found = self.chain.find();
        let mut state = lock(&self.state);
        let failure = match found {
            Ok(Some((keys, _))) => {
                if state.keys.as_deref() != Some(&keys) {
                    state.keys = Some(Arc::new(keys));
                    state.key_changes += 1;
                }
                None
            }
            Ok(None) => Some("the source of the keys no longer has any".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        state.searched = Some((Instant::now(), failure));
    }
}

impl Sign for Signer {
    fn locate(&self, url: &Url) -> Option<Url> {
        if !self.moves {
            return None;
        }
        let state = lock(&self.state);
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
        let (keys, region, skew, key_changes) = {
            let state = lock(&self.state);
            (state.keys.clone(), state.region.clone(), state.skew, state.key_changes)
        };
        let Some(keys) = keys else {
            return Ok(Signature { fields: Vec::new(), region, skew, key_changes });
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
        // Stores refuse unsigned fields with this prefix.
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
        Ok(Signature { fields: added, region, skew, key_changes })
    }

    fn learn(&self, response: &Response, refusal: &StoreRefusal, signed: &Signature) -> bool {
        let named = response.fields.text("x-amz-bucket-region").or(refusal.region.as_deref());
        // It becomes part of a host name.
        let is_name = |name: &&str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if let Some(named) =
            named.filter(|name| !name.is_empty() && name.len() < 64).filter(is_name)
        {
            // Another request may have changed the region since this one was signed.
            if signed.region != named {
                named.clone_into(&mut lock(&self.state).region);
                return true;
            }
        }
        // The refusal of a HEAD request has no code, and has status 400 if the token has expired.
        let is_about_keys = matches!(
            refusal.code.as_str(),
            "" | "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired"
        );
        if response.status != 403 && !(response.status == 400 && is_about_keys) {
            return false;
        }
        let date = response.fields.get("date").and_then(parse_date);
        if let Some(date) = date.and_then(|date| Timestamp::try_from(date).ok()) {
            let skew = date.duration_since(Timestamp::now());
            if (skew - signed.skew).abs() > MAX_SKEW && is_about_time(&refusal.code) {
                lock(&self.state).skew = skew;
                return true;
            }
        }
        if lock(&self.state).keys.is_none() {
            return false;
        }
        let _guard = lock(&self.search);
        // Another request may have replaced the keys since this one was signed.
        let has_newer = || lock(&self.state).key_changes != signed.key_changes;
        has_newer() || {
            self.search();
            has_newer()
        }
    }

    fn failure(&self) -> Option<String> {
        lock(&self.state).searched.as_ref().and_then(|(_, failure)| failure.clone())
    }
}

/// Returns whether a refusal may come from a wrong clock; that of a HEAD request has no code.
fn is_about_time(code: &str) -> bool {
    matches!(code, "" | "RequestTimeTooSkewed" | "RequestExpired" | "ExpiredToken")
}

/// How long before their expiry keys are replaced.
const EARLY: Duration = Duration::from_secs(300);

/// The minimum interval between searches for keys.
const SEARCH_INTERVAL: Duration = Duration::from_secs(10);

/// The clock difference that stores accept, less the duration of a slow request.
const MAX_SKEW: SignedDuration = SignedDuration::from_mins(4);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::http::TlsSetup;
    use crate::s3::credentials::KeySource;

    #[test]
    fn corrections_from_one_response_apply_to_concurrent_requests() {
        let chain = KeySources::new(Vec::new(), TlsSetup::default());
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
            // A request signed with the corrections cannot be corrected further.
            assert!(!signer.learn(&response, &refusal, &sign()), "{code}");
        }
    }

    /// A signer whose keys expire after this time, and a service that has newer ones soon after, or
    /// none.
    fn expiring(seconds: i64, has_newer: bool) -> Signer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let _ = stream.read(&mut [0; 4096]);
                std::thread::sleep(Duration::from_millis(300));
                let body = r#"{"AccessKeyId":"new","SecretAccessKey":"s","Expiration":"2040-01-01T00:00:00Z"}"#;
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                let all =
                    if has_newer { head + body } else { "HTTP/1.1 500 No\r\n\r\n".to_owned() };
                let _ = stream.write_all(all.as_bytes());
            }
        });
        let url = Url::parse(&url).expect("a URL");
        let sources = vec![KeySource::Container { url, token: None, token_file: None }];
        let chain = KeySources::new(sources, TlsSetup::default());
        let expires = Timestamp::now() + SignedDuration::from_secs(seconds);
        let keys = Keys { id: "old".to_owned(), secret: "s".to_owned(), ..Keys::default() };
        let keys = Keys { expires: Some(expires.into()), ..keys };
        Signer::new(chain, Some(keys), "us-east-1", false)
    }

    /// Signs a request; returns whether it used the newer keys.
    fn is_newer(signer: &Signer) -> bool {
        let url = Url::parse("http://localhost/bucket/key").expect("a URL");
        let signature = signer.sign("GET", &url, &[]).expect("a signature");
        signature.fields.iter().any(|(_, value)| value.contains("Credential=new/"))
    }

    #[test]
    fn no_request_is_signed_with_expired_keys_if_there_are_newer_ones() {
        let signer = expiring(-60, true);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert!(is_newer(&signer)));
            }
        });
        assert_eq!(lock(&signer.state).key_changes, 1);
        // Keys that are still valid are used while others are fetched.
        let signer = expiring(60, true);
        let count = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| is_newer(&signer))).collect();
            all.into_iter().filter_map(|one| one.join().ok()).filter(|newer| *newer).count()
        });
        assert!(count >= 1 && is_newer(&signer));
        // An hour before the expiry they are not replaced.
        assert!(!is_newer(&expiring(3600, true)));
    }

    #[test]
    fn a_service_without_newer_keys_is_named_when_the_old_ones_are_refused() {
        let signer = expiring(-60, false);
        assert!(!is_newer(&signer));
        let failure = signer.failure().expect("a failure");
        assert!(
            failure.starts_with("requesting the keys of the container from http://127.0.0.1:"),
            "{failure}"
        );
    }

    #[test]
    fn keys_that_another_request_has_replaced_are_used_after_a_refusal() {
        let signer = expiring(-60, true);
        let url = Url::parse("http://localhost/bucket/key").expect("a URL");
        let before = Signature { region: "us-east-1".to_owned(), ..Signature::default() };
        assert!(is_newer(&signer));
        let refused = |head: &str, code: &str, signed: &Signature| {
            let response = Response::parse(head.as_bytes(), "HEAD").expect("a head");
            let refusal = StoreRefusal { code: code.to_owned(), ..StoreRefusal::default() };
            signer.learn(&response, &refusal, signed)
        };
        let (denied, bad) = ("HTTP/1.1 403 No\r\n\r\n", "HTTP/1.1 400 No\r\n\r\n");
        assert!(refused(denied, "AccessDenied", &before));
        // A store's responses for an expired token, to a HEAD request and to others.
        assert!(refused(bad, "", &before));
        assert!(refused(bad, "ExpiredToken", &before));
        assert!(!refused(bad, "InvalidArgument", &before));
        let now = signer.sign("GET", &url, &[]).expect("a signature");
        assert!(!refused(denied, "AccessDenied", &now));
    }
}
