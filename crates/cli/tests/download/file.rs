//! `underpass get` against real servers: ours, nginx and Python's.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType};
use tempfile::TempDir;
use underpass_testkit::http::{Server, close};
use underpass_testkit::mounts::{FileSystem, Mounted};

use crate::rig::{
    Finished, Running, bytes_by, folder, free_port, has, names, noise, noise_file, underpass, until,
};

const LEN: usize = 40 << 20;

/// Our server of a folder, on a free port.
fn serve(root: &Path, args: &[&str]) -> Running {
    crate::rig::serve(root, &[&["-q"], args].concat())
}

/// `get` in a folder, with nothing from the environment.
pub(crate) fn get_in(folder: &Path, args: &[&str]) -> Command {
    let mut command = underpass();
    let proxies = ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    for name in proxies.into_iter().chain(["NETRC", "HOME", "UNDERPASS_BEARER"]) {
        command.env_remove(name);
    }
    command.current_dir(folder).arg("get").args(args);
    command
}

pub(crate) fn get(folder: &Path, args: &[&str]) -> Finished {
    Running::start(get_in(folder, args)).finish()
}

/// A file on our server, and a place for what arrives.
struct Stage {
    served: TempDir,
    here: TempDir,
    server: Running,
}

impl Stage {
    fn new(args: &[&str]) -> Self {
        let (served, here) = (folder(), folder());
        noise_file(served.path(), "file", LEN);
        let server = serve(served.path(), args);
        Self { served, here, server }
    }

    fn url(&self, name: &str) -> String {
        format!("{}{name}", self.server.address)
    }

    fn get(&self, args: &[&str]) -> Finished {
        get(self.here.path(), args)
    }

    #[track_caller]
    fn has_it(&self, name: &str) {
        assert!(fs::read(self.here.path().join(name)).unwrap() == noise(LEN), "other bytes");
        assert_eq!(names(self.here.path()), [name]);
    }
}

/// A server that sends the same response to each request.
pub(crate) fn recorder() -> Server {
    Server::start(|_, stream| {
        stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        close()
    })
}

#[test]
fn a_file_arrives_with_its_bytes_its_name_and_its_time() {
    let stage = Stage::new(&[]);
    for connections in ["1", "4"] {
        let fetched = stage.get(&[&stage.url("file"), "-j", connections, "--json", "-f"]);
        let receipt = fetched.succeeded().receipt();
        stage.has_it("file");
        assert_eq!(bytes_by(&receipt, "splice"), LEN as u64);
        assert_eq!((&receipt["bytes"], &receipt["user_space_bytes"]), (&LEN.into(), &0.into()));
        assert_eq!((&receipt["resumed_at"], &receipt["file"]), (&0.into(), &"file".into()));
        assert_eq!(receipt["url"], stage.url("file"));
        assert_eq!(receipt["connections"].as_u64() > Some(1), connections == "4");
    }
    let time = |folder: &Path| {
        let time = fs::metadata(folder.join("file")).unwrap().modified().unwrap();
        time.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
    };
    assert_eq!(time(stage.here.path()), time(stage.served.path()));
}

#[test]
fn other_servers_are_tried_as_well() {
    let (served, place) = (folder(), folder());
    noise_file(served.path(), "file", LEN);
    let port = free_port();
    let mut servers = Vec::new();
    if has("python3") {
        let mut python = Command::new("python3");
        python.args(["-u", "-m", "http.server", "-b", "127.0.0.1", &port.to_string(), "-d"]);
        python.arg(served.path());
        servers.push((python, port));
    }
    let port = free_port();
    if has("nginx") {
        let root = served.path().display();
        let http = format!("server {{ listen 127.0.0.1:{port}; root {root}; }}");
        let config = crate::rig::nginx::config(place.path(), &http);
        servers.push((crate::rig::nginx::command("nginx", &config), port));
    }
    for (mut command, port) in servers {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let server = Running::start(command);
        until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        for connections in ["1", "4"] {
            let here = folder();
            let url = format!("127.0.0.1:{port}/file");
            let receipt = get(here.path(), &[&url, "-j", connections, "--json"]);
            let receipt = receipt.succeeded().receipt();
            assert!(fs::read(here.path().join("file")).unwrap() == noise(LEN));
            assert_eq!(names(here.path()), ["file"]);
            assert_eq!(receipt["user_space_bytes"], 0, "{receipt}");
        }
        server.signal("TERM");
        server.finish();
    }
}

