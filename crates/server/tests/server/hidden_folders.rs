//! Patterns that end in a slash hide folders, but not files.

use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::symlink;

use rustix::fs::inotify;

use super::dav::send;
use super::rig::{FileSystem, Mounted, Running, Site, request};
use underpass_server::Changes;

fn site() -> Running {
    let site = Site::of(&[
        ("x", b"a file"),
        ("in/x/kept", b"in a hidden folder"),
        ("in/y", b"shown"),
        ("build/out/kept", b"in a hidden folder"),
        ("deep/build/out/shown", b"shown"),
        ("files/x", b"a file"),
        ("files/build", b"a file"),
    ]);
    symlink("../in", site.path("files/dir.d")).unwrap();
    symlink("../x", site.path("files/file.d")).unwrap();
    let changes = Changes { upload: true, delete: true, ..Changes::default() };
    site.with_site(|site| {
        site.changes = changes;
        site.hide = ["x/", "/build/out/", "*.d/"].map(str::to_owned).to_vec();
    })
    .start()
}

fn ask(site: &Running, verb: &str, path: &str, fields: &[&str]) -> u16 {
    let mut client = site.connect();
    client.send(request(verb, path, &[&["Content-Length: 0"], fields].concat()));
    client.reply().status
}

#[test]
fn a_pattern_that_ends_in_a_slash_hides_folders_only() {
    let site = site();
    for (path, status) in [
        ("/x", 200),
        ("/files/x", 200),
        ("/files/build", 200),
        ("/files/file.d", 200),
        ("/in/x", 404),
        ("/in/x/", 404),
        ("/in/x/kept", 404),
        ("/in/x/?archive=tar", 404),
        ("/build/out/", 404),
        ("/build/out/kept", 404),
        ("/deep/build/out/shown", 200),
        ("/files/dir.d/", 404),
        ("/files/dir.d/y", 404),
    ] {
        assert_eq!(site.get(path).status, status, "{path}");
    }
    let names = |path: &str| site.get(path).text();
    assert_eq!(names("/in/?simple"), "y\n");
    assert_eq!(names("/in/?simple&q=x"), "");
    assert_eq!(names("/?simple&q=x"), "x\n");
    assert_eq!(names("/build/?simple"), "");
    assert_eq!(names("/files/?simple"), "build\nfile.d\nx\n");
    let tar = site.get("/?archive=tar").text();
    for (name, is_there) in
        [("in/y", true), ("in/x", false), ("kept", false), ("files/x", true), ("dir.d", false)]
    {
        assert_eq!(tar.contains(name), is_there, "{name}");
    }
}

#[test]
fn patterns_of_folders_protect_folders_but_not_files() {
    let site = site();
    assert_eq!(ask(&site, "PUT", "/in/x/new", &[]), 403);
    assert_eq!(ask(&site, "PUT", "/in/x", &[]), 403);
    let lock = "<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope>\
                <locktype><write/></locktype></lockinfo>";
    assert_eq!(send(&site, "LOCK", "/in/x", &[], lock).status, 403);
    assert_eq!(send(&site, "LOCK", "/y/x", &[], lock).status, 409);
    assert_eq!(send(&site, "LOCK", "/locked", &[], lock).status, 201);
    assert_eq!(ask(&site, "PUT", "/build/x", &[]), 201, "a file");
    assert_eq!(ask(&site, "MKCOL", "/deep/x", &[]), 403, "a folder");
    assert_eq!(ask(&site, "DELETE", "/in", &[]), 403, "a hidden folder is in it");
    assert_eq!(ask(&site, "DELETE", "/in/x", &[]), 403);
    assert_eq!(ask(&site, "MOVE", "/deep", &["Destination: /x.d"]), 403);
    assert_eq!(ask(&site, "MOVE", "/in", &["Destination: /moved"]), 201, "hidden there as well");
    assert_eq!(ask(&site, "COPY", "/moved", &["Destination: /copy"]), 201);
    assert!(site.path("copy/y").exists() && !site.path("copy/x").exists());
    assert_eq!(fs::read(site.path("moved/x/kept")).unwrap(), b"in a hidden folder");
    assert_eq!(ask(&site, "DELETE", "/files/x", &[]), 204);
    assert_eq!(ask(&site, "COPY", "/files", &["Destination: /x"]), 403);
}

