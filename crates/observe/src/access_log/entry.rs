//! The log entry of one request.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::metrics::SiteCounts;
use underpass_engine::{Mechanism, Report, Tally, Usage};

/// The log entry of one request, from its first byte to the last of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessEntry {
    /// When the request was read.
    pub started: SystemTime,
    /// The time from then until the kernel had the last byte, or the response was aborted.
    pub duration: Duration,
    /// The address of the client, as the log shows it.
    pub peer: String,
    /// The site that answered, if there are several.
    pub site: Option<Arc<SiteCounts>>,
    /// The authenticated user.
    pub user: Option<Arc<str>>,
    /// The method as the client spelled it.
    pub verb: String,
    /// The request target as the client sent it.
    pub target: Vec<u8>,
    /// The version of the request: HTTP/1.0 or 1.1.
    pub minor_version: u8,
    /// Whether the client used TLS, to this server or, as far as known, to a proxy.
    pub is_secure: bool,
    /// The TLS properties of the connection, if it used TLS.
    pub tls: Option<Secured>,
    /// The status that was sent.
    pub status: u16,
    /// The bytes of the request body that were received and kept, or would have been.
    pub received: u64,
    /// The length of the response body in bytes.
    pub body_len: u64,
    /// Which part of a file, or of the archive of the whole root, the body is; `None` for anything
    /// else, and for several parts.
    pub part: Option<BodyPart>,
    /// Whether the request stored a whole file under its name.
    pub has_stored: bool,
    /// The bytes of the body that were handed to the kernel.
    pub sent: u64,
    /// The bytes of the body that the peer's kernel has acknowledged.
    pub acknowledged: u64,
    /// Whether the whole response was sent and, as far as known, acknowledged.
    pub is_complete: bool,
    /// The bytes and calls of each mechanism that moved part of the body, in the order of their
    /// first use.
    pub mechanisms: Vec<(Mechanism, Tally)>,
    /// The number of system calls that moved bytes or tried to, including those for the head.
    pub calls: u64,
    /// The bytes of files copied between user and kernel space, in either direction.
    pub user_space_bytes: u64,
    /// The cost for the thread that moved the bytes, if the format [`logs_cost`].
    ///
    /// [`logs_cost`]: crate::access_log::LogFormat::logs_cost
    pub usage: Usage,
    /// The operations that the kernel declined, such as `sendfile EINVAL at 4096`, with
    /// explanations.
    pub declined: Vec<String>,
    /// The status of the cache, if there is one: `hit`, `miss`, `partial` or `stale`.
    pub cache: Option<&'static str>,
    /// The bytes of the body that were not in the cache when the response began.
    pub origin_bytes: u64,
    /// How long the response waited for the origin.
    pub waited: Duration,
    /// The failure, if there was one, as one word: `changed`, `reset`, `shrank`, `timeout`,
    /// `failed` or that of a cache error.
    pub failure: Option<&'static str>,
    /// The `Referer` field; empty if there was none.
    pub referer: Vec<u8>,
    /// The `User-Agent` field; empty if there was none.
    pub user_agent: Vec<u8>,
    /// The additional request fields that the format [`needs`], by their names in lower case.
    ///
    /// [`needs`]: crate::access_log::LogFormat::needs
    pub fields: Vec<(String, Vec<u8>)>,
}

/// The part of a file or archive that a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyPart {
    /// The offset of its first byte.
    pub start: u64,
    /// The length of the whole in bytes.
    pub whole: u64,
    /// A number for the version of the whole, derived from its entity tag.
    pub version: u64,
    /// Whether it is a part of the archive of the root.
    pub is_archive: bool,
}

/// The TLS properties of a connection in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secured {
    /// The version: `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// The cipher suite, such as `TLS_AES_128_GCM_SHA256`.
    pub suite: &'static str,
    /// Whether an earlier session was resumed.
    pub is_resumed: bool,
    /// The reason why the kernel does not encrypt; `None` if it does.
    pub why: Option<&'static str>,
}

impl Secured {
    /// Returns where records are encrypted: `kernel` or `user_space`.
    #[must_use]
    pub fn place(&self) -> &'static str {
        if self.why.is_some() { "user_space" } else { "kernel" }
    }
}

