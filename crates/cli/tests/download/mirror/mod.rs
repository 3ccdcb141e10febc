//! `--update` and other options that keep copies of a server's files: the bytes and requests that
//! they cost, and the files that stay after an error.

mod file;
mod folders;
mod list;
mod origin;
mod peers;
mod sources;
mod tree;
mod upload;
