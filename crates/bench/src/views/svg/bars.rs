//! Charts at one size: a bar for each variant, its name above it for want of room on small screens.

use maud::{Markup, html};

use super::{WIDTH, class, hatching, mark, number, shape, shortened};
use crate::record::Unit;
use crate::views::chart::{Axis, Chart, ChartRow};

pub(super) fn draw(chart: &Chart, id: &str) -> (f64, Markup) {
    let axis = chart.axis();
    let sizes = chart.places();
    let mut styles: Vec<_> = chart.rows.iter().map(|row| shape(row.style)).collect();
    styles.sort_unstable();
    styles.dedup();
    let mut y = 0.0;
    let mut parts = Vec::new();
    for (size, place) in &sizes {
        if sizes.len() > 1 {
            parts.push(html! { text.strong x="0" y=(number(y + 13.0)) { (place) } });
            y += HEADING;
        }
        for row in chart.rows.iter().filter(|row| row.at == *size) {
            parts.push(one(row, chart, axis, y, id));
            y += ROW;
        }
    }
    let body = html! {
        defs { @for style in styles { (hatching(id, style)) } }
        (grid(axis, y))
        @for part in parts { (part) }
    };
    (y + AXIS, body)
}

/// Returns a line for each tick, and the texts below that there is room for: on a logarithmic axis
/// ticks can be close to each other.
fn grid(axis: Axis, bottom: f64) -> Markup {
    let ticks = axis.ticks();
    let last = ticks.len().saturating_sub(1);
    let mut free = WIDTH;
    let mut parts = Vec::new();
    for (index, (place, text)) in ticks.iter().enumerate().rev() {
        let (at, wide) = (x(*place), LETTER * text.chars().count() as f64);
        let (anchor, left) = match index {
            0 if *place < 0.02 => ("start", at),
            _ if index == last && *place > 0.9 => ("end", at - wide),
            _ => ("middle", at - wide / 2.0),
        };
        let fits = left + wide <= free;
        if fits {
            free = left - LETTER;
        }
        parts.push(html! {
            path.grid d=(format!("M{},0V{}", number(at), number(bottom + 4.0))) {}
            @if fits { text.quiet x=(number(at)) y=(number(bottom + 18.0)) text-anchor=(anchor) { (text) } }
        });
    }
    html! { @for part in parts.iter().rev() { (part) } }
}

/// Returns a name with its value, and the bar below; a dot if lengths are meaningless.
fn one(row: &ChartRow, chart: &Chart, axis: Axis, top: f64, id: &str) -> Markup {
    let (base, middle) = (top + 14.0, top + 14.0 + 6.0 + BAR / 2.0);
    let Some(summary) = row.summary else {
        let why = row.declined.as_deref().unwrap_or("not counted");
        let note = if row.declined.is_some() { format!("declined: {why}") } else { why.to_owned() };
        return html! {
            text x="0" y=(number(base)) { (shortened(&row.label, 26)) }
            text.quiet x=(number(WIDTH)) y=(number(base)) text-anchor="end" { (shortened(&note, 26)) }
            rect.track x="0" y=(number(middle - BAR / 2.0)) width=(number(WIDTH)) height=(number(BAR)) rx="2" {}
        };
    };
    let value = chart.unit.show(summary.median);
    let [at, min, max] =
        [summary.median, summary.min, summary.max].map(|value| x(axis.place(value)));
    html! {
        text x="0" y=(number(base)) { (shortened(&row.label, 26)) }
        text x=(number(WIDTH)) y=(number(base)) text-anchor="end" {
            @if let Some(ratio) = row.ratio { tspan.quiet { (Unit::Times.show(ratio.median)) } "   " }
            tspan.strong { (value) }
        }
        rect.track x="0" y=(number(middle - BAR / 2.0)) width=(number(WIDTH)) height=(number(BAR)) rx="2" {}
        @if !axis.is_log() {
            rect class=(class(row.style)) x="0" y=(number(middle - BAR / 2.0)) width=(number(at.max(1.0))) height=(number(BAR)) rx="2"
                fill=(format!("url(#{id}-{})", class(row.style))) {}
        }
        @if max - min > 1.5 {
            path.over d=(format!("M{0},{1}v6M{0},{2}H{3}M{3},{1}v6", number(min), number(middle - 3.0), number(middle), number(max))) {}
        }
        @if axis.is_log() { (mark(row.style, at.clamp(5.0, WIDTH - 5.0), middle)) }
    }
}

fn x(place: f64) -> f64 {
    place * WIDTH
}

/// The height of a row, of a bar, of a heading, and of what is below all.
const ROW: f64 = 40.0;
const BAR: f64 = 12.0;
const HEADING: f64 = 24.0;
const AXIS: f64 = 24.0;
/// The width of a letter, at most.
const LETTER: f64 = 6.8;
