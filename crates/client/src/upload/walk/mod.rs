//! Files and folders to upload, each with its URL: names are appended to URLs byte by byte.

mod local;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use underpass_engine::hint::{Hint, Hinted, PathError};
use underpass_protocol::encode_segment;
use url::Url;

use crate::http::without_credentials;

pub use local::LocalPath;

/// A step of the upload of named files and folders.
#[derive(Clone, Debug)]
pub enum UploadStep {
    /// Create a folder.
    Folder {
        /// The folder.
        path: PathBuf,
        /// The URL; it ends in `/`.
        url: Url,
    },
    /// Send a file.
    File {
        /// The file.
        local: LocalPath,
        /// The URL.
        url: Url,
    },
    /// Skip an entry.
    Skipped {
        /// The entry.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },
}

/// The reason why a step cannot be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// An entry has become a link, or is reached through a new one.
    #[error("opening {}: it, or a folder above it, has become a link", .0.display())]
    BecameLink(PathBuf),
    /// It is a folder, but folders are not sent.
    #[error("{} is a folder", .0.display())]
    Folder(PathBuf),
    /// An entry is no longer a file.
    #[error("opening {}: it is no longer a file", .0.display())]
    NotAFile(PathBuf),
    /// A system call failed.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Another file has been sent to the URL.
    #[error(
        "sending {} to {}: {} has that URL already (send one of them to another URL)",
        .path.display(), .url, .earlier.display()
    )]
    Taken {
        /// The file.
        path: PathBuf,
        /// Its URL, without credentials.
        url: String,
        /// The other file.
        earlier: PathBuf,
    },
}

impl Hinted for WalkError {
    fn hint(&self) -> Option<Hint> {
        match self {
            Self::Path(error) => error.hint(),
            _ => None,
        }
    }
}

/// Returns all steps for these paths, folders before their entries. `target` is the URL of the
/// folder that receives them. Links to files and folders are followed in named paths; below them
/// only with `follows`.
pub fn steps(
    roots: Vec<(PathBuf, Url)>,
    target: &Url,
    (recursive, follows): (bool, bool),
) -> impl Iterator<Item = Result<UploadStep, WalkError>> + use<> {
    let mut taken = may_meet(&roots, target).then(TakenUrls::default);
    let steps = roots.into_iter().flat_map(move |(path, url)| UploadWalk {
        recursive,
        follows,
        waiting: VecDeque::from([WalkEntry {
            local: LocalPath::named(path),
            url,
            is_named: true,
            above: Vec::new(),
        }]),
    });
    steps.map(move |step| match (&mut taken, step?) {
        (Some(taken), UploadStep::File { local, url }) => taken.claim(local, url),
        (_, step) => Ok(step),
    })
}

/// Returns whether two files may get the same URL: named paths have the same name, or the contents
/// of one of them are sent to the folder of the others.
fn may_meet(roots: &[(PathBuf, Url)], target: &Url) -> bool {
    let urls: HashSet<_> = roots.iter().map(|(_, url)| url).collect();
    urls.len() < roots.len() || (urls.len() > 1 && urls.contains(target))
}

/// The file that was sent to each URL.
#[derive(Debug, Default)]
struct TakenUrls(HashMap<Url, PathBuf>);

impl TakenUrls {
    /// Returns the step of a file, which must not replace another file of the same command.
    fn claim(&mut self, local: LocalPath, url: Url) -> Result<UploadStep, WalkError> {
        let path = local.path().to_owned();
        match self.0.entry(url) {
            Entry::Vacant(free) => {
                let url = free.key().clone();
                free.insert(path);
                Ok(UploadStep::File { local, url })
            }
            Entry::Occupied(earlier) if *earlier.get() == path => {
                Ok(UploadStep::Skipped { path, reason: "left out: it was named twice" })
            }
            Entry::Occupied(earlier) => {
                let url = without_credentials(earlier.key()).into();
                let earlier = earlier.get().clone();
                Err(WalkError::Taken { path, url, earlier })
            }
        }
    }
}

/// A walk through one named file or folder.
#[derive(Debug)]
struct UploadWalk {
    recursive: bool,
    follows: bool,
    waiting: VecDeque<WalkEntry>,
}

/// An entry found by the walk.
#[derive(Debug)]
struct WalkEntry {
    local: LocalPath,
    url: Url,
    /// Whether the user named it, so that links are followed.
    is_named: bool,
    /// The parent folders, by device and inode, so that links cannot cause endless loops.
    above: Vec<(u64, u64)>,
}

impl Iterator for UploadWalk {
    type Item = Result<UploadStep, WalkError>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.waiting.pop_front()?;
        Some(self.step(found))
    }
}

impl UploadWalk {
    fn step(&mut self, found: WalkEntry) -> Result<UploadStep, WalkError> {
        let WalkEntry { local, url, is_named, above } = found;
        if is_named && local.path() == Path::new("-") {
            return Ok(UploadStep::File { local, url });
        }
        // Opening it will fail, too, with a receipt that has its URL.
        let Ok(facts) = local.look() else { return Ok(UploadStep::File { local, url }) };
        let skipped = |reason| {
            let path = local.path().to_owned();
            Ok(UploadStep::Skipped { path, reason })
        };
        if facts.is_symlink() {
            return skipped("left out: it is a link (-L follows links)");
        }
        if facts.is_dir() {
            return self.enter(&local, url, &facts, above);
        }
        if !facts.is_file() && !is_named {
            return skipped("left out: it is neither file nor folder");
        }
        Ok(UploadStep::File { local, url })
    }

    /// Queues the entries of a folder ahead of all other entries.
    fn enter(
        &mut self,
        folder: &LocalPath,
        mut url: Url,
        facts: &Metadata,
        mut above: Vec<(u64, u64)>,
    ) -> Result<UploadStep, WalkError> {
        let path = || folder.path().to_owned();
        if !self.recursive {
            return Err(WalkError::Folder(path()));
        }
        let identity = (facts.dev(), facts.ino());
        if above.contains(&identity) {
            let reason = "left out: the link points to a folder that contains it";
            return Ok(UploadStep::Skipped { path: path(), reason });
        }
        above.push(identity);
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        for (name, local) in folder.entries(self.follows)?.into_iter().rev() {
            let (url, above) = (beneath(&url, &name), above.clone());
            self.waiting.push_front(WalkEntry { local, url, is_named: false, above });
        }
        Ok(UploadStep::Folder { path: path(), url })
    }
}

/// Returns the URL of a name in a folder.
#[must_use]
pub fn beneath(folder: &Url, name: &OsStr) -> Url {
    let mut url = folder.clone();
    url.set_path(&format!("{}{}", folder.path(), encode_segment(name.as_bytes())));
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_in_urls() {
        let folder = Url::parse("http://a/b%20c/?q=1").expect("a URL");
        for (name, path) in [
            (&b"plain.txt"[..], "/b%20c/plain.txt"),
            (b"a b", "/b%20c/a%20b"),
            (b"%2e%2e", "/b%20c/%252e%252e"),
            (b"a?b#c;d&e", "/b%20c/a%3Fb%23c%3Bd%26e"),
            (b"\xff\n\\", "/b%20c/%FF%0A%5C"),
            ("\u{e4}".as_bytes(), "/b%20c/%C3%A4"),
        ] {
            let url = beneath(&folder, OsStr::from_bytes(name));
            assert_eq!(url.path(), path);
            assert_eq!(url.query(), Some("q=1"));
        }
    }
}
