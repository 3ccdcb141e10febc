//! The state that the uploads of all workers share.

pub(crate) mod disk_space;
pub(crate) mod locks; // which connection goes on with which upload
pub(crate) mod random;
pub(crate) mod slots; // those under way
pub(crate) mod sync_tracker;
pub(crate) mod unfinished; // parts that wait for their rest
mod uploads; // what of parts is on the disk

pub(crate) use uploads::Uploads;
