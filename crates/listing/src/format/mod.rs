//! The formats of a listing.

pub(crate) mod change;
pub(crate) mod form;
pub(crate) mod html;
pub(crate) mod icon;
pub(crate) mod index;
pub(crate) mod json;
pub(crate) mod markdown;
pub(crate) mod multistatus;
pub(crate) mod simple;
