//! Changes of folders with entries that the server may not change or read: the response names them,
//! and what was not changed stays whole.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use underpass_engine::atomic_file::hidden_name;

use super::changes_delete::{open_site, statuses};
use super::dav_locks::token;
use super::rig::{FileSystem, Mounted, Running, Site};

/// Starts a server to whose user permissions apply, as they do not to root.
fn start(site: Site) -> Running {
    let starting = thread::spawn(|| {
        // The threads of the server inherit it.
        let mut own = capabilities(None).unwrap();
        own.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        set_capabilities(None, own).unwrap();
        site.start()
    });
    starting.join().unwrap()
}

fn permit(site: &Running, path: &str, mode: u32) {
    fs::set_permissions(site.path(path), fs::Permissions::from_mode(mode)).unwrap();
}

/// The entries that a response names, with the status and the reason of each.
fn failed(site: &Running, verb: &str, path: &str, fields: &[&str]) -> Vec<(String, String)> {
    let reply = site.ask(verb, path, fields);
    let text = reply.text();
    assert_eq!(reply.status, 207, "{verb} {path}: {text}");
    let entries = text.split("<D:response><D:href>").skip(1);
    let entries = entries.map(|entry| {
        let (link, rest) = entry.split_once("</D:href>").unwrap();
        let rest = rest.replace("</D:status><D:responsedescription>", " ");
        let status = rest.strip_prefix("<D:status>HTTP/1.1 ").unwrap().split_once('<').unwrap().0;
        (link.to_owned(), status.to_owned())
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort();
    entries
}

const UNCHANGEABLE: &str = "403 Forbidden the server may not change this";

const UNREADABLE: &str = "403 Forbidden the server may not read this";

fn named(found: &[(String, String)]) -> Vec<(&str, &str)> {
    found.iter().map(|(link, status)| (link.as_str(), status.as_str())).collect()
}

#[test]
fn entries_that_cannot_be_removed_are_named_and_the_others_removed() {
    let files: &[(&str, &[u8])] = &[
        ("top/a", b"a"),
        ("top/ro/k 1", b"k"),
        ("top/ro/sub/x", b"x"),
        ("top/b/c", b"c"),
        ("locked/in/x", b"x"),
    ];
    let site = start(open_site(files));
    permit(&site, "top/ro", 0o555);
    let found = failed(&site, "DELETE", "/top/", &[]);
    assert_eq!(named(&found), [("/top/ro/k%201", UNCHANGEABLE), ("/top/ro/sub/", UNCHANGEABLE)]);
    assert!(!site.path("top/a").exists() && !site.path("top/b").exists());
    assert_eq!(fs::read(site.path("top/ro/k 1")).unwrap(), b"k");
    permit(&site, "top/ro", 0o755);
    statuses(&site, &[("DELETE", "/top", &[], 204)]);
    // Nothing is removed from a folder if a folder in it cannot be read.
    permit(&site, "locked/in", 0o000);
    assert_eq!(named(&failed(&site, "DELETE", "/locked", &[])), [("/locked/in/", UNREADABLE)]);
    permit(&site, "locked/in", 0o755);
    assert!(site.path("locked/in/x").exists());
}

#[test]
fn locks_of_removed_entries_end_even_if_others_remain() {
    let site = start(open_site(&[("top/a", b"a"), ("top/ro/k", b"k")]));
    let [removed, kept] = ["/top/a", "/top/ro/k"].map(|path| token(&site, path, &[]));
    permit(&site, "top/ro", 0o555);
    let named = format!("If: </top/a> ({removed}) </top/ro/k> ({kept})");
    assert_eq!(failed(&site, "DELETE", "/top/", &[&named]).len(), 1);
    permit(&site, "top/ro", 0o755);
    let empty = "Content-Length: 0";
    statuses(&site, &[("PUT", "/top/a", &[empty], 201), ("PUT", "/top/ro/k", &[empty], 423)]);
}

#[test]
fn a_list_of_what_cannot_be_removed_has_a_bound() {
    let site = open_site(&[("top/ro/0", b"x")]);
    (1..300).for_each(|i| site.write(&format!("top/ro/{i}"), b""));
    let site = start(site);
    permit(&site, "top/ro", 0o555);
    assert_eq!(failed(&site, "DELETE", "/top", &[]).len(), 100);
    permit(&site, "top/ro", 0o755);
}

#[test]
fn unreadable_entries_are_named_and_nothing_is_copied() {
    let files: &[(&str, &[u8])] =
        &[("from/a", b"a"), ("from/in/secret", b"s"), ("from/dir/x", b"x"), ("file", b"f")];
    let site = start(open_site(files));
    let to = "Destination: /to";
    permit(&site, "from/in/secret", 0o000);
    assert_eq!(named(&failed(&site, "COPY", "/from", &[to])), [("/from/in/secret", UNREADABLE)]);
    permit(&site, "from/in/secret", 0o644);
    permit(&site, "from/dir", 0o000);
    assert_eq!(named(&failed(&site, "COPY", "/from", &[to])), [("/from/dir/", UNREADABLE)]);
    permit(&site, "from/dir", 0o755);
    permit(&site, "file", 0o000);
    let reply = site.ask("COPY", "/file", &[to]);
    assert_eq!((reply.status, reply.text().contains("may not read")), (403, true));
    assert!(!site.path("to").exists());
    assert_eq!(fs::read_dir(site.path(".")).unwrap().count(), 2, "nothing else is left");
    statuses(&site, &[("COPY", "/from", &[to], 201)]);
}

#[test]
fn a_copy_that_fails_leaves_nothing_though_its_folders_are_not_writable() {
    // Whichever is copied first, each but the last of them is whole when the copy ends.
    let folders = ["a", "m", "z"].map(|name| format!("from/{name}"));
    let site = open_site(&[("from/secret", b"s")]);
    for folder in &folders {
        site.write(&format!("{folder}/in/file"), b"x");
        fs::set_permissions(site.path(folder).join("in"), fs::Permissions::from_mode(0o555))
            .unwrap();
    }
    let site = start(site);
    for folder in &folders {
        permit(&site, folder, 0o000);
        let found = failed(&site, "COPY", "/from", &["Destination: /to"]);
        assert_eq!(named(&found), [(&*format!("/{folder}/"), UNREADABLE)]);
        permit(&site, folder, 0o555);
        assert_eq!(underpass_testkit::names(&site.path("")), ["from"], "{folder}");
    }
    for folder in &folders {
        permit(&site, folder, 0o755);
        permit(&site, &format!("{folder}/in"), 0o755);
    }
}

#[test]
fn entries_that_cannot_move_to_another_file_system_are_named() {
    let Some(mounted) = Mounted::new(FileSystem::Tmpfs, 8) else { return };
    // The mount point has a name in the folder that is served.
    let folder = mounted.root().parent().unwrap().to_owned();
    for path in ["unread/secret", "fixed/a", "fixed/ro/k"] {
        fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
        fs::write(folder.join(path), path).unwrap();
    }
    let permit = |path: &str, mode: u32| {
        fs::set_permissions(folder.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    permit("unread/secret", 0o000);
    permit("fixed/ro", 0o555);
    fs::write(folder.join("root/old"), "old").unwrap();
    let site = start(Site::new().with_site(|site| {
        site.root = Some(folder.clone());
        site.changes.upload = true;
        site.changes.delete = true;
    }));
    let found = failed(&site, "MOVE", "/unread", &["Destination: /root/unread"]);
    assert_eq!(named(&found), [("/unread/secret", UNREADABLE)]);
    assert!(folder.join("unread/secret").exists() && !folder.join("root/unread").exists());
    // The copy is whole, and what could not be removed is still there.
    let found = failed(&site, "MOVE", "/fixed", &["Destination: /root/fixed"]);
    assert_eq!(named(&found), [("/fixed/ro/k", UNCHANGEABLE)]);
    assert!(!folder.join("fixed/a").exists());
    assert_eq!(fs::read(folder.join("root/fixed/ro/k")).unwrap(), b"fixed/ro/k");
    // The replaced folder is gone anyway, with its locks; the locks of what remains stay.
    fs::create_dir(folder.join("root/full")).unwrap();
    fs::write(folder.join("root/full/gone"), "gone").unwrap();
    let gone = token(&site, "/root/full/gone", &[]);
    let kept = token(&site, "/fixed/ro/k", &[]);
    let named_locks = format!("If: </root/full/gone> ({gone}) </fixed/ro/k> ({kept})");
    let fields = ["Destination: /root/full", "Overwrite: T", &named_locks];
    let found = failed(&site, "MOVE", "/fixed", &fields);
    assert_eq!(named(&found), [("/fixed/ro/k", UNCHANGEABLE)]);
    assert_eq!(underpass_testkit::names(&mounted.root()), ["fixed", "full", "old"]);
    assert_eq!(underpass_testkit::names(&mounted.root().join("full")), ["ro"]);
    let empty = "Content-Length: 0";
    let rows: [(&str, &str, &[&str], u16); 2] =
        [("PUT", "/root/full/gone", &[empty], 201), ("PUT", "/fixed/ro/k", &[empty], 423)];
    statuses(&site, &rows);
    let given_up = format!("Lock-Token: {kept}");
    statuses(&site, &[("UNLOCK", "/fixed/ro/k", &[&given_up], 204)]);
    // What could not be removed is not moved.
    statuses(&site, &[("MOVE", "/fixed/ro/k", &["Destination: /root/old"], 403)]);
    assert_eq!(fs::read(folder.join("root/old")).unwrap(), b"old");
    permit("fixed/ro", 0o755);
}

#[test]
fn conditions_on_unreadable_files_do_not_hold() {
    let site = start(open_site(&[("secret", b"s")]));
    permit(&site, "secret", 0o000);
    let to = "Destination: /moved";
    for field in ["If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT", "If-None-Match: *"] {
        let rows: [(&str, &str, &[&str], u16); 2] =
            [("DELETE", "/secret", &[field], 403), ("MOVE", "/secret", &[field, to], 403)];
        statuses(&site, &rows);
    }
    statuses(&site, &[("DELETE", "/secret", &[], 204)]);
}

#[test]
fn uploads_under_way_in_a_folder_survive_its_move_to_another_file_system() {
    let Some(mounted) = Mounted::new(FileSystem::Tmpfs, 8) else { return };
    let folder = mounted.root().parent().unwrap().to_owned();
    let new = ".new.0123456789abcdef0123456789abcdef.upload";
    let copy = hidden_name(new.as_ref(), Some(7)).into_string().unwrap();
    let under_way = [format!("from/{new}"), format!("from/deep/{copy}")];
    for inner in &under_way {
        fs::create_dir_all(folder.join(inner)).unwrap();
        fs::write(folder.join(inner).join("file"), "under way").unwrap();
    }
    for file in ["from/file", "from/deep/file"] {
        fs::write(folder.join(file), "x").unwrap();
    }
    let site = Site::new().with_site(|site| {
        site.root = Some(folder.clone());
        site.changes.upload = true;
        site.changes.delete = true;
    });
    let site = site.start();
    let found = failed(&site, "MOVE", "/from", &["Destination: /root/to"]);
    let changed = "409 Conflict it was changed while it was copied, and is still there";
    assert_eq!(named(&found), [("/from/", changed), ("/from/deep/", changed)]);
    for inner in &under_way {
        assert_eq!(fs::read(folder.join(inner).join("file")).unwrap(), b"under way", "{inner}");
    }
    let to = mounted.root().join("to");
    assert_eq!(underpass_testkit::names(&to), ["deep", "file"]);
    assert_eq!(underpass_testkit::names(&to.join("deep")), ["file"]);
    assert_eq!(underpass_testkit::names(&folder.join("from")), [new, "deep"]);
}

#[test]
fn nothing_is_left_where_names_can_only_be_added() {
    let Some(mounted) = Mounted::new(FileSystem::Ext4, 8) else { return };
    let root = mounted.root();
    let site = open_site(&[]).with_site(move |site| site.root = Some(root));
    let to = mounted.root().join("log");
    fs::create_dir(&to).unwrap();
    fs::create_dir(mounted.root().join("from")).unwrap();
    let site = site.start();
    let chattr = |flag: &str| Command::new("chattr").arg(flag).arg(&to).status().unwrap().success();
    assert!(chattr("+a"));
    let reply = site.ask("COPY", "/from/", &["Destination: /log/copy"]);
    let left = underpass_testkit::names(&to);
    assert!(chattr("-a"));
    assert_eq!((reply.status, left), (403, Vec::new()));
}

#[test]
fn a_folder_that_the_file_system_cannot_move_is_not_replaced() {
    let Some(mounted) = Mounted::new(FileSystem::Overlay, 8) else { return };
    for file in ["old/a", "file"] {
        fs::create_dir_all(mounted.lower().join(file).parent().unwrap()).unwrap();
        fs::write(mounted.lower().join(file), "a").unwrap();
    }
    let root = mounted.root();
    fs::create_dir(root.join("new")).unwrap();
    fs::write(root.join("new/b"), "b").unwrap();
    let site = Site::new().with_site(|site| {
        site.root = Some(root.clone());
        site.changes.upload = true;
        site.changes.delete = true;
    });
    let site = site.start();
    let fields = ["Destination: /old", "Overwrite: T"];
    for (verb, path) in [("MOVE", "/new"), ("COPY", "/new"), ("MOVE", "/file"), ("COPY", "/file")] {
        let reply = site.ask(verb, path, &fields);
        let text = reply.text();
        assert!(reply.status == 409 && text.contains("delete it first"), "{verb} {path}: {text}");
    }
    assert_eq!(underpass_testkit::names(&root), ["file", "new", "old"]);
    statuses(&site, &[("DELETE", "/old", &[], 204), ("MOVE", "/new", &fields, 201)]);
    assert_eq!(underpass_testkit::names(&root.join("old")), ["b"]);
}
