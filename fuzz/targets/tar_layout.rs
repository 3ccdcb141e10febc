//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/server/tests/fuzz/input.rs"]
mod input;
#[path = "../../crates/server/tests/fuzz/tar_layout.rs"]
mod tar_layout;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tar_layout::check(data));
