//! The kinds of bad clients, a file for each.

mod archives;
mod handshakes;
mod idle;
mod listings;
mod partial_hellos;
mod passwords;
mod pipelines;
mod ranges;
mod resets;
mod slow_heads;
mod slow_readers;
mod slow_uploads;

pub(super) use archives::Archives;
pub(super) use handshakes::Handshakes;
pub(super) use idle::Idle;
pub(super) use listings::Listings;
pub(super) use partial_hellos::PartialHellos;
pub(super) use passwords::Passwords;
pub(super) use pipelines::Pipelines;
pub(super) use ranges::Ranges;
pub(super) use resets::Resets;
pub(super) use slow_heads::SlowHeads;
pub(super) use slow_readers::SlowReaders;
pub(super) use slow_uploads::SlowUploads;
