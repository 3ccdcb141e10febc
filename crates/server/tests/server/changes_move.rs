//! MOVE: renamed beneath the root, whole, or not at all.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use underpass_testkit::Content;

use super::changes_delete::{open_site, statuses};
use super::rig::{FileSystem, Mounted, Site, age};

#[test]
fn a_file_moves_and_keeps_what_it_is() {
    let site = open_site(&[("a/file", b"x"), ("b/old", b"old")]);
    let site = site.with(|settings| settings.workers = 2).start();
    age(&site.path("a/file"), 3600);
    let before = fs::metadata(site.path("a/file")).unwrap();
    assert_eq!(site.get("/a/file").status, 200);
    let host = format!("Destination: http://localhost:80/b/{}", "100%25%20%23");
    statuses(
        &site,
        &[
            ("MOVE", "/a/file", &[&host], 201),
            ("GET", "/a/file", &[], 404),
            ("MOVE", "/b/100%25%20%23", &["Destination: /b/old", "Overwrite: F"], 412),
            ("MOVE", "/b/100%25%20%23", &["Destination: /b/old", "Overwrite: T"], 204),
            ("MOVE", "/b/old", &["Destination: /b/new", "Overwrite: F"], 201),
        ],
    );
    let after = fs::metadata(site.path("b/new")).unwrap();
    assert_eq!((before.ino(), before.mtime()), (after.ino(), after.mtime()));
    assert_eq!(site.get("/?simple").text(), "a/\nb/\n");
    assert_eq!(site.get("/b/?simple").text(), "new\n");
}

#[test]
fn a_folder_moves_and_no_worker_finds_its_files_where_they_were() {
    let site = open_site(&[("a/b/file", b"x")]).with(|settings| settings.workers = 3).start();
    age(&site.path("a/b/file"), 3600);
    let mut clients: Vec<_> = (0..12).map(|_| site.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/a/b/file").status, 200);
    }
    assert_eq!(site.ask("MOVE", "/a/", &["Destination: /c/"]).status, 201);
    for client in &mut clients {
        // The file itself has not changed: only its folder has another name.
        assert_eq!(client.get("/a/b/file").status, 404);
        assert_eq!(client.get("/c/b/file").text(), "x");
    }
}

#[test]
fn a_move_replaces_an_existing_entry_completely() {
    let files: &[(&str, &[u8])] = &[
        ("file", b"file"),
        ("folder/new", b"new"),
        ("full/old", b"old"),
        ("full/deep/old", b"old"),
        ("plain", b"plain"),
    ];
    let site = open_site(files).start();
    statuses(
        &site,
        &[
            ("MOVE", "/folder", &["Destination: /full", "Overwrite: F"], 412),
            ("MOVE", "/folder", &["Destination: /full"], 204), // a folder by a folder
            ("MOVE", "/full", &["Destination: /plain"], 204),  // a file by a folder
            // A folder by a file: only with `Overwrite: T`.
            ("MOVE", "/file", &["Destination: /plain"], 409),
            ("MOVE", "/file", &["Destination: /plain/", "Overwrite: F"], 409),
            ("MOVE", "/file", &["Destination: /plain", "Overwrite: T"], 204),
        ],
    );
    assert_eq!(fs::read(site.path("plain")).unwrap(), b"file");
    let left: Vec<_> = fs::read_dir(site.path("")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn a_file_replaces_a_folder_only_where_the_folder_could_be_deleted() {
    let files: &[(&str, &[u8])] = &[
        ("file", b"file"),
        ("dir/deep/a", b"a"),
        ("hidden/b", b"b"),
        ("holds/secret", b"c"),
        ("kept/d", b"d"),
        ("rights/kept/e", b"e"),
    ];
    for (may_delete, verb) in [(true, "MOVE"), (true, "COPY"), (false, "COPY")] {
        let site = open_site(files).auth(&["me:pw@/:rw,/rights/kept", "@/"]);
        symlink("kept", site.path("alias")).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, site.path("fifo"), FileType::Fifo, mode, 0).unwrap();
        let site = site.with_site(move |site| {
            site.hide = vec!["hidden/".into(), "secret".into()];
            site.changes.delete = may_delete;
        });
        let site = site.start();
        let before = tree(&site.path(""));
        let (me, yes) = ("Authorization: Basic bWU6cHc=", "Overwrite: T");
        let row = |to: &str, fields: &[&str], expected: u16| {
            let to = format!("Destination: {to}");
            let fields = [&[me, &to], fields].concat();
            statuses(&site, &[(verb, "/file", &fields, expected)]);
        };
        row("/dir/", &[], 409);
        row("/dir", &[], 409);
        row("/dir/", &["Overwrite: F"], 409);
        row("/dir", &["Overwrite: F"], 412);
        row("/new/", &[yes], 409);
        row("/alias/", &[yes], 409); // a link, and no folder
        row("/fifo", &[yes], 409);
        row("/fifo", &[], 409);
        row("/hidden/", &[yes], 403);
        row("/holds/", &[yes], 403);
        row("/rights/", &[yes], 403);
        row("/rights/kept/", &[yes], 403);
        if !may_delete {
            row("/dir/", &[yes], 403);
        }
        // An entry of the folder itself, by another path.
        let to = ["Destination: /kept/", yes, me];
        statuses(&site, &[(verb, "/kept/d", &to, 403), (verb, "/alias/d", &to, 403)]);
        assert_eq!(tree(&site.path("")), before);
        if may_delete {
            row("/dir/", &[yes], 204);
            assert_eq!(fs::read(site.path("dir")).unwrap(), b"file");
            assert_eq!(site.path("file").exists(), verb == "COPY");
        }
        let left = fs::read_dir(site.path("")).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.filter(|name| name.as_encoded_bytes().starts_with(b".")).count(), 0);
    }
}