#[test]
fn a_name_can_be_spelled_differently_where_the_file_system_ignores_its_case() {
    let Some(mounted) = Mounted::new(FileSystem::NoCase, 16) else { return };
    fs::create_dir_all(mounted.root().join("folder/inner")).unwrap();
    fs::write(mounted.root().join("folder/file"), "text").unwrap();
    let root = mounted.root();
    let site = Site::new().with_site(|site| {
        site.root = Some(root);
        site.changes = Changes { upload: true, delete: true, ..Changes::default() };
        site.hide = vec!["Secret".to_owned()];
    });
    let site = site.start();
    // This file system lists all names in lower case, but reports their spelling at creation.
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, mounted.root().join("folder"), inotify::WatchFlags::MOVED_TO)
        .unwrap();
    for (path, to) in [("/folder/file", "/folder/FILE"), ("/FOLDER", "/Folder")] {
        let fields = [&*format!("Destination: {to}"), "Overwrite: F"];
        assert_eq!(ask(&site, "MOVE", path, &fields), 201, "{path}");
        // A copy would replace itself.
        assert_eq!(ask(&site, "COPY", path, &[fields[0]]), 403, "{path}");
    }
    let mut buffer = [MaybeUninit::uninit(); 512];
    let mut moved = inotify::Reader::new(&watch, &mut buffer);
    while moved.next().unwrap().file_name() != Some(c"FILE") {}
    assert_eq!(ask(&site, "MOVE", "/folder/file", &["Destination: /folder/FILE/"]), 409);
    assert_eq!(ask(&site, "MOVE", "/folder/file", &["Destination: /folder/file"]), 403);
    assert_eq!(site.get("/folder/file").text(), "text");
    assert_eq!(underpass_testkit::names(&mounted.root()), ["folder"]);
    assert_eq!(underpass_testkit::names(&mounted.root().join("folder")), ["file", "inner"]);
    drop(site);
}

#[test]
fn a_mount_below_the_root_that_ignores_case_hides_in_any_case() {
    let Some(mounted) = Mounted::new(FileSystem::NoCase, 16) else { return };
    let folder = mounted.root().parent().unwrap().to_owned();
    for path in ["root/private/file", "root/secret.txt", "root/shown", "README", "linked/x"] {
        fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
        fs::write(folder.join(path), path).unwrap();
    }
    symlink("root", folder.join("link")).unwrap();
    symlink("../root/secret.txt", folder.join("linked/file")).unwrap();
    let site = Site::new().with_site(|site| {
        site.root = Some(folder.clone());
        site.changes = Changes { upload: true, delete: true, ..Changes::default() };
        site.hide = ["Secret.txt", "PRIVATE/", "/root/P*/**", "readme"].map(str::to_owned).to_vec();
    });
    let site = site.start();
    for path in ["secret.txt", "SECRET.TXT", "private/", "Private/file", "PRIVATE/?archive=tar"] {
        assert_eq!(site.get(&format!("/root/{path}")).status, 404, "{path}");
        assert_eq!(site.get(&format!("/link/{path}")).status, 404, "{path}");
    }
    for path in ["/linked/file", "/root/?archive=tar&entry=SECRET.TXT"] {
        assert_eq!(site.get(path).status, 404, "{path}");
    }
    let names = |path: &str| site.get(path).text();
    assert_eq!(names("/root/?simple"), "shown\n");
    assert_eq!(ask(&site, "PUT", "/root/SECRET.txt", &[]), 403);
    assert_eq!(ask(&site, "DELETE", "/root/private/", &[]), 403);
    // The root itself is case-sensitive.
    assert_eq!(site.get("/README").text(), "README");
}
