//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/server/tests/fuzz/dav.rs"]
mod dav;

libfuzzer_sys::fuzz_target!(|data: &[u8]| dav::check(data));
