//! A listing as an HTML page for people.
//!
//! The page loads nothing from elsewhere, and reading needs no JavaScript: the scripts add what
//! is more convenient, such as times in local time, previews and the selection of rows.
//!
//! A control that leads to another view of a folder (sorting, searching, archives) is a form and
//! not a link, because `wget -r` and similar programs follow every link and would fetch
//! the folder six times over. All links are relative, so the page works under any prefix.

use std::sync::LazyLock;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use underpass_protocol::encode_path as encode;
use underpass_protocol::listing::{Order, SortDirection, SortKey};

use super::change::{CHANGE_STYLE, bar, scripts};
use super::form::{Form, Incomplete, Outline, PageCounts};
use super::icon::{icon, is_picture};
use super::markdown::section;
use crate::Listing;
use crate::entry::ListedEntry;
use crate::text::{compact, compact_style, counted, grouped, human_size, utc, visible};

/// The value of the page's `Content-Security-Policy`: a browser may use only what the page holds.
///
/// It protects in case a name ever got through unescaped. The digests are those of our scripts and
/// styles, which a test compares; nothing else runs. No other site may put the page into a frame
/// and make a user click on something invisible.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; \
     style-src 'sha256-Wc+Dvi2GyZaq0HcUp+dQKNWZ/yWse4DhdtUEGkFleGY=' \
     'sha256-m6NjvS8NqEZLTX23H3GqYuxaJJJQLGKvV529GH6TKdQ=' \
     'sha256-yGjTTOr44nnQFTv6X0O7Q5f9+WkvE2v1D1urw0VoYwQ='; \
     script-src 'sha256-TBf7io47HNQA1NRAC1VK5wj5yOZvV6JtlK0v+rKSyds=' \
     'sha256-toi+6/SsiRTvHwdQ8TrkJnmCn6S6gIBZH/k/Sz9F5fk=' \
     'sha256-nGekFyaoD4riB28m8KWlIGzuowpcJTFpYgxo95wslgI='; \
     img-src 'self' data:; connect-src 'self'; form-action 'self'; media-src 'self'; frame-src 'self'; \
     base-uri 'none'; frame-ancestors 'self'";

/// Writes the page.
pub(crate) struct HtmlForm<'l> {
    /// The requested listing.
    listing: &'l Listing<'l>,
    /// The counts and links of the page.
    outline: &'l Outline,
    /// The query for the links to folders, which keeps the order from folder to folder.
    sticky: String,
}

impl<'l> HtmlForm<'l> {
    /// Creates the page of a listing.
    pub(crate) fn new(listing: &'l Listing<'_>, outline: &'l Outline) -> Self {
        Self { listing, outline, sticky: listing.query.sticky() }
    }

    /// Returns the part before the rows.
    fn top(&self) -> Markup {
        let path = visible(self.listing.path);
        let slash = if path.is_empty() { "" } else { "/" };
        let name = self.listing.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        html! {
            (DOCTYPE)
            html lang="en";
            meta charset="utf-8";
            meta name="viewport" content="width=device-width,initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { "Index of /" (path) (slash) }
            link rel="icon" Href={ "data:image/svg+xml," (ICON) };
            style { (PreEscaped(STYLE.as_str())) }
            @if !self.listing.may.nothing() { style { (PreEscaped(CHANGE_STYLE.as_str())) } }
            @if self.outline.readme.is_some() { style { (PreEscaped(README_STYLE.as_str())) } }
            header {
                div {
                    (self.breadcrumbs())
                    h1 { @if name.is_empty() { (ROOT_NAME) } @else { bdi { (visible(name)) } } }
                    (self.summary())
                }
                (self.tools())
            }
            (bar(self.listing.may))
        }
    }

    /// Returns the links to the folders above.
    ///
    /// HTML ignores the case of attribute names. fsspec searches for `href` and `HREF` without
    /// resolving the link, and would take a folder above for an entry, in an endless loop.
    fn breadcrumbs(&self) -> Markup {
        let names: Vec<_> =
            self.listing.path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
        // The last name is the heading.
        let Some((_, above)) = names.split_last() else { return Markup::default() };
        let link = |depth: usize| format!("{}{}", "../".repeat(names.len() - depth), self.sticky);
        html! {
            nav aria-label="Folders above" {
                a Href=(link(0)) { (ROOT_NAME) }
                @for (at, name) in above.iter().enumerate() {
                    a Href=(link(at + 1)) { bdi { (visible(name)) } }
                }
            }
        }
    }

