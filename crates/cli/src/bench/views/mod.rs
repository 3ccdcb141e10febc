//! Views of records: bars on a terminal, Markdown, a page, charts as files. Each is drawn from
//! records alone, and the same records give the same bytes.
//!
//! `quantity` knows what of a sample can be drawn, `chart` and `path` say what is drawn as values;
//! `lines`, `bars` and `figure` draw them.

mod axis;
mod bars;
pub(crate) mod calls;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::fixture::{chain_record, net_record};

    #[test]
    fn the_same_record_gives_the_same_charts_byte_for_byte() {
        let chart = |name: &str, record| {
            let files = files(&Named { name: "r".to_owned(), record });
            let file = files.into_iter().find(|file| file.name == format!("r-{name}.svg"));
            file.map(|file| file.text).unwrap_or_default()
        };
        assert_eq!(chart("time", net_record()), include_str!("../snapshots/net_time.svg"));
        let record = chain_record(&[8 << 10, 16 << 10, 32 << 10], &[1.5, 1.25, 0.75]);
        assert_eq!(chart("cpu", record), include_str!("../snapshots/chain_cpu.svg"));
    }
}
