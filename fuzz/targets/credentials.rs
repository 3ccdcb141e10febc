//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/server/tests/fuzz/credentials.rs"]
mod credentials;

libfuzzer_sys::fuzz_target!(|data: &[u8]| credentials::check(data));
