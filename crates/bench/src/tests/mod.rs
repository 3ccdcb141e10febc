//! Tests of computations and drawings from records, with records of every form.

mod json;
mod records;
mod statistics;
mod views;
mod warnings;
