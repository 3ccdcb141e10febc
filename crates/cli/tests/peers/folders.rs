//! Whole folders, with every kind of file name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::rig::noise;
use crate::site::{Site, name, tree};

/// Names with special characters of HTML, URLs or shells, or without any meaning.
const AWKWARD: [&[u8]; 18] = [
    b"it's \"quoted\"",
    b"two\nlines",
    b"a<b>&amp;c",
    b"100%",
    b"50%25",
    b"what?a=b",
    b"#hash",
    b":colon",
    b"http:colon",
    b"not\xffutf-8\xfe",
    b"  spaces  ",
    b"semi;colon",
    b"back\\slash",
    b"-dash",
    b"plus+and=more",
    b"tab\tand\x01control",
    b"tick`tilde~dollar$",
    "ünïcödé".as_bytes(),
];

/// Fills the site: awkward names, folders within folders, nothing, and much.
fn fill(site: &Site, names: &[&[u8]]) {
    for (index, awkward) in names.iter().enumerate() {
        fs::write(site.source(name(awkward)), format!("file {index}")).unwrap();
    }
    fs::create_dir_all(site.source("a folder/deep#er")).unwrap();
    fs::create_dir(site.source("nothing")).unwrap();
    fs::write(site.source("a folder/deep#er/x y"), "deep").unwrap();
    fs::write(site.source("a folder/empty"), "").unwrap();
    fs::write(site.source("a folder/noise"), noise(3_000_000)).unwrap();
}

#[test]
fn each_awkward_name_is_listed_and_its_link_leads_to_the_file() {
    let Some(site) = Site::new(&["curl"], &[]) else { return };
    fill(&site, &AWKWARD);
    let listed: Value = serde_json::from_slice(&site.get("?json")).unwrap();
    let mut contents = BTreeSet::new();
    for entry in listed.as_array().unwrap() {
        if entry["is_dir"] == false {
            let url = entry["url"].as_str().unwrap();
            let url = url.strip_prefix("./").or(url.strip_prefix('/')).unwrap_or(url);
            contents.insert(String::from_utf8(site.get(url)).unwrap());
        }
    }
    let expected: BTreeSet<_> = (0..AWKWARD.len()).map(|index| format!("file {index}")).collect();
    assert_eq!(contents, expected);
}

#[test]
fn wget_crawls_a_folder() {
    let Some(site) = Site::new(&["wget"], &[]) else { return };
    fill(&site, &AWKWARD);
    let url = site.url("");
    let args = ["-q", "-r", "-np", "-nH", "--restrict-file-names=nocontrol", "-P", "got", &url];
    site.fetch("wget", &args).succeeded();
    // wget decodes some names twice and has no empty folders; and it keeps the pages.
    let contents = |folder| -> BTreeSet<Vec<u8>> {
        let files = tree(folder).into_iter();
        let files = files.filter(|(name, _)| !name.ends_with("index.html"));
        files.filter_map(|(_, contents)| contents).collect()
    };
    assert!(contents(&site.target("got")) == contents(&site.source("")));
}

#[test]
fn lftp_mirrors_a_folder() {
    let Some(site) = Site::new(&["lftp"], &[]) else { return };
    fill(&site, &AWKWARD);
    site.fetch("lftp", &["-c", &format!("mirror {} got", site.url(""))]).succeeded();
    assert_eq!(paths(&site.target("got")), paths(&site.source("")));
    assert!(tree(&site.target("got")) == tree(&site.source("")));
}

#[test]
fn rclone_copies_a_folder() {
    let Some(site) = Site::new(&["rclone"], &[]) else { return };
    fill(&site, &AWKWARD);
    let args = ["copy", "--create-empty-src-dirs", ":http:", "got", "--http-url", &site.url("")];
    site.fetch("rclone", &args).succeeded();
    assert!(tree(&site.target("got")) == tree(&site.source("")));
}

/// Only the paths, which is less to look at if they differ.
fn paths(folder: &Path) -> Vec<String> {
    tree(folder).into_iter().map(|(path, _)| path).collect()
}
