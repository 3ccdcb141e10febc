//! The sandbox of the server, seen from outside and tried from inside.

use std::collections::BTreeMap;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::rig::{Running, folder, has, run, serve, serve_by, underpass, until};
use underpass_testkit::{PATIENCE, is_root, skip};

/// Errors that mean "refused".
const EPERM: i32 = 1;
const EACCES: i32 = 13;
const ENOSYS: i32 = 38;

/// The attempts, and the errors that refuse them. All others must succeed.
const REFUSED: [(&str, &[i32]); 35] = [
    ("bpf", &[EPERM]),
    ("chown", &[EPERM]),
    ("clone3", &[ENOSYS]),
    ("executable_memory", &[EPERM]),
    ("execve", &[EPERM]),
    ("fast_open", &[EPERM]),
    ("fast_open_message", &[EPERM]),
    ("fork", &[EPERM]),
    ("io_uring_setup", &[EPERM]),
    ("keyctl", &[EPERM]),
    ("kill", &[EPERM]),
    ("limit_another", &[EPERM]),
    ("memfd_create", &[EPERM]),
    ("mode_inside", &[EPERM]),
    ("mode_outside", &[EPERM]),
    ("mount", &[EPERM]),
    ("mptcp_socket", &[EPERM]),
    ("number_of_signals", &[EPERM]),
    ("owner_by_kind", &[EPERM]),
    ("owner_of_signals", &[EPERM]),
    ("packet_socket", &[EPERM]),
    ("process_vm_readv", &[EPERM]),
    ("ptrace", &[EPERM]),
    ("raw_socket", &[EPERM]),
    ("read_outside", &[EACCES]),
    ("set_user_id", &[EPERM]),
    ("setuid", &[EPERM]),
    ("signal_another", &[EPERM]),
    ("tcp_socket", &[EPERM]),
    ("terminal_input", &[EPERM]),
    ("time_inside", &[EPERM]),
    ("unix_stream", &[EPERM]),
    ("unshare", &[EPERM]),
    ("write_inside", &[EACCES]),
    ("write_outside", &[EACCES]),
];

/// A folder to serve that every user can read, with a file in it and one beside it.
struct Place {
    temporary: tempfile::TempDir,
    root: PathBuf,
}

impl Place {
    fn new() -> Self {
        let temporary = folder();
        let root = temporary.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("file"), "inside").unwrap();
        fs::write(temporary.path().join("outside"), "outside").unwrap();
        for (path, mode) in [("", 0o755), ("root", 0o755), ("root/file", 0o666), ("outside", 0o666)]
        {
            let path = temporary.path().join(path);
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        Self { temporary, root }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.temporary.path().join(name)
    }

    /// Starts a server of the root with these options.
    fn serve(&self, args: &[&str]) -> Running {
        serve(&self.root, args)
    }

    /// The same with the attempts inside.
    fn serve_with_attempts(&self, args: &[&str]) -> Running {
        serve_by(self.with_attempts(&self.root.join("file")), &self.root, args)
    }

    /// A program with the attempts inside, some of which are about a file.
    fn with_attempts(&self, inside: &Path) -> Command {
        let library = self.at("attempts.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/attempts.c");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-O1", "-o"]);
        let built = cc.arg(&library).arg(source).status().unwrap();
        assert!(built.success());
        let mut command = underpass();
        command.env("LD_PRELOAD", library).env("ATTEMPTS_REPORT", self.at("report"));
        command.env("ATTEMPTS_INSIDE", inside).env("ATTEMPTS_OUTSIDE", self.at("outside"));
        command
    }

    /// The error number of each attempt, 0 for success.
    fn attempts(&self, server: &Running) -> BTreeMap<String, i32> {
        server.signal("USR2");
        let read = || fs::read_to_string(self.at("report")).unwrap_or_default();
        until("the attempts are made", || read().contains("end 0"));
        let report = read();
        let lines = report.lines().filter_map(|line| line.split_once(' '));
        lines.map(|(name, error)| (name.to_owned(), error.parse().unwrap())).collect()
    }
}

/// The lines of /proc/PID/status by name, for all threads of a process.
fn status(server: &Running, name: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    let line = |task: PathBuf| {
        let text = fs::read_to_string(task.join("status")).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")))?;
        Some(value.split_whitespace().next().unwrap_or_default().to_owned())
    };
    tasks.filter_map(|task| line(task.unwrap().path())).collect()
}

