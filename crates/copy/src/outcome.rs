//! The outcome of a copy, counted by its threads and added up at the end.

use std::path::PathBuf;

use rustix::fs::Stat;
use underpass_engine::{Kind, Report, Usage};

use crate::error::CopyError;

/// The outcome of a copy, with its problems.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CopyOutcome {
    /// The totals.
    pub totals: CopyTotals,
    /// The reasons why entries were not copied; at most 1,000.
    pub problems: Vec<CopyError>,
    /// The number of problems.
    pub problem_count: usize,
    /// The first file that was written in place because it could not be replaced.
    pub in_place: Option<PathBuf>,
    /// The first file that was copied again because it changed during the copy.
    pub copied_again: Option<PathBuf>,
    /// The number of threads that copied.
    pub jobs: usize,
}

/// Counts of the copied entries and bytes, and of the mechanisms. The names of the counts in JSON
/// are stable.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CopyTotals {
    /// Files that were copied.
    pub files: u64,
    /// The distinct kinds of the sources of these files, unless folders were copied.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub source_kinds: Vec<Kind>,
    /// Folders that were walked.
    pub folders: u64,
    /// The number of symbolic links that were created.
    pub links: u64,
    /// Hard links that were made to files copied before.
    pub hard_links: u64,
    /// Devices, FIFOs and sockets.
    pub specials: u64,
    /// Files that were left as they were, for [`CopyOptions::existing`](crate::CopyOptions).
    pub kept: u64,
    /// Files that an earlier run had copied.
    pub resumed: u64,
    /// Bytes that an earlier run had copied.
    pub resumed_bytes: u64,
    /// Entries that were left out.
    pub excluded: u64,
    /// Files and folders that were removed because the sources do not have them.
    pub deleted: u64,
    /// Bytes of holes, which were not copied.
    pub hole_bytes: u64,
    /// Copies that were compared with their originals.
    pub verified: u64,
    /// Bytes of the copies that were compared.
    pub verified_bytes: u64,
    /// Copies whose owner could not be kept.
    pub without_owner: u64,
    /// Copies of which an extended attribute or ACL could not be kept.
    pub without_attributes: u64,
    /// Files that were written in place because they could not be replaced.
    pub in_place: u64,
    /// Files that were copied twice because they changed during the copy.
    pub copied_again: u64,
    /// Further names of files that became separate copies because they could not be linked.
    pub links_copied: u64,
    /// The copied files by file systems.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub systems: Vec<BetweenSystems>,
    /// The resources that the threads used.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub usage: Usage,
}

/// The files copied from one type of file system to another.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BetweenSystems {
    /// The type of the originals' file system, such as `ext4`.
    pub from: &'static str,
    /// The type of the copies' file system.
    pub to: &'static str,
    /// Files that were copied.
    pub files: u64,
    /// The mechanisms that moved their bytes.
    pub report: Report,
}

impl CopyTotals {
    /// Counts an entry of an earlier run that is kept.
    pub(crate) fn count_resumed(&mut self, stat: &Stat) {
        self.resumed += 1;
        self.resumed_bytes += u64::try_from(stat.st_size).unwrap_or(0);
    }

    /// Notes the kind of a source that is read.
    pub(crate) fn count_source(&mut self, kind: Kind) {
        if !self.source_kinds.contains(&kind) {
            self.source_kinds.push(kind);
        }
    }

    /// Returns the counts of the files copied from one type of file system to another.
    pub(crate) fn between(&mut self, from: &'static str, to: &'static str) -> &mut BetweenSystems {
        let known = self.systems.iter().position(|each| (each.from, each.to) == (from, to));
        let at = known.unwrap_or_else(|| {
            self.systems.push(BetweenSystems { from, to, ..BetweenSystems::default() });
            self.systems.len() - 1
        });
        &mut self.systems[at]
    }

    /// Adds what another thread has done.
    pub(crate) fn add(&mut self, other: &Self) {
        self.files += other.files;
        other.source_kinds.iter().for_each(|kind| self.count_source(*kind));
        self.folders += other.folders;
        self.links += other.links;
        self.hard_links += other.hard_links;
        self.specials += other.specials;
        self.kept += other.kept;
        self.resumed += other.resumed;
        self.resumed_bytes += other.resumed_bytes;
        self.excluded += other.excluded;
        self.deleted += other.deleted;
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

    /// Returns how all bytes were moved.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut sum = Report::default();
        for each in &self.systems {
            sum.add(&each.report);
        }
        sum
    }
}
