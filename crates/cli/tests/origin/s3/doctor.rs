//! The doctor's findings about a store.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::rig::{Finished, Running, folder, run};
use crate::s3::store::{ID, SECRET, Store, bare, command};
use crate::scripted_origin::{Object, Origin, Request, Sending};

/// The exit status, and the findings, each as its name, state and text.
fn findings(finished: &Finished) -> (Option<i32>, Vec<[String; 3]>) {
    let record: Value = serde_json::from_str(finished.text().trim()).unwrap();
    let text = |it: &Value| it.as_str().unwrap().to_owned();
    let findings = record["findings"].as_array().unwrap().iter();
    let findings = findings.map(|it| [text(&it["name"]), text(&it["state"]), text(&it["finding"])]);
    (finished.code(), findings.collect())
}

/// The state of a finding, and its text.
fn of<'f>(findings: &'f [[String; 3]], name: &str) -> (&'f str, &'f str) {
    let [_, state, text] = findings.iter().find(|it| it[0] == name).unwrap();
    (state, text)
}

fn doctor(store: &Store, here: &Path, args: &[&str]) -> (Option<i32>, Vec<[String; 3]>) {
    let all = [&["doctor", "--json", "--origin"], args].concat();
    let finished = store.run(here, &all);
    assert!(!finished.text().contains(SECRET) && !finished.stderr.contains(SECRET));
    findings(&finished)
}

#[test]
fn a_good_store_has_nothing_that_hinders() {
    let Some(store) = Store::new() else { return };
    let here = folder();
    fs::write(here.path().join("x"), "words").unwrap();
    store.run(here.path(), &["put", "x", "s3://bucket/sub/deep%20er/x"]).succeeded();
    for address in ["s3://bucket/sub", "s3://bucket", "s3://bucket/sub/deep%20er/x"] {
        let (code, found) = doctor(&store, here.path(), &[address]);
        let names: Vec<_> = found.iter().map(|it| it[0].as_str()).collect();
        let expected =
            ["keys", "bucket", "region", "clock", "origin", "origin-tls", "ranges", "version"];
        assert_eq!((code, &names[..]), (Some(0), &expected[..]), "{address}: {found:?}");
        // The store of the test has no certificate.
        let is_bad = |it: &&[String; 3]| it[1] != "best" && it[0] != "origin-tls";
        assert_eq!(found.iter().filter(is_bad).count(), 0, "{found:?}");
        assert!(of(&found, "keys").1.contains("environment"), "{found:?}");
        assert!(of(&found, "origin").1.contains(" ms"), "{found:?}");
    }
    let args = ["doctor", "--origin", "s3://bucket/sub", "--cache", "."];
    let text = store.run(here.path(), &args).succeeded().text();
    assert!(text.contains("cache-disk") && !text.contains(ID), "{text}");
}

#[test]
fn doctor_names_the_faults_of_a_store() {
    let Some(store) = Store::new() else { return };
    let here = folder();
    fs::write(store.path("x"), "words").unwrap();
    let (code, found) = doctor(&store, here.path(), &["s3://elsewhere/x"]);
    assert_eq!(code, Some(3));
    assert_eq!(of(&found, "bucket").0, "closed");
    assert!(of(&found, "bucket").1.contains("NoSuchBucket"), "{found:?}");
    let (code, found) = doctor(&store, here.path(), &["s3://bucket/typo"]);
    assert_eq!((code, of(&found, "file").0), (Some(3), "closed"), "{found:?}");
    let (code, found) = doctor(&store, here.path(), &["s3://bucket/x", "--s3-unsigned"]);
    assert_eq!((code, of(&found, "keys").0), (Some(3), "limited"), "{found:?}");
    assert_eq!((of(&found, "bucket").0, of(&found, "region").0), ("closed", "unneeded"));
    let mut wrong = store.command(here.path(), &["doctor", "--origin", "s3://bucket/x"]);
    wrong.env("AWS_SECRET_ACCESS_KEY", "of-another");
    let finished = Running::start(wrong).finish();
    let text = finished.text();
    assert_eq!(finished.code(), Some(3));
    assert!(text.contains("SignatureDoesNotMatch") && text.contains("AWS_SECRET_ACCESS_KEY"));
    assert!(!text.contains("of-another"), "{text}");
    let args = ["doctor", "--json", "--origin", "s3://bucket/x"];
    let gone = Running::start(command("http://127.0.0.1:1", here.path(), &args)).finish();
    let (code, found) = findings(&gone);
    assert_eq!((code, of(&found, "origin").0), (Some(3), "closed"), "{found:?}");
    run(["doctor", "--s3-region", "x"]).failed(2, &["--origin s3://BUCKET/"]);
    let args = ["doctor", "--origin", "s3://b/x"];
    Running::start(bare(here.path(), &args)).finish().failed(2, &["s3://BUCKET/KEY"]);
}

#[test]
fn another_region_and_another_clock_are_named() {
    let object = Object::new(b"words".to_vec(), "one").with("Date: Sun, 01 Jan 2040 00:00:00 GMT");
    let store = Origin::new(move |request: &Request, sending: &mut Sending| {
        let is_right = request.field("authorization").is_some_and(|it| it.contains("/eu-test-1/"));
        if is_right {
            object.send(request, sending)
        } else {
            sending.answer("HTTP/1.1 400 No\nx-amz-bucket-region: eu-test-1", b"")
        }
    });
    let here = folder();
    let args = ["doctor", "--json", "--origin", "s3://bucket/x"];
    let (code, found) =
        findings(&Running::start(command(&store.url(), here.path(), &args)).finish());
    assert_eq!(code, Some(0), "{found:?}");
    let expected = ("limited", "the store is in eu-test-1, not in us-east-1");
    assert_eq!(of(&found, "region"), expected);
    assert_eq!(of(&found, "clock").0, "limited");
    assert!(of(&found, "clock").1.ends_with(" s behind the store's"), "{found:?}");
    let args = [&args[..], &["--s3-region", "eu-test-1"]].concat();
    let (_, found) = findings(&Running::start(command(&store.url(), here.path(), &args)).finish());
    assert_eq!(of(&found, "region"), ("best", "eu-test-1"));
}
