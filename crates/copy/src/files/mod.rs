//! Folders and files as they are opened, and names of file systems.

pub(crate) mod dest_file;
pub(crate) mod file_system;
pub(crate) mod folder;
pub(crate) mod replace;
