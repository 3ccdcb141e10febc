//! The state that the uploads of all workers share.

pub(crate) mod disk_space;
pub(crate) mod locks; // which connection goes on with which upload
pub(crate) mod random;
pub(crate) mod slots; // those under way
mod uploads;
pub(crate) mod waiting; // parts that wait for their rest
pub(crate) mod written; // what of parts is on the disk

pub(crate) use uploads::Uploads;
