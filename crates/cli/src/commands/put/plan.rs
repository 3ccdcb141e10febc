//! The target of each file: names of files become the ends of URLs, byte by byte.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use underpass_client::{Url, input};
use underpass_copy::ends::is_dash;
use underpass_protocol::encode_segment;
use underpass_receipt::shown;

use super::args::PutArgs;
use super::local::LocalPath;
use super::usage::PutError;
use crate::failure::{Failure, Result};

/// A step of an upload.
#[derive(Clone, Debug)]
pub(crate) enum PutStep {
    /// Create a folder.
    Folder {
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

/// All named files and folders with their URLs.
#[derive(Debug)]
pub(crate) struct PutPlan {
    target: Url,
    roots: Vec<(PathBuf, Url)>,
    recursive: bool,
    follows: bool,
}

impl PutPlan {
    /// Determines the URL of each file.
    pub(crate) fn new(args: &PutArgs) -> Result<Self> {
        let (target, files) = match args.words.split_last() {
            Some((url, files)) if !files.is_empty() => (named(url)?, files),
            _ => return Err(PutError::Incomplete.into()),
        };
        // It may have a password in it, which no message is to show.
        let is_url = |word: &&OsString| {
            word.to_str().is_some_and(|text| text.contains("://")) && !Path::new(word).exists()
        };
        if files.iter().any(|word| is_url(&word)) {
            return Err(PutError::UrlAsFile.into());
        }
        let is_folder = target.path().ends_with('/');
        if files.len() > 1 && !is_folder {
            return Err(PutError::SeveralToFile.into());
        }
        let mut roots = Vec::new();
        for path in files.iter().map(Path::new) {
            if !args.recursive && is_folder_here(path) {
                return Err(PutError::Folder(path.to_owned()).into());
            }
            let url = match (is_folder, is_dash(path), name(path)) {
                (false, ..) => target.clone(),
                (true, true, _) => return Err(PutError::NamelessInput.into()),
                (true, false, Some(name)) => beneath(&target, name),
                // The current folder: its entries go there.
                (true, false, None) => target.clone(),
            };
            roots.push((path.to_owned(), url));
        }
        Ok(Self { target, roots, recursive: args.recursive, follows: args.follow_links })
    }

    /// Returns the named URL.
    pub(crate) fn url(&self) -> &Url {
        &self.target
    }

    /// Returns the step of a single file, if there is just one and no folder.
    pub(crate) fn only(&self) -> Option<PutStep> {
        let [(path, url)] = self.roots.as_slice() else { return None };
        if is_folder_here(path) {
            return None;
        }
        Some(PutStep::File { local: LocalPath::named(path.clone()), url: url.clone() })
    }

    /// Returns all steps, folders before their entries.
    pub(crate) fn steps(self) -> impl Iterator<Item = Result<PutStep>> {
        let mut taken = self.may_meet().then(TakenUrls::default);
        let Self { roots, recursive, follows, .. } = self;
        let steps = roots.into_iter().flat_map(move |(path, url)| PutWalk {
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
            (Some(taken), PutStep::File { local, url }) => taken.claim(local, url),
            (_, step) => Ok(step),
        })
    }

    /// Returns whether two files may have one URL: named paths have the same name, or the entries
    /// of one of them go to the folder of the other ones.
    fn may_meet(&self) -> bool {
        let urls: HashSet<_> = self.roots.iter().map(|(_, url)| url).collect();
        urls.len() < self.roots.len() || (urls.len() > 1 && urls.contains(&self.target))
    }
}

/// The file that was sent to each URL.
#[derive(Debug, Default)]
struct TakenUrls(HashMap<Url, PathBuf>);

impl TakenUrls {
    /// Returns the step of a file, which must not replace another one of the same command.
    fn claim(&mut self, local: LocalPath, url: Url) -> Result<PutStep> {
        let path = local.path().to_owned();
        match self.0.entry(url) {
            Entry::Vacant(free) => {
                let url = free.key().clone();
                free.insert(path);
                Ok(PutStep::File { local, url })
            }
            Entry::Occupied(earlier) if *earlier.get() == path => {
                Ok(PutStep::Skipped { path, reason: "left out: it was named twice" })
            }
            Entry::Occupied(earlier) => Err(Failure::line(format!(
                "sending {} to {}: {} has that URL already (send one of them to another URL)",
                path.display(),
                shown(earlier.key()),
                earlier.get().display()
            ))),
        }
    }
}

/// A walk through one named file or folder.
#[derive(Debug)]
struct PutWalk {
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
    /// The folders above, by device and inode, so that links cannot lead in circles.
    above: Vec<(u64, u64)>,
}

impl Iterator for PutWalk {
    type Item = Result<PutStep>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.waiting.pop_front()?;
        Some(self.step(found))
    }
}

impl PutWalk {
    fn step(&mut self, found: WalkEntry) -> Result<PutStep> {
        let WalkEntry { local, url, is_named, above } = found;
        if is_named && is_dash(local.path()) {
            return Ok(PutStep::File { local, url });
        }
        // Opening it fails as well, with a receipt that has its URL.
        let Ok(facts) = local.look() else { return Ok(PutStep::File { local, url }) };
        let skipped = |reason| {
            let path = local.path().to_owned();
            Ok(PutStep::Skipped { path, reason })
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
        Ok(PutStep::File { local, url })
    }

    /// Queues the entries of a folder before all other entries.
    fn enter(
        &mut self,
        folder: &LocalPath,
        mut url: Url,
        facts: &Metadata,
        mut above: Vec<(u64, u64)>,
    ) -> Result<PutStep> {
        let path = || folder.path().to_owned();
        if !self.recursive {
            return Err(PutError::Folder(path()).into());
        }
        let identity = (facts.dev(), facts.ino());
        if above.contains(&identity) {
            let reason = "left out: the link points to a folder that contains it";
            return Ok(PutStep::Skipped { path: path(), reason });
        }
        above.push(identity);
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        for (name, local) in folder.entries(self.follows)?.into_iter().rev() {
            let (url, above) = (beneath(&url, &name), above.clone());
            self.waiting.push_front(WalkEntry { local, url, is_named: false, above });
        }
        Ok(PutStep::Folder { url })
    }
}

/// Parses the last word as a URL.
fn named(word: &OsStr) -> Result<Url> {
    let text = word.to_str().ok_or_else(|| "it is not UTF-8".to_owned());
    let url = text.and_then(input::url_or_object).and_then(|url| match url.fragment() {
        // Another file would be replaced.
        Some(_) => Err("what follows a # is not sent; in a name, write %23".to_owned()),
        None => Ok(url),
    });
    let word = || input::redacted(&word.to_string_lossy());
    Ok(url.map_err(|reason| PutError::Target { word: word(), reason })?)
}

/// Returns whether a named path is a folder, or a link to one.
fn is_folder_here(path: &Path) -> bool {
    !is_dash(path) && fs::metadata(path).is_ok_and(|it| it.is_dir())
}

/// Returns the name that a path gives; none for the current folder and those above.
fn name(path: &Path) -> Option<&OsStr> {
    let bytes = path.as_os_str().as_bytes();
    if bytes == b"." || bytes.ends_with(b"/.") { None } else { path.file_name() }
}

/// Returns the URL of a name in a folder.
fn beneath(folder: &Url, name: &OsStr) -> Url {
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

    #[test]
    fn a_wrong_url_is_refused_without_its_password() {
        for word in ["http://me:SECRET@h:99999/x", "ftp://me:SECRET@h/x", "http://me:SECRET@h/x#1"]
        {
            let error = named(OsStr::new(word)).expect_err(word).to_string();
            assert!(error.contains("***@h") && !error.contains("SECRET"), "{error}");
        }
        assert!(named(OsStr::new("s3://bucket/report#1.csv")).is_err());
        assert!(named(OsStr::new("http://h/x%231")).is_ok());
    }

    #[test]
    fn the_current_folder_has_no_name() {
        for (path, expected) in
            [("a/b", Some("b")), ("a/b/", Some("b")), (".", None), ("a/.", None), ("..", None)]
        {
            assert_eq!(name(Path::new(path)), expected.map(OsStr::new), "{path}");
        }
    }
}
