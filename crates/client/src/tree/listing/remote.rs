//! Finds the files that the server has already, so that only the others are sent.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

use percent_encoding::percent_decode_str;
use rustix::fs::Timespec;
use underpass_protocol::response::validator::parse_date;
use url::Url;

use super::answer::{ACCEPT, completed, receive};
use super::{EntryFacts, Listing};
use crate::error::ClientError;
use crate::http::{Connection, HttpClient, OpenResponse, Request, Response};
use crate::upload::is_of_target;

/// The server's listings of the current target folder and its parents.
#[derive(Debug, Default)]
pub struct RemoteFolders(Vec<RemoteFolder>);

/// A folder of the server.
#[derive(Debug)]
struct RemoteFolder {
    /// Its URL path, which ends in `/`.
    path: String,
    /// The entries in it by name.
    entries: HashMap<Vec<u8>, EntryFacts>,
    /// Whether the folder certainly contains nothing else but hidden files, which many servers do
    /// not list.
    is_whole: bool,
    /// Whether the folder exists, as far as is known.
    exists: bool,
    clock: ClockOffset,
}

/// The result of a request about the server's files, and the connection if it can be reused.
type RemoteFound<'a, T> = Result<(T, Option<Connection<'a>>), ClientError>;

impl RemoteFolders {
    /// Requests the listing of a folder into which files are sent next; its URL ends in `/`.
    /// Returns whether the server has the folder. Files in a folder without a listing are looked up
    /// by [`has`](Self::has).
    ///
    /// # Errors
    ///
    /// [`ClientError`], if the server does not answer, or refuses for a reason that is not about
    /// this folder.
    pub fn enter<'a>(
        &mut self,
        client: &HttpClient<'a>,
        idle: Option<Connection<'a>>,
        url: &Url,
    ) -> RemoteFound<'a, bool> {
        self.0.retain(|folder| url.path().starts_with(&folder.path));
        let request = Request { method: "GET", fields: &[("Accept", ACCEPT)] };
        let answer = client.execute(idle, &request, url)?;
        let mut folder = RemoteFolder {
            path: url.path().to_owned(),
            entries: HashMap::new(),
            is_whole: false,
            exists: true,
            clock: ClockOffset::of(&answer.response),
        };
        let status = answer.response.status;
        let (exists, idle) = match status {
            // A redirect leads to another folder, and other successes are not the whole.
            200 if answer.url == *url => match receive(answer) {
                Ok((listing, idle)) => {
                    folder.fill_from(listing);
                    (true, idle)
                }
                // Such as a page instead of a listing.
                Err(_) => (false, None),
            },
            404 | 410 => {
                folder.exists = false;
                (false, answer.connection.finish(&answer.response))
            }
            _ => (false, refused(answer)?),
        };
        self.0.push(folder);
        Ok((exists, idle))
    }

    /// Returns whether the server has this file: of the same size, and of the same time to the
    /// second or a later one than the last change of the local file. If no listing tells, a `HEAD`
    /// request does.
    ///
    /// # Errors
    ///
    /// [`ClientError`], if the server does not answer, or refuses for a reason that is not about
    /// this file.
    pub fn has<'a>(
        &self,
        client: &HttpClient<'a>,
        idle: Option<Connection<'a>>,
        url: &Url,
        local: &Metadata,
    ) -> RemoteFound<'a, bool> {
        let (folder, name) = url.path().rsplit_once('/').unwrap_or_default();
        let listed = self.0.iter().find(|it| it.path.strip_suffix('/') == Some(folder));
        if let Some(listed) = listed {
            let name: Vec<u8> = percent_decode_str(name).collect();
            match listed.entries.get(&name) {
                None if listed.lacks(&name) => return Ok((false, idle)),
                Some(facts @ EntryFacts { size: Some(_), modified: Some(_), .. }) => {
                    return Ok((listed.clock.is_same(facts, local), idle));
                }
                _ => {}
            }
        }
        let answer = client.execute(idle, &Request { method: "HEAD", fields: &[] }, url)?;
        let response = &answer.response;
        match response.status {
            200 if is_of_target(&answer.url, url, response) => {
                let facts = completed(response, EntryFacts::default());
                let is_same = ClockOffset::of(response).is_same(&facts, local);
                Ok((is_same, answer.connection.finish(&answer.response)))
            }
            404 | 410 => Ok((false, answer.connection.finish(&answer.response))),
            _ => Ok((false, refused(answer)?)),
        }
    }
}

