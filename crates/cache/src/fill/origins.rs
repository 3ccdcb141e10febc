//! The origins: in which order they are asked, and which one is left alone for a while.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use underpass_client::{Answer, ClientError, Connection, HttpClient, Request, Url};
use underpass_client::{Credentials, Proxies};

use crate::failure::Failure;
use crate::key::Key;
use crate::options::CacheOptions;

/// The origins of a cache.
#[derive(Debug)]
pub(crate) struct Origins {
    client: HttpClient<'static>,
    origins: Vec<Origin>,
    /// By which this node recognizes its own requests.
    pub(crate) id: String,
}

#[derive(Debug)]
struct Origin {
    /// Its URL, without a slash at the end.
    base: String,
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
    pub(super) origin: usize,
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
        let origin = |url: &Url| {
            let base = url.as_str().trim_end_matches('/').to_owned();
            Origin { base, state: Mutex::default() }
        };
        let id = format!("underpass-{:016x}", RandomState::new().hash_one(&options.folder));
        Self { client, origins: options.origins.iter().map(origin).collect(), id }
    }

    /// Asks the origins in turn until one answers with something other than a failure of its own.
    pub(super) fn ask(
        &self,
        key: &Key,
        fields: &[(&str, &str)],
        is_started: bool,
    ) -> Result<Asked, Silence> {
        let request = Request { method: "GET", fields };
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
            match self.client.ask(idle, &request, &url) {
                // It may be about this object alone.
                Ok(answer) if matches!(answer.response.status, 500 | 502..=504) => {
                    each.succeeded();
                    refusal.get_or_insert(Asked { answer, origin });
                }
                Ok(answer) => {
                    each.succeeded();
                    return Ok(Asked { answer, origin });
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
        let mut state = self.origins[origin].lock();
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
