//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/server/tests/fuzz/digest_fields.rs"]
mod digest_fields;

libfuzzer_sys::fuzz_target!(|data: &[u8]| digest_fields::check(data));
