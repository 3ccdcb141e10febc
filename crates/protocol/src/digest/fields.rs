//! The fields of RFC 9530: `Repr-Digest` and `Content-Digest`, and the digests that are wanted.

use std::cmp::Reverse;

use sfv::{BareItem, DictSerializer, Dictionary, Item, KeyRef, ListEntry, Parser};

use super::value::{Algorithm, Digest};

/// Returns the digests in a field (RFC 9530 sections 2 and 3). All lines of the field together are
/// one value.
///
/// Algorithms that are unknown, or no longer safe, are skipped, as those sections allow.
///
/// # Errors
///
/// If the field is not a dictionary (RFC 9651 3.2), or the value of a known algorithm is not a
/// digest of it: the sender requested a check that is impossible.
pub fn parse_digests<'a>(
    lines: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<Digest>, BadDigestField> {
    let mut digests = Vec::new();
    for (key, entry) in &dictionary(lines)? {
        let Some(algorithm) = Algorithm::of_key(key.as_str()) else { continue };
        let ListEntry::Item(Item { bare_item: BareItem::ByteSequence(value), .. }) = entry else {
            return Err(BadDigestField);
        };
        digests.push(Digest::new(algorithm, value.as_slice()).ok_or(BadDigestField)?);
    }
    Ok(digests)
}

/// Returns the digests that are wanted, the most preferred first (RFC 9530 section 4): those with a
/// number from 1 to 10, as 0 means that a digest is not wanted. Of two with the same number the
/// cheaper one comes first.
///
/// An invalid field is ignored, since it only states a preference.
#[must_use]
pub fn parse_wanted<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Vec<Algorithm> {
    let Ok(preferences) = dictionary(lines) else { return Vec::new() };
    let mut wanted = Vec::new();
    for (key, entry) in &preferences {
        let Some(algorithm) = Algorithm::of_key(key.as_str()) else { continue };
        if let ListEntry::Item(Item { bare_item: BareItem::Integer(weight), .. }) = entry {
            let weight = i64::from(*weight);
            if (1..=10).contains(&weight) {
                wanted.push((weight, algorithm));
            }
        }
    }
    wanted.sort_by_key(|(weight, algorithm)| (Reverse(*weight), *algorithm));
    wanted.into_iter().map(|(_, algorithm)| algorithm).collect()
}

/// Returns the value of a `Repr-Digest` or `Content-Digest`; empty for no digests, when the field
/// must not be sent.
#[must_use]
pub fn write_digests<'a>(digests: impl IntoIterator<Item = &'a Digest>) -> String {
    let mut fields = DictSerializer::new();
    for digest in digests {
        if let Ok(key) = KeyRef::from_str(digest.algorithm().name()) {
            let _ = fields.bare_item(key, digest.value());
        }
    }
    fields.finish().unwrap_or_default()
}

/// Returns the value of a `Want-Repr-Digest` or `Want-Content-Digest` for these, the most expensive
/// first.
#[must_use]
pub fn write_wanted(algorithms: &[Algorithm]) -> String {
    let mut fields = DictSerializer::new();
    for (weight, algorithm) in (1..=10_u8).rev().zip(algorithms) {
        if let Ok(key) = KeyRef::from_str(algorithm.name()) {
            let _ = fields.bare_item(key, weight);
        }
    }
    fields.finish().unwrap_or_default()
}

/// Parses all lines of a field as one dictionary (RFC 9651 4.2).
fn dictionary<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Result<Dictionary, BadDigestField> {
    let lines: Vec<_> = lines.into_iter().collect();
    Parser::new(&lines.join(&b", "[..])).parse().map_err(|_| BadDigestField)
}

/// A digest field has an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the digest cannot be read; it is written sha-256=:BASE64: (RFC 9530)")]
pub struct BadDigestField;