#[test]
fn the_file_is_written_to_the_given_path() {
    let stage = Stage::new(&[]);
    let url = stage.url("file");
    let printed = stage.get(&[&url, "-o", "-"]).succeeded();
    assert!(printed.stdout == noise(LEN));
    assert_eq!(names(stage.here.path()), [""; 0]);
    stage.get(&[&url, "-o", "named"]).succeeded();
    stage.has_it("named");
    // A link is followed, and what it leads to replaced.
    for (options, link) in [("-olink", "link"), ("-N", "file"), ("-f", "file")] {
        fs::write(stage.here.path().join("named"), "old").unwrap();
        symlink("named", stage.here.path().join(link)).unwrap();
        stage.get(&[&url, options]).succeeded();
        fs::remove_file(stage.here.path().join(link)).unwrap();
        stage.has_it("named");
        fs::remove_file(stage.here.path().join("named")).unwrap();
    }
    stage.get(&[&url, "-o", "/dev/null"]).succeeded();
    fs::create_dir(stage.here.path().join("dir")).unwrap();
    stage.get(&[&url, "-d", "dir"]).succeeded();
    assert_eq!(names(&stage.here.path().join("dir")), ["file"]);
    stage.get(&[&url, "-d", "new/one"]).succeeded();
    assert_eq!(names(&stage.here.path().join("new/one")), ["file"]);
    stage.get(&[&stage.url("nothing"), "-d", "left"]).failed(1, &["404"]);
    assert!(!stage.here.path().join("left").exists(), "an empty folder was left");
    stage.get(&[&url, "-d", "dir/file"]).failed(1, &["dir/file", "Not a directory"]);
    stage.get(&[&url, "-o", "dir"]).failed(1, &["directory"]);
    for name in ["absent/", "absent/.", "file/"] {
        stage.get(&[&url, "-o", name]).failed(1, &[name, "Not a directory"]);
    }
    assert_eq!(names(stage.here.path()), ["dir", "new"]);
}

#[test]
fn folders_created_for_nothing_are_removed_again() {
    let (stage, list) = (Stage::new(&[]), folder());
    let list = list.path().join("list");
    let (url, none, other) = (stage.url("file"), stage.url("none"), stage.url("other"));
    fs::write(&list, format!("{none}\n out=mine/a/b/c\n{other}\n out=mine/d/e\n")).unwrap();
    let list = list.to_str().unwrap();
    fs::create_dir(stage.here.path().join("mine")).unwrap();
    let cases: [&[&str]; 5] = [
        &[&none, "-d", "mine/a/b"],
        &[&none, &other, "-d", "mine/a/b", "--parallel", "2"],
        &["-i", list],
        &["-i", list, "--parallel", "1"],
        &["-r", &none, "-d", "mine/a/b"],
    ];
    for args in cases {
        stage.get(args).failed(1, &[]);
        assert_eq!(names(stage.here.path()), ["mine"], "{args:?}");
        assert_eq!(names(&stage.here.path().join("mine")), [""; 0], "{args:?}");
    }
    stage.get(&[&none, &url, "-d", "mine/a/b", "--parallel", "2"]).failed(1, &["404"]);
    assert_eq!(names(&stage.here.path().join("mine/a/b")), ["file"]);
}

#[test]
fn existing_files_are_neither_fetched_again_nor_overwritten() {
    let stage = Stage::new(&[]);
    let url = stage.url("file");
    stage.get(&[&url]).succeeded();
    let again = stage.get(&[&url, "--json"]).succeeded().receipt();
    assert_eq!((&again["was_here"], &again["bytes"]), (&true.into(), &0.into()));
    let time = || fs::metadata(stage.here.path()).unwrap().modified().unwrap();
    let before = time();
    assert!(stage.get(&[&url]).succeeded().stderr.contains("file is here already"));
    assert_eq!(time(), before, "the folder has changed");
    fs::write(stage.here.path().join("file"), "mine").unwrap();
    stage.get(&[&url]).failed(1, &["a different file", "--force"]);
    assert_eq!(fs::read(stage.here.path().join("file")).unwrap(), b"mine");
    stage.get(&[&url, "--force"]).succeeded();
    stage.has_it("file");
}

