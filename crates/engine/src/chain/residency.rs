//! Checks whether part of a file is in the page cache, so that a step would not wait for a disk.

use std::io::IoSliceMut;
use std::os::fd::AsFd;

use rustix::io::{Errno, ReadWriteFlags, preadv2};
use underpass_sys as sys;

/// Returns whether `len` bytes of a regular file from `offset` are in the page cache.
///
/// cachestat(2) sees every page. Where it is refused (before Linux 6.5, or for a file that the
/// caller neither owns nor may write to), one byte is read without waiting (preadv2(2),
/// `RWF_NOWAIT`) every 64 KiB, about the kernel's read-ahead window; pages evicted between two such
/// offsets are missed. A file system that supports neither call either holds its files in memory,
/// as tmpfs does, or cannot tell: both count as resident.
pub fn is_resident(file: impl AsFd, offset: u64, len: u64) -> bool {
    if len == 0 {
        return true;
    }
    match sys::cached(file.as_fd(), offset, len) {
        Ok(cached) => cached >= len,
        Err(_) => places(offset, len).all(|at| is_byte_resident(&file, at)),
    }
}

/// Returns whether no byte of the range is in the page cache, determined as by [`is_resident`].
pub fn is_absent(file: impl AsFd, offset: u64, len: u64) -> bool {
    if len == 0 {
        return true;
    }
    match sys::cached(file.as_fd(), offset, len) {
        Ok(cached) => cached == 0,
        Err(_) => !places(offset, len).any(|at| is_byte_resident(&file, at)),
    }
}

/// Returns the offsets of a range that are probed: the first, every 64 KiB, the last.
fn places(offset: u64, len: u64) -> impl Iterator<Item = u64> {
    (offset..offset + len).step_by(PROBE_INTERVAL).chain([offset + len - 1])
}

/// Returns whether the page of one byte can be read without waiting.
fn is_byte_resident(file: impl AsFd, at: u64) -> bool {
    let mut byte = [0];
    let read = preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT);
    read != Err(Errno::AGAIN)
}

/// Bytes between two probes.
const PROBE_INTERVAL: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_probed_at_both_ends_and_between() {
        assert_eq!(places(10, 1).collect::<Vec<_>>(), [10, 10]);
        assert_eq!(places(0, 65_537).collect::<Vec<_>>(), [0, 65_536, 65_536]);
        assert_eq!(places(5, 150_000).collect::<Vec<_>>(), [5, 65_541, 131_077, 150_004]);
    }
}
