//! The real program uploads to real servers: ours and nginx.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags, mkdirat, openat};
use tempfile::TempDir;

use crate::rig::{
    self, Finished, Running, bytes_by, folder, free_port, has, names, noise, noise_file, piped,
    underpass, until,
};

/// A server, its folder, and a folder for sent files and journals.
struct Stage {
    served: TempDir,
    own: TempDir,
    server: Running,
}

impl Stage {
    fn new(args: &[&str]) -> Self {
        let served = folder();
        let server = serve(served.path(), "0", args);
        Self { served, own: folder(), server }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server.address.trim_end_matches('/'))
    }

    /// The program, with what it remembers in a folder of the test's own.
    fn put(&self, args: &[&str]) -> Command {
        put(self.own.path(), args)
    }

    fn run(&self, args: &[&str]) -> Finished {
        Running::start(self.put(args)).finish()
    }

    fn file(&self, name: &str, len: usize) -> String {
        noise_file(self.own.path(), name, len).to_str().unwrap().to_owned()
    }

    fn arrived(&self, name: &str) -> Vec<u8> {
        fs::read(self.served.path().join(name)).unwrap()
    }

    fn journals(&self) -> Vec<String> {
        let folder = self.own.path().join("state/underpass/uploads");
        if folder.exists() { names(&folder) } else { Vec::new() }
    }
}

/// A server of ours that takes uploads.
fn serve(root: &Path, port: &str, args: &[&str]) -> Running {
    let mut command = underpass();
    command.args(["serve", "--quiet", "--allow-upload", "--port", port]).args(args).arg(root);
    Running::listening(command)
}

fn put(home: &Path, args: &[&str]) -> Command {
    let mut command = underpass();
    command.arg("put").args(args).env("XDG_STATE_HOME", home.join("state"));
    command
}

#[test]
fn files_arrive_in_folders_and_under_new_names() {
    let stage = Stage::new(&[]);
    let (large, small) = (stage.file("large", 5 << 20), stage.file("a b%\u{e4}", 100));
    let done = stage.run(&[&large, &stage.url("/new"), "--json"]).succeeded().receipt();
    assert!(stage.arrived("new") == noise(5 << 20));
    assert_eq!(done["bytes"], 5 << 20);
    assert_eq!(done["user_space_bytes"], 0);
    assert_eq!(done["status"], 201);
    assert_eq!(done["resumed_at"], 0);
    assert_eq!(bytes_by(&done, "sendfile"), 5 << 20);
    let done = stage.run(&[&large, &small, &stage.url("/"), "--json"]).succeeded();
    assert_eq!(done.text().lines().count(), 2, "an object each");
    assert_eq!(names(stage.served.path()), ["a b%\u{e4}", "large", "new"]);
    assert!(stage.arrived("a b%\u{e4}") == noise(100));
    let finished = stage.run(&[&small, &stage.url("/new")]).succeeded();
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    assert!(stage.arrived("new") == noise(100), "replaced");
    let quiet = stage.run(&[&small, &stage.url("/new"), "--quiet"]).succeeded();
    assert!(quiet.stderr.is_empty() && quiet.stdout.is_empty());
    let explained = stage.run(&[&small, &stage.url("/new"), "--explain"]).succeeded();
    assert!(explained.stderr.contains("answer       204"), "{}", explained.stderr);
    assert!(stage.journals().is_empty());
}

#[test]
fn standard_input_is_sent_as_it_comes_or_with_its_length() {
    let stage = Stage::new(&[]);
    let url = stage.url("/piped");
    let mut command = stage.put(&["-", &url, "--json"]);
    command.stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(&noise(3 << 20)).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(stage.arrived("piped") == noise(3 << 20));
    let receipt: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(receipt["user_space_bytes"], 0);
    assert_eq!(bytes_by(&receipt, "splice"), 3 << 20);

    let file = stage.file("file", 3 << 20);
    let mut command = stage.put(&["-", &stage.url("/redirected"), "--json"]);
    command.stdin(File::open(file).unwrap());
    let receipt = Running::start(command).finish().succeeded().receipt();
    assert_eq!(bytes_by(&receipt, "sendfile"), 3 << 20, "a file has a length");
    assert!(stage.arrived("redirected") == noise(3 << 20));
}

