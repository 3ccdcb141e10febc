//! One download from its first request to the name of its file.

mod finish;
mod first;
mod rounds;
mod state;

pub(super) use state::Download;
