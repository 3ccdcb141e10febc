//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/client/tests/fuzz/tar_reader.rs"]
mod tar_reader;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tar_reader::check(data));
