//! The checks made while a chain is sent.

use underpass_engine::{Confirm, Integrity};

use crate::routing::response::FileBody;

/// The checks made while a chain is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainChecks {
    /// Whether all bytes are in memory, so that no step has to wait for a disk.
    pub(super) is_resident: bool,
    /// The moment at which to check whether the file is unchanged.
    pub(super) confirm: Confirm,
}

impl ChainChecks {
    /// The checks for bytes in memory.
    pub(super) const NONE: Self = Self { is_resident: true, confirm: Confirm::HandedOver };

    /// Returns the checks for a file.
    ///
    /// A client that counts bytes treats the response as complete with the last one, whatever
    /// follows. So the last byte of a large file, or of one that a program may be writing to, is
    /// held back until everything else has arrived and the file is known to be unchanged. That
    /// takes a round trip, too long for a response of a few packets, which is checked when its last
    /// byte is handed over. Small files are copied and checked before their first byte is sent. A
    /// lease waits for the client anyway.
    pub(super) fn of(file: &FileBody, integrity: Integrity) -> Self {
        let confirm = if file.is_unsettled && !file.is_guarded {
            Confirm::BeforeCopiedEnd
        } else if file.len >= HELD_BACK || integrity == Integrity::Lease {
            Confirm::BeforeEnd
        } else {
            Confirm::HandedOver
        };
        // A clone waits for the disk.
        let is_resident = file.is_resident && integrity != Integrity::Snapshot;
        Self { is_resident, confirm }
    }
}

/// The minimum size of a file whose last byte waits until the peer has all others.
pub(super) const HELD_BACK: u64 = 2 << 20;
