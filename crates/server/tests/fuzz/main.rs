//! Properties that hold for every input, tried with random inputs: seeds changed at random, with
//! words of HTTP between. libFuzzer, which is better at this but not available everywhere, drives
//! the same functions from `fuzz/`; this way each run of the tests tries something new.
//!
//! `FUZZ_SECONDS=60 cargo test --test fuzz` searches longer. A failure prints its input.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, missing_docs)]

mod access_rules;
mod authority;
mod caching;
mod chunked_body;
mod conditional;
mod credentials;
mod dav;
mod destination;
mod digest_fields;
mod input;
mod path;
mod proxy_header;
mod range;
mod request_head;
mod search;
mod tar_layout;
mod tls_control;
mod tls_handshake;
mod tls_session;
mod upload;

use search::search;

#[test]
fn rights_grow_with_the_user_and_hold_for_whole_folders() {
    search("access_rules", access_rules::SEEDS, access_rules::check);
}

#[test]
fn a_request_names_one_authority() {
    search("authority", authority::SEEDS, authority::check);
}

#[test]
fn a_stored_response_only_grows_older() {
    search("caching", caching::SEEDS, caching::check);
}

#[test]
fn a_chunked_body_is_the_same_in_all_pieces() {
    search("chunked_body", chunked_body::SEEDS, chunked_body::check);
}

#[test]
fn no_user_is_accepted_without_the_password() {
    search("credentials", credentials::SEEDS, credentials::check);
}

#[test]
fn xml_of_webdav_is_refused_or_means_the_same_when_it_is_written_again() {
    search("dav", dav::SEEDS, dav::check);
}

#[test]
fn a_destination_is_a_path_on_the_same_server() {
    search("destination", destination::SEEDS, destination::check);
}

#[test]
fn conditional_requests_get_well_formed_answers() {
    search("conditional", conditional::SEEDS, conditional::check);
}

#[test]
fn digests_are_written_as_they_were_read() {
    search("digest_fields", digest_fields::SEEDS, digest_fields::check);
}

#[test]
fn no_target_leads_out_of_the_root() {
    search("path", path::SEEDS, path::check);
}

#[test]
fn the_header_of_a_proxy_has_one_meaning() {
    search("proxy_header", proxy_header::SEEDS, proxy_header::check);
}

#[test]
fn ranges_lie_within_the_file() {
    search("range", range::SEEDS, range::check);
}

#[test]
fn a_part_of_a_file_lies_within_it() {
    search("upload", upload::SEEDS, upload::check);
}

#[test]
fn a_request_has_one_reading() {
    search("request_head", request_head::SEEDS, request_head::check);
}

#[test]
fn every_range_of_an_archive_is_made_of_the_same_bytes() {
    search("tar_layout", tar_layout::SEEDS, tar_layout::check);
}

#[test]
fn requests_over_tls_have_one_meaning() {
    search("tls_control", tls_control::SEEDS, tls_control::check);
}

#[test]
fn a_tampered_tls_handshake_is_rejected() {
    search("tls_handshake", tls_handshake::SEEDS, tls_handshake::check);
}

#[test]
fn requests_over_tls_may_arrive_in_any_pieces() {
    search("tls_session", tls_session::SEEDS, tls_session::check);
}
