//! Progress for people while something runs: one line of the same form for every command.
//!
//! On a terminal the line is drawn again and again, elsewhere a line is written each second, if
//! that was requested. The cursor rests at the beginning of the drawn line, and everything behind
//! it is erased before the next one: if the terminal becomes narrower and wraps the line, nothing
//! of it stays.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use console::Term;
use indicatif::{BinaryBytes, HumanCount};
use underpass_engine::wait::lock;
use underpass_engine::{Options, Progress};

use super::counted;
use super::lines::{draw, erase, error_line};
use super::printable::one_line;
use crate::args::ShowArgs;

/// Receives progress, and the number of bytes that existed before.
pub(crate) type ProgressObserver = Box<dyn FnMut(&Progress, u64) + Send>;

/// The position of a transfer.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgressPosition {
    /// Bytes that have arrived.
    pub(crate) bytes: u64,
    /// The bytes among them that existed before this run.
    pub(crate) before: u64,
    /// Bytes in all, if that is known.
    pub(crate) total: Option<u64>,
    /// Files that are complete, if there are several.
    pub(crate) files: Option<u64>,
    /// More about it, such as `4 connections`.
    pub(crate) note: Option<String>,
}

/// A display of progress.
#[derive(Clone, Debug)]
pub(crate) struct ProgressMeter(Option<Arc<Display>>);

#[derive(Debug)]
struct Display {
    is_terminal: bool,
    state: Mutex<ShownState>,
}

/// The progress that is shown, and since when.
#[derive(Debug)]
struct ShownState {
    name: String,
    rate: Rate,
    /// When it was shown last, or begun.
    last: Instant,
}

impl ProgressMeter {
    /// Creates the display that these arguments and standard error allow, of something with this
    /// name.
    pub(crate) fn new(show: ShowArgs, name: &str) -> Self {
        let is_terminal = is_drawable();
        if show.quiet || !(is_terminal || show.progress) {
            return Self(None);
        }
        let state = Mutex::new(ShownState::new(name));
        Self(Some(Arc::new(Display { is_terminal, state })))
    }

    /// Begins to show another transfer, with this name.
    pub(crate) fn begin(&self, name: &str) {
        if let Some(display) = &self.0 {
            *lock(&display.state) = ShownState::new(name);
        }
    }

    /// Makes the transfer report its progress.
    pub(crate) fn watch<'a>(&self, options: Options<'a>) -> Options<'a> {
        if self.0.is_none() {
            return options;
        }
        let mut show = self.observer();
        options.observer(move |progress| show(progress, 0))
    }

    /// Returns an observer that shows progress.
    pub(crate) fn observer(&self) -> ProgressObserver {
        let meter = self.clone();
        Box::new(move |progress, before| {
            let (bytes, total) = (progress.bytes, progress.expected);
            meter.show(|| ProgressPosition { bytes, before, total, ..ProgressPosition::default() });
        })
    }

    /// Shows a position, unless the last one was shown just now.
    pub(crate) fn show(&self, position: impl FnOnce() -> ProgressPosition) {
        if let Some(display) = &self.0 {
            display.show(&position(), Instant::now());
        }
    }

    /// Does the work, and shows the position at the same time.
    pub(crate) fn during<T>(
        &self,
        position: impl Fn() -> ProgressPosition + Send + Sync,
        work: impl FnOnce() -> T,
    ) -> T {
        let Some(display) = &self.0 else { return work() };
        let outcome = thread::scope(|scope| {
            let (running, stop) = mpsc::channel::<()>();
            // Without a thread nothing is shown.
            let shown = thread::Builder::new().spawn_scoped(scope, move || {
                while stop.recv_timeout(DRAW_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                    display.show(&position(), Instant::now());
                }
            });
            let outcome = work();
            drop(running);
            // The thread cannot fail.
            let _ = shown.map(ScopedJoinHandle::join);
            outcome
        });
        self.clear();
        outcome
    }

    /// Removes the line from the terminal.
    pub(crate) fn clear(&self) {
        if self.0.as_ref().is_some_and(|display| display.is_terminal) {
            erase();
        }
    }
}

impl Display {
    fn show(&self, position: &ProgressPosition, now: Instant) {
        let mut state = lock(&self.state);
        state.rate.add(now, position);
        let interval = if self.is_terminal { DRAW_INTERVAL } else { LINE_INTERVAL };
        if now.duration_since(state.last) < interval {
            return;
        }
        state.last = now;
        let line = line(&state.name, position, state.rate.value());
        if self.is_terminal {
            let width = Term::stderr().size_checked().map_or(WIDTH, |(_, columns)| columns.into());
            draw(&cut(&one_line(&line), width.saturating_sub(1)));
        } else {
            error_line(&line);
        }
    }
}

impl ShownState {
    fn new(name: &str) -> Self {
        let now = Instant::now();
        Self { name: name.to_owned(), rate: Rate::new(now), last: now }
    }
}

/// Formats progress: `disk.img: 120.00 MiB of 1.00 GiB at 80.00 MiB/s, 11 s left, 4 connections`.
fn line(name: &str, position: &ProgressPosition, rate: Option<f64>) -> String {
    let mut line = format!("{name}: ");
    if let Some(files) = position.files {
        line += &format!("{}, ", counted(files, "file", "files"));
    }
    line += &BinaryBytes(position.bytes).to_string();
    if let Some(total) = position.total {
        line += &format!(" of {}", BinaryBytes(total));
    }
    if let Some(rate) = rate {
        // The cast saturates.
        line += &format!(" at {}/s", BinaryBytes(rate as u64));
        let left = position.total.map(|total| total.saturating_sub(position.bytes));
        if let Some(left) = left.filter(|_| rate >= 1.0) {
            line += &format!(", {} left", time(left as f64 / rate));
        }
    }
    if let Some(note) = &position.note {
        line += &format!(", {note}");
    }
    line
}

