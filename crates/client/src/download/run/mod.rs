//! One download from its first request to the name of its file.

mod finish;
mod first;
pub(super) mod mirrors;
mod rounds;
mod state;

pub(super) use first::request_head;
pub(super) use mirrors::MirrorServer;
pub(super) use state::Download;
