//! Moves a file's pages to a socket, a pipe or another file with sendfile(2).
//!
//! The pages are passed to a socket or pipe by reference: the peer gets the file's contents at the
//! time when the network card or loopback reads the page, possibly after the call.

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::StepMeter;
use crate::mechanisms::step::{DeclineReason, Ends, Step};

/// Moves bytes with sendfile(2), which takes an offset for its source only; into a file it writes
/// at the sink's cursor.
#[derive(Debug, Default)]
pub(crate) struct Sendfile {
    /// The sink's cursor after the last call.
    cursor: Option<u64>,
}

impl Sendfile {
    /// Sends at most `len` bytes, which must not exceed the remainder: older kernels delay the
    /// tail of a file by 200 ms if more was requested.
    pub(crate) fn step(
        &mut self,
        ends: &Ends<'_>,
        len: usize,
        meter: &mut StepMeter,
    ) -> Result<Step, Errno> {
        if let Some(at) = ends.sink_at
            && self.cursor != Some(at)
        {
            seek(ends.sink, SeekFrom::Start(at))?;
        }
        meter.calls += 1;
        let mut source_at = ends.source_at;
        let sent = rustix::fs::sendfile(ends.sink, ends.source, source_at.as_mut(), len);
        match ends.past_records(sent) {
            Ok(bytes) => {
                self.cursor = ends.sink_at.map(|at| at + bytes as u64);
                Ok(Step::moved(bytes))
            }
            Err(Errno::AGAIN) => Ok(Step::NotReady(ends.unready())),
            Err(errno) if declines(errno) => Ok(Step::Declined(DeclineReason::Errno(errno))),
            Err(errno) => Err(errno),
        }
    }
}

/// Returns whether this error of sendfile(2) means "not for these two ends" rather than "it
/// failed".
pub(crate) fn declines(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INVAL // a source without pages or splice_read, a sink opened with O_APPEND
            | Errno::NOSYS // a seccomp filter
            | Errno::OPNOTSUPP // MPTCP and other sockets of old kernels
            | Errno::OVERFLOW // the sink cannot hold such offsets
            | Errno::PERM // a container's seccomp filter answers this for an unknown call
            | Errno::SPIPE // a source that has no offsets
    )
}
