//! Folders on a server (MKCOL, RFC 4918 9.3).

use url::Url;

use crate::error::ClientError;
use crate::http::{Connection, HttpClient, Request};

/// What happened to a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It is new.
    New,
    /// It existed, or the server does not distinguish.
    Exists,
    /// The server does not know the method: it may create folders by itself.
    Unknown,
}

/// Creates a folder; its URL ends in `/`.
///
/// # Errors
///
/// [`ClientError`].
pub fn make_folder<'a>(
    client: &HttpClient<'a>,
    url: &Url,
    idle: Option<Connection<'a>>,
) -> Result<(Made, Option<Connection<'a>>), ClientError> {
    let request = Request { method: "MKCOL", fields: &[("Content-Length", "0")] };
    let answer = client.ask(idle, &request, url)?;
    let made = match answer.response.status {
        200..300 => Made::New,
        // RFC 4918 9.3.1: "MKCOL can only be executed on an unmapped URL."
        405 => Made::Exists,
        400 | 404 | 501 => Made::Unknown,
        _ => return Err(answer.connection.refusal(&answer.response)),
    };
    Ok((made, answer.connection.finish(&answer.response)))
}
