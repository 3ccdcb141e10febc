//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/server/tests/fuzz/input.rs"]
mod input;
#[path = "../../crates/server/tests/fuzz/upload.rs"]
mod upload;

libfuzzer_sys::fuzz_target!(|data: &[u8]| upload::check(data));
