//! `underpass get -r`: whole folders, from our own server and from others, with breaks in between.

#![allow(clippy::unwrap_used, missing_docs)]

mod archive;
mod hostile;
mod listings;
mod resume;
#[path = "../rig/mod.rs"]
mod rig;
mod site;
