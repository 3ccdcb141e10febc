//! The `Cache-Status` field (RFC 9211).

use std::fmt;

/// The reason why a request went to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The cache had nothing for its URL.
    UriMiss,
    /// The cache had a part of what was requested.
    Partial,
    /// The stored response was stale.
    Stale,
}

/// The way in which a cache handled a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus {
    /// The reason why the origin was asked; `None` for a hit.
    pub forward: Option<Forward>,
    /// The status of the origin's answer, if the origin was asked.
    pub forward_status: Option<u16>,
    /// The seconds for which the response stays fresh; negative if it is stale.
    pub ttl: Option<i64>,
    /// Whether the origin's answer is stored.
    pub is_stored: bool,
    /// Whether the origin has confirmed what was stored.
    pub is_confirmed: bool,
    /// Whether the response was passed on because it could not be stored.
    pub is_relayed: bool,
    /// Whether one request to the origin served several clients.
    pub is_collapsed: bool,
    /// A detail, as one token.
    pub detail: Option<&'static str>,
}

impl CacheStatus {
    /// Returns the status of a response that is passed on because it cannot be stored; `why` is the
    /// detail.
    #[must_use]
    pub fn relayed(self, why: &'static str) -> Self {
        let forward = self.forward.or(Some(Forward::Partial));
        let detail = self.detail.or(Some(why));
        Self { forward, is_stored: false, is_relayed: true, detail, ..self }
    }

    /// Returns whether the origin sends the whole response: nothing of this version was stored before.
    #[must_use]
    pub fn is_new(&self) -> bool {
        match self.forward {
            None | Some(Forward::Partial) => false,
            Some(Forward::UriMiss) => true,
            Some(Forward::Stale) => !self.is_confirmed,
        }
    }

    /// Returns the word for the log: `hit`, `miss`, `partial` or `stale`.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self.forward {
            None => "hit",
            Some(Forward::UriMiss) => "miss",
            Some(Forward::Partial) => "partial",
            Some(Forward::Stale) => "stale",
        }
    }
}

impl fmt::Display for CacheStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("underpass")?;
        match self.forward {
            None => f.write_str("; hit")?,
            Some(Forward::UriMiss) => f.write_str("; fwd=uri-miss")?,
            Some(Forward::Partial) => f.write_str("; fwd=partial")?,
            Some(Forward::Stale) => f.write_str("; fwd=stale")?,
        }
        if let Some(status) = self.forward_status {
            write!(f, "; fwd-status={status}")?;
        }
        if let Some(ttl) = self.ttl {
            write!(f, "; ttl={ttl}")?;
        }
        if self.is_stored {
            f.write_str("; stored")?;
        }
        if self.is_relayed {
            f.write_str("; stored=?0")?;
        }
        if self.is_collapsed {
            f.write_str("; collapsed")?;
        }
        match self.detail {
            Some(detail) => write!(f, "; detail={detail}"),
            None => Ok(()),
        }
    }
}
