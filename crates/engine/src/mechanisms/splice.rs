//! Moves pages through a pipe with splice(2), for ends of which at least one may be a stream.
//!
//! If neither end is a pipe, the bytes rest in a pipe of this process between two calls, so this is
//! the only mechanism besides `read_write` that can be interrupted half-way. It counts the bytes in
//! the pipe and declines only while the pipe is empty: bytes that the kernel refuses to move on are
//! first delivered by copying.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};
use underpass_sys::Kind;

use super::StepMeter;
use super::read_write::write;
use crate::mechanisms::pipes::{Pipe, PipePool};
use crate::mechanisms::step::{DeclineReason, Ends, Step, Wait};

/// The pipe between the ends, if one is needed, and its state.
#[derive(Debug, Default)]
pub(crate) struct Splice {
    pipe: Option<Pipe>,
    /// Bytes that left the source and have not reached the sink.
    held: usize,
    /// The error because of which the held bytes have to be copied, after which this mechanism
    /// declines.
    refused: Option<Errno>,
    /// The buffer for copying the held bytes.
    rescue: Vec<u8>,
    /// The part of the buffer that has been written, in bytes.
    rescued: usize,
    /// The step to a regular file, if the caller sets none.
    pub(crate) file_step: FileStep,
}

impl Splice {
    /// Moves at most `len` bytes.
    pub(crate) fn step(
        &mut self,
        ends: &Ends<'_>,
        len: usize,
        pipes: &PipePool,
        meter: &mut StepMeter,
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
            return Ok(Step::Declined(DeclineReason::UnsuitableEnds));
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
        meter: &mut StepMeter,
    ) -> Result<Option<Step>, Errno> {
        let pipe = match self.pipe.take().map_or_else(|| pipes.take(), Ok) {
            Ok(pipe) => self.pipe.insert(pipe),
            // No descriptors are left for a pipe: the other mechanisms need none.
            Err(errno) => return Ok(Some(Step::Declined(DeclineReason::Errno(errno)))),
        };
        meter.calls += 1;
        let mut source_at = ends.source_at;
        let len = len.min(pipe.capacity);
        let taken =
            splice(ends.source, source_at.as_mut(), &pipe.write_end, None, len, flags(false));
        match ends.past_records(taken) {
            Ok(0) | Err(Errno::AGAIN) if ends.is_before_urgent() => {
                Ok(Some(Step::Declined(DeclineReason::Nothing)))
            }
            Ok(0) => Ok(Some(Step::Eof)),
            Ok(bytes) => {
                self.held = bytes;
                Ok(None)
            }
            // The pipe was empty, so the source is not ready.
            Err(Errno::AGAIN) => Ok(Some(Step::NotReady(Wait::Source))),
            Err(errno) if declines(errno) => Ok(Some(Step::Declined(DeclineReason::Errno(errno)))),
            Err(errno) => Err(errno),
        }
    }

