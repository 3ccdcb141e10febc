//! Runs with libFuzzer the check that the `fuzz` test of its crate runs on random inputs.

#![no_main]
#![allow(dead_code)] // only the test uses the seeds

#[path = "../../crates/server/tests/fuzz/digest_fields.rs"]
mod digest_fields;

libfuzzer_sys::fuzz_target!(|data: &[u8]| digest_fields::check(data));
