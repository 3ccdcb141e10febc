//! Storage on the disk: files, metadata and the quota.

mod eviction_queue;
mod folder;
mod head;
mod quota;
mod unit;

pub(crate) use folder::{Folder, Restored};
pub(crate) use head::{Head, is_forwarded, millis, stored_fields};
pub(crate) use quota::{DiskQuota, QuotaExceeded};
pub(crate) use unit::{MAX_PAGE, Unit, is_divided, units};
