//! What was done, counted by the thread that did it and added up at the end.

use rustix::fs::Stat;
use underpass_engine::{Report, Usage};

/// What one thread has done.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) files: u64,
    pub(super) folders: u64,
    pub(super) links: u64,
    pub(super) hard_links: u64,
    pub(super) specials: u64,
    /// Left as they were: by `--no-clobber` and `--update`.
    pub(super) kept: u64,
    /// Left as they were, because an earlier run had copied them.
    pub(super) resumed: u64,
    pub(super) resumed_bytes: u64,
    pub(super) excluded: u64,
    /// Bytes of holes, which were not copied.
    pub(super) hole_bytes: u64,
    pub(super) verified: u64,
    pub(super) verified_bytes: u64,
    /// Files whose owner could not be kept.
    pub(super) without_owner: u64,
    /// Files of which an extended attribute or ACL could not be kept.
    pub(super) without_attributes: u64,
    /// Files that were written in place because they could not be replaced.
    pub(super) in_place: u64,
    /// Files that were copied twice because they changed meanwhile.
    pub(super) copied_again: u64,
    /// Further names that were copied because they could not be linked.
    pub(super) links_copied: u64,
    pub(super) systems: Vec<Between>,
    pub(super) usage: Usage,
}

/// What went from one sort of file system to another.
#[derive(Debug, Default)]
pub(super) struct Between {
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    pub(super) files: u64,
    pub(super) report: Report,
}

impl Totals {
    /// Counts what an earlier run has made, and stays.
    pub(super) fn count_resumed(&mut self, stat: &Stat) {
        self.resumed += 1;
        self.resumed_bytes += u64::try_from(stat.st_size).unwrap_or(0);
    }

    /// Where to count what goes between two file systems.
    pub(super) fn between(&mut self, from: &'static str, to: &'static str) -> &mut Between {
        let known = self.systems.iter().position(|each| (each.from, each.to) == (from, to));
        let at = known.unwrap_or_else(|| {
            self.systems.push(Between { from, to, ..Between::default() });
            self.systems.len() - 1
        });
        &mut self.systems[at]
    }

    /// Adds what another thread has done.
    pub(super) fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.folders += other.folders;
        self.links += other.links;
        self.hard_links += other.hard_links;
        self.specials += other.specials;
        self.kept += other.kept;
        self.resumed += other.resumed;
        self.resumed_bytes += other.resumed_bytes;
        self.excluded += other.excluded;
        self.hole_bytes += other.hole_bytes;
        self.verified += other.verified;
        self.verified_bytes += other.verified_bytes;
        self.without_owner += other.without_owner;
        self.without_attributes += other.without_attributes;
        self.in_place += other.in_place;
        self.copied_again += other.copied_again;
        self.links_copied += other.links_copied;
        self.usage = self.usage + other.usage;
        for each in &other.systems {
            let mine = self.between(each.from, each.to);
            mine.files += each.files;
            mine.report.add(&each.report);
        }
    }

    /// What all transfers came to.
    pub(super) fn report(&self) -> Report {
        let mut sum = Report::default();
        for each in &self.systems {
            sum.add(&each.report);
        }
        sum
    }
}
