//! Writes logs: the access log, and messages on standard error.
//!
//! A system call for each line would cost more than most responses, and a slow disk, or a reader
//! that stops reading, must not block the workers. So a line is only copied into a buffer, which a
//! separate thread writes a few times a second. Lines that do not fit into the buffer are counted.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use underpass_engine::Grouped;
use underpass_engine::hint::in_words;
use underpass_engine::wait::{lock, unpoison};

/// Where lines are written: a file opened for appending, or an open stream.
#[derive(Debug)]
pub struct LogFile {
    name: String,
    file: File,
    /// `None` for a stream, which cannot be reopened.
    path: Option<(PathBuf, OpenLog)>,
    /// The device and inode of the file's folder when the file was first opened.
    folder_id: Option<(u64, u64)>,
}

/// Opens a file for appending.
pub type OpenLog = fn(&Path) -> io::Result<File>;

impl LogFile {
    /// Opens a file with `open`, which is also used to reopen it.
    ///
    /// # Errors
    ///
    /// As `open`.
    pub fn open(path: &Path, open: OpenLog) -> io::Result<Self> {
        let file = open(path)?;
        // An absolute path still names the same file after a change of the working directory.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let folder_id = path.parent().and_then(file_id);
        Ok(Self { name: path.display().to_string(), file, path: Some((path, open)), folder_id })
    }

    /// Uses an open stream; the name is for messages.
    #[must_use]
    pub fn stream(stream: impl Into<File>, name: &str) -> Self {
        Self { name: name.to_owned(), file: stream.into(), path: None, folder_id: None }
    }

    /// Returns the folder in which the file is recreated after it was moved away.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.path.as_ref().and_then(|(path, _)| path.parent())
    }

    fn reopen(&mut self) -> io::Result<()> {
        let Some((path, open)) = &self.path else { return Ok(()) };
        self.file = open(path).map_err(|error| {
            let is_replaced = path.parent().and_then(file_id) != self.folder_id;
            if error.kind() != io::ErrorKind::PermissionDenied || !is_replaced {
                return error;
            }
            // The sandbox allows the folder that existed at the start, not one of that name.
            io::Error::other("no access to its new folder (restart the server)")
        })?;
        Ok(())
    }
}

