//! The served files: looked up below the root, kept open for a second, and checked for writers
//! before they are sent.

pub(crate) mod drop_behind;
pub(crate) mod file;
pub(crate) mod folder;
pub(crate) mod links;
pub(crate) mod lookup;
pub(crate) mod open_files;
pub(crate) mod prefetch;
pub(crate) mod resume;
pub(crate) mod root;
pub(crate) mod version;
pub(crate) mod writer_checks;
