//! `get --update`: one file.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::mirror::origin::{Origin, Page};
use crate::mirror::peers::Peer;
use crate::rig::{Finished, Running, folder, has, names, noise, underpass};

const OLD: &str = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";

/// `get` in a folder.
fn get(here: &Path, args: &[&str]) -> Finished {
    let mut command = underpass();
    command.env("HOME", "/nonexistent").env_remove("http_proxy").env_remove("all_proxy");
    command.current_dir(here).arg("get").args(args);
    Running::start(command).finish()
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[test]
fn an_entity_tag_makes_one_request_without_a_body() {
    let (origin, here) = (Origin::start(), folder());
    let url = origin.url("/file");
    origin.set("/file", Page::new(b"one", &["ETag: \"1\"", OLD]));
    get(here.path(), &["--update", &url]).succeeded();
    assert_eq!(origin.log(), ["GET /file 200 3"]);
    let path = here.path().join("file");
    assert_eq!(modified(&path), UNIX_EPOCH + Duration::from_secs(784_111_777));
    let again = get(here.path(), &["-N", &url, "--json"]).succeeded();
    let log = origin.log();
    // A file system without attributes keeps no tags; size and time are compared then.
    assert!(log == ["GET /file 304 0"] || log == ["HEAD /file 200 0"], "{log:?}");
    let has_tags = log[0].starts_with("GET");
    let receipt = again.receipt();
    assert_eq!((&receipt["was_here"], &receipt["bytes"]), (&true.into(), &0.into()));
    let said = get(here.path(), &["-N", &url]).succeeded();
    assert_eq!(said.stderr, "file is here already\n");
    origin.log();
    // Another version replaces it, with its time, by one request.
    let new = "Last-Modified: Sun, 06 Nov 1994 08:49:38 GMT";
    origin.set("/file", Page::new(b"three", &["ETag: \"2\"", new]));
    let receipt = get(here.path(), &["-N", &url, "--json"]).succeeded().receipt();
    assert_eq!((&receipt["was_here"], &receipt["bytes"]), (&false.into(), &5.into()));
    assert_eq!(fs::read(&path).unwrap(), b"three");
    assert_eq!(modified(&path), UNIX_EPOCH + Duration::from_secs(784_111_778));
    assert_eq!(origin.log().last().unwrap(), "GET /file 200 5");
    // The time of another version may be the same, and be earlier.
    for (body, tag) in [(b"THREE", "ETag: \"3\""), (b"tHREE", "ETag: \"4\"")] {
        if has_tags {
            origin.set("/file", Page::new(body, &[tag, OLD]));
            get(here.path(), &["-N", &url]).succeeded();
            assert_eq!(fs::read(&path).unwrap(), body);
            assert_eq!(origin.log(), ["GET /file 200 5"]);
        }
    }
    // What was changed here is not the version that the tag names.
    fs::write(&path, "mine!").unwrap();
    get(here.path(), &["-N", &url]).succeeded();
    assert_ne!(fs::read(&path).unwrap(), b"mine!");
    assert_eq!(names(here.path()), ["file"]);
    get(here.path(), &["-N", &url, "-o", "-"]).failed(2, &["--update", "not"]);
    get(here.path(), &["-N", "-f", &url]).failed(2, &["--force"]);
}

#[test]
fn size_and_time_are_compared_where_there_is_no_tag() {
    let (origin, here) = (Origin::start(), folder());
    let url = origin.url("/file");
    let path = here.path().join("file");
    origin.set("/file", Page::new(b"one", &[OLD]));
    fs::write(&path, "two").unwrap();
    // It has the size, and not the time.
    get(here.path(), &["-N", &url]).succeeded();
    assert_eq!(fs::read(&path).unwrap(), b"one");
    assert_eq!(origin.log(), ["HEAD /file 200 0", "GET /file 200 3"]);
    get(here.path(), &["-N", &url]).succeeded();
    assert_eq!(origin.log(), ["HEAD /file 200 0"]);
    // A server that sends neither sends the file each time.
    origin.set("/file", Page::new(b"six", &[]));
    for _ in 0..2 {
        get(here.path(), &["-N", &url]).succeeded();
        assert_eq!(origin.log(), ["HEAD /file 200 0", "GET /file 200 3"]);
    }
    assert_eq!(fs::read(&path).unwrap(), b"six");
}

#[test]
fn the_old_file_stays_until_the_new_one_is_whole() {
    let (origin, here) = (Origin::start(), folder());
    let url = origin.url("/file");
    let path = here.path().join("file");
    let (old, new) = (noise(3 << 20), noise(5 << 20));
    let fields = |tag: &'static str| [tag, "Accept-Ranges: bytes"];
    origin.set("/file", Page::new(&old, &fields("ETag: \"1\"")));
    get(here.path(), &["-N", &url]).succeeded();
    let mut page = Page::new(&new, &fields("ETag: \"2\""));
    page.cut = Some(2 << 20);
    origin.set("/file", page.clone());
    get(here.path(), &["-N", &url, "--retries", "0"]).failed(1, &["file"]);
    assert!(fs::read(&path).unwrap() == old);
    // The server returns to the version that is here: nothing is left of the other one.
    origin.set("/file", Page::new(&old, &fields("ETag: \"1\"")));
    get(here.path(), &["-N", &url]).succeeded();
    assert!(fs::read(&path).unwrap() == old);
    assert_eq!(names(here.path()), ["file"]);
    page.cut = None;
    origin.set("/file", page);
    get(here.path(), &["-N", &url]).succeeded();
    assert!(fs::read(&path).unwrap() == new);
    // A file that is gone on the server stays here, which is reported.
    origin.set("/file", None);
    get(here.path(), &["-N", &url]).failed(1, &["404"]);
    assert!(fs::read(&path).unwrap() == new);
    assert_eq!(names(here.path()), ["file"]);
}

#[test]
fn a_file_without_the_digest_is_fetched_again() {
    let (origin, here) = (Origin::start(), folder());
    let url = origin.url("/file");
    origin.set("/file", Page::new(b"hello\n", &["ETag: \"1\"", OLD]));
    let right = "sha-256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
    get(here.path(), &["-N", &url, "--digest", right]).succeeded();
    origin.log();
    let again = get(here.path(), &["-N", &url, "--digest", right, "--json"]).succeeded().receipt();
    assert_eq!((&again["was_here"], &again["digest"]["matches"]), (&true.into(), &true.into()));
    assert_eq!(origin.take_exchanges()[0].sent, 0);
    // Damage that neither size nor time shows.
    let path = here.path().join("file");
    let time = modified(&path);
    let file = fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"jello", 0).unwrap();
    file.set_modified(time).unwrap();
    get(here.path(), &["-N", &url, "--digest", right]).succeeded();
    assert_eq!(fs::read(&path).unwrap(), b"hello\n");
}

