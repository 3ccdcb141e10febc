//! Limits the uploads in progress: how many one client may have, and how slow each may be.
//!
//! Each has a thread, a pipe and a few descriptors, so there cannot be many. One client cannot take
//! all of them, nor hold one by trickling bytes.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use underpass_engine::wait::lock;

use underpass_protocol::upload::Owner;

/// The uploads in progress.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The maximum number.
    pub(super) max: usize,
    taken: Mutex<TakenSlots>,
}

#[derive(Debug, Default)]
struct TakenSlots {
    slots: HashMap<u64, Arc<UploadSlot>>,
    next: u64,
}

/// The state of one upload.
#[derive(Debug)]
pub(crate) struct UploadSlot {
    owner: Owner,
    pub(crate) connection: Arc<OwnedFd>,
    /// The minimum number of bytes per second; 0 for no limit.
    min_rate: u64,
    /// The bytes of the body that have arrived.
    received: AtomicU64,
    /// The time window in which a minimum of bytes must arrive, while the body is received.
    window: Mutex<Option<RateWindow>>,
    /// The space that it will need.
    claim: Mutex<Option<Claim>>,
    /// Whether no space was reserved for it, because its owner has reserved enough.
    pub(crate) is_unreserved: AtomicBool,
    /// The flag that cancels the transfer.
    pub(crate) cancel: AtomicBool,
    /// The reason why the server has ended it, if it has.
    aborted: OnceLock<AbortReason>,
}

#[derive(Clone, Copy, Debug)]
struct RateWindow {
    since: Instant,
    received: u64,
}

/// The space on a file system that an upload will take.
#[derive(Clone, Copy, Debug)]
struct Claim {
    device: u64,
    len: u64,
    /// Whether the file system has reserved it; otherwise the server has to count it.
    is_reserved: bool,
}

/// The reason why the server ends an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AbortReason {
    /// The body arrives too slowly.
    TooSlow,
    /// The disk is about to be full.
    Full,
}

/// Holds a slot for as long as it lives.
#[derive(Debug)]
pub(crate) struct SlotGuard {
    slots: Arc<Slots>,
    number: u64,
    pub(crate) slot: Arc<UploadSlot>,
}

impl SlotGuard {
    /// Takes a slot; `None` if there are too many uploads, or too many of this owner while others
    /// may need the rest.
    pub(crate) fn acquire(
        slots: &Arc<Slots>,
        owner: &Owner,
        connection: Arc<OwnedFd>,
        min_rate: u64,
    ) -> Option<Self> {
        let mut taken = lock(&slots.taken);
        let all = taken.slots.len();
        let own = || taken.slots.values().filter(|slot| slot.owner == *owner).count();
        let share = OWNER_SHARE.min(slots.max.div_ceil(8));
        if all >= slots.max || (all >= slots.max / 2 && own() >= share) {
            return None;
        }
        let slot = Arc::new(UploadSlot {
            owner: owner.clone(),
            connection,
            min_rate,
            received: AtomicU64::new(0),
            window: Mutex::default(),
            claim: Mutex::default(),
            is_unreserved: AtomicBool::new(false),
            cancel: AtomicBool::new(false),
            aborted: OnceLock::new(),
        });
        let number = taken.next;
        taken.next += 1;
        taken.slots.insert(number, Arc::clone(&slot));
        Some(Self { slots: Arc::clone(slots), number, slot })
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        lock(&self.slots.taken).slots.remove(&self.number);
    }
}

impl Slots {
    /// Creates the state for a process that may have this many open files.
    pub(crate) fn new(descriptors: u64) -> Self {
        let share = usize::try_from(descriptors / DESCRIPTORS_PER_UPLOAD).unwrap_or(usize::MAX);
        Self { max: share.clamp(MIN_UPLOADS, MAX_UPLOADS), taken: Mutex::default() }
    }

