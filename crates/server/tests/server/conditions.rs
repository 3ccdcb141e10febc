//! Conditional requests in the order of RFC 9110, section 13.2.2, and If-Range.

use std::time::{Duration, SystemTime};

use super::rig::{Reply, Running, Site, age, wait_until};

const PAST: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn site() -> Running {
    let site = Site::of(&[("file", b"0123456789")]);
    age(&site.path("file"), 3600);
    site.with_site(|site| site.cache_control = Some("max-age=60".to_owned())).start()
}

/// The entity tag and the date of the file.
fn validators(site: &Running) -> (String, String) {
    let reply = site.ask("HEAD", "/file", &[]);
    let field = |name| reply.field(name).unwrap().to_owned();
    (field("ETag"), field("Last-Modified"))
}

fn future() -> String {
    httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3600))
}

#[test]
fn preconditions_are_evaluated_in_the_order_of_the_standard() {
    let site = site();
    let (tag, date) = validators(&site);
    let future = future();
    let ask = |fields: &[(&str, &str)]| {
        let lines: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        site.ask("GET", "/file", &lines).status
    };
    let weak = format!("W/{tag}");
    let among = format!("\"a\", {tag} , \"b\"");
    let rows: &[(u16, &[(&str, &str)])] = &[
        (200, &[("If-Match", &tag)]),
        (200, &[("If-Match", "*")]),
        (200, &[("If-Match", &among)]),
        (412, &[("If-Match", "\"other\"")]),
        (412, &[("If-Match", &weak)]),
        // The date is ignored next to If-Match.
        (200, &[("If-Match", &tag), ("If-Unmodified-Since", PAST)]),
        (412, &[("If-Match", "\"other\""), ("If-Unmodified-Since", &future)]),
        (412, &[("If-Unmodified-Since", PAST)]),
        (200, &[("If-Unmodified-Since", &date)]),
        (200, &[("If-Unmodified-Since", "no date")]),
        (304, &[("If-None-Match", &tag)]),
        (304, &[("If-None-Match", &weak)]),
        (304, &[("If-None-Match", &among)]),
        (304, &[("If-None-Match", "*")]),
        (200, &[("If-None-Match", "\"other\"")]),
        // It is also ignored next to If-None-Match.
        (200, &[("If-None-Match", "\"other\""), ("If-Modified-Since", &future)]),
        (304, &[("If-None-Match", &tag), ("If-Modified-Since", PAST)]),
        (304, &[("If-Modified-Since", &date)]),
        (200, &[("If-Modified-Since", PAST)]),
        (200, &[("If-Modified-Since", "no date")]),
        // A failed precondition wins over one that results in 304, and both over a range.
        (412, &[("If-Match", "\"other\""), ("If-None-Match", &tag)]),
        (304, &[("If-None-Match", &tag), ("Range", "bytes=0-1")]),
        (412, &[("If-Match", "\"other\""), ("Range", "bytes=0-1")]),
        (206, &[("If-Match", &tag), ("Range", "bytes=0-1")]),
    ];
    for (status, fields) in rows {
        assert_eq!(ask(fields), *status, "{fields:?}");
    }
}

#[test]
fn not_modified_says_what_a_cache_needs_and_no_more() {
    let site = site();
    let (tag, date) = validators(&site);
    let reply = site.ask("GET", "/file", &[&format!("If-None-Match: {tag}")]);
    assert_eq!(reply.status, 304);
    assert_eq!(reply.field("ETag"), Some(tag.as_str()));
    assert_eq!(reply.field("Last-Modified"), Some(date.as_str()));
    assert_eq!(reply.field("Cache-Control"), Some("max-age=60"));
    assert_eq!(reply.field("Content-Length"), None);
}

#[test]
fn a_condition_holds_for_head_as_for_get() {
    let site = site();
    let (tag, _) = validators(&site);
    let ask = |field: &str| site.ask("HEAD", "/file", &[field]).status;
    assert_eq!(ask(&format!("If-None-Match: {tag}")), 304);
    assert_eq!(ask("If-Match: \"other\""), 412);
    assert_eq!(ask(&format!("If-Match: {tag}")), 200);
}

#[test]
fn a_resumed_download_gets_its_rest_only_of_the_same_version() {
    let site = site();
    let (tag, date) = validators(&site);
    let resume =
        |field: &str| site.ask("GET", "/file", &["Range: bytes=4-", &format!("If-Range: {field}")]);
    let is_rest = |reply: &Reply| (reply.status, reply.text() == "456789") == (206, true);
    let is_whole = |reply: &Reply| (reply.status, reply.text() == "0123456789") == (200, true);
    assert!(is_rest(&resume(&tag)));
    assert!(is_rest(&resume(&date)));
    assert!(is_whole(&resume("\"other\"")));
    assert!(is_whole(&resume(&format!("W/{tag}"))), "a weak tag never holds");
    assert!(is_whole(&resume(PAST)));
    assert!(is_whole(&resume(&future())), "a date has to be exactly that of the file");
    assert!(is_whole(&resume("nonsense")));
}

#[test]
fn a_date_of_this_very_second_is_not_trusted() {
    let site = Site::of(&[("file", b"0123456789")]);
    let site = site.start();
    // As new as can be: its date could stand for two versions.
    let reply = loop {
        std::fs::write(site.path("file"), b"0123456789").unwrap();
        let date = site.ask("HEAD", "/file", &[]).field("Last-Modified").unwrap().to_owned();
        let field = format!("If-Range: {date}");
        let reply = site.ask("GET", "/file", &["Range: bytes=4-", &field]);
        if reply.field("Date") == Some(&date) {
            break reply;
        }
    };
    assert_eq!(reply.status, 200);
}

#[test]
fn a_file_that_an_older_one_replaced_is_modified() {
    let site = site();
    let (_, date) = validators(&site);
    std::fs::write(site.path("older"), "older").unwrap();
    age(&site.path("older"), 7200);
    std::fs::rename(site.path("older"), site.path("file")).unwrap();
    let ask = |date: &str| site.ask("GET", "/file", &[&format!("If-Modified-Since: {date}")]);
    wait_until("it is opened", || ask(&date).text() == "older");
    // As `curl -z` sends it, the date of the download.
    assert_eq!(ask(&future()).status, 304);
    assert_eq!(ask(&validators(&site).1).status, 304);
}

#[test]
fn a_file_that_changed_has_another_tag_even_if_its_date_is_set_back() {
    let site = site();
    let (before, date) = validators(&site);
    std::fs::write(site.path("file"), b"abcdefghij").unwrap();
    let file = std::fs::File::options().write(true).open(site.path("file")).unwrap();
    file.set_modified(httpdate::parse_http_date(&date).unwrap()).unwrap();
    let (after, same_date) = validators(&site);
    assert_eq!(same_date, date);
    assert_ne!(after, before);
    let resumed = site.ask("GET", "/file", &["Range: bytes=4-", &format!("If-Range: {before}")]);
    assert_eq!(resumed.part(), (200, None, "abcdefghij".to_owned()));
}
