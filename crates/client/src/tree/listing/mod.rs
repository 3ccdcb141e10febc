//! Reads folder listings of nginx, Apache, Caddy, Python, aiohttp, dufs and miniserve, and other
//! pages that link to the files of a folder. Pure.

mod answer;
mod html;
mod json;
mod remote;

use std::collections::HashSet;
use std::time::UNIX_EPOCH;

use rustix::fs::Timespec;
use underpass_protocol::encode_segment;
use underpass_protocol::response::validator::parse_date;
use url::Url;

use super::paths::{EntryRefusal, relative};
use crate::s3::ListedKey;

pub(super) use answer::{ACCEPT, completed, receive, was_just_changed};
pub use remote::RemoteFolders;

/// The contents of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The entries of the folder.
    pub entries: Vec<ListingEntry>,
    /// Refused names and the reasons.
    pub refused: Vec<(Vec<u8>, EntryRefusal)>,
    /// Whether a script fills in the names, which can be requested as `?json`.
    pub is_scripted: bool,
    /// Whether it has too many entries.
    pub is_too_long: bool,
    /// Whether its names and URLs would take too much memory. Then it has no entries.
    pub is_too_large: bool,
    /// Whether it is a listing whose end is missing.
    pub is_cut: bool,
    /// Whether it has nothing that is typical of a listing: a heading, or links to other orders of
    /// the same folder or to its parent. JSON has nothing if it has objects, none of which is an
    /// entry.
    pub is_other_page: bool,
    /// How many links a page has to other places, if none is to an entry.
    pub links_elsewhere: usize,
    /// Whether the folder certainly contains nothing else: it is a complete listing and no other
    /// page.
    pub is_whole: bool,
}

impl Listing {
    /// Adds an object or a folder that a bucket has in the folder at `base`. A name that is special
    /// to file systems, or that no URL can have, is refused.
    pub(super) fn add_object(&mut self, base: &Url, listed: &ListedKey) {
        let name = listed.name.strip_suffix(b"/").unwrap_or(&listed.name);
        let is_folder = name.len() < listed.name.len();
        let path = match relative(name) {
            Ok(path) if path == name && !name.is_empty() => path,
            // A key with two slashes in a row.
            Ok(_) if name.is_empty() => {
                return self.refused.push((listed.name.clone(), EntryRefusal::NoName));
            }
            Ok(_) => return self.refused.push((name.to_vec(), EntryRefusal::NoName)),
            Err(refusal) => return self.refused.push((name.to_vec(), refusal)),
        };
        let mut url = base.clone();
        let end = if is_folder { "/" } else { "" };
        url.set_path(&format!("{}{}{end}", base.path(), encode_segment(name)));
        let ListedKey { size, modified, tag, .. } = *listed;
        let facts = EntryFacts { size, modified, mode: None, tag };
        self.entries.push(ListingEntry { path, url, is_folder, facts });
    }
}

/// A file or folder in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingEntry {
    /// Its path relative to the folder: bytes, without slashes at its ends.
    pub path: Vec<u8>,
    /// Its URL.
    pub url: Url,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// Further facts from the listing.
    pub facts: EntryFacts,
}

/// The facts about a file in machine-readable listings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryFacts {
    /// Its length in bytes.
    pub size: Option<u64>,
    /// The time of its last modification.
    pub modified: Option<Timespec>,
    /// Its permissions.
    pub mode: Option<u32>,
    /// The fingerprint of its entity tag.
    pub tag: Option<u64>,
}

impl EntryFacts {
    /// Returns the facts of the version that was modified at this time, if known: a cache may have
    /// another version than the listing. The listed time stays if it is the same to the second.
    pub(super) fn of_version(self, modified: Option<Timespec>) -> Self {
        let is_other = |time: &Timespec| self.modified.is_none_or(|it| it.tv_sec != time.tv_sec);
        Self { modified: modified.filter(is_other).or(self.modified), ..self }
    }
}

/// Parses an HTTP date.
fn date(text: &[u8]) -> Option<Timespec> {
    Timespec::try_from(parse_date(text)?.duration_since(UNIX_EPOCH).ok()?).ok()
}

/// Reads the listing of the folder at `base`; `None` if the media type cannot be one.
#[must_use]
pub fn read(base: &Url, media_type: &str, body: &[u8]) -> Option<Listing> {
    read_within(MAX_NAME_BYTES, base, media_type, body)
}

