//! Calls what was typed after `bench`.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use underpass_bench::{self as bench, Comparison, Record};

use super::args::{BenchArgs, CompareArgs, ScenarioArgs, ShowArgs};
use super::print;
use crate::ends::{Overwrite, Target};
use crate::failure::{Failure, Result};
use crate::output;
use crate::signals;

/// Measures, or shows what was measured before.
pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let cancel = signals::cancel_flag();
    let cancel = &*cancel;
    match &args.scenario {
        ScenarioArgs::Net(args) => keep(cancel, args.json(), || bench::net(args, cancel)),
        ScenarioArgs::Copy(args) => keep(cancel, args.json(), || bench::copy(args, cancel)),
        ScenarioArgs::Cp(args) => keep(cancel, args.json(), || bench::cp(args, cancel)),
        ScenarioArgs::Chain(args) => keep(cancel, args.json(), || bench::chain(args, cancel)),
        ScenarioArgs::ArticleTable(args) => {
            keep(cancel, args.json(), || bench::article_table(args, cancel))
        }
        ScenarioArgs::ArticleCopy(args) => {
            keep(cancel, args.json(), || bench::article_copy(args, cancel))
        }
        ScenarioArgs::ArticleChunks(args) => {
            keep(cancel, args.json(), || bench::article_chunks(args, cancel))
        }
        ScenarioArgs::Limit(args) => keep(cancel, args.json(), || bench::limit(args, cancel)),
        ScenarioArgs::Serve(args) => keep(cancel, args.json(), || bench::serve(args, cancel)),
        ScenarioArgs::Hostile(args) => keep(cancel, args.json(), || bench::hostile(args, cancel)),
        ScenarioArgs::Scale(args) => keep(cancel, args.json(), || bench::scale(args, cancel)),
        ScenarioArgs::Get(args) => keep(cancel, args.json(), || bench::get(args, cancel)),
        ScenarioArgs::Put(args) => keep(cancel, args.json(), || bench::put(args, cancel)),
        ScenarioArgs::Tree(args) => keep(cancel, args.json(), || bench::tree(args, cancel)),
        ScenarioArgs::Compare(args) => compare(args),
        ScenarioArgs::Show(args) => show(args, cancel),
    }
}

/// Writes the record if it is wanted, and shows its table unless that would be in its way. A
/// place that cannot be written to is found out before the run and not after it.
fn keep(
    cancel: &AtomicBool,
    path: Option<&Path>,
    run: impl FnOnce() -> bench::Result<Record>,
) -> Result<()> {
    let file = path.map(|path| Target::create(path, Overwrite::Always, cancel)).transpose()?;
    let record = run()?;
    if let Some(file) = file {
        print::write_to(file, &record.to_json())?;
    }
    if path != Some(Path::new("-")) {
        output::text(&print::on_terminal(&record, false));
    }
    Ok(())
}

/// Shows records: on the terminal, unless they are to be written somewhere.
fn show(args: &ShowArgs, cancel: &AtomicBool) -> Result<()> {
    let is_stdout = |path: &Option<_>| path.as_deref() == Some(Path::new("-"));
    if is_stdout(&args.html) && is_stdout(&args.markdown) {
        let message = "--html - and --markdown - cannot both be standard output".to_owned();
        return Err(Failure::Usage(message));
    }
    let records = args.records.iter().map(|path| Record::load(path));
    let records = records.collect::<bench::Result<Vec<_>>>()?;
    let names = args.records.iter().map(|path| path.file_stem().unwrap_or_default());
    let named: Vec<_> =
        names.map(|name| name.to_string_lossy().into_owned()).zip(records).collect();
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

/// Compares two records; what got worse is a failure of its own.
fn compare(args: &CompareArgs) -> Result<()> {
    let comparison = Comparison::of(&args.old, &args.new, args.relative, args.margin)?;
    output::text(&comparison.table());
    match comparison.worse() {
        0 => Ok(()),
        worse => {
            Err(Failure::finding(format!("{worse} of {} comparisons got worse", comparison.len())))
        }
    }
}
