//! Moves bytes from the origin to the disk: requests, and the bodies of responses.

mod body;
mod body_error;
mod buffered;
mod fetch;
mod folder;
mod growth;
mod load;
mod origins;
mod relay;
mod request;

pub(crate) use body::{fill_hole, relay};
pub use buffered::{BufferedResponse, ResponseContent};
pub(crate) use fetch::fetch;
pub use folder::{FolderEntry, FolderFailure, FolderListing};
pub(crate) use load::load;
pub(crate) use origins::Origins;
pub use origins::RedirectHost;
pub(crate) use relay::Relay;
pub use request::ObjectRequest;