impl Default for AccessEntry {
    /// Returns an empty entry, started at the Unix epoch.
    fn default() -> Self {
        Self {
            started: SystemTime::UNIX_EPOCH,
            duration: Duration::ZERO,
            peer: String::new(),
            site: None,
            user: None,
            verb: String::new(),
            target: Vec::new(),
            minor_version: 1,
            is_secure: false,
            tls: None,
            status: 0,
            received: 0,
            body_len: 0,
            part: None,
            has_stored: false,
            sent: 0,
            acknowledged: 0,
            is_complete: false,
            mechanisms: Vec::new(),
            calls: 0,
            user_space_bytes: 0,
            usage: Usage::default(),
            declined: Vec::new(),
            cache: None,
            origin_bytes: 0,
            waited: Duration::ZERO,
            failure: None,
            referer: Vec::new(),
            user_agent: Vec::new(),
            fields: Vec::new(),
        }
    }
}

impl AccessEntry {
    /// Clears everything and keeps the memory for another request. The fields are set one by one,
    /// because assigning an empty entry would copy it several times.
    pub fn clear(&mut self) {
        let Self {
            started,
            duration,
            peer,
            site,
            user,
            verb,
            target,
            minor_version,
            is_secure,
            tls,
            status,
            received,
            body_len,
            part,
            has_stored,
            sent,
            acknowledged,
            is_complete,
            mechanisms,
            calls,
            user_space_bytes,
            usage,
            declined,
            cache,
            origin_bytes,
            waited,
            failure,
            referer,
            user_agent,
            fields,
        } = self;
        (*started, *duration, *waited) = (SystemTime::UNIX_EPOCH, Duration::ZERO, Duration::ZERO);
        (*site, *user, *tls, *part) = (None, None, None, None);
        (*cache, *failure) = (None, None);
        (*minor_version, *status, *usage) = (1, 0, Usage::default());
        (*is_secure, *has_stored, *is_complete) = (false, false, false);
        (*received, *body_len, *sent, *acknowledged) = (0, 0, 0, 0);
        (*calls, *user_space_bytes, *origin_bytes) = (0, 0, 0);
        for text in [target, referer, user_agent] {
            text.clear();
        }
        peer.clear();
        verb.clear();
        mechanisms.clear();
        declined.clear();
        fields.clear();
    }

    /// Returns the bytes of memory that the entry uses.
    #[must_use]
    pub fn memory(&self) -> usize {
        let texts = [&self.target, &self.referer, &self.user_agent];
        let fields = self.fields.iter().map(|(name, value)| name.capacity() + value.capacity());
        size_of::<Self>()
            + self.peer.capacity()
            + self.verb.capacity()
            + texts.iter().map(|text| text.capacity()).sum::<usize>()
            + fields.sum::<usize>()
    }

    /// Adds a report: the mechanisms that moved bytes, and the operations that were declined.
    ///
    /// Bytes from memory, such as the head, are left out. A response with several transfers calls
    /// this for each.
    pub fn record(&mut self, report: &Report) {
        for (mechanism, tally) in report.mechanisms() {
            match self.mechanisms.iter_mut().find(|(known, _)| *known == mechanism) {
                Some((_, sum)) => {
                    sum.bytes += tally.bytes;
                    sum.calls += tally.calls;
                }
                None => self.mechanisms.push((mechanism, tally)),
            }
        }
        for decline in report.declined() {
            let (what, answer, at) = (decline.what.name(), decline.reason.name(), decline.at);
            let meaning = decline.meaning().map(|meaning| format!(": {meaning}"));
            self.declined.push(format!("{what} {answer} at {at}{}", meaning.unwrap_or_default()));
        }
        self.calls += report.calls();
        self.user_space_bytes += report.user_space_bytes();
        self.usage = self.usage + report.usage().unwrap_or_default();
    }

    /// Returns `https` or `http`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.is_secure || self.tls.is_some() { "https" } else { "http" }
    }

    /// Returns when the request ended. This is the time of its line, so that the lines of a log are
    /// in order.
    #[must_use]
    pub fn ended(&self) -> SystemTime {
        self.started.checked_add(self.duration).unwrap_or(self.started)
    }

    /// Returns `complete`, or the failure.
    pub(crate) fn completion(&self) -> &'static str {
        self.failure.unwrap_or(if self.is_complete { "complete" } else { "incomplete" })
    }
}
