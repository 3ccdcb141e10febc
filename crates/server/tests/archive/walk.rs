//! The entries that a walk includes and leaves out, and when it fails.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use underpass_engine::Version;
use underpass_server::archive::{ArchiveError, WalkOptions, open_member, walk};

use crate::rig::{deep, folder, layout_of, open_below, opened, paths, read};

/// The paths of the archive of a folder.
fn found(path: &Path, options: &WalkOptions<'_>) -> Vec<String> {
    let folder = opened(path);
    let layout = walk(&folder, options).unwrap();
    let whole = read(&layout, &folder, 0..layout.len());
    paths(&whole).iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
}

fn files(root: &Path, names: &[&str]) {
    for name in names {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), name).unwrap();
    }
}

#[test]
fn members_are_in_the_order_of_their_paths_bytes() {
    let folder = folder();
    files(folder.path(), &["a/x", "a/b/y", "a-b", "a.txt", "a0", "B", "a/b.c", "a/b-/z"]);
    let found = found(folder.path(), &WalkOptions::default());
    let expected =
        ["B", "a-b", "a.txt", "a/", "a/b-/", "a/b-/z", "a/b.c", "a/b/", "a/b/y", "a/x", "a0"];
    assert_eq!(found, expected);
    assert!(found.is_sorted());
}

#[test]
fn hidden_names_are_members_only_when_shown() {
    let folder = folder();
    files(folder.path(), &["seen", ".hidden", ".git/config", "sub/.env", "sub/..."]);
    assert_eq!(found(folder.path(), &WalkOptions::default()), ["seen", "sub/"]);
    let shown = WalkOptions { shows_hidden: true, ..WalkOptions::default() };
    assert_eq!(found(folder.path(), &shown).len(), 7);
}

#[test]
fn the_caller_hides_entries_by_their_path_from_the_root() {
    let folder = folder();
    files(folder.path(), &["keep", "secret", "sub/secret", "sub/deep/keep", "gone/keep"]);
    let hides = |path: &[u8], is_folder: bool| {
        (path == b"served/here/sub/secret" && !is_folder) || (path.ends_with(b"gone") && is_folder)
    };
    let options = WalkOptions { base: b"served/here", hides: &hides, ..WalkOptions::default() };
    let found = found(folder.path(), &options);
    assert_eq!(found, ["keep", "secret", "sub/", "sub/deep/", "sub/deep/keep"]);
}

#[test]
fn links_are_members_and_never_followed() {
    let (folder, outside) = (folder(), folder());
    files(outside.path(), &["private"]);
    symlink(outside.path(), folder.path().join("out")).unwrap();
    symlink(".", folder.path().join("loop")).unwrap();
    assert_eq!(found(folder.path(), &WalkOptions::default()), ["loop", "out"]);
}

#[test]
fn a_link_that_cannot_be_checked_now_is_an_error() {
    let folder = folder();
    files(folder.path(), &["sub/file"]);
    symlink("file", folder.path().join("sub/link")).unwrap();
    let shown = Cell::new(Err(Errno::MFILE));
    let shows_link = |_: &[u8], _: &[u8]| shown.get();
    let options = WalkOptions { shows_link: &shows_link, ..WalkOptions::default() };
    let error = walk(opened(folder.path()), &options).unwrap_err();
    assert!(error.to_string().starts_with("\"sub/link\" cannot"), "{error}");
    assert_eq!(error.status(), 503);
    shown.set(Ok(false));
    assert_eq!(found(folder.path(), &options), ["sub/", "sub/file"]);
}

#[test]
fn too_many_or_too_deep_members_are_an_error() {
    let folder = folder();
    files(folder.path(), &["a/b/c", "d"]);
    let with = |max_members, max_depth| {
        let options = WalkOptions { max_members, max_depth, ..WalkOptions::default() };
        walk(opened(folder.path()), &options)
    };
    assert_eq!(with(4, 2).unwrap().members(), 4);
    assert!(matches!(with(3, 2), Err(ArchiveError::TooMany { limit: 3 })));
    let Err(ArchiveError::TooDeep { path, limit: 1 }) = with(4, 1) else { panic!("not too deep") };
    assert_eq!(path, b"a/b");
}

#[test]
fn an_abandoned_walk_ends() {
    let (folder, flag) = (folder(), AtomicBool::new(true));
    files(folder.path(), &["a"]);
    let options = WalkOptions { cancelled: Some(&flag), ..WalkOptions::default() };
    assert!(matches!(walk(opened(folder.path()), &options), Err(ArchiveError::Cancelled)));
}

