//! Uploads to the real, confined server by real clients, and their faults: the kernel declines, the
//! server or the client is killed.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{XattrFlags, setxattr};
use serde_json::Value;
use tempfile::TempDir;

use underpass_testkit::http::Client;
use underpass_testkit::mounts::{FileSystem, Mounted};

use crate::rig::{
    Running, end, folder, has, limited, names, noise, noise_file, piped, serve, serve_by, traced,
    under, until,
};

const LEN: usize = 24 << 20;

/// What may be moved twice by a client whose server was killed.
const TWICE: u64 = 1 << 20;

/// A folder that is uploaded to, a file to upload, and a place for what strace says.
struct Stage {
    served: TempDir,
    other: TempDir,
    source: PathBuf,
}

impl Stage {
    /// `None`, with a message, if one of these programs is missing.
    fn new(programs: &[&str]) -> Option<Self> {
        programs.iter().all(|program| has(program)).then(|| {
            let (served, other) = (folder(), folder());
            let source = noise_file(other.path(), "source", LEN);
            Self { served, other, source }
        })
    }

    /// A server under strace, if that has options.
    fn serve(&self, strace: &[&str], args: &[&str]) -> Running {
        let own = ["--workers", "1", "--log-format", "json", "--allow-upload"];
        serve_by(traced(&self.trace(), strace), &self.served, &[&own, args].concat())
    }

    /// A server at this port.
    fn serve_at(&self, port: &str) -> Running {
        let mut command = crate::rig::underpass();
        command.args(["serve", "-p", port, "--workers", "1", "--log-format", "json"]);
        command.args(["--allow-upload", "--sync", "off"]).arg(self.served.path());
        Running::listening(command)
    }

    fn trace(&self) -> PathBuf {
        self.other.path().join("trace")
    }

    fn arrived(&self) -> Vec<u8> {
        fs::read(self.served.path().join("file")).unwrap()
    }

    /// curl that uploads to `/file` of the server, and prints the status.
    fn curl(&self, server: &Running, args: &[&str]) -> Command {
        let mut command = piped("curl");
        command.args(["-sS", "-w", "%{http_code}"]).args(args);
        command.arg(format!("{}file", server.address));
        command
    }

    /// The same to its end; what it printed.
    fn upload(&self, server: &Running, args: &[&str]) -> String {
        let source = self.source.to_str().unwrap();
        let curl = self.curl(server, &[&["-T", source], args].concat());
        Running::start(curl).finish().succeeded().text()
    }
}

#[test]
fn curl_puts_a_file_and_a_stream_into_a_confined_server() {
    let Some(stage) = Stage::new(&["curl"]) else { return };
    let server = stage.serve(&[], &[]);
    assert_eq!(stage.upload(&server, &[]), "201");
    assert!(stage.arrived() == noise(LEN));
    assert_eq!(stage.upload(&server, &[]), "204");
    let mut curl = stage.curl(&server, &["-T", "-"]);
    curl.stdin(File::open(&stage.source).unwrap());
    assert_eq!(Running::start(curl).finish().succeeded().text(), "204");
    assert!(stage.arrived() == noise(LEN));
    let (said, log) = end(server);
    assert!(said.stderr.contains("uploads to"), "{}", said.stderr);
    assert_eq!(names(stage.served.path()), ["file"]);
    assert_eq!(log.iter().map(|line| &line["received"]).sum_of(), 3 * LEN as u64);
    // A part of a chunk may be copied with its frame, no more.
    let copied = log.iter().map(|line| &line["mechanisms"]["read_write"]).sum_of();
    assert!(copied < 64 << 10, "{log:?}");
}

#[test]
fn an_upload_that_can_be_resumed_arrives_where_renames_have_no_flags() {
    let Some(mounted) = Mounted::new(FileSystem::NoCase, 64) else { return };
    let server = serve(mounted.root(), &["--log-format", "json", "--allow-upload"]);
    let here = folder();
    noise_file(here.path(), "file", LEN);
    let mut put = crate::rig::underpass();
    put.args(["put", "--retries", "1", "file", &server.address]).current_dir(here.path());
    Running::start(put).finish().succeeded();
    end(server);
    assert!(fs::read(mounted.root().join("file")).unwrap() == noise(LEN));
    assert_eq!(names(&mounted.root()), ["file"]);
}

