//! Patterns of entries that are left out.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

/// A glob pattern of entries to leave out.
#[derive(Clone, Debug)]
pub struct ExcludePattern {
    glob: GlobMatcher,
    /// Whether it matches the path below the source, not just the name.
    is_path: bool,
    /// Whether it matches only folders.
    is_folder: bool,
}

/// Returns whether one of the patterns matches an entry of this name, whose path below the source
/// `path` returns.
pub(crate) fn is_excluded(
    patterns: &[ExcludePattern],
    name: &[u8],
    path: impl Fn() -> Vec<u8>,
    is_folder: bool,
) -> bool {
    patterns.iter().any(|pattern| {
        if pattern.is_path {
            pattern.matches(&path(), is_folder)
        } else {
            pattern.matches(name, is_folder)
        }
    })
}

impl ExcludePattern {
    /// Compiles a pattern. `*.o` matches names, `build/*.o` and `/build` paths below a source, and
    /// `build/` only folders. `*` and `?` stand for anything but a slash, `**` for anything,
    /// `[a-c]` and `[!a-c]` for one byte, `{a,b}` for either, and a backslash makes the next letter
    /// ordinary.
    ///
    /// # Errors
    ///
    /// If the text is not a pattern, such as a bracket without its end, or not UTF-8.
    pub fn new(text: &OsStr) -> Result<Self, PatternError> {
        let wrong = |why: &dyn fmt::Display| PatternError(why.to_string());
        let whole = text
            .to_str()
            .ok_or_else(|| wrong(&"a pattern must be UTF-8; ? stands for any byte"))?;
        let is_folder = whole.len() > 1 && whole.ends_with('/');
        let text = if is_folder { &whole[..whole.len() - 1] } else { whole };
        let is_path = text.contains('/');
        let text = text.strip_prefix('/').unwrap_or(text);
        if text.is_empty() {
            return Err(wrong(&"an empty pattern matches nothing"));
        }
        let glob = GlobBuilder::new(text)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| wrong(error.kind()))?;
        Ok(Self { glob: glob.compile_matcher(), is_path, is_folder })
    }

    /// Returns whether it matches a path below a source: the path, or its last name if the pattern
    /// has no slash.
    #[must_use]
    pub fn matches_path(&self, path: &[u8], is_folder: bool) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        self.matches(if self.is_path { path } else { name }, is_folder)
    }

    /// Returns whether it matches this name, or path below a source.
    pub(crate) fn matches(&self, name: &[u8], is_folder: bool) -> bool {
        let name = Path::new(OsStr::from_bytes(name));
        (is_folder || !self.is_folder) && self.glob.is_match(name)
    }
}

/// The reason why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PatternError(String);

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> ExcludePattern {
        ExcludePattern::new(OsStr::new(text)).expect("a pattern")
    }

    #[test]
    fn patterns_mean_what_a_shell_means() {
        for (text, name, expected) in [
            ("*.o", "main.o", true),
            ("*.o", "main.os", false),
            ("a*b*c", "aXbYbZc", true),
            ("?", "ab", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("*.{o,a}", "main.a", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("build/*.o", "build/main.o", true),
            ("build/*.o", "build/deep/main.o", false),
            ("**/main.o", "main.o", true),
            ("**/main.o", "build/deep/main.o", true),
            ("build/**", "build/deep/main.o", true),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("a/**/b", "a/xb", false),
            ("/top", "top", true),
        ] {
            let found = pattern(text).matches(name.as_bytes(), false);
            assert_eq!(found, expected, "{text} and {name}");
        }
        assert!(pattern("*").matches(b"\xff\xfe", false));
        assert!(pattern("?").matches(b"\xff", false));
        assert!(!pattern("build/").matches(b"build", false));
        assert!(pattern("build/").matches(b"build", true));
        assert!(!pattern("build/").is_path && pattern("/build").is_path);
    }

    #[test]
    fn malformed_patterns_are_refused() {
        for (text, fault) in [("[", "unclosed character class"), ("{a", "unclosed alternate group")]
        {
            let error = ExcludePattern::new(OsStr::new(text)).expect_err(text);
            assert!(error.to_string().starts_with(fault), "{error}");
        }
        assert!(ExcludePattern::new(OsStr::from_bytes(b"\xff")).is_err());
    }
}
