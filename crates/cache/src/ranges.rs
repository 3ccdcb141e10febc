//! A set of byte ranges.

use std::ops::Range;

use underpass_client::journal;

/// Ranges that neither overlap nor touch, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet(Vec<Range<u64>>);

impl RangeSet {
    /// Adds a range.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|known| known.end < range.start);
        let last = self.0.partition_point(|known| known.start <= range.end);
        let joined = self.0[first..last]
            .iter()
            .fold(range, |sum, known| sum.start.min(known.start)..sum.end.max(known.end));
        self.0.splice(first..last, [joined]);
    }

    /// Removes a range.
    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        self.0 = journal::without(&self.0, range);
    }

    /// Returns the ranges in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }

    /// Returns the end of the range that contains this byte; `None` if no range does.
    pub(crate) fn end_of(&self, at: u64) -> Option<u64> {
        let index = self.0.partition_point(|known| known.end <= at);
        self.0.get(index).filter(|known| known.start <= at).map(|known| known.end)
    }

    /// Returns the start of the next range at or after this byte.
    pub(crate) fn next_start(&self, at: u64) -> Option<u64> {
        let index = self.0.partition_point(|known| known.end <= at);
        self.0.get(index).map(|known| known.start.max(at))
    }

    /// Returns the start of the hole that contains a missing byte.
    pub(crate) fn hole_start(&self, at: u64) -> u64 {
        let index = self.0.partition_point(|known| known.end <= at);
        index.checked_sub(1).map_or(0, |before| self.0[before].end)
    }

    /// Returns the parts of the set within a range, in ascending order.
    pub(crate) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let part = move |known: &Range<u64>| known.start.max(range.start)..known.end.min(range.end);
        self.0.iter().map(part).filter(|part| !part.is_empty())
    }

    /// Returns the parts of a range that are not in the set, in ascending order.
    pub(crate) fn missing_in(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut missing = vec![range.clone()];
        for part in self.within(range) {
            missing = journal::without(&missing, &part);
        }
        missing
    }

    /// Returns how many bytes of a range are in the set.
    pub(crate) fn count_in(&self, range: &Range<u64>) -> u64 {
        self.within(range).map(|part| part.end - part.start).sum()
    }

    /// Returns how many bytes are in the set.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|known| known.end - known.start).sum()
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<T: IntoIterator<Item = Range<u64>>>(ranges: T) -> Self {
        let mut set = Self::default();
        ranges.into_iter().for_each(|range| set.add(range));
        set
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // lists of ranges are what is meant
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        for (added, expected) in [
            (vec![0..5, 5..9], vec![0..9]),
            (vec![5..9, 0..5], vec![0..9]),
            (vec![0..2, 4..6, 8..9, 1..8], vec![0..9]),
            (vec![4..6, 0..2, 3..3], vec![0..2, 4..6]),
            (vec![0..9, 2..3], vec![0..9]),
        ] {
            assert_eq!(added.into_iter().collect::<RangeSet>().0, expected);
        }
    }

    #[test]
    fn removed_ranges_are_not_in_the_set() {
        for (removed, expected) in [
            (0..1, vec![2..4, 6..9]),
            (2..4, vec![6..9]),
            (3..7, vec![2..3, 7..9]),
            (7..8, vec![2..4, 6..7, 8..9]),
            (0..20, vec![]),
        ] {
            let mut set: RangeSet = [2..4, 6..9].into_iter().collect();
            set.remove(&removed);
            assert_eq!(set.0, expected, "{removed:?}");
        }
    }

    #[test]
    fn holes_are_found() {
        let set: RangeSet = [2..4, 6..9].into_iter().collect();
        let ends: Vec<_> = (0..10).map(|at| set.end_of(at)).collect();
        let nine = Some(9);
        assert_eq!(ends, [None, None, Some(4), Some(4), None, None, nine, nine, nine, None]);
        assert_eq!(set.next_start(0), Some(2));
        assert_eq!(set.next_start(3), Some(3));
        assert_eq!(set.next_start(4), Some(6));
        assert_eq!(set.next_start(9), None);
        assert_eq!((set.hole_start(0), set.hole_start(5), set.hole_start(20)), (0, 4, 9));
        assert_eq!(set.missing_in(&(3..11)), [4..6, 9..11]);
        assert_eq!(set.missing_in(&(2..4)), []);
        assert_eq!((set.count(), set.count_in(&(3..7)), set.count_in(&(9..20))), (5, 2, 0));
    }
}
