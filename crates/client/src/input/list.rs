//! Lists of files to download: one URL per line, with aria2's options `out` and `checksum`.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Component, Path, PathBuf};

use underpass_protocol::digest::{Digest, UnknownDigest};
use url::Url;

use super::{UrlError, url_or_object};

/// A file to download, with its options.
#[derive(Clone, Debug)]
pub struct ListedFile {
    /// The URL.
    pub url: Url,
    /// The output file, relative to the folder of the whole list.
    pub out: Option<PathBuf>,
    /// The digests that the file must have.
    pub digests: Vec<Digest>,
}

/// The reason why a list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The list cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line cannot be parsed.
    #[error("line {number}: {reason}")]
    Line {
        /// The number of the line; the first is 1.
        number: usize,
        /// The reason.
        reason: LineError,
    },
}

/// The reason why a line of a list cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// It is not UTF-8.
    #[error("it is not UTF-8: write other bytes of a URL as %XX")]
    Encoding,
    /// It is not an option.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// It has several URLs, separated by tabs.
    #[error("several URLs on a line are not supported: give each its own")]
    SeveralUrls,
    /// The list has more bytes than are read. A truncated list would go unnoticed.
    #[error("the list is longer than 256 MiB: split it")]
    TooLong,
    /// The list has more URLs than are read.
    #[error("more than {} URLs: split the list", MAX_ITEMS)]
    TooManyUrls,
    /// It is not a URL.
    #[error(transparent)]
    Url(#[from] UrlError),
}

/// The reason why an option of a URL in a list cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// It is not a digest.
    #[error("checksum= takes sha-256=HEX or sha-512=HEX")]
    Digest(#[from] UnknownDigest),
    /// There is no URL before it.
    #[error("an option comes before the first URL")]
    First,
    /// The name of the output file leads out of the folder: lists may come from anywhere.
    #[error("out={0} leads out of the folder, or is no file")]
    Out(String),
    /// There is no such option.
    #[error("'{0}' is neither out=FILE nor checksum=ALG=HEX")]
    Unknown(String),
}

impl ListedFile {
    /// Creates the item of a URL without options.
    #[must_use]
    pub fn new(url: Url) -> Self {
        Self { url, out: None, digests: Vec::new() }
    }
}

/// Reads a list.
///
/// # Errors
///
/// If it cannot be read, is too long, or has an invalid line: no part of it is used then.
pub fn read(source: impl Read) -> Result<Vec<ListedFile>, ListError> {
    read_to(source, MAX_BYTES)
}

/// Reads a list of at most `max` bytes.
fn read_to(source: impl Read, max: u64) -> Result<Vec<ListedFile>, ListError> {
    let (mut items, mut bytes) = (Vec::new(), 0);
    for (index, line) in BufReader::new(source.take(max + 1)).split(b'\n').enumerate() {
        let line = line?;
        bytes += line.len() as u64 + 1;
        let parsed = match str::from_utf8(&line) {
            _ if bytes > max => Err(LineError::TooLong),
            // Some editors begin a file with a byte order mark.
            Ok(line) if index == 0 => parse_line(&mut items, line.trim_start_matches('\u{feff}')),
            Ok(line) => parse_line(&mut items, line),
            Err(_) => Err(LineError::Encoding),
        };
        parsed.map_err(|reason| ListError::Line { number: index + 1, reason })?;
    }
    Ok(items)
}

/// Parses one line: a URL, an option of the URL before it, a comment, or nothing.
fn parse_line(items: &mut Vec<ListedFile>, line: &str) -> Result<(), LineError> {
    let text = line.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(());
    }
    if !line.starts_with([' ', '\t']) {
        if text.contains('\t') {
            return Err(LineError::SeveralUrls);
        }
        if items.len() >= MAX_ITEMS {
            return Err(LineError::TooManyUrls);
        }
        items.push(ListedFile::new(url_or_object(text)?));
        return Ok(());
    }
    Ok(items.last_mut().ok_or(OptionError::First)?.set(text)?)
}

impl ListedFile {
    /// Sets an option: `out=FILE` or `checksum=ALG=HEX`.
    fn set(&mut self, text: &str) -> Result<(), OptionError> {
        match text.split_once('=') {
            Some(("out", name)) => self.out = Some(relative(name)?),
            // aria2 writes sha-256=HEX.
            Some(("checksum", value)) => self.digests.push(value.replacen('=', ":", 1).parse()?),
            _ => return Err(OptionError::Unknown(text.to_owned())),
        }
        Ok(())
    }
}

/// Returns a relative path that stays within its folder.
fn relative(name: &str) -> Result<PathBuf, OptionError> {
    let path = Path::new(name);
    let stays = path.components().all(|part| matches!(part, Component::Normal(_)));
    let is_good = stays && !name.is_empty() && !name.ends_with('/');
    is_good.then(|| path.to_owned()).ok_or_else(|| OptionError::Out(name.to_owned()))
}

/// The maximum length of a list in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// The maximum number of URLs in a list.
const MAX_ITEMS: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_line_by_line() {
        let hex = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        let option = format!("  checksum=sha-256={hex}");
        let mut items = Vec::new();
        for line in ["# a comment", "", "http://h/a", "  out=x/y", &option, "  # one more", "h/b"] {
            parse_line(&mut items, line).expect(line);
        }
        let urls: Vec<_> = items.iter().map(|item| item.url.as_str()).collect();
        assert_eq!(urls, ["http://h/a", "http://h/b"]);
        assert_eq!(items[0].out.as_deref(), Some(Path::new("x/y")));
        assert_eq!(items[0].digests[0].hex(), hex);
        assert!(items[1].out.is_none() && items[1].digests.is_empty());
    }

    #[test]
    fn a_list_is_read_whole_or_not_at_all() {
        let list = b"http://h/a\nhttp://h/bc\n";
        let read = |max| read_to(&list[..], max).map(|items| items.len());
        assert!(matches!(read(list.len() as u64), Ok(2)));
        for max in 0..list.len() as u64 {
            assert!(matches!(read(max), Err(ListError::Line { .. })), "{max}");
        }
    }

    #[test]
    fn malformed_download_lists_are_refused() {
        for lines in [
            &["  out=a"][..],
            &["http://h/a", " out=../a"],
            &["http://h/a", " out=/etc/passwd"],
            &["http://h/a", " out="],
            &["http://h/a", " out=a/"],
            &["http://h/a", " split=5"],
            &["http://h/a", " checksum=sha-256=xyz"],
            &["http://h/a\thttp://g/a"],
            &["ftp://h/a"],
        ] {
            let mut items = Vec::new();
            let parsed = lines.iter().map(|line| parse_line(&mut items, line)).collect::<Vec<_>>();
            assert!(parsed.last().is_some_and(Result::is_err), "{lines:?}");
        }
    }
}
