//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/client/tests/fuzz/interpret.rs"]
mod interpret;
#[path = "../../crates/server/tests/fuzz/input.rs"]
mod input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| interpret::check(data));
