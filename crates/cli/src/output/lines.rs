//! Lines on standard error, receipts and generated texts on standard output.

use std::fmt::Display;
use std::io::{Error, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, RwLock};
use std::time::Duration;

use clap::error::ErrorKind;
use indicatif::{BinaryBytes, HumanCount};
use rustix::io::Errno;
use underpass_engine::hint::Action;
use underpass_engine::wait::unpoison;
use underpass_engine::{Declined, Report};
use underpass_sys::was_closed;
use underpass_transport::tls::Pin;

use super::printable::{self, one_line};
use super::shared::write_all;
use crate::args::ShowArgs;
use crate::clap_message::clap_message;
use crate::failure::{Failure, WithPath};
use crate::receipt::{Alphabet, explained};
use underpass_receipt::{DeclineReceipt, Receipt};

/// Prints the receipt of a finished transfer.
pub(crate) fn finished(show: ShowArgs, receipt: &Receipt) {
    note_integrity(show, receipt);
    sum(show, receipt);
    print_receipt(show, receipt);
}

/// Prints which integrity levels were refused.
pub(crate) fn note_integrity(show: ShowArgs, receipt: &Receipt) {
    for declined in receipt.declined.iter().filter(|_| !show.quiet) {
        let DeclineReceipt {
            what: Some(Declined::Integrity(level)),
            errno,
            reason: Some(reason),
            ..
        } = declined
        else {
            continue;
        };
        let held = &receipt.integrity;
        error_line(&format!("underpass: {level} was refused ({errno}: {reason}); using {held}"));
    }
}

/// Prints a receipt as JSON, if requested.
pub(crate) fn print_json(show: ShowArgs, receipt: &impl serde::Serialize) {
    if show.json {
        json_line(receipt);
    }
}

/// Prints why a command failed, in one line, and returns its exit code.
pub(crate) fn failure(failure: &Failure) -> ExitCode {
    match failure {
        Failure::Arguments(error) => return usage(error),
        Failure::Transfer { receipt, show, .. } => print_receipt(*show, receipt),
        _ => {}
    }
    problem(failure);
    ExitCode::from(failure.exit_code())
}

/// Prints in one line why one of several files failed.
pub(crate) fn problem(failure: &Failure) {
    let text = failure.to_string();
    match failure.hint() {
        Some(hint) => error_line(&format!("underpass: {text} ({hint})")),
        None => error_line(&format!("underpass: {text}")),
    }
}

/// Returns a path that can be shown safely: it stays on one line and contains no control
/// characters, whatever the name is.
pub(crate) fn plain_path(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

/// Returns the last part of a path, as [`plain_path`] does.
pub(crate) fn short_path(path: &Path) -> String {
    plain_path(Path::new(path.file_name().unwrap_or(path.as_os_str())))
}

/// Prints the summary of a transfer, or of several.
pub(crate) fn sum(show: ShowArgs, receipt: &Receipt) {
    if !show.quiet && !show.json {
        error_line(&summary(receipt));
    }
}

/// Prints help unchanged, and a wrong command line as one line; returns the exit code.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        print(|| error.print());
        return all_printed().map_or_else(|unprinted| failure(&unprinted), |()| ExitCode::SUCCESS);
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // There is no way to report that standard error is closed.
        let _ = error.print();
        return ExitCode::from(2);
    }
    error_line(&format!("underpass: {} (see --help)", clap_message(error)));
    ExitCode::from(2)
}

/// Prints a text that ends with a line feed on standard output.
pub(crate) fn text(text: &str) {
    bytes(text.as_bytes());
}

/// Prints where a peer can connect, even if quiet: there may be no other way to learn the port.
pub(crate) fn listening(address: &str) {
    error_line(&format!("listening on {address}"));
}

/// Prints the pin by which the peer identifies us, even with `--quiet`: there may be no other way
/// to learn it.
pub(crate) fn pin(pin: Pin) {
    error_line(&format!("the other side needs --tls --pin {pin}"));
}

/// Prints a generated text unchanged on standard output.
pub(crate) fn bytes(bytes: &[u8]) {
    print(|| write_all(std::io::stdout(), bytes));
}

/// Calls `write`, which prints on standard output, and remembers its failure.
fn print(write: impl FnOnce() -> std::io::Result<()>) {
    let mut stdout = std::io::stdout();
    let written = if was_closed(&stdout) {
        Err(Errno::BADF.into())
    } else {
        write().and_then(|()| stdout.flush())
    };
    if let Err(error) = written {
        LOST.get_or_init(|| error);
    }
}

/// Returns the failure of printing on standard output, or of a receipt on standard error. A reader
/// that has closed its end wants no more: that is not a failure.
pub(crate) fn all_printed() -> Result<(), Failure> {
    for (lost, stream) in [(&LOST, "standard output"), (&LOST_RECEIPT, "standard error")] {
        if let Some(error) = lost.get()
            && error.kind() != std::io::ErrorKind::BrokenPipe
        {
            let source =
                error.raw_os_error().map_or_else(|| error.kind().into(), Error::from_raw_os_error);
            Err(source).with_path(Action::Writing, stream)?;
        }
    }
    Ok(())
}