/// Reads a listing whose names and URLs take at most `max` bytes.
fn read_within(max: usize, base: &Url, media_type: &str, body: &[u8]) -> Option<Listing> {
    let too_large = || Some(Listing { is_too_large: true, ..Listing::default() });
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    let mut listing = Listing::default();
    if media_type.eq_ignore_ascii_case("application/json") {
        let mut collector = LinkCollector::new(base);
        let json::BoundedEntries { entries, is_whole } = json::entries(body)?;
        if entries.len() > MAX_LINKS {
            return Some(Listing { is_too_long: true, ..Listing::default() });
        }
        let count = entries.len();
        for json::JsonLink { link, is_folder, facts } in entries {
            collector.add_link(&mut listing, &link, is_folder, facts);
            if collector.bytes > max {
                return too_large();
            }
        }
        // A link to another place may stand for an unknown file.
        let taken = listing.entries.len() + listing.refused.len();
        listing.is_whole = is_whole && count == taken;
        listing.is_other_page = !listing.is_whole && taken == 0;
    } else if ["text/html", "application/xhtml+xml"]
        .iter()
        .any(|html| media_type.eq_ignore_ascii_case(html))
    {
        let links = html::links(base, body);
        listing.is_scripted = links.is_scripted;
        listing.is_cut = links.is_listing && links.has_start && !links.has_end;
        listing.is_whole = links.is_listing && links.has_end && !links.has_next;
        if links.links.len() > MAX_LINKS {
            return Some(Listing { is_too_long: true, ..Listing::default() });
        }
        if !add_links(&mut listing, max, base, &links) {
            return too_large();
        }
    } else {
        return None;
    }
    Some(listing)
}

/// Adds the entries that a page links to. The listing is not complete if another link may be an
/// entry. Returns `false` once names and URLs take more than `max` bytes.
fn add_links(listing: &mut Listing, max: usize, base: &Url, links: &html::Links) -> bool {
    let mut collector = LinkCollector::new(base);
    listing.is_other_page = !links.is_listing;
    let (mut has_parent, mut has_foreign) = (false, false);
    let (mut likely, mut others) = (0, 0);
    for link in &links.links {
        // RFC 3986 5: relative to the page, unless it has a `base` element.
        let Ok(url) = links.base.join(link) else {
            listing.is_whole = false;
            continue;
        };
        listing.is_other_page &= !is_of_listings(base, link, &url);
        let is_own = url.origin() == base.origin();
        has_parent |= is_own && is_above(base, &url) && url.path() != base.path();
        has_foreign |= !is_own && url.scheme().starts_with("http");
        let is_taken = collector.add_url(listing, url.clone(), false, EntryFacts::default());
        listing.is_whole &= is_taken || is_no_entry(base, &url);
        if !is_taken && url.scheme().starts_with("http") {
            let is_no_entry = if is_own { is_above(base, &url) } else { is_no_entry(base, &url) };
            likely += usize::from(!is_no_entry);
            others += usize::from(is_no_entry && !is_own && url.path() != "/");
        }
        // A short link may be relative to a long URL.
        if collector.bytes > max {
            return false;
        }
    }
    let is_empty = listing.entries.is_empty() && listing.refused.is_empty();
    // Behind a proxy, links may lead elsewhere, or an error may be in their place.
    listing.is_whole &= !is_empty || !has_foreign && (has_parent || !links.expects_parent);
    // Some listings have a link to the project of the server's program.
    if is_empty && (likely > 0 || others > 1) {
        listing.links_elsewhere = likely + others;
    }
    listing.is_whole &= collector.variants.iter().all(|entry| collector.seen.contains(entry));
    true
}

/// Returns whether a rejected link certainly leads to no file of the folder.
fn is_no_entry(base: &Url, url: &Url) -> bool {
    if url.origin() == base.origin() {
        let is_page = url.path() == base.path() && url.query().is_some();
        return is_above(base, url) && (!is_page || url.query().is_some_and(is_order));
    }
    // A proxy may change the server's host, scheme or port.
    let may_be_alias = url.host() == base.host() || base.path() != "/";
    let is_below = url.path().strip_prefix(base.path()).is_some_and(|rest| !rest.is_empty());
    match url.scheme() {
        "http" | "https" => !(may_be_alias && is_below),
        scheme => scheme == "mailto",
    }
}

