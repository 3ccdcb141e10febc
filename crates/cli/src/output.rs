//! The only place that prints.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{BinaryBytes, HumanCount, HumanDuration};
use rustix::system::uname;
use underpass_engine::Integrity;
use underpass_server::client::upload::Event;
use underpass_server::server::{Note, Summary};
use underpass_transport::tls::Pin;

use crate::args::ShowArgs;
use crate::explained::explained;
use crate::failure::{Failure, complaint, plain};
use crate::figure::Alphabet;
use crate::get::GetReceipt;
use crate::get::tree::TreeReceipt;
use crate::printable::{self, one_line};
use crate::receipt::{DeclineReceipt, Receipt};
use crate::serve::{Certificate, Served};

/// Prints what a finished transfer is to tell.
pub(crate) fn finished(show: ShowArgs, receipt: &Receipt) {
    note_integrity(show, receipt);
    if !show.quiet && !show.json {
        error_line(&summary(receipt));
    }
    tell(show, receipt);
}

/// Says which integrity levels were refused.
pub(crate) fn note_integrity(show: ShowArgs, receipt: &Receipt) {
    for declined in receipt.declined.iter().filter(|_| !show.quiet) {
        let DeclineReceipt { mechanism: level, errno, reason: Some(reason), .. } = declined else {
            continue;
        };
        if level.parse::<Integrity>().is_err() {
            continue;
        }
        let held = &receipt.integrity;
        error_line(&format!("underpass: {level} was refused ({errno}: {reason}); {held} held"));
    }
}

/// Prints what a fetched folder is to tell.
pub(crate) fn fetched(show: ShowArgs, receipt: &TreeReceipt) {
    if !show.quiet && !show.json {
        error_line(&receipt.summary());
    }
    tree_receipt(show, receipt);
}

/// Prints the receipt of a folder, if it is wanted.
pub(crate) fn tree_receipt(show: ShowArgs, receipt: &TreeReceipt) {
    tell(ShowArgs { json: false, ..show }, &receipt.receipt);
    tell_json(show, receipt);
}

/// Prints what a fetched file is to tell.
pub(crate) fn fetched_file(show: ShowArgs, receipt: &GetReceipt) {
    if !show.quiet && !show.json {
        let verified = receipt.digests().find(|digest| digest.matches == Some(true));
        let verified = verified.map(|digest| format!(", {} is right", digest.algorithm));
        let verified = verified.unwrap_or_default();
        error_line(&match receipt.was_here {
            true => format!("{} is here already{verified}", receipt.file),
            false => format!("{}: {}{verified}", receipt.file, summary(&receipt.receipt)),
        });
    }
    file_receipt(show, receipt);
}

/// Prints the digests of a file, and its path.
pub(crate) fn digests(receipt: &GetReceipt) {
    // Other programs are to find the file by its name; a terminal is not to be driven by it.
    let file = match std::io::stdout().is_terminal() {
        true => one_line(&receipt.file),
        false => receipt.file.clone(),
    };
    for digest in receipt.digests() {
        // A reader that has gone away wants no more.
        let _ = writeln!(std::io::stdout(), "{}  {file}", digest.value);
    }
}

/// Prints that something is gone on with.
pub(crate) fn resuming(have: u64, total: Option<u64>) {
    let have = BinaryBytes(have);
    match total {
        Some(total) => note(&format!("going on at {have} of {}", BinaryBytes(total))),
        None => note(&format!("going on at {have}")),
    }
}

/// Prints how far something is.
pub(crate) fn progress(line: &str) {
    error_line(line);
}

/// Prints the receipt of a file, if it is wanted.
pub(crate) fn file_receipt(show: ShowArgs, receipt: &GetReceipt) {
    tell(ShowArgs { json: false, ..show }, &receipt.receipt);
    if show.explain {
        let (connections, before) = (receipt.connections, HumanCount(receipt.resumed_at));
        error_line(&format!("  {:<12} {connections}", "connections"));
        error_line(&format!("  {:<12} {before} bytes were here before", "resumed"));
        for digest in receipt.digests() {
            let (name, value) = (digest.algorithm, &digest.value);
            let read = HumanCount(digest.read_bytes);
            error_line(&format!("  {:<12} {name}:{value}, read {read} bytes", "digest"));
        }
    }
    tell_json(show, receipt);
}

