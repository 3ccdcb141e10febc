//! Reads what a client sends for nothing: the body of a request that no handler has received, and what
//! comes after the last response.

use std::io;
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use tokio::time::{sleep, timeout};

use super::super::peer::Doing;
use super::super::unwanted_body::UnwantedBody;
use super::Connection;
use crate::chunked::Chunked;
use crate::request::BodyLength;

impl Connection<'_> {
    /// Reads the body of a request without a use for it; returns false if it is too long for that.
    pub(super) async fn discard_body(&mut self, body: BodyLength, is_withheld: bool) -> bool {
        let mut unwanted = match body {
            BodyLength::None | BodyLength::Length(0) => return true,
            // The client does not send it without being asked to; or it does, who knows.
            _ if is_withheld => return false,
            BodyLength::Length(len) if len > MAX_DISCARDED => return false,
            BodyLength::Length(len) => UnwantedBody::Bytes(len),
            BodyLength::Chunked => UnwantedBody::Chunks(Chunked::default(), MAX_DISCARDED),
        };
        self.peer.begins(Doing::Skipping, Instant::now());
        let mut bytes = std::mem::take(&mut self.buffer);
        loop {
            match unwanted.skip(&bytes) {
                Some((consumed, true)) => {
                    bytes.drain(..consumed);
                    self.buffer = bytes;
                    return true;
                }
                Some((consumed, false)) => drop(bytes.drain(..consumed)),
                None => return false,
            }
            match self.read_more(&mut bytes).await {
                Ok(0) | Err(_) => return false,
                Ok(_) => self.peer.begins(Doing::Skipping, Instant::now()),
            }
        }
    }

    /// Waits for more bytes and adds them.
    async fn read_more(&self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            self.peer.readable().await?;
            let mut scratch = self.worker.scratch.borrow_mut();
            if let Some(read) = self.peer.take(&mut scratch)? {
                bytes.extend_from_slice(&scratch[..read]);
                return Ok(read);
            }
        }
    }

    /// Closes a connection so that the client gets the last answer: a socket that is closed while
    /// something unread is in it is reset, and takes with it what the client has not read.
    pub(super) async fn linger(&mut self, max_discarded: u64) {
        self.buffer = Vec::new();
        self.peer.take_leave();
        if shutdown(&self.peer.socket, Shutdown::Write).is_err() {
            return;
        }
        // Until then its lack of progress counts as that of the response.
        self.peer.begins(Doing::Sending, Instant::now());
        let mut skipped = 0;
        while skipped < max_discarded && !self.peer.is_expired() {
            let mut bytes = Vec::new();
            match timeout(LINGER_INTERVAL, self.read_more(&mut bytes)).await {
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(read)) => skipped += read as u64,
                Err(_) if self.peer.acknowledged() == self.peer.written.get() => {
                    // It has everything; what it still wants to say has had its time.
                    sleep(LINGER_INTERVAL).await;
                    return;
                }
                Err(_) => {}
            }
        }
    }
}

/// Bytes of a request's body that are read for the sake of keeping the connection.
pub(super) const MAX_DISCARDED: u64 = 1 << 20;

/// Bytes of an upload that was refused, read so that a client that sends all of it before it listens
/// gets the response.
pub(super) const MAX_REFUSED: u64 = 64 << 20;

/// How often it is looked whether a client that is to leave has everything.
const LINGER_INTERVAL: Duration = Duration::from_millis(100);
