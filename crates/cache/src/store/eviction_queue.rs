//! The order in which objects, and extents of large ones, are evicted: S3-FIFO (Yang et al., 2023).
//!
//! New objects enter a small queue, and are evicted from its end unless they are requested again;
//! the others move to the main queue. A scan of everything therefore passes through a tenth of the
//! space and leaves the rest alone. Objects evicted from the small queue are remembered for a
//! while, and enter the main queue if they come back.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::unit::StoredUnit;
use crate::key::KeyDigest;

/// The queues of one cache.
#[derive(Debug, Default)]
pub(crate) struct EvictionQueue {
    /// Sorted, so that the extents of an object are neighbours.
    entries: BTreeMap<StoredUnit, QueueEntry>,
    /// The number of objects; one with several extents counts once.
    objects: u64,
    small: VecDeque<QueueSlot>,
    main: VecDeque<QueueSlot>,
    /// The number of the next slot.
    next_slot: u64,
    small_bytes: u64,
    bytes: u64,
    ghosts: VecDeque<StoredUnit>,
    remembered: HashSet<StoredUnit>,
}

/// A position in a queue. It is void if the unit was removed, or has another slot.
type QueueSlot = (StoredUnit, u64);

#[derive(Debug)]
struct QueueEntry {
    /// The number of its slot.
    slot: u64,
    bytes: u64,
    /// The number of recent uses, at most 3.
    uses: u8,
    is_main: bool,
}

impl EvictionQueue {
    /// Returns the bytes of all objects.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of objects.
    pub(crate) fn objects(&self) -> u64 {
        self.objects
    }

    /// Returns the number of objects and extents.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether an object is in the queues.
    pub(crate) fn has(&self, digest: &KeyDigest) -> bool {
        self.extents(digest).next().is_some()
    }

    /// Returns the units of an object: itself or its extents.
    fn extents(&self, digest: &KeyDigest) -> impl Iterator<Item = StoredUnit> {
        let unit = |extent| StoredUnit { digest: *digest, extent };
        self.entries.range(unit(0)..=unit(u32::MAX)).map(|(unit, _)| *unit)
    }

    /// Records that a unit was used.
    pub(crate) fn touch(&mut self, unit: &StoredUnit) {
        if let Some(entry) = self.entries.get_mut(unit) {
            entry.uses = (entry.uses + 1).min(3);
        }
    }

    /// Adds bytes to a unit, and creates it if necessary.
    pub(crate) fn add(&mut self, unit: &StoredUnit, bytes: u64) {
        let is_main = match self.entries.get(unit) {
            Some(entry) => entry.is_main,
            None => {
                self.objects += u64::from(!self.has(&unit.digest));
                self.remembered.remove(unit)
            }
        };
        let (small, main, slot) = (&mut self.small, &mut self.main, &mut self.next_slot);
        let entry = self.entries.entry(*unit).or_insert_with(|| {
            *slot += 1;
            if is_main { main } else { small }.push_back((*unit, *slot));
            QueueEntry { slot: *slot, bytes: 0, uses: 0, is_main }
        });
        entry.bytes += bytes;
        self.bytes += bytes;
        if !is_main {
            self.small_bytes += bytes;
        }
    }

    /// Removes an object with all its extents; returns its bytes.
    pub(crate) fn remove(&mut self, digest: &KeyDigest) -> u64 {
        let extents: Vec<_> = self.extents(digest).collect();
        extents.iter().map(|unit| self.remove_unit(unit)).sum()
    }

    /// Removes a unit; returns its bytes.
    pub(crate) fn remove_unit(&mut self, unit: &StoredUnit) -> u64 {
        // Its slot is dropped when it reaches the front, or when most slots are void.
        let Some(entry) = self.entries.remove(unit) else { return 0 };
        self.objects -= u64::from(!self.has(&unit.digest));
        self.bytes -= entry.bytes;
        if !entry.is_main {
            self.small_bytes -= entry.bytes;
        }
        if self.small.len() + self.main.len() > 2 * self.entries.len() + MIN_GHOSTS {
            let entries = &self.entries;
            self.small.retain(|slot| is_valid(entries, slot));
            self.main.retain(|slot| is_valid(entries, slot));
        }
        entry.bytes
    }

    /// Returns the unit to evict next, which stays until [`remove_unit`](Self::remove_unit); `None`
    /// if none may be evicted.
    pub(crate) fn next(&mut self, is_pinned: impl Fn(&StoredUnit) -> bool) -> Option<StoredUnit> {
        // The number of pinned units found in each queue.
        let (mut pinned_small, mut pinned_main) = (0, 0);
        // Each unit passes the front at most four times before its uses are used up.
        for _ in 0..4 * self.entries.len() + 4 {
            for queue in [&mut self.small, &mut self.main] {
                while queue.front().is_some_and(|slot| !is_valid(&self.entries, slot)) {
                    queue.pop_front();
                }
            }
            let has_small = pinned_small < self.small.len();
            let has_main = pinned_main < self.main.len();
            let is_small_due = self.small_bytes * SMALL_SHARE >= self.bytes;
            let from_small = has_small && (is_small_due || !has_main);
            if !has_small && !has_main {
                return None;
            }
            let queue = if from_small { &mut self.small } else { &mut self.main };
            let slot = queue.pop_front()?;
            let unit = slot.0;
            let Some(entry) = self.entries.get_mut(&unit) else { continue };
            if is_pinned(&unit) {
                queue.push_back(slot);
                entry.uses = entry.uses.saturating_sub(1);
                *(if from_small { &mut pinned_small } else { &mut pinned_main }) += 1;
            } else if from_small && entry.uses > 1 {
                (entry.uses, entry.is_main) = (0, true);
                self.small_bytes -= entry.bytes;
                self.main.push_back(slot);
            } else if !from_small && entry.uses > 0 {
                entry.uses -= 1;
                self.main.push_back(slot);
            } else {
                queue.push_front(slot);
                if from_small {
                    self.remember(unit);
                }
                return Some(unit);
            }
        }
        None
    }

