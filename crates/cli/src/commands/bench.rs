//! `underpass bench`: the mechanisms measured against each other.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::bench::{self, BenchArgs, Record, RecordFile, ScenarioArgs};
use crate::failure::Result;
use crate::output;
use crate::signals;

/// Measures, or shows what was measured before.
pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let cancel = signals::cancel_flag();
    match &args.scenario {
        ScenarioArgs::Net(args) => {
            keep(&cancel, args.run.json.as_deref(), || bench::net(args, &cancel))
        }
        ScenarioArgs::Copy(args) => {
            keep(&cancel, args.run.json.as_deref(), || bench::copy(args, &cancel))
        }
        ScenarioArgs::Cp(args) => keep(&cancel, args.json(), || bench::cp(args, &cancel)),
        ScenarioArgs::Chain(args) => {
            keep(&cancel, args.run.json.as_deref(), || bench::chain(args, &cancel))
        }
        ScenarioArgs::ArticleTable(args) => {
            keep(&cancel, args.run.json.as_deref(), || bench::article_table(args, &cancel))
        }
        ScenarioArgs::ArticleCopy(args) => {
            keep(&cancel, args.run.json.as_deref(), || bench::article_copy(args, &cancel))
        }
        ScenarioArgs::ArticleChunks(args) => {
            keep(&cancel, args.run.json.as_deref(), || bench::article_chunks(args, &cancel))
        }
        ScenarioArgs::Limit(args) => {
            keep(&cancel, args.run.json.as_deref(), || bench::limit(args, &cancel))
        }
        ScenarioArgs::Serve(args) => keep(&cancel, args.json(), || bench::serve(args, &cancel)),
        ScenarioArgs::Hostile(args) => {
            keep(&cancel, args.common.run.json.as_deref(), || bench::hostile(args, &cancel))
        }
        ScenarioArgs::Scale(args) => {
            keep(&cancel, args.common.run.json.as_deref(), || bench::scale(args, &cancel))
        }
        ScenarioArgs::Get(args) => keep(&cancel, args.json(), || bench::get(args, &cancel)),
        ScenarioArgs::Put(args) => keep(&cancel, args.json(), || bench::put(args, &cancel)),
        ScenarioArgs::Tree(args) => keep(&cancel, args.json(), || bench::tree(args, &cancel)),
        ScenarioArgs::Compare(args) => bench::compare(args),
        ScenarioArgs::Show(args) => bench::show(args, &cancel),
    }
}

/// Writes the record if it is wanted, and shows its table unless that would be in its way. A
/// place that cannot be written to is found out before the run and not after it.
fn keep(
    cancel: &AtomicBool,
    path: Option<&Path>,
    run: impl FnOnce() -> Result<Record>,
) -> Result<()> {
    let file = path.map(|path| RecordFile::prepare(path, cancel)).transpose()?;
    let record = run()?;
    if let Some(file) = file {
        file.write(&record)?;
    }
    if path != Some(Path::new("-")) {
        output::text(&bench::text(&record, false));
    }
    Ok(())
}
