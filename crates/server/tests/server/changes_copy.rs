//! COPY: by the kernel, whole, and without hidden entries.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{XattrFlags, setxattr};

use super::changes_delete::{open_site, statuses};
use super::rig::{FileSystem, Mounted, Running, Site, age, pattern, request, wait_until};

#[test]
fn a_copy_has_the_bytes_the_mode_and_the_times_of_the_original() {
    let bytes = pattern(3 << 20);
    let site = open_site(&[("file", &bytes), ("old", b"old"), ("empty", b"")]);
    fs::set_permissions(site.path("file"), fs::Permissions::from_mode(0o4640)).unwrap();
    age(&site.path("file"), 86_400);
    symlink("file", site.path("link")).unwrap();
    let site = site.start();
    statuses(
        &site,
        &[
            ("COPY", "/file", &["Destination: /copy"], 201),
            ("COPY", "/file", &["Destination: /old", "Overwrite: F"], 412),
            ("COPY", "/file", &["Destination: /old"], 204),
            ("COPY", "/empty", &["Destination: /nothing"], 201),
            ("COPY", "/link", &["Destination: /resolved"], 201),
            ("COPY", "/file", &["Destination: /file"], 403),
        ],
    );
    let original = fs::metadata(site.path("file")).unwrap();
    for name in ["copy", "old", "resolved"] {
        let copy = fs::symlink_metadata(site.path(name)).unwrap();
        assert_eq!(copy.mode() & 0o7777, 0o640, "{name}");
        assert_eq!((copy.mtime(), copy.mtime_nsec()), (original.mtime(), original.mtime_nsec()));
        assert_ne!(copy.ino(), original.ino());
        assert!(copy.is_file() && fs::read(site.path(name)).unwrap() == bytes, "{name}");
    }
    assert_eq!(site.get("/copy").body, bytes);
    assert_eq!(fs::metadata(site.path("nothing")).unwrap().len(), 0);
}

#[test]
fn a_folder_is_copied_with_links_and_without_hidden_or_special_entries() {
    let files: &[(&str, &[u8])] = &[
        ("a/file", b"file"),
        ("a/deep/er/file", b"deep"),
        ("a/.dot/file", b"dot"),
        ("a/secret", b"secret"),
        ("full/old", b"old"),
    ];
    let site = open_site(files);
    symlink("file", site.path("a/link")).unwrap();
    symlink("/etc/hostname", site.path("a/deep/out")).unwrap();
    assert!(Command::new("mkfifo").arg(site.path("a/fifo")).status().unwrap().success());
    let _socket = UnixListener::bind(site.path("a/socket")).unwrap();
    fs::set_permissions(site.path("a/deep"), fs::Permissions::from_mode(0o750)).unwrap();
    let site = site.with_site(|site| site.hide = vec!["secret".into()]).start();
    statuses(
        &site,
        &[
            ("COPY", "/a", &["Destination: /a/b/c"], 403),
            ("COPY", "/a/deep", &["Destination: /a"], 403),
            ("COPY", "/a/", &["Destination: /b/"], 201),
            ("COPY", "/a", &["Destination: /b", "Overwrite: F"], 412),
            ("COPY", "/a", &["Destination: /full"], 204),
            ("COPY", "/a", &["Destination: /bare", "Depth: 0"], 201),
            ("COPY", "/a", &["Destination: /one", "Depth: 1"], 400),
            ("COPY", "/a/file", &["Destination: /bare"], 409),
            ("COPY", "/a/fifo", &["Destination: /c"], 404),
            ("COPY", "/a/socket", &["Destination: /c"], 404),
            ("COPY", "/a/file", &["Destination: /bare/", "Overwrite: T"], 204),
        ],
    );
    for name in ["b", "full"] {
        let mut names: Vec<_> = fs::read_dir(site.path(name))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["deep", "file", "link"]);
        assert_eq!(fs::read(site.path(&format!("{name}/deep/er/file"))).unwrap(), b"deep");
        let link = |path: &str| fs::read_link(site.path(&format!("{name}/{path}"))).unwrap();
        assert_eq!(link("link").to_str(), Some("file"));
        assert_eq!(link("deep/out").to_str(), Some("/etc/hostname"));
        let mode = fs::metadata(site.path(&format!("{name}/deep"))).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o750);
    }
    assert!(site.path("bare").is_file());
    let left = fs::read_dir(site.path("")).unwrap().count();
    assert_eq!(left, 4, "a, b, full and bare");
}

