//! Folders of other servers: archives as anybody writes them, listings, and who means ill.

#![allow(clippy::unwrap_used, missing_docs)]

mod answers;
mod hostile;
mod listings;
mod resumed;
mod tar_reader;
