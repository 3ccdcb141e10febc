//! Examines an object store as an origin.

use std::time::SystemTime;

use underpass_client::s3::{Pages, Store, object_url};
use underpass_client::{ClientError, HttpClient, Request, Url};
use underpass_engine::hint::Hinted;
use underpass_protocol::encode_segment;
use underpass_protocol::response::validator::parse_date;

use crate::doctor::finding::Finding;

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
        findings.push(
            Finding::closed("file")
                .finding("no key has this prefix")
                .consequence(
                    "there is nothing to serve, and ranges and versions cannot be examined",
                )
                .remedy("name a prefix of existing keys: --origin s3://BUCKET/PREFIX"),
        );
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

/// Reports where keys were found.
fn keys(store: &Store) -> Finding {
    match store.keys_from {
        Some(place) => Finding::best("keys")
            .finding(format!("from {place}"))
            .consequence("requests are signed"),
        None => Finding::limited("keys")
            .finding("none, or --s3-unsigned")
            .consequence("only public objects can be served")
            .remedy("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"),
    }
}

/// Reports whether the bucket exists and may be read.
fn bucket(error: Option<&ClientError>) -> Finding {
    let Some(error) = error else {
        return Finding::best("bucket")
            .finding("it may be read")
            .consequence("objects can be served");
    };
    let remedy = match error {
        ClientError::Status { status: 404, .. } => {
            "check the name of the bucket, and --s3-endpoint".to_owned()
        }
        ClientError::Status { code, has_identified: true, .. } if code == "AccessDenied" => {
            "give these keys the rights s3:ListBucket and s3:GetObject".to_owned()
        }
        error => error.hint().map_or("check --s3-endpoint".to_owned(), |hint| hint.to_string()),
    };
    Finding::closed("bucket")
        .finding(error.to_string())
        .consequence("nothing can be served")
        .remedy(remedy)
}

/// Reports whether the store accepts the given region.
fn region(store: &Store) -> Finding {
    let (given, named) = (store.region(), store.signed_region());
    match given == named {
        _ if store.keys_from.is_none() => Finding::unneeded("region")
            .finding(given)
            .consequence("requests are not signed for a region"),
        true => Finding::best("region")
            .finding(given)
            .consequence("requests are signed for the right region"),
        false => Finding::limited("region")
            .finding(format!("the store is in {named}, not in {given}"))
            .consequence("the first requests of each process are refused, and sent again")
            .remedy(format!("--s3-region {named}")),
    }
}

/// Compares the clock of the store with ours.
fn clock(contact: &Contact) -> Finding {
    let Some(theirs) = contact.response.fields.get("date").and_then(parse_date) else {
        return Finding::limited("clock")
            .finding("the store sends no Date")
            .consequence("a wrong clock only shows when signatures are refused");
    };
    let (side, gap) = match theirs.duration_since(SystemTime::now()) {
        Ok(gap) => ("behind", gap),
        Err(error) => ("ahead of", error.duration()),
    };
    // The field has whole seconds, and the answer took a while.
    let seconds = gap.as_secs();
    if seconds <= MAX_SKEW {
        return Finding::best("clock")
            .finding("the clocks of this machine and of the store agree")
            .consequence("signatures are valid, and ages are right");
    }
    Finding::limited("clock")
        .finding(format!("this clock is {seconds} s {side} the store's"))
        .consequence("signatures follow the store's clock, but ages of files are wrong")
        .remedy("set the clock of this machine, as chronyd does")
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

/// The maximum difference between two clocks in seconds that is harmless.
const MAX_SKEW: u64 = 5;

/// The maximum depth of nested folders that are searched for an object.
const MAX_DEPTH: u32 = 16;