    /// Moves bytes from the pipe to the sink, as many as it takes.
    fn drain(&mut self, ends: &Ends<'_>, meter: &mut StepMeter) -> Result<Step, Errno> {
        let pipe = self.pipe.as_ref().ok_or(Errno::BADF)?;
        meter.calls += 1;
        let mut sink_at = ends.sink_at;
        let flags = flags(ends.is_more_after(self.held));
        let started = (ends.sink_kind == Kind::Regular).then(Instant::now);
        match splice(&pipe.read_end, None, ends.sink, sink_at.as_mut(), self.held, flags) {
            Ok(bytes) => {
                self.held -= bytes;
                if let Some(started) = started {
                    self.file_step.moved(bytes, started.elapsed());
                }
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

    /// Delivers the held bytes through a buffer, and declines once none are left.
    fn copy_what_is_held(
        &mut self,
        ends: &Ends<'_>,
        errno: Errno,
        meter: &mut StepMeter,
    ) -> Result<Step, Errno> {
        let reason = DeclineReason::Errno(errno);
        if self.held == 0 {
            return Ok(Step::Declined(reason));
        }
        let pipe = self.pipe.as_ref().ok_or(Errno::BADF)?;
        if self.rescued == self.rescue.len() {
            self.rescue.resize(self.held.min(RESCUE), 0);
            meter.calls += 1;
            self.rescued = 0;
            let bytes = rustix::io::read(&pipe.read_end, self.rescue.as_mut_slice())
                .inspect_err(|_| self.rescue.clear())?;
            meter.user_space_bytes += bytes as u64;
            self.rescue.truncate(bytes);
        }
        meter.calls += 1;
        match write(ends, &self.rescue[self.rescued..]) {
            Ok(bytes) => {
                self.rescued += bytes;
                self.held -= bytes;
                meter.user_space_bytes += bytes as u64;
                let bytes = NonZeroUsize::new(bytes).ok_or(Errno::IO)?;
                Ok(Step::Copied(bytes, reason))
            }
            Err(Errno::AGAIN) => Ok(Step::NotReady(Wait::Sink)),
            Err(errno) => Err(errno),
        }
    }
}

/// Chooses how many bytes one call writes to a file.
///
/// They become one folio of the page cache, if a large enough block of memory is free. On ext4 a
/// step of 1 MiB took two thirds of the time of 256 KiB while memory was unfragmented, and up to
/// three times as long once it was fragmented. So the faster one is used, and the other tried now
/// and then.
#[derive(Debug, Default)]
pub(crate) struct FileStep {
    /// Whether the small step is in use.
    is_small: bool,
    /// Whether the step in use is on trial.
    is_trial: bool,
    /// The bytes and the time since the step was last changed or confirmed.
    bytes: usize,
    time: Duration,
    /// Seconds per byte with the other step, or 0 before its first use.
    other: f64,
}

impl FileStep {
    /// Returns the step in use, in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        if self.is_small { SMALL_STEP } else { LARGE_STEP }
    }

    /// Records the bytes and the time of one call.
    fn moved(&mut self, bytes: usize, time: Duration) {
        self.bytes += bytes;
        self.time += time;
        let until = match (self.is_trial, self.other > 0.0) {
            (true, _) => TRIAL,
            (false, false) => FIRST,
            (false, true) => INTERVAL,
        };
        if self.bytes < until {
            return;
        }
        let cost = self.time.as_secs_f64() / self.bytes as f64;
        // After a trial, return to the previous step unless the trial was faster; otherwise start a
        // trial of the other step.
        if !self.is_trial || self.other < cost {
            self.is_small = !self.is_small;
            self.other = cost;
        }
        self.is_trial = !self.is_trial;
        (self.bytes, self.time) = (0, Duration::ZERO);
    }
}

/// Moves bytes with one call between two ends of which at least one is a pipe.
fn direct(ends: &Ends<'_>, len: usize, meter: &mut StepMeter) -> Result<Step, Errno> {
    meter.calls += 1;
    let (mut source_at, mut sink_at) = (ends.source_at, ends.sink_at);
    let flags = flags(ends.is_more_after(len));
    let moved = splice(ends.source, source_at.as_mut(), ends.sink, sink_at.as_mut(), len, flags);
    match ends.past_records(moved) {
        Ok(0) | Err(Errno::AGAIN) if ends.is_before_urgent() => {
            Ok(Step::Declined(DeclineReason::Nothing))
        }
        Ok(bytes) => Ok(Step::moved(bytes)),
        // Either end may be the one that is not ready.
        Err(Errno::AGAIN) => Ok(Step::NotReady(ends.unready())),
        Err(errno) if declines(errno) => Ok(Step::Declined(DeclineReason::Errno(errno))),
        Err(errno) => Err(errno),
    }
}

fn flags(more: bool) -> SpliceFlags {
    // SPLICE_F_MOVE and SPLICE_F_GIFT are left out on purpose: the first has done nothing since
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

/// The steps to a file: the capacity of a pipe, and a size that was never slow.
const LARGE_STEP: usize = 1 << 20;
const SMALL_STEP: usize = 256 << 10;
/// The bytes before the first trial, between trials, and of a trial.
const FIRST: usize = 16 << 20;
const INTERVAL: usize = 64 << 20;
const TRIAL: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves 1 GiB, where a MiB takes `large` microseconds at this offset by large steps and
    /// `small` by small ones. Returns the share that large steps moved.
    fn share_of_large(large: impl Fn(usize) -> u64, small: u64) -> f64 {
        let mut step = FileStep::default();
        let (mut at, mut by_large) = (0, 0);
        while at < 1 << 30 {
            let (bytes, time) =
                if step.is_small { (SMALL_STEP, small / 4) } else { (LARGE_STEP, large(at)) };
            by_large += if step.is_small { 0 } else { bytes };
            step.moved(bytes, Duration::from_micros(time));
            at += bytes;
        }
        by_large as f64 / at as f64
    }

    #[test]
    fn the_faster_step_moves_nearly_all_of_a_file() {
        assert!(share_of_large(|_| 200, 300) > 0.9);
        assert!(share_of_large(|_| 900, 300) < 0.1);
        let half = share_of_large(|at| if at < 1 << 29 { 200 } else { 900 }, 300);
        assert!((0.4..0.6).contains(&half), "{half}");
    }
}