fn get(server: &Running, path: &str) -> Vec<u8> {
    let url = format!("{}{path}", server.address);
    run(["get", "-q", "-o", "-", &url]).succeeded().stdout
}

#[test]
fn a_confined_server_can_only_serve() {
    if !has("cc") {
        return;
    }
    let place = Place::new();
    let server = place.serve_with_attempts(&[]);
    let attempts = place.attempts(&server);
    for (name, errors) in REFUSED {
        let error = attempts.get(name).copied();
        assert!(error.is_some_and(|error| errors.contains(&error)), "{name}: {error:?}");
    }
    let refused = REFUSED.map(|(name, _)| name);
    for (name, error) in attempts.iter().filter(|(name, _)| !refused.contains(&name.as_str())) {
        assert_eq!(*error, 0, "{name}");
    }
    assert!(attempts.contains_key("read_inside") && attempts.contains_key("thread"));
    // It still serves, after all of that.
    assert_eq!(get(&server, "file"), b"inside");
    assert_eq!(fs::read(place.at("outside")).unwrap(), b"outside");
}

#[test]
fn a_server_that_changes_files_or_connects_gets_only_these_rights() {
    if !has("cc") {
        return;
    }
    let place = Place::new();
    let origin = place.serve(&[]);
    let cache = place.at("cache");
    let mut command = place.with_attempts(&cache.join("file"));
    command.args(["serve", "--port", "0", "--cache-free", "0", "--origin", &origin.address]);
    command.arg("--cache").arg(&cache);
    let node = Running::listening(command);
    fs::write(cache.join("file"), "kept").unwrap();
    let changes = ["mode_inside", "time_inside", "write_inside"];
    let refused_to = |server: &Running, gained: &[&str]| {
        let attempts = place.attempts(server);
        for (name, errors) in REFUSED {
            let error = attempts.get(name).copied().unwrap_or(-1);
            let is_gained = changes.contains(&name) || gained.contains(&name);
            let is_right = if is_gained { error == 0 } else { errors.contains(&error) };
            assert!(is_right, "{name}: {error}");
        }
    };
    refused_to(&node, &["tcp_socket", "unix_stream"]);
    end(node);
    refused_to(&place.serve_with_attempts(&["-A"]), &[]);
}

#[test]
fn without_the_sandbox_the_attempts_succeed() {
    if !has("cc") {
        return;
    }
    let place = Place::new();
    let server = place.serve_with_attempts(&["--no-sandbox"]);
    let mut command = Command::new("true");
    // The first attempt is execve, which succeeds and ends the server: the test can fail.
    assert!(command.status().unwrap().success());
    server.signal("USR2");
    let finished = server.finish();
    assert_eq!(finished.code(), Some(0), "{}", finished.stderr);
    assert_eq!(fs::read_to_string(place.at("report")).unwrap(), "");
}

#[test]
fn every_thread_runs_filtered_as_the_user_without_capabilities() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let place = Place::new();
    let server = place.serve(&["--user", "nobody", "--workers", "3"]);
    assert_eq!(get(&server, "file"), b"inside");
    let uid = Command::new("id").args(["-u", "nobody"]).output().unwrap().stdout;
    let uid = String::from_utf8(uid).unwrap().trim().to_owned();
    for (name, expected) in [("Uid", uid.as_str()), ("Seccomp", "2"), ("NoNewPrivs", "1")] {
        let values = status(&server, name);
        assert!(values.len() > 3, "{name}: {values:?}");
        assert!(values.iter().all(|value| value == expected), "{name}: {values:?}");
    }
    // CAP_LEASE, number 28, is the one that is kept.
    for name in ["CapEff", "CapPrm", "CapBnd"] {
        for value in status(&server, name) {
            let set = u64::from_str_radix(&value, 16).unwrap();
            assert_eq!(set & !(1 << 28), 0, "{name}: {value}");
        }
    }
    assert!(status(&server, "CapInh").iter().all(|value| value.bytes().all(|digit| digit == b'0')));
    let said = end(server);
    for words in ["user nobody", "capabilities lease", "allowed by seccomp", "confined by Landlock"]
    {
        assert!(said.contains(words), "'{words}' is not in: {said}");
    }
    assert!(!said.contains("serving as root"), "{said}");
}

