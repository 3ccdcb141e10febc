//! What `underpass put` needs beside the client itself: what goes where, where journals are kept,
//! what is shown meanwhile, and what is told in the end.

mod memory;
mod plan;
mod session;

use std::sync::atomic::{AtomicBool, Ordering};

use crate::commands::put::PutArgs;
use crate::failure::{Failure, Result};
use crate::output;

use plan::{Plan, Step};
use session::{Session, Stop};

/// Uploads everything that was named.
pub(crate) fn run(args: &PutArgs, cancel: &AtomicBool) -> Result<()> {
    let plan = Plan::new(args)?;
    let mut session = Session::new(args, plan.url(), cancel)?;
    if let Some(step) = plan.only() {
        return session.send_alone(step).map_err(|stop| stop.with_receipt(args.show));
    }
    let mut failures = Vec::new();
    let mut total = 0;
    for step in plan.steps() {
        let outcome = step.map_err(Stop::from).and_then(|step| {
            if let Step::Skipped { path, reason } = &step {
                if !args.show.quiet {
                    session.note(&format!("{}: {reason}", path.display()));
                }
                return Ok(());
            }
            session.take(&step)
        });
        total += 1;
        if let Err(stop) = outcome {
            failures.push(stop);
            if failures.last().is_some_and(|stop| stop.is_fatal) || cancel.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    session.finish();
    let failed = failures.len();
    let Some(last) = failures.pop() else { return Ok(()) };
    if failed == 1 {
        return Err(last.with_receipt(args.show));
    }
    failures.iter().chain([&last]).for_each(|stop| output::problem(&stop.failure));
    Err(Failure::line(format!("{failed} of {total} were not sent")))
}

/// An entity tag (RFC 9110 8.8.3); the quotes may be left out, as shells tend to eat them.
pub(crate) fn entity_tag(text: &str) -> std::result::Result<String, String> {
    if text == "*" {
        return Ok(text.to_owned());
    }
    if text.starts_with("W/") {
        // RFC 9110 13.1.1: a weak one never matches.
        return Err("only a strong entity tag can match".to_owned());
    }
    let opaque = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    match opaque.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x7e)) && !opaque.is_empty() {
        true => Ok(format!("\"{opaque}\"")),
        false => Err("an entity tag has neither spaces nor quotes inside".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tags_get_their_quotes() {
        let quoted = "\"5f3-1a\"";
        assert_eq!(entity_tag("5f3-1a").as_deref(), Ok(quoted));
        assert_eq!(entity_tag(quoted).as_deref(), Ok(quoted));
        assert_eq!(entity_tag("*").as_deref(), Ok("*"));
        for wrong in ["", "\"", "a b", "a\"b", "W/\"a\"", "a\r\nb"] {
            assert!(entity_tag(wrong).is_err(), "{wrong}");
        }
    }
}