    /// Remembers a unit that leaves the small queue.
    fn remember(&mut self, unit: StoredUnit) {
        if self.remembered.insert(unit) {
            self.ghosts.push_back(unit);
        }
        while self.ghosts.len() > self.main.len().max(MIN_GHOSTS) {
            if let Some(oldest) = self.ghosts.pop_front() {
                self.remembered.remove(&oldest);
            }
        }
    }
}

/// Returns whether a unit has this slot.
fn is_valid(entries: &BTreeMap<StoredUnit, QueueEntry>, (unit, slot): &QueueSlot) -> bool {
    entries.get(unit).is_some_and(|entry| entry.slot == *slot)
}

/// The small queue's share of all bytes: a tenth.
const SMALL_SHARE: u64 = 10;

/// The minimum number of removed objects that are remembered.
const MIN_GHOSTS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u32) -> KeyDigest {
        let mut digest = [0; 32];
        digest[..4].copy_from_slice(&number.to_le_bytes());
        digest
    }

    fn unit(number: u32) -> StoredUnit {
        StoredUnit { digest: digest(number), extent: 0 }
    }

    fn make_room(queue: &mut EvictionQueue, limit: u64) {
        while queue.bytes() > limit {
            let next = queue.next(|_| false).expect("an object");
            queue.remove_unit(&next);
        }
    }

    #[test]
    fn if_one_queue_is_pinned_the_other_is_evicted_from() {
        let mut queue = EvictionQueue::default();
        queue.add(&unit(1), 1);
        queue.add(&unit(2), 8);
        (0..2).for_each(|_| queue.touch(&unit(2)));
        // The second one moves to the main queue meanwhile.
        assert_eq!(queue.next(|found| *found == unit(1)), Some(unit(2)));
        queue.remove_unit(&unit(1));
        queue.add(&unit(3), 0);
        assert_eq!(queue.next(|found| *found == unit(2)), Some(unit(3)));
        assert_eq!(queue.next(|_| true), None);
    }

    #[test]
    fn a_scan_leaves_what_is_used_often() {
        let mut queue = EvictionQueue::default();
        let hot = 0..90_u32;
        for round in 0..3 {
            for number in hot.clone() {
                match round {
                    0 => queue.add(&unit(number), 1),
                    _ => queue.touch(&unit(number)),
                }
            }
        }
        // Scans ten times the budget.
        for number in 1000..2000 {
            queue.add(&unit(number), 1);
            make_room(&mut queue, 100);
            if number % 4 == 0 {
                queue.touch(&unit(number / 4 % 90));
            }
        }
        let left = hot.filter(|number| queue.has(&digest(*number))).count();
        assert!(left >= 86, "{left} of 90");
        assert_eq!(queue.bytes(), 100);
        assert_eq!(queue.len(), 100);
    }

    #[test]
    fn units_that_return_soon_are_kept_longer() {
        let mut queue = EvictionQueue::default();
        (0..10).for_each(|number| queue.add(&unit(number), 10));
        make_room(&mut queue, 90);
        assert!(!queue.has(&digest(0)));
        queue.add(&unit(0), 10);
        make_room(&mut queue, 20);
        assert!(queue.has(&digest(0)));
    }

    #[test]
    fn removed_units_leave_no_queue_entries() {
        let mut queue = EvictionQueue::default();
        queue.add(&unit(1), 1);
        for _ in 0..10_000 {
            queue.add(&unit(2), 1);
            assert_eq!(queue.remove(&digest(2)), 1);
        }
        assert!(queue.small.len() <= 2 * MIN_GHOSTS, "{}", queue.small.len());
        queue.add(&unit(2), 1);
        queue.add(&unit(3), 1);
        for expected in [1, 2, 3] {
            assert_eq!(queue.next(|_| false), Some(unit(expected)));
            queue.remove(&digest(expected));
        }
        assert_eq!(queue.next(|_| false), None);
    }

    #[test]
    fn pinned_units_are_not_evicted_even_if_all_are_pinned() {
        let mut queue = EvictionQueue::default();
        queue.add(&unit(1), 10);
        queue.add(&unit(2), 10);
        assert_eq!(queue.next(|unit| unit.digest[0] == 1), Some(unit(2)));
        assert_eq!(queue.next(|_| true), None);
        assert_eq!(queue.remove(&digest(1)), 10);
        assert_eq!(queue.remove(&digest(1)), 0);
        assert_eq!(queue.bytes(), 10);
        assert_eq!(EvictionQueue::default().next(|_| false), None);
    }

    #[test]
    fn extents_leave_one_by_one_and_count_as_one_object() {
        let mut queue = EvictionQueue::default();
        let extent = |extent| StoredUnit { extent, ..unit(1) };
        for number in 0..3 {
            queue.add(&extent(number), 10);
        }
        queue.add(&unit(2), 10);
        queue.touch(&extent(0));
        queue.touch(&extent(0));
        assert_eq!((queue.objects(), queue.len(), queue.bytes()), (2, 4, 40));
        assert_eq!(queue.next(|_| false), Some(extent(1)));
        assert_eq!((queue.remove_unit(&extent(1)), queue.objects()), (10, 2));
        assert_eq!((queue.remove(&digest(1)), queue.objects()), (20, 1));
        assert!(!queue.has(&digest(1)) && queue.has(&digest(2)));
    }
}