    /// Returns the counts, as far as known before the rows.
    fn summary(&self) -> Markup {
        let Outline { tally, before, total, .. } = self.outline;
        let Some(tally) = tally else {
            return html! {
                p.summary { "Too many entries to sort; shown in the order of the file system." }
            };
        };
        let shown = tally.folders + tally.files;
        html! {
            p.summary {
                @if shown < *total {
                    (grouped(before + 1)) "\u{2013}" (grouped(before + shown))
                    " of " (counted(*total, "entry", "entries"))
                    (self.page_number().unwrap_or_default())
                } @else {
                    (total_of(tally))
                }
                @if let Some(word) = &self.listing.query.search {
                    " with \u{201c}" bdi { (visible(word.as_bytes())) } "\u{201d}"
                    @if self.listing.query.is_deep { " in this folder and below" }
                    ". "
                    @match self.outline.incomplete {
                        Some(Incomplete::Limit(limit)) => {
                            "There are more; the first " (grouped(limit)) " are shown. "
                        }
                        Some(Incomplete::Walk) => {
                            "There may be more: not all folders below were searched. "
                        }
                        None => {}
                    }
                    a href=(self.all()) { "Show all" }
                }
            }
        }
    }

    /// Returns the link from a search back to the whole folder.
    fn all(&self) -> String {
        format!("./{}", self.sticky)
    }

    /// Returns the page number, if all pages before this one have the same length.
    fn page_number(&self) -> Option<String> {
        let Outline { tally, before, total, .. } = self.outline;
        let limit = self.listing.limit()? as u64;
        let shown = tally.map_or(0, |tally| tally.folders + tally.files);
        let number = before.div_ceil(limit) + 1;
        let pages = number + total.saturating_sub(before + shown).div_ceil(limit);
        Some(format!(" (page {} of {})", grouped(number), grouped(pages)))
    }

    /// Returns the search box and the buttons for the whole folder.
    fn tools(&self) -> Markup {
        let query = &self.listing.query;
        html! {
            div.tools {
                form.search role="search" {
                    (self.view_fields(query.order))
                    input type="search" name="q" value=[query.search.as_deref()]
                        placeholder="Search" aria-label="Search"
                        autocomplete="off" spellcheck="false" enterkeyhint="search";
                    @if self.listing.walks {
                        button name="below" value="1" title="Search this folder and those below" {
                            "Search"
                        }
                        button.here { "This folder only" }
                    } @else {
                        button { "Search" }
                    }
                }
                @if self.listing.may.log_in {
                    form.login { button name="login" value="1" { "Log in" } }
                }
                @if self.listing.may.log_out {
                    form.login { button name="logout" value="1" { "Log out" } }
                }
                @if self.outline.has_pictures {
                    (self.view())
                }
                @if self.listing.archive && !query.is_deep {
                    form.archive {
                        @for format in ["zip", "tar"] {
                            button name="archive" value=(format)
                                title={ "This folder as one " (format) " file" } {
                                span { "Download " } (format)
                            }
                        }
                    }
                }
            }
        }
    }

    /// Returns the button that switches between pictures and names.
    fn view(&self) -> Markup {
        let query = &self.listing.query;
        html! {
            form.view {
                (order_fields(query.order))
                (self.search_fields())
                @if query.is_gallery {
                    button { "List" }
                } @else {
                    button name="view" value="gallery" { "Gallery" }
                }
            }
        }
    }

    /// Returns the form fields that keep the order and the view.
    fn view_fields(&self, order: Order) -> Markup {
        html! {
            (order_fields(order))
            @if self.listing.query.is_gallery { input type="hidden" name="view" value="gallery"; }
        }
    }

    /// Returns the form fields that keep the search and the length of a page.
    fn search_fields(&self) -> Markup {
        let query = &self.listing.query;
        html! {
            @if let Some(word) = &query.search { input type="hidden" name="q" value=(word); }
            @if query.is_deep { input type="hidden" name="below" value="1"; }
            @if let Some(limit) = query.limit { input type="hidden" name="limit" value=(limit); }
        }
    }

