//! The parts of files that wait for their rest, with their owners and ages. After a restart they
//! are found again by searching the folders.

use std::collections::{BTreeMap, HashMap};
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
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct WaitingPart {
    owner: [u8; 4],
    age: (SystemTime, u64),
}

impl UnfinishedParts {
    /// Adds a part that has waited since then. Returns parts that are now too many, and forgets
    /// them.
    pub(crate) fn insert(&self, path: Vec<u8>, owner: [u8; 4], since: SystemTime) -> Vec<Vec<u8>> {
        let mut parts = lock(&self.0);
        parts.remove(&path);
        let age = (since, parts.next);
        parts.next += 1;
        parts.by_age.insert(age, path.clone());
        parts.by_path.insert(path, WaitingPart { owner, age });
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

    /// Returns whether a part has waited for longer than this.
    pub(crate) fn is_due(&self, expiry: Duration) -> bool {
        let parts = lock(&self.0);
        parts.by_age.first_key_value().is_some_and(|((since, _), _)| has_passed(*since, expiry))
    }

    /// Takes a part that has waited for longer than this.
    pub(crate) fn take_due(&self, expiry: Duration) -> Option<Vec<u8>> {
        let mut parts = lock(&self.0);
        let entry = parts.by_age.first_entry().filter(|it| has_passed(it.key().0, expiry))?;
        let path = entry.get().clone();
        parts.remove(&path);
        Some(path)
    }
}

impl PartsIndex {
    fn remove(&mut self, path: &[u8]) {
        let Some(WaitingPart { owner, age }) = self.by_path.remove(path) else { return };
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
            assert!(waiting.insert(path(number), [1; 4], NOW(number as u64)).is_empty());
        }
        assert!(waiting.insert(b"other".to_vec(), [2; 4], NOW(0)).is_empty());
        // A part that is inserted again counts once.
        assert!(waiting.insert(path(5), [1; 4], NOW(500)).is_empty());
        assert_eq!(waiting.insert(path(1000), [1; 4], NOW(1000)), [path(0)]);
        waiting.remove(&path(1));
        assert!(waiting.insert(path(1001), [1; 4], NOW(1000)).is_empty());
    }

    #[test]
    fn many_owners_leave_room_for_those_with_few() {
        let waiting = UnfinishedParts::default();
        let path = |number: usize| number.to_string().into_bytes();
        assert!(waiting.insert(b"kept".to_vec(), [0; 4], NOW(0)).is_empty());
        let mut surplus = Vec::new();
        for number in 0..MAX_PARTS + 10 {
            let owner = [1, (number % 64) as u8, 0, 0];
            surplus.extend(waiting.insert(path(number), owner, NOW(1 + number as u64)));
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
        let _ = waiting.insert(b"new".to_vec(), [1; 4], SystemTime::now());
        let _ = waiting.insert(b"old".to_vec(), [1; 4], old);
        assert!(!waiting.is_due(Duration::from_secs(1000)));
        assert!(waiting.is_due(Duration::from_secs(50)));
        assert_eq!(waiting.take_due(Duration::from_secs(50)), Some(b"old".to_vec()));
        assert_eq!(waiting.take_due(Duration::from_secs(50)), None);
    }
}
