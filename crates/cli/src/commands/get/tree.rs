//! `underpass get -r`: a whole folder.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{BinaryBytes, HumanCount, ProgressBar, ProgressStyle};
use serde::Serialize;
use underpass_client::tree::{self, TreeDone, TreeEvent, TreeGauge, TreeOptions, TreeWay, name_of};
use underpass_client::{TlsSetup, Url};

use super::args::GetArgs;
use super::print;
use crate::args::ShowArgs;
use crate::failure::{Failure, Result};
use crate::output;
use underpass_receipt::shown;
use underpass_receipt::{EndKind, Receipt, TlsReceipt};

/// What fetching a folder did, as one JSON object.
#[derive(Debug, Serialize)]
pub(crate) struct TreeReceipt {
    url: String,
    /// The local folder.
    file: String,
    /// How the folder was fetched: `archive` or `listing`.
    way: &'static str,
    /// Files that were fetched.
    files: u64,
    /// Files that were present already.
    here: u64,
    folders: u64,
    links: u64,
    /// Entries that could not be created.
    left_out: u64,
    connections: u32,
    /// Bytes of the archive that were present before.
    resumed_at: u64,
    #[serde(flatten)]
    pub(crate) receipt: Receipt,
}

impl TreeReceipt {
    fn new(url: &Url, path: &Path, done: &TreeDone, elapsed: Duration) -> Self {
        Self {
            url: shown(url),
            file: path.display().to_string(),
            way: match done.way {
                TreeWay::Archive => "archive",
                TreeWay::Listing => "listing",
            },
            files: done.files,
            here: done.here,
            folders: done.folders,
            links: done.links,
            left_out: done.left_out,
            connections: done.connections,
            resumed_at: done.resumed_at,
            receipt: Receipt {
                elapsed_s: elapsed.as_secs_f64(),
                tls: done.tls.as_ref().map(TlsReceipt::from),
                ..Receipt::from(&done.report).between(EndKind::Socket, EndKind::File)
            },
        }
    }

    /// Returns the summary: `20,003 files: 1.00 GiB in 1.13 s (906 MiB/s) by splice, read_write`.
    pub(crate) fn summary(&self) -> String {
        let count = |number: u64, one: &str, more: &str| match number {
            1 => format!("1 {one}"),
            number => format!("{} {more}", HumanCount(number)),
        };
        let mut text = count(self.files, "file", "files");
        if self.here > 0 {
            text += &format!(" ({} more were here already)", HumanCount(self.here));
        }
        format!("{text}: {}", output::summary(&self.receipt))
    }
}

/// Fetches the folder at one URL.
pub(crate) fn fetch(args: &GetArgs, url: &Url, tls: &TlsSetup, cancel: &AtomicBool) -> Result<()> {
    let path = place(args, url)?;
    let client = args.http.client(url, tls, cancel)?;
    let options = TreeOptions {
        connections: args.connections.unwrap_or(TreeOptions::default().connections),
        retries: args.http.retries(),
        policy: args.engine.policy(),
        step: args.engine.step(),
        replaces: args.force,
        ..TreeOptions::default()
    };
    let gauge = TreeGauge::default();
    let started = Instant::now();
    let outcome = thread::scope(|scope| {
        let (running, stop) = mpsc::channel();
        let shown = scope.spawn(|| show_progress(args.show, &gauge, stop));
        let on_event = |event: &TreeEvent<'_>| report(args.show, event);
        let outcome = tree::fetch(&client, &options, url, &path, &gauge, &on_event);
        drop(running);
        // The thread has nothing to fail at.
        let _ = shown.join();
        outcome
    });
    let elapsed = started.elapsed();
    match outcome {
        Ok(done) => {
            let receipt = TreeReceipt::new(url, &path, &done, elapsed);
            print::tree(args.show, &receipt.summary(), &receipt.receipt, &receipt);
            match done.left_out {
                0 => Ok(()),
                count => Err(Failure::line(match count {
                    1 => format!("{} lacks one file, folder or link: see above", path.display()),
                    _ => format!(
                        "{} lacks {count} files, folders or links: see above",
                        path.display()
                    ),
                })),
            }
        }
        Err(failed) => {
            let mut receipt = TreeReceipt::new(url, &path, &failed.done, elapsed);
            receipt.receipt.error = Some(failed.error.to_string());
            print::tree_receipt(args.show, &receipt.receipt, &receipt);
            let line = format!("fetching {} to {}: {failed}", shown(url), path.display());
            Err(Failure::hinted(line, &failed))
        }
    }
}

/// Returns the folder for a fetched folder; the named one if the server's has no name.
fn place(args: &GetArgs, url: &Url) -> Result<PathBuf> {
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("."));
    match name_of(url) {
        Ok(Some(name)) => Ok(dir.join(OsStr::from_bytes(&name))),
        Ok(None) => Ok(dir),
        Err(refusal) => {
            Err(Failure::Usage(format!("{} cannot be a folder here: {refusal}", shown(url))))
        }
    }
}

fn report(show: ShowArgs, event: &TreeEvent<'_>) {
    match event {
        // A missing entry is an error, which is never quiet.
        TreeEvent::LeftOut { path, reason } => {
            output::note(&format!("{} is left out: {reason}", path.escape_ascii()));
        }
        _ if show.quiet => {}
        TreeEvent::Resuming { have, total } => {
            let (have, total) = (BinaryBytes(*have), BinaryBytes(*total));
            output::note(&format!("going on at {have} of {total}"));
        }
        TreeEvent::Retrying { error, after } => {
            let after = after.as_secs_f64();
            output::note(&format!("{error}; trying again in {after:.1} s"));
        }
        TreeEvent::StartingOver => {
            output::note("the server's folder is another one now: starting over");
        }
        _ => {}
    }
}

/// Shows progress: a line that is redrawn on a terminal; one each second elsewhere, if requested.
fn show_progress(show: ShowArgs, gauge: &TreeGauge, stop: Receiver<()>) {
    let is_terminal = std::io::stderr().is_terminal();
    let bar = match (show.quiet, is_terminal, show.progress) {
        (true, ..) | (_, false, false) => return,
        (_, true, _) => Some(ProgressBar::no_length()),
        _ => None,
    };
    let interval = Duration::from_millis(if bar.is_some() { 100 } else { 1_000 });
    let started = Instant::now();
    while stop.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        let line = line(gauge, started.elapsed());
        match &bar {
            Some(bar) => draw(bar, gauge, line),
            None => output::progress(&line),
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

fn draw(bar: &ProgressBar, gauge: &TreeGauge, line: String) {
    let template = if gauge.total().is_some() { "{wide_bar} {msg}" } else { "{spinner} {msg}" };
    // The templates are constants that are known to parse.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    if let Some(total) = gauge.total() {
        bar.set_length(total);
    }
    bar.set_position(gauge.done());
    bar.set_message(line);
}

/// Formats the progress: `1,200 files, 80 MiB of 1.00 GiB at 500 MiB/s`.
fn line(gauge: &TreeGauge, elapsed: Duration) -> String {
    let rate = gauge.done() as f64 / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    // Saturates for an impossible rate.
    let (done, rate) = (BinaryBytes(gauge.done()), BinaryBytes(rate as u64));
    let of = gauge.total().map(|total| format!(" of {}", BinaryBytes(total))).unwrap_or_default();
    format!("{} files, {done}{of} at {rate}/s", HumanCount(gauge.files()))
}
