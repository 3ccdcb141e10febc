//! `bench show`: records in every form in which they can be looked at.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use clap::Args;
use console::Term;

use super::record::Record;
use super::table::render;
use super::views::{self, Named, Screen};
use crate::ends::{Overwrite, Target};
use crate::failure::{Failure, Result, WithPath};
use crate::output;

/// What can be typed after `bench show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Records that --json has written
    #[arg(value_name = "RECORD", required = true)]
    records: Vec<PathBuf>,

    /// Write a report with charts: one page that needs nothing else; - for standard output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write the tables as Markdown; - for standard output
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Write each chart as a file into this folder, which is made if it is not there
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,

    /// Draw bars with letters of ASCII alone
    #[arg(long, conflicts_with_all = ["html", "markdown", "svg"])]
    ascii: bool,
}

/// Shows records: on the terminal, unless they are to be written somewhere.
pub(crate) fn show(args: &ShowArgs, cancel: &AtomicBool) -> Result<()> {
    let is_stdout = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
    if is_stdout(&args.html) && is_stdout(&args.markdown) {
        let message = "--html - and --markdown - cannot both be standard output".to_owned();
        return Err(Failure::Usage(message));
    }
    let records = args.records.iter().map(|path| load(path)).collect::<Result<Vec<_>>>()?;
    let mut is_written = false;
    for (path, view) in
        [(&args.html, views::page as fn(&[Named]) -> String), (&args.markdown, views::markdown)]
    {
        if let Some(path) = path {
            write(path, &view(&records), cancel)?;
            is_written = true;
        }
    }
    if let Some(folder) = &args.svg {
        write_charts(folder, &records, cancel)?;
        is_written = true;
    }
    if !is_written {
        let texts: Vec<_> = records.iter().map(|named| text(&named.record, args.ascii)).collect();
        output::text(&texts.join("\n"));
    }
    Ok(())
}

/// The table and the bars of a record, for the terminal.
pub(crate) fn text(record: &Record, is_ascii: bool) -> String {
    let bars = views::bars(record, screen(is_ascii));
    let gap = if bars.is_empty() { "" } else { "\n" };
    format!("{}{gap}{bars}", render(record))
}

/// What standard output can show.
fn screen(is_ascii: bool) -> Screen {
    let terminal = Term::stdout();
    let width = terminal.size_checked().map_or(WIDTH, |(_, columns)| usize::from(columns));
    let has_colors = terminal.is_term() && console::colors_enabled();
    Screen { width, is_unicode: !is_ascii && speaks_unicode(), has_colors }
}

/// Whether the locale of this user has letters beyond ASCII; the first that is set decides.
fn speaks_unicode() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(std::env::var_os);
    let locale = set.into_iter().find(|value| !value.is_empty());
    locale.is_some_and(|locale| {
        let locale = locale.to_string_lossy().to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

fn load(path: &Path) -> Result<Named> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Named { name, record: Record::load(path)? })
}

/// Writes a text; a file appears when all of it is there.
fn write(path: &Path, text: &str, cancel: &AtomicBool) -> Result<()> {
    let target = Target::create(path, Overwrite::Always, cancel)?;
    target.file().write_all(text.as_bytes()).with_path("writing", target.path())?;
    target.finish(text.len() as u64)
}

fn write_charts(folder: &Path, records: &[Named], cancel: &AtomicBool) -> Result<()> {
    fs::create_dir_all(folder).with_path("creating", folder)?;
    let files: Vec<_> = records.iter().flat_map(views::files).collect();
    for (index, file) in files.iter().enumerate() {
        if files[..index].iter().any(|other| other.name == file.name) {
            let message = format!(
                "two records would both write {}: show them one after the other into two folders",
                file.name
            );
            return Err(Failure::Usage(message));
        }
    }
    files.iter().try_for_each(|file| write(&folder.join(&file.name), &file.text, cancel))
}

/// Letters in a line of what is no terminal.
const WIDTH: usize = 100;
