//! The unit of eviction: a whole object, or an extent of a large one.

use std::ops::Range;

use super::head::StoredHead;
use crate::key::KeyDigest;

/// An object, or an extent of a large one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StoredUnit {
    pub(crate) digest: KeyDigest,
    /// The number of the extent; 0 for a whole object.
    pub(crate) extent: u32,
}

impl StoredUnit {
    /// Returns the unit of an object that is not divided.
    pub(crate) fn whole(digest: &KeyDigest) -> Self {
        Self { digest: *digest, extent: 0 }
    }

    /// Returns the unit of an object of this length that contains the byte `at`.
    pub(crate) fn of(digest: &KeyDigest, len: Option<u64>, at: u64) -> Self {
        let extent = if is_divided(len) { at / EXTENT } else { 0 };
        Self { digest: *digest, extent: u32::try_from(extent).unwrap_or(u32::MAX) }
    }

    /// Returns the bytes of its object that it contains.
    pub(crate) fn range(&self, len: Option<u64>) -> Range<u64> {
        match len.filter(|_| is_divided(len)) {
            Some(len) => {
                let start = u64::from(self.extent) * EXTENT;
                start..(start + EXTENT).min(len)
            }
            None => 0..u64::MAX,
        }
    }
}

/// Returns whether an object of this length is divided into extents.
pub(crate) fn is_divided(len: Option<u64>) -> bool {
    len.is_some_and(|len| len > EXTENT && len < EXTENT << 31)
}

/// Returns the units of ranges of a stored object, with the number of bytes in each; at least one.
pub(crate) fn units<'r>(
    digest: &KeyDigest,
    len: Option<u64>,
    ranges: impl IntoIterator<Item = &'r Range<u64>>,
) -> Vec<(StoredUnit, u64)> {
    let mut units = Vec::new();
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let unit = StoredUnit::of(digest, len, at);
            let end = unit.range(len).end.min(range.end).max(at + 1);
            units.push((unit, end - at));
            at = end;
        }
    }
    if units.is_empty() {
        // The name and the journal need space, too.
        units.push((StoredUnit::of(digest, len, 0), 0));
    }
    units
}

/// Returns the first unit of an object, with the bytes that its journal uses beyond those counted
/// for each unit: the origin may send long fields.
pub(crate) fn journal_unit(digest: &KeyDigest, head: &StoredHead) -> (StoredUnit, u64) {
    (StoredUnit::of(digest, head.size, 0), head.extra_room())
}

/// The page size, or a multiple of it, on every machine.
pub(crate) const MAX_PAGE: u64 = 64 << 10;

/// The length of an extent: the minimum that a fill without readers brings.
pub(crate) const EXTENT: u64 = 64 << 20;

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // lists of ranges are what is meant
mod tests {
    use super::*;

    #[test]
    fn large_objects_have_extents() {
        let digest = [1; 32];
        let of = |len, ranges: &[Range<u64>]| {
            let units = units(&digest, len, ranges);
            units.into_iter().map(|(unit, bytes)| (unit.extent, bytes)).collect::<Vec<_>>()
        };
        let long = EXTENT + 5;
        assert_eq!(of(Some(EXTENT), &[0..EXTENT]), [(0, EXTENT)]);
        assert_eq!(of(None, &[0..long]), [(0, long)]);
        assert_eq!((of(Some(0), &[]), of(Some(long), &[])), (vec![(0, 0)], vec![(0, 0)]));
        assert_eq!(of(Some(long), &[0..long]), [(0, EXTENT), (1, 5)]);
        assert_eq!(of(Some(3 * EXTENT), &[1..3, EXTENT - 1..EXTENT + 1]), [(0, 2), (0, 1), (1, 1)]);
        let last = StoredUnit { digest, extent: 1 };
        assert_eq!(last.range(Some(long)), EXTENT..long);
        assert_eq!(StoredUnit { digest, extent: 0 }.range(Some(5)), 0..u64::MAX);
    }
}
