//! The origins: the order in which they are tried, and how long a failed one is skipped.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use underpass_client::{
    ClientError, Connection, ConnectionError, HttpClient, NetworkAction, OpenResponse, Request,
    Url, without_credentials,
};
use underpass_engine::wait::lock;
use underpass_transport::incoming::BodyFraming;

use super::folder::{FolderFailure, FolderListing, read_folder};
use super::redirects::{RedirectHost, follow};
use crate::error::{CacheError, CacheErrorKind, ConnectionFault, ResponseFault};
use crate::key::{CacheKey, KeyDigest};
use crate::options::{CacheOptions, OriginOptions};

/// The origins of a cache.
#[derive(Debug)]
pub(crate) struct Origins {
    client: HttpClient<'static>,
    redirects: Vec<RedirectHost>,
    origins: Vec<OriginServer>,
    /// The URLs of the origins without credentials, which identify their stored files.
    pub(crate) names: Vec<String>,
    /// The identifier by which this node recognizes its own requests.
    pub(crate) id: String,
}

#[derive(Debug)]
struct OriginServer {
    /// The URL, without a trailing slash.
    base: String,
    /// The URL without user name and password.
    shown: Arc<str>,
    has_credentials: bool,
    /// The URL of the bucket, if it is an object store.
    bucket: Option<Url>,
    client: HttpClient<'static>,
    state: Mutex<OriginState>,
}

#[derive(Debug, Default)]
struct OriginState {
    /// Idle connections, each with the time since which it has been idle.
    idle: Vec<(Instant, Connection<'static>)>,
    failures: u32,
    /// The time until which it is skipped, and the reason.
    until: Option<(Instant, CacheErrorKind)>,
    /// The objects with which it was late since its last answer, at most [`MAX_LATE`].
    late: Vec<KeyDigest>,
}

/// A response with its connection, and the origin that sent it.
pub(crate) struct OriginResponse {
    pub(super) answer: OpenResponse<'static>,
    /// The index of the origin; out of range if another host answered after a redirect.
    pub(super) origin: usize,
    /// The URL of the origin, without credentials and trailing slash.
    pub(super) base: Arc<str>,
    /// Whether the request had this server's credentials: error bodies are then not forwarded to
    /// clients.
    pub(super) has_secrets: bool,
}

impl OriginResponse {
    /// Returns the length of the body, if the head states it.
    pub(super) fn framed_len(&self) -> Option<u64> {
        match self.answer.response.framing {
            BodyFraming::Length(len) => Some(len),
            BodyFraming::Chunked | BodyFraming::UntilEnd => None,
        }
    }
}

/// Reports an origin that failed to answer: its URL without credentials, and the reason.
pub(super) type OnFailure<'n> = dyn Fn(&str, &str) + 'n;

/// The error if no origin answered, and the time to wait before the next attempt.
#[derive(Debug)]
pub(super) struct OriginFailure {
    pub(super) error: CacheError,
    pub(super) retry_after: Option<Duration>,
}

impl<K: Into<CacheErrorKind>> From<K> for OriginFailure {
    fn from(kind: K) -> Self {
        Self { error: CacheError::from(kind), retry_after: None }
    }
}

impl Origins {
    pub(crate) fn new(options: &CacheOptions) -> Self {
        let client = HttpClient {
            // A response with another coding is still forwarded unchanged.
            headers: vec![("Accept-Encoding".to_owned(), "identity".to_owned())],
            tls: options.tls.clone(),
            connect_timeout: options.timeout.min(MAX_CONNECT_TIME),
            timeout: options.timeout,
            // A slow origin is fine: clients may follow a file while it is being written.
            min_rate: 0,
            max_redirects: 0,
            ..HttpClient::default()
        };
        let origin = |OriginOptions { url, credentials, bucket }: &OriginOptions| {
            let shown = without_credentials(url);
            let without_slash = |url: &Url| url.as_str().trim_end_matches('/').to_owned();
            OriginServer {
                base: without_slash(url),
                shown: without_slash(&shown).into(),
                bucket: bucket.clone(),
                has_credentials: shown != *url || credentials.store().is_some(),
                client: HttpClient { credentials: credentials.clone(), ..client.clone() },
                state: Mutex::default(),
            }
        };
        let origins: Vec<_> = options.origins.iter().map(origin).collect();
        let names = origins.iter().map(|origin| origin.shown.to_string()).collect();
        let id = format!("{NODE_PREFIX}{:016x}", RandomState::new().hash_one(&options.folder));
        let redirects = options.redirects.clone();
        Self { client, redirects, origins, names, id }
    }

    /// Returns whether an origin is an object store, which interprets queries as other requests.
    pub(crate) fn has_stores(&self) -> bool {
        self.origins.iter().any(|origin| origin.client.credentials.store().is_some())
    }

