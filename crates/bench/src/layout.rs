//! Columns of text.

/// Lines of cells that are drawn below each other: the first column to the left, the others to
/// the right.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    lines: Vec<Vec<String>>,
}

impl Columns {
    /// Columns with these headings.
    pub(crate) fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Self {
        let headings = headings.into_iter().map(Into::into).collect();
        Self { lines: vec![headings] }
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, cells: Vec<String>) {
        self.lines.push(cells);
    }

    /// The text, each line of which ends with a line feed.
    pub(crate) fn draw(&self) -> String {
        let count = self.lines.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..count).map(width).collect();
        let mut text = String::new();
        for line in &self.lines {
            let cells = line.iter().zip(&widths).enumerate();
            let cells: Vec<_> = cells
                .map(|(column, (cell, width))| match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                })
                .collect();
            text.push_str(cells.join(GAP).trim_end());
            text.push('\n');
        }
        text
    }
}

/// What is between two columns.
const GAP: &str = "   ";

/// Three digits that count: `1234`, `123`, `12.3`, `1.23`.
pub(crate) fn three_digits(value: f64) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut columns = Columns::new(["a", "b"]);
        columns.line(vec!["one".to_owned(), "1".to_owned()]);
        columns.line(vec![String::new(), "1000".to_owned()]);
        assert_eq!(columns.draw(), "a        b\none      1\n      1000\n");
    }

    #[test]
    fn numbers_have_three_digits_and_no_unit() {
        for (value, text) in
            [(0.0, "0.00"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (99.96, "100")]
        {
            assert_eq!(three_digits(value), text);
        }
    }
}