/// Returns the device and inode of a file.
fn file_id(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// A log that is being written. Clones write to the same log.
#[derive(Clone, Debug)]
pub struct LogBuffer(Arc<SharedLog>);

#[derive(Debug)]
struct SharedLog {
    state: Mutex<LogState>,
    /// The maximum number of bytes that wait to be written.
    capacity: usize,
    /// Notified when there is something to write, or the log is to be reopened or ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogState {
    pending: Vec<u8>,
    /// The number of lines that did not fit.
    lost: u64,
    reopens: bool,
    ends: bool,
    /// Whether everything is written and nothing more will be.
    has_ended: bool,
}

impl LogBuffer {
    /// Starts the thread that writes a buffer of `capacity` bytes. `report` gets a line about each
    /// loss of lines.
    ///
    /// # Errors
    ///
    /// The system error if no thread can be started.
    pub fn start(file: LogFile, capacity: usize, report: fn(&str)) -> io::Result<Self> {
        let shared = SharedLog { state: Mutex::default(), capacity, changed: Condvar::new() };
        let shared = Arc::new(shared);
        let writer = Writer { file, report, complained: false, is_torn: false, unwritten: 0 };
        thread::Builder::new().spawn({
            let shared = Arc::clone(&shared);
            move || writer.run(&shared)
        })?;
        Ok(Self(shared))
    }

    /// Adds a line, which must end with a newline. This costs a lock and a copy.
    pub fn line(&self, line: &[u8]) {
        let mut state = lock(&self.0.state);
        let before = state.pending.len();
        if before + line.len() > self.0.capacity {
            state.lost += 1;
            return;
        }
        state.pending.extend_from_slice(line);
        let after = state.pending.len();
        drop(state);
        if before == 0 || (before < FULL && after >= FULL) {
            self.0.changed.notify_all();
        }
    }

    /// Reopens the file, after it was moved away.
    pub fn reopen(&self) {
        lock(&self.0.state).reopens = true;
        self.0.changed.notify_all();
    }

    /// Ends the log; no lines may follow. Returns true once everything is written, or false if that
    /// takes too long.
    #[must_use]
    pub fn end(&self) -> bool {
        let SharedLog { state, changed, .. } = &*self.0;
        let mut state = lock(state);
        state.ends = true;
        changed.notify_all();
        unpoison(changed.wait_timeout_while(state, END_WAIT, |state| !state.has_ended)).0.has_ended
    }
}

impl SharedLog {
    /// Waits until there are lines, then a moment longer for more; returns them and leaves the
    /// empty `spare` for the next ones.
    fn next(&self, spare: Vec<u8>) -> LogState {
        let is_urgent =
            |state: &mut LogState| state.ends || state.reopens || state.pending.len() >= FULL;
        let is_idle = |state: &mut LogState| state.pending.is_empty() && !is_urgent(state);
        let state = unpoison(self.changed.wait_while(lock(&self.state), is_idle));
        let waited = self.changed.wait_timeout_while(state, INTERVAL, |state| !is_urgent(state));
        let (mut state, _) = unpoison(waited);
        mem::replace(&mut *state, LogState { pending: spare, ..LogState::default() })
    }
}

/// The state of the writing thread.
struct Writer {
    file: LogFile,
    report: fn(&str),
    /// Whether a failure to write was reported, which happens once until a success.
    complained: bool,
    /// Whether the last line was written only in part.
    is_torn: bool,
    /// The number of unwritten lines since the last report of them.
    unwritten: u64,
}

impl Writer {
    fn run(mut self, shared: &SharedLog) {
        let mut spare = Vec::new();
        loop {
            let mut todo = shared.next(spare);
            self.write(&todo.pending);
            if todo.lost > 0 {
                let (name, lost) = (&self.file.name, todo.lost);
                (self.report)(&format!("{name} is too slow: {lost} log lines were dropped"));
            }
            if todo.reopens {
                self.reopen();
            }
            if todo.ends {
                self.report_unwritten();
                lock(&shared.state).has_ended = true;
                shared.changed.notify_all();
                return;
            }
            todo.pending.clear();
            spare = todo.pending;
        }
    }

    fn write(&mut self, mut lines: &[u8]) {
        let outcome = self.write_whole_lines(&mut lines);
        if outcome.is_ok() {
            self.report_unwritten();
        }
        self.unwritten += lines.iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.complain(outcome, "writing", "log lines are lost");
    }

    /// Reports how many lines are missing from the file.
    fn report_unwritten(&mut self) {
        let lost = mem::take(&mut self.unwritten);
        if lost > 0 {
            let lines = if lost == 1 { "log line" } else { "log lines" };
            (self.report)(&format!("{} lacks {} {lines}", self.file.name, Grouped(lost)));
        }
    }

    /// Writes lines, after ending one that a full disk has truncated; on an error, `lines` keeps
    /// those that were not written.
    fn write_whole_lines(&mut self, lines: &mut &[u8]) -> io::Result<()> {
        if self.is_torn && !lines.is_empty() {
            self.file.file.write_all(b"\n")?;
            self.is_torn = false;
        }
        while !lines.is_empty() {
            match self.file.file.write(lines) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => {
                    self.is_torn = !lines[..len].ends_with(b"\n");
                    *lines = &lines[len..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn reopen(&mut self) {
        self.complained = false;
        let outcome = self.file.reopen();
        // A new, empty file has no torn line.
        self.is_torn &= self.file.file.metadata().is_ok_and(|it| it.len() > 0);
        self.complain(outcome, "re-opening", "lines still go to the previous file");
    }

    fn complain(&mut self, outcome: io::Result<()>, action: &str, consequence: &str) {
        let was_told = mem::replace(&mut self.complained, outcome.is_err());
        if let (Err(error), false) = (outcome, was_told) {
            let (name, error) = (&self.file.name, in_words(&error));
            (self.report)(&format!("{action} {name}: {error}: {consequence}"));
        }
    }
}

/// The bytes that trigger a write at once: a larger write costs the same per byte.
const FULL: usize = 64 << 10;

/// The most bytes buffered for an access log: some seconds of the busiest server, while a disk is
/// stuck.
pub const MAX_ENTRIES: usize = 8 << 20;

/// The most bytes buffered for messages: thousands of lines.
pub const MAX_MESSAGES: usize = 256 << 10;

/// The longest wait at the end for unwritten lines.
const END_WAIT: Duration = Duration::from_secs(3);

/// The longest delay of a line; short enough for an operator who watches the file.
const INTERVAL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn start(path: &Path) -> LogBuffer {
        let open = |path: &Path| File::options().append(true).create(true).open(path);
        LogBuffer::start(LogFile::open(path, open).unwrap(), MAX_ENTRIES, |_| ()).unwrap()
    }

    #[test]
    fn every_line_is_in_the_file_when_the_log_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = start(&path);
        thread::scope(|scope| {
            for worker in 0..4 {
                let log = log.clone();
                scope.spawn(move || {
                    (0..5000).for_each(|line| log.line(format!("{worker} {line}\n").as_bytes()));
                });
            }
        });
        assert!(log.end());
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 20_000);
        let mut last = [-1_i32; 4];
        for line in text.lines() {
            let (worker, number) = line.split_once(' ').unwrap();
            let (worker, number): (usize, i32) = (worker.parse().unwrap(), number.parse().unwrap());
            assert_eq!(number, mem::replace(&mut last[worker], number) + 1);
        }
    }

    #[test]
    fn a_log_that_was_moved_is_reopened() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("log"), folder.path().join("log.1"));
        let log = start(&path);
        log.line(b"before\n");
        fs::rename(&path, &moved).unwrap();
        log.reopen();
        while !path.exists() {
            thread::sleep(Duration::from_millis(1));
        }
        log.line(b"after\n");
        assert!(log.end());
        assert_eq!(fs::read_to_string(moved).unwrap(), "before\n");
        assert_eq!(fs::read_to_string(path).unwrap(), "after\n");
    }

    #[test]
    fn a_truncated_line_is_not_joined_to_the_next() {
        let (here, mut there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let file = LogFile::stream(OwnedFd::from(here), "a socket");
        let mut writer =
            Writer { file, report: |_| (), complained: false, is_torn: false, unwritten: 0 };
        writer.write(b"first\n");
        writer.write(&vec![b'x'; MAX_ENTRIES]);
        // Reading makes room again.
        let mut text = vec![0; MAX_ENTRIES];
        let mut len = there.read(&mut text).unwrap();
        there.set_nonblocking(true).unwrap();
        while let Ok(more) = there.read(&mut text[len..]) {
            len += more;
        }
        assert!(text[..len].ends_with(b"x"));
        writer.write(b"next\n");
        drop(writer);
        text.truncate(len);
        there.read_to_end(&mut text).unwrap();
        assert!(text.starts_with(b"first\nxx") && text.ends_with(b"xx\nnext\n"));
    }

    #[test]
    fn unwritten_lines_are_counted_until_they_are_reported() {
        let full = File::options().append(true).open("/dev/full").unwrap();
        let file = LogFile::stream(full, "a full disk");
        let mut writer =
            Writer { file, report: |_| (), complained: false, is_torn: false, unwritten: 0 };
        writer.write(b"one\ntwo\n");
        writer.write(b"three\n");
        assert_eq!(writer.unwritten, 3);
        writer.file.file = tempfile::tempfile().unwrap();
        writer.write(b"four\n");
        assert_eq!(writer.unwritten, 0);
    }

    #[test]
    fn a_line_that_does_not_fit_is_counted_without_waiting() {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(SharedLog { state, capacity: MAX_ENTRIES, changed });
        let log = LogBuffer(Arc::clone(&shared));
        let line = vec![b'x'; MAX_ENTRIES / 2];
        (0..3).for_each(|_| log.line(&line));
        assert_eq!(lock(&shared.state).lost, 1);
        assert_eq!(lock(&shared.state).pending.len(), MAX_ENTRIES);
    }
}
