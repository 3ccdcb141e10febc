//! Serves a share below a path that cannot be guessed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::sync::Arc;

use clap::Parser;

use super::args::ShareArgs;
use super::goal::ShareGoal;
use super::receipt::{Goal, ShareReceipt};
use crate::commands::serve::args::{OptionsError, ServeArgs};
use crate::commands::serve::run::run_until;
use crate::failure::{Result, WithPath};
use underpass_engine::hint::Action;
use underpass_protocol::digest::hex;

/// The options of `serve` that `share` uses.
#[derive(Debug, Parser)]
struct ShareOptions {
    #[command(flatten)]
    serve: ServeArgs,
}

/// Shares until the number is reached or the time is over, and prints the receipt.
pub(crate) fn run(args: &ShareArgs) -> Result<()> {
    let (goal, mut receipt, outcome) = match serve(args) {
        Ok(ended) => ended,
        Err(failure) => {
            if args.json && failure.exit_code() == 1 {
                ShareReceipt::not_begun(&failure).print(true, Goal::File);
            }
            return Err(failure);
        }
    };
    receipt.error = outcome.as_ref().err().map(ToString::to_string);
    receipt.print(args.json, goal);
    outcome
}

/// Serves the share, and returns what was transferred and whether that was enough; an error if it failed
/// before anything was.
fn serve(args: &ShareArgs) -> Result<(Goal, ShareReceipt, Result<()>)> {
    let found = fs::metadata(&args.path).with_path(Action::Serving, &args.path)?;
    if args.upload && !found.is_dir() {
        return Err(OptionsError::UploadToFile(args.path.clone()).into());
    }
    let goal = match (args.upload, found.is_dir()) {
        (true, _) => Goal::Uploads,
        (false, true) => Goal::Folder,
        (false, false) => Goal::File,
    };
    let times = match (args.times, args.time) {
        (Some(times), _) => Some(times.get()),
        (None, Some(_)) => None,
        (None, None) => Some(1),
    };
    let share = Arc::new(ShareGoal::new(goal, times, args.time));
    let options = ShareOptions::try_parse_from(words(args, &secret()?))?;
    let served = run_until(&options.serve, Some(&share));
    let receipt = share.receipt();
    let outcome = match served {
        Err(failure) if receipt.is_empty() => return Err(failure),
        served => served.and_then(|()| receipt.verdict(times)),
    };
    Ok((goal, receipt, outcome))
}

/// Returns the same command as arguments of `serve`.
fn words(args: &ShareArgs, secret: &str) -> Vec<OsString> {
    let text = |text: &str| OsString::from(text);
    let mut words = vec![
        text("serve"),
        text("--quiet"),
        text("--no-health"),
        text("--no-metrics"),
        text("--no-transfers"),
        text("--path-prefix"),
        text(secret),
        text("--bind"),
        text(&args.bind),
        text("--port"),
        args.port.to_string().into(),
        text("--qr"),
        text(if args.qr.is_shown() { "always" } else { "never" }),
    ];
    if args.upload {
        words.push(text("--allow-upload"));
    }
    if args.tls {
        words.extend([text("--tls"), text("self")]);
    }
    words.extend([text("--"), args.path.clone().into_os_string()]);
    words
}

/// Returns 128 random bits as text.
fn secret() -> Result<String> {
    let mut bytes = [0; 16];
    let path = std::path::Path::new("/dev/urandom");
    File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).with_path("opening", path)?;
    Ok(hex(&bytes))
}