    /// Returns the column headings, each a button that sorts by its column.
    fn columns(&self) -> Markup {
        html! {
            thead {
                tr {
                    (self.column(SortKey::Name, html! { "Name" }))
                    (self.column(SortKey::Size, html! { "Size" }))
                    (self.column(SortKey::Time, html! { "Modified" span.utc { " (UTC)" } }))
                }
            }
        }
    }

    /// Returns the heading of one column.
    fn column(&self, key: SortKey, label: Markup) -> Markup {
        let query = &self.listing.query;
        let current = (query.order.key == key).then_some(query.order.direction);
        let sorted = current.map(|direction| match direction {
            SortDirection::Ascending => "ascending",
            SortDirection::Descending => "descending",
        });
        html! {
            th scope="col" aria-sort=[sorted] {
                form {
                    (self.view_fields(next_order(key, current)))
                    (self.search_fields())
                    button { (label) }
                }
            }
        }
    }

    /// Returns the row that leads to the folder above.
    fn parent(&self) -> Markup {
        html! {
            tr.parent {
                td colspan="3" { a.up href={ "../" (self.sticky) } { "Parent folder" } }
            }
            "\n"
        }
    }

    /// Returns the row of one entry.
    fn row(&self, entry: &ListedEntry) -> Markup {
        let attributes = &entry.attributes;
        let is_folder = attributes.is_folder();
        let (slash, sticky) = if is_folder { ("/", self.sticky.as_str()) } else { ("", "") };
        let link = encode(&entry.name);
        let name_start = entry.name.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let (above, name) = entry.name.split_at(name_start);
        let has_picture = self.listing.query.is_gallery && is_picture(entry);
        html! {
            tr {
                td {
                    a class=(icon(entry)) href={ (link) (slash) (sticky) } {
                        @if has_picture { img src=(link) alt="" loading="lazy" decoding="async"; }
                        @if !above.is_empty() { span.above { (visible(above)) } }
                        bdi { (visible(name)) }
                        @if entry.is_symlink { small { "link" } }
                    }
                }
                td {
                    @if is_folder {
                        (self.archives(&link, &visible(&entry.name)))
                    } @else {
                        data value=(attributes.len) title=(counted(attributes.len, "byte", "bytes")) {
                            (human_size(attributes.len))
                        }
                    }
                }
                td {
                    @if let Some((text, exact)) = utc(attributes.modified) {
                        time datetime=(exact) { (text) }
                    }
                }
            }
            "\n"
        }
    }

    /// Returns the buttons that download a subfolder as an archive. Their labels contain its name,
    /// because screen readers list all buttons of a page without their rows.
    fn archives(&self, link: &str, name: &str) -> Markup {
        html! {
            @if self.listing.archive {
                form.zip action={ (link) "/" } {
                    @for format in ["zip", "tar"] {
                        button name="archive" value=(format)
                            aria-label={ "Download " (name) " as " (format) } { (format) }
                    }
                }
            }
        }
    }

    /// Returns the part after the rows.
    fn bottom(&self, tally: &PageCounts) -> Markup {
        let is_empty = tally.folders + tally.files == 0;
        html! {
            @if is_empty {
                p.empty {
                    @if self.listing.query.search.is_some() { "No names match." }
                    @else { "This folder is empty." }
                }
            }
            p.empty #none role="status" hidden {}
            (PreEscaped("</main>"))
            (self.pages())
            @if let Some(readme) = &self.outline.readme { (section(readme)) }
            footer {
                @if self.outline.tally.is_none() { p { (total_of(tally)) } }
                @if tally.lost_links > 0 {
                    p {
                        (counted(tally.lost_links, "link is", "links are"))
                        " not shown: the target does not exist or may not be served."
                    }
                }
            }
            script { (PreEscaped(SCRIPT.as_str())) }
            (scripts(self.listing.may))
        }
    }

