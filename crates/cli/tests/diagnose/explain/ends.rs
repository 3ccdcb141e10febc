//! How programs begin and end, and how that is reported.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::explain::scene::{Scene, free_port, python};
use crate::rig::{Running, has, piped, run, until};

#[test]
fn the_exit_code_is_that_of_the_program() {
    let scene = Scene::new(1);
    for (program, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)] {
        let (finished, receipt) = scene.explain(&["sh", "-c", program]);
        assert_eq!(finished.code(), Some(code), "{program}");
        match code {
            143 => assert_eq!((&receipt["signal"], receipt.get("exit_code")), (&15.into(), None)),
            _ => assert_eq!((&receipt["exit_code"], receipt.get("signal")), (&code.into(), None)),
        }
    }
}

#[test]
fn explain_fails_like_a_shell_for_programs_that_cannot_run() {
    let scene = Scene::new(1);
    fs::write(scene.path("script"), "echo").unwrap();
    let missing = run(["explain", "--", "/no/such/program"]);
    missing.failed(127, &["running /no/such/program", "No such file", "is it installed"]);
    // A mistyped option is no program, except after --.
    run(["explain", "--jsn", "--", "true"]).failed(2, &["'--jsn' found", "'--json'"]);
    run(["explain", "--", "--jsn"]).failed(127, &["running --jsn"]);
    let script = scene.path("script");
    let closed = run(["explain", "--", script.to_str().unwrap()]);
    closed.failed(126, &["Permission denied", "chmod +x"]);
    run(["explain"]).failed(2, &["COMMAND"]);
    let nowhere = run(["explain", "-o", "/no/folder/receipt", "--", "true"]);
    nowhere.failed(1, &["creating /no/folder/receipt"]);
    let receipt = scene.path("receipt");
    fs::write(&receipt, "of an earlier run ".repeat(1000)).unwrap();
    let words = ["explain", "-o", receipt.to_str().unwrap(), "--"];
    run([&words[..], &["/no/such/program"]].concat()).failed(127, &["No such file"]);
    assert_eq!(fs::read_to_string(&receipt).unwrap(), "of an earlier run ".repeat(1000));
    run([&words[..], &["true"]].concat()).succeeded();
    assert!(!fs::read_to_string(&receipt).unwrap().contains("earlier"));
}

#[test]
fn the_traced_program_keeps_its_own_input_and_output() {
    let scene = Scene::new(1);
    let program = "echo out; echo err >&2; read line; echo $line";
    let mut command = crate::rig::underpass();
    command.args(["explain", "--", "sh", "-c", program]).current_dir(scene.folder.path());
    command.stdin(fs::File::open("/etc/hostname").unwrap());
    let finished = Running::start(command).finish().succeeded();
    let host = fs::read_to_string("/etc/hostname").unwrap();
    assert_eq!(finished.text(), format!("out\n{}\n", host.trim()));
    assert!(finished.stderr.starts_with("err\nsh -c echo out"), "{}", finished.stderr);
    assert!(finished.stderr.contains("\nreceipt\n"), "{}", finished.stderr);
}

#[test]
fn closed_streams_stay_closed_for_the_program() {
    let scene = Scene::new(1);
    for program in ["cat source >&-", "cat <&-"] {
        let line = format!("\"$0\" explain -o receipt -- {program}");
        let mut command = Command::new("sh");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_underpass")]);
        let outcome = command.current_dir(scene.folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&outcome.stderr);
        assert!(
            outcome.status.code() == Some(1) && said.contains("Bad file descriptor"),
            "{program}: {said}"
        );
    }
}

#[test]
fn a_receipt_goes_behind_what_an_open_file_has() {
    let scene = Scene::new(1);
    let log = scene.path("log");
    for output in ["-", "/dev/stdout", "/dev/stderr", "/dev/fd/1"] {
        for is_appended in [true, false] {
            fs::write(&log, "earlier\n").unwrap();
            let mut file = fs::File::options().append(is_appended).write(true).open(&log).unwrap();
            file.seek(SeekFrom::End(0)).unwrap();
            let mut command = crate::rig::underpass();
            command.args(["explain", "-o", output, "--", "sh", "-c", "echo out; echo err >&2"]);
            command.current_dir(scene.folder.path()).stdout(file.try_clone().unwrap());
            assert!(command.stderr(file.try_clone().unwrap()).status().unwrap().success());
            writeln!(file, "later").unwrap();
            let text = fs::read_to_string(&log).unwrap();
            assert!(text.starts_with("earlier\nout\nerr\nsh -c "), "{output}: {text}");
            assert!(
                text.contains("\nreceipt\n") && text.ends_with("\nlater\n"),
                "{output}: {text}"
            );
        }
    }
    assert!(!scene.path("-").exists());
}

