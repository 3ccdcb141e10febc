//! Sends what a chain holds in memory, together with files too small to be worth a call of their
//! own.
//!
//! A header and a small file go out as one send from one buffer: cheaper than a send for the
//! header and a sendfile for a few pages, whose cost is the call and not the bytes.

use std::io::IoSlice;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::Meter;
use crate::chain::{Position, Segment};
use crate::integrity::Guard;
use crate::kind::Kind;
use crate::sink::Sink;
use crate::step::{Step, Wait};

/// A file that follows a header over a socket is sent from one buffer with it up to this many
/// bytes, which costs the sender less processor time than the header by `MSG_MORE` and then
/// sendfile.
///
/// Measured by `underpass bench chain` on Linux 6.18, in µs a response, one buffer against
/// sendfile: 1 KiB 8.1 and 9.8, 4 KiB 9.3 and 10.4, 8 KiB 9.1 and 9.7, 12 KiB 9.7 and 10.0, 14 KiB
/// 10.3 and 10.1, 16 KiB 10.4 and 10.0, 32 KiB 12.7 and 10.3, 64 KiB 21.6 and 14.7. They cross at
/// 12 KiB there and elsewhere between 4 and 14; of the powers of two this is the middle one. The
/// committed record is bench/chain.json.
pub const SMALL_TRANSFER: usize = 8 << 10;

/// Writes the memory at the front of the chain, and the small files between, in one call.
///
/// `small` is the most bytes of files to take along; 0 for none. A file that was read while it
/// changed is not written. What was written whole needs its guard no longer: these bytes are
/// copies.
pub(crate) fn step<F: AsFd, S: AsFd>(
    chain: Front<'_, F>,
    sink: &Sink<S>,
    guards: &mut [Guard],
    small: usize,
    buffer: &mut Vec<u8>,
    meter: &mut Meter,
) -> Result<Step, Errno> {
    let Front { segments, position, is_followed } = chain;
    let (batch, is_cut) = read_small_files(segments, position, small, buffer, meter)?;
    let is_changed = |index: usize| match (&segments[index], guards.get(index)) {
        (Segment::Source(source), Some(guard)) => !guard.holds_before(source),
        _ => false,
    };
    let indices = position.index..position.index + batch.len();
    // A file that gave less than it promised has changed, most likely.
    if (indices.start..indices.end + usize::from(is_cut)).any(is_changed) {
        return Ok(Step::Changed);
    }
    let mut slices = Vec::with_capacity(batch.len());
    let mut skip = usize::try_from(position.offset).unwrap_or(usize::MAX);
    for piece in &batch {
        let bytes = match piece {
            Piece::Memory(bytes) => &bytes[std::mem::take(&mut skip)..],
            Piece::Buffer { from, to } => &buffer[*from..*to],
        };
        slices.push(IoSlice::new(bytes));
    }
    meter.calls += 1;
    let is_followed = is_followed || indices.end < segments.len();
    match write(sink, &slices, is_followed) {
        Ok(bytes) => {
            if bytes == slices.iter().map(|slice| slice.len()).sum::<usize>() {
                indices
                    .filter_map(|index| guards.get_mut(index).map(Guard::release))
                    .for_each(drop);
            }
            Ok(Step::moved(bytes))
        }
        Err(Errno::AGAIN) => Ok(Step::NotReady(Wait::Sink)),
        Err(errno) => Err(errno),
    }
}

/// The part of a chain that may be moved now.
#[derive(Debug)]
pub(crate) struct Front<'a, F> {
    /// From the chain's beginning up to what may be moved.
    pub(crate) segments: &'a [Segment<F>],
    /// Where the next byte is.
    pub(crate) position: Position,
    /// Whether something is certain to follow at once behind `segments`.
    pub(crate) is_followed: bool,
}

/// One segment's part of what is written.
enum Piece<'a> {
    Memory(&'a [u8]),
    Buffer { from: usize, to: usize },
}

/// The pieces of one call, the small files among them read into `buffer`; and whether the file
/// behind them is shorter than it promised.
fn read_small_files<'a, F: AsFd>(
    segments: &'a [Segment<F>],
    position: Position,
    small: usize,
    buffer: &mut Vec<u8>,
    meter: &mut Meter,
) -> Result<(Vec<Piece<'a>>, bool), Errno> {
    buffer.clear();
    let mut pieces = Vec::with_capacity(2);
    for segment in segments.iter().skip(position.index).take(MAX_PIECES) {
        let source = match segment {
            Segment::Bytes(bytes) => {
                pieces.push(Piece::Memory(bytes));
                continue;
            }
            Segment::Source(source) => source,
        };
        let Some((at, len)) = source.small_range(small - buffer.len()) else { break };
        let from = buffer.len();
        buffer.resize(from + len, 0);
        meter.calls += 1;
        let read = rustix::io::pread(&source.fd, &mut buffer[from..], at)?;
        meter.user_space_bytes += read as u64;
        if read < len {
            // Perhaps for good: the ordinary mechanisms find out.
            buffer.truncate(from);
            return Ok((pieces, true));
        }
        pieces.push(Piece::Buffer { from, to: from + len });
    }
    Ok((pieces, false))
}

fn write<S: AsFd>(
    sink: &Sink<S>,
    slices: &[IoSlice<'_>],
    is_followed: bool,
) -> Result<usize, Errno> {
    match (sink.kind, sink.at) {
        (Kind::Socket, _) => {
            let more = if is_followed { SendFlags::MORE } else { SendFlags::empty() };
            let mut control = SendAncillaryBuffer::default();
            sendmsg(&sink.fd, slices, &mut control, SendFlags::NOSIGNAL | more)
        }
        (_, Some(at)) => rustix::io::pwritev(&sink.fd, slices, at),
        (_, None) => rustix::io::writev(&sink.fd, slices),
    }
}

/// Segments written by one call at the most; far below IOV_MAX, which is 1,024.
const MAX_PIECES: usize = 64;
