//! The origins: in which order they are asked, and which one is left alone for a while.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use underpass_client::{Answer, ClientError, Connection, HttpClient, Request, Url};
use underpass_client::{Credentials, Proxies};

use super::redirects::{RedirectHost, follow};
use crate::failure::Failure;
use crate::key::Key;
use crate::options::{CacheOptions, OriginOptions};

/// The origins of a cache.
#[derive(Debug)]
pub(crate) struct Origins {
    client: HttpClient<'static>,
    redirects: Vec<RedirectHost>,
    origins: Vec<Origin>,
    /// By which this node recognizes its own requests.
    pub(crate) id: String,
}

#[derive(Debug)]
struct Origin {
    /// Its URL, without a slash at the end.
    base: String,
    /// The same without a name and a password.
    shown: Arc<str>,
    has_credentials: bool,
    client: HttpClient<'static>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Connection<'static>>,
    failures: u32,
    /// The moment before which it is not asked again.
    until: Option<Instant>,
}

/// An answer, and which origin it came from.
pub(crate) struct Asked {
    pub(super) answer: Answer<'static>,
    /// Its number; no valid one if the answer came from where it redirects to.
    pub(super) origin: usize,
    /// The URL of that origin, without credentials and a slash at its end.
    pub(super) base: Arc<str>,
    /// Whether it answers this node alone, by its credentials, so that its words are not meant for
    /// clients.
    pub(super) has_secrets: bool,
}

/// Why no origin has answered, and when to ask again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    pub(super) failure: Failure,
    pub(super) retry_after: Option<Duration>,
}

impl Origins {
    pub(crate) fn new(options: &CacheOptions) -> Self {
        let client = HttpClient {
            user_agent: concat!("underpass/", env!("CARGO_PKG_VERSION")).to_owned(),
            // Said so, what comes in another coding is accepted, and passed on as it is.
            headers: vec![("Accept-Encoding".to_owned(), "identity".to_owned())],
            credentials: Credentials::None,
            proxies: Proxies::default(),
            tls: options.tls.clone(),
            connect_timeout: options.timeout.min(MAX_CONNECT_TIME),
            timeout: options.timeout,
            max_redirects: 0,
            cancel: None,
        };
        let origin = |OriginOptions { url, credentials }: &OriginOptions| {
            let mut shown = url.clone();
            // An http address has a host, so both can be removed.
            let _ = (shown.set_username(""), shown.set_password(None));
            let without_slash = |url: &Url| url.as_str().trim_end_matches('/').to_owned();
            Origin {
                base: without_slash(url),
                shown: without_slash(&shown).into(),
                has_credentials: shown != *url || credentials.store().is_some(),
                client: HttpClient { credentials: credentials.clone(), ..client.clone() },
                state: Mutex::default(),
            }
        };
        let origins = options.origins.iter().map(origin).collect();
        let id = format!("underpass-{:016x}", RandomState::new().hash_one(&options.folder));
        let redirects = options.redirects.clone();
        Self { client, redirects, origins, id }
    }

    /// Returns whether an origin is an object store, for which a query is another request.
    pub(crate) fn has_stores(&self) -> bool {
        self.origins.iter().any(|origin| origin.client.credentials.store().is_some())
    }

