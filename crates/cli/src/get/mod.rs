//! What `underpass get` needs beside the client itself: where files go, what is shown meanwhile,
//! and what is told in the end.

mod place;
pub(crate) mod tree;

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use underpass_http::client::Url;
use underpass_http::client::download::{Downloader, Failed, Gauge, Wishes};

use crate::commands::get::GetArgs;
use crate::failure::{Failure, Result};
use crate::output;
use crate::receipt::Receipt;
use crate::size::Size;

use place::Place;

/// Fetches what is at one URL.
pub(crate) fn one(args: &GetArgs, url: &Url, cancel: &AtomicBool) -> Result<()> {
    let place = Place::of(args, url)?;
    let downloader = Downloader::new(args.agent.agent(url, cancel)?, wishes(args));
    let gauge = Gauge::default();
    let started = Instant::now();
    let outcome = downloader.fetch(url, &place.target(), &gauge, &|_| {});
    let elapsed_s = started.elapsed().as_secs_f64();
    let done = outcome.map_err(|failed| failure(args, url, &place, failed))?;
    place.finish(done.report.bytes())?;
    output::finished(args.show, &Receipt { elapsed_s, ..Receipt::from(&done.report) });
    Ok(())
}

/// How the arguments want it to be done.
fn wishes(args: &GetArgs) -> Wishes {
    Wishes {
        connections: args.connections,
        retries: args.agent.retries(),
        rate: args.rate.map(|Size(bytes)| bytes),
        policy: args.engine.policy(),
        step: args.engine.step(),
        keep_time: !args.no_mtime,
        durable: args.sync,
    }
}

fn failure(args: &GetArgs, url: &Url, place: &Place, failed: Failed) -> Failure {
    let mut receipt = Box::new(Receipt::from(&*failed.report));
    receipt.error = Some(failed.error.to_string());
    Failure::Download {
        url: shown(url),
        path: place.path().to_owned(),
        failed: Box::new(failed),
        receipt,
        show: args.show,
    }
}

/// A URL as it may be shown to anybody: without the password in it.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Only addresses without a host have no place for them.
    let _ = (url.set_username(""), url.set_password(None));
    url.to_string()
}