#[test]
fn invalid_destinations_are_refused_and_nothing_is_changed() {
    let site = open_site(&[("a/b/file", b"x"), ("file", b"y"), ("c/file", b"z")]);
    symlink("a", site.path("alias")).unwrap();
    let prefixed = site.with_site(|site| site.path_prefix = "/files".to_owned()).start();
    let before = tree(&prefixed.path(""));
    let to = |path: &str| format!("Destination: {path}");
    let rows = [
        ("/files/a", to("/files/a"), 403),
        ("/files/a", to("/files/a/b/c"), 403),
        ("/files/a", to("/files/alias/b/c"), 403),
        ("/files/a/b", to("/files/a"), 403),
        ("/files/a", to("/files"), 403),
        ("/files/", to("/files/x"), 403),
        ("/files/file", to("/files/alias/../file"), 403),
        ("/files/file", to("/files/missing/x"), 409),
        ("/files/file", to("/files/c/file/x"), 409),
        ("/files/file", to("/files/new/"), 409),
        ("/files/file", to("/files/.hidden"), 403),
        ("/files/file", to("/files/.underpass/x"), 403),
        ("/files/file", to("/other/x"), 502),
        ("/files/file", to("http://example.org/files/x"), 502),
        ("/files/file", to("http://localhost.example.org/files/x"), 502),
        ("/files/file", to("files/x"), 400),
        ("/files/file", to("/files/a%2Fb"), 400),
        ("/files/file", to("/files/100%"), 400),
        ("/files/file", to("/files/../../x"), 400),
        ("/files/file", to(&format!("/files/{}", "n".repeat(300))), 400),
        ("/files/file", "Overwrite: T".to_owned(), 400),
        ("/files/file", to("/files/x") + "\r\nDestination: /files/y", 400),
        ("/files/file", to("/files/x") + "\r\nOverwrite: maybe", 400),
        ("/files/a", to("/files/x") + "\r\nDepth: 0", 400),
        ("/files/a", to("/files/x") + "\r\nDepth: 1", 400),
        ("/files/missing", to("/files/x"), 404),
        ("/files/file/", to("/files/x"), 404),
    ];
    for (path, field, expected) in &rows {
        statuses(&prefixed, &[("MOVE", path, &[field], *expected)]);
    }
    assert_eq!(tree(&prefixed.path("")), before);
    statuses(&prefixed, &[("MOVE", "/files/file", &["Destination: /files/x"], 201)]);
}

#[test]
fn a_link_to_a_folder_moves_under_the_name_that_listings_show() {
    let site = open_site(&[("folder/file", b"x"), ("other/old", b"old")]).start();
    symlink("folder", site.path("link")).unwrap();
    statuses(
        &site,
        &[
            ("MOVE", "/link/", &["Destination: /new/", "Overwrite: F"], 201),
            ("MOVE", "/new/", &["Destination: /other/", "Overwrite: F"], 412),
            ("MOVE", "/new/", &["Destination: /other/"], 409),
            // Without the slash, it is not requested as a folder.
            ("MOVE", "/new", &["Destination: /link/", "Overwrite: F"], 409),
            ("MOVE", "/new/", &["Destination: /other/inner/", "Overwrite: F"], 201),
        ],
    );
    assert_eq!(fs::read_link(site.path("other/inner")).unwrap(), Path::new("folder"));
    assert_eq!(site.get("/?simple").text(), "folder/\nother/\n");
}

