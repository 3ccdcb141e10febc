//! The sites of a server: what each serves, which one a request is for, and how they are replaced
//! while the server runs.

pub(crate) mod local; // the sites as one worker has them
pub(crate) mod published; // the sites that are served now
pub(crate) mod settings;
pub(crate) mod site; // one site
