//! The directives of `Cache-Control` (RFC 9111 5.2, RFC 5861, RFC 8246) and of
//! `CDN-Cache-Control` (RFC 9213).

use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};

use super::{FieldList, values};

/// The directives of a response about caching it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is a directive of its own
pub struct Directives {
    /// It must not be stored.
    pub no_store: bool,
    /// It must not be stored by a cache that several clients share.
    pub private: bool,
    /// It may be stored although its status says nothing about that.
    pub public: bool,
    /// It may be stored by a cache that knows what its status means, and by no other one (RFC 9111
    /// 5.2.2.3).
    pub must_understand: bool,
    /// It must be validated before each use.
    pub no_cache: bool,
    /// It must not be used when it is stale: `must-revalidate` or `proxy-revalidate`.
    pub must_revalidate: bool,
    /// It does not change while it is fresh (RFC 8246).
    pub immutable: bool,
    /// The number of seconds for which it is fresh.
    pub max_age: Option<u64>,
    /// The number of seconds for which it is fresh in a shared cache.
    pub s_maxage: Option<u64>,
    /// The number of seconds for which it may be used after that while it is validated (RFC 5861
    /// 3).
    pub stale_while_revalidate: Option<u64>,
    /// The number of seconds for which it may be used after that if the origin fails (RFC 5861 4).
    pub stale_if_error: Option<u64>,
    /// Whether they come from `CDN-Cache-Control`, which replaces `Cache-Control` and `Expires`.
    pub is_targeted: bool,
}

impl Directives {
    /// Reads the directives of a response. `CDN-Cache-Control` counts alone, if there is a valid
    /// and non-empty one (RFC 9213 2.2).
    #[must_use]
    pub fn of(fields: &FieldList) -> Self {
        targeted(fields).unwrap_or_else(|| {
            let mut directives = Self::default();
            for member in values(fields, "cache-control").flat_map(split) {
                let (name, value) = match member.split_once('=') {
                    Some((name, value)) => (name.trim(), Some(value.trim().trim_matches('"'))),
                    None => (member.trim(), None),
                };
                directives.set(&name.to_ascii_lowercase(), value);
            }
            directives
        })
    }

    /// Sets one directive. Of a repeated number the first counts (RFC 9111 4.2.1).
    fn set(&mut self, name: &str, value: Option<&str>) {
        // A number that cannot be read counts as 0: the response is stale.
        let seconds = |known: Option<u64>| known.or(Some(value.map_or(0, delta_seconds)));
        match name {
            "no-store" => self.no_store = true,
            // A list of fields restricts these less than no list; the difference is not used.
            "private" => self.private = true,
            "no-cache" => self.no_cache = true,
            "public" => self.public = true,
            "must-understand" => self.must_understand = true,
            "must-revalidate" | "proxy-revalidate" => self.must_revalidate = true,
            "immutable" => self.immutable = true,
            "max-age" => self.max_age = seconds(self.max_age),
            "s-maxage" => self.s_maxage = seconds(self.s_maxage),
            "stale-while-revalidate" => {
                self.stale_while_revalidate = seconds(self.stale_while_revalidate);
            }
            "stale-if-error" => self.stale_if_error = seconds(self.stale_if_error),
            _ => {}
        }
    }

    /// Returns whether a stale response must not be used, whatever else is said (RFC 9111 4.2.4,
    /// 5.2.2.10).
    pub(crate) fn forbids_stale(&self) -> bool {
        self.no_cache || self.must_revalidate || self.s_maxage.is_some()
    }
}

/// Reads `CDN-Cache-Control`: a dictionary of structured fields, all of which is ignored if a part
/// of it is invalid.
fn targeted(fields: &FieldList) -> Option<Directives> {
    let lines: Vec<_> = values(fields, "cdn-cache-control").collect();
    if lines.is_empty() {
        return None;
    }
    let dictionary = Parser::new(&lines.join(",")).parse::<Dictionary>().ok()?;
    let mut directives = Directives { is_targeted: true, ..Directives::default() };
    let mut is_empty = true;
    for (key, entry) in &dictionary {
        let ListEntry::Item(Item { bare_item, .. }) = entry else { continue };
        is_empty = false;
        match bare_item {
            BareItem::Boolean(true) => directives.set(key.as_str(), None),
            BareItem::Integer(number) => {
                let number = i64::from(*number);
                directives.set(key.as_str(), Some(&number.max(0).to_string()));
            }
            // As in `Cache-Control`, a list of fields counts as no list.
            BareItem::String(_) if matches!(key.as_str(), "private" | "no-cache") => {
                directives.set(key.as_str(), None);
            }
            _ => {}
        }
    }
    (!is_empty).then_some(directives)
}

/// Reads a number of seconds; 0 if it is not a number. One that is too large counts as 2^31 (RFC
/// 9111 1.2.2).
pub(super) fn delta_seconds(text: &str) -> u64 {
    if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        text.parse().unwrap_or(u64::MAX).min(1 << 31)
    } else {
        0
    }
}

/// Splits a list at commas that are not inside quotes. If a quote has no end, it hides no
/// directive: the list is split at all commas.
fn split(list: &str) -> impl Iterator<Item = &str> {
    let is_open = list.chars().map(quoting()).fold(false, |_, is_quoted| is_quoted);
    let mut is_quoted = quoting();
    list.split(move |c| (!is_quoted(c) || is_open) && c == ',')
        .map(str::trim)
        .filter(|member| !member.is_empty())
}

/// Returns a function that tells, of one character after the other, whether a quoted string goes on
/// after it (RFC 9110 5.6.4).
fn quoting() -> impl FnMut(char) -> bool {
    let (mut is_quoted, mut is_escaped) = (false, false);
    move |c| {
        is_quoted ^= c == '"' && !is_escaped;
        is_escaped = c == '\\' && is_quoted && !is_escaped;
        is_quoted
    }
}
