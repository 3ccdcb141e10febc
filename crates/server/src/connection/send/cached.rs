//! Sends bodies from the cache, each byte as soon as it has arrived.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use underpass_engine::{Chain, Confirm, socket};

use crate::connection::outcome::SendFailure;
use crate::connection::send::SlowResponse;
use crate::routing::cached::CachedBody;
use crate::routing::response::max_copied;

impl SlowResponse<'_> {
    /// Sends a body from the cache after the head. If the end of the connection delimits it, any
    /// early end is a reset, even after a `SIGKILL`.
    pub(super) async fn send_cached_body(&mut self, head: Vec<u8>, body: &CachedBody) {
        if !body.ends_with_connection() {
            return self.send_as_it_arrives(head, body).await;
        }
        let _ = socket::arm_reset(&self.link.peer.socket);
        self.send_as_it_arrives(head, body).await;
        if self.outcome.failure.is_none() {
            let _ = socket::disarm_reset(&self.link.peer.socket);
        }
    }

    /// Sends the parts of a body as they arrive.
    async fn send_as_it_arrives(&mut self, head: Vec<u8>, body: &CachedBody) {
        let mut before = head;
        for (header, range) in &body.parts {
            before.extend_from_slice(header);
            let max_copied = max_copied(self.link.peer);
            // No piece of a large file is copied, however little of it has arrived.
            let is_small = range.end - range.start <= max_copied as u64;
            let is_copied = is_small || self.link.peer.encrypts_here();
            self.max_copied = if is_copied { max_copied } else { 0 };
            let mut at = range.start;
            while at < range.end {
                let Some(mut end) = self.wait_for_bytes(body, at, range.end).await else { return };
                if at > range.start && end < range.end && end - at < MIN_SEND && !body.is_relayed()
                {
                    // A fill brings 128 KiB at a time, and would wake a crowd that waits for it
                    // each time.
                    sleep(GATHER_TIME).await;
                    let Some(more) = self.wait_for_bytes(body, at, range.end).await else { return };
                    end = more;
                }
                if end == at && range.end == u64::MAX {
                    break;
                }
                if end == at {
                    return self.fail(SendFailure::Short);
                }
                let Ok(source) = body.source(at..end) else {
                    return self.fail(SendFailure::Stream);
                };
                let mut chain = Chain::new();
                if body.is_chunked {
                    before.extend_from_slice(format!("{:x}\r\n", end - at).as_bytes());
                }
                if !before.is_empty() {
                    chain = chain.bytes(std::mem::take(&mut before));
                }
                chain = chain.source(source);
                if body.is_chunked {
                    before.extend_from_slice(b"\r\n");
                }
                if !self.send_chain(chain, Confirm::HandedOver).await {
                    return;
                }
                at = end;
            }
        }
        if body.is_chunked {
            before.extend_from_slice(b"0\r\n\r\n");
        }
        before.extend_from_slice(&body.closing);
        if !before.is_empty() {
            self.send_chain(Chain::new().bytes(before), Confirm::HandedOver).await;
        }
    }

    /// Waits for the byte at `at`; returns the end of what has arrived, `None` if it has failed.
    async fn wait_for_bytes(&mut self, body: &CachedBody, at: u64, end: u64) -> Option<u64> {
        let began = Instant::now();
        let arrived = self.while_connected(body.wait_for(at, end)).await?;
        self.outcome.waited += began.elapsed();
        match arrived {
            Ok(end) => Some(end),
            Err(failure) => {
                self.fail(SendFailure::Origin(failure));
                None
            }
        }
    }
}

/// The number of available bytes with which a response does not wait for more.
const MIN_SEND: u64 = 512 << 10;

/// The maximum time that a response waits for more bytes, after its first ones.
const GATHER_TIME: Duration = Duration::from_millis(2);