    /// Asks the origins in turn until one answers with something other than a failure of its own.
    pub(super) fn ask(
        &self,
        key: &Key,
        fields: &[(&str, &str)],
        is_started: bool,
    ) -> Result<Asked, Silence> {
        let elsewhere = Request { method: "GET", fields };
        let fields: Vec<_> = fields.iter().copied().chain(key.fields()).collect();
        let request = Request { method: "GET", fields: &fields };
        let mut silence = Silence { failure: Failure::Unreachable, retry_after: None };
        let mut refusal = None;
        for (origin, each) in self.origins.iter().enumerate() {
            let idle = match each.enter(is_started) {
                Ok(idle) => idle,
                Err(wait) => {
                    silence.retry_after.get_or_insert(wait);
                    continue;
                }
            };
            let Ok(url) = Url::parse(&format!("{}{}", each.base, key.as_str())) else {
                return Err(Silence { failure: Failure::BadAnswer, retry_after: None });
            };
            let for_store: Vec<_>;
            let mut request = request;
            if each.client.credentials.store().is_some() {
                for_store = fields.iter().map(|field| of_store(*field)).collect();
                request.fields = &for_store;
            }
            match each.client.ask_here(idle, &request, &url) {
                Ok(answer) => {
                    each.succeeded();
                    let silent = |failure| Silence { failure, retry_after: None };
                    let (answer, is_elsewhere) =
                        follow(&self.client, answer, &elsewhere, &self.redirects)
                            .map_err(silent)?;
                    let base = Arc::clone(&each.shown);
                    let has_secrets = each.has_credentials || is_elsewhere;
                    // A connection to another host is not kept for this one.
                    let origin = if is_elsewhere { usize::MAX } else { origin };
                    let asked = Asked { answer, origin, base, has_secrets };
                    // A failure may be about this object alone.
                    match asked.answer.response.status {
                        500 | 502..=504 => drop(refusal.get_or_insert(asked)),
                        _ => return Ok(asked),
                    }
                }
                Err(error) => {
                    silence = Silence {
                        failure: Failure::from(&error),
                        retry_after: Some(match silence_of(&error) {
                            true => each.failed(),
                            false => FIRST_WAIT,
                        }),
                    };
                }
            }
        }
        refusal.ok_or(silence)
    }

    /// Keeps a connection for the next request.
    pub(super) fn keep(&self, origin: usize, connection: Connection<'static>) {
        let Some(origin) = self.origins.get(origin) else { return };
        let mut state = origin.lock();
        if state.idle.len() < MAX_IDLE {
            state.idle.push(connection);
        }
    }
}

impl Origin {
    /// Returns an idle connection, if there is one.
    ///
    /// # Errors
    ///
    /// How long the origin is to be left alone, because it has failed. When that is over, one
    /// request tries; `is_started` is for those that go on with what they have begun.
    fn enter(&self, is_started: bool) -> Result<Option<Connection<'static>>, Duration> {
        let mut state = self.lock();
        if let Some(until) = state.until.filter(|_| !is_started) {
            let now = Instant::now();
            if now < until {
                return Err(until - now);
            }
            state.until = Some(now + wait(state.failures));
        }
        Ok(state.idle.pop())
    }

    fn succeeded(&self) {
        let mut state = self.lock();
        (state.failures, state.until) = (0, None);
    }

    /// Notes a failure; returns how long the origin is left alone.
    fn failed(&self) -> Duration {
        let mut state = self.lock();
        let wait = wait(state.failures);
        state.failures = (state.failures + 1).min(16);
        state.until = Some(Instant::now() + wait);
        wait
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a field as stores know it: they answer `If-Match` without the whole of another version.
fn of_store<'f>((name, value): (&'f str, &'f str)) -> (&'f str, &'f str) {
    match name {
        "If-Range" if value.starts_with('"') => ("If-Match", value),
        _ => (name, value),
    }
}

/// Returns whether an error is one of the origin as a whole, and not of one object: it cannot be
/// reached.
fn silence_of(error: &ClientError) -> bool {
    match error {
        ClientError::Network { action, .. } => *action != "receiving from",
        ClientError::Tls { .. } => true,
        _ => false,
    }
}

/// Returns how long an origin is left alone that has failed this often before.
fn wait(failures: u32) -> Duration {
    (FIRST_WAIT * 2_u32.saturating_pow(failures)).min(MAX_WAIT)
}

/// How long an origin is left alone that has failed once.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest time for which an origin is left alone.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The maximum number of idle connections to an origin.
const MAX_IDLE: usize = 16;

/// The longest time for making a connection.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(10);
