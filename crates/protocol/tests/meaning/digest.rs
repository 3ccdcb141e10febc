//! RFC 9530: the digests that a field has, those that a client wants, and how both are written.

use proptest::prelude::*;
use underpass_protocol::digest::{
    Algorithm, BadDigestField, Digest, Hasher, parse_digests, parse_wanted, write_digests,
    write_wanted,
};

use Algorithm::{Sha256, Sha512};

/// `{"hello": "world"}` and a line feed, from RFC 9530 appendix B.1.
const TEXT: &[u8] = b"{\"hello\": \"world\"}\n";
const SHA256: &str = "RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=";
const SHA512: &str =
    "YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+pgk4vf2aCsyRZOtw8MjkM7iw7yZ/WkppmM44T3qg==";
const HEX: &str = "44aff4ab2d7c3250525675a08f0cfa9591168cffe51791c5f5bbc417c15a6c38";

fn of_text(algorithm: Algorithm) -> Digest {
    let mut hasher = Hasher::new(algorithm);
    let (start, rest) = TEXT.split_at(5);
    hasher.update(start);
    hasher.update(rest);
    hasher.finish()
}

fn parse(lines: &[&str]) -> Result<Vec<Digest>, BadDigestField> {
    parse_digests(lines.iter().map(|line| line.as_bytes()))
}

fn wanted(lines: &[&str]) -> Vec<Algorithm> {
    parse_wanted(lines.iter().map(|line| line.as_bytes()))
}

#[test]
fn the_examples_of_the_standard_are_written_and_read() {
    let (short, long) = (of_text(Sha256), of_text(Sha512));
    let both = format!("sha-256=:{SHA256}:, sha-512=:{SHA512}:");
    assert_eq!(write_digests([&short, &long]), both);
    assert_eq!(parse(&[&both]), Ok(vec![short.clone(), long.clone()]));
    let lines = [format!("sha-512=:{SHA512}:"), format!("sha-256=:{SHA256}:")];
    assert_eq!(parse(&[&lines[0], &lines[1]]), Ok(vec![long, short]));
}

#[test]
fn digests_of_known_algorithms_must_be_well_formed() {
    let known = of_text(Sha256);
    for (line, expected) in [
        ("", Some(vec![])),
        ("md5=:AAAAAAAAAAAAAAAAAAAAAA==:", Some(vec![])),
        ("unixsum=1, a", Some(vec![])),
        ("SHA-256=:AA==:", None),
        ("sha-256=:AA==:", None),
        ("sha-256", None),
        ("sha-256=1", None),
        ("sha-256=\"text\"", None),
        ("sha-256=(:AA==:)", None),
        ("sha-256=:*:", None),
        ("sha-256=", None),
        (",", None),
        ("sha-512=:AA==:, md5=1", None),
    ] {
        assert_eq!(parse(&[line]).ok(), expected, "{line}");
    }
    // With parameters, of which none is defined; and the last of two counts (RFC 9651 3.2).
    assert_eq!(parse(&[&format!("sha-256=:{SHA256}:;a=1")]), Ok(vec![known.clone()]));
    let twice = format!("sha-256=:AA==:, sha-256=:{SHA256}:");
    assert_eq!(parse(&[&twice]), Ok(vec![known]));
}

#[test]
fn preferences_for_digests_are_sorted_by_weight() {
    for (line, expected) in [
        ("sha-256=1", &[Sha256][..]),
        ("sha-256=10, sha-512=3", &[Sha256, Sha512]),
        ("sha-256=3, sha-512=10", &[Sha512, Sha256]),
        ("sha-512=5, sha-256=5", &[Sha256, Sha512]),
        ("sha-512=3, sha-256=0, unixsum=10", &[Sha512]),
        ("sha-512=3, sha-256=11", &[Sha512]),
        ("sha-256=-1", &[]),
        ("sha-256=1.0", &[]),
        ("sha-256", &[]),
        ("sha-256=1,", &[]),
        ("*", &[]),
        ("", &[]),
    ] {
        assert_eq!(wanted(&[line]), expected, "{line}");
    }
    assert_eq!(wanted(&["sha-256=1", "sha-512=2"]), [Sha512, Sha256]);
    assert_eq!(write_wanted(&[Sha512, Sha256]), "sha-512=10, sha-256=9");
    assert_eq!(write_wanted(&[]), "");
}

#[test]
fn a_digest_is_read_as_people_write_it() {
    let (short, long) = (of_text(Sha256), of_text(Sha512));
    assert_eq!(short.to_string(), format!("sha-256:{HEX}"));
    for text in [
        HEX.to_owned(),
        HEX.to_uppercase(),
        format!(" sha-256:{HEX}\n"),
        format!("SHA256:{HEX}"),
        format!("sha256={HEX}"),
        format!("sha-256:{SHA256}"),
        format!("sha-256=:{SHA256}:"),
    ] {
        assert_eq!(text.parse(), Ok(short.clone()), "{text}");
    }
    assert_eq!(long.hex().parse(), Ok(long.clone()));
    assert_eq!(format!("sha-512:{SHA512}").parse(), Ok(long));
    for text in [
        "",
        "sha-256",
        "sha-256:",
        &HEX[1..],
        &format!("{HEX}0"),
        &format!("sha-512:{HEX}"),
        &format!("md5:{HEX}"),
        &format!("sha-256:{}", HEX.replace('4', "g")),
        &HEX.replacen("44", "é", 1),
        SHA256,
    ] {
        assert!(text.parse::<Digest>().is_err(), "{text}");
    }
}

fn digest() -> impl Strategy<Value = Digest> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 32).prop_map(|v| Digest::new(Sha256, v).unwrap()),
        prop::collection::vec(any::<u8>(), 64).prop_map(|v| Digest::new(Sha512, v).unwrap()),
    ]
}

proptest! {
    #[test]
    fn a_digest_reads_back_from_a_field_and_from_text(digest in digest()) {
        prop_assert_eq!(parse(&[&write_digests([&digest])]), Ok(vec![digest.clone()]));
        prop_assert_eq!(digest.to_string().parse(), Ok(digest.clone()));
        prop_assert_eq!(digest.hex().parse(), Ok(digest));
    }

    #[test]
    fn parsed_digests_have_the_length_of_their_algorithm(text in "\\PC{0,140}") {
        if let Ok(digest) = text.parse::<Digest>() {
            prop_assert_eq!(digest.value().len(), digest.algorithm().len());
        }
    }
}
