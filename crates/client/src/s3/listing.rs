//! The entries of a folder of a bucket: pages of `ListObjectsV2`.

use std::collections::HashSet;

use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rustix::fs::Timespec;
use underpass_engine::atomic_file::fingerprint;
use url::Url;

use crate::error::{ClientError, InvalidResponse};
use crate::http::{Connection, HttpClient, Request, xml};

/// An object, or a folder: the common beginning of several keys up to a slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedKey {
    /// Its name: the key without the folder's. The name of a folder ends in a slash.
    pub name: Vec<u8>,
    /// The length of an object in bytes; `None` for folders.
    pub size: Option<u64>,
    /// The time of its last modification.
    pub modified: Option<Timespec>,
    /// The fingerprint of its entity tag.
    pub tag: Option<u64>,
}

/// A part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedPage {
    /// The objects and folders, each kind in the order of the names.
    pub entries: Vec<ListedKey>,
    /// The token of the next page; `None` for the last one.
    next: Option<String>,
    /// Whether an object has the folder's own key.
    pub has_own: bool,
}

/// The entries of a folder of a bucket, page by page.
#[derive(Debug)]
pub struct Pages<'a> {
    /// The connection for the next request, if there is one already.
    pub idle: Option<Connection<'a>>,
    next: Option<String>,
    /// All tokens so far, so that a store that repeats one does not cause an endless loop.
    tokens: HashSet<String>,
    is_done: bool,
}

impl<'a> Pages<'a> {
    /// Begins before the first page; requests use this connection if there is one.
    #[must_use]
    pub fn new(idle: Option<Connection<'a>>) -> Self {
        Self { idle, next: None, tokens: HashSet::new(), is_done: false }
    }

    /// Requests the next page of the entries of a folder in a bucket; `None` after the last one.
    /// `folder` is a percent-encoded key that ends in a slash, or empty.
    ///
    /// A store may send endless pages: the caller must limit them.
    ///
    /// # Errors
    ///
    /// Those of [`HttpClient::execute`]; [`ClientError::Status`] if the store refuses,
    /// [`ClientError::InvalidResponse`] if a page is not a listing. No further page can be requested
    /// then.
    pub fn next(
        &mut self,
        client: &HttpClient<'a>,
        bucket: &Url,
        folder: &str,
    ) -> Result<Option<ListedPage>, ClientError> {
        if std::mem::replace(&mut self.is_done, true) {
            return Ok(None);
        }
        let (page, idle) = list(client, self.idle.take(), bucket, folder, self.next.as_deref())?;
        self.idle = idle;
        self.next.clone_from(&page.next);
        if let Some(token) = &page.next {
            if !self.tokens.insert(token.clone()) {
                let problem = "its listing repeats a page";
                return Err(InvalidResponse::Protocol(problem).into());
            }
            self.is_done = false;
        }
        Ok(Some(page))
    }

    /// Returns whether there is no further page.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns the length of the last continuation token in bytes.
    #[must_use]
    pub fn token_len(&self) -> usize {
        self.next.as_ref().map_or(0, String::len)
    }
}

/// Requests a page; also returns the connection if it can be reused.
fn list<'a>(
    client: &HttpClient<'a>,
    idle: Option<Connection<'a>>,
    bucket: &Url,
    folder: &str,
    from: Option<&str>,
) -> Result<(ListedPage, Option<Connection<'a>>), ClientError> {
    let prefix: Vec<u8> = percent_decode_str(folder).collect();
    let prefix_text = percent_encoding::percent_encode(&prefix, NON_ALPHANUMERIC);
    let mut query = format!("list-type=2&encoding-type=url&delimiter=%2F&prefix={prefix_text}");
    if let Some(from) = from {
        query += &format!("&continuation-token={}", utf8_percent_encode(from, NON_ALPHANUMERIC));
    }
    let mut url = bucket.clone();
    url.set_query(Some(&query));
    let answer = client.execute(idle, &Request { method: "GET", fields: &[] }, &url)?;
    let (mut connection, response) = (answer.connection, answer.response);
    if response.status != 200 {
        return Err(connection.refusal(&response));
    }
    let body = connection.read_body(&response, MAX_PAGE)?;
    let page = parse(&body, &prefix).map_err(InvalidResponse::Protocol)?;
    Ok((page, response.keeps_alive.then_some(connection)))
}

