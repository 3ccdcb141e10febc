//! The origins: the order in which they are tried, and how long a failed one is skipped.

mod availability;
mod redirects;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use underpass_client::{
    ClientError, Connection, ConnectionError, HttpClient, OpenResponse, Request, Url,
    without_credentials,
};
use underpass_engine::wait::lock;
use underpass_transport::incoming::BodyFraming;

pub(super) use self::availability::OriginFailure;
use self::availability::{AskedObject, Availability};
pub use self::redirects::RedirectHost;
pub(super) use self::redirects::host_of;
use self::redirects::{RedirectFailure, Redirects};
use super::folder::{FolderFailure, FolderListing, read_folder};
use crate::error::{CacheErrorKind, ConnectionFault, ResponseFault};
use crate::key::CacheKey;
use crate::options::{CacheOptions, OriginOptions};

/// The origins of a cache.
#[derive(Debug)]
pub(crate) struct Origins {
    redirects: Redirects,
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
    availability: Availability,
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
        let redirects = Redirects::new(client.clone(), options.redirects.clone());
        Self { redirects, origins, names, id }
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
        let is_only = self.origins.len() == 1;
        let asked = AskedObject { digest: key.digest(), is_resumed, is_only };
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
                    let followed = self.redirects.follow(answer, &elsewhere, asked);
                    let (answer, is_elsewhere) = match followed {
                        Ok(followed) => followed,
                        Err(RedirectFailure::Skipped(skipped)) => {
                            failure = skipped;
                            continue;
                        }
                        Err(RedirectFailure::Failed(failed)) => {
                            note(&server.shown, &failed.error.detail());
                            failure = failed;
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
                    failure = lock(&server.state).availability.failure(error, asked);
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
                    let is_only = self.origins.len() == 1;
                    let asked = AskedObject { digest: folder.digest(), is_resumed: false, is_only };
                    let wait = lock(&server.state).availability.note_failure(&error, asked);
                    let mut failed = FolderFailure::from(error);
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
        state.availability.check(is_resumed)?;
        // A NAT or balancer that forgets an idle connection may not close it.
        state.idle.retain(|(since, _)| since.elapsed() < MAX_IDLE_TIME);
        Ok(state.idle.pop().map(|(_, connection)| connection))
    }

    fn succeeded(&self) {
        lock(&self.state).availability = Availability::default();
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

/// The beginning of the identifiers of nodes.
const NODE_PREFIX: &str = "underpass-";

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
