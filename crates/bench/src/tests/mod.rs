//! Tests of computations and drawings from records, with records of every form.

#![allow(clippy::unwrap_used)]

mod json;
mod records;
mod statistics;
mod views;
mod warnings;
