//! Runs with libFuzzer the check that the `fuzz` test of its crate runs on random inputs.

#![no_main]
#![allow(dead_code)] // only the test uses the seeds

#[path = "../../crates/server/tests/fuzz/access_rules.rs"]
mod access_rules;

libfuzzer_sys::fuzz_target!(|data: &[u8]| access_rules::check(data));
