//! A listing in the format of nginx's `autoindex`, for programs that follow links, such as wget,
//! rclone and fsspec. Some, such as lftp, know this format and also read its times and sizes.

use maud::html;

use underpass_protocol::encode_path as encode;

use super::form::{Form, Outline, PageCounts};
use crate::Listing;
use crate::entry::ListedEntry;
use crate::text::{autoindex_time, visible};

/// Writes the page.
pub(crate) struct IndexForm<'l> {
    pub(crate) listing: &'l Listing<'l>,
    /// The counts and links of the page.
    pub(crate) outline: &'l Outline,
}

impl Form for IndexForm<'_> {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let path = visible(self.listing.path);
        let slash = if path.is_empty() { "" } else { "/" };
        let title = html! { "Index of /" (path) (slash) }.0;
        push(out, &["<html>\r\n<head><title>", &title, "</title></head>\r\n<body>\r\n<h1>"]);
        push(out, &[&title, "</h1><hr><pre><a href=\"../\">../</a>\r\n"]);
    }

    fn entry(&mut self, entry: &ListedEntry, out: &mut Vec<u8>) {
        let is_folder = entry.attributes.is_folder();
        let slash = if is_folder { "/" } else { "" };
        let name = format!("{}{slash}", visible(&entry.name));
        let width = name.chars().count();
        // Columns stay where programs expect them. The link contains the whole name.
        let (shown, mark) = if width > NAME_WIDTH {
            (name.chars().take(NAME_WIDTH - CUT.len()).collect(), CUT)
        } else {
            (name, "")
        };
        let shown = html! { (shown) (mark) }.0;
        let padding = NAME_WIDTH.saturating_sub(width);
        let time = autoindex_time(entry.attributes.modified).unwrap_or_default();
        let size = if is_folder { String::from("-") } else { entry.attributes.len.to_string() };
        push(out, &["<a href=\"", &encode(&entry.name), slash, "\">", &shown, "</a>"]);
        push(out, &[&format!("{:padding$} {time:TIME_WIDTH$} {size:>SIZE_WIDTH$}\r\n", "")]);
    }

    fn end(&mut self, _: &PageCounts, out: &mut Vec<u8>) {
        push(out, &["</pre><hr>"]);
        // Only a client that requests a limit gets several pages.
        if let Some(next) = &self.outline.next_page {
            push(out, &[&html! { a rel="next" href=(next) { "Next page" } }.0]);
        }
        push(out, &["</body>\r\n</html>\r\n"]);
    }
}

/// Adds text to the page.
fn push(out: &mut Vec<u8>, parts: &[&str]) {
    parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
}

/// The width of the column of names.
const NAME_WIDTH: usize = 50;

/// The end of a truncated name.
const CUT: &str = "..>";

/// The width of the column of times.
const TIME_WIDTH: usize = "21-Nov-2026 06:59".len();

/// The width of the column of sizes.
const SIZE_WIDTH: usize = 19;
