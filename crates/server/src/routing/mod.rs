//! Finds the handler of a request and passes it the request's context.

pub(crate) mod cache_key; // of what a request asks for
pub(crate) mod cached; // bodies from the cache
pub(crate) mod context; // what is asked, and who asks
pub(crate) mod endpoints; // what the server tells about itself
pub(crate) mod error_page; // for people
pub(crate) mod https_redirect;
pub(crate) mod operate; // what operators do with the cache
pub(crate) mod origin; // answers from the cache
pub(crate) mod path_fields; // that the operator adds
pub(crate) mod response;
pub(crate) mod router;
