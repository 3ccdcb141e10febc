//! The state that the uploads of all workers share: locks, slots, the parts that wait for their
//! rest, and the bytes of each on the disk.

pub(crate) mod disk_space;
mod keyed_locks;
pub(crate) mod locks;
pub(crate) mod part_versions;
pub(crate) mod random;
pub(crate) mod searches;
pub(crate) mod slots;
pub(crate) mod sync_tracker;
mod threads;
pub(crate) mod unfinished;
mod uploads;

pub(crate) use uploads::Uploads;
