//! What holds for every input, tried with inputs that nobody chose: seeds changed at random, with
//! words of HTTP between. libFuzzer, which is better at it and not everywhere, drives the same
//! functions from `fuzz/`; this way each run of the tests tries something new.
//!
//! `FUZZ_SECONDS=60 cargo test --test fuzz` looks longer. A failure prints its input.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, missing_docs)]

mod access_rules;
mod authority;
mod chunked_body;
mod conditional;
mod credentials;
mod destination;
mod digest_fields;
mod folder_page;
mod input;
mod path;
mod range;
mod request_head;
mod tar_layout;
mod tar_reader;
mod tls_control;
mod tls_handshake;
mod tls_session;
mod upload;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn rights_grow_with_the_user_and_hold_for_whole_folders() {
    search("access_rules", access_rules::SEEDS, access_rules::check);
}

#[test]
fn one_server_is_asked() {
    search("authority", authority::SEEDS, authority::check);
}

#[test]
fn a_chunked_body_is_the_same_in_all_pieces() {
    search("chunked_body", chunked_body::SEEDS, chunked_body::check);
}

#[test]
fn nobody_is_taken_for_a_user_without_the_password() {
    search("credentials", credentials::SEEDS, credentials::check);
}

#[test]
fn a_destination_is_a_path_on_the_server_that_was_asked() {
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
fn no_archive_leads_out_of_its_folder() {
    search("tar_reader", tar_reader::SEEDS, tar_reader::check);
}

#[test]
fn no_listing_leads_out_of_its_folder() {
    search("folder_page", folder_page::SEEDS, folder_page::check);
}

#[test]
fn what_is_said_after_a_tls_handshake_has_one_meaning() {
    search("tls_control", tls_control::SEEDS, tls_control::check);
}

#[test]
fn nobody_in_the_middle_of_tls_is_believed() {
    search("tls_handshake", tls_handshake::SEEDS, tls_handshake::check);
}

#[test]
fn what_is_said_over_tls_is_heard_whatever_the_pieces() {
    search("tls_session", tls_session::SEEDS, tls_session::check);
}

/// Tries the seeds, and what becomes of them and of the inputs in `fuzz/corpus`, for as long as the
/// environment says.
fn search(target: &str, seeds: &[&[u8]], check: fn(&[u8])) {
    let seconds = std::env::var("FUZZ_SECONDS").map_or(0.5_f64, |text| text.parse().unwrap());
    let words = words(include_str!("http.dict"));
    let mut dice = Dice(RandomState::new().hash_one(seconds.to_bits()) | 1);
    seeds.iter().for_each(|seed| try_one(seed, check));
    let mut seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    for file in corpus.read_dir().unwrap() {
        seeds.push(std::fs::read(file.unwrap().path()).unwrap());
    }
    let mut tried = 0_u64;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        let mut bytes = seeds[dice.below(seeds.len())].to_vec();
        for _ in 0..=dice.below(12) {
            change(&mut bytes, &words, &mut dice);
            try_one(&bytes, check);
            tried += 1;
        }
    }
    assert!(tried > 0 || seconds < 0.1, "nothing was tried");
}

/// Shows the input if it is the last one.
fn try_one(bytes: &[u8], check: fn(&[u8])) {
    struct Shown<'a>(&'a [u8]);
    impl Drop for Shown<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the input was b\"{}\"", self.0.escape_ascii());
            }
        }
    }
    let _shown = Shown(bytes);
    check(bytes);
}

/// Changes bytes in one of the ways in which requests go wrong.
fn change(bytes: &mut Vec<u8>, words: &[Vec<u8>], dice: &mut Dice) {
    let at = dice.below(bytes.len() + 1);
    let end = (at + dice.below(16)).min(bytes.len());
    match dice.below(7) {
        0 => drop(bytes.drain(at..end)),
        1 => bytes.insert(at, dice.next() as u8),
        2 if at < bytes.len() => bytes[at] = dice.next() as u8,
        3 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
        4 => {
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        5 => bytes.truncate(at.max(1)),
        _ => {
            let word = words[dice.below(words.len())].iter().copied();
            // In place of something as often as between.
            let end = if dice.below(2) == 0 { at } else { end };
            bytes.splice(at..end, word);
        }
    }
}

/// The words of a dictionary in libFuzzer's form: `"a\x0d"`, one a line, comments after `#`.
fn words(text: &str) -> Vec<Vec<u8>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    let words = lines.map(|line| {
        let (mut word, mut rest) = (Vec::new(), line.as_bytes());
        while let [first, tail @ ..] = rest {
            let byte;
            (byte, rest) = match (first, tail) {
                (b'\\', [b'x', high, low, tail @ ..]) => {
                    let digits = [*high, *low];
                    let digits = std::str::from_utf8(&digits).unwrap();
                    (u8::from_str_radix(digits, 16).unwrap(), tail)
                }
                (b'\\', [escaped, tail @ ..]) => (*escaped, tail),
                _ => (*first, tail),
            };
            word.push(byte);
        }
        word
    });
    words.collect()
}

/// Numbers at random (xorshift).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit
    }
}

#[test]
fn the_dictionary_is_understood() {
    assert_eq!(words("# a\n\"\\x0d\\\"b\"\n"), [b"\r\"b".to_vec()]);
    assert!(words(include_str!("http.dict")).len() > 20);
}
