//! Opens folders and files, and names file systems.

pub(crate) mod dest_file;
pub(crate) mod file_system;
pub(crate) mod folder;
pub(crate) mod replace;