#[test]
fn common_servers_send_nothing_twice() {
    let root = folder();
    fs::write(root.path().join("file"), noise(70_000)).unwrap();
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = fs::File::options().append(true).open(root.path().join("file")).unwrap();
    file.set_modified(time).unwrap();
    let peers = [
        Some(Peer::ours(root.path())),
        Peer::nginx(root.path(), "html"),
        Peer::python(root.path()),
        Peer::rclone(root.path()),
    ];
    for peer in peers.into_iter().flatten() {
        let (here, name) = (folder(), peer.name);
        let url = format!("{}file", peer.url);
        get(here.path(), &["-N", &url]).succeeded();
        assert_eq!(modified(&here.path().join("file")), time, "{name}");
        let again = get(here.path(), &["-N", &url, "--json"]).succeeded().receipt();
        assert_eq!((&again["was_here"], &again["bytes"]), (&true.into(), &0.into()), "{name}");
    }
}

#[test]
fn no_message_has_a_password() {
    let (origin, here) = (Origin::start(), folder());
    let url = origin.url("/file");
    for words in [
        &["--proxy", "socks5://me:SECRET@h", &url][..],
        &["--proxy", "http://me:SECRET@h:port", &url],
        &["http://me:SECRET@h:port/"],
        &["http://me:SEC RET@h o/"],
        &["--mirror", "ftp://me:SECRET@h/", &url],
        &["--bearer", "SECRET\n", &url],
        &["-H", "Authorization: Bearer SECRET\nX: y", &url],
    ] {
        let said = get(here.path(), words).failed(2, &["***"]).stderr;
        assert!(!said.contains("SEC"), "{said}");
    }
    for name in ["http_proxy", "all_proxy"] {
        let mut command = underpass();
        command.env_remove("http_proxy").env_remove("all_proxy").env_remove("no_proxy");
        command.env(name, "socks5h://me:SECRET@h").current_dir(here.path()).args(["get", &url]);
        let said = Running::start(command).finish().failed(2, &[name, "***@h"]).stderr;
        assert!(!said.contains("SECRET"), "{said}");
    }
}

