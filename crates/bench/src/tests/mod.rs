//! Tests of what is computed and drawn from records, which need records of every form.

#![allow(clippy::unwrap_used)]

mod json;
mod records;
mod statistics;
mod views;
mod warnings;
