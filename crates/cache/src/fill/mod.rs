//! What moves bytes from the origin to the disk: questions, and the bodies of their answers.

mod body;
mod contact;
mod origins;
mod redirects;
mod relay;
mod reply;
mod request;

pub(crate) use body::{fill_hole, relay};
pub(crate) use contact::{fetch, load};
pub(crate) use origins::Origins;
pub use redirects::RedirectHost;
pub(crate) use relay::Relay;
pub use reply::{Content, Reply};
pub(crate) use request::Wanted;
