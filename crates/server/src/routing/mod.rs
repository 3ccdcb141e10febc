//! Finds the handler of a request and passes it the request's context.

pub(crate) mod cache_key;
pub(crate) mod cached;
pub(crate) mod context;
pub(crate) mod endpoints;
pub(crate) mod error_page;
pub(crate) mod https_redirect;
pub(crate) mod operate;
pub(crate) mod origin;
pub(crate) mod path_fields;
pub(crate) mod response;
pub(crate) mod router;
