//! Responses: which one a request gets, and how it is written.

pub mod conditional;
pub mod disposition;
pub mod head;
pub mod media;
pub mod media_types;
pub mod multipart;
pub mod plan;
pub mod range;
pub mod redirect;
pub mod resumption;
pub mod validator;