    /// Ends uploads whose bodies arrive more slowly than required.
    pub(crate) fn end_slow(&self, window: Duration, now: Instant) {
        for slot in lock(&self.taken).slots.values() {
            if slot.min_rate > 0 {
                slot.end_if_slow(window, now);
            }
        }
    }

    /// Returns the bytes on a file system that uploads will still take without a reservation.
    pub(crate) fn promised(&self, device: u64) -> u64 {
        let taken = lock(&self.taken);
        let claims = taken.slots.values().map(|slot| slot.claimed(device, |it| !it.is_reserved));
        claims.fold(0, u64::saturating_add)
    }

    /// Returns the bytes on a file system that other uploads of the owner of `slot` will take.
    pub(crate) fn claimed_by_owner(&self, slot: &UploadSlot, device: u64) -> u64 {
        let taken = lock(&self.taken);
        let own = taken.slots.values().filter(|other| other.owner == slot.owner);
        own.map(|other| other.claimed(device, |_| true)).fold(0, u64::saturating_add)
    }
}

impl UploadSlot {
    /// Records that the body begins to arrive.
    pub(crate) fn begin_body(&self) {
        let received = self.received.load(Ordering::Relaxed);
        *lock(&self.window) = Some(RateWindow { since: Instant::now(), received });
    }

    /// Sets the number of bytes of the body that have arrived.
    pub(crate) fn progress(&self, bytes: u64) {
        self.received.store(bytes, Ordering::Relaxed);
    }

    /// Records that the body has ended: missing bytes need no space any more.
    pub(crate) fn end_body(&self) {
        *lock(&self.window) = None;
        *lock(&self.claim) = None;
    }

    /// Claims space for this many bytes.
    pub(crate) fn claim(&self, device: u64, len: u64, is_reserved: bool) {
        *lock(&self.claim) = Some(Claim { device, len, is_reserved });
    }

    /// Ends the transfer that moves the body right now. Further bytes from the client can still be
    /// read, so that it gets the response.
    pub(crate) fn end_full(&self) {
        let _ = self.aborted.set(AbortReason::Full);
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// Returns the reason why the server has ended it, if it has.
    pub(crate) fn aborted(&self) -> Option<AbortReason> {
        self.aborted.get().copied()
    }

    /// Ends a transfer if fewer bytes than required have arrived in a whole window. A response can
    /// still be sent.
    fn end_if_slow(&self, length: Duration, now: Instant) {
        // Held to the end: a body that ends meanwhile must know of it.
        let mut window = lock(&self.window);
        let Some(RateWindow { since, received }) = *window else { return };
        let here = self.received.load(Ordering::Relaxed);
        let needed = u128::from(self.min_rate) * length.as_millis() / 1000;
        if u128::from(here - received.min(here)) >= needed {
            *window = Some(RateWindow { since: now, received: here });
        } else if now.saturating_duration_since(since) >= length {
            let _ = self.aborted.set(AbortReason::TooSlow);
            // This wakes the transfer; a connection that cannot be shut down is closed already.
            let _ = shutdown(&self.connection, Shutdown::Read);
        }
    }

    fn claimed(&self, device: u64, counts: impl Fn(&Claim) -> bool) -> u64 {
        let received = self.received.load(Ordering::Relaxed);
        let claim = lock(&self.claim).filter(|it| it.device == device && counts(it));
        claim.map_or(0, |it| it.len.saturating_sub(received))
    }
}

/// The maximum number of uploads at once, each with a thread and a pipe.
const MAX_UPLOADS: usize = 512;

/// The maximum number of uploads at once if very few files may be open.
const MIN_UPLOADS: usize = 8;

/// The number of open files that have to be allowed for each upload. It takes five besides its
/// connection; most are taken by connections and by the files being sent.
const DESCRIPTORS_PER_UPLOAD: u64 = 20;

/// The maximum number of uploads at once of one user, or of one address for clients without a user,
/// once half of all are taken.
const OWNER_SHARE: usize = 16;
