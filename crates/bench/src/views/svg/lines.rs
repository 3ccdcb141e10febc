//! Charts over the sizes of files: a line for each contender, with error bars of the range.

use maud::{Markup, html};

use super::{WIDTH, class, mark, number, shortened};
use crate::views::chart::{Axis, Chart, ChartRow};

/// Returns the places of sizes along the lower edge, each multiple as long as the next.
fn places(chart: &Chart) -> impl Fn(u64) -> f64 {
    let logs = || chart.rows.iter().map(|row| (row.at.max(1) as f64).ln());
    let low = logs().fold(f64::INFINITY, f64::min);
    let range = logs().fold(f64::NEG_INFINITY, f64::max) - low;
    move |size| {
        // A chart by connections can have one number of them.
        let share = if range > 0.0 { ((size.max(1) as f64).ln() - low) / range } else { 0.5 };
        LEFT + INSET + share.clamp(0.0, 1.0) * (RIGHT - LEFT - 2.0 * INSET)
    }
}

/// Returns the chart with its legend below.
pub(super) fn draw(chart: &Chart) -> (f64, Markup) {
    let (axis, x, labels) = (chart.axis(), places(chart), chart.labels());
    let count = labels.len();
    let body = html! {
        (values(axis))
        (files(chart, &x))
        @for (index, (label, style)) in labels.iter().enumerate() {
            // Marks at one size are slightly offset from each other.
            @let aside = (index as f64 - (count as f64 - 1.0) / 2.0) * ASIDE;
            (line(&of(chart, label), axis, |size| x(size) + aside, *style))
        }
        @for (index, (label, style)) in labels.iter().enumerate() {
            @let (x, y) = (LEFT + (index % 2) as f64 * COLUMN, LEGEND + (index / 2) as f64 * LINE);
            path class=(format!("line {}", class(*style))) d=(format!("M{},{}h18", number(x), number(y - 4.0))) {}
            (mark(*style, x + 9.0, y - 4.0))
            text x=(number(x + 24.0)) y=(number(y)) { (shortened(label, 20)) }
        }
    };
    (LEGEND + count.div_ceil(2) as f64 * LINE - 8.0, body)
}

fn of<'a>(chart: &'a Chart, label: &str) -> Vec<&'a ChartRow> {
    let mut rows: Vec<_> = chart.rows.iter().filter(|row| row.label == label).collect();
    rows.sort_by_key(|row| row.at);
    rows
}

fn values(axis: Axis) -> Markup {
    html! {
        @for (place, text) in axis.ticks() {
            @let y = y(place);
            path.grid d=(format!("M{},{}H{}", number(LEFT), number(y), number(RIGHT))) {}
            text.quiet x=(number(LEFT - 6.0)) y=(number(y + 4.0)) text-anchor="end" { (text) }
        }
    }
}

/// Returns the sizes below, as many as there is room for.
fn files(chart: &Chart, x: impl Fn(u64) -> f64) -> Markup {
    let mut free = f64::NEG_INFINITY;
    let mut shown = Vec::new();
    for (size, text) in chart.places() {
        let x = x(size);
        let half = text.chars().count() as f64 * 3.4;
        if x - half > free + 6.0 {
            free = x + half;
            shown.push((x, text));
        }
    }
    html! {
        path.edge d=(format!("M{},{}H{}", number(LEFT), number(BOTTOM), number(RIGHT))) {}
        @for (x, text) in shown {
            path.edge d=(format!("M{},{}v4", number(x), number(BOTTOM))) {}
            text.quiet x=(number(x)) y=(number(BOTTOM + 17.0)) text-anchor="middle" { (text) }
        }
    }
}

/// Returns a line with its marks and error bars.
fn line(rows: &[&ChartRow], axis: Axis, x: impl Fn(u64) -> f64, style: usize) -> Markup {
    let points: Vec<_> = rows
        .iter()
        .filter_map(|row| {
            let summary = row.summary?;
            let places =
                [summary.median, summary.min, summary.max].map(|value| y(axis.place(value)));
            Some((x(row.at), places))
        })
        .collect();
    let path: Vec<_> =
        points.iter().map(|(x, [y, ..])| format!("{},{}", number(*x), number(*y))).collect();
    html! {
        g class=(class(style)) {
            @if path.len() > 1 { polyline.line points=(path.join(" ")) {} }
            @for (x, [_, min, max]) in &points {
                @if min - max > 1.0 {
                    path.whisker d=(format!("M{0},{1}H{2}M{3},{1}V{4}M{0},{4}H{2}", number(x - 3.0), number(*min), number(x + 3.0), number(*x), number(*max))) {}
                }
            }
        }
        @for (x, [y, ..]) in &points { (mark(style, *x, *y)) }
    }
}

fn y(place: f64) -> f64 {
    BOTTOM - place * (BOTTOM - TOP)
}

const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 4.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 224.0;
/// The space before the first and after the last size.
const INSET: f64 = 14.0;
/// The distance of marks at one size from each other.
const ASIDE: f64 = 2.0;
/// The base of the first line of the legend, the height of its lines, the width of its columns.
const LEGEND: f64 = BOTTOM + 44.0;
const LINE: f64 = 19.0;
const COLUMN: f64 = 154.0;
