//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/server/tests/fuzz/input.rs"]
mod input;
#[path = "../../crates/server/tests/fuzz/conditional.rs"]
mod conditional;

libfuzzer_sys::fuzz_target!(|data: &[u8]| conditional::check(data));
