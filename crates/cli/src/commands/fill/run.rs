//! Makes a node fetch the files of a list, piece by piece.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use indicatif::BinaryBytes;
use jiff::Zoned;
use serde::{Deserialize, Serialize};
use underpass_client::backoff::{Backoff, sleep};
use underpass_client::{ClientError, HttpClient, Request, Url};
use underpass_receipt::shown;

use super::args::FillArgs;
use super::manifest::{self, ManifestEntry};
use super::pace::Pace;
use crate::failure::{Failure, Result};
use crate::output::{self, counted};
use crate::signals;

/// The receipt. The names of its fields are stable.
#[derive(Debug, Default, Serialize)]
struct FillReceipt {
    /// The reason why it failed; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The paths that the node has now.
    files: u64,
    /// The paths that it could not get.
    failed: u64,
    /// The length of all files that it has.
    bytes: u64,
    /// The bytes that it had to fetch.
    fetched_bytes: u64,
    /// The seconds that it took, with all waiting.
    elapsed_s: f64,
}

/// The answer of a node about a piece.
#[derive(Debug, Deserialize)]
struct NodePiece {
    length: Option<u64>,
    fetched: u64,
    /// The disk space that the file takes, and that of all files of the node; an older node does
    /// not say.
    #[serde(default)]
    takes: u64,
    capacity: Option<u64>,
    /// A name of what the node has stored, which changes with it; an older node does not say.
    version: Option<String>,
}

/// Has the node fetch everything on the list.
pub(crate) fn run(args: &FillArgs) -> Result<()> {
    let files = manifest::read(&args.manifest)?;
    let tls = args.http.tls(underpass_engine::Policy::Auto)?;
    // From here on there is something to end in order: a signal while a list is awaited ends all.
    let cancel = signals::cancel_flag();
    let client = args.http.client(&args.node, &tls, cancel)?;
    let mut node = args.node.clone();
    let folder = format!("{}/.underpass/fill", node.path().trim_end_matches('/'));
    node.set_path(&folder);
    let started = Instant::now();
    let pace = args.rate.map(|rate| Pace::new(rate.0, started));
    let mut filler =
        Filler { args, client, node, cancel, pace, has_answered: false, fetched: 0, taken: 0 };
    let mut receipt = FillReceipt::default();
    let mut stop = None;
    for (number, wanted) in files.iter().enumerate() {
        let path = &wanted.path;
        match filler.fill(wanted) {
            Ok(length) => {
                receipt.files += 1;
                receipt.bytes += length;
                if !args.quiet {
                    let (at, all) = (number + 1, files.len());
                    output::note(&format!("{at} of {all}: {path}, {}", BinaryBytes(length)));
                }
            }
            Err(FillStop::Path(why)) => {
                receipt.failed += 1;
                output::problem(&Failure::line(format!("{path}: {why}")));
            }
            Err(FillStop::All(failure)) => {
                stop = Some(failure);
                break;
            }
        }
    }
    receipt.fetched_bytes = filler.fetched;
    receipt.elapsed_s = started.elapsed().as_secs_f64();
    let stop = stop.or_else(|| match receipt.failed {
        0 => None,
        failed => Some(Failure::line(format!("{failed} of {} could not be fetched", files.len()))),
    });
    receipt.error = stop.as_ref().map(ToString::to_string);
    if args.json {
        output::json_line(&receipt);
    }
    if !args.quiet {
        let files = counted(receipt.files, "file", "files");
        let (bytes, fetched) = (BinaryBytes(receipt.bytes), BinaryBytes(receipt.fetched_bytes));
        let seconds = receipt.elapsed_s;
        output::note(&format!(
            "{files} of {bytes} on the node, {fetched} fetched in {seconds:.3} s"
        ));
    }
    stop.map_or(Ok(()), Err)
}

/// The reason why a path was given up.
enum FillStop {
    /// This path failed.
    Path(String),
    /// All paths would fail in the same way.
    All(Failure),
}

impl FillStop {
    fn interrupted() -> Self {
        Self::All(Failure::line("interrupted"))
    }
}

struct Filler<'a> {
    args: &'a FillArgs,
    client: HttpClient<'a>,
    node: Url,
    cancel: &'a AtomicBool,
    pace: Option<Pace>,
    /// Whether the node has answered: one that cannot be reached is rather misspelled than busy.
    has_answered: bool,
    fetched: u64,
    /// The disk space that the files of the list take so far.
    taken: u64,
}

