//! Bars on a terminal: what the charts of the page show, as far as letters can.

use console::{Color, Style};

use super::chart::{Chart, Row, at_sizes, by_points, has_steps};
use super::quantity::quantities;
use super::svg::{shape, shortened};
use super::unit::Unit;
use crate::record::Record;

/// What a terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Letters in a line.
    pub width: usize,
    /// Whether it has more letters than those of ASCII.
    pub is_unicode: bool,
    /// Whether it has colours and they are wanted.
    pub has_colors: bool,
}

/// The bars of a record: the quantities that matter most, at the largest size, or at every size if
/// the ways have no steps.
pub(crate) fn bars(record: &Record, screen: Screen) -> String {
    let sizes = record.sizes();
    let sizes = match sizes.iter().max() {
        Some(largest) if sizes.len() > 2 && has_steps(record) => vec![*largest],
        _ => sizes,
    };
    let quantities = quantities(record);
    let told = quantities.into_iter().filter(|quantity| TOLD.contains(&quantity.name));
    let has_points = record.cells.iter().any(|cell| cell.connections.is_some());
    let charts = match has_points {
        true => told.flat_map(|quantity| by_points(record, quantity)).collect(),
        false => told.map(|quantity| at_sizes(record, quantity, &sizes)).collect::<Vec<_>>(),
    };
    let charts: Vec<_> = charts.iter().map(|chart| section(chart, screen)).collect();
    charts.join("\n")
}

/// A chart: its title, and the bars of each size.
fn section(chart: &Chart, screen: Screen) -> String {
    let mut text = format!("{}, {}\n", chart.title, chart.note);
    let sizes = chart.places();
    let labels = chart.rows.iter().map(|row| row.label.chars().count()).max().unwrap_or(0);
    for size in &sizes {
        if sizes.len() > 1 {
            text += &format!("{}\n", chart.by.label(*size));
        }
        let rows: Vec<_> = chart.rows.iter().filter(|row| row.at == *size).collect();
        let most = rows.iter().filter_map(|row| row.summary).map(|all| all.max).fold(0.0, f64::max);
        for row in rows {
            text += line(row, chart, most, labels.min(LABEL), screen).trim_end();
            text.push('\n');
        }
    }
    text
}

fn line(row: &Row, chart: &Chart, most: f64, labels: usize, screen: Screen) -> String {
    let label = shortened(&row.label, labels);
    let Some(summary) = row.summary else {
        let why = row.declined.as_deref().unwrap_or_default();
        return format!("  {label:<labels$}  {:>VALUE$}  {why}", "declined");
    };
    let ratio = row.ratio.filter(|_| row.look != 0);
    let ratio = ratio.map(|ratio| Unit::Times.show(ratio.median)).unwrap_or_default();
    let value = chart.unit.show(summary.median);
    let value = if screen.is_unicode { value } else { value.replace('µ', "u") };
    let head = format!("  {label:<labels$}  {value:>VALUE$}  {ratio:>RATIO$}  ");
    let room = screen.width.saturating_sub(head.chars().count()).max(LEAST_BAR);
    let share = |value: f64| if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
    let bar = bar(share(summary.median), share(summary.max), room, screen.is_unicode);
    let bar = match screen.has_colors {
        true => color(row.look).apply_to(bar).to_string(),
        false => bar,
    };
    format!("{head}{bar}")
}

/// A bar to the median, and a shadow to the most.
fn bar(median: f64, most: f64, room: usize, is_unicode: bool) -> String {
    let eighths = (median * room as f64 * 8.0).round() as usize;
    let end = (most * room as f64).round() as usize;
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

fn color(look: usize) -> Style {
    let colors = [
        Color::White,
        Color::Blue,
        Color::Yellow,
        Color::Green,
        Color::Magenta,
        Color::Red,
        Color::Cyan,
        Color::White,
    ];
    Style::new().force_styling(true).fg(colors[shape(look)])
}

/// The quantities that are told; all of them are in the page.
const TOLD: [&str; 11] = [
    "time",
    "rate",
    "throughput",
    "memory-busy",
    "cpu",
    "calls",
    "p99",
    "slowdown",
    "memory-idle",
    "memory-slow",
    "answers",
];
/// Parts of a letter.
const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/// Letters of a name, a value and a ratio.
const LABEL: usize = 26;
const VALUE: usize = 10;
const RATIO: usize = 8;
/// Letters of a bar on the narrowest terminal.
const LEAST_BAR: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{chain_record, net_record};

    const PLAIN: Screen = Screen { width: 80, is_unicode: true, has_colors: false };

    #[test]
    fn the_same_record_gives_the_same_bars_byte_for_byte() {
        assert_eq!(bars(&net_record(), PLAIN), include_str!("../snapshots/net_bars.txt"));
        let record = chain_record(&[8 << 10, 16 << 10, 32 << 10], &[1.5, 1.25, 0.75]);
        let ascii = Screen { is_unicode: false, ..PLAIN };
        assert_eq!(bars(&record, ascii), include_str!("../snapshots/chain_bars.txt"));
    }

    #[test]
    fn bars_are_as_wide_as_the_terminal_and_no_wider() {
        for width in [0, 40, 60, 80, 200] {
            let text = bars(&net_record(), Screen { width, ..PLAIN });
            let widest =
                text.lines().filter(|line| line.contains('█')).map(|line| line.chars().count());
            let widest = widest.max().unwrap_or(0);
            assert!(widest <= width.max(60), "{width}: {widest}");
            assert!(width < 60 || widest >= width - 1, "{width}: {widest}");
        }
    }

    #[test]
    fn ascii_is_ascii_and_colors_come_only_where_they_are_wanted() {
        let ascii = bars(&net_record(), Screen { is_unicode: false, ..PLAIN });
        assert!(ascii.is_ascii(), "{ascii}");
        assert!(!bars(&net_record(), PLAIN).contains('\x1b'));
        assert!(bars(&net_record(), Screen { has_colors: true, ..PLAIN }).contains("\x1b["));
    }
}
