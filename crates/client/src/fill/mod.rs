//! Has a cache node fetch files, piece by piece.
//!
//! # Examples
//!
//! ```no_run
//! use underpass_client::fill::{FillObserver, Filler, manifest};
//! use underpass_client::{HttpClient, Url};
//!
//! struct Silent;
//! impl FillObserver for Silent {}
//!
//! let node = Url::parse("http://192.0.2.1:5000/")?;
//! let mut filler = Filler::new(HttpClient::default(), &node, Some(150 << 20), 8, &Silent);
//! for file in manifest::parse("/models/a.gguf\n/models/b.gguf 5\n")? {
//!     println!("{}: {} bytes", file.path, filler.fill(&file)?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod manifest;

use std::time::{Duration, Instant};

use serde::Deserialize;
use underpass_engine::hint::{Hint, Hinted};
use url::Url;

use crate::backoff::{Backoff, sleep};
use crate::download::RateLimit;
use crate::error::ClientError;
use crate::http::{HttpClient, Request};
use manifest::ManifestEntry;

/// The reason why the node does not have a file yet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FillError {
    /// The fill was cancelled.
    #[error("interrupted")]
    Cancelled,
    /// The file kept changing between two pieces.
    #[error("it keeps changing")]
    Changing,
    /// The request for a piece failed.
    #[error(transparent)]
    Client(ClientError),
    /// The files up to this one exceed the cache: the node would evict the first ones.
    #[error("the cache of the node holds {capacity} bytes, and the list up to here takes {taken}")]
    Full {
        /// The disk space of the cache in bytes.
        capacity: u64,
        /// The disk space that the files take.
        taken: u64,
    },
    /// The server has no cache to fill.
    #[error("it is not a cache node")]
    NotANode,
}

impl FillError {
    /// Returns whether other files may still succeed.
    #[must_use]
    pub fn is_of_file(&self) -> bool {
        match self {
            Self::Changing => true,
            Self::Client(ClientError::Status { status, .. }) => !matches!(status, 401 | 403),
            // The node waits for the origin.
            Self::Client(ClientError::TimedOut(_)) => true,
            _ => false,
        }
    }
}

impl From<ClientError> for FillError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Cancelled => Self::Cancelled,
            error => Self::Client(error),
        }
    }
}

impl Hinted for FillError {
    fn hint(&self) -> Option<Hint> {
        match self {
            Self::Client(error) => error.hint(),
            _ => None,
        }
    }
}

/// The observer of a fill.
pub trait FillObserver {
    /// Waits until the next piece may be fetched; returns `false` to cancel the fill.
    fn wait(&self) -> bool {
        true
    }

    /// Called when a piece failed and is retried after `wait`.
    fn retrying(&self, path: &str, error: &ClientError, wait: Duration) {
        let _ = (path, error, wait);
    }
}

/// Fills a node.
pub struct Filler<'c> {
    client: HttpClient<'c>,
    /// The URL to which the requests are sent.
    url: Url,
    observer: &'c dyn FillObserver,
    retries: u32,
    step: u64,
    rate_limit: RateLimit,
    /// When the rate limit allows the next piece.
    due: Instant,
    /// Whether the node has ever answered: if not, it is more likely misspelled than busy.
    has_answered: bool,
    fetched: u64,
    /// The disk space that the files take so far.
    taken: u64,
}

/// The node's response for a piece.
#[derive(Debug, Deserialize)]
struct NodePiece {
    length: Option<u64>,
    fetched: u64,
    /// The disk space that the file takes, and that of all files of the node; an older node does
    /// not say.
    #[serde(default)]
    takes: u64,
    capacity: Option<u64>,
    /// An identifier of the stored version, which changes with it; `None` from older nodes.
    version: Option<String>,
}

impl<'c> Filler<'c> {
    /// Prepares to fill the node with this URL, which fetches at most `rate` bytes per second.
    #[must_use]
    pub fn new(
        client: HttpClient<'c>,
        node: &Url,
        rate: Option<u64>,
        retries: u32,
        observer: &'c dyn FillObserver,
    ) -> Self {
        let mut url = node.clone();
        url.set_path(&format!("{}/.underpass/fill", node.path().trim_end_matches('/')));
        let step = rate.map_or(MAX_STEP, |rate| rate.clamp(MIN_STEP, MAX_STEP));
        Self {
            client,
            url,
            observer,
            retries,
            step,
            rate_limit: RateLimit::with_max_saved(rate, MAX_SAVED),
            due: Instant::now(),
            has_answered: false,
            fetched: 0,
            taken: 0,
        }
    }

    /// Returns the number of bytes that the node had to fetch.
    #[must_use]
    pub fn fetched(&self) -> u64 {
        self.fetched
    }

