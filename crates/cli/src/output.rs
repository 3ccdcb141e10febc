//! The only place that prints.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{BinaryBytes, HumanCount};

use crate::args::ShowArgs;
use crate::failure::{Failure, complaint};
use crate::receipt::{DeclineReceipt, Receipt};

/// Prints what a finished transfer is to tell.
pub(crate) fn finished(show: ShowArgs, receipt: &Receipt) {
    for declined in receipt.declined.iter().filter(|_| !show.quiet) {
        let DeclineReceipt { mechanism: level, errno, reason: Some(reason), .. } = declined else {
            continue;
        };
        let held = &receipt.integrity;
        error_line(&format!("underpass: {level} was refused ({errno}: {reason}); {held} held"));
    }
    if !show.quiet && !show.json {
        error_line(&summary(receipt));
    }
    tell(show, receipt);
}

/// Prints why a command failed, in one line, and returns its exit code.
pub(crate) fn failure(failure: &Failure) -> ExitCode {
    match failure {
        Failure::Arguments(error) => return usage(error),
        Failure::Transfer { receipt, show, .. } => tell(*show, receipt),
        _ => {}
    }
    match failure.hint() {
        Some(hint) => error_line(&format!("underpass: {failure} ({hint})")),
        None => error_line(&format!("underpass: {failure}")),
    }
    ExitCode::from(failure.exit_code())
}

/// Prints help as it is, and what was typed wrongly in one line; returns the exit code.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A reader that has gone away wants no more.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    error_line(&format!("underpass: {} (--help tells more)", complaint(error)));
    ExitCode::from(2)
}

/// Prints a text that ends with a line feed on standard output.
pub(crate) fn text(text: &str) {
    // A reader that has gone away wants no more.
    let _ = write!(std::io::stdout(), "{text}");
}

/// Prints where a peer can connect: always, for there may be no other way to know the port.
pub(crate) fn listening(address: &str) {
    error_line(&format!("listening on {address}"));
}

/// Prints what was generated, as it is, on standard output.
pub(crate) fn bytes(bytes: &[u8]) {
    // A reader that has gone away wants no more.
    let _ = std::io::stdout().write_all(bytes);
}

fn tell(show: ShowArgs, receipt: &Receipt) {
    if show.explain {
        error_line(&explained(receipt));
    }
    if show.json
        && let Ok(json) = serde_json::to_string(receipt)
    {
        // A reader that has gone away wants no more.
        let _ = writeln!(std::io::stdout(), "{json}");
    }
}

/// `4.00 GiB in 2.13 s (1.88 GiB/s) by copy_file_range`
fn summary(receipt: &Receipt) -> String {
    let bytes = BinaryBytes(receipt.bytes);
    let rate = receipt.bytes as f64 / receipt.elapsed_s.max(f64::MIN_POSITIVE);
    let names: Vec<_> = receipt.mechanisms.iter().map(|each| each.name.as_str()).collect();
    if names.is_empty() {
        return format!("{bytes} in {:.2} s", receipt.elapsed_s);
    }
    let names = names.join(", ");
    // Saturates for a rate that no machine has.
    let rate = BinaryBytes(rate as u64);
    format!("{bytes} in {:.2} s ({rate}/s) by {names}", receipt.elapsed_s)
}

/// The receipt as people read it.
fn explained(receipt: &Receipt) -> String {
    let mut lines = vec!["receipt".to_owned()];
    let mut line = |name: &str, text: String| lines.push(format!("  {name:<12} {text}"));
    for moved in &receipt.mechanisms {
        let (bytes, calls) = (HumanCount(moved.bytes), HumanCount(moved.calls));
        line("moved", format!("{bytes} bytes by {} in {calls} calls", moved.name));
    }
    for declined in &receipt.declined {
        let at = HumanCount(declined.at);
        line("declined", format!("{} ({}) at byte {at}", declined.mechanism, declined.errno));
    }
    line("user space", format!("{} bytes", HumanCount(receipt.user_space_bytes)));
    let waits = HumanCount(receipt.waits);
    line("calls", format!("{}, waited {waits} times", HumanCount(receipt.calls)));
    let time = Duration::try_from_secs_f64(receipt.elapsed_s).unwrap_or_default();
    line("time", format!("{:.3} s", time.as_secs_f64()));
    let cpu = receipt.cpu_s;
    line("processor", format!("{:.3} s user, {:.3} s system", cpu.user, cpu.system));
    let switches = receipt.context_switches;
    let (voluntary, involuntary) = (switches.voluntary, switches.involuntary);
    line("switches", format!("{voluntary} voluntary, {involuntary} involuntary"));
    let faults = receipt.page_faults;
    line("page faults", format!("{} minor, {} major", faults.minor, faults.major));
    line("integrity", receipt.integrity.clone());
    if let Some(congestion) = &receipt.congestion {
        line("congestion", congestion.clone());
    }
    lines.join("\n")
}

fn error_line(line: &str) {
    // Nobody is left to be told that nobody is listening.
    let _ = writeln!(std::io::stderr(), "{line}");
}
