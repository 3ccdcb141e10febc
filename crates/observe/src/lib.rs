//! What a server reports about its work: the access log, metrics, and current transfers.
//!
//! Nothing here knows a connection or a request: the server fills in values, and this crate renders
//! lines, figures and pages.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod access_log;
pub mod downloads;
pub mod log_writer;
pub mod metrics;
pub mod transfers;
