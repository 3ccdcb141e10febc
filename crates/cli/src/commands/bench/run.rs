//! Runs the subcommand of `bench`.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::fs::stat;
use underpass_bench::{self as bench, BenchError, Benchmark, Comparison, Context, Record};
use underpass_copy::ends::{OutputTarget, OverwriteRule, is_dash};
use underpass_engine::{FileId, is_file};

use super::args::{BenchArgs, CompareArgs, ScenarioArgs, ShowRecordsArgs};
use super::print::{self, ProgressLine, ShowError};
use crate::failure::{Failure, Result};
use crate::output;
use crate::signals::{self, opener};

/// Measures, or shows earlier measurements.
pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    match &args.scenario {
        ScenarioArgs::Compare(args) => compare(args),
        ScenarioArgs::Show(args) => show(args),
        scenario => match scenario.benchmark() {
            Some(benchmark) => measure(benchmark, signals::cancel_flag()),
            None => Ok(()),
        },
    }
}

/// Writes the record if requested, and shows its table unless both would go to standard output. A
/// path that cannot be written to is reported before the run and not after it.
fn measure(benchmark: &dyn Benchmark, cancel: &AtomicBool) -> Result<()> {
    let path = benchmark.json();
    let file = path
        .map(|path| OutputTarget::create(path, OverwriteRule::Always, &opener(cancel)))
        .transpose()?;
    let progress = ProgressLine::default();
    // The running binary, even if its file has been replaced since it was started, and even if
    // another program, such as strace, starts it.
    let program = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    let record = benchmark.measure(&Context { program, cancel, observer: &progress })?;
    if let Some(file) = file {
        print::write_to(file, &record.to_json())?;
    }
    if !path.is_some_and(is_dash) {
        output::text(&print::on_terminal(&record, false));
    }
    Ok(())
}

/// Shows records: on the terminal, unless they are written to a file.
fn show(args: &ShowRecordsArgs) -> Result<()> {
    let is_stdout = |path: &Option<PathBuf>| path.as_deref().is_some_and(is_dash);
    if is_stdout(&args.html) && is_stdout(&args.markdown) {
        return Err(ShowError::OutputTwice.into());
    }
    let is_record = |path: &&PathBuf| args.records.iter().any(|record| is_one(record, path));
    if let Some(path) = [&args.html, &args.markdown].into_iter().flatten().find(is_record) {
        return Err(ShowError::OverRecord(path.clone()).into());
    }
    let records = args.records.iter().map(|path| Record::load(path));
    let records = records.collect::<bench::Result<Vec<_>>>()?;
    let names = args.records.iter().map(|path| path.file_stem().unwrap_or_default());
    let named: Vec<_> =
        names.map(|name| name.to_string_lossy().into_owned()).zip(records).collect();
    let cancel = signals::cancel_flag();
    if let Some(path) = &args.html {
        print::write(path, &bench::page(&named), cancel)?;
    }
    if let Some(path) = &args.markdown {
        print::write(path, &bench::markdown(&named), cancel)?;
    }
    if let Some(folder) = &args.svg {
        print::write_charts(folder, &named, cancel)?;
    }
    if args.html.is_none() && args.markdown.is_none() && args.svg.is_none() {
        let texts = named.iter().map(|(_, record)| print::on_terminal(record, args.ascii));
        output::text(&texts.collect::<Vec<_>>().join("\n"));
    }
    Ok(())
}

/// Returns whether two paths lead to one regular file.
fn is_one(left: &Path, right: &Path) -> bool {
    let [left, right] = [left, right].map(|path| stat(path).ok().filter(is_file));
    left.is_some_and(|left| right.is_some_and(|right| FileId::of(&left) == FileId::of(&right)))
}

/// Compares two records; it fails if a metric got worse.
fn compare(args: &CompareArgs) -> Result<()> {
    let comparison = Comparison::of(&args.old, &args.new, args.relative, args.margin)?;
    output::text(&comparison.table());
    match comparison.worse() {
        0 => Ok(()),
        worse => Err(Failure::finding(format!(
            "{worse} of {} comparisons got worse",
            comparison.count()
        ))),
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        match error {
            BenchError::Usage(why) => Self::Usage(why.into()),
            error => Self::hinted(error.to_string(), &error),
        }
    }
}