/// Prints a receipt as JSON, if that is wanted.
pub(crate) fn tell_json(show: ShowArgs, receipt: &impl serde::Serialize) {
    if show.json
        && let Ok(json) = serde_json::to_string(receipt)
    {
        // A reader that has gone away wants no more.
        let _ = writeln!(std::io::stdout(), "{}", printable::json(&json));
    }
}

/// Prints why a command failed, in one line, and returns its exit code.
pub(crate) fn failure(failure: &Failure) -> ExitCode {
    match failure {
        Failure::Arguments(error) => return usage(error),
        Failure::Transfer { receipt, show, .. } => tell(*show, receipt),
        _ => {}
    }
    problem(failure);
    ExitCode::from(failure.exit_code())
}

/// Prints why one of several things failed, in one line.
pub(crate) fn problem(failure: &Failure) {
    let text = failure.to_string();
    match failure.hint() {
        Some(hint) => error_line(&format!("underpass: {text} ({hint})")),
        None => error_line(&format!("underpass: {text}")),
    }
}

/// A path as it can be shown: whatever its name has in it, it stays one line, and tells a terminal
/// nothing.
pub(crate) fn plain_path(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

/// Prints the receipt of one of several transfers, if it is wanted.
pub(crate) fn receipt(show: ShowArgs, receipt: &Receipt) {
    tell(show, receipt);
}

/// Prints what several transfers came to.
pub(crate) fn sum(show: ShowArgs, receipt: &Receipt) {
    if !show.quiet && !show.json {
        error_line(&summary(receipt));
    }
}

/// What is worth telling while something is uploaded.
pub(crate) fn upload_event(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::Resumed { at } => format!("the server has {}: going on there", BinaryBytes(*at)),
        Event::StartedOver { reason } => format!("beginning anew: {reason}"),
        Event::Redirected { to } => format!("the server redirects to {to}"),
        Event::Again { error, wait, resumes } => {
            let how = if *resumes { "going on from there" } else { "sending it once more" };
            format!("{error}; {how} in {:.1} s", wait.as_secs_f64())
        }
        _ => return None,
    })
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

/// Prints by what the other side can know us: always, for there may be no other way to know it.
pub(crate) fn pin(pin: Pin) {
    error_line(&format!("the other side needs --tls --pin {pin}"));
}

/// Prints what was generated, as it is, on standard output.
pub(crate) fn bytes(bytes: &[u8]) {
    // A reader that has gone away wants no more.
    let _ = std::io::stdout().write_all(bytes);
}

/// Prints where a server can be reached: always, for there may be no other way to know the port.
/// Unless it is to be quiet, also how to open it to the network, and what confines it.
pub(crate) fn serving(served: &Served<'_>) {
    let root = served.root.display();
    let scheme = if served.certificate.is_some() { "https" } else { "http" };
    for address in served.addresses {
        let at = served_at(scheme, address, served.prefix);
        error_line(&format!("serving {root} at {at}"));
    }
    for address in served.redirects {
        error_line(&format!("sending http://{address}/ there"));
    }
    if let Some(made) = served.certificate.and_then(Certificate::made) {
        // Always, for there is no other way to know them.
        error_line(&format!("its certificate is its own; SHA-256 {}", made.fingerprint));
        let address =
            served.addresses.iter().find_map(|address| url(scheme, address, served.prefix));
        let (pin, url) = (made.pin, address.unwrap_or_default());
        error_line(&format!("clients know it by its key: underpass get --pin {pin} {url}"));
        error_line(&format!("                            curl -k --pinnedpubkey {pin} {url}"));
    }
    if let Some(warning) = served.certificate.and_then(Certificate::warning) {
        note(warning);
    }
    let is_local = served.addresses.iter().all(|address| is_local(address));
    if served.lets_everybody_write && !is_local {
        note(
            "WARNING: everybody on the network may change files here without a password; \
             --auth user:password@/:rw asks for one",
        );
    }
    if served.quiet {
        return;
    }
    if is_local {
        let password =
            if served.is_open { "; --auth user:password@/ asks who is there" } else { "" };
        error_line(&format!(
            "only this machine can reach it: --bind 0.0.0.0 opens it to the network{password}"
        ));
    }
    error_line(&served.confinement.to_string());
    for warning in served.confinement.warnings() {
        note(warning);
    }
}

