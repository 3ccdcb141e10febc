//! Fetches one URL after the other.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::args::GetArgs;
use super::{file, tree};
use crate::failure::{Failure, Result};
use crate::output;
use crate::signals;

/// Fetches every URL.
pub(crate) fn run(args: &GetArgs) -> Result<()> {
    if args.output.is_some() && args.urls.len() > 1 {
        let message = "-o FILE is one file for one URL: use -d DIR for several";
        return Err(Failure::Usage(message.to_owned()));
    }
    let is_checked = args.verify || !args.digest.is_empty() || args.digest_print.is_some();
    if is_checked && args.output.as_deref() == Some(Path::new("-")) {
        let message = "a digest cannot be made of what goes to standard output: use -o FILE";
        return Err(Failure::Usage(message.to_owned()));
    }
    if !args.digest.is_empty() && args.urls.len() > 1 {
        let message = "--digest checks one file: give one URL";
        return Err(Failure::Usage(message.to_owned()));
    }
    let cancel = signals::cancel_flag();
    let tls = args.http.tls(args.engine.policy())?;
    let mut failed: Option<Failure> = None;
    for url in &args.urls {
        let outcome = match args.recursive {
            true => tree::fetch(args, url, &tls, &cancel),
            false => file::fetch(args, url, &tls, &cancel),
        };
        if let Err(failure) = outcome {
            // The last failure is printed, and its exit code returned, at the end of every
            // command.
            if let Some(before) = failed.replace(failure) {
                output::failure(&before);
            }
        }
        if cancel.load(Ordering::Relaxed) {
            break;
        }
    }
    failed.map_or(Ok(()), Err)
}
