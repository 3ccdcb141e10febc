//! Sends bodies of unknown length in chunks (RFC 9112 7.1), as the stream delivers them.
//!
//! A chunk begins with its length. The bytes in a pipe or socket can be counted without reading
//! them, so these are also moved inside the kernel; everything else is read into memory.

use std::fs::File;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread, pread, read};
use rustix::net::{RecvFlags, recv};
use underpass_engine::{Chain, Error, Kind, PeerMessage, Report, Source};

use super::error::{Result, UploadError};
use super::exchange::UploadExchange;
use crate::error::ClientError;

/// Sends `head`, which may be empty, and all of a stream.
pub(super) fn send(exchange: &mut UploadExchange<'_, '_, '_>, head: Vec<u8>) -> Result<()> {
    let source = exchange.body.source.clone();
    let (mut frame, mut sent) = (head, 0_u64);
    let mut is_first = true;
    loop {
        let piece = next(exchange, &source, sent).map_err(|mut error| {
            if let UploadError::Source(error) | UploadError::Broken(error) = &mut error {
                error.report_mut().clone_from(&exchange.report);
            }
            error
        })?;
        // RFC 9112 7.1: the end of each chunk is sent with the beginning of the next.
        let end = if is_first { "" } else { "\r\n" };
        is_first = false;
        let Some(piece) = piece else {
            frame.extend_from_slice(format!("{end}0\r\n\r\n").as_bytes());
            let framing = frame.len() as u64;
            return exchange.transfer(Chain::new().bytes(frame), framing, sent);
        };
        exchange.is_begun = true;
        let len = piece.len();
        frame.extend_from_slice(format!("{end}{len:x}\r\n").as_bytes());
        let framing = frame.len() as u64;
        let chain = Chain::new().bytes(std::mem::take(&mut frame));
        let chain = match piece {
            ChunkPart::Inside(len) => chain.source(source.clone().len(len)),
            ChunkPart::Memory(bytes) => chain.payload(bytes),
        };
        exchange.transfer(chain, framing, sent)?;
        sent += len;
    }
}

/// The bytes of one chunk.
enum ChunkPart {
    /// Bytes that are queued in the stream.
    Inside(u64),
    /// Bytes that were read into memory.
    Memory(Vec<u8>),
}

impl ChunkPart {
    fn len(&self) -> u64 {
        match self {
            Self::Inside(len) => *len,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }
}

/// Waits for the next bytes of a stream; `None` at its end.
fn next(
    exchange: &mut UploadExchange<'_, '_, '_>,
    source: &Source<&File>,
    sent: u64,
) -> Result<Option<ChunkPart>> {
    if matches!(source.kind(), Kind::Pipe | Kind::Socket) {
        let held = held(exchange, source)?;
        return Ok((held > 0).then_some(ChunkPart::Inside(held)));
    }
    wait(exchange, source)?;
    let mut bytes = vec![0; PIECE];
    let got = loop {
        let got = match source.offset() {
            Some(at) => pread(source.fd(), &mut bytes, at + sent),
            None => read(source.fd(), &mut bytes),
        };
        match got {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(exchange, source)?,
            got => break got.map_err(unreadable)?,
        }
    };
    bytes.truncate(got);
    Ok((got > 0).then_some(ChunkPart::Memory(bytes)))
}

/// Waits for bytes in a pipe or socket, and counts them without reading them; 0 at the end.
fn held(exchange: &mut UploadExchange<'_, '_, '_>, source: &Source<&File>) -> Result<u64> {
    loop {
        wait(exchange, source)?;
        let held = ioctl_fionread(source.fd()).map_err(unreadable)?;
        if held > 0 || source.kind() == Kind::Pipe {
            return Ok(held);
        }
        // A socket that was reset has no bytes either, but did not reach its end.
        match recv(source.fd(), &mut [0_u8], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((found, _)) => return Ok(found as u64),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(unreadable(errno)),
        }
    }
}

/// Waits until the stream has bytes, while listening to the server.
fn wait(exchange: &mut UploadExchange<'_, '_, '_>, source: &Source<&File>) -> Result<()> {
    loop {
        // After the final response only the end of the connection matters.
        let is_answered = exchange.heard.is_some();
        let events = if is_answered { PollFlags::empty() } else { PollFlags::IN };
        let (came, is_heard) = {
            let mut ends = [
                PollFd::new(source.fd(), PollFlags::IN),
                PollFd::new(exchange.connection.stream(), events),
            ];
            // An interruption counts as a wake-up: the next check decides.
            let _ = poll(&mut ends, Some(&POLL_INTERVAL));
            (!ends[0].revents().is_empty(), !ends[1].revents().is_empty())
        };
        if is_heard && (is_answered || exchange.listen() == PeerMessage::Abort) {
            let report = Box::new(Report::default());
            return Err(UploadError::Broken(Box::new(Error::Answered { report })));
        }
        if came {
            return Ok(());
        }
        if exchange.client.is_cancelled() {
            return Err(ClientError::Cancelled.into());
        }
    }
}

fn unreadable(errno: Errno) -> UploadError {
    let report = Box::new(Report::default());
    UploadError::Source(Box::new(Error::Io { mechanism: None, source: errno.into(), report }))
}

/// Bytes read at once.
const PIECE: usize = 64 << 10;

/// The interval at which a wait checks whether it was cancelled.
const POLL_INTERVAL: Timespec =
    Timespec { tv_sec: 0, tv_nsec: Duration::from_millis(100).as_nanos() as _ };
