//! The digests that `--check` names.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use underpass_client::input::{self, UrlError};
use underpass_client::{ClientError, HttpClient, Url};
use underpass_copy::ends::{is_dash, standard_input};
use underpass_protocol::digest::{Digest, DigestList, Unlisted};

use crate::failure::{Failure, Result, WithPath};

/// The location of a file of digests.
#[derive(Clone, Debug)]
pub(crate) enum ChecksumSource {
    /// On this machine; `-` is standard input.
    File(PathBuf),
    /// On a server.
    Url(Url),
}

impl ChecksumSource {
    /// Parses a path, or a URL with its scheme.
    ///
    /// # Errors
    ///
    /// [`UrlError`].
    pub(super) fn parse(text: &str) -> std::result::Result<Self, UrlError> {
        if text.contains("://") {
            input::url_or_object(text).map(Self::Url)
        } else {
            Ok(Self::File(text.into()))
        }
    }

    pub(super) fn is_standard_input(&self) -> bool {
        matches!(self, Self::File(path) if is_dash(path))
    }
}

/// The digests of files by their paths.
#[derive(Debug)]
pub(super) struct ChecksumList {
    /// The place where they come from, for messages.
    name: String,
    digests: DigestList,
}

impl ChecksumList {
    /// Reads the digests in a file, or in standard input for `-`.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let (file, name): (Box<dyn Read>, _) = if is_dash(path) {
            (Box::new(standard_input()?), "standard input".to_owned())
        } else {
            let file = File::open(path).with_path("opening", path)?;
            (Box::new(file), path.display().to_string())
        };
        let mut text = Vec::new();
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut text).with_path("reading", &name)?;
        if text.len() > MAX_BYTES {
            return Err(Failure::line(format_args!("{name} is longer than 64 MiB: split it")));
        }
        Self::parse(&name, &text)
    }

    /// Fetches the digests at a URL, with retries as for files. `report` is called before each.
    pub(super) fn fetch(
        client: &HttpClient<'_>,
        url: &Url,
        retries: u32,
        report: impl Fn(&ClientError, Duration),
    ) -> Result<Self> {
        let name = underpass_receipt::shown(url);
        let text = client.fetch_to_memory(url, MAX_BYTES, retries, report).map_err(|error| {
            Failure::hinted(format!("fetching the digests of {name}: {error}"), &error)
        })?;
        Self::parse(&name, &text)
    }

    fn parse(name: &str, text: &[u8]) -> Result<Self> {
        let digests = DigestList::parse(text).ok_or_else(|| {
            Failure::line(format_args!(
                "{name} has no digests by SHA-256 or SHA-512, as sha256sum writes"
            ))
        })?;
        Ok(Self { name: name.to_owned(), digests })
    }

    /// Returns the digests of a file, by its path or, if that is not listed, by its name.
    pub(super) fn of(&self, path: &Path) -> Result<&[Digest]> {
        let bytes = path.as_os_str().as_bytes();
        let (name, path) = (&self.name, path.display());
        self.digests.of(bytes).map_err(|why| match why {
            Unlisted::Missing => {
                Failure::line(format_args!("{name} has no digest of {path}: nothing was fetched"))
            }
            Unlisted::Ambiguous => Failure::line(format_args!(
                "{name} has several files of the name {path}: say which with -d or -o"
            )),
        })
    }
}

/// The maximum length of a file of digests in bytes.
const MAX_BYTES: usize = 64 << 20;