/// Returns whether a URL is that of the folder itself or of a parent.
fn is_above(base: &Url, url: &Url) -> bool {
    let path = url.path().trim_end_matches('/');
    base.path().strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns whether a query only selects another order of a listing, as in Apache and rclone.
fn is_order(query: &str) -> bool {
    let key = |pair: &str| pair.split('=').next().unwrap_or_default().to_owned();
    query.split(['&', ';']).all(|pair| ORDER_KEYS.contains(&key(pair).as_str()))
}

const ORDER_KEYS: [&str; 7] = ["C", "F", "O", "P", "V", "order", "sort"];

/// Returns whether a link is typical of listings: to the parent folder, or to the same folder in
/// another order.
fn is_of_listings(base: &Url, link: &str, url: &Url) -> bool {
    let is_order =
        url.origin() == base.origin() && url.path() == base.path() && url.query().is_some();
    link.starts_with("..") || is_order
}

/// Collects each link to something below the folder once.
struct LinkCollector<'b> {
    base: &'b Url,
    /// The paths, and whether each link was to a folder: in an object store a file and a folder may
    /// have the same name.
    seen: HashSet<(Vec<u8>, bool)>,
    /// Files whose links have the query of another order.
    variants: Vec<(Vec<u8>, bool)>,
    /// The bytes of all URLs, including rejected ones, and of the names that are kept.
    bytes: usize,
}

impl<'b> LinkCollector<'b> {
    fn new(base: &'b Url) -> Self {
        Self { base, seen: HashSet::new(), variants: Vec::new(), bytes: 0 }
    }

    fn add_link(&mut self, listing: &mut Listing, link: &str, is_folder: bool, facts: EntryFacts) {
        if let Ok(url) = self.base.join(link) {
            self.add_url(listing, url, is_folder, facts);
        }
    }

    /// Returns whether the link is to an entry.
    fn add_url(
        &mut self,
        listing: &mut Listing,
        mut url: Url,
        is_folder: bool,
        facts: EntryFacts,
    ) -> bool {
        self.bytes += url.as_str().len();
        url.set_fragment(None);
        if url.origin() != self.base.origin() {
            return false;
        }
        // Links to the folder itself in another order, to its parent and to other places.
        let Some(rest) = url.path().strip_prefix(self.base.path()).filter(|rest| !rest.is_empty())
        else {
            return false;
        };
        let is_folder = is_folder || rest.ends_with('/');
        let path = match decoded(rest) {
            Ok(path) => path,
            Err((name, refusal)) => {
                if self.seen.insert((name.clone(), is_folder)) {
                    self.bytes += 2 * name.len();
                    listing.refused.push((name, refusal));
                }
                return true;
            }
        };
        match (url.query(), is_folder) {
            // dufs links to each folder's page without a script.
            (Some(_), true) => url.set_query(None),
            // The same file in another form, or another order: the plain entry has no query.
            (Some(query), false) => {
                let is_variant = is_order(query);
                self.bytes += path.len();
                self.variants.extend(is_variant.then_some((path, false)));
                return is_variant;
            }
            _ => {}
        }
        if is_folder && !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        // The credentials are needed for each request.
        let _ = (url.set_username(self.base.username()), url.set_password(self.base.password()));
        if !path.is_empty() && self.seen.insert((path.clone(), is_folder)) {
            self.bytes += 2 * path.len();
            listing.entries.push(ListingEntry { path, url, is_folder, facts });
        }
        true
    }
}

/// Returns the path of a link. Each part is decoded separately, so that no `%2F` becomes a
/// separator. Names that no file system can have are refused, and so are paths that are too deep.
fn decoded(rest: &str) -> Result<Vec<u8>, (Vec<u8>, EntryRefusal)> {
    let mut path = Vec::new();
    let names = rest.strip_suffix('/').unwrap_or(rest);
    if names.bytes().any(|byte| byte != b'/') && names.split('/').any(str::is_empty) {
        // To the server, `a//b` is another file than `a/b`.
        let name = percent_encoding::percent_decode_str(rest).collect();
        return Err((name, EntryRefusal::NoName));
    }
    for (depth, part) in rest.split('/').filter(|part| !part.is_empty()).enumerate() {
        if depth == MAX_DEPTH as usize {
            return Err((path, EntryRefusal::TooLong));
        }
        let name: Vec<u8> = percent_encoding::percent_decode_str(part).collect();
        let checked = match &name {
            name if name.contains(&b'/') => Err(EntryRefusal::Slash),
            name if name.len() > MAX_NAME => Err(EntryRefusal::TooLong),
            name => relative(name),
        };
        match checked {
            Ok(checked) if checked.is_empty() => {}
            Ok(_) => {
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(&name);
            }
            Err(refusal) => return Err((name, refusal)),
        }
    }
    // The whole may be longer than any path.
    relative(&path).map_err(|refusal| (path, refusal))
}