    /// Returns the links to the other pages.
    fn pages(&self) -> Markup {
        let Outline { before, next_page, previous_page, .. } = self.outline;
        let is_first = *before == 0 && self.listing.query.after.is_none();
        if is_first && next_page.is_none() {
            return Markup::default();
        }
        html! {
            nav.pages aria-label="Pages" {
                @if !is_first { a href=(self.listing.query.link(None)) { "First page" } }
                @if let Some(previous) = previous_page {
                    a rel="prev" href=(previous) { "Previous page" }
                }
                @if let Some(next) = next_page { a rel="next" href=(next) { "Next page" } }
            }
        }
    }
}

impl Form for HtmlForm<'_> {
    fn begin(&mut self, out: &mut Vec<u8>) {
        push(out, &self.top());
        let may = self.listing.may;
        out.extend_from_slice(b"<main");
        if !may.nothing() {
            out.extend_from_slice(format!(" data-may=\"{}\"", may.words()).as_bytes());
        }
        if self.listing.query.is_gallery {
            out.extend_from_slice(b" class=\"gallery\"");
        }
        out.extend_from_slice(b"><table><caption>Files and folders</caption>");
        push(out, &self.columns());
        out.extend_from_slice(b"<tbody>\n");
        if !self.listing.path.is_empty() && !self.listing.query.is_deep {
            push(out, &self.parent());
        }
    }

    fn entry(&mut self, entry: &ListedEntry, out: &mut Vec<u8>) {
        push(out, &self.row(entry));
    }

    fn end(&mut self, tally: &PageCounts, out: &mut Vec<u8>) {
        out.extend_from_slice(b"</table>");
        push(out, &self.bottom(tally));
    }
}

/// Returns the order that a click on a column heading requests: the opposite direction, or at first
/// the likely one, with the largest or the newest entries first.
fn next_order(key: SortKey, current: Option<SortDirection>) -> Order {
    let direction = match (current, key) {
        (Some(SortDirection::Descending), _) | (None, SortKey::Name) => SortDirection::Ascending,
        (Some(SortDirection::Ascending), _) | (None, SortKey::Size | SortKey::Time) => {
            SortDirection::Descending
        }
    };
    Order { key, direction }
}

/// Returns the form fields that request an order; none for the default order.
fn order_fields(order: Order) -> Markup {
    html! {
        @if order != Order::default() {
            input type="hidden" name="sort" value=(order.key.token());
            input type="hidden" name="order" value=(order.direction.token());
        }
    }
}

/// Returns the counts as text.
fn total_of(tally: &PageCounts) -> String {
    let folders = counted(tally.folders, "folder", "folders");
    let files = counted(tally.files, "file", "files");
    match tally {
        PageCounts { files: 0, folders: 0, .. } => counted(0, "entry", "entries"),
        PageCounts { files: 0, .. } => folders,
        PageCounts { folders: 0, bytes, .. } => format!("{files}, {}", human_size(*bytes)),
        PageCounts { bytes, .. } => format!("{folders}, {files}, {}", human_size(*bytes)),
    }
}

/// Adds markup to the page.
fn push(out: &mut Vec<u8>, markup: &Markup) {
    out.extend_from_slice(markup.0.as_bytes());
}

/// The displayed name of the root, whose real name is no business of a client.
const ROOT_NAME: &str = "Files";

/// The style of the page.
static STYLE: LazyLock<String> =
    LazyLock::new(|| compact_style(concat!(include_str!("style.css"), include_str!("panel.css"))));

/// The style of a README.
static README_STYLE: LazyLock<String> = LazyLock::new(|| compact_style(include_str!("readme.css")));

/// The scripts of the page for all readers.
static SCRIPT: LazyLock<String> = LazyLock::new(|| {
    compact(concat!(
        include_str!("page.js"),
        include_str!("script.js"),
        include_str!("select.js"),
        include_str!("preview.js"),
    ))
});

/// The icon of the page as an SVG image. It is embedded in the page, so that browsers do not
/// request `/favicon.ico`.
pub const ICON: &str = concat!(
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='cadetblue'>",
    "<path d='M3 6.5A2.5 2.5 0 0 1 5.5 4h3.6c.7 0 1.3.3 1.8.8L12.2 6.2h6.3A2.5 2.5 0 0 1 21 8.7v8.8",
    "a2.5 2.5 0 0 1-2.5 2.5h-13A2.5 2.5 0 0 1 3 17.5z'/></svg>"
);
