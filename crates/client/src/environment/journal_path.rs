//! The path of an unfinished upload's journal.

use std::env;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use underpass_protocol::digest::hex;
use url::Url;

use crate::http::without_credentials;

/// Returns the path of the journal of an upload of this file to this URL; `None` if the user has no
/// state folder.
///
/// It is in the folder for state that survives a restart, and its name is a hash: the same file
/// and URL always give the same name.
#[must_use]
pub fn journal_path(file: &Path, url: &Url) -> Option<PathBuf> {
    let folder = state_folder()?;
    let file = std::fs::canonicalize(file).ok()?;
    let mut url = without_credentials(url);
    url.set_fragment(None);
    let parts = [file.as_os_str().as_bytes(), b"\0", url.as_str().as_bytes()];
    let digest = parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)).finalize();
    let name = hex(&digest[..16]);
    Some(folder.join("underpass/uploads").join(name + ".json"))
}

/// Returns `$XDG_STATE_HOME`, which must be absolute, or `~/.local/state`.
#[must_use]
pub fn state_folder() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))
}
