//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/server/tests/fuzz/access_rules.rs"]
mod access_rules;

libfuzzer_sys::fuzz_target!(|data: &[u8]| access_rules::check(data));
