//! WebDAV: properties and locks (RFC 4918). The meaning of its XML and fields is in
//! `underpass-dav`.

pub(crate) mod dead_properties;
pub(crate) mod describe;
pub(crate) mod guard;
pub(crate) mod lock;
pub(crate) mod lock_paths;
pub(crate) mod propfind;
pub(crate) mod proppatch;
pub(crate) mod tags;
