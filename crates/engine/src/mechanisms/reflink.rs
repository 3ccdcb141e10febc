//! Shares the source's blocks with the sink, for files of one file system that supports it (XFS,
//! btrfs).
//!
//! The range is always the exact remainder, never the whole source: if the source has grown since
//! its length was promised, the kernel refuses instead of cloning too much.

use rustix::io::Errno;

use super::StepMeter;
use crate::mechanisms::step::{DeclineReason, Ends, Step};

/// Clones the whole remainder in one call.
pub(crate) fn step(ends: &Ends<'_>, meter: &mut StepMeter) -> Result<Step, Errno> {
    // A clone needs offsets and a length; without them the kernel would decline too, or treat a
    // length of 0 as "to the end".
    let (Some(source_at), Some(sink_at), Some(rest)) = (ends.source_at, ends.sink_at, ends.rest)
    else {
        return Ok(Step::Declined(DeclineReason::UnsuitableEnds));
    };
    let len = usize::try_from(rest).map_err(|_| Errno::OVERFLOW)?;
    meter.calls += 1;
    match underpass_sys::clone_range(ends.source, source_at, rest, ends.sink, sink_at) {
        Ok(()) => Ok(Step::moved(len)),
        Err(errno) if declines(errno) => Ok(Step::Declined(DeclineReason::Errno(errno))),
        Err(errno) => Err(errno),
    }
}

/// Returns whether this error of ioctl_ficlonerange(2) means "not for these files" rather than
/// "it failed".
pub(crate) fn declines(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ACCESS // a security module's answer
            | Errno::AGAIN // OpenZFS, for blocks that are not on the disk yet
            | Errno::BADF // sink opened with O_APPEND
            | Errno::INVAL // not aligned to blocks, beyond the end, or not a regular file
            | Errno::ISDIR // an end is a directory
            | Errno::NOSYS // a seccomp filter
            | Errno::NOTTY // a file system without ioctl
            | Errno::OPNOTSUPP // a file system without shared blocks
            | Errno::PERM // immutable sink, or a container's seccomp filter
            | Errno::TXTBSY // a swap file
            | Errno::XDEV // two file systems
    )
}
