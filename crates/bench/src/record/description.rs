//! The description of a scenario for readers of its records.

use super::{Contender, Metric, Record, Unit, short_size};

/// A scenario as tables, charts and warnings see it.
#[derive(Debug)]
pub(crate) struct Description {
    /// Its name in records.
    pub(crate) name: &'static str,
    /// The words of the command after `underpass bench`.
    pub(crate) command: &'static str,
    /// Whether the processor time of the thread that moved the bytes counts, not of its process.
    pub(crate) by_thread: bool,
    /// The processes that should not share a core, if any.
    pub(crate) cores: Option<&'static str>,
    /// The program that the comparison needs, if any, whose version is in records: cp or nginx.
    pub(crate) expected: Option<Contender>,
    /// Whether the load has to be faster than the server.
    pub(crate) saturates: bool,
    /// Whether sizes are those of folders, which were not typed.
    pub(crate) whole_folders: bool,
    /// Source and target of the bytes.
    pub(crate) subject: fn(&Record) -> String,
    /// The explanation of the table.
    pub(crate) caption: fn(&Record) -> String,
    /// The metrics that the table shows of each cell; some of them get charts.
    pub(crate) metrics: &'static [&'static Metric],
}

impl Description {
    /// The description of a record whose scenario was not looked up.
    pub(crate) const NONE: Self = Self {
        name: "",
        command: "",
        by_thread: false,
        cores: None,
        expected: None,
        saturates: false,
        whole_folders: false,
        subject: |_| String::new(),
        caption: |_| String::new(),
        metrics: &[],
    };

    /// Returns a size as it was typed; that of a folder in full.
    pub(crate) fn size_label(&self, size: u64) -> String {
        if self.whole_folders { Unit::Bytes.show(size as f64) } else { short_size(size) }
    }
}

impl Default for &'static Description {
    fn default() -> Self {
        &Description::NONE
    }
}

/// All descriptions are compiled in and have unique names, so the names are compared.
impl PartialEq for Description {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
