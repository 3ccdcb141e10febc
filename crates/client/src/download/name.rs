//! The name of a download for which the user gave none.

mod taken;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use percent_encoding::percent_decode_str;
use url::Url;

pub use taken::{NameClash, NameError, TakenNames};

/// Returns the file name for a URL: its last segment, or `index.html` if that is empty. `None` if
/// it cannot be a file name: `.` and `..`, and names with slashes or control characters.
#[must_use]
pub fn name_of(url: &Url) -> Option<OsString> {
    let segment = url.path_segments()?.next_back()?;
    let name: Vec<u8> = percent_decode_str(segment).collect();
    if name.is_empty() {
        return Some("index.html".into());
    }
    let is_bad = name == b"." || name == b".." || name.len() > NAME_MAX;
    let has_bad = name.iter().any(|byte| *byte == b'/' || byte.is_ascii_control());
    (!is_bad && !has_bad).then(|| OsString::from_vec(name))
}

/// Returns the name for the file at a URL: the end of its path, as users expect, without another
/// request; if that is not the name of a file, the one that `suggested` returns, if any.
pub fn name_or_suggested(
    url: &Url,
    suggested: impl FnOnce() -> Option<OsString>,
) -> Option<OsString> {
    // The path is that of a folder, or of a program with a query.
    let is_vague = url.path().ends_with('/') || url.query().is_some_and(|query| !query.is_empty());
    let name = name_of(url);
    let suggested = if name.is_some() && !is_vague { None } else { suggested() };
    suggested.or(name)
}

/// Returns the name that a server suggests, without folders; `None` if it cannot be a file name, or
/// is a hidden one: unlike a URL, the user has not seen it.
pub(super) fn usable(suggested: Vec<u8>) -> Option<OsString> {
    let name = suggested.rsplit(|byte| matches!(byte, b'/' | b'\\')).next()?;
    let is_bad = name.is_empty() || name.starts_with(b".") || name.len() > NAME_MAX;
    let has_bad = match str::from_utf8(name) {
        Ok(text) => text.chars().any(char::is_control),
        Err(_) => name.iter().any(u8::is_ascii_control),
    };
    (!is_bad && !has_bad).then(|| OsString::from_vec(name.to_vec()))
}

/// The maximum length of a name in bytes on nearly all file systems.
const NAME_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_segment_names_the_file() {
        for (url, name) in [
            ("http://a/b/c.iso?x=1#y", Some("c.iso")),
            ("http://a/b/", Some("index.html")),
            ("http://a", Some("index.html")),
            ("http://a/b%20c", Some("b c")),
            ("http://a/%2e%2e", Some("index.html")),
            ("http://a/b%2Fc", None),
            ("http://a/b%00", None),
            ("http://a/b%0Ac", None),
            ("http://a/b%7F", None),
            ("http://a/.hidden", Some(".hidden")),
        ] {
            let found = name_of(&Url::parse(url).expect("a URL"));
            assert_eq!(found.as_deref(), name.map(std::ffi::OsStr::new), "{url}");
        }
    }

    #[test]
    fn a_suggested_name_stays_in_the_folder_and_is_not_hidden() {
        for (suggested, name) in [
            ("a.tar", Some("a.tar")),
            ("/etc/passwd", Some("passwd")),
            ("..\\..\\b", Some("b")),
            ("a/..", None),
            ("..", None),
            (".bashrc", None),
            ("x/.ssh", None),
            ("a/", None),
            ("", None),
            ("a\nb", None),
            ("a\u{9b}b", None),
            ("a\u{7f}", None),
        ] {
            let found = usable(suggested.as_bytes().to_vec());
            assert_eq!(found.as_deref(), name.map(std::ffi::OsStr::new), "{suggested:?}");
        }
        assert_eq!(usable(vec![b'a'; 256]), None);
    }

    #[test]
    fn a_name_can_be_any_bytes() {
        let url = Url::parse("http://a/%FF%FE").expect("a URL");
        assert_eq!(name_of(&url), Some(OsString::from_vec(vec![0xff, 0xfe])));
    }
}