/// Parses a page.
///
/// # Errors
///
/// The reason why it is not a listing, or an incomplete one.
fn parse(body: &[u8], prefix: &[u8]) -> Result<ListedPage, &'static str> {
    let (mut page, mut entry) = (ListedPage::default(), ListedKey::default());
    let (mut key, mut common) = (String::new(), String::new());
    let (mut is_listing, mut is_escaped, mut is_cut) = (false, false, false);
    let mut found = Vec::new();
    xml::read(body, |name, text| match name {
        b"key" => text.clone_into(&mut key),
        b"prefix" => text.clone_into(&mut common),
        b"size" => entry.size = text.parse().ok(),
        b"lastmodified" => entry.modified = parse_time(text),
        b"etag" => entry.tag = (!text.is_empty()).then(|| tag_fingerprint(text)),
        b"contents" => found.push((std::mem::take(&mut key), std::mem::take(&mut entry))),
        b"commonprefixes" => found.push((std::mem::take(&mut common), ListedKey::default())),
        b"istruncated" => is_cut = !text.trim().eq_ignore_ascii_case("false"),
        b"nextcontinuationtoken" => page.next = Some(text.to_owned()),
        b"encodingtype" => is_escaped = text == "url",
        b"listbucketresult" => is_listing = true,
        _ => {}
    });
    for (key, entry) in found {
        let key: Vec<u8> = if is_escaped {
            // Some stores encode a space as `+`.
            percent_decode_str(&key.replace('+', "%20")).collect()
        } else {
            key.into_bytes()
        };
        // If it were skipped, a mirror would remove its local copy.
        let name = key.strip_prefix(prefix).filter(|_| !key.is_empty());
        let name = name.ok_or("its listing has an entry that is not of the folder")?;
        page.has_own |= name.is_empty() && entry.size.is_some();
        // A key that ends in a slash only stands for the folder.
        if !name.is_empty() && (entry.size.is_none() || !name.ends_with(b"/")) {
            page.entries.push(ListedKey { name: name.to_vec(), ..entry });
        }
    }
    page.next = page.next.filter(|next| !next.is_empty());
    match (is_listing, is_cut && page.next.is_none()) {
        (false, _) => Err("it is not the listing of a bucket"),
        (true, true) => Err("its listing is truncated without a token for the rest"),
        (true, false) => Ok(page),
    }
}

/// Returns a fingerprint of an entity tag for comparisons, because listings may have a million. Not
/// all stores quote the tags in listings.
pub(crate) fn tag_fingerprint(tag: &str) -> u64 {
    fingerprint(tag.trim_matches('"').as_bytes())
}

/// Parses an RFC 3339 time.
pub(crate) fn parse_time(text: &str) -> Option<Timespec> {
    let nanoseconds = text.parse::<Timestamp>().ok()?.as_nanosecond();
    let tv_sec = nanoseconds.div_euclid(1_000_000_000) as i64;
    Some(Timespec { tv_sec, tv_nsec: nanoseconds.rem_euclid(1_000_000_000) as i64 })
}

/// The maximum size of a page in bytes: a thousand keys of 1 KiB, escaped.
const MAX_PAGE: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_objects_and_folders() {
        let body = b"<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3\"><Name>b</Name>\
            <Prefix>a%20b/</Prefix><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
            <Contents><Key>a%20b/</Key><LastModified>2026-01-02T03:04:05.500Z</LastModified>\
            <ETag>&quot;x&quot;</ETag><Size>0</Size></Contents>\
            <Contents><Key>a+b/c%2Bd</Key><LastModified>2026-01-02T03:04:05.500Z</LastModified>\
            <ETag>&quot;x&quot;</ETag><Size>7</Size></Contents><CommonPrefixes><Prefix>a%20b/e/</Prefix></CommonPrefixes>\
            <NextContinuationToken>n=&amp;</NextContinuationToken></ListBucketResult>";
        let page = parse(body, b"a b/").expect("a page");
        let object = ListedKey {
            name: b"c+d".to_vec(),
            size: Some(7),
            modified: Some(Timespec { tv_sec: 1_767_323_045, tv_nsec: 500_000_000 }),
            tag: Some(tag_fingerprint("x")),
        };
        let folder = ListedKey { name: b"e/".to_vec(), ..ListedKey::default() };
        assert_eq!(page.entries, [object, folder]);
        assert_eq!(page.next.as_deref(), Some("n=&"));
        assert!(page.has_own);
        assert!(parse(b"<html></html>", b"").is_err());
        let empty = parse(b"<ListBucketResult></ListBucketResult>", b"");
        assert_eq!(empty, Ok(ListedPage::default()));
    }

    #[test]
    fn an_entry_outside_the_folder_is_an_error() {
        let listing = |key: &str| {
            let body = format!(
                "<ListBucketResult><Contents>{key}<Size>1</Size></Contents></ListBucketResult>"
            );
            parse(body.as_bytes(), b"t/").map(|page| page.entries.len())
        };
        assert_eq!(listing("<Key>t/a</Key>"), Ok(1));
        assert_eq!(listing("<Key><![CDATA[t/a&b]]></Key>"), Ok(1));
        assert!(listing("<Key>u/a</Key>").is_err());
        assert!(listing("").is_err());
    }

    #[test]
    fn a_truncated_listing_is_not_complete() {
        let listing = |is_cut: &str, rest: &str| {
            format!(
                "<ListBucketResult><IsTruncated>{is_cut}</IsTruncated>{rest}</ListBucketResult>"
            )
        };
        for (is_cut, rest) in [
            ("true", ""),
            ("true", "<NextContinuationToken></NextContinuationToken>"),
            ("True", ""),
            (" true\n", ""),
            ("1", ""),
        ] {
            assert!(parse(listing(is_cut, rest).as_bytes(), b"").is_err(), "{is_cut}");
        }
        assert!(parse(listing(" False", "").as_bytes(), b"").is_ok());
    }
}
