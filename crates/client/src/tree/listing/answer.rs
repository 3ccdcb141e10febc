//! Receives a listing from a server.

use underpass_transport::incoming::BodyFraming;

use super::{EntryFacts, Listing, date, read};
use crate::http::{Connection, OpenResponse, Response};
use crate::tree::error::{Result, SourceFolderError};
use crate::tree::task::TreeFetch;

/// The media types of listings.
pub(in crate::tree) const ACCEPT: &str = "application/json, text/html;q=0.9, */*;q=0.1";

/// Reads the listing in a response; returns the connection if it can be reused.
pub(in crate::tree) fn receive(
    mut answer: OpenResponse<'_>,
) -> Result<(Listing, Option<Connection<'_>>)> {
    let response = &answer.response;
    let media_type = response.fields.text("content-type").unwrap_or_default().to_owned();
    let not_a_folder = || SourceFolderError::NotAFolder {
        url: TreeFetch::redacted(&answer.url),
        media_type: media_type.clone(),
    };
    if !media_type.contains("html") && !media_type.contains("json") {
        return Err(not_a_folder().into());
    }
    let body = answer.connection.read_body(response, MAX_LISTING)?;
    // The links are relative to the URL that answered.
    let mut listing = read(&answer.url, &media_type, &body).ok_or_else(not_a_folder)?;
    // It may have been cut off, or continue on another page (RFC 8288).
    let goes_on = response.fields.all("link").any(|link| {
        String::from_utf8_lossy(link).to_ascii_lowercase().replace('"', "").contains("rel=next")
    });
    listing.is_whole &= response.framing != BodyFraming::UntilEnd && !goes_on;
    let keeps_alive = response.keeps_alive;
    Ok((listing, keeps_alive.then_some(answer.connection)))
}

/// Completes the known properties of a file from the head of a response.
pub(in crate::tree) fn completed(response: &Response, known: EntryFacts) -> EntryFacts {
    let fields = &response.fields;
    let answered = fields.get("last-modified");
    // A server replaces a time in the future by its own (RFC 9110 8.8.2.1).
    let is_limited = known.modified.is_some() && answered == fields.get("date");
    let answered = answered.filter(|_| !is_limited).and_then(date);
    let size = known.size.or_else(|| fields.number("content-length"));
    EntryFacts { size, ..known }.of_version(answered)
}

/// Returns whether a file was changed within seconds before it was sent: its time, which is rounded
/// to the second, does not prove then that it is still the listed version.
pub(in crate::tree) fn was_just_changed(response: &Response) -> bool {
    let [modified, now] =
        ["last-modified", "date"].map(|name| response.fields.get(name).and_then(date));
    modified.zip(now).is_some_and(|(modified, now)| modified.tv_sec + 2 >= now.tv_sec)
}

/// The maximum size of a listing in bytes: a million names.
const MAX_LISTING: usize = 256 << 20;
