//! The access log and the messages: where they go, and the threads that write them.

mod file;
mod writer;

pub(super) use file::LogFile;
pub(super) use writer::{LogBuffer, MAX_ENTRIES, MAX_MESSAGES};
