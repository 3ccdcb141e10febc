//! Counts whole downloads: those in one response, and those that a client fetches in parts.

use std::collections::HashMap;

use crate::access_log::{AccessEntry, BodyPart};

/// The parts that clients have received of what they download.
#[derive(Debug, Default)]
pub struct PartialDownloads {
    /// By the address of the client.
    clients: HashMap<String, Coverage>,
}

impl PartialDownloads {
    /// Adds a response, and returns whether its client now has all of a file or an archive. Of a
    /// response that broke off, the bytes count that the client's kernel has acknowledged.
    pub fn completes(&mut self, entry: &AccessEntry) -> bool {
        let Some(part) = &entry.part else { return false };
        if entry.verb != "GET" || !matches!(entry.status, 200 | 206) {
            return false;
        }
        let got = if entry.is_complete { entry.body_len } else { entry.acknowledged };
        if self.clients.len() >= MAX_CLIENTS && !self.clients.contains_key(&entry.peer) {
            self.clients.clear();
        }
        let coverage = self.clients.entry(entry.peer.clone()).or_default();
        let is_whole = coverage.add(part, got);
        if is_whole {
            self.clients.remove(&entry.peer);
        }
        is_whole && (entry.is_complete || got > 0)
    }
}

/// The parts of a file that one client has received.
#[derive(Debug, Default)]
struct Coverage {
    whole: u64,
    /// The number of the version that the parts belong to.
    version: u64,
    /// Begin and end of each part in bytes, in order and without overlaps.
    parts: Vec<(u64, u64)>,
}

impl Coverage {
    /// Adds a part, and returns whether nothing is missing any more.
    fn add(&mut self, part: &BodyPart, got: u64) -> bool {
        let &BodyPart { start, whole, version, .. } = part;
        if (self.whole, self.version) != (whole, version) || self.parts.len() >= MAX_PARTS {
            *self = Self { whole, version, parts: Vec::new() };
        }
        self.parts.push((start, start + got));
        self.parts.sort_unstable();
        self.parts = self.parts.iter().fold(Vec::new(), |mut merged, &(from, to)| {
            match merged.last_mut() {
                Some((_, end)) if from <= *end => *end = to.max(*end),
                _ => merged.push((from, to)),
            }
            merged
        });
        self.parts == [(0, whole)]
    }
}

/// The maximum number of clients whose parts are remembered; beyond it, all start over.
const MAX_CLIENTS: usize = 1000;

/// The maximum number of remembered parts of a client's file; beyond it, counting starts over.
const MAX_PARTS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_a_whole() {
        let mut coverage = Coverage::default();
        let mut add = |(whole, version), from, to| {
            let part = BodyPart { start: from, whole, version, is_archive: false };
            coverage.add(&part, to - from)
        };
        assert!(!add((10, 1), 0, 4));
        assert!(!add((10, 1), 6, 10));
        assert!(!add((10, 1), 7, 9));
        assert!(add((10, 1), 3, 6));
        // Another size is another file, and another version of the same size too.
        assert!(!add((11, 1), 4, 11));
        assert!(!add((11, 2), 0, 4));
        assert!(add((11, 2), 4, 11));
        assert!(add((0, 3), 0, 0));
    }
}
