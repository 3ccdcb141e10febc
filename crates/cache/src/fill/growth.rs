//! Bounds bodies whose length the origin does not say: they take room as they come, and end when no
//! client reads them.

use std::net::{Shutdown, TcpStream};

use crate::error::CacheErrorKind;
use crate::generation::Generation;
use crate::shared::Shared;

/// The room of a body whose length is not known.
pub(super) struct Growth {
    /// The connection from which it comes; `None` if its length is known, or it is not stored.
    origin: Option<TcpStream>,
    /// The number of bytes that were reserved.
    pub(super) reserved: u64,
    /// The offset up to which they suffice.
    until: u64,
    /// The offset at which it is checked next whether anybody reads it.
    border: u64,
    /// Whether it was stopped because no client reads it.
    pub(super) is_unread: bool,
    /// Why it was stopped, if it was for another reason.
    pub(super) refused: Option<CacheErrorKind>,
}

impl Growth {
    /// Begins at this offset.
    pub(super) fn new(start: u64, origin: Option<TcpStream>) -> Self {
        let border = start + BORDER;
        Self { origin, reserved: 0, until: start, border, is_unread: false, refused: None }
    }

    /// Reserves room for what has come, or stops the body if there is none or no client reads it
    /// any more.
    pub(super) fn arrived(&mut self, at: u64, shared: &Shared, generation: &Generation) {
        let Some(origin) = &self.origin else { return };
        if at >= self.border {
            self.border = at + BORDER;
            self.is_unread = generation.readers() == 0;
        }
        while at > self.until && self.refused.is_none() {
            match shared.reserve(STEP) {
                Ok(()) => (self.reserved, self.until) = (self.reserved + STEP, self.until + STEP),
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

/// The number of bytes that are reserved at a time.
const STEP: u64 = 256 << 10;

/// A body without readers stops after this many bytes.
const BORDER: u64 = 64 << 20;