    /// Makes the node fetch a file, and returns its length.
    ///
    /// # Errors
    ///
    /// If the node does not have all of it.
    pub fn fill(&mut self, wanted: &ManifestEntry) -> Result<u64, FillError> {
        let (mut at, mut version, mut restarts) = (0, None, 0);
        loop {
            self.wait()?;
            let begun = Instant::now();
            let piece = self.piece(wanted, at, at + self.step)?;
            self.fetched = self.fetched.saturating_add(piece.fetched);
            self.due = self.rate_limit.charge(piece.fetched, begun);
            if at > 0 && piece.version != version {
                // The earlier pieces belong to a version that is gone.
                if restarts == MAX_RESTARTS {
                    return Err(FillError::Changing);
                }
                (at, restarts) = (0, restarts + 1);
                continue;
            }
            version = piece.version;
            at += self.step;
            let Some(length) = piece.length else { continue };
            let taken = self.taken.saturating_add(piece.takes);
            // Beyond its capacity, the node would evict the first files of the list.
            if let Some(capacity) = piece.capacity.filter(|&capacity| taken > capacity) {
                return Err(FillError::Full { capacity, taken });
            }
            if at >= length {
                self.taken = taken;
                return Ok(length);
            }
        }
    }

    /// Waits for the observer, and as long as the rate limit requires.
    fn wait(&self) -> Result<(), FillError> {
        if !self.observer.wait() {
            return Err(FillError::Cancelled);
        }
        let wait = self.due.saturating_duration_since(Instant::now());
        if sleep(wait, self.client.cancel.as_slice()) { Ok(()) } else { Err(FillError::Cancelled) }
    }

    /// Makes the node fetch a piece, and retries after temporary failures.
    fn piece(
        &mut self,
        wanted: &ManifestEntry,
        from: u64,
        to: u64,
    ) -> Result<NodePiece, FillError> {
        let mut url = self.url.clone();
        url.query_pairs_mut()
            .append_pair("path", &wanted.path)
            .append_pair("from", &from.to_string())
            .append_pair("to", &to.to_string());
        // Spaces are sent as `%20`: newer nodes do not decode `+`, older ones do.
        let query = url.query().unwrap_or_default().replace('+', "%20");
        url.set_query(Some(&query));
        let varying = wanted.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let fields: Vec<_> = varying.chain([("Content-Length", "0")]).collect();
        let request = Request { method: "POST", fields: &fields };
        let mut backoff = Backoff::new(self.retries);
        loop {
            let answered = self.client.execute(None, &request, &url).and_then(|mut answer| {
                match answer.response.status {
                    200 => {
                        // The node has fetched the piece before it answers.
                        answer.connection.incoming().set_min_rate(self.client.min_rate);
                        answer.connection.read_body(&answer.response, MAX_ANSWER)
                    }
                    _ => Err(answer.connection.refusal(&answer.response)),
                }
            });
            let error = match answered {
                Ok(body) => {
                    self.has_answered = true;
                    return serde_json::from_slice(&body).map_err(|_| FillError::NotANode);
                }
                // The explanation of a server without a cache would only be about the method.
                Err(ClientError::Status { status: 405, .. }) => return Err(FillError::NotANode),
                Err(error) => error,
            };
            self.has_answered |= !error.is_unreachable_host();
            let report = |error: &ClientError, wait| {
                self.observer.retrying(&wanted.path, error, wait);
            };
            backoff.wait(error, self.has_answered, self.client.cancel.as_slice(), report)?;
        }
    }
}

/// The size of a piece without a rate limit, where it only sets the granularity of the progress.
const MAX_STEP: u64 = 64 << 20;

/// The minimum size of a piece, which a node fetches at once.
const MIN_STEP: u64 = 1 << 20;

/// The idle time that is made up for at most: after its origin was slow for a while, a node is not
/// filled at full speed.
const MAX_SAVED: Duration = Duration::from_secs(1);

/// How often a file is started over because it changed between two pieces.
const MAX_RESTARTS: u32 = 3;

/// The maximum size of a response in bytes.
const MAX_ANSWER: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use underpass_testkit::http::Server;

    use super::*;

    struct Silent;

    impl FillObserver for Silent {}

    #[test]
    fn a_node_that_claims_to_have_fetched_everything_cannot_break_the_rate_limit() {
        let body = format!("{{\"length\":1,\"fetched\":{}}}", u64::MAX);
        let node = Server::start(move |_, stream| {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        });
        let url = Url::parse(&node.url("/")).expect("a URL");
        let mut filler = Filler::new(HttpClient::default(), &url, Some(1), 0, &Silent);
        let wanted = ManifestEntry { path: "/a".to_owned(), fields: Vec::new() };
        for _ in 0..2 {
            // It need not wait for more.
            filler.due = Instant::now();
            assert!(matches!(filler.fill(&wanted), Ok(1)));
        }
        assert_eq!(filler.fetched(), u64::MAX);
    }
}