#[test]
fn a_copy_that_does_not_fit_leaves_nothing() {
    let Some(mounted) = Mounted::new(FileSystem::Tmpfs, 8) else { return };
    let root = mounted.root();
    fs::create_dir(root.join("folder")).unwrap();
    fs::write(root.join("folder/a"), vec![1; 5 << 20]).unwrap();
    fs::write(root.join("old"), "old").unwrap();
    let site = Site::new().with_site(|site| {
        site.root = Some(root.clone());
        site.changes.upload = true;
        site.changes.delete = true;
    });
    let site = site.start();
    statuses(
        &site,
        &[
            ("COPY", "/folder/a", &["Destination: /b"], 507),
            ("COPY", "/folder/a", &["Destination: /old"], 507),
            ("COPY", "/folder", &["Destination: /b"], 507),
            ("COPY", "/folder", &["Destination: /old"], 507),
        ],
    );
    assert_eq!(fs::read(root.join("old")).unwrap(), b"old");
    assert_eq!(fs::read_dir(&root).unwrap().count(), 2);
}

#[test]
fn a_copy_shares_blocks_where_the_file_system_can() {
    let Some(mounted) = Mounted::new(FileSystem::Xfs, 400) else { return };
    let root = mounted.root();
    fs::create_dir(root.join("folder")).unwrap();
    fs::write(root.join("folder/a"), pattern(1 << 20)).unwrap();
    let site = Site::new().with_site(|site| {
        site.root = Some(root.clone());
        site.changes.upload = true;
    });
    let site = site.start();
    for (path, to) in [("/folder/a", "/b"), ("/folder", "/c")] {
        let destination = format!("Destination: {to}");
        let reply = site.ask("COPY", path, &[&destination, "Underpass-Explain: 1"]);
        assert_eq!(reply.status, 201);
        assert_eq!(reply.field("Server-Timing"), Some("path;desc=\"reflink\""), "{path}");
    }
    assert_eq!(fs::read(root.join("c/a")).unwrap(), pattern(1 << 20));
    // A folder can be replaced only where it could be removed.
    statuses(&site, &[("COPY", "/folder", &["Destination: /c"], 403)]);
}

/// An ACL by which another user may read and write, and the group of the file may not.
pub(crate) const FOR_ONE_USER: [u16; 22] = [
    2, 0, // version
    1, 6, 0xffff, 0xffff, // owner
    2, 6, 1000, 0, // user 1000
    4, 0, 0xffff, 0xffff, // group
    16, 6, 0xffff, 0xffff, // mask
    32, 0, 0xffff, 0xffff, // others
];

#[test]
fn a_copy_gives_the_group_no_more_than_the_acl_of_the_original_does() {
    let site = open_site(&[("secret", b"s"), ("folder/file", b"f"), ("old", b"old")]);
    let acl = FOR_ONE_USER.map(u16::to_le_bytes).concat();
    for name in ["secret", "folder", "old"] {
        let mode = if name == "folder" { 0o700 } else { 0o600 };
        fs::set_permissions(site.path(name), fs::Permissions::from_mode(mode)).unwrap();
        let set = setxattr(site.path(name), "system.posix_acl_access", &acl, XattrFlags::empty());
        if set.is_err() {
            return super::rig::skip("this file system has no ACLs");
        }
        assert_eq!(fs::metadata(site.path(name)).unwrap().mode() & 0o070, 0o060, "the mask");
    }
    let site = site.start();
    statuses(
        &site,
        &[
            ("COPY", "/secret", &["Destination: /copy"], 201),
            ("COPY", "/folder/", &["Destination: /bare/", "Depth: 0"], 201),
            ("COPY", "/folder/", &["Destination: /whole/"], 201),
        ],
    );
    for name in ["copy", "bare", "whole"] {
        assert_eq!(fs::metadata(site.path(name)).unwrap().mode() & 0o077, 0, "{name}");
    }
    // Nor may the group read a new version that is not complete.
    let fields = ["Upload-Complete: ?0", "Upload-Draft-Interop-Version: 8", "Content-Length: 3"];
    let mut client = site.connect();
    client.send(request("PUT", "/old", &fields) + "new");
    assert_eq!((client.head().unwrap().status, client.reply().status), (104, 201));
    let entries = fs::read_dir(site.path("")).unwrap().map(|entry| entry.unwrap());
    let parts: Vec<_> = entries
        .filter(|entry| entry.file_name().as_encoded_bytes().ends_with(b".upload"))
        .map(|entry| entry.metadata().unwrap().mode() & 0o077)
        .collect();
    assert_eq!(parts, [0]);
}

