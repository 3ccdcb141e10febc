//! Limits bodies while they arrive. Those that no client reads end when others wait for their
//! thread, or if nothing would be kept of them. Those whose length the origin does not state take
//! room as they arrive, and end when no client reads them.

use std::net::{Shutdown, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::CacheErrorKind;
use crate::pool::JobOwner;
use crate::shared::Shared;
use crate::store::{EXTENT, Room};
use crate::version::ObjectVersion;

/// A body that goes to the disk.
pub(super) struct Growth {
    /// The number of its fill.
    id: u64,
    /// The client for which its fill runs.
    owner: JobOwner,
    /// The connection from which it comes; `None` if it goes past the disk, or was stopped.
    origin: Option<TcpStream>,
    /// Whether its length is known, so that it has its room already.
    has_len: bool,
    /// The time since which no client reads it, or comes to it next, while others wait.
    unread_since: Option<Instant>,
    /// The offset up to which the room suffices.
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

    /// Reserves room for what has come, or stops the body if there is none or no client reads it
    /// any more.
    pub(super) fn arrived(
        &mut self,
        at: u64,
        room: &mut Room,
        shared: &Shared,
        version: &ObjectVersion,
    ) {
        let Some(origin) = &self.origin else { return };
        let is_crowded = shared.is_crowded(&self.owner) || version.is_crowded();
        if !is_crowded || version.is_read(self.id) {
            self.unread_since = None;
        } else {
            // A client that has just got the head is about to read.
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
            // The thread that waits for more of it finds its end.
            let _ = origin.shutdown(Shutdown::Both);
            self.origin = None;
        }
    }
}

/// Returns whether nothing is kept of a body that ends now: it is not stored, or no other response
/// is known to have the rest.
fn is_lost_in_part(version: &ObjectVersion) -> bool {
    let is_large = |len| len > EXTENT && version.count() < len / 2;
    !version.is_stored() || (version.validator().is_none() && version.len().is_some_and(is_large))
}

/// Waits for a reader: a client that has just got the head is about to read. Returns whether there
/// is one.
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

/// A body without readers stops after this time if others wait, or nothing is kept of it.
const UNREAD_TIME: Duration = Duration::from_secs(1);

/// The interval at which a body looks for a reader.
const READER_INTERVAL: Duration = Duration::from_millis(10);

/// A body of which nothing is kept stops after this many bytes without readers.
const MIN_BORDER: u64 = 1 << 20;

/// A body without length and readers stops after this many bytes.
const BORDER: u64 = 64 << 20;
