//! The properties that the server computes (RFC 4918 15), and their values.

use std::borrow::Cow;
use std::time::SystemTime;

use jiff::Timestamp;
use underpass_protocol::response::validator::push_date;

use crate::locks::Lock;
use crate::xml::{Element, Name, close, escape, open};

/// A property that the server computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names of RFC 4918 and RFC 4331
pub enum Live {
    CreationDate,
    DisplayName,
    ContentLength,
    ContentType,
    Etag,
    LastModified,
    LockDiscovery,
    ResourceType,
    SupportedLock,
    QuotaAvailable,
    QuotaUsed,
}

impl Live {
    /// Every property, in the order in which they are written.
    pub const ALL: [Self; 11] = [
        Self::ResourceType,
        Self::DisplayName,
        Self::ContentLength,
        Self::ContentType,
        Self::CreationDate,
        Self::LastModified,
        Self::Etag,
        Self::SupportedLock,
        Self::LockDiscovery,
        Self::QuotaAvailable,
        Self::QuotaUsed,
    ];

    /// Returns its name in the WebDAV namespace.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CreationDate => "creationdate",
            Self::DisplayName => "displayname",
            Self::ContentLength => "getcontentlength",
            Self::ContentType => "getcontenttype",
            Self::Etag => "getetag",
            Self::LastModified => "getlastmodified",
            Self::LockDiscovery => "lockdiscovery",
            Self::ResourceType => "resourcetype",
            Self::SupportedLock => "supportedlock",
            Self::QuotaAvailable => "quota-available-bytes",
            Self::QuotaUsed => "quota-used-bytes",
        }
    }

    /// Returns the property with this name.
    #[must_use]
    pub fn of(name: &Name) -> Option<Self> {
        Self::ALL.into_iter().find(|live| name.is_dav(live.name()))
    }

    /// Returns whether a request for all properties includes it (RFC 4331 2).
    pub(crate) fn is_of_all(self) -> bool {
        !matches!(self, Self::QuotaAvailable | Self::QuotaUsed)
    }
}

/// A file or folder, with what the requested properties need.
#[derive(Clone, Debug, Default)]
pub struct Resource<'a> {
    /// Whether it is a folder.
    pub is_folder: bool,
    /// The last component of its path.
    pub name: &'a [u8],
    /// The size of a file in bytes.
    pub len: u64,
    /// When its contents were last changed, if the client may know.
    pub modified: Option<SystemTime>,
    /// When it was created, if the file system stores that.
    pub created: Option<SystemTime>,
    /// The entity tag of a file.
    pub etag: Option<String>,
    /// The media type of a file.
    pub media_type: Cow<'a, str>,
    /// Whether the client could lock it.
    pub is_lockable: bool,
    /// The locks that cover it.
    pub locks: Vec<HeldLock>,
    /// The space of its file system.
    pub quota: Option<Quota>,
    /// The properties that clients have stored.
    pub stored: Vec<Element>,
}

/// The space of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The bytes that are available.
    pub available: u64,
    /// The bytes that are used.
    pub used: u64,
}

/// A lock as clients see it.
#[derive(Clone, Debug)]
pub struct HeldLock {
    /// The lock.
    pub lock: Lock,
    /// The link to the locked resource.
    pub root: String,
    /// The number of seconds until it expires.
    pub seconds: u64,
}

impl Resource<'_> {
    /// Writes a property; returns false if the resource does not have it.
    pub(crate) fn write(&self, live: Live, out: &mut Vec<u8>) -> bool {
        let begin = out.len();
        open(out, live.name());
        let is_there = self.write_value(live, out);
        close(out, live.name());
        if !is_there {
            out.truncate(begin);
        }
        is_there
    }

    /// Returns whether the resource has this property.
    pub(crate) fn has(&self, live: Live) -> bool {
        self.write_value(live, &mut Vec::new())
    }

    fn write_value(&self, live: Live, out: &mut Vec<u8>) -> bool {
        let mut number = |value: Option<u64>| {
            out.extend_from_slice(value.unwrap_or_default().to_string().as_bytes());
            value.is_some()
        };
        match live {
            Live::ContentLength => number((!self.is_folder).then_some(self.len)),
            Live::QuotaAvailable => number(self.quota.map(|quota| quota.available)),
            Live::QuotaUsed => number(self.quota.map(|quota| quota.used)),
            Live::ResourceType => {
                out.extend_from_slice(if self.is_folder { b"<D:collection/>" } else { b"" });
                true
            }
            Live::DisplayName => {
                escape(out, &String::from_utf8_lossy(self.name));
                true
            }
            Live::ContentType => {
                escape(out, if self.is_folder { FOLDER_TYPE } else { &self.media_type });
                true
            }
            Live::Etag => {
                escape(out, self.etag.as_deref().unwrap_or_default());
                self.etag.is_some()
            }
            Live::LastModified => {
                let begin = out.len();
                self.modified.into_iter().for_each(|time| push_date(out, time));
                out.len() > begin
            }
            Live::CreationDate => {
                let time = self.created.and_then(|time| Timestamp::try_from(time).ok());
                let time = time.and_then(|time| Timestamp::from_second(time.as_second()).ok());
                out.extend_from_slice(
                    time.map(|time| time.to_string()).unwrap_or_default().as_bytes(),
                );
                time.is_some()
            }
            Live::SupportedLock => {
                out.extend_from_slice(if self.is_lockable { SUPPORTED_LOCKS } else { b"" });
                true
            }
            Live::LockDiscovery => {
                self.locks.iter().for_each(|held| held.lock.write(&held.root, held.seconds, out));
                true
            }
        }
    }
}

/// The media type that other servers and clients use for a folder.
const FOLDER_TYPE: &str = "httpd/unix-directory";

const SUPPORTED_LOCKS: &[u8] = b"<D:lockentry><D:lockscope><D:exclusive/></D:lockscope>\
<D:locktype><D:write/></D:locktype></D:lockentry>\
<D:lockentry><D:lockscope><D:shared/></D:lockscope>\
<D:locktype><D:write/></D:locktype></D:lockentry>";
