//! Runs with libFuzzer the check that the `fuzz` test of its crate runs on random inputs.

#![no_main]
#![allow(dead_code)] // only the test uses the seeds

#[path = "../../crates/server/tests/fuzz/request_head.rs"]
mod request_head;

libfuzzer_sys::fuzz_target!(|data: &[u8]| request_head::check(data));
