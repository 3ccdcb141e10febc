//! Digests of files: computed in one pass, and compared with the announced and expected ones.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::fs::File;
use std::io::{ErrorKind, Write};

use underpass_protocol::digest::Algorithm::{Sha256, Sha512};
use underpass_protocol::digest::{Algorithm, BadDigestField, Digest, write_digests};
use underpass_transport::digest::{ComputeError, Offer, OfferError, compute, verify};

/// `{"hello": "world"}` and a line feed, from RFC 9530 appendix B.1.
const TEXT: &[u8] = b"{\"hello\": \"world\"}\n";

fn of_text(algorithm: Algorithm) -> Digest {
    compute(file(TEXT), 0..TEXT.len() as u64, &[algorithm], |_| true).unwrap().digests.remove(0)
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn a_range_of_a_file_is_read_once_for_all_of_its_digests() {
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|at| at as u8).collect();
    let told = Cell::new(0);
    let tell = |read| {
        assert!(read > told.replace(read));
        true
    };
    let found = compute(file(&bytes), 5..900_000, &[Sha512, Sha256], tell).unwrap();
    assert_eq!((found.read_bytes, told.get()), (899_995, 899_995));
    let part = compute(file(&bytes[5..900_000]), 0..899_995, &[Sha256], |_| true).unwrap();
    assert_eq!(found.digests[1], part.digests[0]);
    assert_eq!(found.digests[0].algorithm(), Sha512);
}

#[test]
fn a_short_or_cancelled_file_has_no_digest() {
    let early = compute(file(b"short"), 0..6, &[Sha256], |_| true);
    assert!(
        matches!(early, Err(ComputeError::Io(error)) if error.kind() == ErrorKind::UnexpectedEof)
    );
    let cancelled = compute(file(&[0; 1 << 20]), 0..1 << 20, &[Sha256], |read| {
        assert!(read < 1 << 20, "it was read to its end");
        false
    });
    assert!(matches!(cancelled, Err(ComputeError::Cancelled)));
}

#[test]
fn digests_sent_with_a_body_are_compared_with_it() {
    let field = |digest: &Digest| write_digests([digest]);
    let offer = |whole: &str, content: &str| {
        Offer::parse([whole.as_bytes()], [content.as_bytes()]).unwrap()
    };
    let text = file(TEXT);
    let len = TEXT.len() as u64;
    let (whole, part) = (of_text(Sha256), file(&TEXT[4..]));
    let part = compute(part, 0..len - 4, &[Sha512], |_| true).unwrap().digests.remove(0);

    let checked = offer(&field(&whole), "").check(&text, len, 0..len, |_| true).unwrap();
    assert_eq!((checked.whole, checked.read_bytes), (vec![whole.clone()], len));
    // The content is the whole file, which is read once.
    let both = offer(&field(&whole), &field(&whole)).check(&text, len, 0..len, |_| true).unwrap();
    assert_eq!((both.whole, both.read_bytes), (vec![whole.clone()], len));
    // The content is the last part of the file.
    let both = offer(&field(&whole), &field(&part)).check(&text, len, 4..len, |_| true).unwrap();
    assert_eq!((both.whole, both.read_bytes), (vec![whole.clone()], 2 * len - 4));
    // The content is the first part of the file, whose digest does not cover the rest.
    let first = compute(file(&TEXT[..4]), 0..4, &[Sha256], |_| true).unwrap().digests.remove(0);
    let checked = offer("", &field(&first)).check(&text, len, 0..4, |_| true).unwrap();
    assert_eq!((checked.whole, checked.read_bytes), (vec![], 4));

    for (wrong, from) in [(offer(&field(&whole), ""), 0), (offer("", &field(&part)), 3)] {
        let other = file(&[b"x", TEXT].concat());
        let error = wrong.check(&other, len + 1, from..len + 1, |_| true).unwrap_err();
        assert!(matches!(&error, OfferError::Differs { .. }), "{error}");
        assert!(error.to_string().starts_with("what arrived is sha-"), "{error}");
    }
    let nothing = offer("md5=:AA==:", "");
    assert!(nothing.is_empty());
    assert_eq!(nothing.check(&text, len, 0..len, |_| true).unwrap().read_bytes, 0);
    assert_eq!(Offer::parse([&b"sha-256=1"[..]], []), Err(BadDigestField));
}

#[test]
fn received_bytes_are_compared_with_the_expected_digest() {
    let text = file(TEXT);
    let len = TEXT.len() as u64;
    let other = Digest::new(Sha256, [0; 32]).unwrap();
    let facts = verify(&text, len, &[other, of_text(Sha256)], &[Sha512, Sha256], |_| true).unwrap();
    let told: Vec<_> = facts.iter().map(|fact| (fact.found.algorithm(), fact.matches())).collect();
    assert_eq!(told, [(Sha256, Some(false)), (Sha256, Some(true)), (Sha512, None)]);
    assert!(facts.iter().all(|fact| fact.read_bytes == len));
    assert_eq!(facts[2].found, of_text(Sha512));
    let cheap = verify(&text, len, &[], &[], |_| panic!("nothing is to be read"));
    assert_eq!(cheap.unwrap(), []);
}
