//! A record on a terminal: its tables, and the charts of the page as bars of characters.

use super::chart::{Chart, ChartRow, at_sizes, by_points};
use super::document::{NO_CAVEATS, Table, commands, machine, reading, subject, tables};
use super::svg::{shape, shortened};
use crate::record::{Rank, Record, Unit, warnings};

/// The abilities of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Letters in a line.
    pub width: usize,
    /// Whether it can show characters beyond ASCII.
    pub is_unicode: bool,
    /// Whether it has colours and the user wants them.
    pub has_colors: bool,
}

/// Returns the tables and the bars of a record.
#[must_use]
pub fn text(record: &Record, screen: Screen) -> String {
    let parts = [figures(record), bars(record, screen)];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let text = parts.join("\n");
    if screen.is_unicode {
        text
    } else {
        text.replace('–', "-").replace('µ', "u").replace('…', ".")
    }
}

/// Returns the text of a record without the bars.
pub(crate) fn figures(record: &Record) -> String {
    let mut parts = vec![format!(
        "underpass {} bench {}, {}: {}\n{}\n{}\n",
        record.underpass,
        record.about.command,
        record.started,
        subject(record),
        machine(record),
        reading(record),
    )];
    parts.extend(tables(record).iter().map(|table| format!("{}\n{}", table.title, draw(table))));
    let commands = commands(record);
    if !commands.is_empty() {
        parts.push(format!("Commands\n{}\n", commands.join("\n")));
    }
    parts.push(match warnings(record).as_slice() {
        [] => format!("{NO_CAVEATS}\n"),
        caveats => format!("Caveats:\n- {}\n", caveats.join("\n- ")),
    });
    parts.join("\n")
}

/// Draws a table in columns: words to the left, figures to the right.
pub(crate) fn draw(table: &Table) -> String {
    let mut lines = vec![table.headings.clone()];
    for cells in &table.lines {
        lines.push(cells.iter().map(|[text, _]| text.clone()).collect());
        if cells.iter().any(|[_, below]| !below.is_empty()) {
            lines.push(cells.iter().map(|[_, below]| below.clone()).collect());
        }
    }
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).enumerate();
        let cells: Vec<_> = cells
            .map(|(column, (cell, width))| {
                if column < table.words {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            })
            .collect();
        text.push_str(cells.join(GAP).trim_end());
        text.push('\n');
    }
    text
}

/// Returns the bars of a record: the metrics that matter most, at the largest size, or at every
/// size if the contenders have no steps.
fn bars(record: &Record, screen: Screen) -> String {
    let sizes = record.sizes();
    let sizes = match sizes.iter().max() {
        Some(largest) if sizes.len() > 2 && record.has_steps() => vec![*largest],
        _ => sizes,
    };
    let metrics = record.metrics(Rank::Main).into_iter();
    let has_points = record.cells.iter().any(|cell| cell.connections.is_some());
    let charts: Vec<_> = if has_points {
        metrics.flat_map(|metric| by_points(record, metric)).collect()
    } else {
        metrics.map(|metric| at_sizes(record, metric, &sizes)).collect()
    };
    let charts: Vec<_> = charts.iter().map(|chart| section(chart, screen)).collect();
    charts.join("\n")
}

fn section(chart: &Chart, screen: Screen) -> String {
    let mut text = format!("{}, {}\n", chart.title, chart.note);
    let sizes = chart.places();
    let labels = chart.rows.iter().map(|row| row.label.chars().count()).max().unwrap_or(0);
    for (size, place) in &sizes {
        if sizes.len() > 1 {
            text += &format!("{place}\n");
        }
        let rows: Vec<_> = chart.rows.iter().filter(|row| row.at == *size).collect();
        let max = rows.iter().filter_map(|row| row.summary).map(|all| all.max).fold(0.0, f64::max);
        for row in rows {
            text += line(row, chart, max, labels.min(LABEL), screen).trim_end();
            text.push('\n');
        }
    }
    text
}

fn line(row: &ChartRow, chart: &Chart, max: f64, labels: usize, screen: Screen) -> String {
    let label = shortened(&row.label, labels);
    let Some(summary) = row.summary else {
        let value = match row.declined {
            Some(_) => "declined",
            None => "not counted",
        };
        let why = row.declined.as_deref().unwrap_or_default();
        return format!("  {label:<labels$}  {value:>VALUE$}  {why}");
    };
    let ratio = row.ratio.map(|ratio| Unit::Times.show(ratio.median)).unwrap_or_default();
    let value = chart.unit.show(summary.median);
    let head = format!("  {label:<labels$}  {value:>VALUE$}  {ratio:>RATIO$}  ");
    let room = screen.width.saturating_sub(head.chars().count()).max(MIN_BAR);
    let share = |value: f64| if max > 0.0 { (value / max).clamp(0.0, 1.0) } else { 0.0 };
    let bar = bar(share(summary.median), share(summary.max), room, screen.is_unicode);
    if screen.has_colors {
        format!("{head}\x1b[{}m{bar}\x1b[0m", COLORS[shape(row.style)])
    } else {
        format!("{head}{bar}")
    }
}

/// Returns a bar up to the median, and a shadow up to the maximum.
fn bar(median: f64, max: f64, room: usize, is_unicode: bool) -> String {
    let eighths = (median * room as f64 * 8.0).round() as usize;
    let end = (max * room as f64).round() as usize;
    let (whole, rest) = (eighths / 8, eighths % 8);
    let mut bar = String::new();
    if is_unicode {
        bar.extend(std::iter::repeat_n('█', whole));
        if rest > 0 {
            bar.push(PARTS[rest]);
        } else if whole == 0 {
            bar.push(PARTS[1]);
        }
    } else {
        bar.extend(std::iter::repeat_n('#', whole.max(1)));
    }
    let shadow = end.saturating_sub(bar.chars().count());
    bar.extend(std::iter::repeat_n(if is_unicode { '░' } else { '-' }, shadow));
    bar
}

/// ANSI colours of the styles: white, blue, yellow, green, magenta, red, cyan, white.
const COLORS: [u8; 8] = [37, 34, 33, 32, 35, 31, 36, 37];
const GAP: &str = "   ";
const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/// Letters of a name, a value and a ratio.
const LABEL: usize = 26;
const VALUE: usize = 10;
const RATIO: usize = 8;
/// Letters of a bar on the narrowest terminal.
const MIN_BAR: usize = 8;