/// The error of printing on standard output.
static LOST: OnceLock<Error> = OnceLock::new();

/// The error of printing a receipt on standard error.
static LOST_RECEIPT: OnceLock<Error> = OnceLock::new();

/// Returns a value as one line of JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> String {
    underpass_engine::printable::json(&serde_json::to_string(value).unwrap_or_default())
}

/// Prints a value as one line of JSON on standard output.
pub(crate) fn json_line(value: &impl serde::Serialize) {
    text(&format!("{}\n", json(value)));
}

/// Prints a question, after which the answer is typed on the same line.
pub(crate) fn question(text: &str) {
    // Without standard error no question is asked, and there is no answer.
    let _ = write_error(&format!("underpass: {text}"));
}

/// Prints one line about an event next to the main work.
pub(crate) fn note(text: &str) {
    error_line(&format!("underpass: {text}"));
}

/// Prints that something which has failed is tried again after a pause.
pub(crate) fn note_retry(error: &impl Display, after: Duration) {
    note(&format!("{error}; trying again in {:.1} s", after.as_secs_f64()));
}

/// Prints a receipt in the requested forms.
pub(crate) fn print_receipt(show: ShowArgs, receipt: &Receipt) {
    if show.explain {
        receipt_lines(&explained(receipt, Alphabet::of_locale()));
    }
    print_json(show, receipt);
}

/// Prints the receipt of a transfer that has failed before it began; none if the usage was wrong.
pub(crate) fn print_no_transfer(show: ShowArgs, failure: &Failure) {
    if failure.exit_code() == 1 {
        let error = Some(failure.to_string());
        print_json(show, &Receipt { error, ..Receipt::from(&Report::default()) });
    }
}

/// Formats a summary: `4.00 GiB in 2.13 s (1.88 GiB/s) by copy_file_range`.
pub(crate) fn summary(receipt: &Receipt) -> String {
    let bytes = BinaryBytes(receipt.bytes);
    let rate = receipt.bytes as f64 / receipt.elapsed_s.max(f64::MIN_POSITIVE);
    let names: Vec<_> = receipt.mechanisms.iter().map(|each| each.name.as_str()).collect();
    if names.is_empty() {
        return format!("{bytes} in {:.2} s", receipt.elapsed_s);
    }
    let names = names.join(", ");
    // The cast saturates.
    let rate = BinaryBytes(rate as u64);
    format!("{bytes} in {:.2} s ({rate}/s) by {names}", receipt.elapsed_s)
}

/// Returns a number with its noun.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", HumanCount(count), if count == 1 { one } else { many })
}

/// Prints one line, with unprintable characters escaped.
pub(crate) fn error_line(line: &str) {
    // There is no way to report that standard error is closed.
    let _ = write_error(&format!("{}\n", one_line(line)));
}

/// Prints a line of a receipt that was requested, as [`receipt_lines`] does.
pub(crate) fn receipt_line(line: &str) {
    receipt_lines(&one_line(line));
}

/// Prints lines of a receipt that was requested on standard error, and remembers its failure.
pub(crate) fn receipt_lines(text: &str) {
    let written = if was_closed(&std::io::stderr()) {
        Err(Errno::BADF.into())
    } else {
        write_error(&format!("{}\n", printable::lines(text)))
    };
    if let Err(error) = written {
        LOST_RECEIPT.get_or_init(|| error);
    }
}

/// Draws a line of progress on the terminal, in the place of the last one.
pub(super) fn draw(line: &str) {
    let _ = write_error(&format!("{line}\r"));
    IS_DRAWN.store(true, Ordering::Relaxed);
}

/// Removes the drawn line.
pub(super) fn erase() {
    let _ = write_error("");
}

/// Writes to standard error, over a drawn line if there is one.
fn write_error(text: &str) -> std::io::Result<()> {
    let erase = if IS_DRAWN.swap(false, Ordering::Relaxed) { ERASE_BELOW } else { "" };
    let text = format!("{erase}{text}");
    match &*unpoison(ERROR_SINK.read()) {
        Some(sink) => {
            sink(text.as_bytes());
            Ok(())
        }
        None => write_all(std::io::stderr(), text.as_bytes()),
    }
}

/// Sends lines for standard error to a function that does not block; with `None`, writes them.
pub(crate) fn set_error_sink(sink: Option<ErrorSink>) {
    *unpoison(ERROR_SINK.write()) = sink;
}

type ErrorSink = Box<dyn Fn(&[u8]) + Send + Sync>;

static ERROR_SINK: RwLock<Option<ErrorSink>> = RwLock::new(None);

/// Whether a progress line is on the terminal; a process has at most one.
static IS_DRAWN: AtomicBool = AtomicBool::new(false);

/// Erases everything from the cursor on (ECMA-48 8.3.39).
const ERASE_BELOW: &str = "\x1b[J";
