//! Servers under load: what a record tells of them, and how that is drawn.

#[cfg(test)]
mod fixture;
mod record;
mod table;

#[cfg(test)]
pub(crate) use fixture::{fairness_record, requests_record};
pub(crate) use record::{Served, Setting};
pub(crate) use table::{load_busy, render, server_busy, title};
