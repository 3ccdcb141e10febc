//! The figures of a chart as a table, and as a sentence for whoever cannot see it.

use super::chart::{Chart, Form, Row};
use super::unit::Unit;

/// A table: headings, and lines of cells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// Above the columns.
    pub(crate) headings: Vec<String>,
    /// The first cell of each line is its heading; a cell may have a second, smaller line.
    pub(crate) lines: Vec<Vec<[String; 2]>>,
    /// How many of the columns behind the first one hold words, not figures.
    pub(crate) words: usize,
}

/// The figures of a chart: a line for each size, or for each bar.
pub(crate) fn table(chart: &Chart) -> Table {
    match chart.form {
        Form::Lines => by_size(chart),
        Form::Bars => by_row(chart),
    }
}

fn by_size(chart: &Chart) -> Table {
    let labels = chart.labels();
    let mut headings = vec![chart.by.name().to_owned()];
    headings.extend(labels.iter().map(|(label, _)| (*label).to_owned()));
    let line = |size: u64| {
        let mut line = vec![[chart.by.label(size), String::new()]];
        line.extend(labels.iter().map(|(label, _)| match chart.row(label, size) {
            None => ["–".to_owned(), String::new()],
            Some(row) => {
                let (value, range) = value(row, chart.unit);
                let step = row.step.as_ref().map(|step| format!(" @{step}")).unwrap_or_default();
                match ratio(row) {
                    Some(ratio) => [format!("{value} {ratio}"), format!("{range}{step}")],
                    None => [value, format!("{range}{step}")],
                }
            }
        }));
        line
    };
    Table { headings, lines: chart.places().into_iter().map(line).collect(), words: 0 }
}

fn by_row(chart: &Chart) -> Table {
    let sizes = chart.places();
    let mut headings: Vec<String> = Vec::new();
    headings.extend((sizes.len() > 1).then(|| chart.by.name().to_owned()));
    headings.extend(["", "median", "ratio"].map(str::to_owned));
    let line = |row: &Row| {
        let plain = |text: String| [text, String::new()];
        let (value, range) = value(row, chart.unit);
        let ranges = row.ratio.filter(|all| row.look != 0 && all.min != all.max);
        let ranges = ranges.map(|all| format!("{:.2}–{:.2}", all.min, all.max));
        let mut line = Vec::new();
        line.extend((sizes.len() > 1).then(|| plain(chart.by.label(row.at))));
        line.push(plain(row.label.clone()));
        line.push([value, range]);
        line.push([ratio(row).unwrap_or_else(|| "–".to_owned()), ranges.unwrap_or_default()]);
        line
    };
    Table { headings, lines: chart.rows.iter().map(line).collect(), words: 0 }
}

/// The median, and the least and the most.
fn value(row: &Row, unit: Unit) -> (String, String) {
    match (row.summary, &row.declined) {
        (Some(all), _) if all.min == all.max => (unit.show(all.median), String::new()),
        (Some(all), _) => {
            let (least, most) = (unit.show(all.min), unit.show(all.max));
            // A unit that both have is told once.
            let least = match (least.split_once(' '), most.split_once(' ')) {
                (Some((number, one)), Some((_, other))) if one == other => number.to_owned(),
                _ => least,
            };
            (unit.show(all.median), format!("{least}–{most}"))
        }
        (None, Some(errno)) => ("declined".to_owned(), errno.clone()),
        (None, None) => ("–".to_owned(), String::new()),
    }
}

/// The ratio to the baseline, unless it is the baseline.
fn ratio(row: &Row) -> Option<String> {
    row.ratio.filter(|_| row.look != 0).map(|ratio| Unit::Times.show(ratio.median))
}

/// What a chart says: at the largest size, each label with its value.
pub(crate) fn sentence(chart: &Chart) -> String {
    let Some(size) = chart.places().into_iter().max() else {
        return "Nothing was measured.".to_owned();
    };
    let said: Vec<_> = chart
        .rows
        .iter()
        .filter(|row| row.at == size)
        .map(|row| {
            let value = value(row, chart.unit).0;
            match ratio(row) {
                Some(ratio) => format!("{} {value} ({ratio})", row.label),
                None => format!("{} {value}", row.label),
            }
        })
        .collect();
    format!(
        "At {}: {}. All values are in the table below the chart.",
        chart.by.label(size),
        said.join(", ")
    )
}
