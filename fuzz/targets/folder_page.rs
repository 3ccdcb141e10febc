//! libFuzzer drives what the test `fuzz` of the crate drives at random.

#![no_main]
#![allow(dead_code)] // seeds are for the test

#[path = "../../crates/client/tests/fuzz/folder_page.rs"]
mod folder_page;

libfuzzer_sys::fuzz_target!(|data: &[u8]| folder_page::check(data));
