//! The mechanism that always works: it reads into a buffer and writes from it. It never declines.

use rustix::io::Errno;
use underpass_sys::Kind;

use super::StepMeter;
use crate::mechanisms::step::{Ends, Step, Wait};
use crate::socket::tls_transport;

/// The buffer, and the part of it that is still to be written.
#[derive(Debug, Default)]
pub(crate) struct ReadWrite {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

impl ReadWrite {
    /// Reads at most `len` bytes, unless some remain from the last step, and writes them.
    pub(crate) fn step(
        &mut self,
        ends: &Ends<'_>,
        len: usize,
        meter: &mut StepMeter,
    ) -> Result<Step, Errno> {
        if self.from == self.to {
            match self.fill(ends, len, meter) {
                Ok(0) => return Ok(Step::Eof),
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(Step::NotReady(Wait::Source)),
                Err(errno) => return Err(errno),
            }
        }
        meter.calls += 1;
        match write(ends, &self.buffer[self.from..self.to]) {
            Ok(bytes) => {
                self.from += bytes;
                meter.user_space_bytes += bytes as u64;
                Ok(Step::moved(bytes))
            }
            Err(Errno::AGAIN) => Ok(Step::NotReady(Wait::Sink)),
            Err(errno) => Err(errno),
        }
    }

    /// Reads into the buffer, which grows to `len` bytes once and is kept.
    fn fill(&mut self, ends: &Ends<'_>, len: usize, meter: &mut StepMeter) -> Result<usize, Errno> {
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
        let buffer = &mut self.buffer[..len];
        meter.calls += 1;
        let bytes = match (ends.source_at, ends.source_tls) {
            (Some(at), _) => rustix::io::pread(ends.source, buffer, at)?,
            (None, Some(tls)) => tls.receive(ends.source, buffer)?,
            (None, None) => rustix::io::read(ends.source, buffer)?,
        };
        meter.user_space_bytes += bytes as u64;
        (self.from, self.to) = (0, bytes);
        Ok(bytes)
    }
}

/// Checks whether the source is at its end, for a sink whose reader is gone: a further byte could
/// not be delivered, which is an error (`EPIPE`).
pub(crate) fn check_end(ends: &Ends<'_>) -> Result<Step, Errno> {
    match ReadWrite::default().fill(ends, 1, &mut StepMeter::default()) {
        Ok(0) => Ok(Step::Eof),
        Ok(_) => Err(Errno::PIPE),
        Err(Errno::AGAIN) => Ok(Step::NotReady(Wait::Source)),
        Err(errno) => Err(errno),
    }
}

/// Writes from memory to any kind of sink.
pub(crate) fn write(ends: &Ends<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    match (ends.sink_kind, ends.sink_at) {
        (Kind::Socket, _) => {
            tls_transport::send(ends.sink_tls, ends.sink, bytes, ends.is_more_after(bytes.len()))
        }
        (_, Some(at)) => rustix::io::pwrite(ends.sink, bytes, at),
        (_, None) => rustix::io::write(ends.sink, bytes),
    }
}
