//! Storage on the disk: files, metadata and the quota.

mod body;
mod eviction_queue;
mod folder;
mod head;
mod quota;
mod unit;

pub(crate) use body::is_shortage;
pub(crate) use folder::{CacheFolder, LoadedFile, Restored};
pub(crate) use head::{StoredHead, is_forwarded, is_of_content, millis, stored_fields};
pub(crate) use quota::{DiskQuota, HeldRoom, OBJECT_OVERHEAD, QuotaExceeded, Room};
pub(crate) use unit::{EXTENT, MAX_PAGE, StoredUnit, is_divided, journal_unit, units};
