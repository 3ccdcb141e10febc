//! `--update` and what else keeps copies of a server's files: what moves, what is asked, and what
//! stays when something breaks.

mod file;
mod folders;
mod list;
mod origin;
mod peers;
mod sources;
mod tree;
mod upload;
