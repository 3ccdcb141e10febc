//! Runs inside the virtual machine: starts the program, misbehaves as its peer, and prints for each
//! check `ok NAME: what was seen`, `skipped NAME: why`, or `FAILED NAME: why`.
//!
//! `rig-checks kernel|user-space [NAME]`: where TLS is expected, and the name of a single check, or
//! `count` to count instructions instead of checking.

#![forbid(unsafe_code)]

mod checks;
mod count;
#[path = "../../crates/transport/tests/tls/disguise.rs"]
mod disguise;
mod origin;
mod pattern;
mod peer;
mod place;
mod program;
mod terms;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use crate::checks::{CHECKS, Check};
use crate::place::{Place, Where};

/// The result of a check.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The outcome of a check that did not fail.
#[derive(Debug)]
enum Outcome {
    /// What was seen.
    Ok(String),
    /// Why it does not apply.
    Skipped(String),
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let wanted = match args.next().as_deref() {
        Some("kernel") => Where::Kernel,
        Some("user-space") => Where::UserSpace,
        other => {
            eprintln!("rig-checks: kernel or user-space? not {other:?}");
            return ExitCode::from(2);
        }
    };
    let only = args.next();
    let place = match Place::new(wanted) {
        Ok(place) => place,
        Err(error) => {
            println!("FAILED {}: {error}", wanted.name());
            return ExitCode::FAILURE;
        }
    };
    if only.as_deref() == Some("count") {
        return match count::all(&place) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                println!("FAILED {}/count: {error}", wanted.name());
                ExitCode::FAILURE
            }
        };
    }
    let selected = |check: &&Check| only.as_ref().is_none_or(|name| name == check.name);
    let mut failed = false;
    for check in CHECKS.iter().filter(selected) {
        failed |= !run(check, &place);
    }
    ExitCode::from(u8::from(failed))
}

/// Runs a check, prints how it ended, and returns whether it did not fail.
fn run(check: &Check, place: &Place) -> bool {
    let from = Instant::now();
    let name = format!("{}/{}", place.wanted.name(), check.name);
    let outcome = catch_unwind(AssertUnwindSafe(|| (check.run)(place)));
    let seconds = from.elapsed().as_secs_f32();
    match &outcome {
        Ok(Ok(Outcome::Ok(seen))) => println!("ok {name} ({seconds:.1} s): {seen}"),
        Ok(Ok(Outcome::Skipped(why))) => println!("skipped {name}: {why}"),
        Ok(Err(error)) => println!("FAILED {name}: {}", error.to_string().replace('\n', " | ")),
        Err(_) => println!("FAILED {name}: the check panicked, see above"),
    }
    matches!(outcome, Ok(Ok(_)))
}
