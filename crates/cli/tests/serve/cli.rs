//! The server's options: typed, from the environment, from a file; its sockets; its signals.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::rig::{
    Finished, Running, folder, has, limited, names, run, serve_by, traced, underpass, until,
};

/// A server on a free port of loopback.
fn serve(folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> Running {
    let mut command = underpass();
    command.envs(variables.iter().copied());
    serve_by(command, folder, args)
}

/// Ends a server as a service manager does.
fn end(server: Running) -> Finished {
    server.end()
}

/// The one-line error of `serve`, with exit code 2 or 1.
#[track_caller]
fn refused(args: &[&str], variables: &[(&str, &str)], code: i32, words: &[&str]) -> String {
    let mut command = underpass();
    command.arg("serve").args(args).envs(variables.iter().copied());
    let finished = Running::start(command).finish().failed(code, words);
    assert_eq!(finished.stderr.lines().count(), 1, "{args:?}: {}", finished.stderr);
    assert!(finished.stderr.starts_with("underpass: "), "{}", finished.stderr);
    assert!(finished.stdout.is_empty(), "{args:?}");
    finished.stderr
}

/// The project's folder, for what is beside the crates.
fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn each_wrong_option_is_one_line_with_its_exit_code() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["/nowhere/at/all"], 1, &["serving", "/nowhere/at/all", "No such file", "that exists"]),
        (&["a", "b"], 2, &["'b'"]),
        (&["--port", "65536"], 2, &["--port", "65536"]),
        (&["--bind", "/run/socket"], 2, &["--bind", "/run/socket", "unix:PATH"]),
        (&["--bind", "host.invalid"], 1, &["looking up", "host.invalid"]),
        (&["--bind", &taken], 1, &["listening on", &taken, "in use", "another port"]),
        (&["--bind", "192.0.2.1"], 1, &["192.0.2.1:5000", "does not have that address"]),
        (&["--bind", "::ffff:127.0.0.1"], 1, &["::ffff:127.0.0.1", "without ::ffff:"]),
        (&["--bind", "unix:/nowhere/socket"], 1, &["unix:/nowhere/socket", "No such file"]),
        (&["--hide", "a[", "-p", "0"], 2, &["--hide", "a["]),
        (&["--hide", "", "-p", "0"], 2, &["--hide ''", "hides nothing"]),
        (&["--hide", "/", "-p", "0"], 2, &["--hide '/'", "hides nothing"]),
        (&["--header", "/[: A: b", "-p", "0"], 2, &["--header '/[:'"]),
        (&["--header", "X-A"], 2, &["--header", "X-A", "Name: value"]),
        (&["--header", "X-A: b\r\nX-B: c"], 2, &["--header", "X-A", "control character"]),
        (&["--header", "content-length: 3"], 2, &["--header", "content-length", "server decides"]),
        (&["--cache-control", "a\nb"], 2, &["--cache-control"]),
        (&["--path-prefix", "/../etc"], 2, &["--path-prefix", "/files"]),
        (&["--log-file", "/nowhere/log"], 1, &["opening", "/nowhere/log"]),
        (&["--workers", "0"], 2, &["--workers"]),
        (&["--max-connections", "4000000000"], 2, &["--max-connections", "ulimit -Hn"]),
        (&["--rate", "0"], 2, &["--rate", "nothing would arrive"]),
        (&["--timeout", "0"], 2, &["--timeout", "seconds"]),
        (&["--drain", "soon"], 2, &["--drain", "seconds"]),
        (&["--integrity", "total"], 2, &["--integrity", "snapshot"]),
        (&["--config", "/nowhere/config"], 1, &["reading", "/nowhere/config"]),
        (&["--config", "/dev/zero"], 2, &["/dev/zero", "16 MiB"]),
        (&["--acme", "localhost"], 2, &["--acme localhost", "no public authority", "--tls self"]),
        (&["--acme", "a.example.org", "--acme", "nas.local"], 2, &["--acme nas.local"]),
        (&["--completions", "cmd"], 2, &["cmd", "bash"]),
    ];
    for (args, code, words) in cases {
        refused(args, &[], *code, words);
    }
}

#[test]
fn a_worker_without_descriptors_ends_the_server() {
    let folder = folder();
    let mut command = limited("-n 46");
    command.args(["serve", "-q", "--port", "0", "--workers", "16"]).arg(folder.path());
    Running::start(command).finish().failed(1, &["starting a runtime", "Too many open files"]);
}

