//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/server/tests/fuzz/proxy_header.rs"]
mod proxy_header;

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxy_header::check(data));
