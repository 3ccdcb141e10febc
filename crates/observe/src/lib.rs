//! Reports of a server about its work: the access log, metrics, and current transfers.
//!
//! Nothing here knows a connection or a request: the server fills in values, and lines, figures and
//! pages come out.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod access_log;
pub mod log_writer;
pub mod metrics;
pub mod transfers;
