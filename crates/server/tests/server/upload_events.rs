//! Uploads in the log, in the metrics and in the list of transfers; and the removal of abandoned
//! ones.

use std::time::Duration;

use super::rig::{age, pattern, request, wait_until};
use super::uploads::{names, open_site, put};

#[test]
fn the_log_and_the_metrics_report_bytes_and_mechanisms() {
    let server = open_site().start();
    let mut client = server.connect();
    client.send(request("PUT", "/file", &["Content-Length: 2000000", "Expect: 100-continue"]));
    assert_eq!(client.head().unwrap().status, 100);
    client.send(pattern(2_000_000));
    let reply = client.reply();
    assert_eq!(reply.status, 201);
    let record = server.record("PUT");
    assert_eq!(record["status"], 201);
    assert_eq!(record["received"], 2_000_000);
    assert_eq!(record["mechanisms"]["splice"], 2_000_000);
    assert_eq!(record["complete"], true);
    assert_eq!(server.metric("received_bytes_total{mechanism=\"splice\"}"), 2e6);
    assert_eq!(server.metric("received_bytes_total{mechanism=\"read_write\"}"), 0.0);
    assert_eq!(server.metric("requests_total{code=\"201\"}"), 1.0);
}

#[test]
fn an_upload_is_among_the_transfers_while_it_runs() {
    let server = open_site().start();
    let mut client = server.connect();
    client.send(request("PUT", "/file", &["Content-Length: 2000000"]));
    client.send(pattern(500_000));
    let look = || -> serde_json::Value {
        serde_json::from_slice(&server.get("/.underpass/transfers?json").body).unwrap()
    };
    wait_until("something is here", || look()[0]["bytes"].as_u64().is_some_and(|bytes| bytes > 0));
    // What came with the head was copied; progress is reported at intervals.
    std::thread::sleep(2 * underpass_engine::Progress::INTERVAL);
    client.send(pattern(500_000));
    wait_until("most was spliced", || look()[0]["mechanism"] == "splice");
    let transfer = &look()[0];
    assert_eq!(transfer["method"], "PUT");
    assert_eq!(transfer["target"], "/file");
    assert_eq!(transfer["expected"], 2_000_000);
    assert_eq!(transfer["mechanism"], "splice");
    client.send(pattern(1_000_000));
    assert_eq!(client.reply().status, 201);
    wait_until("it is no longer listed", || look().as_array().unwrap().is_empty());
}

#[test]
fn server_timing_names_the_mechanism_of_an_upload() {
    let server = open_site().start();
    let reply = put(&server, "/file", &["Underpass-Explain: 1"], &pattern(1_000_000));
    let timing = reply.field("Server-Timing").unwrap();
    assert!(timing.starts_with("path;desc=\"splice"), "{timing}");
    assert!(put(&server, "/file", &[], b"x").field("Server-Timing").is_none());
}

#[test]
fn abandoned_parts_are_removed() {
    const EXPIRY: Duration = Duration::from_secs(5);
    let part = |digit: char| format!(".file.{}.upload", digit.to_string().repeat(32));
    let (old, new, deep) = (part('a'), part('b'), format!("a/b/{}", part('c')));
    let no_part = ".file.xx.upload";
    let site = open_site().with_site(|site| site.changes.expiry = EXPIRY);
    for name in [&old, &deep, no_part] {
        site.write(name, b"x");
    }
    // No other program can set the time of the last change back.
    std::thread::sleep(EXPIRY);
    site.write(&new, b"x");
    let server = site.start();
    wait_until("the old ones are gone", || {
        !server.path(&old).exists() && !server.path(&deep).exists()
    });
    assert_eq!(names(&server), [&new, no_part, "a"].map(str::to_owned));
}

#[test]
fn parts_stay_where_nothing_is_uploaded() {
    let part = format!(".file.{}.upload", "a".repeat(32));
    let site = open_site().with_site(|site| {
        site.changes.upload = false;
        site.changes.expiry = Duration::from_secs(1);
    });
    site.write(&part, b"x");
    age(&site.path(&part), 4000);
    let server = site.start();
    assert_eq!(server.get(&format!("/{part}")).status, 404);
    assert_eq!(server.ask("HEAD", "/file?partial", &[]).status, 404);
    assert!(server.path(&part).exists());
}
