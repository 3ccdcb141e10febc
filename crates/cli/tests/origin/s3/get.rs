//! Downloads from a store.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::rig::{Finished, Running, folder, names, noise};
use crate::s3::store::{Store, command};
use crate::scripted_origin::{Object, Origin, Request, Sending};

/// Runs a command with keys against a store of our own.
fn run(origin: &Origin, at: &std::path::Path, args: &[&str]) -> Finished {
    Running::start(command(&origin.url(), at, args)).finish()
}

fn refuse(sending: &mut Sending, status: &str, code: &str) {
    let body = format!(
        "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>It is so.</Message></Error>"
    );
    let body = if status.ends_with("HEAD") { String::new() } else { body };
    sending.answer(&format!("HTTP/1.1 {status}\nContent-Type: application/xml"), body.as_bytes());
}

#[test]
fn objects_and_folders_come_by_splice() {
    let Some(store) = Store::new() else { return };
    let here = folder();
    let (small, large) = (noise(1000), noise(40 << 20));
    fs::write(here.path().join("small"), &small).unwrap();
    fs::write(here.path().join("large"), &large).unwrap();
    for (file, key) in [("small", "a/b%20c/small%25"), ("small", "a/x"), ("large", "a/large")] {
        let target = format!("s3://bucket/{key}");
        store.run(here.path(), &["put", file, &target]).succeeded();
    }
    let args = ["get", "s3://bucket/a/large", "-o", "got", "-j", "4", "--json"];
    let receipt = store.run(here.path(), &args).succeeded().receipt();
    assert!(fs::read(here.path().join("got")).unwrap() == large);
    assert_eq!(receipt["user_space_bytes"], 0);
    assert_eq!(receipt["url"], "s3://bucket/a/large");
    let args = ["get", "-r", "s3://bucket/a/", "-d", "tree", "--json"];
    let receipt = store.run(here.path(), &args).succeeded().receipt();
    assert_eq!((&receipt["files"], &receipt["folders"]), (&3.into(), &1.into()));
    let tree = here.path().join("tree/a");
    assert!(fs::read(tree.join("b c/small%")).unwrap() == small);
    assert!(fs::read(tree.join("large")).unwrap() == large);
    assert_eq!(names(&tree), ["b c", "large", "x"]);
    // All files exist already.
    let receipt = store.run(here.path(), &args).succeeded().receipt();
    assert_eq!((&receipt["files"], &receipt["here"]), (&0.into(), &3.into()));
    let args = ["get", "-r", "s3://bucket", "-d", "all"];
    store.run(here.path(), &args).succeeded();
    assert!(fs::read(here.path().join("all/bucket/a/x")).unwrap() == small);
    // A slash of the key may be escaped.
    let args = ["get", "s3://bucket/a%2Fx", "-o", "escaped"];
    store.run(here.path(), &args).succeeded();
    assert!(fs::read(here.path().join("escaped")).unwrap() == small);
    // A prefix without keys does not exist, and an object is no folder.
    let args = ["get", "-r", "s3://bucket/typo", "-d", "typo"];
    store.run(here.path(), &args).failed(1, &["no key with this prefix"]);
    assert!(!here.path().join("typo").exists());
    let args = ["get", "-r", "s3://bucket/a/large", "-d", "typo"];
    store.run(here.path(), &args).failed(1, &["it is a file, not a folder"]);
    store.run(here.path(), &["get", "s3://bucket/none"]).failed(1, &["404", "(NoSuchKey)"]);
    store.run(here.path(), &["get", "s3://elsewhere/x"]).failed(1, &["404", "(NoSuchBucket)"]);
}

#[test]
fn another_version_of_the_same_size_and_time_is_fetched() {
    // A small one, and one that is large enough for a journal.
    for len in [1000, 17 << 20] {
        let (mut other, first) = (noise(len), noise(len));
        other[len / 2] ^= 1;
        let bytes = [first, other.clone()];
        let version = Arc::new(AtomicU32::new(0));
        let current = Arc::clone(&version);
        let origin = Origin::new(move |request: &Request, sending: &mut Sending| {
            let now = current.load(Ordering::Relaxed) as usize;
            if request.path.contains("list-type=2") {
                let page = format!(
                    "<ListBucketResult><Contents><Key>a/x</Key>\
                     <LastModified>2026-01-02T03:04:05.000Z</LastModified>\
                     <ETag>&quot;v{now}&quot;</ETag><Size>{len}</Size></Contents></ListBucketResult>"
                );
                let head = "HTTP/1.1 200 OK\nContent-Type: application/xml";
                return sending.answer(head, page.as_bytes());
            }
            let object = Object::new(bytes[now].clone(), &format!("v{now}"));
            object.with("Last-Modified: Fri, 02 Jan 2026 03:04:05 GMT").send(request, sending);
        });
        let here = folder();
        let update = || {
            let args = ["get", "-r", "--update", "s3://bucket/a/", "-d", "tree", "--json"];
            let receipt = run(&origin, here.path(), &args).succeeded().receipt();
            (receipt["files"].as_u64().unwrap(), receipt["here"].as_u64().unwrap())
        };
        assert_eq!((update(), update()), ((1, 0), (0, 1)));
        version.store(1, Ordering::Relaxed);
        assert_eq!((update(), update()), ((1, 0), (0, 1)));
        assert!(fs::read(here.path().join("tree/a/x")).unwrap() == other);
    }
}

