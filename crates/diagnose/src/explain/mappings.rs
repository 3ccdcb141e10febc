//! The parts of a process' memory that are mapped files. They distinguish a write from a mapped
//! file from a write of bytes that were read before.
//!
//! Every mapping of a file is made by mmap(2), which is traced, as are all calls that end one.
//! Mappings that the kernel makes when it starts a program are left out: programs and libraries
//! do not count as data, so that a constant of a program is not mistaken for the contents of a
//! file.

use std::collections::{BTreeMap, HashSet};

use super::descriptors::DescriptorId;

/// The parts of one process' memory that are files.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings {
    /// End and file by start.
    parts: BTreeMap<u64, (u64, DescriptorId)>,
    /// Files that are programs or libraries.
    code: HashSet<DescriptorId>,
}

impl Mappings {
    /// Records that `len` bytes from `start` map a part of a file from now on.
    pub(super) fn insert(&mut self, start: u64, len: u64, file: DescriptorId) {
        self.remove(start, len);
        self.parts.insert(start, (start.saturating_add(whole_pages(len)), file));
    }

    /// Records that a file is a program or library.
    pub(super) fn mark_code(&mut self, file: DescriptorId) {
        self.code.insert(file);
    }

    /// Records that `len` bytes from `start` no longer map a file.
    pub(super) fn remove(&mut self, start: u64, len: u64) {
        let end = start.saturating_add(whole_pages(len));
        let touched: Vec<_> = self
            .parts
            .range(..end)
            .rev()
            .take_while(|(_, (its_end, _))| *its_end > start)
            .map(|(its_start, (its_end, file))| (*its_start, *its_end, *file))
            .collect();
        for (its_start, its_end, file) in touched {
            self.parts.remove(&its_start);
            if its_start < start {
                self.parts.insert(its_start, (start, file));
            }
            if its_end > end {
                self.parts.insert(end, (its_end, file));
            }
        }
    }

    /// Returns the file that is mapped at an address, including programs and libraries.
    pub(super) fn at(&self, address: u64) -> Option<DescriptorId> {
        let (_, (end, file)) = self.parts.range(..=address).next_back()?;
        (*end > address).then_some(*file)
    }

    /// Returns whether a file that is not a program is mapped at an address.
    pub(super) fn is_data(&self, address: u64) -> bool {
        self.at(address).is_some_and(|file| !self.code.contains(&file))
    }

    /// Returns whether any data of a file is mapped.
    pub(super) fn has_data(&self) -> bool {
        self.parts.values().any(|(_, file)| !self.code.contains(file))
    }
}

fn whole_pages(len: u64) -> u64 {
    len.checked_next_multiple_of(rustix::param::page_size() as u64).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 65_536;

    fn file(number: u64) -> DescriptorId {
        DescriptorId::numbered(number)
    }

    #[test]
    fn a_part_can_be_cut_out_of_the_middle() {
        let mut mappings = Mappings::default();
        let page = rustix::param::page_size() as u64;
        mappings.insert(10 * page, 10 * page, file(1));
        mappings.remove(12 * page, 1);
        assert_eq!(mappings.at(10 * page), Some(file(1)));
        assert_eq!(mappings.at(12 * page - 1), Some(file(1)));
        assert_eq!(mappings.at(12 * page), None);
        assert_eq!(mappings.at(13 * page - 1), None);
        assert_eq!(mappings.at(13 * page), Some(file(1)));
        assert_eq!(mappings.at(20 * page - 1), Some(file(1)));
        assert_eq!(mappings.at(20 * page), None);
        assert_eq!(mappings.at(9 * page), None);
    }

    #[test]
    fn a_new_mapping_replaces_several_old_ones() {
        let mut mappings = Mappings::default();
        let page = rustix::param::page_size() as u64;
        for index in 0..5 {
            mappings.insert(index * 2 * page, page, file(index));
        }
        mappings.insert(page, 6 * page, file(9));
        assert_eq!(mappings.at(0), Some(file(0)));
        for index in 1..7 {
            assert_eq!(mappings.at(index * page), Some(file(9)), "{index}");
        }
        assert_eq!(mappings.at(8 * page), Some(file(4)));
    }

    #[test]
    fn mapped_programs_and_libraries_do_not_count_as_data() {
        let mut mappings = Mappings::default();
        mappings.insert(PAGE * 16, PAGE, file(1));
        assert!(mappings.is_data(PAGE * 16) && mappings.has_data());
        mappings.mark_code(file(1));
        assert!(!mappings.is_data(PAGE * 16) && !mappings.has_data());
        assert_eq!(mappings.at(PAGE * 16), Some(file(1)));
    }
}