#[test]
fn a_file_system_that_can_only_be_read_is_not_called_full() {
    let Some(stage) = Stage::new(&["curl"]) else { return };
    let Some(mounted) = Mounted::new(FileSystem::Tmpfs, 1) else { return };
    assert!(fs::write(mounted.root().join("all"), noise(2 << 20)).is_err());
    let mut remount = Command::new("mount");
    remount.args(["-o", "remount,ro"]).arg(mounted.root());
    assert!(remount.status().unwrap().success());
    let server = serve(mounted.root(), &["--log-format", "json", "--allow-upload"]);
    let reply = stage.upload(&server, &[]);
    assert!(reply.contains("the file system is read-only") && reply.ends_with("403"), "{reply}");
    end(server);
}

#[test]
fn a_confined_server_keeps_space_free_and_removes_parts_in_time() {
    let Some(stage) = Stage::new(&["curl"]) else { return };
    let full = stage.serve(&[], &["--min-free", "99%"]);
    let reply = stage.upload(&full, &[]);
    assert!(reply.ends_with("507"), "{reply}");
    end(full);
    let server = stage.serve(&[], &["--min-free", "1K", "--upload-expiry", "1"]);
    let created = stage.upload(&server, &["-H", "Upload-Complete: ?0"]);
    assert_eq!(created, "201");
    assert_eq!(names(stage.served.path()).len(), 1);
    until("the part is removed", || names(stage.served.path()).is_empty());
    let (_, log) = end(server);
    assert_eq!(log[0]["received"], LEN);
    for wrong in ["100%", "1Q", "some", "5.5%"] {
        let mut command = crate::rig::underpass();
        command.args(["serve", "--min-free", wrong]);
        let failed = Running::start(command).finish();
        assert_eq!(failed.status.code(), Some(2), "{wrong}");
        assert!(failed.stderr.contains("--min-free"), "{}", failed.stderr);
    }
}

/// Sums of numbers in JSON.
trait SumOf {
    fn sum_of(self) -> u64;
}

impl<'v, I: Iterator<Item = &'v Value>> SumOf for I {
    fn sum_of(self) -> u64 {
        self.filter_map(Value::as_u64).sum()
    }
}

#[test]
fn no_byte_of_a_body_is_read_or_written_by_the_server() {
    let Some(stage) = Stage::new(&["curl", "strace"]) else { return };
    let traced = "trace=read,pread64,readv,recvfrom,recvmsg,write,pwrite64,writev,sendto,splice";
    let server = stage.serve(&["-e", traced], &[]);
    // curl waits for 100 before it sends so large a body.
    assert_eq!(stage.upload(&server, &["--expect100-timeout", "30"]), "201");
    let (_, log) = end(server);
    assert_eq!(log[0]["mechanisms"]["splice"], LEN);
    assert_eq!(log[0]["mechanisms"]["read_write"], Value::Null);
    let trace = fs::read_to_string(stage.trace()).unwrap();
    let (mut spliced, mut others) = (0, 0);
    for line in trace.lines() {
        let call = line.split_once(' ').map_or(line, |(_, rest)| rest.trim_start());
        let result = call.rsplit(" = ").next().unwrap_or_default();
        let result: u64 = result.split(' ').next().unwrap().parse().unwrap_or(0);
        let sum = if call.starts_with("splice(") { &mut spliced } else { &mut others };
        *sum += result;
    }
    // Into the pipe and out of it.
    assert_eq!(spliced, 2 * LEN as u64);
    // The loader's reads of libraries, the head, the log.
    assert!(others < 96 << 10, "{others} bytes");
}