impl Filler<'_> {
    /// Makes the node fetch a file, and returns its length.
    fn fill(&mut self, wanted: &ManifestEntry) -> std::result::Result<u64, FillStop> {
        let step = self.args.rate.map_or(MAX_STEP, |rate| rate.0.clamp(MIN_STEP, MAX_STEP));
        let (mut at, mut version, mut restarts) = (0, None, 0);
        loop {
            self.wait()?;
            let begun = Instant::now();
            let piece = self.piece(wanted, at, at + step)?;
            self.fetched += piece.fetched;
            if let Some(pace) = &mut self.pace {
                pace.add(piece.fetched, begun);
            }
            if at > 0 && piece.version != version {
                // The pieces before are gone.
                if restarts == MAX_RESTARTS {
                    return Err(FillStop::Path("it keeps changing".to_owned()));
                }
                (at, restarts) = (0, restarts + 1);
                continue;
            }
            version = piece.version;
            at += step;
            let Some(length) = piece.length else { continue };
            let taken = self.taken.saturating_add(piece.takes);
            // From here on, the node would remove what comes first on the list.
            if let Some(capacity) = piece.capacity.filter(|&capacity| taken > capacity) {
                let (taken, capacity) = (BinaryBytes(taken), BinaryBytes(capacity));
                let path = &wanted.path;
                return Err(FillStop::All(Failure::line(format!(
                    "the cache of the node holds {capacity}, and the list up to {path} takes \
                     {taken}: the rest of it was not fetched"
                ))));
            }
            if at >= length {
                self.taken = taken;
                return Ok(length);
            }
        }
    }

    /// Waits for the time of day, and as long as the rate demands.
    fn wait(&mut self) -> std::result::Result<(), FillStop> {
        let mut is_told = self.args.quiet;
        while let Some(window) = self.args.between.filter(|window| !window.has(Zoned::now().time()))
        {
            if !is_told {
                output::note(&format!("waiting until {}", window.from.strftime("%H:%M")));
                is_told = true;
            }
            self.sleep(LOOK_AT_CLOCK)?;
        }
        let wait = self.pace.as_ref().map(|pace| pace.wait(Instant::now()));
        self.sleep(wait.unwrap_or_default())
    }

    /// Returns the failure of a server that has no cache to fill.
    fn no_node(&self) -> Failure {
        let node = shown(&self.args.node);
        Failure::line(format!("{node} is not a cache node (serve --origin starts one)"))
    }

    fn sleep(&self, time: Duration) -> std::result::Result<(), FillStop> {
        if sleep(time, &[self.cancel]) { Ok(()) } else { Err(FillStop::interrupted()) }
    }

    /// Makes the node fetch a piece, again if that fails for a moment.
    fn piece(
        &mut self,
        wanted: &ManifestEntry,
        from: u64,
        to: u64,
    ) -> std::result::Result<NodePiece, FillStop> {
        let mut url = self.node.clone();
        url.query_pairs_mut()
            .append_pair("path", &wanted.path)
            .append_pair("from", &from.to_string())
            .append_pair("to", &to.to_string());
        // A space is sent as `%20`: a node reads `+` as itself, an older one as a space.
        let query = url.query().unwrap_or_default().replace('+', "%20");
        url.set_query(Some(&query));
        let varying = wanted.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let fields: Vec<_> = varying.chain([("Content-Length", "0")]).collect();
        let request = Request { method: "POST", fields: &fields };
        let mut backoff = Backoff::new(self.args.http.retries);
        loop {
            let answered = self.client.execute(None, &request, &url).and_then(|mut answer| {
                match answer.response.status {
                    200 => {
                        let incoming = answer.connection.incoming();
                        // The node has fetched the piece before it answers.
                        incoming.set_min_rate(self.client.min_rate);
                        let body = incoming.memory(answer.response.framing, MAX_ANSWER);
                        body.map_err(|_| ClientError::Closed)
                    }
                    _ => Err(answer.connection.refusal(&answer.response)),
                }
            });
            let error = match answered {
                Ok(body) => {
                    self.has_answered = true;
                    let bad = |_| self.no_node();
                    return serde_json::from_slice(&body).map_err(bad).map_err(FillStop::All);
                }
                // The words of a server without a cache are about the method.
                Err(ClientError::Status { status: 405, .. }) => {
                    return Err(FillStop::All(self.no_node()));
                }
                Err(error) => error,
            };
            self.has_answered |= !error.is_unreachable_host();
            let report = |error: &ClientError, wait| {
                if !self.args.quiet {
                    output::note_retry(&format_args!("{}: {error}", wanted.path), wait);
                }
            };
            backoff.wait(error, self.has_answered, &[self.cancel], report).map_err(|error| match error {
                ClientError::Cancelled => FillStop::interrupted(),
                // With the last two, the node waits for the origin.
                ClientError::Status { status, .. } if !matches!(status, 401 | 403) => {
                    FillStop::Path(error.to_string())
                }
                ClientError::Stalled | ClientError::Late => FillStop::Path(error.to_string()),
                _ => {
                    let line = format!("asking {}: {error}", shown(&self.args.node));
                    FillStop::All(Failure::hinted(line, &error))
                }
            })?;
        }
    }
}

/// The size of a piece without a limit of the rate, which only tells how far a file is.
const MAX_STEP: u64 = 64 << 20;

/// The minimum size of a piece, which a node fetches at once.
const MIN_STEP: u64 = 1 << 20;

/// The number of times that a file is started over because it changed between two pieces.
const MAX_RESTARTS: u32 = 3;

/// The interval of looks at the clock outside the time.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(5);

/// The maximum size of an answer in bytes.
const MAX_ANSWER: usize = 4 << 10;
