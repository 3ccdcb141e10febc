//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/server/tests/fuzz/destination.rs"]
mod destination;

libfuzzer_sys::fuzz_target!(|data: &[u8]| destination::check(data));
