//! The report: a single page without scripts or other files.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::Named;
use super::chart::{Chart, ChartKind, charts};
use super::document::{
    NO_CAVEATS, Table, commands, conditions, finding, heading, reading, subject, tables,
};
use super::svg::{self, STYLE};
use super::terminal::figures;
use crate::record::{Record, warnings};

/// Returns the page of these records.
#[must_use]
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

fn article(index: usize, (name, record): &Named, is_one_of_many: bool) -> Markup {
    let (over, at): (Vec<_>, Vec<_>) =
        charts(record).into_iter().partition(|chart| chart.form == ChartKind::Lines);
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
                    ul { @for (contender, ratios) in finding.contenders { li { strong { (contender) } " " (ratios) } } }
                }
            }
            (charts_of(&id, &over, if has_both { "By the size of the file" } else { "" }))
            (charts_of(&id, &at, if has_both { "Every step" } else { "" }))
            (tables_of(record))
            h2 { "Caveats" }
            @let caveats = warnings(record);
            @if caveats.is_empty() { p { (NO_CAVEATS) } } @else { ul.notes { @for caveat in caveats { li { (caveat) } } } }
            h2 { "Environment" }
            dl { @for (name, value) in conditions(record) { dt { (name) } dd { (value) } } }
            details {
                summary { "All figures as a table" }
                pre tabindex="0" { (figures(record)) }
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
                        (svg::element(chart, &id))
                    }
                }
            }
        }
    }
}

/// Returns a note with a capital letter at its start.
fn sentence_case(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn table_of(table: &Table) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label="Figures" {
            table class=(format!("words{}", table.words.saturating_sub(1))) {
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

/// Returns all tables of the record, and what was run.
fn tables_of(record: &Record) -> Markup {
    html! {
        h2 { "All figures" }
        @for table in tables(record) {
            figure.wide { figcaption { p { (table.title) } } (table_of(&table)) }
        }
        @let commands = commands(record);
        @if !commands.is_empty() {
            h2 { "Commands" }
            ul { @for command in commands { li { code { (command) } } } }
        }
    }
}

const PAGE_STYLE: &str = include_str!("page.css");