#[test]
fn sockets_and_fifos_are_not_replaced() {
    let stage = Stage::new(&[]);
    let (url, root, here) = (stage.url("file"), stage.url(""), stage.here.path());
    let socket = std::os::unix::net::UnixListener::bind(here.join("socket")).unwrap();
    rustix::fs::mknodat(CWD, here.join("fifo"), FileType::Fifo, 0o644.into(), 0).unwrap();
    symlink("/dev/null", here.join("null")).unwrap();
    let kind = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o170_000;
    for name in ["socket", "fifo", "null"] {
        fs::create_dir_all(here.join("d")).unwrap();
        fs::rename(here.join(name), here.join("d/file")).unwrap();
        let before = kind(&here.join("d/file"));
        for options in [&[][..], &["-f"], &["-N"]] {
            let args = [&[url.as_str(), "-d", "d"], options].concat();
            stage.get(&args).failed(1, &["it is a device, FIFO or socket"]);
            // Within a tree, links are replaced, as by cp.
            if name != "null" {
                let args = [&["-r", root.as_str(), "-d", "d"], options].concat();
                assert!(stage.get(&args).code() != Some(0), "{name} {options:?}");
            }
            assert_eq!(kind(&here.join("d/file")), before, "{name} {options:?}");
            assert_eq!(names(&here.join("d")), ["file"], "{name} {options:?}");
        }
        fs::remove_dir_all(here.join("d")).unwrap();
    }
    drop(socket);
    // Named directly, it is written to if possible; then no digest is compared.
    stage.get(&[&url, "-o", "/dev/null"]).succeeded();
    for option in [["--verify", "-q"], ["--digest-print", "-q"]] {
        let args = [&[url.as_str(), "-o", "/dev/null"], &option[..]].concat();
        stage.get(&args).failed(2, &["digest", "/dev/null"]);
    }
}