#[test]
fn a_splice_that_is_declined_in_the_middle_loses_nothing() {
    let Some(stage) = Stage::new(&["curl", "strace"]) else { return };
    for (errno, when) in [("EINVAL", 1), ("EINVAL", 2), ("EINVAL", 19), ("EPERM", 40)] {
        let inject = format!("inject=splice:error={errno}:when={when}");
        let server = stage.serve(&["-e", "trace=splice", "-e", &inject], &["--step", "256K"]);
        let status = stage.upload(&server, &[]);
        assert!(matches!(status.as_str(), "201" | "204"), "{status}");
        assert!(stage.arrived() == noise(LEN), "{errno} at call {when}");
        let (_, log) = end(server);
        let moved = |name: &str| log[0]["mechanisms"][name].as_u64().unwrap_or(0);
        assert_eq!(moved("splice") + moved("read_write"), LEN as u64);
        assert!(moved("read_write") > 0);
        let reason = log[0]["declined"][0].as_str().unwrap();
        assert!(reason.starts_with(&format!("splice {errno} at ")), "{reason}");
        assert_eq!(names(stage.served.path()), ["file"]);
    }
}

#[test]
fn a_disk_error_is_reported_and_leaves_nothing() {
    let Some(stage) = Stage::new(&["curl", "strace"]) else { return };
    let inject = "inject=splice:error=EIO:when=8";
    let server = stage.serve(&["-e", "trace=splice", "-e", inject], &["--step", "256K"]);
    let curl = stage.curl(&server, &["-T", stage.source.to_str().unwrap()]);
    let said = Running::start(curl).finish();
    assert!(said.text().ends_with("500") || !said.status.success(), "{said:?}");
    let (finished, log) = end(server);
    assert!(finished.stderr.contains("Input/output error"), "{}", finished.stderr);
    assert_eq!((&log[0]["status"], &log[0]["failure"]), (&500.into(), &"failed".into()));
    assert_eq!(names(stage.served.path()), [""; 0]);
}

#[test]
fn curl_resumes_after_it_was_killed() {
    let Some(stage) = Stage::new(&["curl"]) else { return };
    curl_is_killed(&stage, &[]);
}

#[test]
fn a_part_that_is_being_synced_has_its_length_or_none() {
    let Some(stage) = Stage::new(&["curl", "strace"]) else { return };
    curl_is_killed(&stage, &["-e", "trace=fdatasync", "-e", "inject=fdatasync:delay_enter=500000"]);
}

/// curl is killed in the middle of an upload, and another one goes on at the length that the server
/// has.
fn curl_is_killed(stage: &Stage, strace: &[&str]) {
    let server = stage.serve(strace, &[]);
    let source = stage.source.to_str().unwrap();
    let slow = stage.curl(&server, &["--limit-rate", "8M", "-T", source]);
    let mut curl = Running::start(slow);
    until("enough is here", || {
        let url = format!("{}.underpass/transfers?json", server.address);
        let seen = Command::new("curl").arg("-sS").arg(url).output().unwrap();
        let seen: Value = serde_json::from_slice(&seen.stdout).unwrap();
        seen[0]["bytes"].as_u64().is_some_and(|bytes| bytes > 2 << 20)
    });
    curl.child.kill().unwrap();
    drop(curl);
    let mut at = String::new();
    until("a part is kept", || {
        let mut head = Command::new("curl");
        head.args(["-sSI", "-o", "/dev/null", "-w", "%header{upload-offset}"]);
        head.arg(format!("{}file?partial", server.address));
        at = String::from_utf8(head.output().unwrap().stdout).unwrap();
        !at.is_empty()
    });
    assert!((1 << 20..LEN as u64).contains(&at.parse().unwrap()), "{at}");
    assert_eq!(stage.upload(&server, &["-C", &at]), "201");
    assert!(stage.arrived() == noise(LEN));
    end(server);
    assert_eq!(names(stage.served.path()), ["file"]);
}

