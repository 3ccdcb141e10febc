//! What is measured as people call it, the same in every table and chart.

use super::cp;
use super::record::{Record, Scenario};
use super::transfer::label;
use super::way::{Step, Way};

/// A way.
pub(crate) fn way_label(record: &Record, way: Way) -> String {
    match (record.scenario, way) {
        (Scenario::Chain, Way::Only(_)) => "header and sendfile".to_owned(),
        (Scenario::Chain, _) => "one buffer".to_owned(),
        (Scenario::Cp, way) => cp::label(way),
        _ => label(way),
    }
}

/// The variant of a cell: the way, the bad clients beside it if there are any, and the step unless
/// it is the way's own.
pub(crate) fn variant_label(record: &Record, cell: usize) -> String {
    let variant = record.cells[cell].variant;
    let load = record.cells[cell].load.map(|load| format!(", {}", load.name()));
    let way = way_label(record, variant.way) + &load.unwrap_or_default();
    match variant.step {
        Step::Default => way,
        step => format!("{way} {step}"),
    }
}

/// The variant of a cell, with its connections if these are varied too.
pub(crate) fn cell_label(record: &Record, cell: usize) -> String {
    let connections = record.cells[cell].connections;
    let connections = connections.map(|count| format!(", {count} connections")).unwrap_or_default();
    format!("{}{connections}", variant_label(record, cell))
}

/// The words of the command that made the record.
pub(crate) const fn command(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::ArticleChunks => "article-chunks",
        Scenario::ArticleCopy => "article-copy",
        Scenario::ArticleTable => "article-table",
        Scenario::Chain => "chain",
        Scenario::Copy => "copy",
        Scenario::Cp => "cp",
        Scenario::Get => "get",
        Scenario::Hostile => "hostile",
        Scenario::Limit => "limit",
        Scenario::Net => "net",
        Scenario::Put => "put",
        Scenario::Scale => "scale",
        Scenario::Serve => "serve",
        Scenario::ServeFairness => "serve fairness",
        Scenario::ServeHandshakes => "serve handshakes",
        Scenario::ServeIdle => "serve idle",
        Scenario::Tree => "tree",
    }
}
