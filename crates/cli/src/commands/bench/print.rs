//! Records as text, on the terminal and in files.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use console::Term;
use indicatif::{ProgressBar, ProgressStyle};
use underpass_bench::{self as bench, Record, RunObserver, Screen};
use underpass_copy::ends::{OutputTarget, OverwriteRule};
use underpass_engine::hint::Action;

use crate::failure::{Result, UsageError, WithPath};
use crate::receipt::Alphabet;
use crate::signals::opener;

/// The progress of a run, on standard error if that is a terminal. It is drawn between samples.
#[derive(Debug, Default)]
pub(super) struct ProgressLine(OnceLock<ProgressBar>);

impl ProgressLine {
    fn with(&self, draw: impl FnOnce(&ProgressBar)) {
        self.0.get().map(draw).unwrap_or_default();
    }
}

impl RunObserver for ProgressLine {
    fn begin(&self, total: u64) {
        let bar = ProgressBar::new(total);
        let style = ProgressStyle::with_template("{msg:>5} {wide_bar} {percent}% {eta} left");
        let bar = match style {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        // A second run would continue the bar of the first one.
        let _ = self.0.set(bar);
    }

    fn measuring(&self, what: &str) {
        self.with(|bar| bar.set_message(what.to_owned()));
    }

    fn advance(&self, done: u64) {
        self.with(|bar| bar.inc(done));
    }

    fn end(&self) {
        self.with(ProgressBar::finish_and_clear);
    }
}

/// Returns the tables and the bars of a record, as standard output can show them.
pub(super) fn on_terminal(record: &Record, is_ascii: bool) -> String {
    let terminal = Term::stdout();
    let width = terminal.size_checked().map_or(WIDTH, |(_, columns)| usize::from(columns));
    let has_colors = terminal.is_term() && console::colors_enabled();
    let is_unicode = !is_ascii && Alphabet::of_locale() == Alphabet::Unicode;
    bench::text(record, Screen { width, is_unicode, has_colors })
}

/// Writes a text to a path; the file appears when it is complete.
pub(super) fn write(path: &Path, text: &str, cancel: &AtomicBool) -> Result<()> {
    write_to(OutputTarget::create(path, OverwriteRule::Always, &opener(cancel))?, text)
}

/// Writes a text to a prepared target.
pub(super) fn write_to(target: OutputTarget, text: &str) -> Result<()> {
    target.file().write_all(text.as_bytes()).with_path(Action::Writing, target.path())?;
    Ok(target.finish(text.len() as u64)?)
}

/// Writes each chart of the records as a file into a folder, which is created if it is missing.
pub(super) fn write_charts(
    folder: &Path,
    records: &[(String, Record)],
    cancel: &AtomicBool,
) -> Result<()> {
    fs::create_dir_all(folder).with_path(Action::Creating, folder)?;
    let files: Vec<_> =
        records.iter().flat_map(|(name, record)| bench::charts(name, record)).collect();
    for (index, (name, _)) in files.iter().enumerate() {
        if files[..index].iter().any(|(other, _)| other == name) {
            return Err(ShowError::SameChart(name.clone()).into());
        }
    }
    files.iter().try_for_each(|(name, text)| write(&folder.join(name), text, cancel))
}

/// The reason why records cannot be shown together.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShowError {
    #[error("--html - and --markdown - cannot both be standard output")]
    OutputTwice,
    #[error("{} is a record that is to be shown: it would be replaced", .0.display())]
    OverRecord(PathBuf),
    #[error("two records would both write {0}: show them one after the other into two folders")]
    SameChart(String),
}

impl UsageError for ShowError {}

/// Columns of a line where standard output is not a terminal.
const WIDTH: usize = 100;
