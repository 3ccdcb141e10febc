//! curl changes what is served, by the confined program.

use std::fs;
use std::os::unix::fs::symlink;

use crate::rig::names;
use crate::site::Site;

/// The status of a request with these arguments.
fn status(site: &Site, verb: &str, path: &str, destination: Option<&str>) -> String {
    let field = destination.map(|path| format!("Destination: {}", site.url(path)));
    let url = site.url(path);
    let mut args = vec!["-sS", "-o", "said", "-w", "%{http_code}", "-X", verb, &url];
    args.extend(field.iter().flat_map(|field| ["-H", field.as_str()]));
    site.fetch("curl", &args).succeeded().text()
}

/// Fills a folder with a file, a folder and a link.
fn fill(site: &Site) {
    fs::create_dir_all(site.source("a/deep")).unwrap();
    fs::write(site.source("a/deep/file"), "contents").unwrap();
    symlink("deep/file", site.source("a/link")).unwrap();
}

#[test]
fn curl_copies_moves_and_deletes_folders() {
    let Some(site) = Site::new(&["curl"], &["-A"]) else { return };
    fill(&site);
    let steps = [
        ("COPY", "a", Some("b"), "201"),
        ("COPY", "a/", Some("b/"), "204"),
        ("MKCOL", "c", None, "201"),
        ("MOVE", "b/deep", Some("c/moved"), "201"),
        ("MOVE", "c/moved/file", Some("b/link"), "204"),
        ("DELETE", "a", None, "204"),
        ("DELETE", "c", None, "204"),
    ];
    for (verb, path, destination, expected) in steps {
        assert_eq!(status(&site, verb, path, destination), expected, "{verb} {path}");
    }
    assert_eq!(names(&site.source("")), ["b"]);
    assert_eq!(names(&site.source("b")), ["link"]);
    assert_eq!(fs::read(site.source("b/link")).unwrap(), b"contents");
}

#[test]
fn curl_copies_a_folder_where_nothing_may_be_deleted() {
    let Some(site) = Site::new(&["curl"], &["--allow-upload"]) else { return };
    fill(&site);
    assert_eq!(status(&site, "COPY", "a", Some("b")), "201");
    assert_eq!(status(&site, "COPY", "a", Some("b")), "403");
    assert_eq!(status(&site, "DELETE", "a", None), "405");
    assert_eq!(names(&site.source("")), ["a", "b"]);
    assert_eq!(fs::read(site.source("b/link")).unwrap(), b"contents");
}
