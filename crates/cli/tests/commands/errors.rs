//! Bad input gets one clear line that says what, where and what to do, and an exit code.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::rig::{folder, free_port, names, noise_file, run};

#[test]
fn each_wrong_input_is_one_line_with_its_exit_code() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = noise_file(folder.path(), "file", 1000);
    let file = file.to_str().unwrap();
    fs::create_dir(at("folder")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    symlink("loop", at("loop")).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let closed = format!("127.0.0.1:{}", free_port());
    let here = folder.path().to_str().unwrap();

    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["send", &at("missing"), &taken], 1, &["opening", "missing", "No such file"]),
        (&["send", here, &taken], 1, &["reading", "Is a directory", "tar"]),
        (&["send", file, &closed], 1, &["connecting to", &closed, "refused", "start the other"]),
        (&["send", file, "unix:/nowhere/socket"], 1, &["unix:/nowhere/socket", "No such file"]),
        (&["send", file, "host.invalid:80"], 1, &["connecting to", "host.invalid:80"]),
        (&["send", file, ":80"], 2, &["does not name a host"]),
        (&["send", file, &taken, "--range", "1000-"], 2, &["--range", "outside", "1000 bytes"]),
        (&["send", "/proc/version", &taken, "--range", "0-1"], 2, &["--range", "size"]),
        (&["send", file, "127.0.0.1:1", "--congestion", "nonsense"], 2, &["nonsense", "reno"]),
        (&["recv", "127.0.0.1:1", "x", "--congestion", "nonsense"], 2, &["nonsense", "reno"]),
        (&["send", file, "--listen", &taken], 1, &["listening on", &taken, "in use", "port"]),
        (&["recv", "--listen", &taken, &at("new")], 1, &["listening on", "in use"]),
        (&["recv", "--listen", "127.0.0.1:0", &at("none/new")], 1, &["creating", "No such file"]),
        (&["recv", "--listen", "127.0.0.1:0", &at("folder")], 1, &["folder", "Is a directory"]),
        (&["recv", "--listen", "127.0.0.1:0", &at("dangling")], 1, &["link", "dangling"]),
        (&["recv", "--listen", "127.0.0.1:0", &at("loop")], 1, &["link", "loop"]),
        (&["recv", "--listen", "127.0.0.1:0", "--json"], 2, &["--json", "FILE"]),
        (&["recv", "--listen", "127.0.0.1:0", "a", "b"], 2, &["one FILE"]),
        (&["recv"], 2, &["ADDRESS", "--listen"]),
        (&["recv", "nonsense"], 2, &["nonsense", "HOST:PORT"]),
        (&["recv", &closed, &at("new")], 1, &["connecting to", "refused"]),
        (&["cp", &at("missing"), &at("new")], 1, &["opening", "missing"]),
        (&["cp", here, &at("new")], 1, &["reading", "Is a directory"]),
        (&["cp", file, file], 2, &["same file"]),
        (&["cp", file, &at("none/new")], 1, &["creating", "No such file"]),
        (&["cp", "-", here], 2, &["folder", "name a file"]),
        (&["cp", file, &at("new"), "--mechanism", "reflink", "--step", "1"], 1, &["reflink"]),
    ];
    for (args, code, words) in cases {
        if args.contains(&"reflink") && reflinks(folder.path()) {
            continue;
        }
        let finished = run(args.iter()).failed(*code, words);
        let lines: Vec<_> =
            finished.stderr.lines().filter(|line| !line.starts_with("listening on")).collect();
        assert_eq!(lines.len(), 1, "{args:?}: {lines:?}");
        assert!(lines[0].starts_with("underpass: "), "{lines:?}");
        assert!(finished.stdout.is_empty(), "{args:?}");
    }
    assert_eq!(names(folder.path()), ["dangling", "file", "folder", "loop"]);
}

