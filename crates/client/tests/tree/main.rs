//! Folders of other servers: archives of various programs, listings, and malicious servers.

#![allow(clippy::unwrap_used, missing_docs)]

mod answers;
mod hostile;
mod listings;
mod panics;
mod resumed;
mod tar_reader;
