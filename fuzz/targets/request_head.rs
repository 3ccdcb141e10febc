//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/server/tests/fuzz/request_head.rs"]
mod request_head;

libfuzzer_sys::fuzz_target!(|data: &[u8]| request_head::check(data));
