//! Opens folders and files, and names file systems.

pub(crate) mod dest_file;
#[cfg(feature = "ends")]
pub mod ends;
pub(crate) mod file_system;
pub(crate) mod folder;
pub(crate) mod replace;
