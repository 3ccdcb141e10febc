//! The parts of files that wait for their rest, with their owners and ages. After a restart they
//! are found again by searching the folders.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use underpass_engine::wait::lock;

/// The parts that wait for their rest.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedParts(Mutex<PartsIndex>);

#[derive(Debug, Default)]
struct PartsIndex {
    /// The parts by path from the root.
    by_path: HashMap<Vec<u8>, WaitingPart>,
    /// The paths, the oldest first; the number distinguishes parts with the same time.
    by_age: BTreeMap<(SystemTime, u64), Vec<u8>>,
    owners: HashMap<[u8; 4], usize>,
    /// The devices on which a thread is removing a part, which may take forever.
    removing: HashSet<u64>,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct WaitingPart {
    owner: [u8; 4],
    /// The device of its file system.
    device: u64,
    age: (SystemTime, u64),
}

impl UnfinishedParts {
    /// Adds a part, in the file system of this device, that has waited since then. Returns the
    /// parts that are now surplus, and forgets them.
    pub(crate) fn insert(
        &self,
        path: Vec<u8>,
        owner: [u8; 4],
        device: u64,
        since: SystemTime,
    ) -> Vec<Vec<u8>> {
        let mut parts = lock(&self.0);
        parts.remove(&path);
        let age = (since, parts.next);
        parts.next += 1;
        parts.by_age.insert(age, path.clone());
        parts.by_path.insert(path, WaitingPart { owner, device, age });
        *parts.owners.entry(owner).or_default() += 1;
        let mut surplus = Vec::new();
        if parts.owners.get(&owner).is_some_and(|count| *count > MAX_OF_OWNER) {
            surplus.extend(parts.take_oldest(owner));
        }
        if parts.by_path.len() > MAX_PARTS {
            let most = parts.owners.iter().max_by_key(|(_, count)| **count);
            if let Some(owner) = most.map(|(owner, _)| *owner) {
                surplus.extend(parts.take_oldest(owner));
            }
        }
        surplus
    }

    /// Removes a part that no longer waits.
    pub(crate) fn remove(&self, path: &[u8]) {
        lock(&self.0).remove(path);
    }

    /// Returns whether [`take_due`](Self::take_due) would return a part.
    pub(crate) fn is_due(&self, expiry: Duration) -> bool {
        lock(&self.0).due(expiry).is_some()
    }

    /// Takes a part that has waited for longer than this, on a file system with no other taken one.
    pub(crate) fn take_due(&self, expiry: Duration) -> Option<DuePart<'_>> {
        let mut parts = lock(&self.0);
        let (path, device) = parts.due(expiry).map(|(path, device)| (path.to_vec(), device))?;
        parts.remove(&path);
        parts.removing.insert(device);
        Some(DuePart { parts: self, path, device })
    }
}

/// A part that is due, while it is removed.
#[derive(Debug)]
pub(crate) struct DuePart<'u> {
    parts: &'u UnfinishedParts,
    pub(crate) path: Vec<u8>,
    device: u64,
}

impl Drop for DuePart<'_> {
    fn drop(&mut self) {
        lock(&self.parts.0).removing.remove(&self.device);
    }
}

impl PartsIndex {
    /// Returns the path and the device of the part that has waited the longest, and for longer than
    /// this, of a file system of which no thread removes another one.
    fn due(&self, expiry: Duration) -> Option<(&[u8], u64)> {
        let old = self.by_age.iter().take_while(|((since, _), _)| has_passed(*since, expiry));
        let mut old = old.filter_map(|(_, path)| Some((&**path, self.by_path.get(path)?.device)));
        old.find(|(_, device)| !self.removing.contains(device))
    }

