//! The path of bytes as a diagram of a few lines: bytes that pass through the buffers of a program
//! are drawn through a box, all other bytes beneath it.
//!
//! It shows only measured values. The source of bytes is before an arrow; the numbers of bytes
//! and calls are on it.

use std::env;

use indicatif::{BinaryBytes, HumanCount};

use underpass_receipt::EndKind;

/// The flows that are drawn.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathDiagram {
    /// Flows into the program's memory.
    pub(crate) ins: Vec<DiagramFlow>,
    /// Flows out of it.
    pub(crate) outs: Vec<DiagramFlow>,
    /// Flows that bypass it.
    pub(crate) unders: Vec<KernelPath>,
    /// Whether no socket leads out of this machine.
    pub(crate) is_local: bool,
}

/// The bytes that go from an end into memory, or the other way round.
#[derive(Clone, Debug)]
pub(crate) struct DiagramFlow {
    pub(crate) end: EndKind,
    /// The label of the arrow.
    pub(crate) label: String,
}

/// The bytes that go from end to end without the program.
#[derive(Clone, Debug)]
pub(crate) struct KernelPath {
    pub(crate) from: EndKind,
    pub(crate) to: EndKind,
    /// The label of the arrow.
    pub(crate) label: String,
}

/// Formats a flow: `7.00 MiB in 1,792`.
pub(crate) fn label(bytes: u64, calls: u64) -> String {
    format!("{} in {}", BinaryBytes(bytes), HumanCount(calls))
}

/// The characters to draw with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// Lines and arrows of Unicode.
    Unicode,
    /// For terminals of another character set.
    Ascii,
}

impl Alphabet {
    /// Returns the character set of the terminal according to the environment (locale(7)).
    pub(crate) fn of_locale() -> Self {
        let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(env::var_os);
        let first = set.filter(|value| !value.is_empty()).map(|value| value.to_ascii_lowercase());
        let names_utf8 = first.map(|name| {
            let name = name.to_string_lossy().into_owned();
            name.contains("utf-8") || name.contains("utf8")
        });
        if names_utf8.into_iter().next() == Some(true) { Self::Unicode } else { Self::Ascii }
    }

    fn in_it(self, line: &str) -> String {
        let as_ascii = |character| match character {
            '─' => '-',
            '│' => '|',
            '┌' | '┐' | '└' | '┘' => '+',
            '▶' | '▸' => '>',
            other => other,
        };
        match self {
            Self::Unicode => line.to_owned(),
            Self::Ascii => line.chars().map(as_ascii).collect(),
        }
    }
}

impl PathDiagram {
    /// Lines without their ends; none if nothing was moved.
    pub(crate) fn draw(&self, alphabet: Alphabet) -> Vec<String> {
        let lines = self.lines(DiagramSize::Full);
        let is_wide = lines.iter().any(|line| line.chars().count() > MAX_COLUMNS);
        let lines = if is_wide { self.lines(DiagramSize::Short) } else { lines };
        lines.iter().map(|line| alphabet.in_it(line.trim_end())).collect()
    }

    fn lines(&self, length: DiagramSize) -> Vec<String> {
        let columns = self.columns(length);
        let mut lines = Vec::new();
        let rows = self.ins.len().max(self.outs.len());
        let margin = " ".repeat(columns.left);
        if rows > 0 {
            lines.push(format!("{margin}┌ user ┐"));
        }
        for row in 0..rows {
            let mut line = match self.ins.get(row) {
                Some(DiagramFlow { end, label }) => {
                    let end = self.source(*end, length);
                    let room = columns.left - width(&end) - 2;
                    format!("{end} {}▶", along(label, room))
                }
                None => margin.clone(),
            };
            line.push_str(if row == 0 { "│buffer│" } else { "│      │" });
            if let Some(DiagramFlow { end, label }) = self.outs.get(row) {
                let end = self.sink(*end, length);
                line.push_str(&format!("{}▶ {end}", along(label, columns.right - 1)));
            }
            lines.push(line);
        }
        if rows > 0 {
            lines.push(format!("{margin}└──────┘"));
        }
        for KernelPath { from, to, label } in &self.unders {
            let (from, to) = (self.source(*from, length), self.sink(*to, length));
            let room = columns.left + BOX + columns.right - width(&from) - 2;
            lines.push(format!("{from} {}▶ {to}", along(label, room)));
        }
        lines
    }