#[test]
fn a_cache_belongs_to_the_user_that_fills_it() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let place = Place::new();
    let origin = place.serve(&[]);
    fs::create_dir(place.at("own")).unwrap();
    assert!(Command::new("chown").arg("nobody").arg(place.at("own")).status().unwrap().success());
    let owner = fs::metadata(place.at("own")).unwrap().uid();
    for name in ["own", "new/cache"] {
        let folder = place.at(name);
        let mut command = underpass();
        command.args(["serve", "--port", "0", "--user", "nobody", "--cache-free", "0"]);
        command.args(["--origin", &origin.address, "--cache"]).arg(&folder);
        let server = Running::listening(command);
        assert_eq!(get(&server, "file"), b"inside", "{name}");
        let objects = || fs::read_dir(folder.join("objects")).unwrap().flatten();
        until("an object is stored", || objects().count() == 1);
        let all = objects().chain(fs::read_dir(&folder).unwrap().flatten());
        assert!(all.into_iter().all(|it| it.metadata().unwrap().uid() == owner), "{name}");
        end(server);
    }
}

#[test]
fn a_server_that_stays_root_warns_and_keeps_only_the_right_to_read_files() {
    if !is_root() {
        return skip("only root has what the server gives up");
    }
    let place = Place::new();
    // Root reads what belongs to others: that is what it was started as root for.
    fs::set_permissions(place.root.join("file"), fs::Permissions::from_mode(0o0)).unwrap();
    let server = place.serve(&[]);
    assert_eq!(get(&server, "file"), b"inside");
    let kept = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 28;
    for value in status(&server, "CapEff").iter().chain(&status(&server, "CapBnd")) {
        let set = u64::from_str_radix(value, 16).unwrap();
        assert_eq!(set & !kept, 0, "{value}");
    }
    let said = end(server);
    assert!(said.contains("--user NAME"), "{said}");
}

#[test]
fn a_server_with_passwords_or_keys_cannot_be_dumped() {
    if !is_root() {
        return skip("only root can start a server as another user");
    }
    let place = Place::new();
    fs::create_dir(place.at("cache")).unwrap();
    fs::set_permissions(place.at("cache"), fs::Permissions::from_mode(0o777)).unwrap();
    let (cache, config) = (place.at("cache"), place.at("config.toml"));
    // Passwords may come by SIGHUP.
    fs::write(&config, "log_format = 'json'\n").unwrap();
    let origin = ["--origin", "http://u:p@127.0.0.1:1/", "--cache", cache.to_str().unwrap()];
    let cases: [(&[&str], bool); 5] = [
        (&[], true),
        (&["--auth", "user:word@/"], false),
        (&["--tls", "self"], false),
        (&["--config", config.to_str().unwrap()], false),
        (&origin, false),
    ];
    for (args, is_dumpable) in cases {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--clear-groups"]);
        command.arg(env!("CARGO_BIN_EXE_underpass")).args(["serve", "--port", "0"]);
        command.args(args).stderr(Stdio::piped());
        if args != origin {
            command.arg(&place.root);
        }
        let server = Running::listening(command);
        // Files of a process that cannot be dumped belong to root (proc(5)).
        let owner = || fs::metadata(format!("/proc/{}/fd", server.child.id())).unwrap().uid();
        let expected = if is_dumpable { 65534 } else { 0 };
        until(&format!("{args:?} has owner {expected}"), || owner() == expected);
    }
}

#[test]
fn missing_rights_of_the_new_user_are_reported_at_the_start() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let place = Place::new();
    fs::set_permissions(&place.root, fs::Permissions::from_mode(0o700)).unwrap();
    let root = place.root.to_str().unwrap();
    let refused = run(["serve", "--port", "0", "--user", "nobody", root]);
    refused.failed(1, &["serving", root, "Permission denied"]);
    run(["serve", "--user", "no-such-user", root]).failed(2, &["--user", "no-such-user"]);
    fs::set_permissions(&place.root, fs::Permissions::from_mode(0o755)).unwrap();
    let said = end(place.serve(&["--user", "nobody", "--allow-upload"]));
    assert!(said.contains("is not writable"), "{said}");
    let file = place.root.join("single");
    fs::write(&file, "x").unwrap();
    let said = end(serve(file, &["--allow-upload"]));
    assert!(said.contains("single file") && !said.contains("not writable"), "{said}");
}

