//! Uploads: a file or a stream goes to a server by PUT, underneath.
//!
//! The head leaves with the beginning of the file as one chain of the engine, and while the bytes
//! go out somebody listens: a server that wants no more says so early, and what it says is worth
//! more than the reset that follows. Where the server can hold what came of a broken upload, the
//! next attempt, even of another process, goes on from there.

mod chunks;
mod error;
mod exchange;
mod journal;
mod mkcol;
mod options;
mod precheck;
mod resume;
mod resume_state;
mod send;
mod uploader;

use url::Url;

use super::http::{Connection, HttpClient};

pub use error::{UploadError, UploadFailed, Uploaded};
pub use mkcol::{Made, make_folder};
pub use options::{Condition, Event, RESUMABLE_FROM, SendOptions, Tell, Upload};

/// Uploads to a URL. `idle` is a connection that may be used if it leads there, and the one that is
/// left is given back with the outcome.
///
/// # Errors
///
/// [`UploadFailed`], which says whether a later call can go on from where it was.
pub fn upload<'a>(
    client: &HttpClient<'a>,
    upload: &Upload<'_>,
    url: &Url,
    idle: Option<Connection<'a>>,
    tell: &mut Tell<'_>,
) -> Result<(Uploaded, Option<Connection<'a>>), UploadFailed> {
    uploader::Uploader::new(client, upload, url, idle, tell).run()
}
