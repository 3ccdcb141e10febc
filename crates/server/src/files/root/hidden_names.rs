//! The names and paths that are not served.

use std::ffi::OsStr;
use std::fmt::Display;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::server::settings::{ServeError, SiteSettings};
use underpass_engine::atomic_file::{self, name_of_hidden};
use underpass_protocol::upload::is_partial_name;

/// The names that are not served.
#[derive(Debug)]
pub(super) struct HiddenNames {
    dot_files: bool,
    /// Whether incomplete files are hidden, too.
    partial_files: bool,
    patterns: Patterns,
    /// The same patterns ignoring case; `None` if that makes no difference.
    any_case: Option<Patterns>,
}

/// The patterns of hidden names.
#[derive(Debug)]
struct Patterns {
    names: GlobSet,
    /// The patterns of paths, and of everything below such a path: each path is matched as a whole,
    /// not each folder on its way.
    paths: GlobSet,
    /// The patterns that end in a slash: a match is hidden if it is a folder.
    folder_names: GlobSet,
    folder_paths: GlobSet,
}

impl HiddenNames {
    pub(super) fn new(settings: &SiteSettings, ignores_case: bool) -> Result<Self, ServeError> {
        Ok(Self {
            // An origin has no partial files of this server, and hides names itself.
            dot_files: !settings.shows_hidden && settings.cache.is_none(),
            partial_files: settings.cache.is_none(),
            patterns: Patterns::new(settings, ignores_case)?,
            any_case: (!ignores_case && !settings.hide.is_empty())
                .then(|| Patterns::new(settings, true))
                .transpose()?,
        })
    }

    /// Returns whether the path, or any folder on the way to it, is hidden; the flag is true for a
    /// folder. The time is linear in the length of the path.
    pub(super) fn matches(&self, path: &[u8], is_folder: bool) -> bool {
        let is_dot_file = path.split(|byte| *byte == b'/').any(|name| {
            name.starts_with(b".")
                && (self.dot_files || (self.partial_files && is_incomplete(name)))
        });
        is_dot_file || self.patterns.matches(path, is_folder)
    }

    /// Returns whether a path is hidden where it lies: a folder on the way may ignore the case of
    /// names although the root does not. The flag is true for a folder.
    pub(super) fn matches_at(
        &self,
        path: &[u8],
        is_folder: bool,
        ignores_case: impl FnOnce() -> bool,
    ) -> bool {
        self.matches(path, is_folder) || (self.matches_any_case(path, is_folder) && ignores_case())
    }

    /// Returns whether a path is hidden only if its folders ignore the case of names.
    pub(super) fn depends_on_case(&self, path: &[u8]) -> bool {
        self.matches_any_case(path, true) && !self.patterns.matches(path, true)
    }

    fn matches_any_case(&self, path: &[u8], is_folder: bool) -> bool {
        self.any_case.as_ref().is_some_and(|patterns| patterns.matches(path, is_folder))
    }
}

impl Patterns {
    fn new(settings: &SiteSettings, ignores_case: bool) -> Result<Self, ServeError> {
        let mut sets: [_; 4] = std::array::from_fn(|_| GlobSetBuilder::new());
        for pattern in &settings.hide {
            let fail = |why: &dyn Display| ServeError::pattern("--hide", pattern, why);
            let trimmed = pattern.trim_matches('/');
            if trimmed.is_empty() {
                return Err(fail(&"that hides nothing: name files or folders, such as *.log"));
            }
            let glob = |pattern: &str| -> Result<Glob, ServeError> {
                let mut glob = globset::GlobBuilder::new(pattern);
                glob.literal_separator(true).case_insensitive(ignores_case);
                glob.build().map_err(|error| fail(error.kind()))
            };
            let is_path = pattern.trim_end_matches('/').contains('/');
            let is_folder = pattern.ends_with('/');
            sets[usize::from(is_path) + 2 * usize::from(is_folder)].add(glob(trimmed)?);
            if is_path && let Some(beneath) = beneath(trimmed, is_folder) {
                sets[1].add(glob(&beneath)?);
            }
        }
        let build = |set: GlobSetBuilder| {
            set.build().map_err(|error| {
                ServeError::pattern("--hide", &settings.hide.join(", "), error.kind())
            })
        };
        let [names, paths, folder_names, folder_paths] = sets.map(build);
        Ok(Self {
            names: names?,
            paths: paths?,
            folder_names: folder_names?,
            folder_paths: folder_paths?,
        })
    }

