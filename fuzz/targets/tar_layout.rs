//! Runs with libFuzzer the check that the `fuzz` test of its crate runs on random inputs.

#![no_main]
#![allow(dead_code)] // only the test uses the seeds

#[path = "../../crates/server/tests/fuzz/input.rs"]
mod input;
#[path = "../../crates/server/tests/fuzz/tar_layout.rs"]
mod tar_layout;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tar_layout::check(data));
