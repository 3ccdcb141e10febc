//! Maps the source and lets the kernel copy from the mapping: one crossing instead of two.
//!
//! The process itself never reads the mapping, so truncating the file meanwhile makes a system call
//! fail with `EFAULT` instead of killing the process with `SIGBUS`.

use rustix::fs::fstat;
use rustix::io::Errno;
use underpass_sys::Kind;
use underpass_sys::{MappedSink, Mapping};

use super::StepMeter;
use crate::mechanisms::step::{DeclineReason, Ends, Step, Wait};

/// The mapped part of the source.
#[derive(Debug, Default)]
pub(crate) struct Mmap {
    window: Option<Window>,
}

#[derive(Debug)]
struct Window {
    mapping: Mapping,
    from: u64,
    to: u64,
}

impl Mmap {
    /// Writes at most `len` bytes from the mapping. `EFAULT` means that the file has become
    /// shorter than requested.
    pub(crate) fn step(
        &mut self,
        ends: &Ends<'_>,
        len: usize,
        meter: &mut StepMeter,
    ) -> Result<Step, Errno> {
        // Only a regular file's size is the number of bytes that can be read: procfs and disks
        // report 0.
        let Some(at) = ends.source_at.filter(|_| ends.source_kind == Kind::Regular) else {
            return Ok(Step::Declined(DeclineReason::UnsuitableEnds));
        };
        // Past the end of the file, up to the end of the page, a mapping reads as zeros that are
        // not the file's, so the length is checked before and after the kernel has read it.
        let len = remaining(ends, at)?.min(len as u64);
        if len == 0 {
            return Ok(Step::Eof);
        }
        let window = match self.window(ends, at, len) {
            Ok(window) => window,
            Err(errno) if declines(errno) => {
                return Ok(Step::Declined(DeclineReason::Errno(errno)));
            }
            Err(errno) => return Err(errno),
        };
        let len = usize::try_from(len.min(window.to - at)).unwrap_or(usize::MAX);
        let start = usize::try_from(at - window.from).unwrap_or(usize::MAX);
        let more = ends.is_more_after(len);
        let to = MappedSink::new(ends.sink_kind, ends.sink_at, more);
        meter.calls += 1;
        match window.mapping.write(start, len, ends.sink, to) {
            Ok(bytes) => {
                meter.user_space_bytes += bytes as u64;
                if remaining(ends, at)? >= bytes as u64 {
                    Ok(Step::moved(bytes))
                } else {
                    // Zeros past the new end were delivered. They must not count as the file's
                    // bytes, even if it grows again, so this is final.
                    Err(Errno::FAULT)
                }
            }
            Err(Errno::AGAIN) => Ok(Step::NotReady(Wait::Sink)),
            // The page exists but could not be read from disk.
            Err(Errno::FAULT) if remaining(ends, at)? >= len as u64 => Err(Errno::IO),
            Err(errno) => Err(errno),
        }
    }

    /// Returns the window that contains the byte at `at`, mapped again if necessary.
    fn window(&mut self, ends: &Ends<'_>, at: u64, len: u64) -> Result<&Window, Errno> {
        let held = self.window.take().filter(|window| (window.from..window.to).contains(&at));
        let window = match held {
            Some(window) => window,
            None => {
                let from = at / ALIGNMENT * ALIGNMENT;
                let size = usize::try_from((at - from + len).max(WINDOW));
                let size = size.map_err(|_| Errno::OVERFLOW)?;
                let mapping = Mapping::new(ends.source, from, size)?;
                Window { mapping, from, to: from + size as u64 }
            }
        };
        Ok(self.window.insert(window))
    }
}

/// Returns how many bytes the source has from `at` on.
fn remaining(ends: &Ends<'_>, at: u64) -> Result<u64, Errno> {
    let size = fstat(ends.source)?.st_size;
    Ok(u64::try_from(size).unwrap_or(0).saturating_sub(at))
}

/// Returns whether this error of mmap(2) means "not for this source" rather than "it failed".
pub(crate) fn declines(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ACCESS // the source is not a regular file, or a security module's answer
            | Errno::AGAIN // too much memory is locked
            | Errno::INVAL // offset or length that this source cannot map
            | Errno::NODEV // a file system that maps no files
            | Errno::NOMEM // RLIMIT_AS or max_map_count is reached
            | Errno::NOSYS // a seccomp filter
            | Errno::OPNOTSUPP // some FUSE file systems
            | Errno::OVERFLOW // offset and length beyond what can be mapped
            | Errno::PERM // sealed, or a container's seccomp filter
    )
}

/// Large enough that the cost of mapping is negligible, small enough for any address space.
const WINDOW: u64 = 64 << 20;

/// A multiple of the page size of every architecture that Linux runs on.
const ALIGNMENT: u64 = 64 << 10;
