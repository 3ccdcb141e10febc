//! The page about a cache, in the style of the page about transfers.

use maud::{Markup, html};
use serde::Serialize;
use underpass_engine::printable;

use super::page::{path, percent, reloading, size};

/// An object that is open in a cache. The names of its fields in JSON are stable.
#[derive(Clone, Debug, Serialize)]
pub struct CacheRow {
    /// Its path and query.
    pub path: String,
    /// Its length in bytes; null until it is known.
    pub length: Option<u64>,
    /// The bytes in the cache.
    pub present: u64,
    /// The number of clients that read it.
    pub readers: usize,
    /// Whether more of it is being fetched from the origin.
    pub is_filling: bool,
}

/// Renders objects as a JSON array.
#[must_use]
pub fn cache_json(rows: &[CacheRow]) -> String {
    printable::json(&serde_json::to_string(rows).expect("text and numbers always make JSON"))
}

/// Renders the first of these objects as a page that reloads itself, below the number of stored
/// objects and their bytes. It has a link to `?json`, to which the server must answer with
/// [`cache_json`].
#[must_use]
pub fn cache_page(rows: &[CacheRow], objects: u64, bytes: u64) -> String {
    let filling = rows.iter().filter(|row| row.is_filling).count();
    let left_out = rows.len().saturating_sub(MAX_SHOWN);
    let content = html! {
        header {
            h1 { (filling) " being filled, " (rows.len()) " open, " (objects) " kept" }
            p.total { (size(bytes)) }
            a href="?json" { "JSON" }
        }
        ul { @for row in rows.iter().take(MAX_SHOWN) { (entry(row)) } }
        @if left_out > 0 {
            p.none { "and " (left_out) " more, which the " a href="?json" { "JSON" } " lists" }
        }
    };
    reloading(&format!("{filling} being filled"), &content)
}

/// Renders one object.
fn entry(row: &CacheRow) -> Markup {
    let length = row.length.unwrap_or(row.present);
    html! {
        li {
            p.name {
                bdi { (path(row.path.as_bytes())) }
                span { (percent(row.present, length)) "%" }
            }
            progress aria-label="kept" value=(row.present.min(length)) max=(length.max(1)) {}
            p.how {
                span {
                    (size(row.present)) " of "
                    @if let Some(length) = row.length { (size(length)) } @else { "an unknown length" }
                    @if row.is_filling { ", being filled" }
                }
                span { (row.readers) @if row.readers == 1 { " reader" } @else { " readers" } }
            }
        }
    }
}

/// The maximum number of objects shown.
const MAX_SHOWN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_are_escaped() {
        let row = CacheRow {
            path: "/<b>?x=%3Ci%3E".to_owned(),
            length: None,
            present: 5,
            readers: 1,
            is_filling: true,
        };
        let page = cache_page(&vec![row.clone(); 70], 99, 1 << 20);
        assert!(page.contains("70 being filled, 70 open, 99 kept"), "{page}");
        assert!(page.contains("and 6 more") && page.contains("an unknown length"), "{page}");
        assert!(!page.contains("<b>") && !page.contains("<i>"), "{page}");
        let json = cache_json(&[row]);
        assert!(
            json.starts_with(r#"[{"path":"/<b>?x=%3Ci%3E","length":null,"present":5"#),
            "{json}"
        );
    }
}
