//! WebDAV: properties and locks (RFC 4918). What its XML and fields mean is in `underpass-dav`.

pub(crate) mod dead_properties; // those that clients store
pub(crate) mod describe; // properties of files and folders
pub(crate) mod guard; // which changes locks and conditions allow
pub(crate) mod lock;
pub(crate) mod propfind;
pub(crate) mod proppatch;
