//! Faults of the real server: after a declined call, another mechanism continues at the same byte;
//! failures are visible to clients, and signals have their documented effects.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, PipeWriter, Read, Write, pipe};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::OFlags;
use tempfile::TempDir;

use crate::rig::{
    Running, end, folder, has, noise, noise_file, piped, run, serve, serve_by, traced, underpass,
    until,
};
use underpass_testkit::http::Client;
use underpass_testkit::mounts::{FileSystem, Mounted};
use underpass_testkit::{Content, KilledOnDrop, is_root, skip};

const LEN: usize = 40 << 20;

/// A served file, and folders for downloads and for traces.
struct Stage {
    served: TempDir,
    other: TempDir,
    source: PathBuf,
    target: PathBuf,
}

impl Stage {
    /// `None`, with a message, if there is no strace or no curl.
    fn new() -> Option<Self> {
        (has("strace") && has("curl")).then(|| {
            let (served, other) = (folder(), folder());
            let source = noise_file(served.path(), "file", LEN);
            let target = other.path().join("target");
            Self { served, other, source, target }
        })
    }

    /// A server with one thread for all requests, under strace if that has options.
    fn serve(&self, strace: &[&str], args: &[&str]) -> Running {
        let own = ["--workers", "1", "--log-format", "json"];
        serve_by(traced(&self.trace(), strace), &self.served, &[&own, args].concat())
    }

    /// curl on its way to the target.
    fn curl(&self, server: &Running, path: &str) -> Running {
        let mut command = piped("curl");
        command.args(["-sS", "-o"]).arg(&self.target).arg(format!("{}{path}", server.address));
        Running::start(command)
    }

    /// curl once it is in the middle of the file.
    fn curl_midway(&self, server: &Running) -> Running {
        let curl = self.curl(server, "file");
        until("a part has arrived", || self.arrived() > 1 << 20);
        assert!(self.arrived() < LEN as u64, "too fast");
        curl
    }

    fn arrived(&self) -> u64 {
        fs::metadata(&self.target).map_or(0, |facts| facts.len())
    }

    fn trace(&self) -> PathBuf {
        self.other.path().join("trace")
    }
}

/// All of the file, except perhaps its last bytes, which may be sent through a buffer.
fn is_all(bytes: u64) -> bool {
    (LEN as u64 - 3..=LEN as u64).contains(&bytes)
}

