//! Uploads files and streams by PUT.
//!
//! The head and the beginning of the file are sent as one chain of the engine. The client listens
//! while it sends: a server that refuses the rest answers early, and that response is worth more
//! than the reset that follows. If the server keeps incomplete uploads, the next attempt, even by
//! another process, resumes them.

mod chunks;
mod error;
mod exchange;
mod journal;
mod mkcol;
mod options;
mod precheck;
mod resume;
mod send;
mod uploader;
pub mod walk;

use url::Url;

use super::http::{Connection, HttpClient};

pub(crate) use exchange::{UploadBody, UploadExchange, connect, is_html, is_page_name};
pub(crate) use journal::{UploadJournal, version};
pub(crate) use precheck::{check_version, is_of_target};
pub(crate) use resume::state::ResumeState;

pub use error::{ConditionError, UnconfirmedUpload, UploadError, UploadFailed, UploadOutcome};
pub use mkcol::{FolderError, MkcolOutcome, TargetFolders, make_folder};
pub use options::{
    Condition, MODIFIED, OnEvent, SendOptions, Upload, UploadEvent, is_worth_a_journal,
};

/// Uploads to a URL. `idle` is a connection that may be used if it leads there; the outcome comes
/// with a connection that can be reused.
///
/// # Errors
///
/// [`UploadFailed`], which says whether a later call can resume it.
pub fn upload<'a>(
    client: &HttpClient<'a>,
    upload: &Upload<'_>,
    url: &Url,
    idle: Option<Connection<'a>>,
    on_event: &mut OnEvent<'_>,
) -> Result<(UploadOutcome, Option<Connection<'a>>), UploadFailed> {
    uploader::Uploader::new(client, upload, url, idle, on_event).run()
}
