//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/server/tests/fuzz/input.rs"]
mod input;
#[path = "../../crates/server/tests/fuzz/tls_control.rs"]
mod tls_control;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tls_control::check(data));
