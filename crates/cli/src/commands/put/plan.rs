//! The URL of each named file and folder.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use underpass_client::upload::walk::{LocalPath, UploadStep, WalkError, beneath, steps};
use underpass_client::{Url, input};
use underpass_copy::ends::is_dash;

use super::args::PutArgs;
use super::usage::{PutError, TargetError};
use crate::failure::Result;

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
        // The URL may contain a password, which no message may show.
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
    pub(crate) fn only(&self) -> Option<UploadStep> {
        let [(path, url)] = self.roots.as_slice() else { return None };
        if is_folder_here(path) {
            return None;
        }
        Some(UploadStep::File { local: LocalPath::named(path.clone()), url: url.clone() })
    }

    /// Returns all steps, folders before their entries.
    pub(crate) fn steps(self) -> impl Iterator<Item = Result<UploadStep>> {
        let Self { target, roots, recursive, follows } = self;
        let steps = steps(roots, &target, (recursive, follows));
        steps.map(|step| {
            step.map_err(|error| match error {
                WalkError::Folder(path) => PutError::Folder(path).into(),
                error => error.into(),
            })
        })
    }
}

/// Parses the last word as a URL.
fn named(word: &OsStr) -> Result<Url> {
    let parsed = || {
        let url = input::url_or_object(word.to_str().ok_or(TargetError::Encoding)?)?;
        if url.fragment().is_none() { Ok(url) } else { Err(TargetError::Fragment) }
    };
    let word = || input::redacted(&word.to_string_lossy());
    Ok(parsed().map_err(|reason| PutError::Target { word: word(), reason })?)
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

#[cfg(test)]
mod tests {
    use super::*;

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
