//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/server/tests/fuzz/input.rs"]
mod input;
#[path = "../../crates/server/tests/fuzz/chunked_body.rs"]
mod chunked_body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunked_body::check(data));
