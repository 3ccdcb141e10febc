//! The access log: the file, and the thread that writes it.

mod file;
mod writer;

pub(super) use file::LogFile;
pub(super) use writer::AccessLog;