    /// Returns whether a pattern matches the path or a folder on the way to it; the flag is true
    /// for a folder.
    fn matches(&self, path: &[u8], is_folder: bool) -> bool {
        if path.is_empty() {
            return false;
        }
        let text = |bytes| Path::new(OsStr::from_bytes(bytes));
        let mut end = 0;
        path.split(|byte| *byte == b'/').any(|name| {
            end += name.len() + usize::from(end > 0);
            self.names.is_match(text(name))
                || ((is_folder || end < path.len()) && self.folder_names.is_match(text(name)))
        }) || self.paths.is_match(text(path))
            || (is_folder && self.folder_paths.is_match(text(path)))
    }
}

/// Returns whether a name is that of an incomplete file of the server, which is the part of an
/// upload or a new file on a file system without `O_TMPFILE`, or that of a removed file that is
/// still open (see [`is_open_leftover`]).
pub(crate) fn is_incomplete(name: &[u8]) -> bool {
    is_partial_name(name) || name_of_hidden(name).is_some() || is_open_leftover(name)
}

/// Returns whether FUSE or NFS has given this name to an open file that was removed, until it is
/// closed.
pub(crate) fn is_open_leftover(name: &[u8]) -> bool {
    let digits = name.strip_prefix(b".fuse_hidden").or_else(|| name.strip_prefix(b".nfs"));
    digits.is_some_and(|it| it.len() >= 16 && it.iter().all(u8::is_ascii_hexdigit))
}

/// Returns the pattern for everything below the paths that a pattern matches, unless the pattern
/// matches that itself.
fn beneath(pattern: &str, is_folder: bool) -> Option<String> {
    match pattern.strip_suffix("**") {
        // Everything below a folder that is itself below another one.
        Some(above) if is_folder => Some(format!("{above}*/**")),
        Some(_) => None,
        None => Some(format!("{pattern}/**")),
    }
}

/// Returns whether a folder ignores the case of names, as tested on its first suitable entry;
/// without one, case matters.
pub(super) fn ignores_case(folder: BorrowedFd<'_>, path: &Path) -> bool {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut found =
        entries.filter_map(|entry| atomic_file::ignores_case(folder, entry.file_name().as_bytes()));
    found.next().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use underpass_engine::atomic_file::hidden_name;

    use super::*;

    fn hidden(pattern: &str) -> HiddenNames {
        let mut settings = SiteSettings::new("/".into());
        settings.hide = vec![pattern.to_owned()];
        HiddenNames::new(&settings, false).expect("a pattern")
    }

    #[test]
    fn incomplete_files_of_the_server_are_hidden_from_all() {
        let mut settings = SiteSettings::new("/".into());
        settings.shows_hidden = true;
        let names = HiddenNames::new(&settings, false).expect("no pattern");
        let part = hidden_name(OsStr::new("file"), Some(7));
        assert!(names.matches(part.as_bytes(), false));
        assert!(names.matches(b"a/.x.0123456789abcdef0123456789abcdef.upload", false));
        for name in [".file", ".file.part", ".file.7.part", "file"] {
            assert!(!names.matches(name.as_bytes(), false), "{name}");
        }
    }

    #[test]
    fn entries_below_a_hidden_path_are_hidden() {
        for (pattern, hides, shows) in [
            ("/a/b", &["a/b", "a/b/c", "a/b/c/d"][..], &["a", "b", "a/c", "x/a/b", "a/bc"][..]),
            ("/a/*.log", &["a/x.log", "a/x.log/y"], &["a/b/x.log", "x.log"]),
            ("/a/**", &["a/b", "a/b/c"], &["a", "b/a/c"]),
            ("**/x/**", &["x/b", "a/x/b", "a/b/x/c/d"], &["x", "a/x", "a/xy/b"]),
            ("**/x/**/y", &["x/y", "x/a/b/y", "a/x/b/y/c"], &["x", "y/x", "x/a"]),
            ("a/b/", &["a/b/c"], &["a/b", "a", "a/bc/d"]),
            ("/a/**/", &["a/b/c", "a/b/c/d"], &["a/b", "a"]),
            ("x*", &["x", "a/xy", "xy/b"], &["a", "a/yx"]),
            ("x/", &["x/a", "a/x/b"], &["x", "a/x"]),
        ] {
            let names = hidden(pattern);
            for path in hides {
                assert!(names.matches(path.as_bytes(), false), "{pattern} {path}");
            }
            for path in shows {
                assert!(!names.matches(path.as_bytes(), false), "{pattern} {path}");
            }
        }
        for (pattern, path) in [("a/b/", "a/b"), ("/a/**/", "a/b"), ("x/", "a/x")] {
            assert!(hidden(pattern).matches(path.as_bytes(), true), "{pattern} {path}");
        }
    }
}