#[test]
fn an_unreadable_entry_fails_the_walk_with_its_path() {
    // Root may read everything. Capabilities are a matter of one thread, and this one ends with
    // the test.
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).unwrap();
    for name in ["file", "folder"] {
        let root = folder();
        files(root.path(), &["sub/file", "sub/folder/x"]);
        let path = root.path().join("sub").join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        let error = walk(opened(root.path()), &WalkOptions::default()).unwrap_err();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(error.to_string().starts_with(&format!("\"sub/{name}\" cannot")), "{error}");
        assert_eq!(error.status(), 403);
    }
}

#[test]
fn a_path_longer_than_the_kernel_takes_is_walked_and_opened() {
    let root = folder();
    for (levels, name) in [(40, "d".repeat(200)), (900, "e".to_owned()), (17, "f".repeat(255))] {
        deep(root.path(), levels, &name);
    }
    let folder = opened(root.path());
    let layout = layout_of(root.path());
    assert_eq!(layout.members(), 1 + 3 * (40 + 900 + 17));
    let whole = read(&layout, &folder, 0..layout.len());
    assert_eq!(whole.len() as u64, layout.len());
    let longest = paths(&whole).iter().map(Vec::len).max();
    assert_eq!(longest, Some("top/".len() + 40 * 201 + "zlink".len()));
}

#[test]
fn a_member_that_changed_is_not_opened() {
    let root = folder();
    files(root.path(), &["file", "sub/file"]);
    let folder = opened(root.path());
    let version = Version::of(fs::File::open(root.path().join("sub/file")).unwrap()).unwrap();
    let open = || open_member(&folder, b"sub/file", &version);
    open().unwrap();
    // A hard link changes no contents.
    fs::hard_link(root.path().join("sub/file"), root.path().join("second")).unwrap();
    open().unwrap();
    let changes: [fn(&Path); 5] = [
        |sub| fs::write(sub.join("file"), "longer than it was").unwrap(),
        |sub| fs::remove_file(sub.join("file")).unwrap(),
        |sub| symlink("../file", sub.join("file")).unwrap(),
        |sub| fs::rename(sub.join("file"), sub.join("link")).unwrap(),
        |sub| {
            let path = sub.join("file");
            let mode = rustix::fs::Mode::RWXU;
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        },
    ];
    for change in changes {
        change(&root.path().join("sub"));
        let error = open().unwrap_err();
        assert!(matches!(&error, ArchiveError::Changed { path } if path == b"sub/file"), "{error}");
    }
}

#[test]
fn nothing_outside_the_folder_is_opened() {
    let root = folder();
    files(root.path(), &["inside/file", "outside"]);
    symlink("..", root.path().join("inside/up")).unwrap();
    let folder = opened(&root.path().join("inside"));
    let path = root.path().join("outside");
    let version = Version::of(fs::File::open(&path).unwrap()).unwrap();
    let absolute = path.to_str().unwrap().as_bytes();
    for path in [&b"../outside"[..], b"up/outside", absolute] {
        assert!(open_member(&folder, path, &version).is_err());
    }
}

#[test]
fn a_folder_that_changes_during_the_walk_is_archived_or_refused_but_never_torn() {
    let root = folder();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let path = |name| root.path().join(name);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                files(root.path(), &["a/b/c", "d", "e/f"]);
                fs::remove_dir_all(path("a")).unwrap();
                symlink("/etc", path("a")).unwrap();
                fs::remove_file(path("a")).unwrap();
                fs::remove_dir_all(path("e")).unwrap();
            }
        });
        for _ in 0..200 {
            let layout = walk(opened(root.path()), &WalkOptions::default()).unwrap();
            assert!(layout.members() <= 6, "{layout:?}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_walk_has_one_folder_open_however_deep_it_is() {
    let root = folder();
    deep(root.path(), 60, "d");
    let most = Cell::new(0);
    let hides = |_: &[u8], _| {
        most.set(most.get().max(open_below(root.path())));
        false
    };
    let options = WalkOptions { hides: &hides, ..WalkOptions::default() };
    assert_eq!(walk(opened(root.path()), &options).unwrap().members(), 180);
    // The current one and the one just entered; the archived one is not below itself.
    assert!((1..=2).contains(&most.get()), "{}", most.get());
}
