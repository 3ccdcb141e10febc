//! Progress, questions and dry runs of a copy, on the terminal.

use std::io::{self, BufRead};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use underpass_copy::{CopyObserver, CopyProgress, OpenCall};

use super::quote::quoted;
use crate::args::ShowArgs;
use crate::output::{self, ProgressMeter, ProgressPosition, plain_path};
use crate::signals::interruptible;

/// Shows a copy on the terminal.
pub(super) struct CpObserver<'a> {
    pub(super) meter: &'a ProgressMeter,
    pub(super) show: ShowArgs,
    pub(super) cancel: &'a AtomicBool,
    /// Whether each copied entry is printed.
    pub(super) lists: bool,
}

impl CopyObserver for CpObserver<'_> {
    fn progress(&self, now: &CopyProgress) {
        let CopyProgress { bytes, expected: total, files, .. } = *now;
        // The length of a single file is known.
        let files = total.is_none().then_some(files);
        self.meter.show(|| ProgressPosition { bytes, total, files, ..ProgressPosition::default() });
    }

    fn would_copy(&self, from: &Path, to: &Path) {
        would_copy(self.show, from, to);
    }

    fn would_remove(&self, path: &Path) {
        if !self.show.quiet && !self.show.json {
            output::text(&format!("delete {}\n", plain_path(path)));
        }
    }

    fn lists(&self) -> bool {
        self.lists
    }

    fn made(&self, from: &Path, to: &Path, backup: Option<&Path>) {
        self.meter.clear();
        made(from, to, backup);
    }

    fn removed(&self, path: &Path, is_folder: bool) {
        self.meter.clear();
        let what = if is_folder { "directory " } else { "" };
        output::text(&format!("removed {what}{}\n", quoted(path.as_os_str())));
    }

    fn named_twice(&self, from: &Path) {
        output::note(&format!("{} was named twice", from.display()));
    }

    fn may_replace(&self, path: &Path) -> io::Result<bool> {
        may_replace(path, self.cancel)
    }

    fn open(&self, open: OpenCall) -> io::Result<OwnedFd> {
        interruptible(self.cancel, open)
    }
}

/// Prints source and target of a copy, and the backup of the replaced entry.
pub(super) fn made(from: &Path, to: &Path, backup: Option<&Path>) {
    let backup = backup.map(|backup| format!(" (backup: {})", quoted(backup.as_os_str())));
    let backup = backup.unwrap_or_default();
    output::text(&format!("{} -> {}{backup}\n", quoted(from.as_os_str()), quoted(to.as_os_str())));
}

/// Prints the source and target of a copy that would be made.
pub(super) fn would_copy(show: ShowArgs, from: &Path, to: &Path) {
    if !show.quiet && !show.json {
        output::text(&format!("{} -> {}\n", plain_path(from), plain_path(to)));
    }
}

/// Asks the user whether a file may be replaced. Any answer that does not begin with a y means
/// no, as does the end of standard input.
///
/// # Errors
///
/// `EINTR` if the command was cancelled during the question, and as read(2).
pub(super) fn may_replace(path: &Path, cancel: &AtomicBool) -> io::Result<bool> {
    output::question(&format!("replace {}? [y/N] ", plain_path(path)));
    let answer = interruptible(cancel, || {
        let mut line = Vec::new();
        io::stdin().lock().read_until(b'\n', &mut line).map(|_| line)
    })?;
    Ok(answer.trim_ascii_start().first().is_some_and(|first| first.eq_ignore_ascii_case(&b'y')))
}
