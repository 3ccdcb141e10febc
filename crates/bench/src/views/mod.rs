//! Views of records: tables and bars on a terminal, Markdown, a page, charts as files. Each is
//! drawn from records alone, and the same records give the same bytes.
//!
//! `document` has the tables and the words of all of them, `chart` has the charts as values, and
//! `svg` draws them.

mod axis;
mod chart;
mod document;
mod json;
mod markdown;
mod page;
mod svg;
mod terminal;

pub(crate) use document::Table;
#[cfg(test)]
pub(crate) use document::calls;
pub use markdown::markdown;
pub use page::page;
pub(crate) use terminal::draw;
#[cfg(test)]
pub(crate) use terminal::figures;
pub use terminal::{Screen, text};

use crate::record::Record;

/// The name of a file without folders and ending, and its record.
pub(crate) type Named = (String, Record);

/// Returns every chart of a record: the name of a file for each, and its text.
#[must_use]
pub fn charts(name: &str, record: &Record) -> Vec<(String, String)> {
    let charts = chart::charts(record).into_iter();
    charts.map(|chart| (format!("{name}-{}.svg", chart.name), svg::file(&chart))).collect()
}
