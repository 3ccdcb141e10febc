//! Counts requests for objects, to list what other nodes should have.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Mutex;

use underpass_engine::wait::lock;

use crate::key::CacheKey;

/// The number of requests for each path and query, with the fields by which it varies.
#[derive(Debug, Default)]
pub(crate) struct Popularity(Mutex<RequestCounts>);

#[derive(Debug, Default)]
struct RequestCounts {
    counts: HashMap<String, u64>,
    /// The total length of all names.
    bytes: usize,
}

/// A request that is counted until this is dropped, and afterwards only if it `stays`: a list for
/// other nodes must not have paths that do not exist.
pub(crate) struct CountedRequest<'a> {
    popularity: &'a Popularity,
    name: Cow<'a, str>,
    /// Whether it stays in the list, because a kept object answered it, or it failed.
    pub(crate) stays: bool,
}

impl Drop for CountedRequest<'_> {
    fn drop(&mut self) {
        if !self.stays {
            self.popularity.discount(&self.name);
        }
    }
}

impl Popularity {
    /// Counts a request. When the table is full, all counts are halved, and paths that were
    /// requested once are dropped.
    pub(crate) fn count(&self, key: &CacheKey) {
        self.count_name(&name(key));
    }

    /// Counts a request provisionally.
    pub(crate) fn count_for_now<'a>(&'a self, key: &'a CacheKey) -> CountedRequest<'a> {
        let name = name(key);
        self.count_name(&name);
        CountedRequest { popularity: self, name, stays: false }
    }

    /// Removes a counted request again.
    fn discount(&self, name: &str) {
        let mut counted = lock(&self.0);
        let RequestCounts { counts, bytes } = &mut *counted;
        let Some(count) = counts.get_mut(name) else { return };
        *count -= 1;
        if *count == 0 {
            *bytes -= name.len();
            counts.remove(name);
        }
    }

    fn count_name(&self, key: &str) {
        let mut counted = lock(&self.0);
        let RequestCounts { counts, bytes } = &mut *counted;
        if let Some(count) = counts.get_mut(key) {
            *count += 1;
            return;
        }
        while !counts.is_empty() && (counts.len() >= MAX_KNOWN || *bytes + key.len() > MAX_BYTES) {
            counts.retain(|known, count| {
                *count /= 2;
                if *count == 0 {
                    *bytes -= known.len();
                }
                *count > 0
            });
        }
        *bytes += key.len();
        counts.insert(key.to_owned(), 1);
    }

    /// Returns at most `number` names with their counts, the most popular first: a path, followed
    /// by a line `name: value` for each field.
    pub(crate) fn top(&self, number: usize) -> Vec<(String, u64)> {
        let mut all: Vec<_> =
            lock(&self.0).counts.iter().map(|(key, count)| (key.clone(), *count)).collect();
        all.sort_unstable_by(|one, other| (other.1, &one.0).cmp(&(one.1, &other.0)));
        all.truncate(number);
        all
    }
}

/// Returns the lines that identify an object in a list; a path has no line break.
fn name(key: &CacheKey) -> Cow<'_, str> {
    let lines: String = key.fields().map(|(name, value)| format!("\n{name}: {value}")).collect();
    if lines.is_empty() { Cow::Borrowed(key.as_str()) } else { Cow::Owned(format!("{key}{lines}")) }
}

/// The maximum number of paths that are counted.
const MAX_KNOWN: usize = 16 << 10;

/// The maximum total length of the names in bytes.
const MAX_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequently_requested_names_are_remembered() {
        let popularity = Popularity::default();
        for _ in 0..3 {
            popularity.count_name("/b");
        }
        for _ in 0..2 {
            popularity.count_name("/a");
        }
        for number in 0..MAX_KNOWN {
            popularity.count_name(&format!("/scan/{number}"));
        }
        assert!(lock(&popularity.0).counts.len() <= MAX_KNOWN);
        let top = popularity.top(2);
        assert_eq!(top, [("/a".to_owned(), 1), ("/b".to_owned(), 1)]);
        assert_eq!(popularity.top(MAX_KNOWN).len(), lock(&popularity.0).counts.len());
    }

    #[test]
    fn the_total_length_of_paths_is_limited() {
        let popularity = Popularity::default();
        for number in 0..3000 {
            popularity.count_name(&format!("/{number:08191}"));
            let counted = lock(&popularity.0);
            let bytes: usize = counted.counts.keys().map(String::len).sum();
            assert!(counted.bytes <= MAX_BYTES && (number % 100 > 0 || counted.bytes == bytes));
        }
    }
}
