//! Moves pages through a pipe with splice(2), for ends of which at least one may be a stream.
//!
//! If neither end is a pipe, the bytes rest in a pipe of this process between two calls, so this
//! is the only mechanism besides `read_write` that can be interrupted half-way. It counts the
//! bytes in the pipe and declines only while it is empty: bytes that the kernel refuses to move
//! on are first delivered by copying.

use std::num::NonZeroUsize;

use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};
use underpass_sys::Kind;

use super::Meter;
use super::read_write::write;
use crate::mechanisms::pipes::{Pipe, PipePool};
use crate::mechanisms::step::{Ends, Refusal, Step, Wait};

/// The pipe between the ends, if one is needed, and its state.
#[derive(Debug, Default)]
pub(crate) struct Splice {
    pipe: Option<Pipe>,
    /// Bytes that left the source and have not reached the sink.
    held: usize,
    /// Why the rest of the held bytes has to be copied, after which this mechanism declines.
    refused: Option<Errno>,
    /// The buffer for copying them.
    rescue: Vec<u8>,
    /// How much of the buffer has been written.
    rescued: usize,
}

impl Splice {
    /// Moves at most `len` bytes.
    pub(crate) fn step(
        &mut self,
        ends: &Ends<'_>,
        len: usize,
        pipes: &PipePool,
        meter: &mut Meter,
    ) -> Result<Step, Errno> {
        if ends.source_kind == Kind::Pipe || ends.sink_kind == Kind::Pipe {
            return direct(ends, len, meter);
        }
        if let Some(errno) = self.refused {
            return self.copy_what_is_held(ends, errno, meter);
        }
        if ends.sink_kind == Kind::Regular && ends.sink_at.is_none() {
            // The sink was opened with O_APPEND: the kernel would decline only once the pipe
            // holds something.
            return Ok(Step::Declined(Refusal::Errno(Errno::INVAL)));
        }
        if self.held == 0
            && let Some(step) = self.fill(ends, len, pipes, meter)?
        {
            return Ok(step);
        }
        self.drain(ends, meter)
    }

    /// Gives an empty pipe back to the pool; one that holds bytes is closed.
    pub(crate) fn release(self, pipes: &PipePool) {
        if let Some(pipe) = self.pipe.filter(|_| self.held == 0) {
            pipes.give_back(pipe);
        }
    }

    /// Moves bytes from the source into the pipe. Returns `None` if the pipe now holds some.
    fn fill(
        &mut self,
        ends: &Ends<'_>,
        len: usize,
        pipes: &PipePool,
        meter: &mut Meter,
    ) -> Result<Option<Step>, Errno> {
        let pipe = match self.pipe.take().map_or_else(|| pipes.take(), Ok) {
            Ok(pipe) => self.pipe.insert(pipe),
            // No descriptors are left for a pipe: the other mechanisms need none.
            Err(errno) => return Ok(Some(Step::Declined(Refusal::Errno(errno)))),
        };
        meter.calls += 1;
        let mut source_at = ends.source_at;
        let len = len.min(pipe.capacity);
        let taken =
            splice(ends.source, source_at.as_mut(), &pipe.write_end, None, len, flags(false));
        match ends.past_records(taken) {
            Ok(0) => Ok(Some(Step::Eof)),
            Ok(bytes) => {
                self.held = bytes;
                Ok(None)
            }
            // The pipe was empty, so the source has nothing.
            Err(Errno::AGAIN) => Ok(Some(Step::NotReady(Wait::Source))),
            Err(errno) if declines(errno) => Ok(Some(Step::Declined(Refusal::Errno(errno)))),
            Err(errno) => Err(errno),
        }
    }

    /// Moves bytes from the pipe to the sink, as many as it takes.
    fn drain(&mut self, ends: &Ends<'_>, meter: &mut Meter) -> Result<Step, Errno> {
        let pipe = self.pipe.as_ref().ok_or(Errno::BADF)?;
        meter.calls += 1;
        let mut sink_at = ends.sink_at;
        let flags = flags(ends.is_more_after(self.held));
        match splice(&pipe.read_end, None, ends.sink, sink_at.as_mut(), self.held, flags) {
            Ok(bytes) => {
                self.held -= bytes;
                // The pipe holds something, so zero means that the sink failed.
                if bytes == 0 { Err(Errno::IO) } else { Ok(Step::moved(bytes)) }
            }
            Err(Errno::AGAIN) => Ok(Step::NotReady(Wait::Sink)),
            Err(errno) if declines(errno) => {
                self.refused = Some(errno);
                self.copy_what_is_held(ends, errno, meter)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Delivers the held bytes through a buffer, and declines once nothing is left.
    fn copy_what_is_held(
        &mut self,
        ends: &Ends<'_>,
        errno: Errno,
        meter: &mut Meter,
    ) -> Result<Step, Errno> {
        let refusal = Refusal::Errno(errno);
        if self.held == 0 {
            return Ok(Step::Declined(refusal));
        }
        let pipe = self.pipe.as_ref().ok_or(Errno::BADF)?;
        if self.rescued == self.rescue.len() {
            self.rescue.resize(self.held.min(RESCUE), 0);
            meter.calls += 1;
            let bytes = rustix::io::read(&pipe.read_end, self.rescue.as_mut_slice())?;
            meter.user_space_bytes += bytes as u64;
            self.rescue.truncate(bytes);
            self.rescued = 0;
        }
        meter.calls += 1;
        match write(ends, &self.rescue[self.rescued..]) {
            Ok(bytes) => {
                self.rescued += bytes;
                self.held -= bytes;
                meter.user_space_bytes += bytes as u64;
                let bytes = NonZeroUsize::new(bytes).ok_or(Errno::IO)?;
                Ok(Step::Copied(bytes, refusal))
            }
            Err(Errno::AGAIN) => Ok(Step::NotReady(Wait::Sink)),
            Err(errno) => Err(errno),
        }
    }
}

/// Moves bytes with one call between two ends of which at least one is a pipe.
fn direct(ends: &Ends<'_>, len: usize, meter: &mut Meter) -> Result<Step, Errno> {
    meter.calls += 1;
    let (mut source_at, mut sink_at) = (ends.source_at, ends.sink_at);
    let flags = flags(ends.is_more_after(len));
    let moved = splice(ends.source, source_at.as_mut(), ends.sink, sink_at.as_mut(), len, flags);
    match ends.past_records(moved) {
        Ok(bytes) => Ok(Step::moved(bytes)),
        // Either end may be the reason.
        Err(Errno::AGAIN) => Ok(Step::NotReady(ends.unready())),
        Err(errno) if declines(errno) => Ok(Step::Declined(Refusal::Errno(errno))),
        Err(errno) => Err(errno),
    }
}

fn flags(more: bool) -> SpliceFlags {
    // SPLICE_F_MOVE and SPLICE_F_GIFT are left out on purpose: the first does nothing since
    // 2.6.21, the second is refused by newer kernels.
    SpliceFlags::NONBLOCK | if more { SpliceFlags::MORE } else { SpliceFlags::empty() }
}

/// Returns whether this error of splice(2) means "not for these two ends" rather than "it
/// failed".
pub(crate) fn declines(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INVAL // no splice_read or splice_write, or a sink opened with O_APPEND
            | Errno::NOSYS // a seccomp filter
            | Errno::OPNOTSUPP // some sockets and FUSE file systems
            | Errno::PERM // a container's seccomp filter answers this for an unknown call
            | Errno::SPIPE // an offset for an end that has none
    )
}

/// Bytes copied at a time when the kernel refuses those in the pipe.
const RESCUE: usize = 64 << 10;
