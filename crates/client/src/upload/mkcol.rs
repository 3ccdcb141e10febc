//! Creates the folders of an upload (MKCOL, RFC 4918 9.3).

use url::Url;

use crate::error::ClientError;
use crate::http::{Connection, HttpClient, Request};

/// The folders that one command has created on a server.
///
/// Not every server has them: one that does not know MKCOL may create folders implicitly, and is
/// asked only once.
///
/// # Examples
///
/// ```no_run
/// use underpass_client::upload::TargetFolders;
/// use underpass_client::{HttpClient, Url};
///
/// let (client, mut folders) = (HttpClient::default(), TargetFolders::default());
/// let mut idle = None;
/// for url in ["http://192.0.2.1:5000/photos/", "http://192.0.2.1:5000/photos/2024/"] {
///     folders.create(&client, &Url::parse(url)?, &mut idle)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct TargetFolders {
    has_asked: bool,
    has_created: bool,
    is_unsupported: bool,
    /// The folder that was created last with its parents.
    with_parents: Option<Url>,
}

/// The reason why a folder was not created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The request failed.
    #[error(transparent)]
    Client(ClientError),
    /// A file has the name of the folder.
    #[error("a file has this name")]
    IsFile,
    /// The parent of the first folder is missing, so nothing can be sent into it.
    #[error(transparent)]
    NoParent(ClientError),
}

impl TargetFolders {
    /// Creates a folder, whose URL ends in `/`, unless it exists. `idle` is a connection that may be
    /// used, and afterwards one that can be reused.
    ///
    /// # Errors
    ///
    /// [`FolderError::IsFile`] if a file has the name, [`FolderError::NoParent`] for the first folder
    /// if its parent is missing (409, RFC 4918 9.3.1), [`FolderError::Client`] for other refusals and
    /// if the request fails.
    pub fn create<'a>(
        &mut self,
        client: &HttpClient<'a>,
        url: &Url,
        idle: &mut Option<Connection<'a>>,
    ) -> Result<(), FolderError> {
        if self.is_unsupported || url.path() == "/" {
            return Ok(());
        }
        let is_first = !std::mem::replace(&mut self.has_asked, true);
        let made = make_folder(client, url, self.has_created, idle.take());
        let (made, reusable) = made.map_err(|error| match error {
            // RFC 4918 9.3.1: an ancestor does not exist.
            ClientError::Status { status: 409, .. } if is_first => FolderError::NoParent(error),
            error => FolderError::Client(error),
        })?;
        *idle = reusable;
        self.has_created |= made == MkcolOutcome::New;
        self.is_unsupported = made == MkcolOutcome::Unknown;
        if made == MkcolOutcome::Exists && is_file(client, url, idle) {
            return Err(FolderError::IsFile);
        }
        Ok(())
    }

    /// Creates a folder, whose URL ends in `/`, and its missing parents. Does nothing for the folder
    /// that was last created by this, and for those below it.
    ///
    /// # Errors
    ///
    /// Those of [`make_folder`]; 409 ([`ClientError::Status`]) if something on the way is a file, or
    /// if more than 256 folders are missing.
    pub fn create_with_parents<'a>(
        &mut self,
        client: &HttpClient<'a>,
        url: &Url,
        idle: &mut Option<Connection<'a>>,
    ) -> Result<(), ClientError> {
        let is_below = |created: &Url| url.path().starts_with(created.path());
        if !self.with_parents.as_ref().is_some_and(is_below) {
            *idle = make_parents(client, url, idle.take())?;
            self.with_parents = Some(url.clone());
        }
        Ok(())
    }
}

/// The result for a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MkcolOutcome {
    /// It was created.
    New,
    /// It existed, or the server does not tell.
    Exists,
    /// The server does not know the method; it may create folders implicitly.
    Unknown,
    /// The server may not know the method, or may refuse this folder.
    Unclear,
}

/// Creates a folder; its URL ends in `/`. `is_known`: the server has created a folder before.
///
/// # Errors
///
/// [`ClientError::Status`] if the server refuses, 409 if the parent is missing (RFC 4918 9.3.1);
/// otherwise those of [`HttpClient::execute`].
pub fn make_folder<'a>(
    client: &HttpClient<'a>,
    url: &Url,
    is_known: bool,
    idle: Option<Connection<'a>>,
) -> Result<(MkcolOutcome, Option<Connection<'a>>), ClientError> {
    let request = Request { method: "MKCOL", fields: &[("Content-Length", "0")] };
    let answer = client.execute(idle, &request, url)?;
    let made = match answer.response.status {
        200..300 => MkcolOutcome::New,
        // RFC 4918 9.3.1: "MKCOL can only be executed on an unmapped URL."
        405 => MkcolOutcome::Exists,
        501 => MkcolOutcome::Unknown,
        400 | 404 if !is_known => MkcolOutcome::Unclear,
        _ => return Err(answer.connection.refusal(&answer.response)),
    };
    Ok((made, answer.connection.finish(&answer.response)))
}

/// Returns whether a file is in the place of the folder at `url`, which ends in `/`: `false` if the
/// server's answer is unclear.
fn is_file<'a>(client: &HttpClient<'a>, url: &Url, idle: &mut Option<Connection<'a>>) -> bool {
    let mut bare = url.clone();
    bare.set_path(url.path().trim_end_matches('/'));
    // Without its slash, a folder is not found, or redirects to the URL with it.
    [(url, &[404, 410][..]), (&bare, &[200])].iter().all(|(url, of_file)| {
        let request = Request { method: "HEAD", fields: &[] };
        let Ok(answer) = client.execute_without_redirects(idle.take(), &request, url) else {
            return false;
        };
        *idle = answer.connection.finish(&answer.response);
        of_file.contains(&answer.response.status)
    })
}

/// Creates the folder at `url`, which ends in `/`, and its missing parents (RFC 4918 9.3.1: 409 if
/// one is missing).
fn make_parents<'a>(
    client: &HttpClient<'a>,
    url: &Url,
    mut idle: Option<Connection<'a>>,
) -> Result<Option<Connection<'a>>, ClientError> {
    let mut missing = vec![url.clone()];
    let mut made = None;
    while let Some(next) = missing.last().filter(|next| next.path() != "/") {
        match make_folder(client, next, false, idle.take()) {
            Ok((_, rest)) => {
                idle = rest;
                made = missing.pop();
            }
            Err(error @ ClientError::Status { status: 409, .. }) => {
                let above = next.join("..").ok().filter(|above| above.path() != "/");
                // If the parent exists but this folder cannot be created in it, it is not a folder.
                let is_new = |above: &Url| {
                    missing.len() <= MAX_DEPTH
                        && !missing.contains(above)
                        && made.as_ref() != Some(above)
                };
                missing.push(above.filter(is_new).ok_or(error)?);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(idle)
}

/// The maximum number of nested folders that are created.
const MAX_DEPTH: usize = 256;
