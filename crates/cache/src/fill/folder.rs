//! The listing of a folder in an object store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::Timespec;
use underpass_client::s3::{ListedKey, Pages, is_about_signature};
use underpass_client::{ClientError, Connection, HttpClient, Url};

use crate::error::{CacheError, CacheErrorKind, ResponseFault};

/// The listing of a folder in an object store.
#[derive(Debug)]
pub struct FolderListing {
    /// A number that is unique among the listings of this process.
    pub id: u64,
    /// The files and folders in the store's order, without those that no path can name.
    pub entries: Vec<FolderEntry>,
    /// Whether the folder exists: stores know folders only as prefixes of keys.
    pub exists: bool,
}

/// A file or folder of an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderEntry {
    /// Its name, without slashes.
    pub name: Box<[u8]>,
    /// The length of a file in bytes; `None` for folders.
    pub size: Option<u64>,
    /// The time of the last modification, if the store reports it.
    pub modified: Option<Timespec>,
}

/// The reason why there is no listing.
#[derive(Clone, Debug)]
pub struct FolderFailure {
    /// The error.
    pub error: CacheError,
    /// The status for clients.
    pub status: u16,
    /// The wait before the next attempt, if it is known.
    pub retry_after: Option<Duration>,
}

impl FolderListing {
    /// Returns the approximate memory that it uses, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let names: usize = self.entries.iter().map(|entry| entry.name.len()).sum();
        names + self.entries.len() * size_of::<FolderEntry>()
    }
}

impl FolderEntry {
    /// Returns the entry, unless no URL path can name it.
    fn of(listed: ListedKey) -> Option<Self> {
        let ListedKey { mut name, size, modified, .. } = listed;
        if size.is_none() && name.last() == Some(&b'/') {
            name.pop();
        }
        let is_named = !matches!(&name[..], b"" | b"." | b"..") && !name.contains(&0);
        (is_named && !name.contains(&b'/')).then(|| Self { name: name.into(), size, modified })
    }
}

impl<K: Into<CacheErrorKind>> From<K> for FolderFailure {
    fn from(kind: K) -> Self {
        let kind: CacheErrorKind = kind.into();
        Self { error: kind.into(), status: kind.status(), retry_after: None }
    }
}

impl From<ClientError> for FolderFailure {
    fn from(error: ClientError) -> Self {
        let retry_after = error.retry_after();
        let (fault, status) = match error {
            ClientError::Status { status: 401 | 403, .. } | ClientError::Keys(_) => {
                (Some(ResponseFault::AccessDenied), None)
            }
            ClientError::Status { ref code, .. } if is_about_signature(code) => {
                (Some(ResponseFault::AccessDenied), None)
            }
            ClientError::Status { status: status @ (429 | 500..), .. } => {
                (Some(ResponseFault::ServerError), Some(status))
            }
            _ => (None, None),
        };
        let error = match fault {
            Some(fault) => CacheError::new(fault, error),
            None => CacheError::from(error),
        };
        let status = status.unwrap_or(error.kind().status());
        Self { error, status, retry_after }
    }
}

/// Reads a folder of a bucket, whose URL ends in a slash; `None` if it has too many entries. Also
/// returns the connection if it can be reused.
pub(super) fn read_folder(
    client: &HttpClient<'static>,
    idle: Option<Connection<'static>>,
    bucket: &Url,
    folder: &Url,
    requests: &AtomicU64,
) -> Result<(Option<FolderListing>, Option<Connection<'static>>), ClientError> {
    let folder = folder.path().strip_prefix(bucket.path()).unwrap_or_default();
    let mut pages = Pages::new(idle);
    let (mut entries, mut exists) = (Vec::new(), folder.is_empty());
    let (mut count, mut memory) = (0, 0);
    loop {
        requests.fetch_add(1, Ordering::Relaxed);
        let page = match pages.next(client, bucket, folder) {
            // The bucket does not exist.
            Err(ClientError::Status { status: 404, .. }) => {
                (entries, exists) = (Vec::new(), false);
                break;
            }
            page => page?,
        };
        let Some(page) = page else { break };
        exists |= page.has_own || !page.entries.is_empty();
        count += page.entries.len() + 1;
        memory += page.entries.iter().map(|entry| entry.name.len()).sum::<usize>();
        memory += pages.token_len();
        if count > MAX_ENTRIES || memory > MAX_MEMORY {
            return Ok((None, pages.idle));
        }
        entries.extend(page.entries.into_iter().filter_map(FolderEntry::of));
        if pages.is_done() {
            break;
        }
    }
    entries.shrink_to_fit();
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    Ok((Some(FolderListing { id, entries, exists }), pages.idle))
}

/// The number of the next listing.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// The maximum number of entries of a folder; each page of the listing counts as one, too.
const MAX_ENTRIES: usize = 100_000;

/// The maximum length of their names and of the continuation tokens, in bytes.
const MAX_MEMORY: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_no_file_names_are_left_out() {
        let entry = |name: &str, size| {
            FolderEntry::of(ListedKey { name: name.into(), size, ..ListedKey::default() })
                .map(|entry| String::from_utf8_lossy(&entry.name).into_owned())
        };
        for name in ["", "/", ".", "..", "../", "./", "a\0b", "a//"] {
            assert_eq!(entry(name, None), None, "{name}");
        }
        assert_eq!(entry("a/", None).as_deref(), Some("a"));
        assert_eq!(entry("a", Some(1)).as_deref(), Some("a"));
        assert_eq!(entry("...", Some(1)).as_deref(), Some("..."));
    }
}
