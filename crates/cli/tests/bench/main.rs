//! `underpass bench`, as a user runs it: each scenario with small sizes, and the views of records.

#![allow(clippy::unwrap_used)]

mod article;
mod cp;
mod hostile;
mod mechanisms;
#[path = "../rig/mod.rs"]
mod rig;
mod scale;
mod serve;
mod transfer;
mod views;
