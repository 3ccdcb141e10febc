//! DELETE, MKCOL, MOVE and COPY, and the rest of WebDAV.

pub(crate) mod body; // small ones of requests
pub(crate) mod change; // as a helper makes it
pub(crate) mod dav; // properties and locks
pub(crate) mod dest_entry; // where something is moved or copied to
pub(crate) mod refusal;
pub(crate) mod respond;
pub(crate) mod tree; // folders with all that is in them
