//! The fields that the operator adds to responses about files whose path matches a pattern.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use crate::files::root::last_name;
use crate::server::settings::{PathHeader, ServeError};
use underpass_protocol::response::head::{path_field, push_field};

/// The fields by pattern, in the order of the settings.
#[derive(Debug, Default)]
pub(crate) struct PathFields(Vec<PathField>);

/// One field for the paths that match.
#[derive(Debug)]
struct PathField {
    glob: GlobMatcher,
    /// Whether the pattern is matched with the whole path and not only with the name.
    is_path: bool,
    name: String,
    value: String,
}

impl PathFields {
    /// Reads the patterns of the settings.
    ///
    /// # Errors
    ///
    /// An invalid pattern, or a field that may not be set.
    pub(crate) fn new(headers: &[PathHeader]) -> Result<Self, ServeError> {
        let fields = headers.iter().map(|header| {
            let PathHeader { pattern, name, value } = header;
            path_field(name, value).map_err(ServeError::Header)?;
            let glob = GlobBuilder::new(pattern.trim_matches('/')).literal_separator(true).build();
            let glob = glob
                .map_err(|error| ServeError::pattern("--header", pattern, error.kind()))?
                .compile_matcher();
            let is_path = pattern.contains('/');
            let (name, value) = (name.clone(), value.trim().to_owned());
            Ok(PathField { glob, is_path, name, value })
        });
        fields.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the media type of the file at a path, if one is set.
    pub(crate) fn media_type(&self, path: &[u8]) -> Option<&str> {
        let fields = self.0.iter().rev();
        let mut types = fields.filter(|field| field.is_media_type());
        types.find(|field| field.matches(path)).map(|field| field.value.as_str())
    }

    /// Appends the lines of all other fields of the file at a path: of several with one name, the
    /// last one. Returns `common`, the lines of every response, without those that these replace;
    /// `None` if there are none.
    pub(crate) fn push(&self, path: &[u8], common: &[u8], out: &mut Vec<u8>) -> Option<Vec<u8>> {
        let mut others = None;
        let matching: Vec<_> =
            self.0.iter().filter(|field| !field.is_media_type() && field.matches(path)).collect();
        for (index, field) in matching.iter().enumerate() {
            let is_named = |later: &&PathField| later.name.eq_ignore_ascii_case(&field.name);
            if !matching[index + 1..].iter().any(is_named) {
                push_field(out, &field.name, field.value.as_bytes());
                others = without(others.as_deref().unwrap_or(common), &field.name).or(others);
            }
        }
        others
    }
}

/// Returns whether one of these lines is a field of this name.
pub(crate) fn has_field(lines: &[u8], name: &str) -> bool {
    lines.split(|byte| *byte == b'\n').any(|line| is_field(line, name))
}

/// Returns whether a line is a field of this name.
fn is_field(line: &[u8], name: &str) -> bool {
    let known = line.split(|byte| *byte == b':').next();
    known.is_some_and(|known| known.eq_ignore_ascii_case(name.as_bytes()))
}

/// Returns the lines without those of this name; `None` if there are none of it.
fn without(lines: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut lines = lines.split_inclusive(|byte| *byte == b'\n');
    let others = lines.clone().filter(|line| !is_field(line, name)).flatten().copied().collect();
    lines.any(|line| is_field(line, name)).then_some(others)
}

impl PathField {
    fn is_media_type(&self) -> bool {
        self.name.eq_ignore_ascii_case("Content-Type")
    }

    fn matches(&self, path: &[u8]) -> bool {
        let text = if self.is_path { path } else { last_name(path) };
        self.glob.is_match(Path::new(OsStr::from_bytes(text)))
    }
}
