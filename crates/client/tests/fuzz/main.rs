//! Properties of every listing, archive and response, checked with random inputs. libFuzzer drives
//! the same functions from `fuzz/`.
//!
//! `FUZZ_SECONDS=60 cargo test --test fuzz` runs longer. A failure prints its input.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, missing_docs)]

mod folder_page;
#[path = "../../../server/tests/fuzz/input.rs"]
mod input;
mod interpret;
#[path = "../../../server/tests/fuzz/search.rs"]
mod search;
mod tar_reader;

use search::search;

#[test]
fn no_archive_leads_out_of_its_folder() {
    search("tar_reader", tar_reader::SEEDS, tar_reader::check);
}

#[test]
fn two_versions_are_never_combined() {
    search("interpret", interpret::SEEDS, interpret::check);
}

#[test]
fn no_listing_leads_out_of_its_folder() {
    search("folder_page", folder_page::SEEDS, folder_page::check);
}