#[test]
fn folders_arrive_with_everything_in_them() {
    let stage = Stage::new(&[]);
    let root = stage.own.path().join("tree");
    fs::create_dir_all(root.join("deep/er")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    let contents = [("one", 10), ("deep/two", 20_000), ("deep/er/#three?", 300_000)];
    for (name, len) in contents {
        fs::write(root.join(name), noise(len)).unwrap();
    }
    symlink("one", root.join("link")).unwrap();
    symlink(".", root.join("loop")).unwrap();
    let root = root.to_str().unwrap();

    stage.run(&[root, &stage.url("/")]).failed(2, &["tree", "is a folder", "-r"]);
    // Wrong usage is found before anything is sent.
    let first = stage.file("first", 10);
    stage.run(&[&first, root, &stage.url("/")]).failed(2, &["tree", "is a folder", "-r"]);
    assert!(names(stage.served.path()).is_empty());
    let done = stage.run(&["-r", root, &stage.url("/")]).succeeded();
    assert!(done.stderr.contains("link: left out"), "{}", done.stderr);
    for (name, len) in contents {
        assert!(stage.arrived(&format!("tree/{name}")) == noise(len), "{name}");
    }
    let arrived = stage.served.path().join("tree");
    assert_eq!(names(&arrived), ["deep", "empty", "one"]);
    assert!(arrived.join("empty").is_dir());

    // Once more, into folders that exist, with what the links lead to.
    let done = stage.run(&["-r", "-L", root, &stage.url("/")]).succeeded();
    assert!(
        done.stderr.contains("loop: left out: the link points to a folder that contains it"),
        "{}",
        done.stderr
    );
    assert!(stage.arrived("tree/link") == noise(10));
    // Under a new name, and what is in the folder we are in.
    stage.run(&["-r", root, &stage.url("/other")]).succeeded();
    assert_eq!(names(&stage.served.path().join("other")), ["deep", "empty", "one"]);
    let mut command = stage.put(&["-r", ".", &stage.url("/")]);
    command.current_dir(root);
    Running::start(command).finish().succeeded();
    assert!(stage.arrived("one") == noise(10));
}

#[test]
fn unreadable_files_do_not_stop_the_others() {
    let stage = Stage::new(&[]);
    let root = stage.own.path().join("tree");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("first"), "1").unwrap();
    // Not even the superuser can open a link to nowhere.
    symlink("nowhere", root.join("missing")).unwrap();
    symlink("nowhere", root.join("more")).unwrap();
    fs::write(root.join("readable"), "2").unwrap();
    let done = stage.run(&["-r", "-L", root.to_str().unwrap(), &stage.url("/")]);
    let complaints: Vec<_> = done.stderr.lines().filter(|line| line.contains("tree/m")).collect();
    assert_eq!(complaints.len(), 2, "{}", done.stderr);
    done.failed(1, &["2 of", "were not sent"]);
    assert_eq!(names(&stage.served.path().join("tree")), ["first", "readable"]);
}

