//! Tests of the schedule and its files, and of computations and drawings from records of every form.

mod files;
mod json;
mod records;
mod schedule;
mod statistics;
mod values;
mod views;
mod warnings;
