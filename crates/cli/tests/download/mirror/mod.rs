//! `--update` and other options that maintain copies of a server's files: their bytes and requests,
//! and the files that stay after an error.

mod file;
mod folders;
mod leftovers;
mod list;
mod origin;
mod peers;
mod sources;
mod tree;
mod upload;