#[test]
fn a_file_that_is_open_is_written_to_and_not_replaced() {
    let stage = Stage::new(&[]);
    fs::write(stage.served.path().join("small"), "data\n").unwrap();
    let (url, out) = (stage.url("small"), stage.here.path().join("out"));
    for (how, descriptor, path) in [
        (">", 1, "/dev/stdout"),
        (">>", 1, "/dev/fd/1"),
        (">>", 2, "/dev/stderr"),
        (">", 7, "/dev/fd/7"),
    ] {
        fs::write(&out, "old\n").unwrap();
        let script = format!(
            r#"exec {descriptor}{how}out && echo first >&{descriptor} &&
               "$0" get -q {url} -o {path} && echo last >&{descriptor}"#
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_underpass")]);
        command.current_dir(stage.here.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::start(command).finish().succeeded();
        let old = if how == ">" { "" } else { "old\n" };
        let found = fs::read_to_string(&out).unwrap();
        assert_eq!(found, format!("{old}first\ndata\nlast\n"), "{path}");
    }
}

#[test]
fn a_pipe_that_is_open_is_written_to() {
    let stage = Stage::new(&[]);
    fs::write(stage.served.path().join("small"), "data\n").unwrap();
    fs::write(stage.here.path().join("local"), "data\n").unwrap();
    let url = stage.url("small");
    for words in [
        &["get", "-q", &url, "-o", "/dev/stdout"][..],
        &["get", "-q", &url, "-o", "/proc/self/fd/1"],
        &["cp", "-q", "local", "/dev/fd/1"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_underpass"));
        command.args(words).current_dir(stage.here.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        assert_eq!(Running::start(command).finish().succeeded().text(), "data\n", "{words:?}");
    }
}

#[test]
fn several_addresses_are_fetched_one_after_the_other() {
    let stage = Stage::new(&[]);
    fs::write(stage.served.path().join("a b"), "small").unwrap();
    let (file, other, none) = (stage.url("file"), stage.url("a%20b"), stage.url("none"));
    let fetched = stage.get(&[&file, &other, "--json"]).succeeded();
    let lines: Vec<_> = fetched.text().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[1].contains("\"a b\""), "{}", lines[1]);
    assert_eq!(names(stage.here.path()), ["a b", "file"]);
    // One that fails does not keep the others from being fetched.
    fs::remove_file(stage.here.path().join("a b")).unwrap();
    stage.get(&[&none, &other]).failed(1, &["404"]);
    assert_eq!(names(stage.here.path()), ["a b", "file"]);
}

#[test]
fn digests_are_compared_and_printed() {
    let stage = Stage::new(&[]);
    let url = stage.url("file");
    let printed = stage.get(&[&url, "--digest-print", "-q"]).succeeded().text();
    let (hex, name) = printed.trim().split_once("  ").unwrap();
    assert_eq!((hex.len(), name), (64, "file"));
    if has("sha256sum") {
        let path = stage.here.path().join("file");
        let own = Command::new("sha256sum").arg(path).output().unwrap();
        assert!(String::from_utf8_lossy(&own.stdout).starts_with(hex));
    }
    let right = format!("sha-256:{hex}");
    let receipt = stage.get(&[&url, "-f", "--json", "--digest", &right]).succeeded().receipt();
    let digest = &receipt["digest"];
    assert_eq!((&digest["matches"], &digest["algorithm"]), (&true.into(), &"sha-256".into()));
    assert_eq!((&digest["value"], &digest["expected"]), (&hex.into(), &hex.into()));
    assert_eq!(digest["read_bytes"], LEN);
    assert_eq!(receipt["user_space_bytes"], 0);
    // A file with another digest does not get the name, and the existing file stays.
    let wrong = format!("sha-256:{}", "0".repeat(64));
    stage.get(&[&url, "-f", "--digest", &wrong]).failed(1, &["sha-256", hex]);
    stage.has_it("file");
    stage.get(&[&url, "--digest", "sha-256:xyz"]).failed(2, &["--digest"]);
    stage.get(&[&url, "--digest", &right, "-o", "-"]).failed(2, &["standard output"]);
}

#[test]
fn our_own_server_sends_a_digest_on_request() {
    let stage = Stage::new(&[]);
    let receipt = stage.get(&[&stage.url("file"), "--verify", "--json"]).succeeded().receipt();
    assert_eq!(receipt["digest"]["matches"], true, "{receipt}");
    let silent = recorder();
    let url = format!("{}/x", silent.address);
    stage.get(&[&url, "--verify"]).failed(1, &["sends no digest"]);
    assert!(silent.requests()[0].field("want-repr-digest").is_some());
}

#[test]
fn a_file_that_is_here_is_compared_with_the_digest_of_the_server() {
    let stage = Stage::new(&[]);
    let (url, here) = (stage.url("file"), stage.here.path().join("file"));
    let right = stage.get(&[&url, "--update", "--digest-print", "-q"]).succeeded().text();
    let receipt = stage.get(&[&url, "--verify", "--json"]).succeeded().receipt();
    assert_eq!((&receipt["was_here"], &receipt["digest"]["matches"]), (&true.into(), &true.into()));
    // Another program changes the bytes, and neither the size nor the time.
    let damage = || {
        let time = here.metadata().unwrap().modified().unwrap();
        let file = fs::File::options().write(true).open(&here).unwrap();
        file.write_all_at(b"damaged", 0).unwrap();
        file.set_modified(time).unwrap();
    };
    damage();
    stage.get(&[&url, "--verify"]).failed(1, &["its sha-256 is", &right[..64]]);
    let receipt = stage.get(&[&url, "--update", "--verify", "--json"]).succeeded().receipt();
    assert_eq!(receipt["was_here"], false, "{receipt}");
    stage.has_it("file");
    // A server without digests does not make the file right.
    let silent = Server::start(|_, stream| {
        let time = "Last-Modified: Sat, 01 Jan 2000 00:00:00 GMT";
        write!(stream, "HTTP/1.0 200 OK\r\n{time}\r\nContent-Length: 2\r\n\r\nok")?;
        close()
    });
    let url = format!("{}/x", silent.address);
    stage.get(&[&url]).succeeded();
    for options in [&["--verify"][..], &["--verify", "--update"]] {
        stage.get(&[&[url.as_str()], options].concat()).failed(1, &["sends no digest"]);
    }
    // The digest of a content is that of the file only in a response with the file.
    let of_content = Server::start(|request, stream| {
        let digest = "Content-Digest: sha-256=:Jok2eyBcFs4y7UIAlCuLix4mLfxw2byfvHfElpmk8d8=:";
        let digest = if request.method == "HEAD" { "X-Any: 1" } else { digest };
        let time = "Last-Modified: Sat, 01 Jan 2000 00:00:00 GMT";
        write!(stream, "HTTP/1.0 200 OK\r\n{time}\r\n{digest}\r\nContent-Length: 2\r\n\r\nok")?;
        close()
    });
    let url = format!("{}/y", of_content.address);
    for _ in 0..2 {
        stage.get(&[&url, "--verify", "--update"]).succeeded();
    }
}

#[test]
fn credentials_come_from_options_netrc_and_the_environment() {
    let here = folder();
    let netrc = here.path().join("netrc");
    let text = b"# caf\xe9\nmachine 127.0.0.1 login net password rc\n";
    fs::write(&netrc, text).unwrap();
    let netrc = netrc.to_str().unwrap();
    let cases: [(&[&str], _, Option<&str>); 7] = [
        (&[], vec![], None),
        (&["--user", "a:b:c"], vec![("NETRC", netrc)], Some("Basic YTpiOmM=")),
        (&["--bearer", "t"], vec![("UNDERPASS_BEARER", "u")], Some("Bearer t")),
        (&[], vec![("UNDERPASS_BEARER", "u")], Some("Bearer u")),
        (&[], vec![("NETRC", netrc)], Some("Basic bmV0OnJj")),
        (&["--netrc-file", netrc], vec![], Some("Basic bmV0OnJj")),
        (&["--no-netrc"], vec![("NETRC", netrc)], None),
    ];
    for (args, variables, expected) in cases {
        let server = recorder();
        let mut command = get_in(here.path(), &[&format!("{}/x", server.address), "-f"]);
        command.args(args).args(["-H", "X-Own: 1"]).envs(variables.iter().copied());
        Running::start(command).finish().succeeded();
        let request = &server.requests()[0];
        assert_eq!(request.field("authorization"), expected, "{args:?} {variables:?}");
        assert_eq!(request.field("x-own"), Some("1"));
    }
    // A path need not be UTF-8.
    let home = here.path().join(OsStr::from_bytes(b"jos\xe9"));
    fs::create_dir(&home).unwrap();
    fs::copy(netrc, home.join(".netrc")).unwrap();
    for (name, path) in [("HOME", home.clone()), ("NETRC", home.join(".netrc"))] {
        let server = recorder();
        let mut command = get_in(here.path(), &[&format!("{}/x", server.address), "-f"]);
        command.env_remove("NETRC").env(name, path);
        Running::start(command).finish().succeeded();
        assert_eq!(server.requests()[0].field("authorization"), Some("Basic bmV0OnJj"), "{name}");
    }
    // As if it were not set, the request would go without a password, or past the proxy.
    for name in ["UNDERPASS_BEARER", "http_proxy"] {
        let server = recorder();
        let mut command = get_in(here.path(), &[&format!("{}/x", server.address), "-f"]);
        command.env(name, OsStr::from_bytes(b"http://jos\xe9"));
        Running::start(command).finish().failed(2, &[name, "not UTF-8"]);
        assert_eq!(server.requests().len(), 0, "{name}");
    }
    let missing = ["127.0.0.1:1/x", "--netrc-file", "none"];
    get(here.path(), &missing).failed(1, &["none", "No such file"]);
}

#[test]
fn wrong_words_are_reported_in_one_line() {
    let here = folder();
    for (args, words) in [
        (vec!["a", "b", "-o", "c"], "-o FILE is one file"),
        (vec!["a", "-o", "b", "-d", "c"], "cannot be used with"),
        (vec!["http://["], "not a URL"),
        (vec!["a", "-j", "0"], "0"),
        (vec!["a", "--rate", "0"], "at least one byte"),
        (vec!["a", "-H", "x y: z"], "letters, digits and hyphens"),
        (vec!["a", "-H", "x: a\nb"], "line breaks"),
        (vec!["a", "-H", "Content-Length: 4"], "Content-Length is set by the client itself"),
        (vec!["http://[fe80::1%25eth0]/a"], "an address with a zone"),
        (vec!["a", "--user", "me"], "colon"),
        (vec!["a", "--proxy", "socks5://b"], "over http"),
        (vec!["a/..%2Fb"], "does not end in a possible file name"),
        (vec!["a", "-o", "-", "--json"], "--json"),
    ] {
        get(here.path(), &args).failed(2, &[words]);
    }
    assert_eq!(names(here.path()), [""; 0]);
    get(here.path(), &["https://a/b"]).failed(1, &["https"]);
}

#[test]
fn progress_is_a_line_each_second_on_request() {
    let stage = Stage::new(&["--rate", "20M"]);
    let stderr = stage.get(&[&stage.url("file"), "--progress"]).succeeded().stderr;
    let line = stderr.lines().find(|line| line.contains(" s left")).unwrap();
    assert!(line.starts_with("file: ") && line.contains("of 40.00 MiB at"), "{line}");
    assert!(line.ends_with("1 connection"), "{line}");
    let quiet = stage.get(&[&stage.url("file"), "-q", "-f"]).succeeded();
    assert_eq!((quiet.stderr.as_str(), quiet.text().as_str()), ("", ""));
}

#[test]
fn the_guide_tells_every_option() {
    crate::rig::assert_guide_has_options("get");
}

#[test]
fn an_append_only_folder_gets_the_file_and_nothing_else() {
    let Some(mounted) = Mounted::new(FileSystem::Ext4, 128) else { return };
    if !has("chattr") {
        return;
    }
    let stage = Stage::new(&[]);
    let here = mounted.root().join("here");
    fs::create_dir(&here).unwrap();
    let chattr = |flag: &str| {
        assert!(Command::new("chattr").arg(flag).arg(&here).status().unwrap().success());
    };
    chattr("+a");
    get(&here, &[&stage.url("file")]).succeeded();
    get(&here, &["-f", &stage.url("file")]).failed(1, &["not permitted"]);
    // Nor does an upload leave a part there.
    let server = serve(&here, &["--allow-upload"]);
    let mut put = underpass();
    let file = stage.served.path().join("file");
    put.args(["put", "--retries", "1"]).arg(file).arg(format!("{}new", server.address));
    Running::start(put).finish().failed(1, &["403"]);
    chattr("-a");
    assert_eq!(names(&here), ["file"]);
    assert!(fs::read(here.join("file")).unwrap() == noise(LEN));
}

#[test]
fn a_refused_connection_is_reported_at_once() {
    // Nothing listens on a port that was just released.
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/x/");
    let place = folder();
    fs::write(place.path().join("file"), "bytes").unwrap();
    for words in [
        &["get", "-r", &url][..],
        &["get", &url],
        &["get", "-o", "new", &url],
        &["put", "file", &url],
        &["put", "-n", "file", &url],
        &["put", "-r", "-n", ".", &url],
    ] {
        let mut command = underpass();
        command.args(words).current_dir(place.path()).env("XDG_STATE_HOME", place.path());
        let done =
            Running::start(command).finish().failed(1, &["refused", "nothing listens there"]);
        assert!(!done.stderr.contains("trying again"), "{words:?}: {}", done.stderr);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    }
}

#[test]
fn get_of_a_folder_hints_at_r() {
    let (site, here) = (folder(), folder());
    fs::create_dir(site.path().join("sub")).unwrap();
    fs::write(site.path().join("sub/file"), "bytes").unwrap();
    let server = serve(site.path(), &[]);
    let said = |path: &str, args: &[&str]| {
        let url = format!("{}{path}", server.address);
        get(here.path(), &[&["-f", &url], args].concat()).succeeded().stderr
    };
    let words = "may be the page of a folder: -r fetches its files";
    assert!(said("sub", &[]).contains(words));
    for (path, args) in [("sub", &["-q"][..]), ("sub/", &[]), ("sub/file", &[])] {
        assert!(!said(path, args).contains(words), "{path}");
    }
}
