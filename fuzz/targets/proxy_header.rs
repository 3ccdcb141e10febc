//! Runs with libFuzzer the check that the `fuzz` test of its crate runs on random inputs.

#![no_main]
#![allow(dead_code)] // only the test uses the seeds

#[path = "../../crates/server/tests/fuzz/proxy_header.rs"]
mod proxy_header;

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxy_header::check(data));
