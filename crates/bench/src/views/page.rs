//! The report: one page that needs nothing else, neither scripts nor other files.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::calls::{NOTE, TITLE, calls};
use super::chart::{Chart, Form, charts, size_label};
use super::path::{paths, untold};
use super::quantity::{Quantity, quantities};
use super::svg::{Drawing, Place, STYLE};
use super::table::{Table, table};
use super::unit::Unit;
use super::{bars, figure, lines};
use crate::names::{command, variant_label};
use crate::record::Record;
use crate::table::{baseline, place, reading, render, subject};
use crate::trust::warnings;

/// The name of a file without folders and ending, and its record.
pub(crate) type Named = (String, Record);

/// The page of these records.
pub fn page(records: &[Named]) -> String {
    let title = match records {
        [(_, one)] => heading(one),
        many => format!("underpass bench, {} records", many.len()),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href="data:,";
                style { (PreEscaped(PAGE_STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                @if records.len() > 1 {
                    header {
                        h1 { (title) }
                        nav aria-label="Records" {
                            ul {
                                @for (index, (name, _)) in records.iter().enumerate() {
                                    li { a href=(format!("#r{index}")) { (name) } }
                                }
                            }
                        }
                    }
                }
                main {
                    @for (index, named) in records.iter().enumerate() {
                        (article(index, named, records.len() > 1))
                    }
                }
                footer { p { "Drawn from " @if records.len() == 1 { "the record" } @else { "the records" } " alone by underpass bench show." } }
            }
        }
    };
    page.into_string()
}

/// What the record is of.
pub(crate) fn heading(record: &Record) -> String {
    format!("underpass bench {}", command(record.scenario))
}

/// All that one record tells.
fn article(index: usize, (name, record): &Named, is_one_of_many: bool) -> Markup {
    let (over, at): (Vec<_>, Vec<_>) =
        charts(record).into_iter().partition(|chart| chart.form == Form::Lines);
    let id = format!("r{index}");
    let has_both = !over.is_empty() && !at.is_empty();
    html! {
        article id=(id) {
            @if is_one_of_many { h2 { (name) ": " (heading(record)) } } @else { h1 { (heading(record)) } }
            p { (subject(record)) }
            p.quiet { (reading(record)) }
            @if record.samples.is_empty() { p.finding { "Nothing was measured." } }
            @if let Some(finding) = finding(record) {
                div.finding {
                    p { (finding.at) }
                    ul { @for (way, ratios) in finding.ways { li { strong { (way) } " " (ratios) } } }
                }
            }
            (charts_of(&id, &over, if has_both { "By the size of the file" } else { "" }))
            (charts_of(&id, &at, if has_both { "Every step" } else { "" }))
            (calls_of(record))
            (paths_of(&id, record))
            (doubts(record))
            (facts(record))
            details {
                summary { "All figures as a table of text" }
                pre tabindex="0" { (render(record)) }
            }
        }
    }
}

fn charts_of(id: &str, charts: &[Chart], heading: &str) -> Markup {
    html! {
        @if !charts.is_empty() {
            @if !heading.is_empty() { h2 { (heading) } }
            div.grid {
                @for chart in charts {
                    @let id = format!("{id}-{}", chart.name);
                    figure {
                        figcaption { h3 { (chart.title) } p { (sentence_case(&chart.note)) } }
                        (drawing(chart, &id).element(&id, Place::Page))
                        (table_of(&table(chart)))
                    }
                }
            }
        }
    }
}

/// A chart as its form says.
pub(crate) fn drawing(chart: &Chart, id: &str) -> Drawing {
    match chart.form {
        Form::Bars => bars::draw(chart, id),
        Form::Lines => lines::draw(chart),
    }
}

/// A note as a sentence begins.
pub(crate) fn sentence_case(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn table_of(table: &Table) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label="Figures" {
            table class=(format!("words{}", table.words)) {
                thead { tr { @for heading in &table.headings { th scope="col" { (heading) } } } }
                tbody {
                    @for line in &table.lines {
                        tr {
                            @for [text, below] in line {
                                td { (text) @if !below.is_empty() { small { (below) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// System calls by name, if anybody counted them.
fn calls_of(record: &Record) -> Markup {
    html! {
        @if let Some(table) = calls(record) {
            h2 { (TITLE) }
            p.quiet { (NOTE) "." }
            figure.wide { (table_of(&table)) }
        }
    }
}

/// The ways of the bytes, and of whom none is known.
fn paths_of(id: &str, record: &Record) -> Markup {
    let (paths, untold) = (paths(record), untold(record));
    html! {
        @if !paths.is_empty() {
            h2 { "The way of the bytes" }
            p.quiet {
                "Counted in one sample each, that of middle time, at the largest size. Orange passes \
                 through the memory of the program, green stays in the kernel, blue is shared and \
                 not moved; broken lines carried nothing."
            }
            div.grid {
                @for (index, path) in paths.iter().enumerate() {
                    @let id = format!("{id}-p{index}");
                    figure {
                        figcaption { h3 { (path.title) } }
                        (figure::draw(path).element(&id, Place::Page))
                    }
                }
            }
        }
        @if !untold.is_empty() {
            p class="quiet untold" { "No way is drawn of " (untold.join(", ")) ": the record does not count what they did with the bytes." }
        }
    }
}

/// Reasons to doubt the record.
fn doubts(record: &Record) -> Markup {
    let doubts = warnings(record);
    html! {
        h2 { "Before you believe it" }
        @if doubts.is_empty() {
            p { "Nothing was found that speaks against these figures." }
        } @else {
            ul.notes { @for doubt in doubts { li { (doubt) } } }
        }
    }
}

/// Where and how it was measured.
fn facts(record: &Record) -> Markup {
    html! {
        h2 { "Where it was measured" }
        dl {
            @for (name, value) in conditions(record) { dt { (name) } dd { (value) } }
        }
    }
}

/// Where and how it was measured: names with values.
pub(crate) fn conditions(record: &Record) -> Vec<(&'static str, String)> {
    let environment = &record.environment;
    let loads = environment.load_average.map(|load| format!("{load:.2}"));
    vec![
        ("Begun", record.started.clone()),
        ("Machine", place(record)),
        ("Load before", loads.join(", ")),
        ("Program", format!("underpass {}", record.underpass)),
        ("Compared with", baseline(record)),
        ("Schema of the record", record.schema.to_string()),
    ]
}

/// What the record says before anything else: what each way takes of what the baseline takes.
#[derive(Debug, Default)]
pub(crate) struct Finding {
    /// At which size, compared with what.
    pub(crate) at: String,
    /// Each way with its ratios.
    pub(crate) ways: Vec<(String, String)>,
}

/// The finding at the largest size; none if there is nothing to compare.
pub(crate) fn finding(record: &Record) -> Option<Finding> {
    let size = record.sizes().into_iter().max()?;
    let told: Vec<_> =
        quantities(record).into_iter().filter(|quantity| FOUND.contains(&quantity.name)).collect();
    let way = |way| {
        let cell = record.best(size, way)?;
        let ratio = |quantity: &&Quantity| {
            let ratio = record.ratio_by(cell, |sample| quantity.of(record, sample))?;
            let name = quantity.title.to_lowercase();
            Some(format!("{} {name}", Unit::Times.show(ratio.median)))
        };
        let ratios: Vec<_> = told.iter().filter_map(ratio).collect();
        (!ratios.is_empty()).then(|| (variant_label(record, cell), ratios.join(", ")))
    };
    let ways: Vec<_> = record.ways().into_iter().filter_map(way).collect();
    let at = format!("At {}, compared with {}", size_label(record, size), baseline(record));
    (!ways.is_empty()).then_some(Finding { at, ways })
}

/// The quantities of which a finding tells.
const FOUND: [&str; 6] = ["throughput", "time", "rate", "cpu", "slowdown", "memory-slow"];
const PAGE_STYLE: &str = include_str!("page.css");
