//! The state of a process and its threads while they run.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use super::calls::{MemoryArguments, WatchedCall};
use super::descriptors::{CallEnd, DescriptorId};
use super::ledger::{MemoryKind, MemorySplit};
use super::mappings::Mappings;
use crate::procfs::field;

/// A traced process.
#[derive(Debug, Default)]
pub(super) struct TracedProcess {
    /// The parts of its memory that are files.
    pub(super) mappings: Mappings,
}

/// A traced thread.
#[derive(Debug)]
pub(super) struct TracedThread {
    /// Its process.
    pub(super) process: u32,
    /// The traced system call that it is in, if any.
    pub(super) pending: Option<PendingCall>,
}

/// A system call that has begun.
#[derive(Debug)]
pub(super) struct PendingCall {
    /// The system call.
    pub(super) known: &'static WatchedCall,
    pub(super) arguments: [u64; 6],
    /// Its arguments.
    pub(super) subject: CallSubject,
}

/// The arguments of a system call, as looked up when it began.
#[derive(Debug)]
pub(super) enum CallSubject {
    /// Copies between an end and these parts of memory.
    Cross(CallEnd, Vec<MemoryRange>),
    /// Moves between two ends; `whole` is how many bytes a reflink shares.
    Move { from: CallEnd, to: CallEnd, whole: u64 },
    /// Maps this file, or memory alone.
    Map(Option<DescriptorId>),
    /// Only its arguments.
    Plain,
}

/// A part of memory that is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryRange {
    /// The number of bytes that fit.
    len: u64,
    /// Whether it is a part of a file.
    is_mapped: bool,
}

/// Returns the process of a thread and that process' parent.
pub(super) fn family(tid: u32) -> Option<(u32, u32)> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let number = |name: &str| field(&status, name)?.parse().ok();
    Some((number("Tgid")?, number("PPid")?))
}

/// Returns the parts of memory that the second and third argument of a call name.
///
/// Memory is read only if some of it may be part of a file, or if the lengths matter (`is_exact`).
pub(super) fn parts(
    tid: u32,
    mappings: &Mappings,
    memory: MemoryArguments,
    arguments: &[u64; 6],
    is_exact: bool,
) -> Vec<MemoryRange> {
    let [_, address, count, ..] = *arguments;
    let part = |address: u64, len: u64| MemoryRange { len, is_mapped: mappings.is_data(address) };
    match memory {
        MemoryArguments::Buffer => vec![part(address, count)],
        _ if !mappings.has_data() && !is_exact => {
            vec![MemoryRange { len: u64::MAX, is_mapped: false }]
        }
        MemoryArguments::Vector => vector(tid, address, count, part),
        MemoryArguments::Message => message(tid, address, part),
        MemoryArguments::Messages => {
            let messages = 0..count.min(MAX_PARTS);
            messages.flat_map(|index| message(tid, address + index * MMSGHDR, part)).collect()
        }
    }
}

/// Returns the parts of an array of `iovec`.
fn vector(
    tid: u32,
    address: u64,
    count: u64,
    part: impl Fn(u64, u64) -> MemoryRange,
) -> Vec<MemoryRange> {
    let count = count.min(MAX_PARTS) as usize;
    let words = words(tid, address, 2 * count).unwrap_or_default();
    words.chunks_exact(2).map(|pair| part(pair[0], pair[1])).collect()
}

/// Returns the parts of a `msghdr`, whose third and fourth words are an array of `iovec`.
fn message(tid: u32, address: u64, part: impl Fn(u64, u64) -> MemoryRange) -> Vec<MemoryRange> {
    match words(tid, address, 4).as_deref() {
        Some([_, _, vectors, count]) => vector(tid, *vectors, *count, part),
        _ => Vec::new(),
    }
}

/// Returns the sum of the lengths of messages that recvmmsg(2) or sendmmsg(2) has moved. With
/// `is_cut` the kernel returns the whole length of one that was cut off.
pub(super) fn message_bytes(tid: u32, address: u64, count: u64, is_cut: bool) -> u64 {
    let part = |_, len| MemoryRange { len, is_mapped: false };
    let lengths = (0..count.min(MAX_PARTS)).filter_map(|index| {
        let header = address + index * MMSGHDR;
        let length = words(tid, header + MSGHDR, 1)?;
        // An unsigned int, followed by padding.
        let length = length.first()? & 0xffff_ffff;
        Some(if is_cut { length.min(room(&message(tid, header, part))) } else { length })
    });
    lengths.sum()
}

/// Reads words of a thread's memory.
pub(super) fn words(tid: u32, address: u64, count: usize) -> Option<Vec<u64>> {
    let memory = File::open(format!("/proc/{tid}/mem")).ok()?;
    let mut bytes = vec![0; 8 * count];
    memory.read_exact_at(&mut bytes, address).ok()?;
    let words = bytes.chunks_exact(8).map(|word| {
        u64::from_ne_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]])
    });
    Some(words.collect())
}

/// Returns the sum of the lengths of some parts.
pub(super) fn room(parts: &[MemoryRange]) -> u64 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(part.len))
}

/// Splits bytes over the parts that they were in, from the first on.
pub(super) fn split(parts: &[MemoryRange], bytes: u64) -> MemorySplit {
    let mut split = MemorySplit::default();
    if parts.first().is_some_and(|part| part.is_mapped) {
        split.tried = MemoryKind::Mapping;
    }
    let mut left = bytes;
    for part in parts {
        let its = left.min(part.len);
        left -= its;
        if part.is_mapped {
            split.mapped += its;
        } else {
            split.plain += its;
        }
    }
    split.plain += left;
    split
}

/// `IOV_MAX`: the kernel accepts no more.
const MAX_PARTS: u64 = 1024;

/// Bytes of `msghdr` where pointers have 64 bits.
const MSGHDR: u64 = 56;

/// Bytes of `mmsghdr`: a `msghdr` and a length, padded.
const MMSGHDR: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_fill_the_parts_from_the_first_on() {
        let parts = [
            MemoryRange { len: 10, is_mapped: false },
            MemoryRange { len: 100, is_mapped: true },
            MemoryRange { len: 5, is_mapped: false },
        ];
        let of = |bytes| {
            let MemorySplit { plain, mapped, .. } = split(&parts, bytes);
            (plain, mapped)
        };
        assert_eq!(of(0), (0, 0));
        assert_eq!(of(10), (10, 0));
        assert_eq!(of(60), (10, 50));
        assert_eq!(of(112), (12, 100));
        // Bytes of unknown parts count as the program's own memory.
        assert_eq!(of(200), (100, 100));
    }

    #[test]
    fn memory_of_a_process_can_be_read() {
        let numbers = [7_u64, 8, 9];
        let address = numbers.as_ptr() as u64;
        assert_eq!(words(std::process::id(), address, 3).as_deref(), Some(&numbers[..]));
        assert_eq!(words(std::process::id(), 0, 1), None);
    }

    #[test]
    fn the_family_of_this_process_is_known() {
        let parent = std::os::unix::process::parent_id();
        assert_eq!(family(std::process::id()), Some((std::process::id(), parent)));
    }
}
