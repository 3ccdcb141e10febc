//! Progress for people while a transfer runs.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};
use underpass_engine::{Options, Progress};

use crate::args::ShowArgs;

/// Takes progress, and how many of its bytes were there before.
pub(crate) type Observer = Box<dyn FnMut(&Progress, u64) + Send>;

/// A progress display: a bar on a terminal; a line each second elsewhere, if requested.
#[derive(Debug)]
pub(crate) enum Meter {
    /// Drawn and redrawn.
    Bar(ProgressBar),
    /// Written once a second.
    Lines,
    /// Nothing is shown.
    Silent,
}

impl Meter {
    /// What these arguments and standard error allow.
    pub(crate) fn new(show: ShowArgs) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        match (show.quiet, is_terminal, show.progress) {
            (true, ..) => Self::Silent,
            (_, true, _) => Self::Bar(ProgressBar::no_length()),
            (_, _, true) => Self::Lines,
            _ => Self::Silent,
        }
    }

    /// Makes the transfer report its progress.
    pub(crate) fn watch<'a>(&self, options: Options<'a>) -> Options<'a> {
        match self {
            Self::Silent => options,
            _ => {
                let mut show = self.observer();
                options.observer(move |progress| show(progress, 0))
            }
        }
    }

    /// Returns an observer that shows progress; some of the bytes were there before.
    pub(crate) fn observer(&self) -> Observer {
        match self {
            Self::Bar(bar) => {
                let bar = bar.clone();
                Box::new(move |progress, _| draw(&bar, progress))
            }
            Self::Lines => {
                let mut last = Instant::now();
                Box::new(move |progress, before| {
                    if last.elapsed() >= LINE_INTERVAL {
                        last = Instant::now();
                        // There is no way to report that standard error is closed.
                        let _ = writeln!(std::io::stderr(), "{}", line(progress, before));
                    }
                })
            }
            Self::Silent => Box::new(|_, _| {}),
        }
    }

    /// Shows a message next to the bytes, where there is room for it.
    pub(crate) fn message(&self, text: impl FnOnce() -> String) {
        if let Self::Bar(bar) = self {
            bar.set_message(text());
        }
    }

    /// Lets something else be printed.
    pub(crate) fn aside(&self, print: impl FnOnce()) {
        match self {
            Self::Bar(bar) => bar.suspend(print),
            _ => print(),
        }
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn draw(bar: &ProgressBar, progress: &Progress) {
    if bar.length().is_none() && bar.position() == 0 {
        let template = match progress.expected {
            Some(_) => {
                "{wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}"
            }
            None => "{spinner} {binary_bytes} {binary_bytes_per_sec} {elapsed} {msg}",
        };
        // The templates are constants that are known to parse; the bar's own would do as well.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
    }
    // A file with holes is several transfers, each with a length of its own.
    if let Some(expected) = progress.expected.filter(|&expected| bar.length() != Some(expected)) {
        bar.set_length(expected);
    }
    bar.set_position(progress.bytes);
}

fn line(progress: &Progress, before: u64) -> String {
    let seconds = progress.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let rate = progress.bytes.saturating_sub(before) as f64 / seconds;
    let done = BinaryBytes(progress.bytes);
    let speed = BinaryBytes(rate as u64);
    match progress.expected {
        None => format!("{done} at {speed}/s"),
        Some(expected) => {
            let left = expected.saturating_sub(progress.bytes) as f64 / rate.max(1.0);
            format!("{done} of {} at {speed}/s, {left:.0} s left", BinaryBytes(expected))
        }
    }
}

const LINE_INTERVAL: Duration = Duration::from_secs(1);
