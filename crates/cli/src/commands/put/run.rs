//! Uploads every named file.

use std::sync::atomic::Ordering;

use underpass_client::upload::walk::UploadStep;

use super::args::PutArgs;
use super::plan::PutPlan;
use super::put_run::{PutRun, PutStop};
use crate::failure::{Failure, Result};
use crate::output;
use crate::signals;

/// Uploads every named file and folder.
pub(crate) fn run(args: &PutArgs) -> Result<()> {
    let no_transfer = |failure: &Failure| output::print_no_transfer(args.show, failure);
    let plan = PutPlan::new(args).inspect_err(no_transfer)?;
    let tls = args.http.tls(args.engine.policy()).inspect_err(no_transfer)?;
    let cancel = signals::cancel_flag();
    let mut uploads = PutRun::new(args, plan.url(), &tls, cancel).inspect_err(no_transfer)?;
    if let Some(step) = plan.only() {
        return uploads.send_alone(step).map_err(|stop| stop.with_receipt(args.show));
    }
    let mut failures = Vec::new();
    let mut total = 0;
    let mut is_cancelled = false;
    for step in plan.steps() {
        // A signal between two files is no failure of either.
        is_cancelled = failures.is_empty() && cancel.load(Ordering::Relaxed);
        if is_cancelled {
            break;
        }
        let outcome = step.map_err(PutStop::from).and_then(|step| {
            if let UploadStep::Skipped { path, reason } = &step {
                if !args.show.quiet {
                    output::note(&format!("{}: {reason}", path.display()));
                }
                return Ok(());
            }
            uploads.run_step(&step)
        });
        total += 1;
        if let Err(stop) = outcome {
            failures.push(stop);
            if failures.last().is_some_and(|stop| stop.is_fatal) || cancel.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    uploads.finish();
    let failed = failures.len();
    let Some(last) = failures.pop() else {
        return if is_cancelled {
            Err(Failure::line("cancelled: not everything was sent"))
        } else {
            Ok(())
        };
    };
    if failed == 1 {
        return Err(last.with_receipt(args.show));
    }
    for stop in failures.into_iter().chain([last]) {
        output::problem(&stop.with_receipt(args.show));
    }
    Err(Failure::line(format!("{failed} of {total} were not sent")))
}
