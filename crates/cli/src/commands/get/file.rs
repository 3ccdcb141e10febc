//! Fetches one file.

use std::fmt::Write;
use std::fs;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use indicatif::BinaryBytes;
use underpass_client::download::{DownloadOptions, Downloader, Event, Gauge, Kept};
use underpass_client::{TlsSetup, Url};

use super::args::GetArgs;
use super::destination::Destination;
use super::{print, progress};
use crate::args::ShowArgs;
use crate::failure::{Failure, Result};
use crate::output::{self, Meter};
use underpass_engine::Size;
use underpass_receipt::{GetReceipt, shown};

/// Fetches the file at one URL.
pub(super) fn fetch(args: &GetArgs, url: &Url, tls: &TlsSetup, cancel: &AtomicBool) -> Result<()> {
    let remote = args.http.remote(url, tls, cancel)?;
    let downloader = Downloader::new(remote.client, options(args));
    let new_dir = args.dir.as_deref().filter(|dir| !dir.exists());
    let destination =
        Destination::of(args, url, || downloader.suggested_name(&remote.url), cancel)?;
    let gauge = Gauge::default();
    let started = Instant::now();
    let meter = Meter::new(args.show, &output::short_path(destination.path()));
    let outcome = meter.during(
        || progress::file(&gauge),
        || {
            let on_event = |event: &Event<'_>| report(args.show, event);
            downloader.fetch(&remote.url, &destination.target(), &gauge, &on_event)
        },
    );
    let elapsed = started.elapsed();
    match outcome {
        Ok(done) => {
            let mut receipt = GetReceipt::new(&shown(url), destination.path(), &done, elapsed);
            receipt.receipt.to = Some(destination.kind());
            destination.finish(done.report.bytes())?;
            print::file(args.show, &receipt);
            if args.digest_print.is_some() && !args.show.json {
                print::digests(&receipt);
            }
            Ok(())
        }
        Err(failed) => {
            if let Some(dir) = new_dir {
                // Only if it is empty: nothing is kept in it then.
                let _ = fs::remove_dir(dir);
            }
            let receipt = GetReceipt::of_failed(&shown(url), destination.path(), &failed, elapsed);
            print::file_receipt(args.show, &receipt);
            let to = destination.path().display();
            let mut line = format!("fetching {} to {to}: {failed}", shown(url));
            if let Some(Kept { name, bytes }) = &failed.kept {
                // Writing to a string cannot fail.
                let _ = write!(line, "; {} keeps {}", name.display(), BinaryBytes(*bytes));
            }
            Err(Failure::hinted(line, &failed))
        }
    }
}

/// Converts the arguments to options.
fn options(args: &GetArgs) -> DownloadOptions {
    DownloadOptions {
        connections: args.connections,
        retries: args.http.retries(),
        rate: args.rate.map(|Size(bytes)| bytes),
        policy: args.engine.policy(),
        step: args.engine.step(),
        keep_time: !args.no_mtime,
        durable: args.sync,
        expected: args.digest.clone(),
        shown: args.digest_print.into_iter().collect(),
        verify: args.verify,
    }
}

/// Prints an event of a file that is being fetched.
fn report(show: ShowArgs, event: &Event<'_>) {
    if show.quiet {
        return;
    }
    match event {
        Event::Resuming { have, total } => print::resuming(*have, *total),
        Event::Retrying { error, after } => {
            output::note(&format!("{error}; trying again in {:.1} s", after.as_secs_f64()));
        }
        Event::StartingOver => output::note("the server has another version now: starting over"),
        _ => {}
    }
}
