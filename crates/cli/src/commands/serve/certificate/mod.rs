//! The certificates of the server: from files, made at the start, or from a certificate authority.

mod acme;
pub(super) mod args;
mod print;
mod source;

pub(super) use acme::{Orders, OrdersControl};
pub(super) use source::{Certificate, check_sites, default_files, key_files};
