//! Sends the memory of a chain, together with files too small for a system call of their own.
//!
//! A header and a small file go out as one send from one buffer: cheaper than a send for the
//! header and a sendfile for a few pages, whose cost is the call and not the bytes.

use std::os::fd::AsFd;

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};
use underpass_sys::Kind;

use super::StepMeter;
use crate::chain::sink::Sink;
use crate::chain::{ChainPosition, Segment};
use crate::integrity::Guard;
use crate::mechanisms::step::{Step, Wait};
use crate::socket::tls_transport::{self, TlsTransport};

/// The largest file, in bytes, that is sent over a socket from one buffer with the header before
/// it. Up to this size that costs less processor time than sending the header with `MSG_MORE` and
/// then calling sendfile.
///
/// Measured by `underpass bench chain` on Linux 6.18, in µs per response, one buffer against
/// sendfile: 1 KiB 8.1 and 9.8, 4 KiB 9.3 and 10.4, 8 KiB 9.1 and 9.7, 12 KiB 9.7 and 10.0, 14 KiB
/// 10.3 and 10.1, 16 KiB 10.4 and 10.0, 32 KiB 12.7 and 10.3, 64 KiB 21.6 and 14.7. They cross at
/// 12 KiB there and between 4 and 14 KiB elsewhere; this is the power of two in the middle. The
/// committed record is bench/chain.json.
pub const SMALL_TRANSFER: usize = 8 << 10;

/// Writes the memory at the front of the chain, and the small files in between, in one call.
///
/// `small` limits the bytes of files in the batch; 0 for none. A file that changed while it was
/// read is not written. A file that was written whole no longer needs its guard: these bytes are
/// copies.
pub(crate) fn step<F: AsFd, S: AsFd>(
    chain: ChainHead<'_, F>,
    (sink, tls): (&Sink<S>, Option<&dyn TlsTransport>),
    guards: &mut [Guard],
    small: usize,
    buffer: &mut Vec<u8>,
    meter: &mut StepMeter,
) -> Result<Step, Errno> {
    let ChainHead { segments, position, is_followed } = chain;
    let Batch { count, is_cut, bytes } = gather(segments, position, small, buffer, meter)?;
    let is_changed = |index: usize| match (&segments[index], guards.get(index)) {
        (Segment::Source(source), Some(guard)) => {
            !guard.holds_in_place(|| source.current_version(), source.is_in_place)
        }
        _ => false,
    };
    let indices = position.index..position.index + count;
    // A file that gave fewer bytes than promised has most likely changed.
    if (indices.start..indices.end + usize::from(is_cut)).any(is_changed) {
        return Ok(Step::Changed);
    }
    let is_file = |segment: &Segment<F>| !matches!(segment, Segment::Bytes(_));
    let calls = if segments[indices.clone()].iter().any(is_file) {
        &mut meter.calls
    } else {
        &mut meter.memory_calls
    };
    *calls += 1;
    match write(sink, tls, bytes, is_followed || indices.end < segments.len()) {
        Ok(written) => {
            if written == bytes.len() {
                indices
                    .filter_map(|index| guards.get_mut(index).map(Guard::release))
                    .for_each(drop);
            }
            Ok(Step::moved(written))
        }
        Err(Errno::AGAIN) => Ok(Step::NotReady(Wait::Sink)),
        Err(errno) => Err(errno),
    }
}

/// The part of a chain that may be moved now.
#[derive(Debug)]
pub(crate) struct ChainHead<'a, F> {
    /// The segments from the chain's beginning up to the end of what may be moved.
    pub(crate) segments: &'a [Segment<F>],
    /// The position of the next byte.
    pub(crate) position: ChainPosition,
    /// Whether more bytes are certain to follow immediately after `segments`.
    pub(crate) is_followed: bool,
}

/// The bytes that one call writes.
struct Batch<'a> {
    /// The number of segments, whole except for the delivered part of the first.
    count: usize,
    /// Whether the file after them is shorter than it promised.
    is_cut: bool,
    bytes: &'a [u8],
}

/// Gathers the memory at the front and the small files that follow it: in place if nothing
/// follows, otherwise in `buffer`.
fn gather<'a, F: AsFd>(
    segments: &'a [Segment<F>],
    position: ChainPosition,
    small: usize,
    buffer: &'a mut Vec<u8>,
    meter: &mut StepMeter,
) -> Result<Batch<'a>, Errno> {
    let skip = usize::try_from(position.offset).unwrap_or(usize::MAX);
    let first = match &segments[position.index] {
        Segment::Bytes(bytes) | Segment::Payload(bytes) => &bytes[skip..],
        Segment::Source(_) => &[],
    };
    buffer.clear();
    if first.len() > LONG_MEMORY {
        return Ok(Batch { count: 1, is_cut: false, bytes: first });
    }
    let (mut count, mut files) = (1, 0);
    for segment in segments.iter().skip(position.index + 1).take(MAX_SEGMENTS) {
        let begin = if count == 1 { first } else { &[] };
        match segment {
            Segment::Bytes(bytes) | Segment::Payload(bytes) if bytes.len() > LONG_MEMORY => break,
            Segment::Bytes(bytes) | Segment::Payload(bytes) => {
                buffer.extend_from_slice(begin);
                buffer.extend_from_slice(bytes);
            }
            Segment::Source(source) => {
                let Some((at, len)) = source.small_range(small - files) else { break };
                buffer.reserve(begin.len() + len);
                buffer.extend_from_slice(begin);
                let from = buffer.len();
                meter.calls += 1;
                // The buffer is not zeroed beforehand, and may have room for more than is needed.
                let read = pread(&source.fd, spare_capacity(buffer), at)?.min(len);
                buffer.truncate(from + read);
                meter.user_space_bytes += read as u64;
                if read < len {
                    // The end may be permanent; the ordinary mechanisms find out.
                    buffer.truncate(from);
                    let bytes = if count == 1 { first } else { buffer };
                    return Ok(Batch { count, is_cut: true, bytes });
                }
                files += len;
            }
        }
        count += 1;
    }
    Ok(Batch { count, is_cut: false, bytes: if count == 1 { first } else { buffer } })
}

fn write<S: AsFd>(
    sink: &Sink<S>,
    tls: Option<&dyn TlsTransport>,
    bytes: &[u8],
    is_followed: bool,
) -> Result<usize, Errno> {
    match (sink.kind, sink.at) {
        (Kind::Socket, _) => tls_transport::send(tls, sink.fd.as_fd(), bytes, is_followed),
        (_, Some(at)) => rustix::io::pwrite(&sink.fd, bytes, at),
        (_, None) => rustix::io::write(&sink.fd, bytes),
    }
}

/// The largest number of segments that one call writes besides the first.
const MAX_SEGMENTS: usize = 64;

/// Memory from this size on is written by a call of its own rather than copied once more.
const LONG_MEMORY: usize = 16 << 10;
