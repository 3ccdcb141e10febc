//! Runs with libFuzzer the check that the `fuzz` test of its crate runs on random inputs.

#![no_main]
#![allow(dead_code)] // only the test uses the seeds

#[path = "../../crates/server/tests/fuzz/path.rs"]
mod path;

libfuzzer_sys::fuzz_target!(|data: &[u8]| path::check(data));