#[test]
fn wrong_keys_and_wrong_addresses_are_one_line() {
    let Some(store) = Store::new() else { return };
    let here = folder();
    fs::write(store.path("x"), "x").unwrap();
    let mut wrong = store.command(here.path(), &["get", "s3://bucket/x"]);
    wrong.env("AWS_SECRET_ACCESS_KEY", "of-another");
    let text = Running::start(wrong).finish().failed(1, &["(SignatureDoesNotMatch)"]);
    assert!(!text.stderr.contains("of-another"));
    let args = ["get", "s3://bucket/x", "--s3-unsigned"];
    store.run(here.path(), &args).failed(1, &["403", "was not signed"]);
    store.run(here.path(), &["get", "s3://b/x"]).failed(2, &["s3://BUCKET/KEY"]);
    store.run(here.path(), &["get", "s3://bucket/x?versionId=1"]).failed(2, &["%3F"]);
    let args = ["get", "s3://bucket/x", "--s3-region", "a b"];
    store.run(here.path(), &args).failed(1, &["'a b' is not the name of a region"]);
}

#[test]
fn a_key_stays_in_its_bucket_and_keeps_its_backslashes() {
    let object = Object::new(noise(1000), "one");
    let origin = Origin::new(move |request, sending| match request.method.as_str() {
        "PUT" => sending.answer("HTTP/1.1 200 OK\nETag: \"one\"", b""),
        _ => object.send(request, sending),
    });
    let here = folder();
    fs::write(here.path().join("file"), "some").unwrap();
    for (key, path) in [
        (r"..\..\other/x", "/bucket/..%5C..%5Cother/x"),
        (r"a\b", "/bucket/a%5Cb"),
        ("/dir/f", "/bucket//dir/f"),
    ] {
        let address = format!("s3://bucket/{key}");
        let before = origin.requests().len();
        run(&origin, here.path(), &["get", &address, "-o", "got", "--force"]).succeeded();
        run(&origin, here.path(), &["put", "file", &address]).succeeded();
        let requests = origin.requests();
        assert!(requests.len() >= before + 2);
        assert!(requests[before..].iter().all(|request| request.path == path), "{requests:?}");
    }
}

#[test]
fn a_listing_without_an_end_is_an_error() {
    for (token, why) in [
        ("", "truncated without a token"),
        ("<NextContinuationToken>t</NextContinuationToken>", "repeats a page"),
    ] {
        let origin = Origin::new(move |_: &Request, sending: &mut Sending| {
            let body = format!(
                "<ListBucketResult><IsTruncated>true</IsTruncated>{token}<Contents>\
                 <Key>a/x</Key><Size>1</Size></Contents></ListBucketResult>"
            );
            sending.answer("HTTP/1.1 200 OK\nContent-Type: application/xml", body.as_bytes());
        });
        let here = folder();
        let args = ["get", "-r", "s3://bucket/a/", "-d", "tree"];
        run(&origin, here.path(), &args).failed(1, &[why]);
        assert!(!here.path().join("tree").exists());
    }
}

#[test]
fn another_version_is_not_mixed_in() {
    let len = 40 << 20;
    let versions = [Object::new(noise(len), "one"), Object::new(noise(len + 1), "two")];
    let count = Arc::new(AtomicU32::new(0));
    let origin = Origin::new(move |request, sending| {
        // Every part after the first is of the other version, until If-Match says which is meant.
        let object = &versions[usize::from(count.fetch_add(1, Ordering::Relaxed) > 0)];
        match request.field("if-match") {
            Some(tag) if tag != object.tag => refuse(sending, "412 No", "PreconditionFailed"),
            _ => object.send(request, sending),
        }
    });
    let here = folder();
    let args = ["get", "s3://bucket/x", "-j", "3", "-o", "x"];
    run(&origin, here.path(), &args).succeeded();
    assert_eq!(fs::read(here.path().join("x")).unwrap().len(), len + 1);
    let requests = origin.requests();
    assert!(requests.iter().any(|request| request.field("if-match") == Some("\"one\"")));
    assert!(requests.iter().all(|request| request.field("if-range").is_none()));
}

