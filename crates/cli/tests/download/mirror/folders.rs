//! `get -r`: what is kept of existing folders, and pages that are not folders.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::mirror::origin::{Origin, Page};
use crate::mirror::peers::Peer;
use crate::mirror::tree::{listing, put, update};
use crate::rig::{Running, folder, names, noise, piped, run};
use underpass_testkit::{is_root, skip};

#[test]
fn permissions_from_the_server_apply_to_new_files_only() {
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
fn no_server_allows_more_than_the_umask() {
    let root = folder();
    put(root.path(), "t/sub/file", b"bytes", 0);
    for (name, mode) in [("t/sub/file", 0o666), ("t/sub", 0o777), ("t", 0o777)] {
        fs::set_permissions(root.path().join(name), Permissions::from_mode(mode)).unwrap();
    }
    let peer = Peer::ours(root.path());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (umask, file, above) in [("077", 0o600, 0o700), ("027", 0o640, 0o750)] {
        // By listings, and as an archive.
        for option in ["--update", "--retries=3"] {
            let here = folder();
            let mut command = piped("sh");
            let script = format!(r#"umask {umask} && exec "$0" get -r "$@""#);
            command.args(["-c", &script, env!("CARGO_BIN_EXE_underpass"), option]);
            command.arg(format!("{}t/", peer.url)).args(["-d", "."]).current_dir(here.path());
            Running::start(command).finish().succeeded();
            assert_eq!(mode(&here.path().join("t/sub/file")), file, "{option} {umask}");
            for name in ["t", "t/sub"] {
                assert_eq!(mode(&here.path().join(name)), above, "{option} {umask} {name}");
            }
        }
    }
}

#[test]
fn a_file_and_a_folder_of_one_name_are_no_success() {
    let (origin, place) = (Origin::start(), folder());
    let (url, html) =
        (origin.url("/"), |text: &str| Page::new(text.as_bytes(), &["Content-Type: text/html"]));
    origin.set("/x", Page::new(b"file", &[]));
    origin.set("/x/", html("<h1>Index of /x/</h1><a href=y>y</a></html>"));
    origin.set("/x/y", Page::new(b"in a folder", &[]));
    for links in ["<a href=x>x</a> <a href='x/'>x/</a>", "<a href='x/'>x/</a><a href=x>x</a>"] {
        origin.set("/", html(&format!("<html><h1>Index of /</h1>{links}</html>")));
        for options in [&[][..], &["--update"], &["--update", "--delete"]] {
            let here = place.path().join(format!("{}{}", links.len(), options.len()));
            let target = here.to_str().unwrap();
            let words = [&["get", "-r", url.as_str(), "-d", target], options].concat();
            let done = run(words).failed(1, &[]);
            assert!(done.stderr.contains("x is left out"), "{options:?} {}", done.stderr);
        }
    }
    // A link without a slash that leads to the folder is no second one.
    origin.set("/x", Page { status: Some(301), ..Page::new(b"", &["Location: /x/"]) });
    let here = place.path().join("one");
    run(["get", "-r", &origin.url("/"), "-d", here.to_str().unwrap()]).succeeded();
    assert_eq!(names(&here.join("x")), ["y"]);
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
fn two_slashes_in_a_row_are_not_treated_as_one() {
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
fn delete_keeps_files_of_running_downloads() {
    let (origin, here) = (Origin::start(), folder());
    origin.set("/", listing(&[("file", b"new")]));
    origin.set("/file", Page::new(b"new", &[]));
    for name in ["live.part", "live.part.journal", "dead.part", "dead.part.journal"] {
        fs::write(here.path().join(name), "").unwrap();
    }
    let live = File::open(here.path().join("live.part")).unwrap();
    live.lock().unwrap();
    update(&origin.url("/"), here.path(), &["--delete"]).succeeded();
    assert_eq!(names(here.path()), ["file", "live.part", "live.part.journal"]);
    drop(live);
    update(&origin.url("/"), here.path(), &["--delete"]).succeeded();
    assert_eq!(names(here.path()), ["file"]);
}

#[test]
fn two_urls_do_not_replace_the_files_of_each_other() {
    let (origin, here) = (Origin::start(), folder());
    let (one, other) = (origin.url("/a/x/"), origin.url("/b/x/"));
    for option in ["--force", "--update"] {
        let target = here.path().to_str().unwrap();
        run(["get", "-r", option, &one, &other, "-d", target]).failed(2, &["each other's files"]);
    }
    assert!(origin.take_exchanges().is_empty());
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

#[test]
fn a_file_that_became_a_folder_is_replaced_where_others_are_removed() {
    let (root, place) = (folder(), folder());
    put(root.path(), "keep", b"keep", 0);
    let peers = [Some(Peer::ours(root.path())), Peer::nginx(root.path(), "html")];
    for peer in peers.into_iter().flatten() {
        let (here, at) = (place.path().join(peer.name), |path: &str| root.path().join(path));
        put(root.path(), "a", b"file", 0);
        put(root.path(), "b/deep/file", b"in a folder", 0);
        update(&peer.url, &here, &["--delete"]).succeeded();
        fs::remove_file(at("a")).unwrap();
        fs::remove_dir_all(at("b")).unwrap();
        put(root.path(), "a/file", b"in a folder", 0);
        put(root.path(), "b", b"file", 0);
        // Without the option, or beyond its limit, all stays.
        let fails = |args: &[&str], words| {
            let failed = update(&peer.url, &here, args).failed(1, &[]);
            assert!(failed.stderr.contains(words), "{}", failed.stderr);
        };
        fails(&[], "a is left out: a file has the name of its folder");
        fails(&["--delete", "--max-delete", "3"], "4 entries, more than 3");
        // An entry that must stay keeps its folder.
        fails(&["--delete", "--exclude", "deep"], "b is left out: a folder of that name");
        assert_eq!(fs::read(here.join("b/deep/file")).unwrap(), b"in a folder");
        let done = update(&peer.url, &here, &["--delete", "--json"]).succeeded().receipt();
        let counts = ["files", "here", "folders", "removed"].map(|name| done[name].as_u64());
        assert_eq!(counts, [Some(1), Some(2), Some(1), Some(3)], "{done}");
        assert_eq!(fs::read(here.join("a/file")).unwrap(), b"in a folder");
        assert_eq!(fs::read(here.join("b")).unwrap(), b"file");
        // A link to a folder elsewhere stays.
        let moved = place.path().join("moved");
        fs::rename(here.join("a"), &moved).unwrap();
        symlink(&moved, here.join("a")).unwrap();
        fails(&["--delete"], "a is left out");
        assert!(here.join("a").is_symlink() && moved.join("file").exists());
        fs::remove_dir_all(moved).unwrap();
        fs::remove_dir_all(at("a")).unwrap();
        fs::remove_file(at("b")).unwrap();
    }
}

#[test]
fn a_folder_that_is_mounted_below_is_not_emptied() {
    if !is_root() {
        return skip("there are no mounts");
    }
    let (root, place) = (folder(), folder());
    put(root.path(), "keep", b"keep", 0);
    let peer = Peer::ours(root.path());
    for name in ["here/gone/mounted", "elsewhere"] {
        fs::create_dir_all(place.path().join(name)).unwrap();
    }
    fs::write(place.path().join("elsewhere/file"), "mine").unwrap();
    let script = r#"mount --bind elsewhere here/gone/mounted && exec "$0" "$@""#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_underpass")]);
    command.args(["get", "-r", "--update", "--delete", "-d", "here", &peer.url]);
    let done = command.current_dir(place.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(place.path().join("here/keep").exists());
    assert!(place.path().join("elsewhere/file").exists());
}