#[test]
fn a_server_that_may_start_no_thread_says_so_in_one_line() {
    let served = folder();
    if !has("setpriv") || !has("prlimit") || !is_root() {
        return skip("another user cannot be limited");
    }
    fs::set_permissions(served.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let user = ["--reuid", "54321", "--regid", "54321", "--clear-groups"];
    // The last one allows the thread of a worker, and none for its runtime.
    for threads in 1..=5 {
        let limit = format!("--nproc={threads}");
        let mut command = piped("setpriv");
        command.args(user).args(["prlimit", &limit, env!("CARGO_BIN_EXE_underpass")]);
        command.args(["serve", "-q", "-p", "0", "--workers", "1"]).arg(served.path());
        let finished = Running::start(command).finish();
        if finished.stderr.contains("Permission denied") {
            return skip("the other user cannot reach the program");
        }
        assert_eq!(finished.code(), Some(1), "{threads}: {}", finished.stderr);
        assert!(finished.stderr.contains("starting a "), "{threads}: {}", finished.stderr);
        assert!(!finished.stderr.contains("panicked"), "{threads}: {}", finished.stderr);
    }
}

#[test]
fn a_declined_sendfile_continues_at_the_same_byte_and_is_reported() {
    let Some(stage) = Stage::new() else { return };
    for errno in ["EINVAL", "ENOSYS", "EOPNOTSUPP", "EPERM"] {
        for when in [1_u64, 5] {
            let inject = format!("inject=sendfile:error={errno}:when={when}");
            let strace = ["-e", "trace=sendfile", "-e", &inject];
            let server = stage.serve(&strace, &["--step", "1M"]);
            stage.curl(&server, "file").finish().succeeded();
            assert!(fs::read(&stage.target).unwrap() == noise(LEN), "{errno} at call {when}");
            stage.curl(&server, ".underpass/metrics").finish().succeeded();
            let metrics = fs::read_to_string(&stage.target).unwrap();
            let declined = format!("{{mechanism=\"sendfile\",errno=\"{errno}\"}} 1");
            assert!(metrics.contains(&declined), "{metrics}");
            let (_, log) = end(server);
            let moved = |name: &str| log[0]["mechanisms"][name].as_u64().unwrap_or(0);
            assert!(is_all(moved("sendfile") + moved("splice")), "{log:?}");
            assert_eq!(moved("sendfile") == 0, when == 1);
            let reason = log[0]["declined"][0].as_str().unwrap();
            assert!(reason.starts_with(&format!("sendfile {errno} at ")), "{reason}");
            assert_eq!(log[0]["complete"], true);
        }
    }
}

#[test]
fn a_disk_error_resets_the_connection() {
    let Some(stage) = Stage::new() else { return };
    for when in [1, 5] {
        let inject = format!("inject=sendfile:error=EIO:when={when}");
        let server = stage.serve(&["-e", "trace=sendfile", "-e", &inject], &["--step", "1M"]);
        let curl = stage.curl(&server, "file").finish();
        assert!(!curl.status.success() && stage.arrived() < LEN as u64);
        let (said, log) = end(server);
        assert!(said.stderr.contains("Input/output error; the client saw a reset"), "{said:?}");
        assert_eq!(log[0]["failure"], "failed");
        assert_eq!(log[0]["complete"], false);
    }
}

#[test]
fn a_file_cut_short_meanwhile_is_not_passed_off_as_whole() {
    let Some(stage) = Stage::new() else { return };
    let server = stage.serve(&[], &["--rate", "16M"]);
    let curl = stage.curl_midway(&server);
    File::options().write(true).open(&stage.source).unwrap().set_len(LEN as u64 - 1).unwrap();
    assert!(!curl.finish().status.success());
    assert!(stage.arrived() < LEN as u64);
    let (_, log) = end(server);
    let failure = log[0]["failure"].as_str().unwrap();
    assert!(["shrank", "changed"].contains(&failure), "{failure}");
}

#[test]
fn a_killed_server_leaves_no_client_content() {
    let Some(stage) = Stage::new() else { return };
    let mut server = stage.serve(&[], &["--rate", "16M"]);
    let curl = stage.curl_midway(&server);
    server.child.kill().unwrap();
    assert!(!curl.finish().status.success());
    assert!(stage.arrived() < LEN as u64);
}

#[test]
fn a_listing_that_ends_with_the_connection_is_reset_when_the_server_is_killed() {
    let folder = folder();
    for index in 0..20_000 {
        File::create(folder.path().join(format!("{index:0200}"))).unwrap();
    }
    for is_killed in [true, false] {
        let mut server = serve(&folder, &[]);
        let mut client = server.connect();
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        client.read_exact(&mut [0; 1000]).unwrap();
        if is_killed {
            server.child.kill().unwrap();
            server.child.wait().unwrap();
        }
        let mut listing = Vec::new();
        let end = client.read_to_end(&mut listing).map_err(|error| error.kind());
        assert_eq!(end.err(), is_killed.then_some(ErrorKind::ConnectionReset), "{is_killed}");
        assert_eq!(listing.ends_with(b"</html>\r\n"), !is_killed);
    }
}

/// Waits until a server that was asked to end accepts no connections.
fn until_closed(server: &Running) {
    let port = server.address.trim_matches(|c: char| !c.is_ascii_digit()).rsplit(':').next();
    let address = format!("127.0.0.1:{}", port.unwrap());
    until("nobody is let in", || TcpStream::connect(&address).is_err());
}

#[test]
fn sigterm_lets_a_download_end_and_accepts_no_connection() {
    let Some(stage) = Stage::new() else { return };
    let server = stage.serve(&[], &["--rate", "16M"]);
    let curl = stage.curl_midway(&server);
    // Like timeout(1), which signals a process and then its group.
    server.signal("TERM");
    server.signal("INT");
    until_closed(&server);
    curl.finish().succeeded();
    assert!(fs::read(&stage.target).unwrap() == noise(LEN));
    let said = server.finish().succeeded();
    assert!(said.stderr.contains("1 transfer"), "{}", said.stderr);
    assert!(said.text().contains("\"complete\":true"), "{}", said.text());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let Some(stage) = Stage::new() else { return };
    let server = stage.serve(&[], &["--rate", "4M"]);
    let curl = stage.curl_midway(&server);
    server.signal("TERM");
    until_closed(&server);
    std::thread::sleep(MOMENT);
    server.signal("TERM");
    let said = server.finish();
    assert!(!curl.finish().status.success(), "{}", said.stderr);
    assert!(said.text().contains("\"complete\":false"), "{}", said.text());
}

/// Longer than what takes two signals for one.
const MOMENT: Duration = Duration::from_millis(400);

/// The value of a field of proc_pid_status(5).
fn status(server: &Running, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(field));
    value.unwrap_or_default().trim().to_owned()
}

#[test]
fn a_second_signal_ends_it_though_its_worker_waits_for_the_kernel() {
    let Some(stage) = Stage::new() else { return };
    // Like a read of a file whose server does not respond.
    let delay = "inject=sendfile:delay_enter=600000000";
    let server = stage.serve(&["-e", "trace=sendfile", "-e", delay], &[]);
    let _curl = stage.curl(&server, "file");
    until("it waits", || {
        fs::read_to_string(stage.trace()).is_ok_and(|text| text.contains("sendfile("))
    });
    server.signal("TERM");
    std::thread::sleep(MOMENT);
    server.signal("INT");
    until("it has ended", || status(&server, "State:").starts_with('Z'));
    // strace keeps a thread that it delays.
    let tracer = status(&server, "TracerPid:");
    assert!(Command::new("kill").args(["-s", "KILL", &tracer]).status().unwrap().success());
    server.finish().failed(1, &[]);
}

#[test]
fn sighup_in_the_middle_of_a_download_reopens_the_log() {
    let Some(stage) = Stage::new() else { return };
    let logs = folder();
    let (log, old) = (logs.path().join("log"), logs.path().join("log.1"));
    let server = stage.serve(&[], &["--rate", "16M", "--log-file", log.to_str().unwrap()]);
    let curl = stage.curl_midway(&server);
    fs::rename(&log, &old).unwrap();
    server.signal("HUP");
    until("the new log", || log.exists());
    curl.finish().succeeded();
    end(server);
    assert!(fs::read_to_string(&log).unwrap().contains("\"target\":\"/file\""));
    assert!(fs::read_to_string(&old).unwrap().is_empty());
}

