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
pub use markdown::markdown;
pub use page::page;
pub(crate) use quantity::{Aim, Quantity, quantities};
pub use terminal::Screen;
use terminal::bars;
pub(crate) use unit::Unit;

use crate::record::Record;
use crate::table::render;

/// Every chart and every way of a record: the name of a file for each, and its text.
pub fn files(name: &str, record: &Record) -> Vec<(String, String)> {
    let file = |part: &str, drawing: &svg::Drawing| {
        (format!("{name}-{part}.svg"), svg::file(part, drawing))
    };
    let charts = chart::charts(record);
    let charts = charts.iter().map(|chart| file(&chart.name, &page::drawing(chart, &chart.name)));
    let paths = path::paths(record);
    charts.chain(paths.iter().map(|path| file(&path.name, &figure::draw(path)))).collect()
}

/// The tables and the bars of a record.
pub fn text(record: &Record, screen: Screen) -> String {
    let bars = bars(record, screen);
    let gap = if bars.is_empty() { "" } else { "\n" };
    format!("{}{gap}{bars}", render(record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{chain_record, net_record};

    #[test]
    fn the_same_record_gives_the_same_charts_byte_for_byte() {
        let chart = |name: &str, record| {
            let files = files("r", &record);
            let file = files.into_iter().find(|(file, _)| *file == format!("r-{name}.svg"));
            file.map(|(_, text)| text).unwrap_or_default()
        };
        assert_eq!(chart("time", net_record()), include_str!("../snapshots/net_time.svg"));
        let record = chain_record(&[8 << 10, 16 << 10, 32 << 10], &[1.5, 1.25, 0.75]);
        assert_eq!(chart("cpu", record), include_str!("../snapshots/chain_cpu.svg"));
    }
}
