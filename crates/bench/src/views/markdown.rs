//! Records as Markdown, for READMEs and issues: the tables of the charts.

use std::fmt::Write as _;

use super::calls::{NOTE, TITLE, calls};
use super::chart::charts;
use super::page::{Named, conditions, finding, heading, sentence_case};
use super::path::{paths, untold};
use super::table::{Table, table};
use crate::record::Record;
use crate::table::{reading, subject};
use crate::trust::warnings;

/// The text of these records.
pub fn markdown(records: &[Named]) -> String {
    let parts: Vec<_> = records.iter().map(|(_, record)| one(record)).collect();
    parts.join("\n")
}

fn one(record: &Record) -> String {
    let mut text = format!(
        "## {}\n\n{}\n\n{}\n",
        escaped(&heading(record)),
        escaped(&subject(record)),
        escaped(&reading(record))
    );
    // Writing to a string cannot fail.
    if let Some(finding) = finding(record) {
        let _ = write!(text, "\n{}:\n\n", escaped(&finding.at));
        for (way, ratios) in &finding.ways {
            let _ = writeln!(text, "- **{}** {}", escaped(way), escaped(ratios));
        }
    }
    for chart in charts(record) {
        let (title, note) = (escaped(&chart.title), escaped(&sentence_case(&chart.note)));
        let _ = write!(text, "\n### {title}\n\n{note}.\n\n{}", rows(&table(&chart)));
    }
    if let Some(table) = calls(record) {
        let _ = write!(text, "\n### {TITLE}\n\n{NOTE}.\n\n{}", rows(&table));
    }
    let paths = paths(record);
    if !paths.is_empty() {
        text.push_str("\n### The way of the bytes\n\n");
    }
    for path in &paths {
        let _ = writeln!(text, "- **{}**: {}", escaped(&path.title), escaped(&path.sentence()));
    }
    let untold = untold(record);
    if !untold.is_empty() {
        let _ = write!(text, "\nNot counted: {}.\n", escaped(&untold.join(", ")));
    }
    text.push_str("\n### Where it was measured\n\n");
    for (name, value) in conditions(record) {
        let _ = writeln!(text, "- {name}: {}", escaped(&value));
    }
    text.push_str("\n### Before you believe it\n\n");
    let doubts = warnings(record);
    for doubt in &doubts {
        let _ = writeln!(text, "- {}", escaped(doubt));
    }
    if doubts.is_empty() {
        text.push_str("Nothing was found that speaks against these figures.\n");
    }
    text
}

/// A table, whose first column is to the left and the others to the right.
fn rows(table: &Table) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(table.headings.iter().map(|heading| escaped(heading)).collect());
    let rule = table.headings.iter().enumerate();
    text +=
        &line(rule.map(|(index, _)| if index == 0 { "---" } else { "--:" }.to_owned()).collect());
    for cells in &table.lines {
        let cell = |[value, below]: &[String; 2]| match below.is_empty() {
            true => escaped(value),
            false => format!("{}<br>{}", escaped(value), escaped(below)),
        };
        text += &line(cells.iter().map(cell).collect());
    }
    text
}

/// A text in which nothing means anything to Markdown or to HTML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' => {
                escaped.push('\\');
                escaped.push(letter);
            }
            // A link by itself, which some readers make of such a text.
            ':' if escaped.ends_with("http") || escaped.ends_with("https") => {
                escaped.push_str("&#58;");
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::net_record;

    #[test]
    fn the_same_record_gives_the_same_text_byte_for_byte() {
        let named = [("net".to_owned(), net_record())];
        assert_eq!(markdown(&named), include_str!("../snapshots/net.md"));
    }

    #[test]
    fn nothing_in_a_record_means_anything_to_markdown() {
        let text = escaped("<script> [a](b) `c` *d* | ![e](https://f)");
        assert_eq!(text, "&lt;script&gt; \\[a\\](b) \\`c\\` \\*d\\* \\| \\!\\[e\\](https&#58;//f)");
    }
}
