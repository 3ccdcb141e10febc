//! Makes a node fetch the files of a list.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

use indicatif::BinaryBytes;
use serde::Serialize;
use underpass_client::fill::manifest::{self, ManifestEntry};
use underpass_client::fill::{FillError, Filler};
use underpass_copy::ends::{is_dash, standard_input};
use underpass_receipt::shown;

use super::args::FillArgs;
use super::watch::FillWatch;
use crate::failure::{Failure, Result, WithPath};
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
    /// The elapsed seconds, including all waits.
    elapsed_s: f64,
}

/// Has the node fetch everything on the list.
pub(crate) fn run(args: &FillArgs) -> Result<()> {
    let files = read(&args.manifest)?;
    let tls = args.http.tls(underpass_engine::Policy::Auto)?;
    // From here on a signal ends the work in order; while the list is read, it ends the process.
    let cancel = signals::cancel_flag();
    let client = args.http.client(&args.node, &tls, cancel)?;
    let started = Instant::now();
    let watch = FillWatch { args, cancel };
    let rate = args.rate.map(|rate| rate.0);
    let mut filler = Filler::new(client, &args.node, rate, args.http.retries, &watch);
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
            Err(error) if error.is_of_file() => {
                receipt.failed += 1;
                output::problem(&Failure::line(format_args!("{path}: {error}")));
            }
            Err(error) => {
                stop = Some(failure(args, path, error));
                break;
            }
        }
    }
    receipt.fetched_bytes = filler.fetched();
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

/// Reads the list of files, from standard input for `-`.
fn read(path: &Path) -> Result<Vec<ManifestEntry>> {
    let text = if is_dash(path) {
        let read = io::read_to_string(standard_input()?);
        read.map_err(|source| Failure::System { action: "reading standard input", source })?
    } else {
        fs::read_to_string(path).with_path("reading", path)?
    };
    let place = format_args!("--manifest {}", path.display());
    manifest::parse(&text).map_err(|error| Failure::value(place, error))
}

/// Returns the failure of all files from this one on.
fn failure(args: &FillArgs, path: &str, error: FillError) -> Failure {
    let node = shown(&args.node);
    match error {
        FillError::Client(error) => Failure::hinted(format!("asking {node}: {error}"), &error),
        FillError::Full { capacity, taken } => {
            let (taken, capacity) = (BinaryBytes(taken), BinaryBytes(capacity));
            Failure::line(format_args!(
                "the cache of the node holds {capacity}, and the list up to {path} takes {taken}: \
                 the rest of it was not fetched"
            ))
        }
        FillError::NotANode => {
            Failure::line(format_args!("{node} is not a cache node (serve --origin starts one)"))
        }
        error => Failure::line(error),
    }
}
