//! DELETE, MKCOL, MOVE and COPY, and the rest of WebDAV.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod change;
pub(crate) mod checks;
pub(crate) mod dav;
pub(crate) mod dest_entry;
pub(crate) mod hidden_name;
pub(crate) mod refusal;
pub(crate) mod removal;
pub(crate) mod respond;
pub(crate) mod tree;
