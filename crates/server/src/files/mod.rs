//! The served files: looked up below the root, kept open for a moment, and checked for writers
//! before they are sent.

pub(crate) mod drop_behind; // gives pages back that only one transfer wanted
pub(crate) mod file; // answers for a file
pub(crate) mod folder; // answers for a folder
pub(crate) mod links; // where links lead a change to
pub(crate) mod lookup; // what is at a path
pub(crate) mod open_files;
pub(crate) mod prefetch; // brings pages in that have to come from a disk
pub(crate) mod resume; // no two versions in one download
pub(crate) mod root; // the only way to the file system
pub(crate) mod version;
pub(crate) mod writer_checks; // files that no program is writing to // of files, for the engine and for the protocol
