//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/server/tests/fuzz/path.rs"]
mod path;

libfuzzer_sys::fuzz_target!(|data: &[u8]| path::check(data));