#[test]
fn a_program_whose_receipt_cannot_be_written_does_not_run() {
    let scene = Scene::new(1);
    fs::write(scene.path("log"), "").unwrap();
    for redirected in ["-o - >&-", "-o /dev/fd/3 3<log"] {
        let script = format!("exec \"$0\" explain {redirected} -- touch ran");
        let program = crate::rig::underpass();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).arg(program.get_program());
        let outcome = shell.current_dir(scene.folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&outcome.stderr);
        assert_eq!(outcome.status.code(), Some(1), "{redirected}: {said}");
        assert!(said.contains("Bad file descriptor"), "{redirected}: {said}");
        assert!(!scene.path("ran").exists(), "{redirected}");
    }
}

#[test]
fn chains_of_programs_are_followed_to_their_end() {
    let scene = Scene::new(100_000);
    let program = "exec sh -c 'exec sh -c \"exec cat source\"'";
    let (finished, receipt) = scene.explain(&["sh", "-c", program]);
    assert_eq!(finished.succeeded().stdout.len(), 100_000);
    assert_eq!(crate::explain::scene::end(&receipt, "/source")["read"]["bytes"], 100_000);
    assert_eq!(receipt["processes"], 1, "{receipt}");
}

#[test]
fn no_process_of_many_is_lost() {
    let scene = Scene::new(1000);
    let program = "i=0; while [ $i -lt 100 ]; do (cat source > copy.$i) & i=$((i+1)); done; wait";
    let (finished, receipt) = scene.explain(&["sh", "-c", program]);
    finished.succeeded();
    let source = crate::explain::scene::end(&receipt, "/source");
    let moved = |what: &str| source[what]["bytes"].as_u64().unwrap();
    assert_eq!(moved("read") + moved("moved_from"), 100 * 1000, "{receipt}");
    assert!(receipt["processes"].as_u64().unwrap() >= 101, "{receipt}");
}

#[test]
fn children_of_vfork_are_traced() {
    let Some(python) = python() else { return };
    let scene = Scene::new(1000);
    // subprocess uses vfork(2), posix_spawn(3) CLONE_VFORK.
    let program = "import os, subprocess
subprocess.run(['cat', 'source'], check=True, stdout=subprocess.DEVNULL)
pid = os.posix_spawn('/bin/cat', ['cat', 'source'], os.environ)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
    let (finished, receipt) = scene.explain(&[python, "-c", program]);
    assert_eq!(finished.succeeded().stdout.len(), 1000);
    assert_eq!(crate::explain::scene::end(&receipt, "/source")["read"]["bytes"], 2000, "{receipt}");
    assert!(receipt["processes"].as_u64().unwrap() >= 3, "{receipt}");
}

#[test]
fn a_signal_goes_to_the_program_and_the_receipt_is_written() {
    let scene = Scene::new(1);
    for (signal, number) in [("INT", 2), ("TERM", 15), ("HUP", 1), ("QUIT", 3), ("USR1", 10)] {
        let program = format!(
            "trap 'echo got it; exit 5' {signal}; echo ready; cat source >&2; \
            touch ready.{signal}; while :; do sleep 0.02; done"
        );
        // Tests that run in the background ignore some of them.
        let words = ["env", "--default-signal", "sh", "-c", &program];
        let running = Running::start(scene.command(&[], &words));
        until("the program", || scene.path(&format!("ready.{signal}")).exists());
        // It was stopped and goes on, as after Ctrl-Z and fg, and still passes signals on.
        running.signal("STOP");
        running.signal("CONT");
        running.signal(signal);
        let finished = running.finish();
        assert_eq!(finished.code(), Some(5), "{number} {}", finished.stderr);
        assert_eq!(finished.text(), "ready\ngot it\n");
        assert_eq!(scene.receipt()["exit_code"], 5);
    }
}

