//! The metadata of a stored object.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use underpass_client::Response;
use underpass_client::download::interpret::StrongValidator;
use underpass_protocol::caching::{Freshness, FreshnessRules, ResponseTimes};

/// The metadata of a stored object: the first line of its journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredHead {
    /// The path at the origin.
    pub(crate) key: String,
    /// The URLs of the origins known to have the object, without credentials; empty in files of an
    /// older version of this program.
    #[serde(default)]
    pub(crate) origins: Vec<String>,
    /// The name of the file with the bytes.
    pub(crate) body: String,
    /// The inode of that file.
    pub(crate) inode: u64,
    /// The validator of the version, if the origin sent one.
    #[serde(rename = "version")]
    pub(crate) validator: Option<StrongValidator>,
    /// The length in bytes; `None` while it is unknown.
    pub(crate) size: Option<u64>,
    /// The fields of the latest response about it: lower-case names, and values.
    pub(crate) fields: Vec<(String, String)>,
    /// When that response was requested and received: milliseconds since 1970.
    pub(crate) requested: u64,
    pub(crate) received: u64,
    /// The latest expiry that was declared before the request.
    #[serde(default)]
    pub(crate) epoch: u64,
}

impl StoredHead {
    /// Returns the times of the latest response.
    pub(crate) fn freshness(&self, rules: &FreshnessRules) -> Freshness {
        let time = |millis| UNIX_EPOCH + Duration::from_millis(millis);
        let times =
            ResponseTimes { requested: time(self.requested), received: time(self.received) };
        Freshness::of(&self.fields, times, rules)
    }

    /// Returns the space that its journal needs beyond one block, in bytes.
    pub(crate) fn extra_room(&self) -> u64 {
        let fields = self.fields.iter().map(|(name, value)| name.len() + value.len());
        let origins = self.origins.iter().map(String::len);
        (self.key.len() + fields.chain(origins).sum::<usize>()) as u64 / BLOCK * BLOCK
    }

    /// Returns the value of a field, whose name is in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns whether a response has another version's validator, so that it does not apply to
    /// this one (RFC 9111 4.3.4).
    pub(crate) fn is_denied_by(&self, response: &Response) -> bool {
        let differs = |name: &str| {
            let (known, found) = (self.field(name), response.fields.get(name));
            known.zip(found).is_some_and(|(known, found)| opaque(known.as_bytes()) != opaque(found))
        };
        differs("etag") || (self.field("etag").is_none() && differs("last-modified"))
    }

    /// Returns whether a response has another coding than the stored bytes. A part need not state
    /// its coding (RFC 9110 15.3.7).
    pub(crate) fn has_other_coding(&self, response: &Response) -> bool {
        let name = "content-encoding";
        response.coding().is_some() && self.field(name) != response.fields.text(name)
    }

    /// Updates the metadata from a 304 (RFC 9111 3.2).
    pub(crate) fn freshen(&mut self, response: &Response, requested: SystemTime, epoch: u64) {
        let mut newer = stored_fields(response);
        // These fields describe the stored bytes.
        newer.retain(|(name, _)| !OF_BODY.contains(&name.as_str()));
        // `Age` and `Date` belong to a single response.
        let is_of_response = |name: &str| matches!(name, "age" | "date");
        self.fields.retain(|(name, _)| {
            !is_of_response(name) && !newer.iter().any(|(newer, _)| newer == name)
        });
        self.fields.extend(newer);
        (self.requested, self.received) = (millis(requested), millis(SystemTime::now()));
        self.epoch = epoch;
    }

    /// Replaces the metadata by that of a 200 with the same version (RFC 9111 4.3.3).
    pub(crate) fn renew(&mut self, response: &Response, requested: SystemTime, epoch: u64) {
        self.fields = stored_fields(response);
        (self.requested, self.received) = (millis(requested), millis(SystemTime::now()));
        self.epoch = epoch;
    }
}