/// Fills a pipe, so that the next write to it waits. What is written is that of another description
/// of the file, for its flags are not to be those of the server.
fn fill(pipe: &PipeWriter) {
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let mut other = File::options().write(true).custom_flags(nonblocking).open(path).unwrap();
    while other.write(&[b'x'; 4096]).is_ok() {}
    while other.write(b"x").is_ok() {}
}

#[test]
fn a_server_ends_though_nothing_takes_its_log() {
    let served = folder();
    fs::write(served.path().join("small"), "text").unwrap();
    let (_reader, writer) = pipe().unwrap();
    let mut command = underpass();
    command.args(["serve", "-p", "0"]).arg(served.path()).stdout(writer.try_clone().unwrap());
    let server = Running::listening(command);
    fill(&writer);
    run(["get", "-q", "-o", "-", &format!("{}small", server.address)]).succeeded();
    let said = server.end().stderr;
    assert!(said.contains("the last log lines were lost"), "{said}");
}

#[test]
fn a_server_serves_though_nothing_takes_its_messages() {
    let served = folder();
    let file = noise_file(served.path(), "file", LEN);
    fs::write(served.path().join("small"), "text").unwrap();
    let (reader, writer) = pipe().unwrap();
    let mut command = underpass();
    command.args(["serve", "-p", "0", "-q", "--workers", "1", "--log-file", "/dev/null"]);
    command.arg(served.path()).stderr(writer.try_clone().unwrap());
    let mut server = KilledOnDrop(command.spawn().unwrap());
    let mut lines = BufReader::new(&reader).lines().map(|line| line.unwrap());
    // This is all that it says at the start.
    let line = lines.find(|line| line.contains(" at http://")).unwrap();
    let address = line.split_once(" at ").unwrap().1.to_owned();
    fill(&writer);
    // A failed transfer is reported, and so is what SIGHUP has read.
    let at = address.trim_start_matches("http://").trim_end_matches('/');
    let mut download = TcpStream::connect(at).unwrap();
    write!(download, "GET /file HTTP/1.1\r\nHost: {at}\r\n\r\n").unwrap();
    download.read_exact(&mut [0; 1000]).unwrap();
    File::options().write(true).open(file).unwrap().set_len(LEN as u64 - 1).unwrap();
    let _ = download.read_to_end(&mut Vec::new());
    signal(&server, "HUP");
    let got = run(["get", "-q", "-o", "-", "--timeout", "60", &format!("{address}small")]);
    assert_eq!(got.succeeded().stdout, b"text");
    signal(&server, "TERM");
    assert!(server.wait().unwrap().success());
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
}

/// The system calls of a trace behind the one that reads the request for `path`, up to the next
/// that reads one: their names and what they returned.
fn calls(trace: &Path, path: &str) -> Vec<(String, i64)> {
    let trace = fs::read_to_string(trace).unwrap();
    let lines = trace.lines().map(|line| line.split_once(' ').map_or(line, |(_, rest)| rest));
    let asks = format!("GET {path} ");
    let mut lines = lines.map(str::trim_start).skip_while(|line| !line.contains(&asks));
    lines.next().unwrap();
    let lines = lines.take_while(|line| !(line.starts_with("recvfrom(") && line.contains("GET ")));
    let parsed = lines.filter_map(|line| {
        // The end of a call during which another thread made one: `<... sendfile resumed>`.
        let name = match line.strip_prefix("<... ") {
            Some(resumed) => resumed.split(' ').next().unwrap(),
            None => line.split('(').next().unwrap(),
        };
        let name = name.to_owned();
        let result = line.rsplit(" = ").next()?.split_whitespace().next()?;
        Some((name, result.parse().unwrap_or(0)))
    });
    parsed.collect()
}

#[test]
fn no_byte_of_a_large_file_is_read_or_written() {
    let Some(stage) = Stage::new() else { return };
    let server = stage.serve(&["-s", "200"], &[]);
    let url = |path: &str| format!("{}{path}", server.address);
    // On one connection, with everything warm.
    fs::write(stage.served.path().join("small"), noise(4000)).unwrap();
    let mut curl = Command::new("curl");
    for path in ["file", "small", "file?again", "small?again", "small?end"] {
        curl.args(["-o", "/dev/null"]).arg(url(path));
    }
    curl.arg("-sS").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(curl).finish().succeeded();
    end(server);
    let large = calls(&stage.trace(), "/file?again");
    let sum = |names: &[&str]| -> i64 {
        let chosen =
            large.iter().filter(|(name, bytes)| names.contains(&name.as_str()) && *bytes > 0);
        chosen.map(|(_, bytes)| bytes).sum()
    };
    assert!(is_all(sum(&["sendfile"]).cast_unsigned()), "{large:?}");
    let others = ["read", "pread64", "readv", "write", "send", "sendto", "sendmsg", "writev"];
    // The head, and the lines of the log, which another thread writes.
    assert!(sum(&others) < 4096, "{large:?}");
    let small = calls(&stage.trace(), "/small?again");
    let moving: Vec<_> = small.iter().filter(|(_, bytes)| *bytes >= 4000).collect();
    assert!(
        matches!(moving[..], [(read, 4000), (send, _)] if read == "pread64" && send == "sendto")
    );
}

/// All files beneath a folder, hidden ones too, with their contents.
fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let entries = underpass_testkit::tree(folder).into_iter();
    let files = entries.filter_map(|(path, entry)| match entry.content {
        Content::File(bytes) => Some((path, String::from_utf8(bytes).unwrap())),
        _ => None,
    });
    files.collect()
}

