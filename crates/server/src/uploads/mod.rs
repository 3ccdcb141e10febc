//! Uploads of files: checked before their first byte is requested, moved from the socket into an
//! unnamed file by the engine, and named in one step once they are whole.
//!
//! Each is received by a separate thread, which may wait for its client and for the disk; the
//! worker, which serves all other connections, is notified at the end.

mod active_upload;
mod interim;
mod methods;
mod parts;
mod receive;
mod received;
mod refusal;
mod request;
mod respond;
mod state;
mod verify;

pub(crate) use interim::{CONTINUE, write as write_interim};
pub(crate) use parts::stale_uploads::watch as watch_stale_uploads;
pub(crate) use received::{BodyState, ReceivedUpload};
pub(crate) use refusal::limits;
pub(crate) use respond::{respond, tick};
pub(crate) use state::Uploads;
pub(crate) use state::disk_space::has_room;
pub(crate) use state::random::random_bytes;
pub(crate) use state::searches::Searches;
pub(crate) use state::unfinished::UnfinishedParts;
