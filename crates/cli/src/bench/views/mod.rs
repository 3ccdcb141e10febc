//! Views of records: bars on a terminal, Markdown, a page, charts as files. Each is drawn from
//! records alone, and the same records give the same bytes.
//!
//! `quantity` knows what of a sample can be drawn, `chart` and `path` say what is drawn as values;
//! `lines`, `bars` and `figure` draw them.

mod axis;
mod bars;
mod chart;
mod figure;
mod lines;
mod markdown;
mod page;
mod path;
pub(crate) mod quantity;
mod svg;
mod table;
mod terminal;
mod unit;

pub(crate) use chart::size_label;
pub(crate) use markdown::markdown;
pub(crate) use page::{Named, page};
pub(crate) use quantity::{Aim, Quantity, quantities};
pub(crate) use terminal::{Screen, bars};
pub(crate) use unit::Unit;

/// A chart as a file.
#[derive(Debug)]
pub(crate) struct ChartFile {
    /// Its name.
    pub(crate) name: String,
    /// What it holds.
    pub(crate) text: String,
}

/// Every chart and every way of a record, each as a file.
pub(crate) fn files(named: &Named) -> Vec<ChartFile> {
    let name = |part: &str| format!("{}-{part}.svg", named.name);
    let charts = chart::charts(&named.record).into_iter().map(|chart| ChartFile {
        name: name(&chart.name),
        text: svg::file(&chart.name, &page::drawing(&chart, &chart.name)),
    });
    let paths = path::paths(&named.record).into_iter().map(|path| ChartFile {
        name: name(&path.name),
        text: svg::file(&path.name, &figure::draw(&path)),
    });
    charts.chain(paths).collect()
}