#[test]
fn two_files_of_one_command_never_have_one_url() {
    let stage = Stage::new(&[]);
    let root = stage.own.path();
    for (dir, file) in [("a", "x"), ("b", "x"), ("b", "y")] {
        fs::create_dir_all(root.join(dir)).unwrap();
        fs::write(root.join(dir).join(file), format!("{dir}/{file}")).unwrap();
    }
    let word = |path: &str| root.join(path).to_str().unwrap().to_owned();
    for (number, words) in [
        &["a/x", "b/y", "b/x"][..],
        &["-n", "a/x", "b/x", "b/y"],
        &["-r", "a/.", "b/."],
        &["-r", "a/x", "b/."],
    ]
    .into_iter()
    .enumerate()
    {
        let url = stage.url(&format!("/{number}/"));
        fs::create_dir(stage.served.path().join(number.to_string())).unwrap();
        let words: Vec<_> = words
            .iter()
            .map(|it| if it.starts_with('-') { (*it).to_owned() } else { word(it) })
            .chain([url])
            .collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        stage.run(&words).failed(1, &["x has that URL already"]);
        assert_eq!(stage.arrived(&format!("{number}/x")), b"a/x", "{words:?}");
        assert_eq!(stage.arrived(&format!("{number}/y")), b"b/y", "{words:?}");
    }
    let twice = stage.run(&[&word("a/x"), &word("b/y"), &word("a/x"), &stage.url("/")]).succeeded();
    assert!(twice.stderr.contains("it was named twice"), "{}", twice.stderr);
    // Folders of one name meet in one, as those of two commands do.
    fs::create_dir_all(root.join("c/b")).unwrap();
    fs::write(root.join("c/b/z"), "c/b/z").unwrap();
    stage.run(&["-r", &word("b"), &word("c/b"), &stage.url("/")]).succeeded();
    assert_eq!(names(&stage.served.path().join("b")), ["x", "y", "z"]);
}

#[test]
fn each_file_that_is_refused_has_a_receipt() {
    let stage = Stage::new(&[]);
    let root = stage.own.path();
    let files = [".one", ".two", "three"].map(|name| noise_file(root, name, 10));
    for (count, missing) in [(2, 1), (3, 2)] {
        let mut words = vec!["--json".to_owned()];
        words.extend(files.iter().rev().take(count).map(|file| file.display().to_string()));
        words.push(stage.url("/"));
        let done = stage.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let text = done.failed(1, &[]).text();
        let receipts: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(receipts.len(), count, "{text}");
        let refused = receipts.iter().filter(|receipt| receipt["status"] == 403);
        assert_eq!(refused.filter(|each| each["error"].is_string()).count(), missing, "{text}");
    }
}

#[test]
fn a_file_in_the_place_of_an_empty_folder_is_an_error() {
    let stage = Stage::new(&[]);
    let root = stage.own.path().join("tree");
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::create_dir_all(stage.served.path().join("tree")).unwrap();
    fs::write(stage.served.path().join("tree/empty"), "old").unwrap();
    let (root, url) = (root.to_str().unwrap(), stage.url("/"));
    for args in [&["-r", root, &url][..], &["-r", "--update", root, &url]] {
        let failed = stage.run(args).failed(1, &["/tree/empty", "a file has this name"]);
        assert_eq!(failed.stderr.lines().count(), 1, "{}", failed.stderr);
    }
    assert_eq!(stage.arrived("tree/empty"), b"old");
    fs::remove_file(stage.served.path().join("tree/empty")).unwrap();
    stage.run(&["-r", root, &url]).succeeded();
    stage.run(&["-r", root, &url]).succeeded();
}

#[test]
fn without_the_folder_above_nothing_more_is_tried() {
    let stage = Stage::new(&[]);
    let root = stage.own.path().join("tree");
    fs::create_dir(&root).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(root.join(name), name).unwrap();
    }
    let (root, url) = (root.to_str().unwrap(), stage.url("/none/"));
    let failed = stage.run(&["-r", root, &url]).failed(1, &["409", "--create-parents"]);
    assert_eq!(failed.stderr.lines().count(), 1, "{}", failed.stderr);
    stage.run(&["-r", "--create-parents", root, &url]).succeeded();
    assert_eq!(stage.arrived("none/tree/c"), b"c");
}