#[test]
fn a_bucket_needs_a_recursive_download() {
    let here = folder();
    for url in ["s3://bucket", "s3://bucket/"] {
        get(here.path(), &[url]).failed(2, &["is a bucket", "-r"]);
    }
    assert!(names(here.path()).is_empty());
}

#[test]
fn the_receipt_of_a_failure_is_true() {
    let (origin, here) = (Origin::start(), folder());
    let url = origin.url("/file");
    let bytes = noise(3 << 20);
    let mut page = Page::new(&bytes, &["ETag: \"1\"", "Accept-Ranges: bytes"]);
    origin.set("/file", page.clone());
    let digest = format!("sha-256:{}", "0".repeat(64));
    let wrong = get(here.path(), &["--json", "--digest", &digest, &url]).failed(1, &[]).receipt();
    assert_eq!((&wrong["connections"], &wrong["digest"]["matches"]), (&1.into(), &false.into()));
    page.cut = Some(2 << 20);
    origin.set("/file", page);
    let cut = get(here.path(), &["--json", "--retries", "0", &url]).failed(1, &[]).receipt();
    assert_eq!((&cut["connections"], &cut["digest"]), (&1.into(), &serde_json::Value::Null));
}

#[test]
fn a_name_in_a_url_has_its_own_entry_in_a_netrc_file() {
    let (origin, here) = (Origin::start(), folder());
    origin.set("/file", Page::new(b"one", &[]));
    let host = origin.url("/").replace("http://", "");
    let host = host.split(':').next().unwrap();
    let text = format!("machine {host} login a password A machine {host} login c password C");
    fs::write(here.path().join("netrc"), text).unwrap();
    let url = origin.url("/file").replace("http://", "http://c@");
    let command = ["--netrc-file", "netrc", "-o", "-", &url];
    get(here.path(), &command).succeeded();
    // That is "c:C".
    assert!(origin.take_exchanges().iter().all(|it| it.request.head.contains("Basic YzpD")));
    let said = get(here.path(), &["--netrc-file", ".", &url]).failed(1, &["Is a directory"]).stderr;
    assert!(!said.contains("tar"), "{said}");
}

#[test]
fn each_url_that_fails_before_it_begins_has_a_receipt() {
    let (origin, here) = (Origin::start(), folder());
    origin.set("/one", Page::new(b"one", &[]));
    fs::write(here.path().join("SUMS"), format!("{}  other\n", "0".repeat(64))).unwrap();
    fs::write(here.path().join("taken"), "").unwrap();
    let urls = [origin.url("/one"), origin.url("/two")];
    for (args, words) in [
        (&["--netrc-file", "none"][..], "No such file"),
        (&["--check", "SUMS"], "has no digest of"),
        (&["--check", "none"], "No such file"),
        (&["--cacert", "none"], "No such file"),
        (&["-d", "taken/below"], "taken/below"),
        (&["-r", "--netrc-file", "none"], "No such file"),
        (&["--parallel", "2", "-d", "taken/below"], "taken/below"),
    ] {
        let args = [&["--json", &urls[0], &urls[1]], args].concat();
        let finished = get(here.path(), &args).failed(1, &[]);
        let text = String::from_utf8(finished.stdout).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut told: Vec<_> = lines.iter().map(|line| line["url"].as_str().unwrap()).collect();
        told.sort_unstable();
        assert_eq!(told, urls, "{args:?}");
        for line in &lines {
            assert!(line["error"].as_str().unwrap().contains(words), "{args:?}: {line}");
            assert_eq!(line["bytes"], 0);
            let is_of_folder = args.contains(&"-r");
            assert_eq!(line["files"].as_u64(), is_of_folder.then_some(0), "{args:?}: {line}");
        }
    }
    let wrong = get(here.path(), &["--json", "-o", "x", &urls[0], &urls[1]]).failed(2, &[]);
    assert!(wrong.stdout.is_empty());
}

