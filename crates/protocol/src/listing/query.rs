//! The query of a listing, and how its pages link to one another.

use std::borrow::Cow;

use crate::link::encode_segment;

use super::order::{Order, PageCursor, SortDirection, SortKey};

/// The maximum number of entries that one listing sorts, and so of `?limit`: about 2 MiB.
pub const MAX_ENTRIES: usize = 10_000;

/// The form of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// A page for people.
    #[default]
    Html,
    /// A page as nginx's `autoindex` writes it, for programs that follow links.
    Index,
    /// A JSON array of objects.
    Json,
    /// A JSON object on each line.
    Ndjson,
    /// A name on each line.
    Simple,
    /// The number of files and folders below the folder and their bytes, as one JSON object.
    Size,
    /// The properties of the folder and of each entry in XML, for WebDAV.
    Multistatus,
}

impl Format {
    /// Returns the value of `Content-Type`.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Html | Self::Index => "text/html; charset=utf-8",
            Self::Json | Self::Size => "application/json",
            Self::Ndjson => "application/x-ndjson",
            Self::Simple => "text/plain; charset=utf-8",
            Self::Multistatus => "application/xml; charset=utf-8",
        }
    }

    /// Returns whether a listing needs more of an entry than its name and kind: to show it, or to
    /// know that it can be read.
    #[must_use]
    pub fn shows_attributes(self) -> bool {
        !matches!(self, Self::Simple)
    }

    /// Returns the key in a query that requests this form; `None` if something else requests it:
    /// the client's `Accept` field, or the method.
    fn token(self) -> Option<&'static str> {
        match self {
            Self::Html | Self::Index | Self::Multistatus => None,
            Self::Json => Some("json"),
            Self::Ndjson => Some("ndjson"),
            Self::Simple => Some("simple"),
            Self::Size => Some("size"),
        }
    }
}

/// The query of a listing: `?json`, `?ndjson`, `?simple` or `?size`, `?sort=name|size|time`,
/// `?order=asc|desc`, `?limit=N`, `?after=CURSOR`, `?q=WORD`, `?below`, `?view=gallery`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListingQuery {
    /// The form of the listing.
    pub format: Format,
    /// The order of the entries.
    pub order: Order,
    /// The maximum number of entries; all if `None`.
    pub limit: Option<usize>,
    /// Start after the entry at this cursor, which need not exist any more.
    ///
    /// A cursor is the name of an entry, with a slash at the end if it is a folder; in an order
    /// by size or time the bytes, or nanoseconds since 1970, and a colon stand before it.
    pub after: Option<Vec<u8>>,
    /// The search: only entries with this in their name, ignoring case.
    pub search: Option<String>,
    /// Whether the search is for entries of all folders below, too.
    pub is_deep: bool,
    /// Whether the page shows its pictures.
    pub is_gallery: bool,
}

/// An invalid part of the query. The answer is 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadQuery {
    /// `after` is not a cursor of this order.
    #[error("after must be the cursor of a listing in the same order")]
    After,
    /// `limit` is not a number of at least one.
    #[error("limit must be a whole number of at least 1")]
    Limit,
    /// `order` is neither `asc` nor `desc`.
    #[error("order must be asc or desc")]
    Order,
    /// `sort` is not one of the keys.
    #[error("sort must be name, size or time")]
    Sort,
}

impl ListingQuery {
    /// Reads a query through `value`, which gives the decoded value of a key: `None` if the key is
    /// absent, empty if it has no value. `by_accept` is the format that `Accept` asks for.
    ///
    /// An empty value counts as absent, because browsers send the empty fields of a form too. A
    /// limit beyond [`MAX_ENTRIES`] means that many.
    ///
    /// # Errors
    ///
    /// [`BadQuery`], rather than a listing that is not what was meant.
    pub fn read<'q>(
        value: impl Fn(&str) -> Option<Cow<'q, [u8]>>,
        by_accept: Format,
    ) -> Result<Self, BadQuery> {
        let given = |key: &str| value(key).filter(|value| !value.is_empty());
        let requested = [Format::Size, Format::Json, Format::Ndjson, Format::Simple]
            .into_iter()
            .find(|format| format.token().is_some_and(|token| value(token).is_some()));
        let order = Order {
            key: parsed(given("sort"), SortKey::parse, BadQuery::Sort)?.unwrap_or_default(),
            direction: parsed(given("order"), SortDirection::parse, BadQuery::Order)?
                .unwrap_or_default(),
        };
        let after = given("after").map(Cow::into_owned);
        if after.as_deref().is_some_and(|after| PageCursor::from_cursor(after, order.key).is_none())
        {
            return Err(BadQuery::After);
        }
        let search = given("q").map(|word| String::from_utf8_lossy(&word).into_owned());
        let is_deep = search.is_some() && value("below").is_some();
        // Only what was found is sorted, so there is no further page.
        if is_deep && after.is_some() {
            return Err(BadQuery::After);
        }
        Ok(Self {
            format: requested.unwrap_or(by_accept),
            order,
            limit: parsed(given("limit"), parse_limit, BadQuery::Limit)?,
            after,
            search,
            is_deep,
            is_gallery: given("view").is_some_and(|view| *view == *b"gallery"),
        })
    }

    /// Returns whether the answer needs a walk through all folders below.
    #[must_use]
    pub fn is_walk(&self) -> bool {
        self.is_deep || self.format == Format::Size
    }

    /// Returns the position to start after.
    #[must_use]
    pub fn start(&self) -> Option<PageCursor<'_>> {
        PageCursor::from_cursor(self.after.as_deref()?, self.order.key)
    }

    /// Returns a link to this listing from `after` on, or from its start.
    #[must_use]
    pub fn link(&self, after: Option<&[u8]>) -> String {
        let mut link = String::from("?");
        if let Some(token) = self.format.token() {
            push_pair(&mut link, token, None);
        }
        self.push_order(&mut link);
        if let Some(label) = &self.search {
            push_pair(&mut link, "q", Some(label.as_bytes()));
        }
        if self.is_deep {
            push_pair(&mut link, "below", None);
        }
        if self.is_gallery {
            push_pair(&mut link, "view", Some(b"gallery"));
        }
        if let Some(limit) = self.limit {
            push_pair(&mut link, "limit", Some(limit.to_string().as_bytes()));
        }
        if let Some(after) = after {
            push_pair(&mut link, "after", Some(after));
        }
        // A lone question mark would keep the query of the current page.
        if link == "?" { String::from("./") } else { link }
    }

    /// Returns the query that keeps the order on the page of another folder: empty for the
    /// default order.
    #[must_use]
    pub fn sticky(&self) -> String {
        let mut query = String::from("?");
        self.push_order(&mut query);
        if query == "?" { String::new() } else { query }
    }

    /// Adds the order unless it is the default one.
    fn push_order(&self, query: &mut String) {
        if self.order != Order::default() {
            push_pair(query, "sort", Some(self.order.key.token().as_bytes()));
            push_pair(query, "order", Some(self.order.direction.token().as_bytes()));
        }
    }
}