#[test]
fn a_folder_that_is_refused_does_not_stop_the_creation_of_others() {
    let stage = Stage::new(&[]);
    let root = stage.own.path().join("tree");
    fs::create_dir_all(root.join("z/y")).unwrap();
    fs::write(root.join("z/y/file"), "z").unwrap();
    // The server takes paths of at most 4,096 bytes.
    let level = "l".repeat(240);
    let mut folder = OwnedFd::from(File::open(&root).unwrap());
    for _ in 0..19 {
        mkdirat(&folder, &*level, Mode::RWXU).unwrap();
        folder = openat(&folder, &*level, OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let done = stage.run(&["-r", root.to_str().unwrap(), &stage.url("/")]);
    let refused = done.stderr.lines().filter(|line| line.contains(" 400 "));
    assert_eq!(refused.count(), 2, "{}", done.stderr);
    done.failed(1, &["2 of", "were not sent"]);
    assert_eq!(stage.arrived("tree/z/y/file"), b"z");
}

#[test]
fn each_refusal_is_one_line_that_says_what_to_do() {
    let stage = Stage::new(&["--upload-limit", "3M"]);
    let file = stage.file("file", 2 << 20);
    let large = stage.file("large", 4 << 20);
    fs::write(stage.served.path().join("there"), "old").unwrap();
    fs::create_dir(stage.served.path().join("folder")).unwrap();
    let url = |path: &str| stage.url(path);
    let cases: &[(&[&str], &[&str])] = &[
        (&[&large, &url("/large")], &["413", "larger than the server allows"]),
        (&[&file, &url("/none/file")], &["409", "parent folder", "--create-parents"]),
        (&[&file, &url("/there"), "--if-match", "other"], &["another version", "--if-match"]),
        (&[&file, &url("/gone"), "--if-match", "other"], &["does not exist", "--if-match"]),
        (&[&file, &url("/folder")], &["40"]),
        (&[&stage.own.path().join("gone").display().to_string(), &url("/")], &["opening", "gone"]),
        (&[&file, "http://127.0.0.1:1/"], &["connecting to 127.0.0.1:1", "refused"]),
        (&[&file, "https://127.0.0.1:1/"], &["https"]),
    ];
    for (args, words) in cases {
        let failed = stage.run(args).failed(1, words);
        assert_eq!(failed.stderr.lines().count(), 1, "{}", failed.stderr);
    }
    assert_eq!(names(stage.served.path()), ["folder", "there"]);
    assert_eq!(stage.arrived("there"), b"old");
    assert!(stage.journals().is_empty());

    let guarded = Stage::new(&["--auth", "user:secret@/:rw", "--auth", "reader:secret@/"]);
    let (file, url) = (guarded.file("file", 2 << 20), guarded.url("/file"));
    guarded.run(&[&file, &url]).failed(1, &["401", "--user"]);
    guarded.run(&[&file, &url, "--user", "reader:secret"]).failed(1, &["403"]);
    guarded.run(&[&file, &url, "--user", "user:secret"]).succeeded();
    let named = url.replace("http://", "http://user:secret@");
    let finished = guarded.run(&[&file, &named, "--json"]).succeeded();
    assert!(!finished.text().contains("secret"), "{}", finished.text());

    let closed = folder();
    let server = rig::serve(&closed, &["--quiet"]);
    let failed = guarded.run(&[&file, &server.address]).failed(1, &["--allow-upload"]);
    assert!(failed.stderr.contains("40"), "{}", failed.stderr);
}

#[test]
fn wrong_usage_is_reported_before_any_connection() {
    let stage = Stage::new(&[]);
    let file = stage.file("file", 10);
    let folder = stage.url("/");
    let cases: &[(&[&str], &[&str])] = &[
        (&[], &["FILE", "URL"]),
        (&[&file], &["URL"]),
        (&["-", &folder], &["standard input", "URL"]),
        (&[&file, &file, &stage.url("/one")], &["several files", "/"]),
        (&[&file, "http://"], &["URL"]),
        (&["http://me:hunter2@h/big", "big"], &["URL is the last argument"]),
        (&[&file, &folder, "-n", "--if-match", "x"], &["--no-clobber"]),
        (&[&file, &folder, "-L"], &["--recursive"]),
        (&[&file, &folder, "--rate", "0"], &["rate"]),
        (&[&file, &folder, "--digest", "md5"], &["md5"]),
        (&[&file, &folder, "--if-match", "W/\"1\""], &["strong"]),
        (&[&file, &folder, "--user", "nobody"], &["--user"]),
    ];
    for (args, words) in cases {
        stage.run(args).failed(2, words);
    }
    assert!(names(stage.served.path()).is_empty());
}

#[test]
fn put_sends_the_digest_of_the_file() {
    let stage = Stage::new(&[]);
    let file = stage.file("file", 2 << 20);
    let done = stage.run(&[&file, &stage.url("/file"), "--digest", "sha-256", "--json"]);
    let receipt = done.succeeded().receipt();
    let sum = Command::new("sha256sum").arg(&file).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    assert_eq!(receipt["digest"]["value"], sum.split(' ').next().unwrap());
    assert_eq!(receipt["digest"]["read_bytes"], 2 << 20);
    assert_eq!(receipt["user_space_bytes"], 0, "it was read beside the transfer, not in it");
}

#[test]
fn put_keeps_to_the_rate() {
    let stage = Stage::new(&[]);
    let file = stage.file("file", 3 << 20);
    let done = stage.run(&[&file, &stage.url("/file"), "--rate", "2M", "--json"]);
    let seconds = done.succeeded().receipt()["elapsed_s"].as_f64().unwrap();
    assert!(seconds > 1.0, "3 MiB at 2 MiB a second in {seconds} s");
}

/// nginx with its dav module, on a free port; `None`, with a message, if there is none.
fn nginx(stage: &Path) -> Option<(Running, String)> {
    if !has("nginx") {
        return None;
    }
    let port = free_port();
    let root = stage.join("root");
    fs::create_dir(&root).unwrap();
    let http = format!(
        "server {{ listen 127.0.0.1:{port}; root {}; client_max_body_size 20m;
         dav_methods PUT MKCOL; create_full_put_path on; }}",
        root.display()
    );
    let config = rig::nginx::config(stage, &http);
    let server = Running::start(rig::nginx::command("nginx", &config));
    let address = format!("127.0.0.1:{port}");
    until("nginx listens", || TcpStream::connect(&address).is_ok());
    Some((server, format!("http://{address}")))
}

