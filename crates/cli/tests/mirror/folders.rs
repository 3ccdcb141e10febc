//! `get -r`: what is kept of folders that are here, and what is no folder.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::origin::{Origin, Page};
use crate::peers::Peer;
use crate::rig::{folder, names, noise, run};
use crate::tree::{listing, put, update};

#[test]
fn what_our_server_says_of_permissions_is_for_new_files() {
    let root = folder();
    let all = ["replaced", "same", "large", "new", "sub/new"];
    let len = |name: &str| if name == "large" { 17 << 20 } else { 100 };
    for name in all {
        put(root.path(), name, &noise(len(name)), 0);
        fs::set_permissions(root.path().join(name), Permissions::from_mode(0o644)).unwrap();
    }
    let peer = Peer::ours(root.path());
    // By listings, and as an archive.
    for option in ["--update", "--force"] {
        let here = folder();
        fs::create_dir(here.path().join("sub")).unwrap();
        for name in ["", "sub"] {
            let private = Permissions::from_mode(0o700);
            fs::set_permissions(here.path().join(name), private).unwrap();
        }
        for name in &all[..3] {
            let bytes = if *name == "same" { noise(100) } else { b"old".to_vec() };
            put(here.path(), name, &bytes, 0);
            fs::set_permissions(here.path().join(name), Permissions::from_mode(0o600)).unwrap();
        }
        run(["get", "-r", option, &peer.url, "-d", here.path().to_str().unwrap()]).succeeded();
        for name in all {
            let path = here.path().join(name);
            assert!(fs::read(&path).unwrap() == noise(len(name)), "{option} {name}");
            let expected = if name.ends_with("new") { 0o644 } else { 0o600 };
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, expected, "{option} {name}");
        }
        for name in ["", "sub"] {
            let mode = fs::metadata(here.path().join(name)).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o700, "{option} {name}");
        }
    }
}

#[test]
fn a_page_without_links_is_no_folder() {
    let (origin, here) = (Origin::start(), folder());
    let html = |text: &str| Page::new(text.as_bytes(), &["Content-Type: text/html"]);
    for page in ["<html><h1>Welcome</h1><a href=/>home</a></html>", "<form action=login></form>"] {
        origin.set("/site/", html(page));
        run(["get", "-r", &origin.url("/site/"), "-d", here.path().to_str().unwrap()])
            .failed(1, &["/site/", "neither an archive nor a listing"]);
        assert!(names(here.path()).is_empty());
    }
    // An empty folder is one.
    for page in
        ["<h1>Index of /site/</h1>", "<a href='?sort=name'>Name</a>", "<a href='../'>up</a>"]
    {
        origin.set("/site/", html(page));
        run(["get", "-r", &origin.url("/site/"), "-d", here.path().to_str().unwrap()]).succeeded();
    }
}

#[test]
fn two_slashes_in_a_row_are_not_taken_for_one() {
    let (origin, here) = (Origin::start(), folder());
    let page = "<html><h1>Index of /</h1><a href='sub//'>sub//</a><a href='sub/'>sub/</a></html>";
    origin.set("/", Page::new(page.as_bytes(), &["Content-Type: text/html"]));
    let page = "<html><h1>Index of /sub/</h1><a href=n>n</a></html>";
    origin.set("/sub/", Page::new(page.as_bytes(), &["Content-Type: text/html"]));
    origin.set("/sub/n", Page::new(b"right", &[]));
    origin.set("/sub//", Page::new(page.as_bytes(), &["Content-Type: text/html"]));
    origin.set("/sub//n", Page::new(b"wrong", &[]));
    let done = update(&origin.url("/"), here.path(), &[]).failed(1, &[]);
    assert!(done.stderr.contains("sub// is left out: its name is empty"), "{}", done.stderr);
    assert_eq!(fs::read(here.path().join("sub/n")).unwrap(), b"right");
}

#[test]
fn two_commands_do_not_fetch_into_one_folder() {
    let (origin, here) = (Origin::start(), folder());
    origin.set("/", listing(&[("file", b"new")]));
    origin.set("/file", Page::new(b"new", &[]));
    let log = here.path().join(".underpass-get.log");
    let log = File::options().create(true).truncate(false).write(true).open(log).unwrap();
    rustix::fs::flock(&log, rustix::fs::FlockOperation::LockExclusive).unwrap();
    update(&origin.url("/"), here.path(), &[]).failed(1, &["another process is fetching"]);
    assert_eq!(names(here.path()), [".underpass-get.log"]);
    // The kernel releases it when that process dies.
    drop(log);
    update(&origin.url("/"), here.path(), &[]).succeeded();
    assert_eq!(names(here.path()), ["file"]);
}