/// The maximum number of links of a listing.
pub(super) const MAX_LINKS: usize = 1_000_000;

/// The maximum memory of names and URLs in bytes: of one listing, and of all together.
pub(super) const MAX_NAME_BYTES: usize = 512 << 20;

/// The maximum depth of folders: the system follows no more than 40 links on one path.
pub(super) const MAX_DEPTH: u32 = 256;

/// The maximum length of a name in bytes, which is the longest of any file system: ZFS has 1,023,
/// exFAT and NTFS up to 765, most others 255.
const MAX_NAME: usize = 1023;

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a page of less than a megabyte would take gigabytes.
    #[test]
    fn short_links_relative_to_a_long_url_take_no_more_memory_than_is_allowed() {
        let base = Url::parse("http://h/x/").expect("a URL");
        let links: String = (0..1_000).map(|number| format!("<a href={number}>")).collect();
        let folders = "x".repeat(200) + "/";
        let page = |count| format!("<base href=\"/x/{}\">{links}", folders.repeat(count));
        let read = |page: &str| read_within(1 << 20, &base, "text/html", page.as_bytes());
        let large = read(&page(200)).expect("a listing");
        assert_eq!(large, Listing { is_too_large: true, ..Listing::default() });
        let small = read(&page(1)).expect("a listing");
        assert_eq!((small.entries.len(), small.is_too_large), (1_000, false));
        // Nor do links that are refused or lead elsewhere.
        for start in
            ["/x/".to_owned() + &"%00".repeat(9_000), "/".to_owned() + &folders.repeat(200)]
        {
            let page = format!("<base href=\"{start}/\">{links}");
            assert!(read(&page).expect("a listing").is_too_large);
        }
        let links = format!("\"/x/{}{{}}\"", folders.repeat(200));
        let entries = (0..1_000).map(|number| links.replace("{}", &number.to_string()));
        let entries: Vec<_> = entries.map(|url| format!("{{\"url\":{url}}}")).collect();
        let json = format!("[{}]", entries.join(","));
        let large = read_within(1 << 20, &base, "application/json", json.as_bytes());
        assert_eq!(large, Some(Listing { is_too_large: true, ..Listing::default() }));
    }

    #[test]
    fn names_that_no_file_can_have_are_refused() {
        let base = Url::parse("http://h/x/").expect("a URL");
        let (long, longer) = ("n".repeat(1023), "n".repeat(1024));
        let (deep, deeper) = ("a/".repeat(256), "a/".repeat(257));
        let encoded = "%6e".repeat(1023);
        for (link, is_taken) in
            [(&long, true), (&longer, false), (&encoded, true), (&deep, true), (&deeper, false)]
        {
            let page = format!("<a href=\"{link}\">");
            let listing = read(&base, "text/html", page.as_bytes()).expect("a listing");
            assert_eq!(listing.entries.len(), usize::from(is_taken), "{link}");
            let refused = listing.refused.iter().map(|(_, why)| *why).collect::<Vec<_>>();
            assert_eq!(refused, [EntryRefusal::TooLong][..usize::from(!is_taken)], "{link}");
        }
    }

    #[test]
    fn a_key_with_two_slashes_in_a_row_is_refused() {
        let base = Url::parse("http://s3/bucket/x/").expect("a URL");
        let mut listing = Listing::default();
        for name in ["/", "n", "sub/"] {
            listing.add_object(&base, &ListedKey { name: name.into(), ..ListedKey::default() });
        }
        assert_eq!(listing.refused, [(b"/".to_vec(), EntryRefusal::NoName)]);
        let paths: Vec<_> = listing.entries.iter().map(|entry| entry.path.as_slice()).collect();
        assert_eq!(paths, [&b"n"[..], b"sub"]);
    }
}