    /// Sends a request to the origins in order until one answers without a server error. `requests`
    /// counts the requests sent, and `note` receives the URL of each origin that fails, and the
    /// reason.
    pub(super) fn send(
        &self,
        key: &CacheKey,
        fields: &[(&str, &str)],
        is_resumed: bool,
        requests: &AtomicU64,
        note: &OnFailure<'_>,
    ) -> Result<OriginResponse, OriginFailure> {
        let elsewhere = Request { method: "GET", fields };
        let fields: Vec<_> = fields.iter().copied().chain(key.fields()).collect();
        let request = Request { method: "GET", fields: &fields };
        let mut failure = OriginFailure::from(ConnectionFault::Unreachable);
        let mut server_error = None;
        for (origin, server) in self.origins.iter().enumerate() {
            let idle = match server.acquire(is_resumed) {
                Ok(idle) => idle,
                Err((wait, kind)) => {
                    if failure.retry_after.is_none() {
                        failure = OriginFailure { error: kind.into(), retry_after: Some(wait) };
                    }
                    continue;
                }
            };
            let Ok(url) = Url::parse(&format!("{}{}", server.base, key.as_str())) else {
                return Err(ResponseFault::Invalid.into());
            };
            let for_store: Vec<_>;
            let mut request = request;
            if server.client.credentials.store().is_some() {
                for_store = fields.iter().map(|field| for_object_store(*field)).collect();
                request.fields = &for_store;
            }
            requests.fetch_add(1, Ordering::Relaxed);
            match server.client.execute_without_redirects(idle, &request, &url) {
                Ok(answer) => {
                    server.succeeded();
                    let followed = follow(&self.client, answer, &elsewhere, &self.redirects);
                    let (answer, is_elsewhere) = match followed {
                        Ok(followed) => followed,
                        Err(error) => {
                            note(&server.shown, &error.detail());
                            failure = OriginFailure { error, retry_after: None };
                            continue;
                        }
                    };
                    let base = Arc::clone(&server.shown);
                    let has_secrets = server.has_credentials || is_elsewhere;
                    // A connection to another host is not reused for this origin.
                    let origin = if is_elsewhere { usize::MAX } else { origin };
                    let received = OriginResponse { answer, origin, base, has_secrets };
                    // A server error may concern only this object.
                    match received.answer.response.status {
                        500 | 502..=504 => drop(server_error.get_or_insert(received)),
                        _ => return Ok(received),
                    }
                }
                Err(error) => {
                    note(&server.shown, &reason(&error));
                    let has_failed = server.has_failed(&error, key, self.origins.len() == 1);
                    let error = CacheError::from(error);
                    let wait = if has_failed { server.failed(error.kind()) } else { FIRST_WAIT };
                    failure = OriginFailure { error, retry_after: Some(wait) };
                }
            }
        }
        server_error.ok_or(failure)
    }

    /// Lists a folder, whose key ends in a slash, from the first object store that answers without
    /// a server error. `requests` is incremented for each page, and `note` receives the URL of each
    /// store that fails, and the reason.
    pub(crate) fn list(
        &self,
        folder: &CacheKey,
        requests: &AtomicU64,
        note: &OnFailure<'_>,
    ) -> Result<FolderListing, FolderFailure> {
        let mut failure: Option<FolderFailure> = None;
        for (origin, server) in self.origins.iter().enumerate() {
            let Some(bucket) = &server.bucket else { continue };
            let idle = match server.acquire(false) {
                Ok(idle) => idle,
                Err((wait, kind)) => {
                    failure.get_or_insert_with(|| kind.into()).retry_after.get_or_insert(wait);
                    continue;
                }
            };
            let Ok(url) = Url::parse(&format!("{}{}", server.base, folder.as_str())) else {
                return Err(ResponseFault::Invalid.into());
            };
            match read_folder(&server.client, idle, bucket, &url, requests) {
                Ok((listing, idle)) => {
                    server.succeeded();
                    idle.into_iter().for_each(|idle| self.recycle(origin, idle));
                    return listing.ok_or(CacheErrorKind::TooManyEntries.into());
                }
                Err(error) => {
                    note(&server.shown, &reason(&error));
                    let has_failed = server.has_failed(&error, folder, self.origins.len() == 1);
                    let mut failed = FolderFailure::from(error);
                    let wait = has_failed.then(|| server.failed(failed.error.kind()));
                    failed.retry_after = failed.retry_after.or(wait);
                    if !failed.error.kind().is_transient() {
                        return Err(failed);
                    }
                    failure = Some(failed);
                }
            }
        }
        Err(failure.unwrap_or_else(|| ConnectionFault::Unreachable.into()))
    }

