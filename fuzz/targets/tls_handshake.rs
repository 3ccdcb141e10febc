//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/server/tests/fuzz/input.rs"]
mod input;
#[path = "../../crates/server/tests/fuzz/tls_handshake.rs"]
mod tls_handshake;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tls_handshake::check(data));
