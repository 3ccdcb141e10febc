//! Machine-readable listings: of nginx (`autoindex_format json`), Caddy, dufs and ourselves.

use rustix::fs::Timespec;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use underpass_protocol::encode_segment;

use super::{EntryFacts, MAX_LINKS, date};
use crate::s3::parse_time;

/// Parses a listing.
pub(super) fn entries(body: &[u8]) -> Option<BoundedEntries> {
    // A type that is either could only be read by way of text, which names need not be.
    match body.trim_ascii_start().first()? {
        b'[' => serde_json::from_slice(body).ok(),
        _ => {
            let Dufs { paths, kind } = serde_json::from_slice(body).ok()?;
            let is_whole = paths.is_whole && kind.as_deref() == Some("Index");
            Some(BoundedEntries { is_whole, ..paths })
        }
    }
}

/// Entries; at most one more than [`MAX_LINKS`] is kept.
pub(super) struct BoundedEntries {
    pub(super) entries: Vec<JsonLink>,
    /// Whether every object was an entry.
    pub(super) is_whole: bool,
}

/// An entry in the JSON of any server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JsonLink {
    pub(super) link: String,
    pub(super) is_folder: bool,
    pub(super) facts: EntryFacts,
}

impl<'de> Deserialize<'de> for BoundedEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = BoundedEntries;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of objects")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<BoundedEntries, A::Error> {
                let (mut entries, mut is_whole) = (Vec::new(), true);
                while let Some(object) = list.next_element::<JsonEntry>()? {
                    if entries.len() <= MAX_LINKS {
                        let entry = object.entry();
                        is_whole &= entry.is_some();
                        entries.extend(entry);
                    }
                }
                Ok(BoundedEntries { entries, is_whole })
            }
        }
        deserializer.deserialize_seq(Visit)
    }
}

/// The object in which dufs sends its list.
#[derive(Deserialize)]
struct Dufs {
    paths: BoundedEntries,
    /// `Index` for the listing of a folder.
    kind: Option<String>,
}

/// An entry with the fields of all these servers.
#[derive(Deserialize)]
struct JsonEntry {
    #[serde(default)]
    name: JsonBytes,
    /// Sent by our server, for names that are not UTF-8.
    name_bytes: Option<String>,
    /// Sent by Caddy and our server.
    url: Option<String>,
    size: Option<u64>,
    /// RFC 3339 from our server, an HTTP date from nginx, milliseconds from dufs.
    mtime: Option<Time>,
    /// Caddy's.
    mod_time: Option<String>,
    /// Octal digits from our server, Go's mode bits from Caddy.
    mode: Option<Mode>,
    #[serde(default)]
    is_dir: bool,
    #[serde(default)]
    is_symlink: bool,
    /// nginx's: `directory` or `file`.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// dufs's: `Dir`, `SymlinkDir`, `File`, `SymlinkFile`.
    path_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Time {
    Milliseconds(i64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Mode {
    Go(u64),
    Octal(String),
}

impl JsonEntry {
    fn entry(self) -> Option<JsonLink> {
        let path_type = self.path_type.as_deref().unwrap_or_default();
        let is_folder =
            self.is_dir || self.kind.as_deref() == Some("directory") || path_type.ends_with("Dir");
        let link = match (self.url, self.name_bytes) {
            (Some(url), _) => url,
            // So that a colon in a name does not make it a scheme.
            (None, Some(encoded)) => format!("./{encoded}"),
            (None, None) if self.name.0.is_empty() => return None,
            (None, None) => format!("./{}", encode_segment(&self.name.0)),
        };
        // The properties of a link may be its own or those of its target.
        if self.is_symlink || path_type.starts_with("Symlink") {
            return Some(JsonLink { link, is_folder, facts: EntryFacts::default() });
        }
        let modified = match (self.mtime, self.mod_time) {
            (Some(Time::Milliseconds(time)), _) => Some(Timespec {
                tv_sec: time.div_euclid(1_000),
                tv_nsec: time.rem_euclid(1_000) * 1_000_000,
            }),
            (Some(Time::Text(text)), _) | (None, Some(text)) => {
                parse_time(&text).or_else(|| date(text.as_bytes()))
            }
            (None, None) => None,
        };
        let mode = self.mode.and_then(|mode| match mode {
            Mode::Go(bits) => u32::try_from(bits & 0o777).ok(),
            Mode::Octal(text) => Some(u32::from_str_radix(&text, 8).ok()? & 0o777),
        });
        let size = self.size.filter(|_| !is_folder);
        let facts = EntryFacts { size, modified, mode, tag: None };
        Some(JsonLink { link, is_folder, facts })
    }
}

/// A string that need not be UTF-8: nginx writes names as they are.
#[derive(Default)]
struct JsonBytes(Vec<u8>);

impl<'de> Deserialize<'de> for JsonBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl Visitor<'_> for Visit {
            type Value = JsonBytes;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a name")
            }

            fn visit_bytes<E: de::Error>(self, value: &[u8]) -> Result<JsonBytes, E> {
                Ok(JsonBytes(value.to_vec()))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<JsonBytes, E> {
                Ok(JsonBytes(value.as_bytes().to_vec()))
            }
        }
        deserializer.deserialize_bytes(Visit)
    }
}
