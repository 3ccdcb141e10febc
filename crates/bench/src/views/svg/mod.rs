//! Common parts of drawings as SVG. They are written with the templates of the page, so that
//! every text is escaped; each element is closed, so that they are XML as well.

mod bars;
mod lines;

use maud::{Markup, PreEscaped, html};

use super::chart::{Chart, ChartKind};

/// Colours and lines of every chart. No variables: not every program that shows SVG has them.
pub(crate) const STYLE: &str = include_str!("chart.css");

/// The width of a chart: that of a small phone, so that letters have the same size there.
const WIDTH: f64 = 360.0;

/// Returns a chart as an element of a page, which has the style and the caption. `id` is unique.
pub(crate) fn element(chart: &Chart, id: &str) -> Markup {
    let (height, body) = draw(chart, id);
    html! {
        svg.chart viewBox=(format!("0 0 {} {}", number(WIDTH), number(height)))
            role="img" aria-labelledby=(format!("{id}-title {id}-desc")) {
            (description(chart, id))
            (body)
        }
    }
}

/// Returns a chart as a separate file.
pub(crate) fn file(chart: &Chart) -> String {
    let id = &chart.name;
    let (height, body) = draw(chart, id);
    let lines = wrapped(&chart.title, TITLE_LETTERS);
    let above = lines.len() as f64 * 18.0 + 40.0;
    let [left, top, width, height] =
        [-MARGIN, -above, WIDTH + 2.0 * MARGIN, height + above + MARGIN].map(number);
    let svg = html! {
        svg.chart xmlns="http://www.w3.org/2000/svg" width=(width) height=(height)
            viewBox=(format!("{left} {top} {width} {height}"))
            role="img" aria-labelledby=(format!("{id}-title {id}-desc")) {
            (description(chart, id))
            style { (PreEscaped(STYLE)) }
            rect.ground x=(left) y=(top) width=(width) height=(height) rx="8" {}
            @for (line, text) in lines.iter().enumerate() {
                text.title x="0" y=(number(line as f64 * 18.0 + 25.0 - above)) { (text) }
            }
            text.quiet x="0" y="-13" { (shortened(&chart.note, NOTE_LETTERS)) }
            (body)
        }
    };
    svg.into_string() + "\n"
}

/// Returns the name of a chart, and its description for screen readers.
fn description(chart: &Chart, id: &str) -> Markup {
    html! {
        title id=(format!("{id}-title")) { (chart.title) }
        desc id=(format!("{id}-desc")) { (chart.sentence()) }
    }
}

/// Draws what is below the caption, and returns its height.
fn draw(chart: &Chart, id: &str) -> (f64, Markup) {
    match chart.form {
        ChartKind::Bars => bars::draw(chart, id),
        ChartKind::Lines => lines::draw(chart),
    }
}

/// Formats a coordinate: a tenth of a pixel is enough.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

fn class(style: usize) -> String {
    format!("c{}", shape(style))
}

/// Returns the number of the shape and the hatching of a style; there are as many as colours.
pub(crate) const fn shape(style: usize) -> usize {
    if style < STYLES { style } else { 2 + (style - 2) % (STYLES - 2) }
}

/// Draws the mark of a line at a place: every style has its own.
fn mark(style: usize, x: f64, y: f64) -> Markup {
    let points: &[f64] = match shape(style) {
        1 => &[],
        0 => &[-3.6, -3.6, 3.6, -3.6, 3.6, 3.6, -3.6, 3.6],
        2 => &[0.0, -4.8, 4.6, 3.4, -4.6, 3.4],
        3 => &[0.0, -5.0, 5.0, 0.0, 0.0, 5.0, -5.0, 0.0],
        4 => &[0.0, 4.8, 4.6, -3.4, -4.6, -3.4],
        5 => &[
            -1.6, -4.6, 1.6, -4.6, 1.6, -1.6, 4.6, -1.6, 4.6, 1.6, 1.6, 1.6, 1.6, 4.6, -1.6, 4.6,
            -1.6, 1.6, -4.6, 1.6, -4.6, -1.6, -1.6, -1.6,
        ],
        6 => &[-4.6, 0.0, 3.4, -4.8, 3.4, 4.8],
        _ => &[4.6, 0.0, -3.4, -4.8, -3.4, 4.8],
    };
    if points.is_empty() {
        return html! { circle class=(format!("mark {}", class(style))) cx=(number(x)) cy=(number(y)) r="4" {} };
    }
    let (corners, _) = points.as_chunks();
    let path: Vec<_> =
        corners.iter().map(|[dx, dy]| format!("{},{}", number(x + dx), number(y + dy))).collect();
    html! { polygon class=(format!("mark {}", class(style))) points=(path.join(" ")) {} }
}

/// Returns the hatching of bars: every style has its own. `id` is that of the drawing.
fn hatching(id: &str, style: usize) -> Markup {
    let lines = match shape(style) {
        0 => "M-2,8L8,-2M4,14L14,4",
        2 => "M-2,-2L14,14M-2,10L2,14M10,-2L14,2",
        3 => "M0,3H12M0,9H12",
        4 => "M3,3h.1M9,9h.1",
        5 => "M-2,8L8,-2M4,14L14,4M-2,4L8,14M4,-2L14,8",
        6 => "M3,0V12M9,0V12",
        7 => "M0,6H12M6,0V12",
        _ => "",
    };
    let thick = if shape(style) == 4 { "3.5" } else { "2" };
    html! {
        pattern id=(format!("{id}-{}", class(style))) class=(class(style)) width="12" height="12"
            patternUnits="userSpaceOnUse" {
            @if lines.is_empty() {
                rect.full width="12" height="12" {}
            } @else {
                rect.tone width="12" height="12" {}
                path.hatch d=(lines) stroke-width=(thick) stroke-linecap="round" {}
            }
        }
    }
}

/// Returns a text that ends with an ellipsis if it has more letters than there is room for.
pub(crate) fn shortened(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(letters.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Returns a text in lines of this many letters, broken between words.
fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(shortened(word, letters)),
        }
    }
    lines.truncate(3);
    lines
}

/// Colours, marks and hatchings.
const STYLES: usize = 8;
const MARGIN: f64 = 14.0;
const TITLE_LETTERS: usize = 46;
const NOTE_LETTERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_have_at_most_one_decimal() {
        for (value, text) in [(1.0, "1"), (-0.01, "0"), (12.34, "12.3"), (-5.25, "-5.2")] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn long_texts_are_broken_and_cut() {
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped(&"a ".repeat(1000), 7).len(), 3);
    }

    #[test]
    fn each_style_has_a_distinct_mark_and_hatching() {
        let marks: Vec<_> = (0..STYLES).map(|style| mark(style, 0.0, 0.0).into_string()).collect();
        let hatchings: Vec<_> =
            (0..STYLES).map(|style| hatching("a", style).into_string()).collect();
        for style in 1..STYLES {
            assert!(!marks[..style].contains(&marks[style]), "{style}");
            assert!(!hatchings[..style].contains(&hatchings[style]), "{style}");
        }
        assert_eq!(class(STYLES), "c2", "they start over, but for the baseline's and ours");
    }
}
