//! Extracts the links of a page.

use html5gum::{DefaultEmitter, Token, Tokenizer};
use percent_encoding::percent_decode_str;
use url::Url;

use super::MAX_LINKS;

/// The links of a page.
pub(super) struct Links {
    /// The URL to which its links are relative.
    pub(super) base: Url,
    pub(super) links: Vec<String>,
    /// Whether it is a dufs page, whose names a script fills in.
    pub(super) is_scripted: bool,
    /// Whether its title or heading is that of a listing.
    pub(super) is_listing: bool,
    /// Whether such listings have a link to the parent folder.
    pub(super) expects_parent: bool,
    /// Whether it begins as a whole page does.
    pub(super) has_start: bool,
    /// Whether it has its end: a proxy may pass on a truncated page as complete.
    pub(super) has_end: bool,
    /// Whether it links to a next page.
    pub(super) has_next: bool,
}

/// Reads the links of the page at `base`.
pub(super) fn links(base: &Url, page: &[u8]) -> Links {
    let mut links = Links {
        base: base.clone(),
        links: Vec::new(),
        is_scripted: false,
        is_listing: false,
        expects_parent: false,
        has_start: false,
        has_end: false,
        has_next: false,
    };
    let mut emitter = DefaultEmitter::default();
    // Tags within scripts are not parsed.
    emitter.naively_switch_states(true);
    let (mut has_base, mut is_heading, mut is_link) = (false, false, false);
    for Ok(token) in Tokenizer::new_with_emitter(page, emitter) {
        let tag = match token {
            Token::StartTag(tag) => tag,
            Token::String(text) => {
                links.is_listing |= is_heading && HEADINGS.iter().any(|it| begins(&text, it));
                links.expects_parent |= is_heading && begins(&text, INDEX);
                let link = links.links.last_mut();
                if let Some(link) = link.filter(|link| is_link && is_folder(link, &text)) {
                    link.push('/');
                }
                continue;
            }
            token => {
                links.has_end |= matches!(&token, Token::EndTag(tag) if tag.name.0 == b"html");
                is_link &= !matches!(&token, Token::EndTag(tag) if tag.name.0 == b"a");
                is_heading = false;
                continue;
            }
        };
        is_heading = matches!(tag.name.as_slice(), b"title" | b"h1");
        if links.links.len() > MAX_LINKS {
            break;
        }
        let attribute = |name: &[u8]| {
            let value = tag.attributes.get(name)?;
            Some(String::from_utf8_lossy(value).into_owned())
        };
        if matches!(tag.name.as_slice(), b"a" | b"link") {
            let relation = attribute(b"rel").unwrap_or_default().to_ascii_lowercase();
            links.has_next |= relation.split_ascii_whitespace().any(|word| word == "next");
        }
        match tag.name.as_slice() {
            b"html" => links.has_start = true,
            b"a" => {
                let href = attribute(b"href");
                is_link = href.is_some();
                links.links.extend(href);
            }
            b"base" if !has_base => {
                has_base = true;
                if let Some(url) = attribute(b"href").and_then(|href| base.join(&href).ok()) {
                    links.base = url;
                }
            }
            b"link" | b"script" => {
                let asset = attribute(b"href").or_else(|| attribute(b"src")).unwrap_or_default();
                links.is_scripted |= asset.contains("__dufs_v");
            }
            _ => {}
        }
    }
    links
}

/// Returns whether the text of a link is its target's name with the slash of a folder, which
/// listings of aiohttp have in the text only.
fn is_folder(link: &str, text: &[u8]) -> bool {
    let name = link.rsplit('/').next().unwrap_or_default();
    let shown = text.trim_ascii_end().strip_suffix(b"/");
    shown.is_some_and(|shown| {
        !shown.is_empty() && percent_decode_str(name).eq(shown.iter().copied())
    })
}

/// Returns whether a heading begins with `start`, followed by a path.
fn begins(heading: &[u8], start: &[u8]) -> bool {
    let heading = heading.trim_ascii_start().to_ascii_lowercase();
    heading.strip_prefix(start).is_some_and(|rest| rest.contains(&b'/'))
}

/// The headings of listings: of nginx, Apache and lighttpd, and of Python and rclone.
const HEADINGS: [&[u8]; 2] = [INDEX, b"directory listing "];

const INDEX: &[u8] = b"index of ";