/// Returns the value as `parse` reads it, or the error if it reads none.
fn parsed<T>(
    value: Option<Cow<'_, [u8]>>,
    parse: impl Fn(&[u8]) -> Option<T>,
    error: BadQuery,
) -> Result<Option<T>, BadQuery> {
    value.map(|value| parse(&value).ok_or(error)).transpose()
}

/// Parses a limit, and reduces it to the most entries of a listing.
fn parse_limit(text: &[u8]) -> Option<usize> {
    let is_number = text.iter().all(u8::is_ascii_digit);
    // Digits that do not fit are a large number, not an error.
    let limit = std::str::from_utf8(text).ok()?.parse().unwrap_or(usize::MAX);
    (is_number && limit > 0).then_some(limit.min(MAX_ENTRIES))
}

/// Adds a key, and its value if it has one.
fn push_pair(query: &mut String, key: &str, value: Option<&[u8]>) {
    if !query.ends_with('?') {
        query.push('&');
    }
    query.push_str(key);
    if let Some(value) = value {
        query.push('=');
        query.push_str(&encode_segment(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the pairs of a query.
    fn read(pairs: &[(&str, &str)]) -> Result<ListingQuery, BadQuery> {
        let value = |key: &str| {
            let pair = pairs.iter().find(|(name, _)| *name == key)?;
            Some(Cow::Borrowed(pair.1.as_bytes()))
        };
        ListingQuery::read(value, Format::Html)
    }

    #[test]
    fn the_default_listing_has_everything_by_name() {
        assert_eq!(read(&[]), Ok(ListingQuery::default()));
        let empty = [("q", ""), ("limit", ""), ("after", ""), ("sort", ""), ("order", "")];
        assert_eq!(read(&empty), Ok(ListingQuery::default()));
    }

    #[test]
    fn a_format_in_the_query_wins_over_the_accept_field() {
        let simple = |key: &str| (key == "simple").then_some(Cow::Borrowed(b"".as_slice()));
        let format = |query: Result<ListingQuery, _>| query.map(|query| query.format);
        for accepted in [Format::Html, Format::Index, Format::Json] {
            assert_eq!(format(ListingQuery::read(simple, accepted)), Ok(Format::Simple));
            assert_eq!(format(ListingQuery::read(|_| None, accepted)), Ok(accepted));
        }
    }

    #[test]
    fn invalid_listing_parameters_are_refused() {
        for (key, value, error) in [
            ("sort", "colour", BadQuery::Sort),
            ("order", "up", BadQuery::Order),
            ("limit", "0", BadQuery::Limit),
            ("limit", "-1", BadQuery::Limit),
            ("limit", "+1", BadQuery::Limit),
            ("limit", "10k", BadQuery::Limit),
            ("after", "a/b", BadQuery::After),
        ] {
            assert_eq!(read(&[(key, value)]), Err(error), "{key}={value}");
        }
        assert_eq!(read(&[("sort", "size"), ("after", "name")]), Err(BadQuery::After));
    }

    #[test]
    fn a_limit_beyond_what_is_held_is_cut() {
        for limit in ["10001", "99999999999999999999999999"] {
            assert_eq!(read(&[("limit", limit)]).map(|query| query.limit), Ok(Some(MAX_ENTRIES)));
        }
    }

    #[test]
    fn a_page_link_repeats_the_parameters_of_the_query() {
        let query = read(&[("json", ""), ("sort", "size"), ("limit", "5"), ("q", "a&b")]);
        assert_eq!(
            query.map(|query| query.link(Some(b"7:\xff/"))).as_deref(),
            Ok("?json&sort=size&order=asc&q=a%26b&limit=5&after=7%3A%FF%2F")
        );
        assert_eq!(ListingQuery::default().link(None), "./");
    }
}