#[test]
fn bytes_that_are_gone_since_they_were_counted_leave_no_hole() {
    let Some(stage) = Stage::new(&["curl", "strace"]) else { return };
    let file = stage.served.path().join("file");
    let (half, mut statuses) = (LEN / 2, Vec::new());
    fs::write(stage.other.path().join("half"), &noise(LEN)[..half]).unwrap();
    for when in 1..=6 {
        // Which of its bytes a part can be trusted with is an attribute. The calls of both requests
        // are counted together: one thread receives them.
        let inject = format!("inject=fgetxattr:error=EIO:when={when}");
        let strace = ["-e", "trace=fgetxattr", "-e", &inject];
        let server = stage.serve(&strace, &["--sync", "off"]);
        let begins = format!("Content-Range: bytes 0-{}/{LEN}", half - 1);
        let first = format!("@{}/half", stage.other.path().display());
        let put = ["-o", "/dev/null", "-X", "PUT", "-H", &begins, "--data-binary", &first];
        Running::start(stage.curl(&server, &put)).finish().succeeded();
        let at = half.to_string();
        let said = stage.upload(&server, &["-o", "/dev/null", "-C", &at]);
        assert_eq!(file.exists(), said == "201", "{said} at call {when}");
        assert!(said != "201" || stage.arrived() == noise(LEN), "other bytes at call {when}");
        statuses.push(said);
        end(server);
        for name in names(stage.served.path()) {
            fs::remove_file(stage.served.path().join(name)).unwrap();
        }
    }
    assert!(["201", "503"].iter().all(|it| statuses.iter().any(|said| said == it)), "{statuses:?}");
}

