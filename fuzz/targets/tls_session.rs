//! Runs with libFuzzer the check that the `fuzz` test of its crate runs on random inputs.

#![no_main]
#![allow(dead_code)] // only the test uses the seeds

#[path = "../../crates/server/tests/fuzz/input.rs"]
mod input;
#[path = "../../crates/server/tests/fuzz/tls_handshake.rs"]
mod tls_handshake;
#[path = "../../crates/server/tests/fuzz/tls_session.rs"]
mod tls_session;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tls_session::check(data));
