//! Folders from our own server, which are sent as one archive.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use underpass_testkit::mounts::{FileSystem, Mounted};
use underpass_testkit::{is_root, skip};

use crate::rig::{bytes_by, folder, has, names, noise_file};
use crate::tree::site::{address, contents, get, more_awkward, ours, same};

#[test]
fn a_folder_arrives_as_it_is() {
    let (source, target) = (folder(), folder());
    let tree = source.path().join("a tree");
    fs::create_dir(&tree).unwrap();
    more_awkward(&tree);
    noise_file(&tree, "large", 3_000_001);
    let server = ours(source.path(), &[]);
    let url = format!("{}a%20tree", address(&server));
    let got = get(&url, target.path(), &["--json"]).succeeded().receipt();
    assert_eq!(names(target.path()), ["a tree"], "something was left behind");
    same(&contents(&target.path().join("a tree")), &contents(&tree), "");
    assert_eq!((&got["way"], &got["left_out"]), (&"archive".into(), &0.into()));
    assert_eq!((&got["links"], &got["folders"]), (&4.into(), &4.into()));
    assert!(bytes_by(&got, "splice") >= 3_000_001, "{got}");
    // Small files are copied, large ones never.
    let copied = got["bytes"].as_u64().unwrap() - bytes_by(&got, "splice");
    assert_eq!(got["user_space_bytes"], 2 * copied);
}

#[test]
fn the_folder_that_a_server_begins_with_is_the_one_named() {
    let (source, target) = (folder(), folder());
    more_awkward(source.path());
    let server = ours(source.path(), &[]);
    let dir = target.path().join("new/er");
    get(&address(&server), &dir, &[]).succeeded();
    // Its own permissions and time are not in the archive.
    let (mut here, mut there) = (contents(&dir), contents(source.path()));
    assert!(here.remove(&b""[..]).is_some() && there.remove(&b""[..]).is_some());
    same(&here, &there, "");
}

#[test]
fn files_that_are_up_to_date_are_not_written_again() {
    let (source, target) = (folder(), folder());
    let tree = source.path().join("t");
    fs::create_dir(&tree).unwrap();
    more_awkward(&tree);
    noise_file(&tree, "large", 20_000_000);
    let server = ours(source.path(), &[]);
    let url = format!("{}t/", address(&server));
    let first = get(&url, target.path(), &["--json"]).succeeded().receipt();
    let again = get(&url, target.path(), &["--json"]).succeeded().receipt();
    assert_eq!((&again["files"], &again["bytes"]), (&0.into(), &0.into()));
    assert_eq!(again["here"], first["files"]);
    same(&contents(&target.path().join("t")), &contents(&tree), "");
    assert_eq!(names(target.path()), ["t"]);
}

#[test]
fn files_are_recognised_where_times_are_rounded() {
    let source = folder();
    for number in 0..3_u32 {
        let file = File::create(source.path().join(number.to_string())).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::new(1_600_000_001, 123_456_789 + number)).unwrap();
    }
    let server = ours(source.path(), &[]);
    for kind in [FileSystem::NoCase, FileSystem::WholeSeconds] {
        let Some(mounted) = Mounted::new(kind, 16) else { continue };
        let target = mounted.root().join("t");
        for here in [0, 3] {
            let got = get(&address(&server), &target, &["--json"]).succeeded().receipt();
            assert_eq!((&got["way"], &got["here"]), (&"archive".into(), &here.into()), "{kind:?}");
        }
    }
}

#[test]
fn entries_of_another_kind_must_be_removed_first() {
    let (source, target) = (folder(), folder());
    let tree = source.path().join("t");
    fs::create_dir_all(tree.join("folder")).unwrap();
    fs::write(tree.join("folder/in"), "in").unwrap();
    fs::write(tree.join("file"), "file").unwrap();
    let mine = target.path().join("t");
    fs::create_dir_all(mine.join("file")).unwrap();
    fs::write(mine.join("folder"), "mine").unwrap();
    let server = ours(source.path(), &[]);
    let url = format!("{}t/", address(&server));
    for options in [&["--force"][..], &["--update"], &[]] {
        let said = get(&url, target.path(), options).failed(1, &["lacks"]).stderr;
        for line in [
            "folder is left out: a file has the name of its folder: remove it",
            "file is left out: a folder of that name exists: remove it",
        ] {
            assert!(said.contains(line), "{options:?}: {said}");
        }
        assert_eq!(fs::read(mine.join("folder")).unwrap(), b"mine");
        assert!(mine.join("file").is_dir());
    }
}

#[test]
fn another_file_of_the_name_is_only_replaced_by_force() {
    let (source, target) = (folder(), folder());
    let tree = source.path().join("t");
    fs::create_dir(&tree).unwrap();
    for name in ["a", "b", "c"] {
        noise_file(&tree, name, 10);
    }
    noise_file(&tree, "large", 300_000);
    let server = ours(source.path(), &[]);
    let url = format!("{}t/", address(&server));
    let mine = target.path().join("t");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("b"), "mine").unwrap();
    fs::write(mine.join("large"), "mine too").unwrap();
    let refused = get(&url, target.path(), &[]).failed(1, &["lacks 2 files"]);
    assert!(refused.stderr.contains("b is left out: a different one exists"), "{}", refused.stderr);
    assert_eq!(fs::read(mine.join("b")).unwrap(), b"mine");
    assert_eq!(fs::read(mine.join("large")).unwrap(), b"mine too");
    assert_eq!(names(&mine), ["a", "b", "c", "large"]);
    get(&url, target.path(), &["--force"]).succeeded();
    same(&contents(&mine), &contents(&tree), "");
}