    /// Returns how many columns there are to the left of the box, and how many to the right up to
    /// the name of the sink.
    fn columns(&self, length: DiagramSize) -> Columns {
        // Space, dash, space, label, space, dash, arrow.
        let left = self
            .ins
            .iter()
            .map(|flow| width(&self.source(flow.end, length)) + 1 + width(&flow.label) + ARROW);
        let right = self.outs.iter().map(|flow| width(&flow.label) + ARROW);
        let (left, mut right) = (left.max().unwrap_or(0), right.max().unwrap_or(0));
        for under in &self.unders {
            let wanted = width(&self.source(under.from, length)) + 1 + width(&under.label) + ARROW;
            right = right.max(wanted.saturating_sub(left + BOX));
        }
        Columns { left, right }
    }

    fn source(&self, end: EndKind, length: DiagramSize) -> String {
        let device = match end {
            EndKind::File => "disk▸",
            EndKind::Socket if !self.is_local => "card▸",
            _ => "",
        };
        format!("{}{}", if length == DiagramSize::Full { device } else { "" }, place(end))
    }

    fn sink(&self, end: EndKind, length: DiagramSize) -> String {
        let whither = match end {
            EndKind::File => "▸disk",
            EndKind::Socket if !self.is_local => "▸card",
            _ => "",
        };
        format!("{}{}", place(end), if length == DiagramSize::Full { whither } else { "" })
    }
}

/// Whether disk and card are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiagramSize {
    Full,
    Short,
}

#[derive(Clone, Copy, Debug)]
struct Columns {
    left: usize,
    right: usize,
}

/// Returns where the kernel keeps the bytes of an end.
fn place(end: EndKind) -> &'static str {
    match end {
        EndKind::File => "page cache",
        other => other.name(),
    }
}

/// Returns a label on a line of this many columns.
fn along(label: &str, columns: usize) -> String {
    let dashes = columns.saturating_sub(width(label) + 2);
    let before = (dashes / 2).max(1);
    format!("{} {label} {}", "─".repeat(before), "─".repeat(dashes.saturating_sub(before)))
}

/// Returns the width in columns of a text without wide characters.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// Two dashes, two spaces and the arrow's head.
const ARROW: usize = 5;

/// Columns of the box.
const BOX: usize = 8;

/// The width that fits every terminal.
const MAX_COLUMNS: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(end: EndKind, bytes: u64, calls: u64) -> DiagramFlow {
        DiagramFlow { end, label: label(bytes, calls) }
    }

    fn mixed() -> PathDiagram {
        PathDiagram {
            ins: vec![flow(EndKind::File, 12_412, 30), flow(EndKind::Socket, 80, 1)],
            outs: vec![flow(EndKind::Socket, 238, 1)],
            unders: vec![KernelPath {
                from: EndKind::File,
                to: EndKind::Socket,
                label: format!("sendfile {}", label(7 << 20, 4)),
            }],
            is_local: false,
        }
    }

    #[test]
    fn paths_that_bypass_user_space_are_drawn_below_it() {
        let expected = "
                                    ┌ user ┐
disk▸page cache ─ 12.12 KiB in 30 ─▶│buffer│─ 238 B in 1 ─▶ socket▸card
card▸socket ────── 80 B in 1 ──────▶│      │
                                    └──────┘
disk▸page cache ───────── sendfile 7.00 MiB in 4 ─────────▶ socket▸card";
        let lines = mixed().draw(Alphabet::Unicode).join("\n");
        assert_eq!(lines, expected.trim_start_matches('\n'));
    }

    #[test]
    fn another_character_set_gets_the_same_figure() {
        let lines = mixed().draw(Alphabet::Ascii);
        assert!(lines.iter().all(|line| line.is_ascii()), "{lines:?}");
        assert_eq!(lines.len(), mixed().draw(Alphabet::Unicode).len());
        assert!(lines[4].starts_with("disk>page cache ----"), "{lines:?}");
    }

    #[test]
    fn a_figure_that_would_be_too_wide_leaves_out_disk_and_card() {
        let mut diagram = mixed();
        assert!(diagram.draw(Alphabet::Unicode).join("").contains("disk"));
        diagram.outs = vec![flow(EndKind::Socket, 1_023 << 30, 123_456_789)];
        diagram.ins = vec![flow(EndKind::File, 1_023 << 30, 123_456_789)];
        assert!(!diagram.draw(Alphabet::Unicode).join("").contains("disk"));
    }

    #[test]
    fn arrows_end_in_one_column() {
        let lines = mixed().draw(Alphabet::Unicode);
        let ends: Vec<_> =
            lines.iter().filter_map(|line| line.chars().position(|each| each == 's')).collect();
        let heads =
            |line: &String| line.chars().collect::<Vec<_>>().iter().rposition(|each| *each == '▶');
        assert_eq!(heads(&lines[1]), heads(&lines[4]), "{ends:?}");
    }

    #[test]
    fn an_empty_diagram_is_not_drawn() {
        assert!(PathDiagram::default().draw(Alphabet::Unicode).is_empty());
    }
}