    /// Stores an idle connection for the next request.
    pub(super) fn recycle(&self, origin: usize, connection: Connection<'static>) {
        let Some(origin) = self.origins.get(origin) else { return };
        let mut state = lock(&origin.state);
        if state.idle.len() < MAX_IDLE {
            state.idle.push((Instant::now(), connection));
        }
    }
}

impl OriginServer {
    /// Returns an idle connection, if there is one.
    ///
    /// # Errors
    ///
    /// How long the origin is skipped because it has failed, and the kind of failure. After that
    /// time one request is let through. `is_resumed` requests, which continue a body, always are.
    fn acquire(
        &self,
        is_resumed: bool,
    ) -> Result<Option<Connection<'static>>, (Duration, CacheErrorKind)> {
        let mut state = lock(&self.state);
        if let Some((until, why)) = state.until.filter(|_| !is_resumed) {
            let now = Instant::now();
            if now < until {
                return Err((until - now, why));
            }
            state.until = Some((now + wait(state.failures), why));
        }
        // A NAT or balancer that forgets an idle connection may not close it.
        state.idle.retain(|(since, _)| since.elapsed() < MAX_IDLE_TIME);
        Ok(state.idle.pop().map(|(_, connection)| connection))
    }

    fn succeeded(&self) {
        let mut state = lock(&self.state);
        (state.failures, state.until) = (0, None);
        state.late.clear();
    }

    /// Returns whether an error concerns the origin rather than this object. Being late with a
    /// single object is no failure, unless another origin has it. If the only origin is late with
    /// several ones and answers nothing meanwhile, requests would occupy all threads for long.
    fn has_failed(&self, error: &ClientError, key: &CacheKey, is_only: bool) -> bool {
        if !matches!(error, ClientError::TimedOut(_)) {
            return is_unreachable(error);
        }
        let mut state = lock(&self.state);
        if state.late.len() < MAX_LATE && !state.late.contains(key.digest()) {
            state.late.push(*key.digest());
        }
        // Requests that were sent before it was skipped tell nothing new.
        let is_skipped = state.until.is_some_and(|(until, _)| Instant::now() < until);
        !is_only || (state.late.len() >= MAX_LATE && !is_skipped)
    }

    /// Records a failure; returns how long the origin is skipped.
    fn failed(&self, why: CacheErrorKind) -> Duration {
        let mut state = lock(&self.state);
        let wait = wait(state.failures);
        state.failures = (state.failures + 1).min(16);
        state.until = Some((Instant::now() + wait, why));
        wait
    }
}

/// Returns whether a name is the identifier of a node.
pub(super) fn is_node_id(name: &str) -> bool {
    let digits = name.strip_prefix(NODE_PREFIX).unwrap_or_default();
    digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Converts a field for an object store, which answers 412 if `If-Match` names another version.
fn for_object_store<'f>((name, value): (&'f str, &'f str)) -> (&'f str, &'f str) {
    match name {
        "If-Range" if value.starts_with('"') => ("If-Match", value),
        _ => (name, value),
    }
}

/// Returns whether an error concerns the origin rather than one object: it cannot be reached.
fn is_unreachable(error: &ClientError) -> bool {
    match error {
        ClientError::Connection(ConnectionError::Network { action, .. }) => {
            *action != NetworkAction::Receiving
        }
        ClientError::Connection(ConnectionError::Tls { .. }) => true,
        _ => false,
    }
}

/// Returns the message about an error for the operator.
fn reason(error: &ClientError) -> String {
    match error {
        ClientError::Connection(ConnectionError::Tls { error: handshake, .. })
            if handshake.is_untrusted() =>
        {
            format!("{error}; --origin-cacert names the authorities to trust")
        }
        error => error.to_string(),
    }
}

/// Returns how long an origin is skipped after this number of earlier failures.
fn wait(failures: u32) -> Duration {
    (FIRST_WAIT * 2_u32.saturating_pow(failures)).min(MAX_WAIT)
}

/// How long an origin is skipped after its first failure.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The number of objects with which the only origin is late before it is skipped.
const MAX_LATE: usize = 4;

/// The beginning of the identifiers of nodes.
const NODE_PREFIX: &str = "underpass-";

/// The maximum time for which an origin is skipped.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The maximum time for which a connection to an origin is idle, as in nginx. Load balancers and
/// NAT forget idle connections after some minutes.
const MAX_IDLE_TIME: Duration = Duration::from_secs(60);

/// The maximum number of idle connections to an origin.
const MAX_IDLE: usize = 16;

/// The connect timeout.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn long_idle_connections_are_not_reused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let client = HttpClient::default();
        let connect = || client.connect(&url).unwrap();
        let old = Instant::now().checked_sub(MAX_IDLE_TIME).unwrap();
        let idle = vec![(old, connect()), (Instant::now(), connect())];
        let server = OriginServer {
            base: String::new(),
            shown: "".into(),
            has_credentials: false,
            bucket: None,
            client: client.clone(),
            state: Mutex::new(OriginState { idle, ..OriginState::default() }),
        };
        let used = [(); 2].map(|()| server.acquire(false).unwrap().is_some());
        assert_eq!(used, [true, false]);
    }
}
