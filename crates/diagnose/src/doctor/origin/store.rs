//! Examines an object store as an origin.

use std::time::SystemTime;

use underpass_client::s3::{Pages, Store, object_url};
use underpass_client::{ClientError, HttpClient, Request, Url};
use underpass_engine::hint::Hinted;
use underpass_protocol::encode_segment;
use underpass_protocol::response::validator::parse_date;

use crate::doctor::finding::{Finding, FindingState};

use super::contact::{Contact, of_file, unreachable};

/// Examines the store, and an object of it: the one that is named, or the first one below.
pub(super) fn examine(client: &HttpClient<'_>, store: &Store) -> Vec<Finding> {
    let keys = keys(store);
    // The first request learns the region and the time.
    let found = match first_byte(client, &store.url) {
        Ok(true) if !store.url.path().ends_with('/') => Ok(Some(store.url.clone())),
        Ok(_) => first_object(client, store),
        Err(error) if error.is_temporary() => return vec![keys, unreachable(&error)],
        Err(error) => Err(error),
    };
    let (object, mut findings) = match found {
        Ok(object) => (object, vec![keys, bucket(None)]),
        Err(error) => return vec![keys, bucket(Some(&error)), region(store)],
    };
    findings.push(region(store));
    let Some(object) = object else {
        findings.push(Finding {
            name: "file",
            state: FindingState::Closed,
            finding: "no key begins so".to_owned(),
            consequence: "there is nothing to serve, and ranges and versions cannot be examined"
                .to_owned(),
            remedy: Some("name a prefix that keys have: --origin s3://BUCKET/PREFIX".to_owned()),
        });
        return findings;
    };
    match Contact::new(client, &object) {
        Ok(contact) => {
            findings.push(clock(&contact));
            findings.extend(of_file(client, &object, &contact));
        }
        Err(error) => findings.push(unreachable(&error)),
    }
    findings
}

/// Says where keys were found.
fn keys(store: &Store) -> Finding {
    let (state, finding, consequence, remedy) = match store.keys_from {
        Some(place) => (FindingState::Best, format!("from {place}"), "requests are signed", None),
        None => (
            FindingState::Limited,
            "none, or --s3-unsigned".to_owned(),
            "only what is open to all can be served",
            Some("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"),
        ),
    };
    let (consequence, remedy) = (consequence.to_owned(), remedy.map(str::to_owned));
    Finding { name: "keys", state, finding, consequence, remedy }
}

/// Says whether the bucket exists and may be read.
fn bucket(error: Option<&ClientError>) -> Finding {
    let (state, finding, consequence) = match error {
        None => (FindingState::Best, "it may be read".to_owned(), "objects can be served"),
        Some(error) => (FindingState::Closed, error.to_string(), "nothing can be served"),
    };
    let remedy = error.map(|error| match error {
        ClientError::Status { status: 404, .. } => {
            "check the name of the bucket, and --s3-endpoint".to_owned()
        }
        ClientError::Status { code, has_identified: true, .. } if code == "AccessDenied" => {
            "give these keys the rights s3:ListBucket and s3:GetObject".to_owned()
        }
        error => error.hint().map_or("check --s3-endpoint".to_owned(), |hint| hint.to_string()),
    });
    Finding { name: "bucket", state, finding, consequence: consequence.to_owned(), remedy }
}

/// Says whether the store goes by the region that was given.
fn region(store: &Store) -> Finding {
    let (given, named) = store.regions();
    let (state, finding, consequence, remedy) = match given == named {
        _ if store.keys_from.is_none() => {
            (FindingState::Unneeded, given, "requests are not signed for a region", None)
        }
        true => (FindingState::Best, given, "requests are signed for the right region", None),
        false => (
            FindingState::Limited,
            format!("the store is in {named}, and not in {given}"),
            "the first requests of each process are refused, and sent again",
            Some(format!("--s3-region {named}")),
        ),
    };
    Finding { name: "region", state, finding, consequence: consequence.to_owned(), remedy }
}

/// Compares the clock of the store with ours.
fn clock(contact: &Contact) -> Finding {
    let name = "clock";
    let Some(theirs) = contact.response.fields.get("date").and_then(parse_date) else {
        return Finding {
            name,
            state: FindingState::Limited,
            finding: "the store does not say what time it is".to_owned(),
            consequence: "a wrong clock shows only when signatures are refused".to_owned(),
            remedy: None,
        };
    };
    let now = SystemTime::now();
    let (is_ahead, gap) = match theirs.duration_since(now) {
        Ok(gap) => (true, gap),
        Err(error) => (false, error.duration()),
    };
    // The field has whole seconds, and the answer took a while.
    let seconds = gap.as_secs();
    if seconds <= MAX_SKEW {
        return Finding {
            name,
            state: FindingState::Best,
            finding: "this clock and the store's agree".to_owned(),
            consequence: "signatures are good, and ages are right".to_owned(),
            remedy: None,
        };
    }
    let side = if is_ahead { "behind" } else { "ahead of" };
    Finding {
        name,
        state: FindingState::Limited,
        finding: format!("this clock is {seconds} s {side} the store's"),
        consequence: "signatures follow the store's clock, but ages of files are wrong".to_owned(),
        remedy: Some("set the clock of this machine, as chronyd does".to_owned()),
    }
}

/// Returns whether there is an object with this URL.
fn first_byte(client: &HttpClient<'_>, url: &Url) -> Result<bool, ClientError> {
    let request = Request { method: "GET", fields: &[("Range", "bytes=0-0")] };
    let answer = client.execute(None, &request, url)?;
    Ok(matches!(answer.response.status, 200 | 206))
}

/// Returns the URL of the first object below the prefix that was named, if there is one.
fn first_object(client: &HttpClient<'_>, store: &Store) -> Result<Option<Url>, ClientError> {
    let prefix = store.url.path().strip_prefix(store.bucket.path()).unwrap_or_default();
    let mut folder = prefix.trim_end_matches('/').to_owned();
    if !folder.is_empty() {
        folder.push('/');
    }
    for _ in 0..MAX_DEPTH {
        let Some(page) = Pages::new(None).next(client, &store.bucket, &folder)? else { break };
        if let Some(object) = page.entries.iter().find(|entry| entry.size > Some(0)) {
            let key = format!("{folder}{}", encode_segment(&object.name));
            return object_url(&store.bucket, &key).map(Some);
        }
        let Some(below) = page.entries.iter().find(|entry| entry.size.is_none()) else { break };
        let name = below.name.strip_suffix(b"/").unwrap_or(&below.name);
        folder += &format!("{}/", encode_segment(name));
    }
    Ok(None)
}

/// The seconds between two clocks that are no reason for worry.
const MAX_SKEW: u64 = 5;

/// The number of folders within each other in which an object is looked for.
const MAX_DEPTH: u32 = 16;
