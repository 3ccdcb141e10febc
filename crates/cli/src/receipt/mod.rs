//! Receipts in text form; their values and their JSON are those of `underpass-receipt`.

mod explained;
mod path_diagram;

pub(crate) use explained::{costs, explained};
pub(crate) use path_diagram::{Alphabet, Flow, PathDiagram, Under, label};