/// Such as `--netrc-file <(pass show netrc)`.
#[test]
fn a_netrc_file_that_is_a_pipe_is_read_once_for_all() {
    let (origin, here) = (Origin::start(), folder());
    let mut urls = Vec::new();
    for name in ["/one", "/two", "/three"] {
        origin.set(name, Page::new(b"one", &[]));
        urls.push(origin.url(name));
    }
    let host = origin.url("/").replace("http://", "");
    let host = host.split(':').next().unwrap();
    fs::write(here.path().join("netrc"), format!("machine {host} login c password C")).unwrap();
    let script = r#"cat netrc | "$0" get --netrc-file /dev/stdin "$@""#;
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_underpass")]).args(&urls);
    command.env_remove("http_proxy").env_remove("all_proxy").current_dir(here.path());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(command).finish().succeeded();
    let exchanges = origin.take_exchanges();
    assert!(exchanges.len() >= 3);
    assert!(exchanges.iter().all(|it| it.request.head.contains("Basic YzpD")));
}

#[test]
fn a_shared_file_stays_shared() {
    let origin = Origin::start();
    origin.set("/file", Page::new(b"new", &[]));
    // In a folder of its own a user of another group reaches the program.
    let here = tempfile::tempdir().unwrap();
    let (program, team) = (here.path().join("underpass"), here.path().join("team"));
    fs::copy(env!("CARGO_BIN_EXE_underpass"), &program).unwrap();
    fs::create_dir(&team).unwrap();
    let path = team.join("file");
    // With the bit for new files to get the group of the folder, and without it.
    for folder_mode in [0o2775, 0o775] {
        for mode in [0o664, 0o640, 0o644] {
            fs::write(&path, "old").unwrap();
            let is_root = chown(&path, Some(2001), Some(3000)).is_ok();
            if !is_root || !has("setpriv") || chown(&team, Some(2002), Some(3000)).is_err() {
                return;
            }
            for (path, mode) in [(here.path(), 0o755), (&team, folder_mode), (&path, mode)] {
                fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            }
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "2002", "--regid", "2002", "--groups", "3000"]).arg(&program);
            command.args(["get", "-f", &origin.url("/file"), "-d"]).arg(&team);
            command.env("HOME", "/nonexistent").env_remove("http_proxy").env_remove("all_proxy");
            let said = command.output().unwrap();
            assert!(said.status.success(), "{said:?}");
            let found = fs::metadata(&path).unwrap();
            assert_eq!((found.mode() & 0o777, found.gid()), (mode, 3000), "{folder_mode:o}");
            fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn a_private_file_stays_private() {
    let (origin, here) = (Origin::start(), folder());
    let url = origin.url("/file");
    // Large ones are in a file of their own until they are complete.
    for (number, bytes) in [b"new".to_vec(), noise(2 << 20)].iter().enumerate() {
        for option in ["-N", "-f", "-ofile"] {
            let path = here.path().join("file");
            fs::write(&path, "older").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
            let tag = format!("ETag: \"{number}{option}\"");
            origin.set("/file", Page::new(bytes, &[&tag]));
            get(here.path(), &[option, &url]).succeeded();
            assert!(fs::read(&path).unwrap() == *bytes, "{option}");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        }
    }
}
