//! The formats of a listing.

pub(crate) mod change; // what may be changed from the page
pub(crate) mod form; // what all forms have in common
pub(crate) mod html;
pub(crate) mod icon;
pub(crate) mod index; // as nginx writes it, for programs
pub(crate) mod json;
pub(crate) mod markdown;
pub(crate) mod multistatus; // properties, for WebDAV
pub(crate) mod simple; // names alone