#[test]
fn wrong_arguments_are_usage_errors_that_name_them() {
    for (args, word) in [
        (["send", "f", "h:1", "--step", "64Q"], "64K"),
        (["send", "f", "h:1", "--step", "0"], "at least one byte"),
        (["send", "f", "h:1", "--step", "-1"], "'--step <SIZE>': sizes are numbers"),
        (["send", "f", "h:1", "--range", "5-3"], "FROM-TO"),
        (["send", "f", "h:1", "--mechanism", "teleport"], "copy_file_range"),
        (["send", "f", "h:1", "--integrity", "total"], "snapshot"),
        (["send", "f", "h:1", "--timeout", "0"], "seconds"),
        (["send", "f", "h:1", "--listen", ":1"], "cannot be used with"),
        (["send", "f", "h:65536", "--json", "-q"], "HOST:PORT"),
        (["send", "f", "::1:80", "--json", "-q"], "HOST:PORT"),
        (["recv", "h:1", "f", "--size", "many"], "4096"),
        (["recv", "h:1", "f", "--append", "--force"], "cannot be used with"),
        (["cp", "a", "b", "--in-place", "--resume"], "cannot be used with"),
        (["cp", "a", "b", "-T", "-tfolder"], "cannot be used with"),
    ] {
        let finished = run(args);
        assert_eq!(finished.code(), Some(2), "{args:?} {}", finished.stderr);
        assert!(finished.stderr.contains(word), "{args:?}: {}", finished.stderr);
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    }
    for (args, message) in [
        (["serve", "-p", "-1"], "'--port <PORT>': -1 is not between 0 and 65535"),
        (["get", "--hedder", "x"], "'--hedder' found; tip: a similar argument exists: '--header'"),
        // Suggestions that would not help are left out.
        (["get", "--integrity", "x"], "unexpected argument '--integrity' found (see"),
        (["get", "-Z", "x"], "unexpected argument '-Z' found (see"),
        (["completions", "", ""], "unrecognized subcommand 'completions' (see"),
        (["sned", "a", "b"], "tip: a similar subcommand exists: 'send'"),
        (["put", "http://h/", "x"], "the URL is the last argument"),
        (["get", "http:/h/x", "-q"], "a URL begins with http:// or https://"),
    ] {
        let stderr = run(args).failed(2, &[]).stderr;
        assert!(stderr.contains(message), "{args:?}: {stderr}");
    }
    run(["fly"]).failed(2, &["fly"]);
    run(["send"]).failed(2, &["FILE"]);
}

#[test]
fn help_and_version_are_no_errors() {
    for args in [["--help", ""], ["--version", ""], ["send", "--help"], ["recv", "--help"]] {
        let args = args.iter().filter(|arg| !arg.is_empty());
        let finished = run(args).succeeded();
        assert!(finished.text().contains("underpass"), "{}", finished.text());
    }
}

#[test]
fn completions_and_manual_pages_are_of_the_whole_program() {
    for shell in ["bash", "fish", "zsh"] {
        let text = run(["--completions", shell]).succeeded().text();
        assert!(text.contains("no-clobber") && text.contains("congestion"), "{text}");
    }
    let manual = run(["--print-manpage"]).succeeded().text();
    assert!(manual.contains(".TH underpass-send 1"), "{manual}");
    assert!(manual.contains(".TH underpass-bench-net 1"), "{manual}");
}

#[test]
fn a_failed_transfer_prints_its_receipt_too() {
    let folder = folder();
    let target = folder.path().join("target");
    let target = target.to_str().unwrap();
    let finished = run(["cp", "/proc/version", target, "--mechanism", "reflink", "--json"]);
    let receipt = finished.failed(1, &["reflink", "not available"]).receipt();
    assert!(receipt["error"].as_str().unwrap().contains("reflink"));
    assert_eq!(receipt["bytes"], 0);
    assert_eq!(receipt["declined"][0]["mechanism"], "reflink");
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mechanisms.md");
    let guide = fs::read_to_string(guide).unwrap();
    let (_, guide) = guide.split_once("## Receipts").unwrap();
    let declined = receipt["declined"][0].as_object().unwrap().keys();
    let shared = ["error", "from", "to", "bytes", "elapsed_s", "mechanisms", "declined", "calls"];
    let costs = ["user_space_bytes", "waits", "cpu_s", "context_switches", "page_faults"];
    for field in shared.into_iter().chain(costs).chain(["integrity"]) {
        assert!(receipt.get(field).is_some(), "{field} is not in {receipt}");
        assert!(guide.contains(&format!("`{field}`")), "{field} is not in docs/mechanisms.md");
    }
    for field in declined {
        assert!(guide.contains(&format!("`{field}`")), "{field} is not in docs/mechanisms.md");
    }
}