/// Returns the fields of a response that are stored: all but those about the connection (RFC 9111
/// 3.1), and those that are not UTF-8. `Location` is percent-encoded. If there is a `Set-Cookie`,
/// which is not forwarded, the response is marked private for caches between here and the clients.
pub(crate) fn stored_fields(response: &Response) -> Vec<(String, String)> {
    let named: Vec<_> = response.fields.all("connection").map(<[u8]>::to_ascii_lowercase).collect();
    let mut options = named.iter().flat_map(|value| value.split(|&byte| byte == b','));
    let options: Vec<_> = options.by_ref().map(<[u8]>::trim_ascii).collect();
    let has_odd_tag = response.fields.get("etag").is_some_and(|tag| str::from_utf8(tag).is_err());
    let fields = response.fields.iter().filter_map(|(name, value)| {
        let name = name.to_ascii_lowercase();
        // The date alone would match versions that the tag distinguishes.
        if has_odd_tag && name == "last-modified" {
            return None;
        }
        if FORBIDDING.contains(&name.as_str()) {
            return Some((name, String::from_utf8_lossy(value).into_owned()));
        }
        let is_of_connection =
            OF_CONNECTION.contains(&name.as_str()) || options.contains(&name.as_bytes());
        let value = match str::from_utf8(value) {
            _ if is_of_connection => return None,
            Ok(value) => value.to_owned(),
            Err(_) if name == "location" => escaped(value),
            Err(_) => return None,
        };
        Some((name, value))
    });
    let mut fields: Vec<_> = fields.collect();
    if fields.iter().any(|(name, _)| name == "set-cookie") {
        fields.retain(|(name, _)| name != "cdn-cache-control");
        fields.push(("cache-control".to_owned(), "private".to_owned()));
    }
    fields
}

/// Returns a reference that is not UTF-8 in an equivalent, percent-encoded form.
fn escaped(reference: &[u8]) -> String {
    let escape = |byte: &u8| {
        if byte.is_ascii() { char::from(*byte).to_string() } else { format!("%{byte:02X}") }
    };
    reference.iter().map(escape).collect()
}

/// Returns an entity tag without the prefix of weak ones.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Returns whether a field, in lower case, describes the content of one message, which differs for
/// a range.
pub(crate) fn is_of_content(name: &str) -> bool {
    matches!(name, "content-digest" | "content-md5")
}

/// Returns a time in milliseconds since 1970.
pub(crate) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns whether a field of the origin, in lower case, is forwarded to clients unchanged.
pub(crate) fn is_forwarded(name: &str) -> bool {
    !SET_BY_SERVER.contains(&name) && !PER_CLIENT.contains(&name) && !name.starts_with("x-amz-")
}

/// The usual block size of a file system.
const BLOCK: u64 = 4096;

/// Fields that can forbid storing a response for all clients. They count even if they are
/// malformed, or if `Connection` names them, which it must not (RFC 9110 7.6.1).
const FORBIDDING: [&str; 4] = ["cache-control", "cdn-cache-control", "set-cookie", "vary"];

/// Fields about the connection to the origin (RFC 9110 7.6.1).
const OF_CONNECTION: [&str; 11] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
];

/// Fields about the bytes, which a 304 does not change (RFC 9111 3.2). The last two identify the
/// version.
const OF_BODY: [&str; 7] = [
    "content-digest",
    "content-encoding",
    "content-length",
    "content-md5",
    "content-range",
    "etag",
    "last-modified",
];

/// Fields that this server writes itself.
const SET_BY_SERVER: [&str; 13] = [
    "accept-ranges",
    "age",
    "cache-status",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "etag",
    "last-modified",
    "server",
    "via",
    "www-authenticate",
    "x-content-type-options",
];

/// Fields for one client, or about the origin's own host.
const PER_CLIENT: [&str; 11] = [
    "accept-ch",
    "alt-svc",
    "clear-site-data",
    "expect-ct",
    "nel",
    "public-key-pins",
    "public-key-pins-report-only",
    "report-to",
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
];