#[test]
fn nginx_takes_files_streams_and_folders() {
    let stage = folder();
    let Some((server, url)) = nginx(stage.path()) else { return };
    let home = folder();
    let file = noise_file(home.path(), "file", 5 << 20);
    let file = file.to_str().unwrap();
    let run = |args: &[&str]| Running::start(put(home.path(), args)).finish();
    let arrived = |name: &str| fs::read(stage.path().join("root").join(name)).unwrap();
    let receipt = run(&[file, &format!("{url}/a/"), "--json"]).succeeded().receipt();
    assert!(arrived("a/file") == noise(5 << 20));
    assert_eq!(receipt["user_space_bytes"], 0);
    assert_eq!(receipt["resumable"], false);
    let mut command = put(home.path(), &["-", &format!("{url}/stream")]);
    command.stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(&noise(1 << 20)).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(arrived("stream") == noise(1 << 20));
    let tree: PathBuf = home.path().join("tree");
    fs::create_dir_all(tree.join("empty")).unwrap();
    fs::write(tree.join("one"), noise(1000)).unwrap();
    let tree = tree.to_str().unwrap();
    run(&["-r", tree, &format!("{url}/")]).succeeded();
    run(&["-r", tree, &format!("{url}/")]).succeeded();
    assert!(arrived("tree/one") == noise(1000));
    assert!(stage.path().join("root/tree/empty").is_dir());
    let large = noise_file(home.path(), "large", 21 << 20);
    run(&[large.to_str().unwrap(), &format!("{url}/")]).failed(1, &["413", "larger"]);
    // Ends its workers, too.
    server.signal("TERM");
    server.finish();
}

