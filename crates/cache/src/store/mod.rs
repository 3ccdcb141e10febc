//! What is on the disk: names, heads, and how much room there is.

mod folder;
mod head;
mod queue;
mod room;

pub(crate) use folder::Folder;
pub(crate) use head::{Head, kept_fields, millis, replayed};
pub(crate) use room::{Full, Room};