#[test]
fn a_folder_read_only_for_this_process_is_distinguished_from_missing_rights() {
    if !is_root() || !has("unshare") {
        return skip("only root can mount");
    }
    let place = Place::new();
    // As ProtectSystem= does it.
    let script = "mount --bind $2 $2 && mount -o remount,bind,ro $2 &&
        exec $1 serve --port 0 --allow-upload $2";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_underpass")]);
    command.arg(&place.root).stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = end(Running::listening(command));
    assert!(said.contains("is read-only for this process (ReadWritePaths="), "{said}");
    assert!(!said.contains("not writable"), "{said}");
}

#[test]
fn a_user_by_name_does_not_keep_sighup_from_reading_the_config() {
    if !is_root() {
        return eprintln!("skipped: only root can become another user");
    }
    let place = Place::new();
    let config = place.at("config.toml");
    let write = |password: &str| {
        let text = format!("auth = ['me:{password}@/']\nuser = 'daemon:daemon'\n");
        fs::write(&config, text).unwrap();
    };
    write("old");
    let server = place.serve(&["--config", config.to_str().unwrap()]);
    write("new");
    server.signal("HUP");
    let url = format!("{}file", server.address);
    let get = |user: &str| run(["get", "-q", "-o", "-", "--user", user, &url]).code();
    until("the new password counts", || get("me:new") == Some(0));
    assert_eq!(get("me:old"), Some(1));
    let said = end(server);
    assert!(said.contains("reloaded 1 site"), "{said}");
}

#[test]
fn a_key_of_any_site_that_the_user_cannot_read_again_is_named() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let place = Place::new();
    let site = |name: &str, mode: u32| {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let path = place.at(name);
        fs::write(&path, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let (path, root) = (path.display(), place.root.display());
        format!(
            "[[site]]\nnames = ['{name}']\nroot = '{root}'\ntls_cert = '{path}'\ntls_key = '{path}'\n"
        )
    };
    fs::write(place.at("config.toml"), site("a.test", 0o644) + &site("b.test", 0o600)).unwrap();
    let mut command = underpass();
    command.args(["serve", "--port", "0", "--user", "nobody", "--config"]);
    let said = end(Running::listening({
        command.arg(place.at("config.toml"));
        command
    }));
    assert!(said.contains("b.test is not readable for this user"), "{said}");
    assert!(!said.contains("a.test is not readable"), "{said}");
}

#[test]
fn only_root_can_become_another_user() {
    if !is_root() {
        return skip("only root can start a program as another user");
    }
    let place = Place::new();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups"]);
    command.arg(env!("CARGO_BIN_EXE_underpass")).args(["serve", "--port", "0", "--user", "root"]);
    command.arg(&place.root).stderr(Stdio::piped());
    command.stdout(Stdio::piped());
    Running::start(command).finish().failed(2, &["--user: root", "only root"]);
}

#[test]
fn a_service_manager_learns_when_the_server_is_ready_and_when_it_ends() {
    let place = Place::new();
    let (path, name) = (place.at("notify"), format!("underpass-{}", std::process::id()));
    let by_name = SocketAddr::from_abstract_name(&name).unwrap();
    for (socket, address) in [
        (UnixDatagram::bind_addr(&by_name), format!("@{name}")),
        (UnixDatagram::bind(&path), path.display().to_string()),
    ] {
        let socket = socket.unwrap();
        let mut command = underpass();
        command.args(["serve", "--port", "0"]).arg(&place.root).env("NOTIFY_SOCKET", &address);
        let server = Running::listening(command);
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let notification = || {
            let mut message = [0; 100];
            let len = socket.recv(&mut message).unwrap();
            String::from_utf8(message[..len].to_vec()).unwrap()
        };
        assert_eq!(notification(), "READY=1", "{address}");
        server.signal("TERM");
        assert_eq!(notification(), "STOPPING=1", "{address}");
        server.finish().succeeded();
    }
    let mut command = underpass();
    command.args(["serve", "--port", "0"]).arg(&place.root).env("NOTIFY_SOCKET", "@nobody-listens");
    assert!(end(Running::listening(command)).contains("sending READY=1 to @nobody-listens"));
}

/// Ends a server as a service manager does; returns what it said.
fn end(server: Running) -> String {
    server.end().stderr
}
