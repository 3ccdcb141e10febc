//! The destinations of the access log and of the messages.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use underpass_copy::ends::open_file_number;
use underpass_observe::log_writer::{LogBuffer, LogFile, MAX_MESSAGES};
use underpass_sandbox::open_log;
use underpass_server::Settings;
use underpass_sys::duplicate;

use super::args::ServeArgs;
use crate::failure::{Failure, Result, WithPath};
use crate::output;

/// Opens the log, if there is to be one.
pub(super) fn open(args: &ServeArgs, settings: &Settings) -> Result<Option<LogFile>> {
    let log = match &args.logging.log_file {
        _ if settings.log.is_none() => return Ok(None),
        Some(path) => named(path).with_path("opening", path)?,
        None => stream(&io::stdout(), "standard output")?,
    };
    Ok(Some(log))
}

/// Opens the log with this path. Streams and devices are never opened again, so the sandbox need
/// not allow it.
fn named(path: &Path) -> io::Result<LogFile> {
    let name = path.display().to_string();
    if let Some(number) = stream_number(path) {
        return Ok(LogFile::stream(duplicate(number)?, &name));
    }
    if fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device()) {
        return Ok(LogFile::stream(open_log(path)?, &name));
    }
    LogFile::open(path, open_log)
}

/// Returns the number of the open stream that a path stands for, if it does.
fn stream_number(path: &Path) -> Option<i32> {
    match path.to_str()? {
        "-" | "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        _ => open_file_number(path),
    }
}

fn stream(stream: &impl AsFd, name: &str) -> Result<LogFile> {
    let own = stream.as_fd().try_clone_to_owned().with_path("opening", name)?;
    Ok(LogFile::stream(own, name))
}

/// Starts the writer thread of a log, which buffers up to `capacity` bytes.
pub(super) fn start(file: LogFile, capacity: usize) -> Result<LogBuffer> {
    LogBuffer::start(file, capacity, output::note).map_err(no_thread)
}

/// Runs a function and buffers its messages, so that a blocked standard error does not stop it.
pub(super) fn with_messages(serve: impl FnOnce() -> Result<()>) -> Result<()> {
    let messages = start(stream(&io::stderr(), "standard error")?, MAX_MESSAGES)?;
    let lines = messages.clone();
    output::set_error_sink(Some(Box::new(move |line| lines.line(line))));
    let outcome = serve();
    if messages.end() {
        output::set_error_sink(None);
    }
    outcome
}

/// Returns the failure of a thread that cannot be started.
pub(super) fn no_thread(source: io::Error) -> Failure {
    Failure::System { action: "starting a thread", source }
}