#[test]
fn a_password_is_never_repeated() {
    let folder = folder();
    let config = folder.path().join("config");
    fs::write(&config, "auth = ['admin:secret']").unwrap();
    let config = config.to_str().unwrap();
    for (args, variables) in [
        (vec!["--auth", "admin:secret"], vec![]),
        (vec!["--auth", "admin:secret@nowhere"], vec![]),
        (vec![], vec![("UNDERPASS_AUTH", "admin:secret")]),
        (vec!["--config", config], vec![]),
    ] {
        let said = refused(&args, &variables, 2, &["--auth"]);
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn typed_options_win_over_the_environment_which_wins_over_the_file() {
    let folder = folder();
    let config = folder.path().join("config");
    fs::write(&config, "path_prefix = 'file'\nquiet = true").unwrap();
    let config = config.to_str().unwrap();
    let environment = ("UNDERPASS_PATH_PREFIX", "environment");
    for (args, variables, prefix) in [
        (vec!["--config", config, "--path-prefix", "typed"], vec![environment], "/typed/"),
        (vec!["--config", config], vec![environment], "/environment/"),
        (vec!["--config", config], vec![("UNDERPASS_PATH_PREFIX", "")], "/file/"),
        (vec![], vec![("UNDERPASS_CONFIG", config)], "/file/"),
        (vec![], vec![], "/"),
    ] {
        let server = serve(folder.path(), &args, &variables);
        let path = server.address.strip_prefix("http://127.0.0.1:").unwrap();
        assert_eq!(path.trim_start_matches(|c: char| c.is_ascii_digit()), prefix);
        end(server);
    }
}

#[test]
fn a_switch_of_the_file_can_be_undone_by_the_environment() {
    let folder = folder();
    let config = folder.path().join("config");
    fs::write(&config, "quiet = true").unwrap();
    let args = ["--config", config.to_str().unwrap()];
    let quiet = end(serve(folder.path(), &args, &[])).stderr;
    assert!(!quiet.contains("--bind 0.0.0.0"), "{quiet}");
    let stderr = end(serve(folder.path(), &args, &[("UNDERPASS_QUIET", "false")])).stderr;
    assert!(stderr.contains("--bind 0.0.0.0"), "{stderr}");
    refused(&args, &[("UNDERPASS_QUIET", "perhaps")], 2, &["UNDERPASS_QUIET", "true nor false"]);
}

#[test]
fn a_typed_option_replaces_a_conflicting_one_of_the_file() {
    let folder = folder();
    let config = folder.path().join("config");
    fs::write(&config, "mechanism = 'splice'").unwrap();
    let config = config.to_str().unwrap();
    end(serve(folder.path(), &["--config", config, "--no-zero-copy"], &[]));
    end(serve(folder.path(), &["--config", config], &[("UNDERPASS_PREFER", "mmap")]));
}

#[test]
fn a_list_in_a_variable_has_one_value_a_line() {
    let folder = folder();
    let socket = folder.path().join("socket");
    let bind = format!("127.0.0.1\nunix:{}", socket.display());
    let server = serve(folder.path(), &[], &[("UNDERPASS_BIND", &bind)]);
    until("the socket", || UnixStream::connect(&socket).is_ok());
    let said = end(server).stderr;
    assert_eq!(said.lines().filter(|line| line.starts_with("serving ")).count(), 2, "{said}");
    assert!(!socket.exists());
}

#[test]
fn errors_in_the_configuration_name_the_line() {
    let folder = folder();
    let config = folder.path().join("underpass.toml");
    let args = ["--config", config.to_str().unwrap()];
    for (text, words) in [
        ("port = 1\nanswer = 2", ["line 2", "--answer", "serve --help"]),
        ("\nport = 'x'", ["line 2", "--port", "'x'"]),
        ("port = [1, 2]", ["line 1", "port", "one value"]),
        ("quiet = 'perhaps'", ["line 1", "quiet", "true nor false"]),
        ("hide = 'a'\nhide = 'b'", ["line 2", "underpass.toml", "duplicate"]),
        ("port = 1\n[more]\nworkers = 1", ["line 2", "more", "no table"]),
        ("config = 'other'", ["line 1", "--config", "UNDERPASS_CONFIG"]),
        ("completions = 'fish'", ["line 1", "--completions", "command line only"]),
        ("stale-if-error = '1d'\nroot = '.'", ["--stale-if-error", "needs", "--origin URL"]),
        ("prot = 80", ["line 1", "--prot", "did you mean port?"]),
        ("port", ["line 1", "underpass.toml", "="]),
        ("port = 1\nhide = '['", ["underpass.toml, line 2", "--hide '['", "unclosed"]),
        ("port = 1\nauth = ['a:b@/', 'c:d']", ["line 2: --auth", "rule 2", "path"]),
        ("\nbind = 'a b'", ["line 2", "--bind 'a b'", "HOST:PORT"]),
        ("\ntrusted-proxy = '10.0.0.1/8'", ["line 2", "--trusted-proxy", "10.0.0.0/8"]),
        ("\nmime = 'gguf'", ["line 2", "--mime", "gguf"]),
        ("\nheader = '[ X: y'", ["line 2", "--header", "X"]),
        ("\norigin = 'ftp://host/'", ["line 2", "--origin", "http"]),
        ("[[site]]\nnames = ['a.example']\nhide = '['", ["line 3", "--hide '['", "unclosed"]),
        ("\nroot = ''", ["line 2", "a value is required", "DIR or FILE"]),
        ("root = '.'\n[[site]]\nnames = ['a']\nroot = ''", ["line 4", "a value is required", ""]),
    ] {
        fs::write(&config, text).unwrap();
        refused(&args, &[], 2, &words);
    }
    fs::write(&config, b"port = 1 # \xff").unwrap();
    refused(&args, &[], 2, &["underpass.toml: it is not UTF-8"]);
    refused(&[], &[("UNDERPASS_WORKERS", "many")], 2, &["UNDERPASS_WORKERS", "many"]);
    refused(&[], &[("UNDERPASS_CACHE_FREE", "1G")], 2, &["--cache-free needs --origin URL"]);
}

#[test]
fn a_file_without_a_root_does_not_serve_the_current_folder() {
    let folder = folder();
    let config = folder.path().join("underpass.toml");
    let path = config.to_str().unwrap();
    let words = ["underpass.toml: neither root nor origin", "root = \".\""];
    // A port that does not exist ends a server that would start.
    for text in ["", "# root = '/srv'\n", "auth = ['me:secret@/']\n", "origin = []\n"] {
        fs::write(&config, text).unwrap();
        refused(&["--bind", "192.0.2.1", "--config", path], &[], 2, &words);
        refused(&["--bind", "192.0.2.1"], &[("UNDERPASS_CONFIG", path)], 2, &words);
    }
    // The folder is typed, in the environment or in the file, or nothing is served.
    fs::write(&config, "").unwrap();
    end(serve(folder.path(), &["--config", path], &[]));
    let start = |variables: &[(&str, &str)]| {
        let mut command = underpass();
        command.args(["serve", "--port", "0", "--config", path]).envs(variables.iter().copied());
        end(Running::listening(command))
    };
    start(&[("UNDERPASS_ROOT", folder.path().to_str().unwrap())]);
    for text in ["root = '.'\n", "redirect = ['/* https://example.org/* 308']\n"] {
        fs::write(&config, text).unwrap();
        start(&[]);
    }
}

#[test]
fn the_start_says_where_it_serves_and_how_to_open_it() {
    let folder = folder();
    let here = fs::canonicalize(folder.path()).unwrap();
    let local = end(serve(folder.path(), &[], &[])).stderr;
    let first = format!("serving {} at http://127.0.0.1:", here.display());
    assert!(local.starts_with(&first), "{local}");
    assert!(local.contains("only this machine") && local.contains("--bind 0.0.0.0"), "{local}");
    assert!(local.contains("confined "), "{local}");
    let open = end(serve(folder.path(), &["--bind", "0.0.0.0", "--no-sandbox"], &[])).stderr;
    assert!(!open.contains("only this machine"), "{open}");
    assert!(open.contains("not confined: --no-sandbox"), "{open}");
    let quiet = end(serve(folder.path(), &["-q"], &[])).stderr;
    assert!(!quiet.contains("confined"), "{quiet}");
    // The address of a single file has its name, under which clients save it.
    let file = here.join("a b");
    fs::write(&file, "bytes").unwrap();
    let one = end(serve(&file, &["--path-prefix", "p"], &[])).stderr;
    assert!(one.lines().next().is_some_and(|line| line.ends_with("/p/a%20b")), "{one}");
}

#[test]
fn an_option_of_uploads_without_uploads_is_pointed_out() {
    let folder = folder();
    let said = |args: &[&str]| end(serve(folder.path(), args, &[])).stderr;
    for args in [["--upload-limit", "1M"].as_slice(), &["--create-parents"], &["--min-free", "1%"]]
    {
        let warning = format!("{} has no effect without --allow-upload", args[0]);
        assert!(said(args).contains(&warning));
        assert!(!said(&[args, &["-A"]].concat()).contains("no effect"));
    }
    let all = said(&["--min-free", "1%", "--create-parents", "--upload-limit", "1M"]);
    assert_eq!(all.matches("has no effect without --allow-upload").count(), 3, "{all}");
}

#[test]
fn a_socket_left_behind_is_replaced_and_one_that_lives_is_not() {
    let folder = folder();
    let socket = folder.path().join("socket");
    let bind = format!("unix:{}", socket.display());
    drop(UnixListener::bind(&socket).unwrap());
    end(serve(folder.path(), &["--bind", &bind], &[]));
    assert!(!socket.exists());

    let live = UnixListener::bind(&socket).unwrap();
    refused(&["--bind", &bind], &[], 1, &["listening on", &bind, "in use", "path"]);
    assert!(socket.exists());
    drop(live);

    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "precious").unwrap();
    refused(&["--bind", &bind], &[], 1, &["listening on", &bind, "another path"]);
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
}

/// The command of a server with `passed` as descriptor 3, and LISTEN_PID as a shell expands it.
fn activated(folder: &Path, passed: impl Into<OwnedFd>, pid: &str) -> Command {
    let script =
        format!("LISTEN_FDS=1 LISTEN_PID={pid} exec \"$0\" serve -p 0 \"$1\" 3<&0 0</dev/null");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_underpass")]).arg(folder);
    command.stdin(passed.into()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_socket_that_was_passed_is_served_instead_of_the_default() {
    let folder = folder();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = Running::listening(activated(folder.path(), listener, "$$"));
    assert_eq!(server.address, format!("http://{address}/"));
    TcpStream::connect(address).unwrap();
    end(server);
}

#[test]
fn sockets_for_another_process_are_left_alone() {
    let folder = folder();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = Running::listening(activated(folder.path(), listener, "1"));
    assert_ne!(server.address, format!("http://{address}/"));
    end(server);
}

#[test]
fn passed_sockets_that_do_not_listen_are_refused() {
    let folder = folder();
    let (one, _other) = UnixStream::pair().unwrap();
    let start = |passed: OwnedFd| Running::start(activated(folder.path(), passed, "$$")).finish();
    start(one.into()).failed(1, &["socket 1 of LISTEN_FDS", "nothing listens"]);
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    start(datagrams.into()).failed(1, &["socket 1 of LISTEN_FDS", "not a stream socket"]);
    let file = fs::File::open(folder.path()).unwrap();
    start(file.into()).failed(1, &["LISTEN_FDS", "not a stream socket"]);
}

#[test]
fn sigterm_sigint_and_sigquit_end_it_in_order() {
    let folder = folder();
    for signal in ["TERM", "INT", "QUIT"] {
        let server = serve(folder.path(), &[], &[]);
        server.signal(signal);
        let said = server.finish().succeeded().stderr;
        assert!(said.lines().last().unwrap().starts_with("served 0 requests"), "{said}");
    }
}

#[test]
fn sighup_and_sigusr1_reopen_the_log() {
    let (folder, logs) = (folder(), folder());
    let log = logs.path().join("access.log");
    let server = serve(folder.path(), &["--log-file", log.to_str().unwrap()], &[]);
    until("the log", || log.exists());
    for (signal, moved) in [("HUP", "access.log.1"), ("USR1", "access.log.2")] {
        fs::rename(&log, logs.path().join(moved)).unwrap();
        server.signal(signal);
        until("the new log", || log.exists());
    }
    end(server);
    assert_eq!(names(logs.path()), ["access.log", "access.log.1", "access.log.2"]);
}

#[test]
fn a_log_that_cannot_be_reopened_continues_in_the_old_file() {
    let (folder, logs) = (folder(), folder());
    let (place, moved) = (logs.path().join("now"), logs.path().join("moved"));
    fs::create_dir(&place).unwrap();
    let log = place.join("access.log");
    let server = serve(folder.path(), &["--log-file", log.to_str().unwrap()], &[]);
    fs::rename(&place, &moved).unwrap();
    server.signal("HUP");
    // A line that is not a request is logged as it is.
    let mut stream = server.connect();
    stream.write_all(b"nonsense of a client\r\n\r\n").unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    let said = end(server).stderr;
    assert!(said.contains("No such file") && said.contains("lines still go to"), "{said}");
    let lines = fs::read_to_string(moved.join("access.log")).unwrap();
    assert!(lines.contains("\"nonsense of a client\" 400 "), "{lines}");
}

#[test]
fn a_log_on_an_open_stream_needs_no_folder_and_is_not_reopened() {
    let folder = folder();
    for name in ["-", "/dev/stdout", "/dev/fd/1", "/dev/stderr", "/dev/null"] {
        let mut command = underpass();
        command.current_dir(folder.path());
        let server = serve_by(command, folder.path(), &["--log-file", name]);
        server.signal("HUP");
        let mut stream = server.connect();
        stream.write_all(b"nonsense of a client\r\n\r\n").unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        let finished = end(server);
        let said = &finished.stderr;
        assert!(!said.contains("opening") && !said.contains("for the log"), "{name}: {said}");
        let is_logged = [finished.text().as_str(), said]
            .map(|text| text.contains("\"nonsense of a client\" 400 "));
        assert_eq!(
            is_logged,
            [name != "/dev/stderr" && name != "/dev/null", name == "/dev/stderr"],
            "{name}"
        );
    }
    assert!(!folder.path().join("-").exists());
}

#[test]
fn the_help_matches_its_snapshot() {
    let help = run(["serve", "--help"]).succeeded().text();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/help.txt");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&kept, &help).unwrap();
    }
    let expected = fs::read_to_string(kept).unwrap();
    assert_eq!(
        help, expected,
        "if this is right: UPDATE_SNAPSHOTS=1 cargo test --test serve cli::"
    );
}

#[test]
fn the_guide_tells_every_option() {
    crate::rig::assert_guide_has_options("serve");
}

#[test]
fn the_manual_and_the_completions_know_the_server() {
    let manual = run(["serve", "--print-manpage"]).succeeded().text();
    assert_eq!(manual, run(["--print-manpage"]).succeeded().text());
    assert!(manual.contains(".TH underpass-serve 1"), "{manual}");
    let completions = run(["serve", "--completions", "fish"]).succeeded().text();
    assert!(completions.contains("path-prefix"), "{completions}");
}

#[test]
fn the_example_of_a_file_has_every_option() {
    let example = fs::read_to_string(project("contrib/underpass.toml")).unwrap();
    let (options, _) = example.split_once("# Sites:").unwrap();
    let keys = options.lines().filter_map(|line| line.trim_start_matches("# ").split_once(" = "));
    let keys: BTreeSet<_> = keys.map(|(key, _)| key.to_owned()).collect();
    let help = run(["serve", "--help"]).succeeded().text();
    let rows = help.lines().filter(|line| line.starts_with("  -") || line.starts_with("      --"));
    let options = rows.filter_map(|line| line.split_once("--")?.1.split_whitespace().next());
    let typed = ["completions", "config", "help", "print-manpage", "write-manpages"];
    let options = options.filter(|option| !typed.contains(option)).chain(["root"]);
    assert_eq!(keys, options.map(str::to_owned).collect());
}

#[test]
fn the_example_of_a_file_is_accepted() {
    let folder = folder();
    let example = fs::read_to_string(project("contrib/underpass.toml")).unwrap();
    let elsewhere = [
        "root = ",
        "log-file = ",
        "port = ",
        "tls-cert = ",
        "tls-key = ",
        "redirect-http = ",
        "acme",
        // Instead of a folder.
        "origin",
        "cache",
        "fresh",
        "stale-if-error",
        "vary-on",
        "s3-",
    ];
    // The commented keys are meant to be enabled by users.
    let lines = example.lines().map(|line| match line.strip_prefix("# ") {
        Some(key) if key == "[[site]]" || key.contains(" = ") && !key.contains("`") => key,
        _ => line,
    });
    let lines = lines.filter(|line| !elsewhere.iter().any(|start| line.starts_with(start)));
    let config = folder.path().join("config");
    fs::write(&config, lines.collect::<Vec<_>>().join("\n")).unwrap();
    end(serve(folder.path(), &["--config", config.to_str().unwrap()], &[]));
}

/// The units for systemd in contrib/.
const UNITS: [&str; 3] =
    ["underpass.service", "underpass.socket", "origin/underpass-cache@.service"];

fn unit(name: &str) -> String {
    fs::read_to_string(project("contrib").join(name)).unwrap()
}

#[test]
fn systemd_accepts_the_units() {
    if !has("systemd-analyze") {
        return;
    }
    let folder = folder();
    let units = UNITS.map(|name| {
        let text = unit(name).replace("/usr/bin/underpass", env!("CARGO_BIN_EXE_underpass"));
        let path = folder.path().join(Path::new(name).file_name().unwrap());
        fs::write(&path, text).unwrap();
        path
    });
    let checked = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .args(units)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && said.is_empty(), "{said}");
}

#[test]
fn no_unit_refuses_the_call_that_opens_files() {
    for name in UNITS {
        let text = unit(name);
        // Its filter answers ENOSYS to openat2(2), whose arguments are in memory.
        let refused = text.lines().find(|line| line.starts_with("RestrictSUIDSGID="));
        assert_eq!(refused, None, "{name}");
        // Sets without it would do the same.
        let allowed: Vec<_> =
            text.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")).collect();
        let is_service = name.ends_with(".service");
        assert_eq!(allowed.contains(&"@system-service"), is_service, "{name}: {allowed:?}");
    }
}

#[test]
fn no_unit_refuses_the_sockets_that_tell_what_readers_on_this_machine_have_read() {
    for name in UNITS {
        let text = unit(name);
        let mut lines = text.lines();
        let allowed = lines.find_map(|line| line.strip_prefix("RestrictAddressFamilies="));
        let is_enough = |families: &str| families.split(' ').any(|family| family == "AF_NETLINK");
        assert!(allowed.is_none_or(is_enough), "{name}: {allowed:?}");
    }
}

#[test]
fn a_filter_that_hides_readers_on_this_machine_is_named() {
    if !has("strace") {
        return;
    }
    let (folder, log) = (folder(), folder());
    let log = log.path().join("log");
    let said = |level, inject: &str| {
        let command = traced(&log, &["-e", "trace=socket", "-e", inject]);
        serve_by(command, &folder, &["--integrity", level]).end().stderr
    };
    let names = |said: &str| said.contains("AF_NETLINK");
    assert!(!names(&said("detect", "signal=none")));
    let calls = fs::read_to_string(&log).unwrap();
    let number = 1 + calls.lines().position(|line| line.contains("SOCK_DIAG")).unwrap();
    let inject = format!("inject=socket:error=EAFNOSUPPORT:when={number}");
    for level in ["detect", "lease"] {
        assert!(names(&said(level, &inject)), "{level}");
    }
}

#[test]
fn each_unit_with_a_log_is_signalled_after_rotation() {
    let rule = fs::read_to_string(project("contrib/underpass.logrotate")).unwrap();
    let (_, told) = rule.split_once("systemctl kill").unwrap();
    for name in UNITS.into_iter().filter(|name| unit(name).contains("\nLogsDirectory=")) {
        let name = Path::new(name).file_name().unwrap().to_str().unwrap().replace('@', "@*");
        assert!(told.contains(&format!("\"{name}\"")), "{name}: {told}");
    }
}

#[test]
fn a_filter_that_refuses_openat2_is_named() {
    if !has("strace") {
        return;
    }
    let (folder, log) = (folder(), folder());
    let options = ["-e", "trace=openat2", "-e", "inject=openat2:error=ENOSYS"];
    let mut command = traced(&log.path().join("log"), &options);
    command.args(["serve", "--port", "0"]).arg(folder.path());
    let words = ["serving", "not implemented", "openat2", "seccomp", "Linux 5.6"];
    Running::start(command).finish().failed(1, &words);
}
