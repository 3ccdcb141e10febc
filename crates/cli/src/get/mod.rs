//! What `underpass get` needs beside the client itself: where files go, what is shown meanwhile,
//! and what is told in the end.

mod place;
mod progress;
mod receipt;
pub(crate) mod tree;

use std::fmt::Write;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use indicatif::BinaryBytes;
use underpass_server::client::download::{Done, DownloadOptions, Downloader, Event, Gauge, Kept};
use underpass_server::client::{TlsSetup, Url};

use crate::args::ShowArgs;
use crate::commands::get::GetArgs;
use crate::failure::{Failure, Result};
use crate::output;
use underpass_engine::Size;

use place::Place;
pub(crate) use receipt::GetReceipt;

/// Fetches what is at one URL.
pub(crate) fn one(args: &GetArgs, url: &Url, tls: &TlsSetup, cancel: &AtomicBool) -> Result<()> {
    let place = Place::of(args, url, cancel)?;
    let downloader = Downloader::new(args.agent.agent(url, tls, cancel)?, wishes(args));
    let gauge = Gauge::default();
    let started = Instant::now();
    let outcome = progress::shown(args.show, place.path(), &gauge, || {
        let tell = |event: &Event<'_>| tell(args.show, event);
        downloader.fetch(url, &place.target(), &gauge, &tell)
    });
    let elapsed = started.elapsed();
    match outcome {
        Ok(done) => {
            let mut receipt = GetReceipt::new(&shown(url), place.path(), &done, elapsed);
            receipt.receipt.to = Some(place.kind());
            place.finish(done.report.bytes())?;
            output::fetched_file(args.show, &receipt);
            if args.digest_print.is_some() && !args.show.json {
                output::digests(&receipt);
            }
            Ok(())
        }
        Err(failed) => {
            let done = Done {
                report: (*failed.report).clone(),
                tls: failed.tls.as_deref().cloned(),
                ..Done::default()
            };
            let mut receipt = GetReceipt::new(&shown(url), place.path(), &done, elapsed);
            receipt.receipt.error = Some(failed.to_string());
            receipt.kept = failed.kept.as_ref().map(|kept| kept.bytes);
            output::file_receipt(args.show, &receipt);
            let to = place.path().display();
            let mut line = format!("fetching {} to {to}: {failed}", shown(url));
            if let Some(Kept { name, bytes }) = &failed.kept {
                // Writing to a string cannot fail.
                let _ = write!(line, "; {} keeps {}", name.display(), BinaryBytes(*bytes));
            }
            Err(Failure::hinted(line, &failed))
        }
    }
}

/// How the arguments want it to be done.
fn wishes(args: &GetArgs) -> DownloadOptions {
    DownloadOptions {
        connections: args.connections,
        retries: args.agent.retries(),
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

/// Tells what happens while a file is fetched.
fn tell(show: ShowArgs, event: &Event<'_>) {
    if show.quiet {
        return;
    }
    match event {
        Event::Resuming { have, total } => output::resuming(*have, *total),
        Event::Retrying { error, after } => {
            output::note(&format!("{error}; trying again in {:.1} s", after.as_secs_f64()));
        }
        Event::StartingOver => output::note("the server has another version now: starting over"),
        _ => {}
    }
}

/// A URL as it may be shown to anybody: without the password in it.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Only addresses without a host have no place for them.
    let _ = (url.set_username(""), url.set_password(None));
    url.to_string()
}
