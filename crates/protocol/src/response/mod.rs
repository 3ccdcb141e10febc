//! Responses: which one a request gets, and how it is written.

pub mod conditional; // preconditions and If-Range
pub mod disposition; // Content-Disposition
pub mod head; // heads of responses, and pages for errors
pub mod media; // media types by name
pub mod media_types; // those of the operator and of the system too
pub mod multipart; // several ranges in one body
pub mod plan; // (request, facts) → what to answer
pub mod range; // Range
pub mod redirect; // paths that are redirected
pub mod resumption; // which versions broken-off downloads were of
pub mod validator; // entity tags and dates