/// rclone as a WebDAV server on a free port; `None`, with a message, if it is not there.
fn rclone(root: &Path) -> Option<(Running, String)> {
    if !has("rclone") {
        return None;
    }
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let mut command = piped("rclone");
    command.args(["serve", "webdav", "--addr", &address, "--config", "/dev/null"]).arg(root);
    let server = Running::start(command);
    until("rclone listens", || TcpStream::connect(&address).is_ok());
    Some((server, format!("http://{address}")))
}

/// Neither nginx nor rclone looks at `If-None-Match` and `If-Match` of a PUT.
fn replaces_nothing(url: &str, root: &Path) {
    let home = folder();
    let file = noise_file(home.path(), "file", 100_000);
    let file = file.to_str().unwrap();
    let run = |args: &[&str]| Running::start(put(home.path(), args)).finish();
    fs::write(root.join("there"), "old").unwrap();
    let there = format!("{url}/there");
    let done = run(&[file, &there, "-n"]).succeeded();
    assert_eq!(fs::read(root.join("there")).unwrap(), b"old");
    assert!(done.stderr.contains("already there"), "{}", done.stderr);
    let receipt = run(&[file, &there, "-n", "--json"]).succeeded().receipt();
    assert_eq!((&receipt["was_there"], &receipt["bytes"]), (&true.into(), &0.into()));
    run(&[file, &there, "--if-match", "other"]).failed(1, &["--if-match"]);
    assert_eq!(fs::read(root.join("there")).unwrap(), b"old");
    let receipt = run(&[file, &format!("{url}/new"), "-n", "--json"]).succeeded().receipt();
    assert_eq!(receipt["was_there"], false);
    assert!(receipt.get("may_have_replaced").is_none(), "{receipt}");
    assert!(fs::read(root.join("new")).unwrap() == noise(100_000));
    // A folder: only what is missing is sent.
    let tree = home.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "new").unwrap();
    fs::write(tree.join("b"), "new").unwrap();
    fs::create_dir(root.join("tree")).unwrap();
    fs::write(root.join("tree/a"), "old").unwrap();
    run(&["-r", "-n", tree.to_str().unwrap(), &format!("{url}/")]).succeeded();
    assert_eq!(fs::read(root.join("tree/a")).unwrap(), b"old");
    assert_eq!(fs::read(root.join("tree/b")).unwrap(), b"new");
}

#[test]
fn nothing_is_replaced_on_servers_that_ignore_conditions() {
    let stage = Stage::new(&[]);
    replaces_nothing(stage.server.address.trim_end_matches('/'), stage.served.path());
    let place = folder();
    if let Some((server, url)) = nginx(place.path()) {
        replaces_nothing(&url, &place.path().join("root"));
        server.signal("TERM");
        server.finish();
    }
    let place = folder();
    if let Some((_server, url)) = rclone(place.path()) {
        replaces_nothing(&url, place.path());
    }
}

#[test]
fn a_connection_that_ends_between_two_files_is_replaced() {
    let own = folder();
    let files = ["a", "b"].map(|name| noise_file(own.path(), name, 10));
    let [a, b] = files.each_ref().map(|file| file.to_str().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let request = |mut stream: &TcpStream| {
            let mut bytes = Vec::new();
            while !bytes.windows(4).any(|end| end == b"\r\n\r\n") || !bytes.ends_with(&noise(10)) {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                bytes.push(byte[0]);
            }
        };
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
        let (mut first, _) = listener.accept().unwrap();
        request(&first);
        first.write_all(answer).unwrap();
        // The server closed the idle connection while this request was in flight.
        request(&first);
        drop(first);
        let (mut second, _) = listener.accept().unwrap();
        request(&second);
        second.write_all(answer).unwrap();
    });
    let done = Running::start(put(own.path(), &["--retries", "1", a, b, &url])).finish();
    done.succeeded();
    server.join().unwrap();
}
