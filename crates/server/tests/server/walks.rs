//! Searches and sizes: walks through all folders below one, of which each client sees only its part.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::rig::{Running, Site};

fn tree() -> Site {
    let site = Site::of(&[
        ("report.txt", b"1"),
        ("a/b/c/Report 1&2.txt", b"22"),
        ("a/reports/old", b"333"),
        ("a/.hidden/report", b"hidden"),
        ("a/secret/report", b"secret"),
        ("public/report", b"4444"),
        ("other", b"55555"),
    ]);
    symlink("../public", site.path("a/link to reports")).unwrap();
    symlink("/etc", site.path("a/report outside")).unwrap();
    site
}

fn site() -> Running {
    tree().with_site(|site| site.hide = vec!["secret".to_owned()]).start()
}

fn names(site: &Running, query: &str) -> Vec<String> {
    site.get(&format!("/{query}")).text().lines().map(str::to_owned).collect()
}

#[test]
fn a_search_finds_names_in_all_folders_below_that_may_be_seen() {
    let site = site();
    assert_eq!(
        names(&site, "?simple&q=REPORT&below"),
        ["a/link to reports/", "a/reports/", "a/b/c/Report 1&2.txt", "public/report", "report.txt"]
    );
    assert_eq!(names(&site, "?simple&q=report"), ["report.txt"]);
    assert_eq!(names(&site, "a/?simple&q=1%262&below=1"), ["b/c/Report 1&2.txt"]);
    assert_eq!(
        names(&site, "?simple&q=report&below&sort=size&order=desc")[2..],
        ["public/report", "a/b/c/Report 1&2.txt", "report.txt"]
    );
    let found: Value = serde_json::from_slice(&site.get("/?json&q=1%262&below").body).unwrap();
    assert_eq!(found.as_array().unwrap().len(), 1);
    assert_eq!(found[0]["name"], "a/b/c/Report 1&2.txt");
    assert_eq!(found[0]["url"], "./a/b/c/Report%201%262.txt");
    assert_eq!(found[0]["size"], 2);
    let page = site.ask("GET", "/?q=report&below=1", &["Accept: text/html"]);
    assert!(page.text().contains("href=\"a/b/c/Report%201%262.txt\""));
    assert!(page.text().contains("<button name=\"below\" value=\"1\""), "no script is needed");
    assert_eq!(page.field("Underpass-Incomplete"), None);
    assert_eq!(site.get("/?q=x&below&after=a").status, 400);
}

#[test]
fn a_search_that_ends_early_is_marked() {
    let site = Site::new();
    for number in 0..1_005 {
        site.write(&format!("deep/file {number}"), b"");
    }
    let site = site.start();
    let cut = site.get("/?simple&q=file&below&limit=7");
    assert_eq!((cut.text().lines().count(), cut.field("Underpass-Incomplete")), (7, Some("?1")));
    let cut = site.ask("GET", "/?q=file&below&limit=5000", &["Accept: text/html"]);
    assert_eq!(cut.field("Underpass-Incomplete"), Some("?1"));
    assert!(cut.text().contains("the first 1,000 are shown"), "{}", cut.text());
    let whole = site.get("/?simple&q=file 1004&below".replace(' ', "%20").as_str());
    assert_eq!(
        (whole.text().as_ref(), whole.field("Underpass-Incomplete")),
        ("deep/file 1004\n", None)
    );
}

#[test]
fn a_search_goes_so_deep_and_no_deeper() {
    let site = Site::new();
    let path = |depth: usize| vec!["d"; depth].join("/");
    fs::create_dir_all(site.path(&path(120))).unwrap();
    fs::write(site.path(&format!("{}/near", path(50))), b"").unwrap();
    fs::write(site.path(&format!("{}/far", path(120))), b"").unwrap();
    let site = site.start();
    let reply = site.get("/?simple&q=near&below");
    assert_eq!(reply.text(), format!("{}/near\n", path(50)));
    assert_eq!(reply.field("Underpass-Incomplete"), Some("?1"));
    assert_eq!(site.get("/?simple&q=far&below").text(), "");
    let size: Value = serde_json::from_slice(&site.get("/?size").body).unwrap();
    assert_eq!(size["complete"], false);
    let size = site.get(&format!("/{}/?size", path(60)));
    let size: Value = serde_json::from_slice(&size.body).unwrap();
    assert_eq!(size, json!({ "bytes": 0, "files": 1, "folders": 60, "complete": true }));
}

#[test]
fn the_size_of_a_folder_is_that_of_what_may_be_seen_in_it() {
    let site = site();
    let reply = site.get("/?size");
    assert_eq!(reply.field("Content-Type"), Some("application/json"));
    let size: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(size, json!({ "bytes": 15, "files": 5, "folders": 5, "complete": true }));
    assert_eq!(site.get("/report.txt?size").text(), "1", "a file has no such answer");
    let site = tree().with_site(|site| site.listing = false).start();
    assert_eq!(site.get("/?size").status, 403);
    assert_eq!(site.get("/?q=report&below").status, 403);
}

#[test]
fn a_walk_shows_a_user_only_what_the_rules_give() {
    let site = tree().auth(&["alice:secret@/", "@/public", "@/a/reports"]).start();
    assert_eq!(names(&site, "?simple&q=r&below"), ["a/reports/", "public/report"]);
}
