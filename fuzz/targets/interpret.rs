//! Runs with libFuzzer the check that the `fuzz` test of its crate runs on random inputs.

#![no_main]
#![allow(dead_code)] // only the test uses the seeds

#[path = "../../crates/client/tests/fuzz/interpret.rs"]
mod interpret;
#[path = "../../crates/server/tests/fuzz/input.rs"]
mod input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| interpret::check(data));
