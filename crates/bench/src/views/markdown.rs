//! Records as Markdown: the tables of the terminal.

use std::fmt::Write as _;

use super::Named;
use super::document::{
    NO_CAVEATS, Table, commands, conditions, finding, heading, reading, subject, tables,
};
use crate::record::{Record, warnings};

/// Returns the text of these records.
#[must_use]
pub fn markdown(records: &[Named]) -> String {
    let parts: Vec<_> = records.iter().map(|(_, record)| one(record)).collect();
    parts.join("\n")
}

fn one(record: &Record) -> String {
    let mut text = format!("## {}\n\n{}\n\n", escaped(&heading(record)), escaped(&subject(record)));
    text += &format!("{}\n", escaped(&reading(record)));
    // Writing to a string cannot fail.
    if let Some(finding) = finding(record) {
        let _ = write!(text, "\n{}:\n\n", escaped(&finding.at));
        for (contender, ratios) in &finding.contenders {
            let _ = writeln!(text, "- **{}** {}", escaped(contender), escaped(ratios));
        }
    }
    for table in tables(record) {
        let _ = write!(text, "\n{}.\n\n{}", escaped(&table.title), rows(&table));
    }
    let mut list = |heading: &str, items: Vec<String>| {
        if !items.is_empty() {
            let items: String = items.iter().map(|item| format!("- {}\n", escaped(item))).collect();
            let _ = write!(text, "\n### {heading}\n\n{items}");
        }
    };
    list("Commands", commands(record));
    let named = conditions(record).into_iter().map(|(name, value)| format!("{name}: {value}"));
    list("Environment", named.collect());
    let mut caveats = warnings(record);
    if caveats.is_empty() {
        caveats.push(NO_CAVEATS.to_owned());
    }
    list("Caveats", caveats);
    text
}

/// Returns a table, whose words are to the left and whose figures are to the right.
fn rows(table: &Table) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(table.headings.iter().map(|heading| escaped(heading)).collect());
    let rule = |index| if index < table.words { "---" } else { "--:" }.to_owned();
    text += &line((0..table.headings.len()).map(rule).collect());
    for cells in &table.lines {
        let cell = |[value, below]: &[String; 2]| {
            if below.is_empty() {
                escaped(value)
            } else {
                format!("{}<br>{}", escaped(value), escaped(below))
            }
        };
        text += &line(cells.iter().map(cell).collect());
    }
    text
}

/// Returns a text in which everything special to Markdown or HTML is escaped.
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
            // Some renderers turn such a text into a link.
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

    #[test]
    fn nothing_in_a_record_means_anything_to_markdown() {
        let text = escaped("<script> [a](b) `c` *d* | ![e](https://f)");
        assert_eq!(text, "&lt;script&gt; \\[a\\](b) \\`c\\` \\*d\\* \\| \\!\\[e\\](https&#58;//f)");
    }
}