    fn remove(&mut self, path: &[u8]) {
        let Some(WaitingPart { owner, age, .. }) = self.by_path.remove(path) else { return };
        self.by_age.remove(&age);
        if let Some(count) = self.owners.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(&owner);
            }
        }
    }

    /// Takes the part of this owner that has waited the longest.
    fn take_oldest(&mut self, owner: [u8; 4]) -> Option<Vec<u8>> {
        let is_theirs =
            |path: &&Vec<u8>| self.by_path.get(*path).is_some_and(|part| part.owner == owner);
        let path = self.by_age.values().find(is_theirs)?.clone();
        self.remove(&path);
        Some(path)
    }
}

fn has_passed(since: SystemTime, expiry: Duration) -> bool {
    SystemTime::now().duration_since(since).unwrap_or_default() >= expiry
}

/// The maximum number of waiting parts of one user, or of one address for clients without a user.
const MAX_OF_OWNER: usize = 128;

/// The maximum number of waiting parts. Their paths take at most 32 MiB, and seldom more than one.
pub(super) const MAX_PARTS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: fn(u64) -> SystemTime =
        |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);

    #[test]
    fn one_owner_keeps_the_newest_parts() {
        let waiting = UnfinishedParts::default();
        let path = |number: usize| format!("folder/{number}").into_bytes();
        for number in 0..MAX_OF_OWNER {
            assert!(waiting.insert(path(number), [1; 4], 0, NOW(number as u64)).is_empty());
        }
        assert!(waiting.insert(b"other".to_vec(), [2; 4], 0, NOW(0)).is_empty());
        // A part that is inserted again counts once.
        assert!(waiting.insert(path(5), [1; 4], 0, NOW(500)).is_empty());
        assert_eq!(waiting.insert(path(1000), [1; 4], 0, NOW(1000)), [path(0)]);
        waiting.remove(&path(1));
        assert!(waiting.insert(path(1001), [1; 4], 0, NOW(1000)).is_empty());
    }

    #[test]
    fn many_owners_leave_room_for_those_with_few() {
        let waiting = UnfinishedParts::default();
        let path = |number: usize| number.to_string().into_bytes();
        assert!(waiting.insert(b"kept".to_vec(), [0; 4], 0, NOW(0)).is_empty());
        let mut surplus = Vec::new();
        for number in 0..MAX_PARTS + 10 {
            let owner = [1, (number % 64) as u8, 0, 0];
            surplus.extend(waiting.insert(path(number), owner, 0, NOW(1 + number as u64)));
        }
        assert_eq!(surplus.len(), 11);
        assert!(!surplus.contains(&b"kept".to_vec()));
        assert_eq!(lock(&waiting.0).by_path.len(), MAX_PARTS);
        assert_eq!(lock(&waiting.0).by_age.len(), MAX_PARTS);
    }

    #[test]
    fn parts_are_due_in_the_order_in_which_they_began_to_wait() {
        let waiting = UnfinishedParts::default();
        let old = SystemTime::now() - Duration::from_secs(100);
        let _ = waiting.insert(b"new".to_vec(), [1; 4], 0, SystemTime::now());
        let _ = waiting.insert(b"old".to_vec(), [1; 4], 0, old);
        assert!(!waiting.is_due(Duration::from_secs(1000)));
        let due =
            |seconds| waiting.take_due(Duration::from_secs(seconds)).map(|it| it.path.clone());
        assert!(waiting.is_due(Duration::from_secs(50)));
        assert_eq!(due(50), Some(b"old".to_vec()));
        assert_eq!(due(50), None);
    }

    #[test]
    fn one_part_of_a_file_system_is_removed_at_a_time() {
        let waiting = UnfinishedParts::default();
        for (path, device) in [(b"a", 1), (b"b", 1), (b"c", 2)] {
            let _ = waiting.insert(path.to_vec(), [1; 4], device, NOW(0));
        }
        let due = || waiting.take_due(Duration::ZERO);
        let (first, other) = (due().unwrap(), due().unwrap());
        assert_eq!((&*first.path, &*other.path), (&b"a"[..], &b"c"[..]));
        assert!(!waiting.is_due(Duration::ZERO) && due().is_none());
        drop(other);
        assert!(due().is_none());
        drop(first);
        assert_eq!(due().unwrap().path, b"b");
    }
}