/// Prints what a server has to tell while it runs.
pub(crate) fn served_note(told: &Note) {
    match told {
        // What was cut off stands in the summary, which follows.
        Note::Drained { .. } | Note::Draining { open: 0 } => {}
        Note::Draining { open } => note(&format!(
            "{open} {} left, no more begin; a second signal ends all at once",
            if *open == 1 { "transfer is" } else { "transfers are" }
        )),
        Note::AcceptFailed(error) => note(&format!("accepting a connection: {}", plain(error))),
        Note::Failed { target, reason } => {
            note(&format!("{target}: {reason}; the client saw a reset"))
        }
        other => note(&format!("{other:?}")),
    }
}

/// Prints what a server did.
pub(crate) fn served(summary: &Summary, time: Duration) {
    let (requests, bytes) = (HumanCount(summary.requests), BinaryBytes(summary.bytes));
    let cut_off = match summary.cut_off {
        0 => String::new(),
        left => format!("; {left} transfers were cut off"),
    };
    let time = HumanDuration(time);
    error_line(&format!("served {requests} requests, {bytes} in {time}{cut_off}"));
}

/// A value as one line of JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> String {
    printable::json(&serde_json::to_string(value).unwrap_or_default())
}

/// Prints what was asked for, on standard error.
pub(crate) fn told(text: &str) {
    error_lines(text);
}

/// Prints a question, after which the answer is typed on the same line.
pub(crate) fn question(text: &str) {
    // Without standard error nobody is asked, and nothing is answered.
    let _ = write!(std::io::stderr(), "underpass: {text}");
}

/// Prints one line about something that goes on beside the work.
pub(crate) fn note(text: &str) {
    error_line(&format!("underpass: {text}"));
}

/// `http://127.0.0.1:5000/files/`, or the path of a socket.
fn served_at(scheme: &str, address: &str, prefix: &str) -> String {
    let (Ok(at), Some(url)) = (address.parse::<SocketAddr>(), url(scheme, address, prefix)) else {
        return address.to_owned();
    };
    if !at.ip().is_unspecified() {
        return url;
    }
    format!("{scheme}://{at}{prefix}/ (every address, such as {url})")
}

/// An address that can be typed at a client; `None` for a socket in the file system.
fn url(scheme: &str, address: &str, prefix: &str) -> Option<String> {
    let at = address.parse::<SocketAddr>().ok()?;
    if !at.ip().is_unspecified() {
        return Some(format!("{scheme}://{at}{prefix}/"));
    }
    let host = uname().nodename().to_string_lossy().into_owned();
    Some(format!("{scheme}://{host}:{}{prefix}/", at.port()))
}

/// Whether nobody but this machine can come this way.
fn is_local(address: &str) -> bool {
    address.parse::<SocketAddr>().map_or(true, |at| at.ip().is_loopback())
}

fn tell(show: ShowArgs, receipt: &Receipt) {
    if show.explain {
        error_lines(&explained(receipt, Alphabet::of_locale()));
    }
    if show.json
        && let Ok(json) = serde_json::to_string(receipt)
    {
        // A reader that has gone away wants no more.
        let _ = writeln!(std::io::stdout(), "{}", printable::json(&json));
    }
}

/// `4.00 GiB in 2.13 s (1.88 GiB/s) by copy_file_range`
pub(crate) fn summary(receipt: &Receipt) -> String {
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

/// Prints one line, whatever names in it are made of.
fn error_line(line: &str) {
    // Nobody is left to be told that nobody is listening.
    let _ = writeln!(std::io::stderr(), "{}", one_line(line));
}

/// Prints several lines.
fn error_lines(text: &str) {
    // Nobody is left to be told that nobody is listening.
    let _ = writeln!(std::io::stderr(), "{}", printable::lines(text));
}