#[test]
fn links_out_of_the_folder_are_left_out() {
    let (source, target) = (folder(), folder());
    let tree = source.path().join("t");
    fs::create_dir_all(tree.join("inner")).unwrap();
    symlink("/etc/passwd", tree.join("absolute")).unwrap();
    symlink("../..", tree.join("inner/up")).unwrap();
    symlink("..", tree.join("inner/good")).unwrap();
    noise_file(&tree, "z", 10);
    let server = ours(source.path(), &[]);
    let finished = get(&format!("{}t/", address(&server)), target.path(), &[]);
    // The server leaves out those that lead out of what it serves.
    let finished = finished.failed(1, &["lacks one file, folder or link"]);
    assert!(finished.stderr.contains("points out of the folder"), "{}", finished.stderr);
    assert_eq!(names(&target.path().join("t")), ["inner", "z"]);
    assert_eq!(names(&target.path().join("t/inner")), ["good"]);
}

#[test]
fn nothing_is_written_through_an_existing_link() {
    let (source, target) = (folder(), folder());
    let tree = source.path().join("t");
    fs::create_dir_all(tree.join("inner")).unwrap();
    noise_file(&tree.join("inner"), "file", 10);
    noise_file(&tree.join("inner"), "large", 300_000);
    let server = ours(source.path(), &[]);
    let elsewhere = folder();
    fs::create_dir(target.path().join("t")).unwrap();
    symlink(elsewhere.path(), target.path().join("t/inner")).unwrap();
    let url = format!("{}t/", address(&server));
    let finished = get(&url, target.path(), &["--force"]).failed(1, &["lacks 3 files"]);
    assert!(finished.stderr.contains("a link has the name of its folder"), "{}", finished.stderr);
    assert_eq!(names(elsewhere.path()), [""; 0]);
}

#[test]
fn a_file_of_the_name_is_no_folder_to_fetch_into() {
    let (source, target) = (folder(), folder());
    fs::create_dir(source.path().join("t")).unwrap();
    let server = ours(source.path(), &[]);
    fs::write(target.path().join("t"), "mine").unwrap();
    let finished = get(&format!("{}t/", address(&server)), target.path(), &[]);
    finished.failed(1, &["opening", "Not a directory"]);
    assert_eq!(fs::read(target.path().join("t")).unwrap(), b"mine");
}

#[test]
fn without_archives_the_listing_of_our_server_does() {
    let (source, target) = (folder(), folder());
    let tree = source.path().join("t");
    fs::create_dir(&tree).unwrap();
    crate::tree::site::awkward(&tree);
    File::open(tree.join("plain"))
        .unwrap()
        .set_modified(UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789))
        .unwrap();
    let server = ours(source.path(), &["--no-archive"]);
    let url = format!("{}t/", address(&server));
    let got = get(&url, target.path(), &["--json"]).succeeded().receipt();
    assert_eq!(got["way"], "listing");
    let (mut here, mut there) = (contents(&target.path().join("t")), contents(&tree));
    assert!(here.remove(&b""[..]).is_some() && there.remove(&b""[..]).is_some());
    same(&here, &there, "");
    let again = get(&url, target.path(), &["--json"]).succeeded().receipt();
    assert_eq!((&again["files"], &again["here"]), (&0.into(), &got["files"]));
}

#[test]
fn options_for_single_files_are_refused_with_r() {
    for option in ["--sync", "--no-mtime", "--verify", "--digest-print"] {
        let finished = crate::rig::run(["get", "-r", option, "http://127.0.0.1:1/"]);
        finished.failed(2, &["cannot be used with"]);
    }
    let place = folder();
    let list = place.path().join("list");
    for option in [
        "out=x",
        "checksum=sha-256=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ] {
        fs::write(&list, format!("http://127.0.0.1:1/t/\n {option}\n")).unwrap();
        let finished = crate::rig::run(["get", "-r", "-i", list.to_str().unwrap()]);
        finished.failed(2, &["are for single files"]);
    }
}

#[test]
fn folders_that_are_not_writable_are_updated() {
    if !is_root() || !has("setpriv") {
        return skip("there is no root or setpriv");
    }
    let (source, place) = (folder(), folder());
    let tree = source.path().join("t");
    for name in ["d", "gone"] {
        fs::create_dir_all(tree.join(name)).unwrap();
        fs::write(tree.join(name).join("a"), "a").unwrap();
        fs::set_permissions(tree.join(name), Permissions::from_mode(0o555)).unwrap();
    }
    let server = ours(source.path(), &[]);
    let url = format!("{}t/", address(&server));
    let (program, target) = (place.path().join("underpass"), place.path().join("target"));
    fs::copy(env!("CARGO_BIN_EXE_underpass"), &program).unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(&target).unwrap();
    chown(&target, Some(2001), Some(2001)).unwrap();
    let get_as_user = |options: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "2001", "--regid", "2001", "--clear-groups"]).arg(&program);
        command.args(["get", "-r", &url, "-d"]).arg(&target).args(options);
        command.env("HOME", "/nonexistent").env_remove("http_proxy").env_remove("all_proxy");
        let said = command.output().unwrap();
        assert!(said.status.success(), "{said:?}");
    };
    get_as_user(&[]);
    fs::write(tree.join("d/b"), "b").unwrap();
    get_as_user(&[]);
    fs::write(tree.join("d/c"), "c").unwrap();
    fs::remove_file(tree.join("d/a")).unwrap();
    fs::remove_dir_all(tree.join("gone")).unwrap();
    get_as_user(&["--update", "--delete"]);
    assert_eq!(names(&target.join("t")), ["d"]);
    assert_eq!(names(&target.join("t/d")), ["b", "c"]);
    let mode = fs::metadata(target.join("t/d")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o555);
}
