//! The progress line of a file while it is fetched.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};
use underpass_client::download::Gauge;

use crate::args::ShowArgs;
use crate::output::{self, plain_path};

/// Does the work and shows its progress meanwhile: on a terminal a line that is redrawn,
/// elsewhere one each second, if requested.
pub(super) fn shown<T>(show: ShowArgs, path: &Path, gauge: &Gauge, work: impl FnOnce() -> T) -> T {
    let is_terminal = std::io::stderr().is_terminal();
    if show.quiet || !(is_terminal || show.progress) {
        return work();
    }
    thread::scope(|scope| {
        let (running, stop) = mpsc::channel();
        let name = plain_path(Path::new(path.file_name().unwrap_or(path.as_os_str())));
        let shown = scope.spawn(move || watch(&name, gauge, is_terminal, &stop));
        let outcome = work();
        drop(running);
        // The thread has nothing to fail at.
        let _ = shown.join();
        outcome
    })
}

/// Shows the progress until the other end of the channel is closed.
fn watch(name: &str, gauge: &Gauge, is_terminal: bool, stop: &Receiver<()>) {
    let bar = is_terminal.then(ProgressBar::no_length);
    let interval = Duration::from_millis(if is_terminal { 100 } else { 1_000 });
    let mut rate = Rate::new(gauge.done());
    while stop.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        let line = line(gauge, rate.update(gauge.done()));
        match &bar {
            Some(bar) => draw(bar, name, gauge, line),
            None => output::progress(&format!("{name}: {line}")),
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

fn draw(bar: &ProgressBar, name: &str, gauge: &Gauge, line: String) {
    let template = match gauge.total() {
        Some(_) => "{prefix} {wide_bar} {msg}",
        None => "{prefix} {spinner} {msg}",
    };
    // The templates are constants that are known to parse; the bar's own would do as well.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    if let Some(total) = gauge.total() {
        bar.set_length(total);
    }
    bar.set_prefix(name.to_owned());
    bar.set_position(gauge.done());
    bar.set_message(line);
}

/// Formats the progress: `120.00 MiB of 1.00 GiB at 80.00 MiB/s, 11 s left, 4 connections`.
fn line(gauge: &Gauge, rate: f64) -> String {
    if gauge.is_checking() {
        return "making its digest".to_owned();
    }
    // Saturates for an impossible rate.
    let (done, speed) = (BinaryBytes(gauge.done()), BinaryBytes(rate as u64));
    let connections = match gauge.connections() {
        1 => "1 connection".to_owned(),
        several => format!("{several} connections"),
    };
    let Some(total) = gauge.total() else { return format!("{done} at {speed}/s, {connections}") };
    let left = total.saturating_sub(gauge.done()) as f64 / rate.max(1.0);
    format!("{done} of {} at {speed}/s, {left:.0} s left, {connections}", BinaryBytes(total))
}

/// The rate over the last few seconds.
struct Rate {
    last: (Instant, u64),
    value: Option<f64>,
}

impl Rate {
    fn new(done: u64) -> Self {
        Self { last: (Instant::now(), done), value: None }
    }

    /// Updates the rate with the number of bytes done now, and returns it.
    fn update(&mut self, done: u64) -> f64 {
        let (then, before) = std::mem::replace(&mut self.last, (Instant::now(), done));
        let seconds = then.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
        let now = done.saturating_sub(before) as f64 / seconds;
        // The longer the last interval, the larger its weight.
        let share = (seconds / SMOOTH_SECONDS).min(1.0);
        *self.value.insert(self.value.map_or(now, |value| value + (now - value) * share))
    }
}

/// The number of seconds over which a rate is smoothed.
const SMOOTH_SECONDS: f64 = 3.0;