#[test]
fn a_signal_to_the_whole_group_reaches_the_program_once() {
    let scene = Scene::new(1);
    let program = "trap 'echo got it' TERM; touch ready; i=0; \
                   while test $i -lt 50; do sleep 0.02; i=$((i + 1)); done";
    let mut command = scene.command(&[], &["sh", "-c", program]);
    let running = command.process_group(0).spawn().unwrap();
    until("the program", || scene.path("ready").exists());
    // As timeout(1) does.
    let group = format!("-{}", running.id());
    assert!(Command::new("kill").args(["-s", "TERM", "--", &group]).status().unwrap().success());
    let output = running.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"got it\n"[..]));
}

#[test]
fn a_signal_that_was_ignored_stays_so() {
    let scene = Scene::new(1);
    let mut command = Command::new("sh");
    let program = "trap '' INT; exec \"$0\" explain -o receipt -- sh -c 'kill -INT $$; echo alive'";
    command.args(["-c", program, env!("CARGO_BIN_EXE_underpass")]);
    let output = command.current_dir(scene.folder.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "alive\n");
}

#[test]
fn a_stopped_program_continues_after_sigcont() {
    let scene = Scene::new(1);
    let program = "(sleep 0.1; kill -CONT $$) & kill -STOP $$; echo went on";
    let (finished, _) = scene.explain(&["sh", "-c", program]);
    assert_eq!(finished.succeeded().text(), "went on\n");
}

#[test]
fn daemons_of_a_program_are_awaited_and_get_signals() {
    let Some(python) = python() else { return };
    let scene = Scene::new(1000);
    let port = free_port().to_string();
    // A daemon: it is in a session of its own, and its parent is gone.
    let program = "import os, signal, sys, time
parent = os.getpid()
if os.fork(): os._exit(0)
os.setsid()
while os.getppid() == parent: time.sleep(0.001)
signal.signal(signal.SIGTERM, lambda *_: (open('ended', 'w').write('well'), os._exit(0)))
open('daemon', 'w').write(open('source', errors='replace').read(0) + str(os.getppid()))
while True: time.sleep(0.05)";
    let running = Running::start(scene.command(&[], &[python, "-c", program, &port]));
    until("the daemon", || fs::read(scene.path("daemon")).is_ok_and(|text| !text.is_empty()));
    running.end();
    assert_eq!(fs::read_to_string(scene.path("ended")).unwrap(), "well");
    let receipt = scene.receipt();
    assert!(receipt["processes"].as_u64().unwrap() >= 2, "{receipt}");
    assert_eq!(receipt["exit_code"], 0);
}

#[test]
fn a_refused_ptrace_is_one_line_with_a_remedy() {
    if !has("strace") {
        return;
    }
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", env!("CARGO_BIN_EXE_underpass")]);
    let output = command.args(["explain", "--", "true"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("tracing is not allowed here") && stderr.contains("strace"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn a_full_pipe_that_the_program_made_non_blocking_gets_the_receipt() {
    let Some(python) = python() else { return };
    let scene = Scene::new(1);
    // It fills its standard error, which stays non-blocking, as programs leave it that use an event loop.
    let program = "import os
os.set_blocking(2, False)
try:
    while os.write(2, b'x' * 1000): pass
except BlockingIOError: open('full', 'w')";
    for destination in [&[][..], &["-o", "/dev/stderr"], &["-o", "/dev/fd/2"]] {
        let _ = fs::remove_file(scene.path("full"));
        let mut command = piped(env!("CARGO_BIN_EXE_underpass"));
        command.arg("explain").args(destination).args(["--json", "--", python, "-c", program]);
        let mut running = command.current_dir(scene.folder.path()).spawn().unwrap();
        until("the pipe", || scene.path("full").exists());
        // Long enough for the program to end. A receipt that is still to be written is not lost.
        std::thread::sleep(Duration::from_millis(300));
        let mut stderr = String::new();
        running.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(running.wait().unwrap().code(), Some(0), "{}", stderr.trim_start_matches('x'));
        let receipt = serde_json::from_str(stderr.trim_start_matches('x'));
        assert_eq!(receipt.map(|it: Value| it["exit_code"].clone()).ok(), Some(0.into()));
    }
}
