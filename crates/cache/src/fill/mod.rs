//! What moves bytes from the origin to the disk: questions, and the bodies of their answers.

mod body;
mod contact;
mod origins;
mod request;

pub(crate) use body::fill_hole;
pub(crate) use contact::{fetch, load};
pub(crate) use origins::Origins;
pub(crate) use request::Wanted;