/// Formats a time: `11 s`, `2 min 5 s`, `3 h 20 min`, `12 days`.
fn time(seconds: f64) -> String {
    // The cast saturates.
    match seconds.round() as u64 {
        seconds @ ..60 => format!("{seconds} s"),
        seconds @ ..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds @ ..172_800 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        seconds => format!("{} days", HumanCount(seconds / 86_400)),
    }
}

/// Returns as much of the line as fits into this number of columns.
fn cut(line: &str, width: usize) -> String {
    let mut left = width;
    line.chars()
        .take_while(|letter| {
            let columns = console::measure_text_width(letter.encode_utf8(&mut [0; 4]));
            let fits = columns <= left;
            left = left.saturating_sub(columns);
            fits
        })
        .collect()
}

/// Returns whether standard error is a terminal on which a line can be drawn again.
fn is_drawable() -> bool {
    Term::stderr().is_term() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The rate over the last few seconds, of what this run has moved.
#[derive(Debug)]
struct Rate {
    samples: VecDeque<(Instant, u64)>,
    before: u64,
}

impl Rate {
    fn new(now: Instant) -> Self {
        Self { samples: VecDeque::from([(now, 0)]), before: 0 }
    }

    /// Adds a sample. Bytes that existed before do not count as work of this run, and neither do
    /// those of an attempt that was started over.
    fn add(&mut self, now: Instant, position: &ProgressPosition) {
        let (last, bytes) = self.samples.back().copied().unwrap_or((now, 0));
        if position.before != self.before || position.bytes < bytes {
            self.before = position.before;
            self.samples.clear();
        } else if self.samples.len() > 1 && now.duration_since(last) < DRAW_INTERVAL {
            return;
        }
        self.samples.push_back((now, position.bytes));
        while self.samples.len() > 2
            && self.samples.get(1).is_some_and(|(then, _)| now.duration_since(*then) > WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// Returns the bytes per second; `None` before there are two samples.
    fn value(&self) -> Option<f64> {
        let ((first, from), (last, to)) = (self.samples.front()?, self.samples.back()?);
        let seconds = last.duration_since(*first).as_secs_f64();
        (seconds > 0.0).then(|| to.saturating_sub(*from) as f64 / seconds)
    }
}

/// The time between two drawings of the line.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);

/// The time between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// The time over which a rate is measured.
const WINDOW: Duration = Duration::from_secs(5);

/// The width of a terminal that does not report one.
const WIDTH: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(bytes: u64, before: u64) -> ProgressPosition {
        ProgressPosition { bytes, before, total: Some(1 << 30), ..ProgressPosition::default() }
    }

    #[test]
    fn the_rate_excludes_bytes_of_earlier_runs() {
        let start = Instant::now();
        let later = |millis| start + Duration::from_millis(millis);
        let mut rate = Rate::new(start);
        rate.add(later(100), &at(900 << 20, 900 << 20));
        assert_eq!(rate.value(), None);
        for tenth in 1..=10 {
            let millis = 100 + 100 * tenth;
            rate.add(later(millis), &at((900 << 20) + (tenth << 20), 900 << 20));
        }
        assert_eq!(rate.value().map(f64::round), Some(f64::from(10 << 20)));
        // The file on the server has changed: the download starts over.
        rate.add(later(1200), &at(0, 0));
        assert_eq!(rate.value(), None);
        rate.add(later(2200), &at(4096, 0));
        assert_eq!(rate.value().map(f64::round), Some(4096.0));
    }

    #[test]
    fn only_the_last_seconds_count() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        for second in 1..=60 {
            // Fast for half a minute, then slow.
            let bytes = if second <= 30 { second << 20 } else { (30 << 20) + (second - 30) * 1024 };
            rate.add(start + Duration::from_secs(second), &at(bytes, 0));
        }
        assert_eq!(rate.value().map(f64::round), Some(1024.0));
        assert!(rate.samples.len() < 10);
    }

    #[test]
    fn every_line_has_the_same_form() {
        let mut position = at(512 << 20, 0);
        let rate = Some(f64::from(64 << 20));
        let text = "disk.img: 512.00 MiB of 1.00 GiB at 64.00 MiB/s, 8 s left";
        assert_eq!(line("disk.img", &position, rate), text);
        position.note = Some("4 connections".to_owned());
        assert_eq!(line("disk.img", &position, rate), format!("{text}, 4 connections"));
        position = ProgressPosition { bytes: 1024, files: Some(1), ..ProgressPosition::default() };
        assert_eq!(line("d", &position, Some(10.0)), "d: 1 file, 1.00 KiB at 10 B/s");
        assert_eq!(line("d", &position, None), "d: 1 file, 1.00 KiB");
    }

    #[test]
    fn durations_are_printed_in_short_form() {
        for (seconds, text) in [
            (0.4, "0 s"),
            (59.4, "59 s"),
            (125.0, "2 min 5 s"),
            (12_000.0, "3 h 20 min"),
            (1e6, "11 days"),
        ] {
            assert_eq!(time(seconds), text);
        }
    }

    #[test]
    fn a_line_is_never_wider_than_the_terminal() {
        assert_eq!(cut("abcdef", 4), "abcd");
        assert_eq!(cut("abc", 4), "abc");
        // Two columns each.
        assert_eq!(cut("日本語", 5), "日本");
    }
}
