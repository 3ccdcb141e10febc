//! Receipts: what a transfer did, as JSON and in text form.

mod explained;
mod fields;
mod path_diagram;

pub(crate) use explained::{costs, explained};
pub(crate) use fields::*;
pub(crate) use path_diagram::{Alphabet, Flow, PathDiagram, Under, label};
