//! The sites of a server: what each serves, which one a request is for, and how they are replaced
//! while the server runs.

pub(crate) mod link_targets;
pub(crate) mod local;
pub(crate) mod names_lock;
pub(crate) mod published;
pub(crate) mod settings;
pub(crate) mod site;
