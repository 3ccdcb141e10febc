//! Responses without an object: errors, redirects and other statuses. They are read into memory and
//! reused for a short time.

use std::time::{Duration, Instant, SystemTime};

use underpass_client::{Connection, Url, without_credentials};
use underpass_protocol::caching::{Freshness, FreshnessRules, ResponseTimes, may_store};

use super::origins::OriginResponse;
use crate::store::{is_forwarded, stored_fields};

/// A response without an object, read into memory.
#[derive(Debug)]
pub struct BufferedResponse {
    /// The status.
    pub status: u16,
    /// The `Retry-After` of the origin (RFC 9110 10.2.3).
    pub retry_after: Option<Duration>,
    /// Its fields and body for clients; `None` if the body is too long, incomplete or not meant for
    /// them. The status is then an error.
    pub content: Option<ResponseContent>,
    /// The latest expiry that was declared before the request.
    pub(crate) epoch: u64,
    /// The times that determine its freshness.
    pub freshness: Freshness,
    /// Whether it may also be sent to clients that waited for the same fetch.
    pub(crate) is_for_all: bool,
    until: Option<Instant>,
}

/// The fields and the body of a response without an object.
#[derive(Debug)]
pub struct ResponseContent {
    /// The fields for clients: lower-case names, and values.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl BufferedResponse {
    /// Reads the response to a request sent at `requested`, after the expiry `epoch`; also returns
    /// the connection if it can be reused. The response may vary by the fields `vary_on`.
    pub(super) fn read(
        received: OriginResponse,
        requested: SystemTime,
        epoch: u64,
        vary_on: &[String],
    ) -> (Self, Option<Connection<'static>>) {
        let OriginResponse { answer, base, has_secrets, .. } = received;
        let (mut connection, response) = (answer.connection, answer.response);
        let times = ResponseTimes { requested, received: SystemTime::now() };
        let incoming = connection.incoming();
        let deadline = incoming.set_deadline(Some(Instant::now() + MAX_BODY_TIME));
        let body = incoming.memory(response.framing, MAX_BODY);
        incoming.set_deadline(deadline);
        let connection = (body.is_ok() && response.keeps_alive).then_some(connection);
        let status = response.status;
        let mut fields = stored_fields(&response);
        let fresh = matches!(status, 404 | 410).then_some(MAX_TIME);
        let rules = FreshnessRules { fresh, ..FreshnessRules::default() };
        let freshness = Freshness::of_status(status, &fields, times, &rules);
        let lifetime = u64::try_from(freshness.remaining(times.received)).unwrap_or(0);
        let lifetime = Duration::from_secs(lifetime).min(MAX_TIME);
        let is_for_all = may_store(status, &fields, vary_on).is_ok();
        fields.retain(|(name, _)| is_forwarded(name) || MESSAGE_FIELDS.contains(&name.as_str()));
        for (_, value) in fields.iter_mut().filter(|(name, _)| name == "location") {
            *value = relative(value, &answer.url, &base);
        }
        let response = Self {
            status,
            retry_after: response.retry_after(times.received),
            content: body
                .ok()
                .filter(|_| !has_secrets)
                .map(|body| ResponseContent { fields, body }),
            epoch,
            freshness,
            is_for_all,
            until: (is_for_all && !lifetime.is_zero()).then(|| Instant::now() + lifetime),
        };
        (response, connection)
    }

    /// Returns whether it may be reused.
    pub(crate) fn is_fresh(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}

/// Returns the target of a redirect as clients of this node see it: below the origin's URL it
/// becomes a path of this server, which starts with a slash.
fn relative(location: &str, from: &Url, base: &str) -> String {
    let Ok(to) = from.join(location) else { return location.to_owned() };
    let to = without_credentials(&to);
    match to.as_str().strip_prefix(base) {
        // Two leading slashes would denote another host.
        Some(rest) if rest.starts_with("//") => format!("/.{rest}"),
        Some(rest) if rest.starts_with('/') => rest.to_owned(),
        // The base itself.
        Some(rest) if rest.is_empty() || rest.starts_with(['?', '#']) => format!("/{rest}"),
        _ => to.into(),
    }
}

/// Fields that this server sets itself for objects, but forwards from responses without one.
const MESSAGE_FIELDS: [&str; 3] = ["content-type", "etag", "last-modified"];

/// The maximum size of a body in memory, in bytes.
const MAX_BODY: usize = 16 << 10;

/// The time limit for a body in memory, for which clients wait.
const MAX_BODY_TIME: Duration = Duration::from_secs(5);

/// The maximum time for which a response without an object is reused: errors are often temporary.
const MAX_TIME: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_below_the_origin_lead_to_this_node() {
        let from = Url::parse("http://user:word@o/base/a/b").unwrap();
        for (location, expected) in [
            ("c", "/a/c"),
            ("/base/c?d", "/c?d"),
            ("http://o/base/", "/"),
            ("/base", "/"),
            ("/base?d", "/?d"),
            ("http://o/base//evil.example/x", "/.//evil.example/x"),
            ("/base/\\evil.example/x", "/.//evil.example/x"),
            ("/c", "http://o/c"),
            ("/basement", "http://o/basement"),
            ("https://o/base/c", "https://o/base/c"),
            ("http://x:y@other/z", "http://other/z"),
            ("http://[", "http://["),
        ] {
            assert_eq!(relative(location, &from, "http://o/base"), expected, "{location}");
        }
    }
}