#[test]
fn each_receipt_of_a_failure_has_its_error_and_the_fields_of_its_command() {
    let here = folder();
    let at = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    noise_file(here.path(), "f", 100_000);
    fs::create_dir(at("d")).unwrap();
    fs::create_dir(at("e")).unwrap();
    for (args, code, error) in [
        (&["cp", "-r", &at("missing"), &at("d"), &at("e")][..], 1, "missing: No such file"),
        (&["cp", "-r", &at("no"), &at("nor"), &at("d")], 1, "2 problems"),
        (&["cp", &at("f"), &at("f")], 2, "same file"),
        (&["cp", &at("f"), "/dev/full"], 1, "No space left on device"),
    ] {
        let receipt = run(args.iter().chain(&["--json"])).failed(code, &[]).receipt();
        assert!(receipt["error"].as_str().unwrap().contains(error), "{receipt}");
        let failed = receipt["failed"].as_u64().unwrap();
        assert_eq!(receipt["errors"].as_array().unwrap().len() as u64, failed, "{receipt}");
        assert!(failed > 0 && receipt["files"] == 0, "{receipt}");
    }
    let done = run(["cp", &at("f"), "/dev/null", "--json"]).succeeded().receipt();
    assert_eq!(
        (&done["files"], &done["failed"], &done["error"]),
        (&1.into(), &0.into(), &().into())
    );
    let url = format!("http://127.0.0.1:{}/new", free_port());
    let failed = run(["put", &at("f"), &url, "--json", "--retries", "0"]).failed(1, &["refused"]);
    let receipt = failed.receipt();
    assert!(receipt["error"].as_str().unwrap().contains("refused"), "{receipt}");
    assert_eq!((&receipt["from"], &receipt["to"]), (&"file".into(), &"socket".into()));
    let folder = url.strip_suffix("new").unwrap();
    for names in [&["missing"][..], &["missing", "gone"]] {
        let files = names.iter().map(|name| at(name));
        let words = ["put", "--json"].map(str::to_owned).into_iter();
        let failed = run(words.chain(files).chain([folder.to_owned()])).failed(1, &[]);
        assert_eq!(failed.text().lines().count(), names.len());
        for (line, name) in failed.text().lines().zip(names) {
            let receipt: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(receipt["error"].as_str().unwrap().contains("No such file"), "{receipt}");
            assert_eq!(receipt["file"], at(name));
            assert_eq!(receipt["url"], format!("{folder}{name}"));
        }
    }
}

#[test]
fn a_stream_that_is_copied_without_a_terminal_prints_nothing() {
    let here = folder();
    fs::write(here.path().join("f"), "bytes").unwrap();
    for command in ["cp f - >g", "cp - g <f", "cp f /dev/null"] {
        assert_eq!(shell(here.path(), &format!("exec $0 {command}")), (Some(0), String::new()));
    }
}

fn reflinks(folder: &Path) -> bool {
    let (from, to) = (folder.join("r1"), folder.join("r2"));
    fs::write(&from, "x").unwrap();
    let done = run(["cp", "--mechanism", "reflink", from.to_str().unwrap(), to.to_str().unwrap()]);
    fs::remove_file(from).unwrap();
    let _ = fs::remove_file(to);
    done.code() == Some(0)
}