#[test]
fn a_store_that_sends_wrong_ranges_is_an_error() {
    let object = Object::new(noise(1000), "one");
    let origin = Origin::new(move |_, sending| {
        let head = "HTTP/1.1 206 Part\nETag: \"one\"\nContent-Range: bytes 5-9/1000";
        sending.answer(head, &object.bytes[5..10]);
    });
    let here = folder();
    let args = ["get", "s3://bucket/x", "-j", "2"];
    run(&origin, here.path(), &args).failed(1, &["other bytes than requested"]);
    assert!(!here.path().join("x").exists());
}

#[test]
fn requests_to_a_busy_store_are_retried() {
    let object = Object::new(noise(1000), "one");
    let count = Arc::new(AtomicU32::new(0));
    let origin = Origin::new(move |request, sending| match count.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => refuse(sending, "503 Slow Down", "SlowDown"),
        _ => object.send(request, sending),
    });
    let here = folder();
    run(&origin, here.path(), &["get", "s3://bucket/x"]).succeeded();
    assert_eq!(origin.requests().len(), 3);
}

#[test]
fn the_region_that_a_store_names_is_used() {
    let object = Object::new(noise(1000), "one");
    let origin = Origin::new(move |request: &Request, sending: &mut Sending| {
        let authorization = request.field("authorization").unwrap();
        if authorization.contains("/eu-central-1/s3/") {
            return object.send(request, sending);
        }
        let body =
            "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-central-1</Region></Error>";
        sending.answer("HTTP/1.1 400 No\nContent-Type: application/xml", body.as_bytes());
    });
    let here = folder();
    run(&origin, here.path(), &["get", "s3://bucket/x"]).succeeded();
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_wrong_clock_is_corrected_by_that_of_the_store() {
    let object = Object::new(noise(1000), "one");
    let origin = Origin::new(move |request: &Request, sending: &mut Sending| {
        if request.field("x-amz-date").unwrap().starts_with("20400101T") {
            return object.send(request, sending);
        }
        let body = "<Error><Code>RequestTimeTooSkewed</Code></Error>";
        let head =
            "HTTP/1.1 403 No\nContent-Type: application/xml\nDate: Sun, 01 Jan 2040 12:00:00 GMT";
        sending.answer(head, body.as_bytes());
    });
    let here = folder();
    run(&origin, here.path(), &["get", "s3://bucket/x"]).succeeded();
}

#[test]
fn a_digest_that_the_store_has_is_checked_on_request() {
    let bytes = noise(3000);
    let digest = {
        use sha2::Digest;
        sha2::Sha256::digest(&bytes)
    };
    let object = Object::new(bytes, "one");
    let base64 = |bytes: &[u8]| {
        let table = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let bits: Vec<_> =
            bytes.iter().flat_map(|b| (0..8).rev().map(move |n| b >> n & 1)).collect();
        let text: String = bits
            .chunks(6)
            .map(|six| six.iter().chain([0; 6].iter()).take(6).fold(0, |all, bit| all << 1 | bit))
            .map(|index| char::from(table[usize::from(index)]))
            .collect();
        format!("{text}{}", &"=="[..(3 - bytes.len() % 3) % 3])
    };
    let (right, wrong) = (base64(&digest), base64(&[7; 32]));
    for (value, is_right) in [(Some(right), true), (Some(wrong), false), (None, false)] {
        let object = object.clone();
        let value = value.clone();
        let origin = Origin::new(move |request: &Request, sending: &mut Sending| {
            if request.method != "HEAD" {
                return object.send(request, sending);
            }
            assert_eq!(request.field("x-amz-checksum-mode"), Some("ENABLED"));
            let field = value.as_ref().map(|value| format!("\nx-amz-checksum-sha256: {value}"));
            let (field, tag) = (field.unwrap_or_default(), &object.tag);
            sending.head(&format!("HTTP/1.1 200 OK\nETag: {tag}\nContent-Length: 3000{field}"));
        });
        let here = folder();
        let finished = run(&origin, here.path(), &["get", "s3://bucket/x", "--verify"]);
        assert_eq!(finished.code(), Some(if is_right { 0 } else { 1 }));
        assert_eq!(here.path().join("x").exists(), is_right);
    }
}

#[test]
fn a_key_with_dots_is_not_taken_for_another_one() {
    let object = Object::new(noise(1000), "one");
    let store =
        Origin::new(move |request: &Request, sending: &mut Sending| object.send(request, sending));
    let here = folder();
    for args in [
        &["get", "s3://bucket/a/../x"][..],
        &["get", "-r", "s3://bucket/a/%2e%2E/"],
        &["put", "file", "s3://bucket/./x"],
        &["serve", "--origin", "s3://bucket/a/..", "--cache", "cache"],
        &["doctor", "--origin", "s3://bucket/a/../x"],
    ] {
        fs::write(here.path().join("file"), "x").unwrap();
        let finished = Running::start(command(&store.url(), here.path(), args)).finish();
        finished.failed(2, &["a key with . or .. between slashes cannot be named"]);
    }
    assert_eq!(store.requests().len(), 0);
}
