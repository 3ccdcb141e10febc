//! Receipts in text form; their values and their JSON are those of `underpass-receipt`.

pub(crate) mod explained;
pub(crate) mod path_diagram;

pub(crate) use explained::explained;
pub(crate) use path_diagram::Alphabet;
