//! File systems that answer as those on networks and of other programs do: errors that come late, sizes
//! that are not known in advance.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use underpass_testkit::http::Client;
use underpass_testkit::{folder, names, noise, noise_file, wait_until};

use crate::rig::fuse::Fuse;
use crate::rig::{Finished, Running, receiver, sender, underpass};

fn run(here: &Path, words: &[&str]) -> Finished {
    let mut command = underpass();
    command.args(words).current_dir(here);
    Running::start(command).finish()
}

/// A server of this folder, and its address.
fn server(folder: &Path, options: &[&str]) -> (Running, String) {
    let server = crate::rig::serve(folder, &[&["-q"], options].concat());
    let url = server.address.clone();
    (server, url)
}

#[test]
fn a_file_that_is_refused_at_the_close_gets_no_name() {
    let Some(fuse) = Fuse::new() else { return };
    let (root, here) = (fuse.root(), folder());
    let source = noise_file(here.path(), "a", 300_000);
    fs::create_dir(here.path().join("tree")).unwrap();
    noise_file(&here.path().join("tree"), "small", 1000);
    let (serving, url) = server(here.path(), &[]);
    fuse.fail(r#"{"flush": "EDQUOT"}"#);
    let to = |name: &str| root.join(name).to_str().unwrap().to_owned();
    let file = format!("{url}a");
    for words in [
        &["cp", "a", &to("cp")][..],
        &["cp", "tree/small", &to("small")],
        &["cp", "--sync", "a", &to("synced")],
        &["cp", "-r", "tree", &to("copy")],
        &["cp", "/dev/stdin", &to("stream")],
        &["get", &file, "-o", &to("get")],
        &["get", "--sync", &file, "-o", &to("synced")],
        &["get", "-r", &format!("{url}tree/"), "-d", &to("")],
    ] {
        let finished = run(here.path(), words);
        assert_eq!(finished.code(), Some(1), "{words:?}: {}", finished.stderr);
        assert!(finished.stderr.contains("quota"), "{words:?}: {}", finished.stderr);
    }
    let receiving = receiver(&[], &root.join("received"));
    sender(&[], &source, &receiving.address).finish();
    let received = receiving.finish();
    assert_eq!(received.code(), Some(1), "{}", received.stderr);
    let (storing, storage) = server(&root, &["--allow-upload"]);
    let stored = run(here.path(), &["put", "--retries", "0", "a", &storage]);
    assert_eq!(stored.code(), Some(1), "{}", stored.stderr);
    let left = names(&fuse.store());
    let folders = ["copy", "tree"];
    assert!(
        left.iter().all(|name| name.contains(".part") || folders.contains(&name.as_str())),
        "{left:?}"
    );
    for folder in folders {
        let left = names(&fuse.store().join(folder));
        assert!(left.iter().all(|name| name.starts_with(".underpass-get.")), "{folder}: {left:?}");
    }
    crate::rig::end(serving);
    crate::rig::end(storing);
}

#[test]
fn a_folder_with_a_quota_of_its_own_does_not_end_the_copy() {
    let Some(fuse) = Fuse::new() else { return };
    let here = folder();
    let made: Vec<String> = (0..40).map(|number| format!("f{number}")).collect();
    for name in made.iter().map(String::as_str).chain(["q"]) {
        fs::create_dir_all(here.path().join("s").join(name)).unwrap();
        fs::write(here.path().join("s").join(name).join("file"), "text").unwrap();
    }
    let is_there = |name: &String| fuse.store().join(name).join("file").exists();
    for (below, whole) in [("/q/", 40), ("/", 0)] {
        for name in names(&fuse.store()) {
            fs::remove_dir_all(fuse.store().join(name)).unwrap();
        }
        fuse.fail(&format!(r#"{{"create": "EDQUOT", "below": "{below}"}}"#));
        let root = fuse.root();
        let finished = run(here.path(), &["cp", "-r", "-j1", "s/.", root.to_str().unwrap()]);
        assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
        // A problem that all files have is reported once.
        let lines = finished.stderr.lines().filter(|line| line.contains("quota"));
        assert_eq!(lines.count(), 1, "{}", finished.stderr);
        assert_eq!(made.iter().filter(|name| is_there(name)).count(), whole, "{below}");
    }
}

#[test]
fn failed_syncs_are_reported() {
    let Some(fuse) = Fuse::new() else { return };
    let here = folder();
    fs::create_dir(here.path().join("tree")).unwrap();
    noise_file(&here.path().join("tree"), "a", 1000);
    for (call, name) in [("fsync", "one"), ("fsyncdir", "two")] {
        fuse.fail(&format!(r#"{{"{call}": "EIO"}}"#));
        let target = fuse.root().join(name);
        let finished = run(here.path(), &["cp", "-r", "--sync", "tree", target.to_str().unwrap()]);
        assert_eq!(finished.code(), Some(1), "{call}: {}", finished.stderr);
        assert!(finished.stderr.contains("writing to the disk of"), "{}", finished.stderr);
    }
}

/// The kernel reports bytes that it could not write only once: a second fsync(2) succeeds.
#[test]
fn an_upload_that_could_not_be_synced_is_not_resumed() {
    let Some(fuse) = Fuse::new() else { return };
    let (root, here) = (fuse.root(), folder());
    noise_file(here.path(), "a", 3 << 20);
    let (storing, storage) = server(&root, &["--allow-upload"]);
    fuse.fail(r#"{"fsync": "EIO"}"#);
    let stored = run(here.path(), &["put", "--retries", "0", "a", &storage]);
    assert_eq!(stored.code(), Some(1), "{}", stored.stderr);
    assert_eq!(names(&fuse.store()), [""; 0]);
    let answer = Command::new("curl")
        .args(["-sS", "--noproxy", "*", "-o", "/dev/null", "-w", "%{http_code}", "-T", "a"])
        .args(["-H", "Content-Range: bytes 0-3145727/4000000", &storage])
        .current_dir(here.path())
        .output()
        .unwrap();
    assert_eq!(answer.stdout, b"500");
    assert_eq!(names(&fuse.store()), [""; 0]);
    for resumable in [&[][..], &["--no-resume"]] {
        let mut command = underpass();
        command.args(["put", "--rate", "2M", "a", &storage]).args(resumable);
        command.current_dir(here.path());
        let mut put = Running::start(command);
        let has_arrived = |name: &String| {
            let found = fs::metadata(fuse.store().join(name));
            found.is_ok_and(|found| found.len() > 3 << 19)
        };
        wait_until("half of it is there", || names(&fuse.store()).iter().any(has_arrived));
        put.child.kill().unwrap();
        wait_until("nothing is kept", || names(&fuse.store()).is_empty());
    }
    fuse.fail("{}");
    let stored = run(here.path(), &["put", "a", &storage]);
    assert_eq!(stored.code(), Some(0), "{}", stored.stderr);
    assert!(fs::read(root.join("a")).unwrap() == fs::read(here.path().join("a")).unwrap());
    crate::rig::end(storing);
}

#[test]
fn a_folder_is_fetched_where_permissions_and_times_are_refused() {
    let Some(fuse) = Fuse::new() else { return };
    let here = folder();
    fs::create_dir(here.path().join("tree")).unwrap();
    noise_file(&here.path().join("tree"), "small", 1000);
    let large = noise_file(&here.path().join("tree"), "large", 3_000_000);
    let (serving, url) = server(here.path(), &[]);
    for (call, update) in [("chmod", None), ("utimens", None), ("utimens", Some("--update"))] {
        fuse.fail(&format!(r#"{{"{call}": "EPERM"}}"#));
        let target = fuse.root().join(format!("{call}{}", update.unwrap_or_default()));
        let mut words = vec!["get", "-r", &url, "-d", target.to_str().unwrap()];
        words.extend(update);
        let finished = run(here.path(), &words).failed(1, &["permissions or times"]);
        assert_eq!(finished.stderr.matches("permitted").count(), 1, "{}", finished.stderr);
        let bytes = |path: &Path| fs::read(path).unwrap();
        assert!(bytes(&target.join("tree/large")) == bytes(&large), "{call}");
        assert_eq!(bytes(&target.join("tree/small")).len(), 1000);
    }
    crate::rig::end(serving);
}

#[test]
fn an_upload_that_the_server_could_not_sync_is_no_success() {
    let Some(fuse) = Fuse::new() else { return };
    let here = folder();
    noise_file(here.path(), "a", 3_000_000);
    let (storing, storage) = server(&fuse.root(), &["--allow-upload"]);
    fuse.fail(r#"{"fsyncdir": "EIO"}"#);
    let sent = run(here.path(), &["put", "a", &storage]);
    assert_eq!(sent.code(), Some(1), "{}", sent.stderr);
    assert!(sent.stderr.contains("may not survive a power cut"), "{}", sent.stderr);
    // The next one sends it again.
    fuse.fail("{}");
    let sent = run(here.path(), &["put", "--json", "a", &storage]);
    assert_eq!(sent.succeeded().receipt()["bytes"], 3_000_000);
    crate::rig::end(storing);
}

#[test]
fn a_file_whose_size_is_not_known_is_read_to_its_end() {
    let Some(fuse) = Fuse::new() else { return };
    let (root, here) = (fuse.root(), folder());
    let whole = noise(3_000_000);
    fs::write(fuse.store().join("a"), &whole).unwrap();
    fuse.fail(r#"{"size": 0}"#);
    let source = root.join("a");
    let from = source.to_str().unwrap();
    for (words, name) in [
        (&["cp", from, "plain"][..], "plain"),
        (&["cp", "-a", from, "kept"], "kept"),
        (&["cp", "-r", root.to_str().unwrap(), "tree"], "tree/a"),
        (&["cp", "--sparse=always", from, "sparse"], "sparse"),
    ] {
        let finished = run(here.path(), words);
        assert_eq!(finished.code(), Some(0), "{words:?}: {}", finished.stderr);
        assert!(fs::read(here.path().join(name)).unwrap() == whole, "{words:?}");
    }
    assert!(run(here.path(), &["cp", from, "-"]).stdout == whole);
    let receiving = receiver(&[], &here.path().join("received"));
    assert_eq!(sender(&[], &source, &receiving.address).finish().code(), Some(0));
    assert_eq!(receiving.finish().code(), Some(0));
    assert!(fs::read(here.path().join("received")).unwrap() == whole);
    let (storing, storage) = server(here.path(), &["--allow-upload"]);
    assert_eq!(run(here.path(), &["put", from, &storage]).code(), Some(0));
    assert!(fs::read(here.path().join("a")).unwrap() == whole);
    crate::rig::end(storing);
}

/// The library answers `EROFS` for hard links.
#[test]
fn new_files_are_made_where_there_are_neither_links_nor_long_names() {
    let Some(fuse) = Fuse::new() else { return };
    let (root, here) = (fuse.root(), folder());
    let whole = noise(300_000);
    // The name of a backup has one more.
    let long = |first: &str| first.repeat(142);
    let [a, b] = ["a", "b"].map(long);
    fs::write(here.path().join(&a), &whole).unwrap();
    fs::create_dir_all(here.path().join("tree").join(&b)).unwrap();
    fs::write(here.path().join("tree").join(&b).join(&b), &whole).unwrap();
    fs::write(here.path().join("tree").join(&a), &whole).unwrap();
    fs::hard_link(here.path().join("tree").join(&a), here.path().join("tree/name")).unwrap();
    fuse.fail(r#"{"names": 143}"#);
    let to = root.to_str().unwrap();
    let tree = ["cp", "-r", "--preserve=links", "-T", "tree", to];
    for words in [&["cp", &a, to][..], &tree, &[&tree[..], &["-b"]].concat()] {
        let finished = run(here.path(), words);
        assert_eq!(finished.code(), Some(0), "{words:?}: {}", finished.stderr);
    }
    for name in [&a, "name", &format!("{b}/{b}")] {
        assert!(fs::read(root.join(name)).unwrap() == whole, "{name}");
    }
    let (name, received) = (long("c"), root.join(long("d")));
    let (serving, url) = server(here.path(), &[]);
    let target = root.join(&name);
    let words = ["get", &format!("{url}{a}"), "-o", target.to_str().unwrap()];
    let finished = run(here.path(), &words);
    assert_eq!(finished.code(), Some(0), "{}", finished.stderr);
    let receiving = receiver(&[], &received);
    let source = here.path().join(&a);
    assert_eq!(sender(&[], &source, &receiving.address).finish().code(), Some(0));
    assert_eq!(receiving.finish().code(), Some(0));
    assert!([target, received].iter().all(|target| fs::read(target).unwrap() == whole));
    crate::rig::end(serving);
    let (storing, storage) = server(&root, &["--allow-upload"]);
    let put = format!("{storage}{}", long("e"));
    let finished = run(here.path(), &["put", &a, &put]);
    assert_eq!(finished.code(), Some(0), "{}", finished.stderr);
    crate::rig::end(storing);
}

/// Mounts of rclone, and of other programs in front of object stores, are like this.
#[test]
fn trees_are_made_where_hard_links_fail_and_folders_cannot_be_renamed() {
    let Some(fuse) = Fuse::new() else { return };
    let (root, here) = (fuse.root(), folder());
    fs::create_dir_all(here.path().join("tree/inner/empty")).unwrap();
    noise_file(&here.path().join("tree"), "a", 100_000);
    noise_file(&here.path().join("tree/inner"), "b", 100_000);
    fs::hard_link(here.path().join("tree/a"), here.path().join("tree/inner/name")).unwrap();
    fuse.fail(r#"{"link": "EIO", "fixed": true}"#);
    let to = |name: &str| root.join(name).to_str().unwrap().to_owned();
    for words in [
        &["cp", "tree/a", &to("file")][..],
        &["cp", "-n", "tree/a", &to("other")],
        &["cp", "-r", "tree", &to("new")],
        &["cp", "-r", "tree", &to("new")],
        &["cp", "-r", "--preserve=links", "tree", &to("kept")],
        &["cp", "-r", "--resume", "tree", &to("resumed")],
        &["cp", "-r", "--resume", "tree", &to("resumed")],
    ] {
        let finished = run(here.path(), words);
        assert_eq!(finished.code(), Some(0), "{words:?}: {}", finished.stderr);
    }
    let (serving, url) = server(&here.path().join("tree"), &[]);
    let finished = run(here.path(), &["get", "-r", &url, "-d", &to("got")]);
    assert_eq!(finished.code(), Some(0), "{}", finished.stderr);
    crate::rig::end(serving);
    assert_eq!(names(&fuse.store()), ["file", "got", "kept", "new", "other", "resumed"]);
    for tree in ["got", "new", "new/tree", "kept", "resumed"] {
        let tree = fuse.store().join(tree);
        assert_eq!(names(&tree.join("inner")), ["b", "empty", "name"]);
        for file in ["a", "inner/b", "inner/name"] {
            let original = fs::read(here.path().join("tree").join(file)).unwrap();
            assert!(fs::read(tree.join(file)).unwrap() == original, "{tree:?} {file}");
        }
    }
}

#[test]
fn files_of_one_mount_are_copied_by_it() {
    let Some(fuse) = Fuse::new() else { return };
    fs::write(fuse.store().join("a"), noise(300_000)).unwrap();
    let receipt = run(&fuse.root(), &["cp", "--json", "a", "b"]).succeeded().receipt();
    assert_eq!(crate::rig::bytes_by(&receipt, "copy_file_range"), 300_000, "{receipt}");
    assert!(fs::read(fuse.store().join("b")).unwrap() == noise(300_000));
}

#[test]
fn a_file_that_is_never_ready_fails_instead_of_being_waited_for() {
    let Some(fuse) = Fuse::new() else { return };
    let here = folder();
    fs::write(fuse.store().join("a"), noise(1_000_000)).unwrap();
    fuse.fail(r#"{"stuck": 600000}"#);
    let source = fuse.root().join("a");
    let from = source.to_str().unwrap();
    let (storing, storage) = server(here.path(), &["--allow-upload"]);
    for words in [
        &["cp", from, "plain"][..],
        &["cp", "-a", from, "kept"],
        &["put", "--retries", "0", from, &storage],
    ] {
        let finished = run(here.path(), words);
        assert_eq!(finished.code(), Some(1), "{words:?}: {}", finished.stderr);
        assert!(finished.stderr.contains("temporarily unavailable"), "{}", finished.stderr);
    }
    crate::rig::end(storing);
}

/// The file system gives an open file that is removed another name, until it is closed.
#[test]
fn an_open_file_that_is_removed_with_its_folder_is_nothing_hidden() {
    let Some(fuse) = Fuse::new() else { return };
    for folder in ["removed", "replaced", "new"] {
        fs::create_dir(fuse.store().join(folder)).unwrap();
        fs::write(fuse.store().join(folder).join("file"), folder).unwrap();
    }
    let (serving, _) = server(&fuse.root(), &["--allow-all"]);
    let opened = ["removed", "replaced"]
        .map(|folder| fs::File::open(fuse.root().join(folder).join("file")).unwrap());
    let request = |head: &str| {
        let mut client = serving.connect();
        write!(client, "{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        client.read_to_string(&mut reply).unwrap();
        reply
    };
    let reply = request("DELETE /removed HTTP/1.1");
    assert!(reply.starts_with("HTTP/1.1 204") && !fuse.root().join("removed").exists(), "{reply}");
    let reply = request("MOVE /new HTTP/1.1\r\nDestination: /replaced\r\nOverwrite: T");
    assert!(reply.starts_with("HTTP/1.1 204"), "{reply}");
    drop(opened);
    assert_eq!(fs::read(fuse.store().join("replaced/file")).unwrap(), b"new");
    crate::rig::end(serving);
}

/// Checks that a server of one worker answers requests of another client that do not need a file
/// system which has stopped. A file that is new is opened by a helper thread.
#[track_caller]
fn assert_answers(fuse: &Fuse, url: &str) {
    fs::write(fuse.store().join("new"), "new").unwrap();
    for path in [".underpass/health", "store/file", "store/new"] {
        let mut curl = Command::new("curl");
        curl.args(["-sSf", "-m", "10", "-o", "/dev/null", "--interface", "127.0.0.9"]);
        let curl = curl.arg(format!("{url}{path}"));
        let output = curl.output().unwrap();
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Reads until the connection ends, or nothing has come for this time.
fn read_for(client: &mut TcpStream, time: Duration) {
    client.set_read_timeout(Some(time)).unwrap();
    let mut buffer = vec![0; 1 << 20];
    while let Ok(1..) = client.read(&mut buffer) {}
}

#[test]
fn a_mount_that_stops_answering_stops_no_worker() {
    let Some(fuse) = Fuse::with(r#"{"cached": true}"#) else { return };
    fs::write(fuse.store().join("file"), noise(8 << 20)).unwrap();
    let (serving, url) = server(fuse.folder(), &["--workers", "1"]);
    let request = |path: &str| {
        let mut client = serving.connect();
        write!(client, "GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        client
    };
    let read = run(fuse.folder(), &["get", "-q", "-o", "/dev/null", &format!("{url}root/file")]);
    assert_eq!(read.code(), Some(0), "{}", read.stderr);
    // One is in the middle of a file that is in the page cache.
    let mut reading = request("root/file");
    reading.read_exact(&mut vec![0; 1 << 20]).unwrap();
    let stopped = fuse.stop();
    // It gets what there is until the server has to ask.
    read_for(&mut reading, Duration::from_millis(500));
    assert_answers(&fuse, &url);
    let waiting: Vec<_> = (0..100).map(|_| request("root/file")).collect();
    assert_answers(&fuse, &url);
    drop((waiting, reading, stopped));
    crate::rig::end(serving);
}

#[test]
fn clients_that_leave_a_mount_that_does_not_answer_leave_no_connection() {
    let Some(fuse) = Fuse::with(r#"{"cached": true}"#) else { return };
    fs::write(fuse.store().join("file"), "text").unwrap();
    let (serving, url) = server(fuse.folder(), &["--workers", "1", "--allow-upload"]);
    let stopped = fuse.stop();
    let sockets = || {
        let open = fs::read_dir(format!("/proc/{}/fd", serving.child.id())).unwrap();
        let links = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
    };
    let before = sockets();
    let requests = [
        "GET /root/file HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /root/file HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\n",
        "GET /root/?json HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /root/?archive=tar HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /?archive=tar HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "PROPFIND /root/ HTTP/1.1\r\nHost: localhost\r\nDepth: 1\r\n\r\n",
        "DELETE /root/file HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ];
    let connect = |request: &&str| {
        let mut client = serving.connect();
        client.write_all(request.as_bytes()).unwrap();
        client
    };
    let clients: Vec<_> = requests.iter().cycle().take(80).map(connect).collect();
    wait_until("they wait", || sockets() >= before + 80);
    drop(clients);
    wait_until("their connections are closed", || sockets() <= before);
    assert_answers(&fuse, &url);
    drop(stopped);
    crate::rig::end(serving);
}

#[test]
fn a_slow_file_is_not_read_for_clients_that_have_left() {
    let Some(fuse) = Fuse::with(r#"{"pause": 0.2}"#) else { return };
    let file = fs::File::create(fuse.store().join("file")).unwrap();
    file.set_len(256 << 20).unwrap();
    let (serving, _) = server(&fuse.root(), &[]);
    let is_reading = |name: &str| {
        let threads = fs::read_dir(format!("/proc/{}/task", serving.child.id())).unwrap();
        let names = threads.map(|task| fs::read_to_string(task.unwrap().path().join("comm")));
        names.flatten().any(|comm| comm.trim_end() == name)
    };
    for (target, thread) in [("/file?hash", "digest"), ("/?archive=zip", "checksum")] {
        let mut client = serving.connect();
        write!(client, "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        wait_until("it is read", || is_reading(thread));
        drop(client);
        wait_until("it is no longer read", || !is_reading(thread));
    }
    crate::rig::end(serving);
}

#[test]
fn a_mount_that_stops_while_its_folder_is_archived_stops_no_worker() {
    let Some(fuse) = Fuse::with(r#"{"cached": true, "changed": 0}"#) else { return };
    for number in 0..200 {
        fs::write(fuse.store().join(format!("small-{number}")), noise(30_000)).unwrap();
    }
    fs::write(fuse.store().join("file"), noise(8 << 20)).unwrap();
    let (serving, url) = server(fuse.folder(), &["--workers", "1"]);
    for format in ["tar", "zip"] {
        let mut reading = serving.connect();
        let target = format!("/root/?archive={format}");
        let fields = "Host: localhost\r\nConnection: close";
        write!(reading, "GET {target} HTTP/1.1\r\n{fields}\r\n\r\n").unwrap();
        // It is in the middle of it.
        reading.read_exact(&mut vec![0; 1 << 20]).unwrap();
        let stopped = fuse.stop();
        read_for(&mut reading, Duration::from_millis(500));
        assert_answers(&fuse, &url);
        drop(stopped);
        read_for(&mut reading, Duration::from_secs(60));
    }
    crate::rig::end(serving);
}

#[test]
fn files_without_a_link_count_are_served() {
    let Some(fuse) = Fuse::with(r#"{"links": 0}"#) else { return };
    for len in [10, 10_000, 300_000] {
        fs::write(fuse.store().join(len.to_string()), noise(len)).unwrap();
        let (serving, url) = server(&fuse.root(), &[]);
        for _ in 0..2 {
            let got = run(fuse.folder(), &["get", "-q", "-o", "-", &format!("{url}{len}")]);
            assert_eq!(got.code(), Some(0), "{len}: {}", got.stderr);
            assert!(got.stdout == noise(len), "{len}");
        }
        let digest = run(fuse.folder(), &["get", "-q", "-o", "-", &format!("{url}{len}?hash")]);
        assert_eq!((digest.code(), digest.stdout.len()), (Some(0), 64), "{}", digest.stderr);
        crate::rig::end(serving);
    }
}

/// Attributes that do not come keep helpers of one client waiting, not all.
#[test]
fn properties_that_do_not_come_leave_helpers_to_others() {
    let Some(fuse) = Fuse::with(r#"{"threads": true}"#) else { return };
    fs::write(fuse.store().join("file"), "text").unwrap();
    let (serving, url) = server(fuse.folder(), &["--workers", "1"]);
    let hanging = fuse.hang_again("getxattr");
    let request = || {
        let mut client = serving.connect();
        write!(client, "PROPFIND /root/ HTTP/1.1\r\nHost: localhost\r\nDepth: 0\r\n\r\n").unwrap();
        client
    };
    let waiting: Vec<_> = (0..100).map(|_| request()).collect();
    let tasks = format!("/proc/{}/task", serving.child.id());
    let is_waiting = |task: &fs::DirEntry| {
        let stack = fs::read_to_string(task.path().join("stack"));
        stack.is_ok_and(|stack| stack.contains("getxattr"))
    };
    wait_until("helpers wait for attributes", || {
        fs::read_dir(&tasks).unwrap().filter_map(Result::ok).filter(is_waiting).count() >= 16
    });
    (0..10).for_each(|_| assert_answers(&fuse, &url));
    drop((waiting, hanging));
    crate::rig::end(serving);
}

/// A file is opened once, by a helper: neither a lease nor a clone lets a worker open it again.
#[test]
fn no_worker_opens_a_file_of_a_mount_to_guard_it() {
    for level in ["lease", "snapshot"] {
        let Some(fuse) = Fuse::new() else { return };
        fs::write(fuse.store().join("file"), "text").unwrap();
        let (serving, url) = server(fuse.folder(), &["--workers", "1", "--integrity", level]);
        let hanging = fuse.hang_again("open");
        let mut client = serving.connect();
        write!(client, "GET /root/file HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut first = [0; 12];
        client.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200", "{level}");
        assert_answers(&fuse, &url);
        drop(hanging);
        crate::rig::end(serving);
    }
}

/// A cache needs no unnamed files, which FUSE, NFS and FAT do not have.
#[test]
fn the_doctor_measures_the_disk_of_a_cache() {
    let Some(fuse) = Fuse::new() else { return };
    let here = folder();
    let (serving, url) = server(here.path(), &[]);
    let cache = fuse.root();
    let found = run(here.path(), &["doctor", "--origin", &url, "--cache", cache.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&found.stdout);
    assert!(text.contains("MiB/s written and synced"), "{text}");
    // FUSE is told of the last close of a file a moment later.
    wait_until("nothing is left", || names(&fuse.store()).is_empty());
    crate::rig::end(serving);
}

/// libfuse renames an open file that is removed, and NFS does the same.
#[test]
fn a_folder_is_deleted_while_its_files_are_open() {
    let Some(fuse) = Fuse::new() else { return };
    fs::create_dir_all(fuse.store().join("all/inner")).unwrap();
    fs::create_dir(fuse.store().join("rest")).unwrap();
    for name in ["all/a", "all/inner/b", "rest/c", "rest/d"] {
        fs::write(fuse.store().join(name), name).unwrap();
    }
    let _open =
        ["all/a", "all/inner/b", "rest/c"].map(|name| fs::File::open(fuse.root().join(name)));
    let (showing, _) = server(&fuse.root(), &["--allow-delete", "--show-hidden"]);
    let (hiding, _) = server(&fuse.root(), &["--allow-delete"]);
    let mut client = Client::new(showing.connect());
    assert_eq!(client.ask("DELETE", "/all/", &[]).status, 204);
    assert!(!fuse.root().join("all").exists());
    assert_eq!(client.ask("DELETE", "/rest/c", &[]).status, 204);
    let left = names(&fuse.root().join("rest"));
    assert!(left.iter().any(|name| name.starts_with(".fuse_hidden")), "{left:?}");
    assert_eq!(client.get("/rest/?simple").body, b"d\n");
    assert_eq!(Client::new(hiding.connect()).ask("DELETE", "/rest/", &[]).status, 204);
    crate::rig::end(showing);
    crate::rig::end(hiding);
}

/// FAT, NTFS and exFAT do not allow a colon, for example.
#[test]
fn a_name_that_the_file_system_refuses_is_no_failure_of_the_server() {
    let Some(fuse) = Fuse::new() else { return };
    let (serving, _) = server(&fuse.root(), &["--allow-upload"]);
    let mut client = Client::new(serving.connect());
    fuse.fail(r#"{"create": "EINVAL", "mkdir": "EINVAL"}"#);
    for verb in ["PUT", "MKCOL"] {
        let reply = client.ask(verb, "/a:b", &["Content-Length: 0"]);
        let body = String::from_utf8_lossy(&reply.body);
        assert!(reply.status == 400 && body.contains("name"), "{verb}: {} {body}", reply.head);
    }
    fuse.fail(r#"{"create": "EILSEQ"}"#);
    assert_eq!(client.ask("PUT", "/a:b", &["Content-Length: 0"]).status, 400);
    crate::rig::end(serving);
}