#[test]
fn a_part_that_lacks_only_its_name_is_asked_for_its_last_byte() {
    let Some(stage) = Stage::new(&["curl", "strace"]) else { return };
    let file = stage.served.path().join("file");
    for old in [None, Some("old")] {
        old.iter().for_each(|text| fs::write(&file, text).unwrap());
        // The first rename says that the part is complete, the second would give it its name.
        let kill = "inject=renameat:error=EIO:signal=KILL:when=2";
        let server = stage.serve(&["-e", "trace=renameat", "-e", kill], &[]);
        let range = format!("Content-Range: bytes 0-{}/{LEN}", LEN - 1);
        let source = stage.source.to_str().unwrap();
        Running::start(stage.curl(&server, &["-T", source, "-H", &range])).finish();
        server.finish();
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), old);
        let server = stage.serve(&[], &[]);
        let mut client = Client::new(server.connect());
        let asked = client.ask("HEAD", "/file?partial", &[]);
        let at = (LEN - 1).to_string();
        assert_eq!((asked.status, asked.field("Upload-Offset")), (204, Some(at.as_str())));
        let status = if old.is_some() { "204" } else { "201" };
        assert_eq!(stage.upload(&server, &["-C", &at]), status);
        assert!(stage.arrived() == noise(LEN));
        assert_eq!(client.ask("HEAD", "/file?partial", &[]).status, 404);
        end(server);
        assert_eq!(names(stage.served.path()), ["file"]);
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_part_that_lacks_only_its_name_does_not_replace_a_newer_version() {
    let Some(stage) = Stage::new(&["curl", "strace"]) else { return };
    let file = stage.served.path().join("file");
    fs::write(&file, "old").unwrap();
    let kill = "inject=renameat:error=EIO:signal=KILL:when=2";
    let server = stage.serve(&["-e", "trace=renameat", "-e", kill], &[]);
    let range = format!("Content-Range: bytes 0-{}/{LEN}", LEN - 1);
    let source = stage.source.to_str().unwrap();
    Running::start(stage.curl(&server, &["-T", source, "-H", &range])).finish();
    server.finish();
    fs::write(&file, "newer").unwrap();
    let server = stage.serve(&[], &[]);
    assert_eq!(Client::new(server.connect()).ask("HEAD", "/file?partial", &[]).status, 404);
    let said = stage.upload(&server, &["-C", &(LEN - 1).to_string()]);
    assert!(said.ends_with("416"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "newer");
    end(server);
}

#[test]
fn a_file_whose_acl_cannot_be_read_now_is_not_replaced_without_it() {
    let Some(stage) = Stage::new(&["curl", "strace"]) else { return };
    let file = stage.served.path().join("file");
    let mut refused = 0;
    // Some of these calls read other attributes, without which the file can be replaced.
    for when in 1..=8 {
        fs::write(&file, "old").unwrap();
        let inject = format!("inject=fgetxattr:error=EIO:when={when}");
        let strace = ["-P", file.to_str().unwrap(), "-e", "trace=fgetxattr", "-e", &inject];
        let server = stage.serve(&strace, &[]);
        let said = stage.upload(&server, &[]);
        end(server);
        let trace = fs::read_to_string(stage.trace()).unwrap();
        let of_acl = |line: &str| line.contains("posix_acl_access") && line.contains("INJECTED");
        if trace.lines().any(of_acl) {
            refused += 1;
            assert!(said.ends_with("500"), "{said} at call {when}");
            assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        }
        assert_eq!(names(stage.served.path()), ["file"]);
    }
    assert_eq!(refused, 1);
}

#[test]
fn a_server_outlives_an_upload_over_the_limit_of_a_file() {
    let Some(stage) = Stage::new(&["curl"]) else { return };
    let server = serve_by(limited("-f 16"), &stage.served, &["--allow-upload"]);
    let answer = stage.upload(&server, &[]);
    assert!(answer.ends_with("413"), "{answer}");
    assert!(names(stage.served.path()).is_empty());
    let small = noise_file(stage.other.path(), "small", 1000);
    let url = format!("http://{}/small", server.host());
    let put = Command::new("curl").args(["-fsS", "-T"]).arg(small).arg(url).status().unwrap();
    assert!(put.success());
    let said = server.end().stderr;
    // The client saw the 413.
    assert!(said.contains("File too large") && !said.contains("reset"), "{said}");
}

#[test]
fn nothing_is_kept_of_an_upload_that_is_larger_than_a_file_may_be() {
    let Some(stage) = Stage::new(&["curl"]) else { return };
    let server = serve_by(limited("-f 16"), &stage.served, &["--allow-upload"]);
    let range = format!("Content-Range: bytes 0-{}/{LEN}", LEN - 1);
    for fields in [&[&*range][..], &["Upload-Complete: ?1", "Upload-Draft-Interop-Version: 8"]] {
        let args: Vec<_> = fields.iter().flat_map(|field| ["-H", field]).collect();
        let answer = stage.upload(&server, &args);
        assert!(answer.ends_with("413"), "{answer}");
        until("nothing is left", || names(stage.served.path()).is_empty());
    }
}

#[test]
fn an_upload_outlives_a_server_that_is_killed() {
    let Some(stage) = Stage::new(&[]) else { return };
    let mut server = stage.serve(&[], &[]);
    let all = noise(LEN);
    let mut client = Client::new(server.connect());
    client.send(format!(
        "PUT /file HTTP/1.1\r\nHost: localhost\r\nUpload-Complete: ?1\r\nContent-Length: {LEN}\r\n\
         Upload-Draft-Interop-Version: 8\r\n\r\n"
    ));
    let begun = client.head().unwrap();
    assert_eq!(begun.status, 104);
    client.send(&all[..LEN / 2]);
    until("something is on its way", || names(stage.served.path()).len() == 1);
    server.child.kill().unwrap();
    drop(server);
    assert!(!stage.served.path().join("file").exists());
    let server = stage.serve(&[], &[]);
    let mut client = Client::new(server.connect());
    let location = begun.upload_of("/file");
    let found = client.ask("HEAD", &location, &[]);
    assert_eq!(found.status, 204);
    let at: usize = found.field("Upload-Offset").unwrap().parse().unwrap();
    assert!(at <= LEN / 2);
    client.send(format!(
        "PATCH {location} HTTP/1.1\r\nHost: localhost\r\nUpload-Complete: ?1\r\nUpload-Offset: {at}\r\n\
         Content-Type: application/partial-upload\r\nContent-Length: {}\r\n\r\n",
        LEN - at
    ));
    client.send(&all[at..]);
    while client.head().unwrap().status != 201 {}
    assert!(stage.arrived() == all);
    end(server);
    assert_eq!(names(stage.served.path()), ["file"]);
}

/// `UNDERPASS_KILLS` says how often the server is killed, instead of a few times.
#[test]
fn a_server_that_is_killed_at_any_moment_leaves_the_old_file_or_the_new_one() {
    let Some(stage) = Stage::new(&[]) else { return };
    let rounds = std::env::var("UNDERPASS_KILLS").map_or(4, |text| text.parse().unwrap());
    let (file, state) = (stage.served.path().join("file"), folder());
    let (old, new) = (noise(LEN / 2), noise(LEN));
    let put = |port: &str| {
        let mut command = crate::rig::underpass();
        command.args(["put", "--json", "--rate", "48M"]).arg(&stage.source);
        command.arg(format!("http://127.0.0.1:{port}/file"));
        command.env("XDG_STATE_HOME", state.path());
        Running::start(command)
    };
    let mut server = stage.serve_at("0");
    let port = server.address.trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    let began = Instant::now();
    put(&port).finish().succeeded();
    let usual = began.elapsed();
    let (mut resumed, mut replaced) = (0, 0);
    for round in 0..rounds {
        fs::write(&file, &old).unwrap();
        let client = put(&port);
        // Moments spread evenly over the time that it usually takes, and some beyond.
        sleep(usual * (round * 37 % 101) / 90);
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        let found = fs::read(&file).unwrap();
        assert!(found == old || found == new, "round {round}: neither the old nor the new file");
        replaced += u32::from(found == new);
        server = stage.serve_at(&port);
        let mut finished = client.finish();
        if finished.code() != Some(0) {
            // The client got no response.
            let is_early =
                ["refused", "reset by peer"].iter().any(|it| finished.stderr.contains(it));
            assert!(is_early, "{}", finished.stderr);
            finished = put(&port).finish().succeeded();
        }
        resumed += u32::from(finished.stderr.contains("resuming there"));
        let moved = finished.receipt()["bytes"].as_u64().unwrap();
        assert!(moved <= LEN as u64 + TWICE, "round {round}: {moved} bytes moved");
        assert!(fs::read(&file).unwrap() == new, "round {round}: other bytes");
        assert_eq!(names(stage.served.path()), ["file"], "round {round}");
    }
    println!("{rounds} kills: {replaced} after the new file was there, {resumed} uploads went on");
    end(server);
}

#[test]
fn a_server_without_the_right_to_write_reports_it() {
    let Some(stage) = Stage::new(&["curl", "setpriv"]) else { return };
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let root = stage.served.path();
    fs::set_permissions(root, fs::Permissions::from_mode(0o555)).unwrap();
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    // Root may write everywhere, unless it gives that up.
    let bounded = ["setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-dac_override"];
    let server = serve_by(under(if is_root { &bounded } else { &[] }), root, &["-q", "-A"]);
    let curl = stage.curl(&server, &["-o", "/dev/null", "-T", stage.source.to_str().unwrap()]);
    assert!(Running::start(curl).finish().text().ends_with("403"));
    server.end();
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(names(Path::new(root)), [""; 0]);
}

#[test]
fn a_folder_that_cannot_be_read_during_its_removal_is_named_and_the_rest_is_removed() {
    let Some(stage) = Stage::new(&["strace"]) else { return };
    let top = stage.served.path().join("top");
    fs::create_dir_all(top.join("inner")).unwrap();
    fs::write(top.join("inner/kept"), "x").unwrap();
    fs::write(top.join("file"), "x").unwrap();
    // Each of the two folders is read by two calls, at first to check what is in them.
    let strace = ["-e", "trace=getdents64", "-e", "inject=getdents64:error=EIO:when=7"];
    let server = stage.serve(&strace, &["--allow-delete"]);
    let reply = Client::new(server.connect()).ask("DELETE", "/top/", &[]);
    assert_eq!(reply.status, 207, "{reply:?}");
    assert!(reply.text().contains("<D:href>/top/inner/</D:href>"), "{reply:?}");
    end(server);
    assert_eq!(names(&top), ["inner"]);
    assert_eq!(names(&top.join("inner")), ["kept"]);
}

#[test]
fn a_connection_that_is_closed_for_another_changes_nothing() {
    let Some(stage) = Stage::new(&[]) else { return };
    let file = stage.served.path().join("file");
    let limits = ["--allow-delete", "--max-connections", "2", "--max-per-address", "0"];
    let server = stage.serve(&[], &limits);
    for _ in 0..5 {
        fs::write(&file, "x").unwrap();
        let (mut first, second) = (server.connect(), server.connect());
        sleep(Duration::from_millis(100));
        // The server finds the request and the connections too many at the same time.
        server.signal("STOP");
        let others = [server.connect(), server.connect()];
        first.write_all(b"DELETE /file HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        server.signal("CONT");
        let mut reply = [0; 12];
        // Closed or reset.
        let is_answered = first.read_exact(&mut reply).is_ok();
        sleep(Duration::from_millis(100));
        assert_eq!(is_answered, !file.exists(), "{}", String::from_utf8_lossy(&reply));
        drop((first, second, others));
    }
    end(server);
}

#[test]
fn a_folder_keeps_its_name_unless_its_removal_is_confirmed() {
    let Some(stage) = Stage::new(&["strace"]) else { return };
    let top = stage.served.path().join("top");
    let server = stage.serve(&[], &["--allow-delete"]);
    let tasks = format!("/proc/{}/task", server.child.id());
    let is_traced = || {
        fs::read_dir(&tasks).unwrap().flatten().all(|task| {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            !status.contains("TracerPid:\t0\n")
        })
    };
    let mut refused = 0;
    for when in 1..14 {
        fs::create_dir_all(&top).unwrap();
        fs::write(top.join("file"), "x").unwrap();
        let mut strace = piped("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=newfstatat", "-e"]);
        strace.arg(format!("inject=newfstatat:error=EIO:when={when}"));
        let strace = Running::start({
            strace.args(["-p", &server.child.id().to_string()]);
            strace
        });
        until("the server is traced", is_traced);
        let reply = Client::new(server.connect()).ask("DELETE", "/top/", &[]);
        strace.signal("INT");
        drop(strace.finish());
        let expected: &[&str] = if reply.status == 204 { &[] } else { &["top"] };
        assert_eq!(names(stage.served.path()), expected, "{when}: {reply:?}");
        refused += u32::from(reply.status != 204);
    }
    assert!(refused > 0);
    end(server);
}

#[test]
fn a_file_whose_properties_cannot_be_carried_over_is_not_replaced() {
    let Some(stage) = Stage::new(&["strace"]) else { return };
    let file = stage.served.path().join("file");
    let name = c"user.underpass.properties";
    for (call, errno, status) in [("openat", "EMFILE", 503), ("fsetxattr", "ENOSPC", 507)] {
        fs::write(&file, "old").unwrap();
        let value = b"<properties xmlns=\"DAV:\"/>";
        if setxattr(&file, name, value, XattrFlags::empty()).is_err() {
            return;
        }
        let inject = format!("inject={call}:error={errno}:when=1");
        let mut strace = vec!["-e", "trace=openat,fsetxattr", "-e", &*inject];
        if call == "openat" {
            strace.extend(["-P", "file"]);
        }
        let server = stage.serve(&strace, &[]);
        let mut client = Client::new(server.connect());
        client.send("PUT /file HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nnew");
        assert_eq!(client.reply().status, status, "{call}");
        end(server);
        assert_eq!(fs::read(&file).unwrap(), b"old");
        assert_eq!(names(stage.served.path()), ["file"]);
    }
}
