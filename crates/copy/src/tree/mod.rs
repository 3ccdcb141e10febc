//! The two trees of a copy: their folders and entries, and the names and marks of incomplete ones.

pub(crate) mod dir_pair;
pub(crate) mod entry;
pub(crate) mod epoch_mark;
pub(crate) mod hidden_names;
pub(crate) mod link_table;
pub(crate) mod marker;
pub(crate) mod merge;
pub(crate) mod mirror;
pub(crate) mod path_chain;
pub(crate) mod same_file;
pub(crate) mod task;