/// Runs a command of the shell with our program as `$0`.
fn shell(here: &Path, command: &str) -> (Option<i32>, String) {
    let mut shell = Command::new("sh");
    shell.args(["-c", command, env!("CARGO_BIN_EXE_underpass")]).current_dir(here);
    let output = shell.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn closed_standard_streams_are_errors() {
    let here = folder();
    fs::write(here.path().join("f"), "bytes").unwrap();
    for (command, words) in [
        ("exec $0 cp f - >&-", "opening standard output: Bad file descriptor"),
        ("exec $0 cp - g <&-", "opening standard input: Bad file descriptor"),
        ("exec $0 get -i - <&-", "opening standard input: Bad file descriptor"),
        (
            "exec $0 fill --node http://127.0.0.1:1 --manifest - <&-",
            "opening standard input: Bad file descriptor",
        ),
        ("exec $0 cp --json f h >&-", "writing standard output: Bad file descriptor"),
    ] {
        let (code, stderr) = shell(here.path(), command);
        assert_eq!(code, Some(1), "{command}: {stderr}");
        assert!(stderr.contains(words), "{command}: {stderr}");
    }
    // Without output or input, closed streams do not matter.
    for command in
        ["exec $0 cp f i >&- <&- 2>&-", "exec $0 cp f - >/dev/null", "exec $0 cp - j </dev/null"]
    {
        assert_eq!(shell(here.path(), command).0, Some(0), "{command}");
    }
}

#[test]
fn receipts_names_and_help_that_cannot_be_printed_are_an_error() {
    let here = folder();
    fs::write(here.path().join("f"), "bytes").unwrap();
    for command in
        ["cp --json f a", "cp -v f b", "--print-manpage", "--help", "get -h", "--version"]
    {
        let (code, stderr) = shell(here.path(), &format!("exec $0 {command} >/dev/full"));
        assert_eq!(code, Some(1), "{command}: {stderr}");
        assert!(stderr.contains("writing standard output: No space left on device"), "{stderr}");
        let (code, stderr) = shell(here.path(), &format!("($0 {command}; echo $? >&2) | true"));
        assert_eq!(code, Some(0), "{stderr}");
    }
    assert_eq!(names(here.path()), ["a", "b", "f"]);
    // Receipts on standard error, too; an event that nobody reads there is no failure.
    for command in ["cp --explain f c", "explain -- true"] {
        for (redirection, code) in [("2>/dev/full", 1), ("2>&-", 1), ("2>/dev/null", 0)] {
            let (found, _) = shell(here.path(), &format!("exec $0 {command} {redirection}"));
            assert_eq!(found, Some(code), "{command} {redirection}");
        }
    }
    assert_eq!(shell(here.path(), "exec $0 cp --progress f d 2>/dev/full").0, Some(0));
}

#[test]
fn findings_that_cannot_be_printed_are_an_error_whatever_they_are() {
    let here = folder();
    // Nothing listens there, which is a finding and has an exit code of its own.
    let origin = format!("--origin http://127.0.0.1:{}/f", free_port());
    for options in ["", "--json", &origin, &format!("--json {origin}")] {
        for (redirection, words) in [
            (">/dev/full", "writing standard output: No space left on device"),
            (">&-", "writing standard output: Bad file descriptor"),
        ] {
            let (code, stderr) =
                shell(here.path(), &format!("exec $0 doctor {options} {redirection}"));
            assert_eq!(code, Some(1), "{options}: {stderr}");
            assert!(stderr.contains(words), "{options}: {stderr}");
        }
    }
    let (code, stderr) = shell(here.path(), &format!("exec $0 doctor {origin} >/dev/null"));
    assert_eq!(code, Some(3), "{stderr}");
}

#[test]
fn hints_about_sockets_are_those_of_their_kind() {
    let here = folder();
    let (_, stderr) = shell(here.path(), "exec $0 send $0 '[fe80::1]:9'");
    assert!(stderr.contains("fe80::1%eth0"), "{stderr}");
    // Root may create sockets everywhere but where there are none.
    let is_root = underpass_testkit::is_root();
    let path = if is_root { "/proc/socket" } else { "/socket" };
    let (code, stderr) = shell(here.path(), &format!("exec $0 serve -b unix:{path} ."));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(!stderr.contains("1024"), "{stderr}");
    assert!(is_root || stderr.contains("the permissions of the socket"), "{stderr}");
    let path = "x".repeat(150);
    for command in ["send $0 --listen", "recv --listen", "send $0", "recv", "serve -b"] {
        let (code, stderr) = shell(here.path(), &format!("exec $0 {command} unix:{path}"));
        assert_eq!(code, Some(1), "{command}: {stderr}");
        assert!(stderr.contains("too long (the path of a socket"), "{command}: {stderr}");
    }
}