/// Copies a large folder to `/to`, and does something as soon as the copy has begun; returns the
/// status of the first round that gets the expected one.
fn copied_while(site: &Running, expected: u16, act: impl Fn()) -> u16 {
    let mut status = 0;
    for _ in 0..8 {
        std::thread::scope(|scope| {
            let fields = ["Destination: /to/copy/", "Overwrite: T"];
            let copy = scope.spawn(move || site.ask("COPY", "/from/", &fields).status);
            wait_until("the copy", || {
                fs::read_dir(site.path("to")).unwrap().any(|entry| {
                    let name = entry.unwrap().file_name();
                    name.as_encoded_bytes().ends_with(b".upload")
                }) || copy.is_finished()
            });
            act();
            status = copy.join().unwrap();
        });
        if status == expected {
            break;
        }
        fs::remove_dir_all(site.path("to")).unwrap();
        fs::create_dir_all(site.path("to/copy")).unwrap();
    }
    status
}

#[test]
fn entries_that_appear_during_a_copy_are_replaced_by_the_same_rules() {
    let site = open_site(&[("to/copy/old", b"old")]);
    (0..500).for_each(|i| site.write(&format!("from/{i}"), b"x"));
    let site = site.start();
    let hidden = || fs::write(site.path("to/copy/.hidden"), "kept").unwrap();
    assert_eq!(copied_while(&site, 403, hidden), 403);
    assert_eq!(fs::read(site.path("to/copy/.hidden")).unwrap(), b"kept");
    fs::remove_dir_all(site.path("to/copy")).unwrap();
    let taken = || drop(fs::create_dir(site.path("to/copy")));
    assert_eq!(copied_while(&site, 204, taken), 204);
    assert!(site.path("to/copy/499").exists());
}

#[test]
fn a_file_that_takes_the_name_at_the_last_moment_is_replaced() {
    let site = open_site(&[("file", b"file"), ("other", b"other")]).start();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (other, taken) = (site.path("other"), site.path("taken"));
            while !is_over.load(Ordering::Relaxed) {
                let _ = fs::hard_link(&other, &taken);
                let _ = fs::remove_file(&taken);
            }
        });
        let refused = (0..100).find_map(|_| {
            fs::write(site.path("moved"), "moved").unwrap();
            ["COPY /file", "MOVE /moved"].into_iter().find_map(|change| {
                let (verb, path) = change.split_once(' ').unwrap();
                let status = site.ask(verb, path, &["Destination: /taken"]).status;
                (!matches!(status, 201 | 204)).then_some((change, status))
            })
        });
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(refused, None);
    });
}

#[test]
fn a_copy_has_the_holes_of_the_original() {
    let site = open_site(&[("sparse", b"begin"), ("hole", b"")]);
    for name in ["sparse", "hole"] {
        fs::File::options().write(true).open(site.path(name)).unwrap().set_len(32 << 20).unwrap();
    }
    let file = fs::File::options().write(true).open(site.path("sparse")).unwrap();
    file.write_all_at(b"middle", 16 << 20).unwrap();
    drop(file);
    let allocated = |name: &str| fs::metadata(site.path(name)).unwrap().blocks() * 512;
    if allocated("sparse") > 1 << 20 {
        return super::rig::skip("this file system has no holes");
    }
    let site = site.start();
    for name in ["sparse", "hole"] {
        let to = format!("Destination: /copy-{name}");
        statuses(&site, &[("COPY", &format!("/{name}"), &[&to], 201)]);
        let copy = site.path(&format!("copy-{name}"));
        assert!(fs::metadata(&copy).unwrap().blocks() * 512 <= 1 << 20, "{name}");
        assert!(fs::read(copy).unwrap() == fs::read(site.path(name)).unwrap(), "{name}");
    }
}

#[test]
fn the_copy_of_a_folder_alone_inherits_its_group() {
    let site = open_site(&[("src/x", b"x"), ("team/y", b"y")]).start();
    let group = Some(1234);
    std::os::unix::fs::chown(site.path("team"), None, group).unwrap();
    for (mode, wanted) in [(0o755, 0o2755), (0o700, 0o2700)] {
        fs::set_permissions(site.path("src"), fs::Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(site.path("team"), fs::Permissions::from_mode(0o2775)).unwrap();
        let to = format!("Destination: /team/{mode:o}");
        statuses(&site, &[("COPY", "/src", &["Depth: 0", &to], 201)]);
        let made = fs::metadata(site.path(&format!("team/{mode:o}"))).unwrap();
        assert_eq!((made.mode() & 0o7777, made.gid()), (wanted, 1234));
    }
}
