//! The way of one request to the handler that answers it.

pub(crate) mod context; // what is asked, and who asks
pub(crate) mod endpoints; // what the server tells about itself
pub(crate) mod error_page; // for people
pub(crate) mod https_redirect;
pub(crate) mod response;
pub(crate) mod router;
