//! What is kept of a response's head.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use underpass_client::Response;
use underpass_client::download::interpret::Version;
use underpass_protocol::caching::{Freshness, FreshnessRules, Received};

/// What is known of a stored object: the first line of its journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// Its path at the origin.
    pub(crate) key: String,
    /// The name of the file with its bytes.
    pub(crate) body: String,
    /// The inode of that file.
    pub(crate) inode: u64,
    /// What tells its version from others, if the origin says that.
    pub(crate) version: Option<Version>,
    /// Its length in bytes; `None` as long as it is not known.
    pub(crate) size: Option<u64>,
    /// The fields of the newest response about it: lower-case names, and values.
    pub(crate) fields: Vec<(String, String)>,
    /// When that was requested and received: milliseconds since 1970.
    pub(crate) requested: u64,
    pub(crate) received: u64,
}

impl Head {
    /// Returns the times of the newest response.
    pub(crate) fn freshness(&self, rules: &FreshnessRules) -> Freshness {
        let time = |millis| UNIX_EPOCH + Duration::from_millis(millis);
        let times = Received { requested: time(self.requested), received: time(self.received) };
        Freshness::of(&self.fields, times, rules)
    }

    /// Returns the value of a field, whose name is in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Takes over what a 304 says (RFC 9111 3.2).
    pub(crate) fn freshen(&mut self, response: &Response, requested: SystemTime) {
        let newer = kept_fields(response);
        self.fields.retain(|(name, _)| !newer.iter().any(|(newer, _)| newer == name));
        self.fields.extend(newer);
        (self.requested, self.received) = (millis(requested), millis(SystemTime::now()));
    }
}

/// Returns the fields of a response that are kept.
pub(crate) fn kept_fields(response: &Response) -> Vec<(String, String)> {
    let fields = response.fields.iter().filter_map(|(name, value)| {
        let name = name.to_ascii_lowercase();
        let is_kept = KEPT.contains(&name.as_str()) || replayed(&name);
        let value = str::from_utf8(value).ok().filter(|_| is_kept)?;
        Some((name, value.to_owned()))
    });
    fields.collect()
}

/// Returns a time in milliseconds since 1970.
pub(crate) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns whether a field of the origin, in lower case, is sent to clients as it is.
pub(crate) fn replayed(name: &str) -> bool {
    REPLAYED.contains(&name)
}

/// Fields that are sent to clients as they are.
const REPLAYED: [&str; 8] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
    "link",
    "repr-digest",
    "vary",
];

/// Fields that are needed besides these, to decide or for other fields.
const KEPT: [&str; 7] =
    ["age", "cdn-cache-control", "content-type", "date", "etag", "last-modified", "set-cookie"];
