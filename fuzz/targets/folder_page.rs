//! Runs with libFuzzer the check that the `fuzz` test of its crate runs on random inputs.

#![no_main]
#![allow(dead_code)] // only the test uses the seeds

#[path = "../../crates/client/tests/fuzz/folder_page.rs"]
mod folder_page;

libfuzzer_sys::fuzz_target!(|data: &[u8]| folder_page::check(data));