impl RemoteFolder {
    /// Returns whether the server certainly has no entry of this name, which is not listed.
    fn lacks(&self, name: &[u8]) -> bool {
        !self.exists || (self.is_whole && !name.starts_with(b"."))
    }

    fn fill_from(&mut self, listing: Listing) {
        self.is_whole = listing.is_whole;
        let files = listing.entries.into_iter().filter(|entry| !entry.is_folder);
        self.entries = files.map(|entry| (entry.path, entry.facts)).collect();
    }
}

/// How many seconds the server's clock is ahead of ours, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockOffset(Option<i64>);

impl ClockOffset {
    fn of(response: &Response) -> Self {
        Self::at(response, SystemTime::now())
    }

    fn at(response: &Response, now: SystemTime) -> Self {
        let date = response.fields.get("date").and_then(parse_date);
        // A cache sends the date of the original response (RFC 9111 4.2.3).
        let age = match response.fields.get("age") {
            Some(_) => response.fields.number("age").and_then(|age| i64::try_from(age).ok()),
            None => Some(0),
        };
        Self(date.and_then(|date| seconds(date)?.checked_add(age?)?.checked_sub(seconds(now)?)))
    }

    /// Returns whether the server's file equals the local one.
    fn is_same(self, theirs: &EntryFacts, ours: &Metadata) -> bool {
        let Some(Timespec { tv_sec: modified, .. }) = theirs.modified else { return false };
        // Times are compared to the second, and that of the response is rounded.
        let is_later = |ahead: i64| {
            let sent_at = modified.saturating_sub(ahead);
            let now = seconds(SystemTime::now()).unwrap_or_default();
            sent_at > ours.ctime().saturating_add(SLACK) && sent_at <= now.saturating_add(SLACK)
        };
        theirs.size == Some(ours.len())
            && (modified == ours.mtime() || self.0.is_some_and(is_later))
    }
}

/// Returns the connection after a refusal that concerns one path: a client with write access may
/// lack read access.
fn refused(answer: OpenResponse<'_>) -> Result<Option<Connection<'_>>, ClientError> {
    match answer.response.status {
        401 | 407 | 408 | 425 | 429 | 500 | 502..=504 => {
            Err(answer.connection.refusal(&answer.response))
        }
        _ => Ok(answer.connection.finish(&answer.response)),
    }
}

fn seconds(time: SystemTime) -> Option<i64> {
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// The tolerance in seconds between two clocks.
const SLACK: i64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_a_cached_response_is_added_to_the_server_clock() {
        let now = UNIX_EPOCH + std::time::Duration::from_secs(784_111_777);
        for (fields, ahead) in [
            ("Date: Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Date: Sun, 06 Nov 1994 07:49:37 GMT\r\nAge: 3600", Some(0)),
            ("Date: Sun, 06 Nov 1994 07:49:37 GMT\r\nAge: old", None),
            ("Date: Sun, 06 Nov 1994 07:49:37 GMT\r\nAge: 18446744073709551615", None),
            ("Age: 3600", None),
        ] {
            let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
            let response = Response::parse(head.as_bytes(), "GET").expect("a head");
            assert_eq!(ClockOffset::at(&response, now), ClockOffset(ahead), "{fields}");
        }
    }

    #[test]
    fn a_file_of_the_same_size_and_time_or_newer_is_up_to_date() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "four").expect("written");
        let time = UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let file = std::fs::File::options().append(true).open(&path).expect("a file");
        file.set_modified(time).expect("set");
        let local = std::fs::metadata(&path).expect("metadata");
        let changed = local.ctime();
        let facts = |size, tv_sec| EntryFacts {
            size: Some(size),
            modified: Some(Timespec { tv_sec, tv_nsec: 5 }),
            ..EntryFacts::default()
        };
        for (size, modified, ahead, expected) in [
            (4, 1_000_000_000, None, true),
            (5, 1_000_000_000, None, false),
            (4, 1_000_000_001, Some(0), false),
            // Within the second of the change it may be either version.
            (4, changed, Some(0), false),
            (4, changed + 1, Some(0), false),
            (4, changed + 3_600, Some(3_600), false),
            (4, changed - 3_600, Some(-3_600), false),
            // A time in the future proves nothing.
            (4, changed + 86_400, Some(0), false),
            (4, changed + 86_400, None, false),
        ] {
            let found = ClockOffset(ahead).is_same(&facts(size, modified), &local);
            assert_eq!(found, expected, "{size} {modified} {ahead:?}");
        }
    }
}
