//! What a server reports about its work: the access log, metrics, and current transfers.
//!
//! Nothing here knows a connection or a request: the server fills in values, and this crate renders
//! lines, figures and pages.
//!
//! # Examples
//!
//! ```
//! use underpass_observe::access_log::{LogFormat, LogFormatError};
//!
//! let format = LogFormat::parse("$remote_addr \"$request\" $status $http_x_request_id")?;
//! // The server has to keep this field of requests, but need not measure processor time.
//! assert_eq!(format.needs(), ["x-request-id"]);
//! assert!(!format.logs_cost());
//! # Ok::<(), LogFormatError>(())
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod access_log;
pub mod downloads;
pub mod log_writer;
pub mod metrics;
pub mod transfers;
