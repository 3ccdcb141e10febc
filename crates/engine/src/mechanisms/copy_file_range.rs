//! Copies between two files inside the file system, or at its server, with copy_file_range(2).

use rustix::io::Errno;

use super::StepMeter;
use crate::mechanisms::step::{DeclineReason, Ends, Step};

/// Copies with copy_file_range(2), and remembers whether that has worked for these files.
#[derive(Debug, Default)]
pub(crate) struct CopyFileRange {
    has_copied: bool,
}

impl CopyFileRange {
    /// Copies at most `len` bytes.
    pub(crate) fn step(
        &mut self,
        ends: &Ends<'_>,
        len: usize,
        meter: &mut StepMeter,
    ) -> Result<Step, Errno> {
        let (Some(mut from), Some(mut to)) = (ends.source_at, ends.sink_at) else {
            return Ok(Step::Declined(DeclineReason::UnsuitableEnds));
        };
        meter.calls += 1;
        let copied = rustix::fs::copy_file_range(
            ends.source,
            Some(&mut from),
            ends.sink,
            Some(&mut to),
            len,
        );
        match copied {
            // On procfs, and in some versions on CIFS and overlayfs, the call succeeds without
            // copying anything. Unless it has copied before, the next mechanism finds out whether
            // the source really ended.
            Ok(0) if !self.has_copied => Ok(Step::Declined(DeclineReason::Nothing)),
            Ok(0) => Ok(Step::Eof),
            Ok(bytes) => {
                self.has_copied = true;
                Ok(Step::moved(bytes))
            }
            Err(errno) if declines(errno, !self.has_copied) => {
                Ok(Step::Declined(DeclineReason::Errno(errno)))
            }
            Err(errno) => Err(errno),
        }
    }
}

/// Returns whether this error of copy_file_range(2) means "not for these files" rather than "it
/// failed".
pub(crate) fn declines(errno: Errno, is_first: bool) -> bool {
    match errno {
        Errno::ACCESS // a security module's answer
        | Errno::AGAIN // OpenZFS, for blocks that are not on the disk yet
        | Errno::BADF // sink opened with O_APPEND
        | Errno::FBIG // offsets near the end of the range that loff_t can hold
        | Errno::INVAL // an end that is not a regular file; sometimes OpenZFS
        | Errno::NOENT // fuse-overlayfs and CIFS
        | Errno::NOSYS // kernel before 4.5, or a seccomp filter
        | Errno::OPNOTSUPP // NFS and some FUSE file systems
        | Errno::OVERFLOW // offset and length beyond what the file system can hold
        | Errno::PERM // immutable sink, or a container's seccomp filter
        | Errno::TXTBSY // a swap file
        | Errno::XDEV => true, // two file systems
        Errno::IO => is_first, // CIFS says so for what it does not offer
        _ => false,
    }
}