#[test]
fn hidden_entries_move_along_only_if_they_stay_hidden() {
    let site = open_site(&[("a/.dot", b"x"), ("a/secret/file", b"x"), ("b/file", b"x")]);
    let site = site.with_site(|site| site.hide = vec!["a/secret".into()]).start();
    statuses(&site, &[("MOVE", "/a", &["Destination: /c"], 403)]);
    fs::remove_dir_all(site.path("a/secret")).unwrap();
    statuses(
        &site,
        &[
            ("MOVE", "/b", &["Destination: /a"], 403), // it would remove .dot
            ("MOVE", "/a", &["Destination: /c"], 201),
        ],
    );
    assert!(site.path("c/.dot").exists() && site.path("b/file").exists());
}

#[test]
fn between_file_systems_all_of_it_is_copied_before_it_is_removed() {
    let Some(mounted) = Mounted::new(FileSystem::Tmpfs, 8) else { return };
    // The mount point has a name in the folder that is served.
    let folder = mounted.root().parent().unwrap().to_owned();
    fs::create_dir_all(folder.join("from/deep")).unwrap();
    fs::write(folder.join("from/deep/.hidden"), "hidden").unwrap();
    fs::write(folder.join("from/file"), vec![7; 100_000]).unwrap();
    symlink("file", folder.join("from/link")).unwrap();
    fs::write(folder.join("single"), "single").unwrap();
    fs::write(folder.join("large"), vec![1; 9 << 20]).unwrap();
    fs::set_permissions(folder.join("single"), fs::Permissions::from_mode(0o640)).unwrap();
    age(&folder.join("single"), 3600);
    let before = fs::metadata(folder.join("single")).unwrap();
    let site = Site::new().with_site(|site| {
        site.root = Some(folder.clone());
        site.changes.upload = true;
        site.changes.delete = true;
    });
    let site = site.start();
    statuses(
        &site,
        &[
            ("MOVE", "/large", &["Destination: /root/large"], 507),
            ("MOVE", "/single", &["Destination: /root/single"], 201),
            ("MOVE", "/from", &["Destination: /root/to"], 201),
            ("MKCOL", "/around", &[], 201),
            ("DELETE", "/root", &[], 409), // before anything in it is removed
            ("DELETE", "/around", &[], 204),
        ],
    );
    drop(site);
    let mut left: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["large", "root"]);
    let to = mounted.root();
    let after = fs::metadata(to.join("single")).unwrap();
    assert_eq!((after.mode(), after.mtime()), (before.mode(), before.mtime()));
    assert_eq!(fs::read(to.join("to/file")).unwrap(), vec![7; 100_000]);
    assert_eq!(fs::read_link(to.join("to/link")).unwrap().to_str(), Some("file"));
    assert_eq!(fs::read(to.join("to/deep/.hidden")).unwrap(), b"hidden");
    assert_eq!(fs::read_dir(&to).unwrap().count(), 2);
}

/// Every path in a folder, with what it leads to.
fn tree(folder: &Path) -> Vec<(PathBuf, Content)> {
    let entries = underpass_testkit::tree(folder).into_iter();
    entries.map(|(path, entry)| (path, entry.content)).collect()
}

#[test]
fn a_link_is_not_moved_over_its_own_target() {
    let site = open_site(&[("file", b"data"), ("folder/inside", b"data"), ("other", b"other")]);
    for (name, leads) in [("link", "file"), ("chain", "link"), ("to", "folder")] {
        symlink(leads, site.path(name)).unwrap();
    }
    let site = site.start();
    statuses(
        &site,
        &[
            ("MOVE", "/link", &["Destination: /file"], 403),
            ("MOVE", "/chain", &["Destination: /file"], 403),
            ("MOVE", "/to", &["Destination: /folder", "Overwrite: T"], 403),
            ("MOVE", "/link", &["Destination: /other"], 204),
        ],
    );
    assert_eq!(fs::read(site.path("file")).unwrap(), b"data");
    assert_eq!(fs::read(site.path("folder/inside")).unwrap(), b"data");
    assert_eq!(fs::read(site.path("other")).unwrap(), b"data");
}
