//! Limits bodies while they arrive. A body that no client reads ends when others wait for its
//! thread, or if nothing of it would be kept. A body of unknown length reserves room as it arrives,
//! and ends when no client reads it.

use std::net::{Shutdown, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::CacheErrorKind;
use crate::pool::JobOwner;
use crate::shared::CacheState;
use crate::store::{EXTENT, Room};
use crate::version::ObjectVersion;

/// A body that is being received.
pub(super) struct Growth {
    /// The number of its fill.
    id: u64,
    /// The client for which its fill runs.
    owner: JobOwner,
    /// The connection from which it comes; `None` if it bypasses the disk, or was stopped.
    origin: Option<TcpStream>,
    /// Whether its length is known, so that its room was reserved before.
    has_len: bool,
    /// The time since which it has had no current or next reader, while others wait.
    unread_since: Option<Instant>,
    /// The offset up to which room is reserved.
    until: u64,
    /// The offset at the last check for readers.
    checked: u64,
    /// Whether it was stopped because no client reads it.
    pub(super) is_unread: bool,
    /// Why it was stopped, if it was for another reason.
    pub(super) refused: Option<CacheErrorKind>,
}

impl Growth {
    /// Begins at this offset.
    pub(super) fn new(
        id: u64,
        owner: JobOwner,
        start: u64,
        origin: Option<TcpStream>,
        has_len: bool,
    ) -> Self {
        Self {
            id,
            owner,
            origin,
            has_len,
            unread_since: None,
            until: start,
            checked: start,
            is_unread: false,
            refused: None,
        }
    }

    /// Reserves room for the bytes that have arrived; stops the body if there is none or no client
    /// reads it any more.
    pub(super) fn arrived(
        &mut self,
        at: u64,
        room: &mut Room,
        shared: &CacheState,
        version: &ObjectVersion,
    ) {
        let Some(origin) = &self.origin else { return };
        let is_crowded = shared.is_crowded(&self.owner) || version.is_crowded();
        if !is_crowded || version.is_read(self.id) {
            self.unread_since = None;
        } else {
            // A client that has just received the head is about to read.
            let since = self.unread_since.get_or_insert_with(Instant::now);
            self.is_unread = since.elapsed() >= UNREAD_TIME;
        }
        let unchecked = at - self.checked;
        let is_due = unchecked >= MIN_BORDER && is_lost_in_part(version);
        if is_due || (unchecked >= BORDER && !self.has_len) {
            self.checked = at;
            self.is_unread |= !await_reader(version);
        }
        while !self.has_len && at > self.until && self.refused.is_none() {
            match shared.grow(room, GROWTH_STEP, version.is_stored()) {
                Ok(()) => self.until += GROWTH_STEP,
                Err(error) => self.refused = Some(error.kind()),
            }
        }
        if self.is_unread || self.refused.is_some() {
            // This ends the wait of the thread that receives the body.
            let _ = origin.shutdown(Shutdown::Both);
            self.origin = None;
        }
    }
}

/// Returns whether nothing of a body is kept if it ends now: it is not stored, or no other response
/// can be proved to have the rest.
fn is_lost_in_part(version: &ObjectVersion) -> bool {
    let is_large = |len| len > EXTENT && version.count() < len / 2;
    !version.is_stored() || (version.validator().is_none() && version.len().is_some_and(is_large))
}

/// Waits for a reader, because a client that has just received the head is about to read; returns
/// whether there is one.
fn await_reader(version: &ObjectVersion) -> bool {
    let since = Instant::now();
    while version.readers() == 0 {
        if since.elapsed() >= UNREAD_TIME {
            return false;
        }
        sleep(READER_INTERVAL);
    }
    true
}

/// The number of bytes that are reserved at a time.
const GROWTH_STEP: u64 = 256 << 10;

/// How long a body runs without readers if others wait, or nothing of it would be kept.
const UNREAD_TIME: Duration = Duration::from_secs(1);

/// The interval at which a reader is looked for.
const READER_INTERVAL: Duration = Duration::from_millis(10);

/// The number of bytes between checks for readers of a body of which nothing would be kept.
const MIN_BORDER: u64 = 1 << 20;

/// The number of bytes between checks for readers of a body of unknown length.
const BORDER: u64 = 64 << 20;