/// Makes the folders and the file that a move or copy puts in the place of `old`.
fn prepare_replacement(served: &Path) {
    for entry in fs::read_dir(served).unwrap() {
        let path = entry.unwrap().path();
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
    fs::create_dir(served.join("dir")).unwrap();
    fs::write(served.join("dir/new"), "new").unwrap();
    fs::write(served.join("one"), "new").unwrap();
    fs::create_dir(served.join("old")).unwrap();
    fs::write(served.join("old/kept"), "old").unwrap();
}

/// Whether a move or copy in the place of `old` has succeeded.
fn replaces(server: &Running, method: &str, source: &str) -> bool {
    let mut curl = Command::new("curl");
    curl.args(["-sSf", "--noproxy", "*", "-X", method, "-H", "Destination: /old"]);
    curl.args(["-H", "Overwrite: T"]);
    curl.arg(format!("{}{source}", server.address)).stderr(Stdio::null());
    curl.status().unwrap().success()
}

#[test]
fn a_killed_server_leaves_the_old_folder_the_new_entry_or_a_move_to_repeat() {
    let Some(stage) = Stage::new() else { return };
    let served = stage.served.path();
    let has = |path: &str, text: &str| {
        fs::read_to_string(served.join(path)).is_ok_and(|found| found == text)
    };
    for (method, source) in [("MOVE", "dir"), ("COPY", "dir"), ("MOVE", "one"), ("COPY", "one")] {
        let mut was_killed = false;
        for when in 1..=4 {
            prepare_replacement(served);
            let renames = "?rename,?renameat,?renameat2";
            let inject = format!("inject={renames}:signal=SIGKILL:when={when}");
            let trace = format!("trace={renames}");
            let server = stage.serve(&["-e", &trace, "-e", &inject], &["--allow-all"]);
            let is_killed = !replaces(&server, method, source);
            assert!(!is_killed || server.finish().status.signal() == Some(9), "{method} {source}");
            was_killed |= is_killed;
            let is_old = has("old/kept", "old");
            let is_new = has("old/new", "new") || has("old", "new");
            let at = format!("{method} {source} {when}: {:?}", files(served));
            // Between two names of a move the target has none, and the source stays.
            let is_between = method == "MOVE" && !is_old && !is_new;
            assert!((is_old != is_new || is_between) && (is_killed || is_new), "{at}");
            // What is copied stays, and what is moved is at one of its names.
            let source = if source == "dir" { "dir/new" } else { "one" };
            assert!(has(source, "new") || (method == "MOVE" && is_new), "{at}");
        }
        assert!(was_killed, "{method} {source}");
    }
}

#[test]
fn a_server_killed_while_it_moves_to_another_file_system_leaves_both_as_they_were() {
    let Some(mut stage) = Stage::new() else { return };
    let Some(mounted) = Mounted::new(FileSystem::Tmpfs, 8) else { return };
    // The mount point has a name in the folder that is served.
    let target = mounted.root().file_name().unwrap().to_str().unwrap().to_owned();
    stage.served = tempfile::Builder::new()
        .prefix("own")
        .tempdir_in(mounted.root().parent().unwrap())
        .unwrap();
    let served = stage.served.path().parent().unwrap();
    let own = stage.served.path().file_name().unwrap().to_str().unwrap();
    for source in ["dir", "one"] {
        prepare_replacement(stage.served.path());
        let old = mounted.root().join("old");
        let _ = fs::create_dir(&old);
        fs::write(old.join("kept"), "old").unwrap();
        // The copy is complete, and its times are set.
        let inject = "inject=utimensat:signal=SIGKILL";
        let command = traced(&stage.trace(), &["-e", "trace=utimensat", "-e", inject]);
        let server = serve_by(command, served, &["--allow-all"]);
        let (from, to) = (format!("{own}/{source}"), format!("Destination: /{target}/old"));
        let mut curl = Command::new("curl");
        curl.args(["-sSf", "--noproxy", "*", "-X", "MOVE", "-H", &to, "-H", "Overwrite: T"]);
        curl.arg(format!("{}{from}", server.address)).stderr(Stdio::null());
        assert!(!curl.status().unwrap().success(), "{source}");
        assert_eq!(server.finish().status.signal(), Some(9), "{source}");
        assert!(fs::read_to_string(old.join("kept")).is_ok_and(|text| text == "old"), "{source}");
        let source = if source == "dir" { "dir/new" } else { "one" };
        assert!(fs::read_to_string(stage.served.path().join(source)).is_ok(), "{source}");
    }
}

const LOCK_INFO: &str = "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:exclusive/></D:lockscope>\
    <D:locktype><D:write/></D:locktype></D:lockinfo>";

/// The body of a request to set the modification time of a file to September 9, 2001.
const NEW_TIME: &str = "<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop>\
    <D:lastmodified>1000000000</D:lastmodified></D:prop></D:set></D:propertyupdate>";

/// The status and the body of the response to a request that changes something.
fn change(server: &Running, method: &str, path: &str, fields: &[&str]) -> (String, String) {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--noproxy", "*", "-w", "\n%{http_code}", "-X", method]);
    curl.args(fields.iter().flat_map(|field| ["-H", field]));
    match method {
        "LOCK" => drop(curl.args(["--data", LOCK_INFO])),
        "PROPPATCH" => drop(curl.args(["--data", NEW_TIME])),
        _ => {}
    }
    let output = curl.arg(format!("{}{path}", server.address)).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

#[test]
fn a_change_of_which_only_the_sync_fails_is_not_said_to_be_undone() {
    let Some(stage) = Stage::new() else { return };
    let served = stage.served.path();
    for name in ["deleted", "moved", "copied", "patched"] {
        fs::write(served.join(name), name).unwrap();
    }
    // Only the folder and one file cannot be synced, as after an error of the disk.
    let (folder, patched) = (served.to_str().unwrap(), served.join("patched"));
    let inject = "inject=fsync:error=EROFS";
    let strace = ["-P", folder, "-P", patched.to_str().unwrap(), "-e", "trace=fsync", "-e", inject];
    let server = stage.serve(&strace, &["--allow-all"]);
    let (status, lock) = change(&server, "LOCK", "deleted", &["Depth: 0"]);
    assert_eq!(status, "200", "{lock}");
    let token = lock.split("urn:uuid:").nth(1).unwrap().split('<').next().unwrap();
    let token = format!("If: (<urn:uuid:{token}>)");
    for (method, path, field) in [
        ("DELETE", "deleted", &*token),
        ("MOVE", "moved", "Destination: /new-place"),
        ("COPY", "copied", "Destination: /copy"),
        ("MKCOL", "made/", "Accept: */*"),
        ("PUT", "put", "Content-Length: 0"),
        ("LOCK", "locked", "Depth: 0"),
        ("PROPPATCH", "patched", "Depth: 0"),
    ] {
        let (status, body) = change(&server, method, path, &[field, "Accept: text/plain"]);
        let is_told = body.contains("may not survive a power cut");
        assert!(status == "500" && is_told, "{method}: {status} {body}");
    }
    let mut names: Vec<_> =
        fs::read_dir(served).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["copied", "copy", "file", "locked", "made", "new-place", "patched", "put"]);
    assert_eq!(fs::metadata(&patched).unwrap().mtime(), 1_000_000_000);
    // The lock has ended with its file.
    fs::write(served.join("deleted"), "again").unwrap();
    assert_eq!(change(&server, "LOCK", "deleted", &["Depth: 0"]).0, "200");
}

#[test]
fn a_clone_is_made_by_a_helper() {
    let Some(stage) = Stage::new() else { return };
    // The file system may refuse it, which the kernel is asked for all the same.
    let strace = ["-e", "trace=ioctl,recvfrom"];
    let server = stage.serve(&strace, &["--integrity", "snapshot"]);
    stage.curl(&server, "file").finish().succeeded();
    assert!(fs::read(&stage.target).unwrap() == noise(LEN));
    end(server);
    let trace = fs::read_to_string(stage.trace()).unwrap();
    let thread_of = |call: &str| {
        let line = trace.lines().find(|line| line.contains(call));
        line.and_then(|line| line.split_whitespace().next()).unwrap_or_else(|| panic!("{trace}"))
    };
    assert_ne!(thread_of("FICLONE"), thread_of("GET /file"));
}

#[test]
fn a_copy_fails_as_its_disk_does_and_leaves_nothing() {
    let Some(stage) = Stage::new() else { return };
    let served = stage.served.path();
    fs::create_dir(served.join("dir")).unwrap();
    fs::write(served.join("dir/inner"), noise(300_000)).unwrap();
    let inner = served.join("dir/inner");
    let originals = ["-P", stage.source.to_str().unwrap(), "-P", inner.to_str().unwrap()];
    // A hidden name does not have all of it.
    let new = "n".repeat(200);
    for (of, call, errno, expected, most) in [
        (&originals[..], "fstat", "EIO", "500", 9),
        (&[], "renameat2", "EIO", "500", 2),
        (&[], "renameat2", "ENOSPC", "507", 2),
    ] {
        for when in 1..=most {
            let inject = format!("inject={call}:error={errno}:when={when}");
            let trace = format!("trace={call}");
            let strace = [of, &["-e", &trace, "-e", &inject]].concat();
            let server = stage.serve(&strace, &["--allow-all"]);
            for path in ["file", "dir"] {
                let to = format!("Destination: /{new}");
                let (status, body) = change(&server, "COPY", path, &[&to]);
                let said = format!("{call} {when}: {status} {body}");
                // Not every look matters.
                assert!(status == expected || status == "201", "{said}");
                let made = served.join(&new);
                assert_eq!(made.exists(), status == "201", "{said}");
                let _ = fs::remove_file(&made).or_else(|_| fs::remove_dir_all(&made));
                assert_eq!(underpass_testkit::names(served), ["dir", "file"], "{said}");
            }
            end(server);
        }
    }
}

#[test]
fn a_folder_with_an_entry_that_cannot_be_read_is_not_listed_without_it() {
    let Some(stage) = Stage::new() else { return };
    // As of a damaged inode, or a server of files that is gone.
    let folder = stage.served.path().to_str().unwrap();
    let mounts = format!("{folder}/mounts");
    fs::create_dir_all(Path::new(&mounts).join("gone")).unwrap();
    let inject = ["-e", "trace=newfstatat", "-e", "inject=newfstatat:error=EIO"];
    let strace = [&["-P", folder, "-P", &mounts][..], &inject].concat();
    let server = stage.serve(&strace, &["--allow-all"]);
    // People find what is beside a mount whose server is gone.
    for path in ["mounts/", "mounts/?sort=time"] {
        let (status, page) = change(&server, "GET", path, &["Accept: text/html"]);
        assert!(status == "200" && page.contains("href=\"gone/"), "{status} {page}");
    }
    for (method, path) in [
        ("GET", "?json"),
        ("GET", ""),
        ("GET", "?sort=size"),
        ("GET", "mounts/?json"),
        ("PROPFIND", ""),
        ("PROPFIND", "mounts/"),
    ] {
        let (status, body) = change(&server, method, path, &["Depth: 1"]);
        assert_eq!(status, "500", "{method} {path}: {body}");
    }
    let (status, size) = change(&server, "GET", "?size", &[]);
    assert!(status == "200" && size.contains("\"complete\":false"), "{status} {size}");
    // A mirror keeps what it has.
    let mirror = stage.other.path();
    fs::write(mirror.join("file"), "yesterday's").unwrap();
    let mut get = underpass();
    get.args(["get", "-r", "--update", "--delete", "--retries", "0"]);
    get.arg(&server.address).arg("-d").arg(mirror);
    Running::start(get).finish().failed(1, &[]);
    assert_eq!(fs::read(mirror.join("file")).unwrap(), b"yesterday's");
}

/// Serves the sites `slow`, synced as `sync` says, and `quick`; a system call about the root of the
/// first takes 20 seconds.
fn serve_two(stage: &Stage, slow: &TempDir, quick: &TempDir, sync: &str, call: &str) -> Running {
    let site = |name: &str, root: &TempDir, sync: &str| {
        let root = root.path().display();
        format!(
            "[[site]]\nnames = ['{name}']\nroot = '{root}'\nallow_upload = true\nsync = '{sync}'\n"
        )
    };
    let config = stage.other.path().join("underpass.toml");
    fs::write(&config, site("slow", slow, sync) + &site("quick", quick, "off")).unwrap();
    let path = slow.path().to_str().unwrap();
    let (trace, delay) = (format!("trace={call}"), format!("inject={call}:delay_enter=20000000"));
    let mut command = traced(&stage.trace(), &["-P", path, "-e", &trace, "-e", &delay]);
    command.args(["serve", "-p", "0", "--config"]).arg(&config);
    Running::listening(command)
}

/// Begins to upload an empty file to a site.
fn put(server: &Running, host: &str) -> Child {
    let mut curl = Command::new("curl");
    curl.args(["-sSf", "--noproxy", "*", "-m", "15", "-X", "PUT", "-H", "If-None-Match: *"]);
    curl.args(["-H", "Content-Length: 0", "-H", &format!("Host: {host}")]);
    curl.arg(format!("{}file", server.address)).stderr(Stdio::null());
    curl.spawn().unwrap()
}

#[test]
fn the_slow_disk_of_one_site_delays_no_upload_to_another() {
    let Some(stage) = Stage::new() else { return };
    let (slow, quick) = (folder(), folder());
    let server = serve_two(&stage, &slow, &quick, "on", "fsync");
    let mut first = put(&server, "slow");
    until("the file has its name", || slow.path().join("file").exists());
    assert!(put(&server, "quick").wait().unwrap().success());
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn a_file_system_that_does_not_answer_delays_no_change_to_sites_on_another() {
    let Some(stage) = Stage::new() else { return };
    let (slow, quick) = (folder(), tempfile::tempdir_in("/dev/shm").unwrap());
    if slow.path().metadata().unwrap().dev() == quick.path().metadata().unwrap().dev() {
        return skip("all is on one file system");
    }
    let server = serve_two(&stage, &slow, &quick, "off", "linkat");
    let mut first = put(&server, "slow");
    std::thread::sleep(Duration::from_millis(700));
    assert!(put(&server, "quick").wait().unwrap().success());
    assert!(!slow.path().join("file").exists());
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn a_move_is_not_said_to_be_undone_if_what_it_replaced_cannot_be_removed() {
    let Some(stage) = Stage::new() else { return };
    let served = stage.served.path();
    for method in ["MOVE", "COPY"] {
        prepare_replacement(served);
        let strace = ["-e", "trace=unlinkat", "-e", "inject=unlinkat:error=EPERM"];
        let server = stage.serve(&strace, &["--allow-all"]);
        let fields = ["Destination: /old", "Overwrite: T", "Accept: text/plain"];
        let (status, body) = change(&server, method, "dir", &fields);
        assert!(
            status == "500" && body.contains("the change was made, but"),
            "{method}: {status} {body}"
        );
        assert!(served.join("old/new").exists() && !served.join("old/kept").exists(), "{method}");
        assert_eq!(served.join("dir").exists(), method == "COPY");
    }
}

#[test]
fn a_change_that_waits_is_checked_again_and_ends_with_its_client() {
    let Some(stage) = Stage::new() else { return };
    let served = stage.served.path();
    for folder in ["in", "in/x", "private"] {
        fs::create_dir(served.join(folder)).unwrap();
    }
    fs::write(served.join("private/secret"), "secret").unwrap();
    fs::write(served.join("in/kept"), "kept").unwrap();
    // Eight changes of one client run at once, and the others wait for them.
    let strace = ["-e", "trace=mkdirat", "-e", "inject=mkdirat:delay_enter=3000000"];
    let server = stage.serve(&strace, &["--allow-all", "-a", "me:pw@/in:rw"]);
    let begin = |request: &str| {
        let mut client = Client::new(server.connect());
        let fields = "Host: localhost\r\nAuthorization: Basic bWU6cHc=\r\nConnection: close";
        let (line, more) = request.split_once('\n').unwrap_or((request, "X: y"));
        client.send(format!("{line} HTTP/1.1\r\n{fields}\r\n{more}\r\n\r\n"));
        client
    };
    let running: Vec<_> = (0..8).map(|number| begin(&format!("MKCOL /in/{number}"))).collect();
    std::thread::sleep(Duration::from_millis(700));
    let copy = begin("COPY /in/x\nDestination: /in/copy");
    drop(begin("DELETE /in/kept"));
    std::thread::sleep(Duration::from_millis(700));
    fs::remove_dir(served.join("in/x")).unwrap();
    symlink("../private", served.join("in/x")).unwrap();
    for client in running {
        assert_eq!(client.finish().status, 201);
    }
    assert_eq!(copy.finish().status, 403);
    assert!(!served.join("in/copy").exists());
    // Later requests have had their turn after it.
    assert_eq!(begin("MKCOL /in/last").finish().status, 201);
    assert!(served.join("in/kept").exists(), "its client had left");
}

/// The thread that gives a file its name is stopped just after that.
#[test]
fn an_uploaded_file_does_not_change_once_it_has_its_name() {
    let Some(stage) = Stage::new() else { return };
    let trace = "trace=fcntl,linkat,renameat";
    let delay = "inject=linkat,renameat:delay_exit=1000000";
    let server = stage.serve(&["-e", trace, "-e", delay], &["--allow-upload"]);
    let source = noise_file(stage.other.path(), "source", 20_000);
    for name in ["new", "file"] {
        let mut put = piped("curl");
        put.args(["-sS", "--noproxy", "*", "-T"]).arg(&source);
        put.arg(format!("{}{name}", server.address));
        let put = Running::start(put);
        let path = stage.served.path().join(name);
        let before = fs::metadata(&path).map_or(0, |facts| facts.ino());
        until("it has its name", || fs::metadata(&path).is_ok_and(|facts| facts.ino() != before));
        assert_eq!(stage.curl(&server, name).finish().code(), Some(0), "{name}");
        assert_eq!(put.finish().code(), Some(0));
    }
    end(server);
    let log = fs::read_to_string(stage.trace()).unwrap();
    let refused = log.lines().find(|line| line.contains("F_SETLEASE") && line.contains("EAGAIN"));
    assert_eq!(refused, None, "{log}");
}

/// Opening a file is slow, so that others take its name before the server looks at its version.
#[test]
fn a_file_that_was_replaced_while_it_was_opened_is_not_sent_to_the_next_request() {
    let Some(stage) = Stage::new() else { return };
    let path = stage.served.path().join("file");
    let replace = |contents: &str| {
        let new = stage.served.path().join("new");
        fs::write(&new, contents).unwrap();
        fs::rename(&new, &path).unwrap();
    };
    replace("first");
    let delay = "inject=openat2:delay_exit=200000:when=1";
    let server = stage.serve(&["-e", "trace=openat2", "-e", delay], &[]);
    let mut client = Client::new(server.connect());
    let is_answered = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_answered.load(Ordering::Relaxed) {
                replace("old");
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        client.get("/file");
        is_answered.store(true, Ordering::Relaxed);
    });
    replace("newest");
    assert_eq!(client.get("/file").text(), "newest");
}

#[test]
fn a_killed_move_loses_no_file_after_the_next_start() {
    let Some(stage) = Stage::new() else { return };
    let served = stage.served.path();
    prepare_replacement(served);
    symlink("one", served.join("link")).unwrap();
    let long = "n".repeat(250);
    fs::rename(served.join("one"), served.join(&long)).unwrap();
    fs::write(served.join("one"), "one").unwrap();
    for name in ["old", "one", "link", &long] {
        // The old entry is aside, and the new one follows.
        let inject = "inject=renameat2:error=EIO:signal=KILL:when=3";
        let server = stage.serve(&["-e", "trace=renameat2", "-e", inject], &["--allow-all"]);
        let mut client = Client::new(server.connect());
        let fields = format!("Host: localhost\r\nDestination: /{name}\r\nOverwrite: T");
        client.send(format!("MOVE /dir HTTP/1.1\r\n{fields}\r\n\r\n"));
        let is_there = || served.join(name).symlink_metadata().is_ok();
        until("the old entry is aside", || !is_there());
        server.finish();
        assert!(served.join("dir/new").exists() && !is_there());
        let server = stage.serve(&[], &["--allow-all", "--upload-expiry", "1"]);
        until("it has its name back", is_there);
        end(server);
    }
    assert!(served.join("dir/new").exists() && served.join("old/kept").exists());
    assert_eq!(fs::read(served.join("link")).unwrap(), b"one");
    assert_eq!(fs::read(served.join(&long)).unwrap(), b"new");
    assert_eq!(underpass_testkit::names(served), ["dir", "link", &long, "old", "one"]);
}

#[test]
fn a_folder_whose_parent_vanishes_while_it_is_made_has_no_parent() {
    let Some(stage) = Stage::new() else { return };
    let inject = "inject=mkdirat:error=ENOENT";
    let server = stage.serve(&["-e", "trace=mkdirat", "-e", inject], &["--allow-all"]);
    let mut client = Client::new(server.connect());
    client.send("MKCOL /new HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.reply().status, 409);
    end(server);
}

#[test]
fn a_move_does_not_replace_what_is_put_there_meanwhile() {
    // The name is free, or becomes free when the folder that has it is moved aside.
    for (overwrite, steps, status) in [("F", 1, 201), ("T", 2, 204)] {
        let Some(stage) = Stage::new() else { return };
        if overwrite == "T" {
            fs::create_dir(stage.served.path().join("new")).unwrap();
        }
        // As on NFS, which cannot check and rename in one step; and the second step is late.
        let (refuse, delay) =
            ("inject=renameat2:error=EINVAL", "inject=renameat:delay_enter=2000000");
        let strace = ["-e", "trace=renameat2,renameat", "-e", refuse, "-e", delay];
        let server = stage.serve(&strace, &["--allow-all"]);
        let mut client = Client::new(server.connect());
        let fields = format!("Host: localhost\r\nDestination: /new\r\nOverwrite: {overwrite}");
        client.send(format!("MOVE /file HTTP/1.1\r\n{fields}\r\n\r\n"));
        until("it has checked the name", || {
            fs::read_to_string(stage.trace())
                .is_ok_and(|text| text.matches("renameat(").count() >= steps)
        });
        let mut other = Client::new(server.connect());
        other.send("PUT /new HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nnew");
        assert_eq!((client.reply().status, other.reply().status), (status, 204), "{overwrite}");
        assert_eq!(fs::read(stage.served.path().join("new")).unwrap(), b"new");
        end(server);
    }
}

#[test]
fn a_folder_is_removed_or_made_only_if_the_conditions_still_hold_at_that_moment() {
    let Some(stage) = Stage::new() else { return };
    let at = |name: &str| stage.served.path().join(name);
    fs::create_dir(at("dir")).unwrap();
    fs::write(at("newer"), "newer").unwrap();
    // A file is about to be replaced, and nothing else gets or loses a name until it is.
    let strace = ["-e", "trace=renameat", "-e", "inject=renameat:delay_enter=2000000"];
    let server = stage.serve(&strace, &["--allow-all"]);
    let etag = Client::new(server.connect()).get("/file").field("ETag").unwrap().to_owned();
    let mut client = Client::new(server.connect());
    let fields = "Host: localhost\r\nDestination: /file\r\nIf-Match: *";
    client.send(format!("MOVE /newer HTTP/1.1\r\n{fields}\r\n\r\n"));
    until("it is about to move", || {
        fs::read_to_string(stage.trace()).is_ok_and(|text| text.contains("renameat("))
    });
    let others = ["DELETE /dir", "MKCOL /made"].map(|request| {
        let mut other = Client::new(server.connect());
        let fields = format!("Host: localhost\r\nIf: </file> ([{etag}])");
        other.send(format!("{request} HTTP/1.1\r\n{fields}\r\n\r\n"));
        other
    });
    assert_eq!(client.reply().status, 204);
    assert_eq!(others.map(|mut other| other.reply().status), [412, 412]);
    assert!(at("dir").exists() && !at("made").exists());
    end(server);
}

#[test]
fn a_folder_is_not_made_in_one_that_has_moved_elsewhere() {
    let Some(stage) = Stage::new() else { return };
    fs::create_dir(stage.served.path().join("dir")).unwrap();
    let strace = ["-e", "trace=renameat2", "-e", "inject=renameat2:delay_enter=2000000"];
    let server = stage.serve(&strace, &["--allow-all"]);
    let mut client = Client::new(server.connect());
    client.send("MOVE /dir HTTP/1.1\r\nHost: localhost\r\nDestination: /moved\r\n\r\n");
    until("it is about to move", || {
        fs::read_to_string(stage.trace()).is_ok_and(|text| text.contains("renameat2("))
    });
    let mut other = Client::new(server.connect());
    other.send("MKCOL /dir/new HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((client.reply().status, other.reply().status), (201, 409));
    assert_eq!(underpass_testkit::names(&stage.served.path().join("moved")), [""; 0]);
    end(server);
}

#[test]
fn the_original_stays_if_the_name_of_its_copy_on_another_disk_cannot_be_synced() {
    if !has("strace") {
        return;
    }
    let Some(mounted) = Mounted::new(FileSystem::Tmpfs, 8) else { return };
    // The mount point has a name in the folder that is served.
    let served = mounted.root().parent().unwrap().to_owned();
    fs::create_dir(served.join("dir")).unwrap();
    for path in ["dir/file", "file"] {
        fs::write(served.join(path), path).unwrap();
    }
    let other = folder();
    // The bytes of a single file are synced by the same call before its name.
    for (name, inside, when) in [("dir", "dir/file", "1+"), ("file", "file", "2+")] {
        let inject = format!("inject=fsync:error=EIO:when={when}");
        let strace = ["-e", "trace=fsync", "-e", &inject];
        let args = ["--workers", "1", "--log-format", "json", "--allow-all", "--sync", "on"];
        let server = serve_by(traced(&other.path().join("trace"), &strace), &served, &args);
        let mut client = Client::new(server.connect());
        let fields = format!("Host: localhost\r\nDestination: /root/{name}");
        client.send(format!("MOVE /{name} HTTP/1.1\r\n{fields}\r\n\r\n"));
        let reply = client.reply();
        assert_eq!(reply.status, 500, "{name}: {}", reply.text());
        assert!(reply.text().contains("both remain"), "{name}: {}", reply.text());
        for root in [&served, &mounted.root()] {
            assert_eq!(fs::read_to_string(root.join(inside)).unwrap(), inside);
        }
        end(server);
    }
}
