//! Views of records: tables and bars on a terminal, Markdown, a page, charts as files. Each is
//! drawn from records alone, and the same records give the same bytes.
//!
//! `document` has the tables and the words of all of them, `chart` and `path` have the drawings
//! as values; `lines`, `bars` and `figure` draw them as `svg`.

mod axis;
mod chart;
mod document;
mod json;
mod markdown;
mod page;
mod path;
mod svg;
mod terminal;

pub(crate) use document::Table;
#[cfg(test)]
pub(crate) use document::calls;
pub use markdown::markdown;
pub use page::page;
#[cfg(test)]
pub(crate) use path::{Path, PathFlow, path};
pub(crate) use terminal::draw;
#[cfg(test)]
pub(crate) use terminal::figures;
pub use terminal::{Screen, text};

use crate::record::Record;

/// The name of a file without folders and ending, and its record.
pub(crate) type Named = (String, Record);

/// Returns every chart and every data path of a record: the name of a file for each, and its text.
#[must_use]
pub fn charts(name: &str, record: &Record) -> Vec<(String, String)> {
    let file = |part: &str, drawing: &svg::Drawing| {
        (format!("{name}-{part}.svg"), svg::file(part, drawing))
    };
    let charts = chart::charts(record);
    let charts = charts.iter().map(|chart| file(&chart.name, &svg::draw(chart, &chart.name)));
    let paths = path::paths(record);
    charts.chain(paths.iter().map(|path| file(&path.name, &svg::path_diagram(path)))).collect()
}
