//! Programs some of whose calls a filter of seccomp(2) refuses: their own one, or that of a container
//! around them and `explain`.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use underpass_testkit::{is_root, skip};

use crate::explain::scene::{Scene, by_call, python};
use crate::rig::{Running, has};

/// Refuses sendfile with EPERM, then becomes another program if there are more words, or else tries
/// it and copies by read and write.
const SCRIPT: &str = r"
import ctypes, os, platform, struct, sys
NO_NEW_PRIVILEGES, SECCOMP, BY_FILTER, ALLOW, REFUSE = 38, 22, 2, 0x7fff0000, 0x50001
number = {'x86_64': 40, 'aarch64': 71}[platform.machine()]
code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, REFUSE), (6, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in code))
program = struct.pack('HxxxxxxP', 4, ctypes.addressof(code))
prctl = ctypes.CDLL(None).prctl
if sys.argv[1] == 'confined':
    assert prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
    assert prctl(SECCOMP, BY_FILTER, ctypes.c_char_p(program), 0, 0) == 0
if len(sys.argv) > 2:
    os.execv(sys.argv[2], sys.argv[2:])
source, target = os.open('source', os.O_RDONLY), os.open('target', os.O_WRONLY | os.O_CREAT)
try:
    os.sendfile(target, source, None, 1 << 20)
    sys.exit('nobody refused')
except PermissionError:
    pass
while piece := os.read(source, 4096):
    os.write(target, piece)
";

/// The refusal is reported, and what was done instead.
#[track_caller]
fn check(scene: &Scene) {
    let receipt = scene.receipt();
    let declined = receipt["declined"].as_array().unwrap();
    let is_refusal = |one: &&Value| one["mechanism"] == "sendfile" && one["errno"] == "EPERM";
    let refusal = declined.iter().find(is_refusal);
    assert!(refusal.is_some_and(|one| one["times"] == 1), "{receipt}");
    assert_eq!(fs::read(scene.path("target")).unwrap(), fs::read(scene.path("source")).unwrap());
    let (bytes, calls) = by_call(&receipt, "write");
    assert!(bytes >= 1 << 20 && calls >= 256, "{receipt}");
}

#[test]
fn explain_reports_calls_that_the_program_forbade_itself() {
    let Some(python) = python() else { return };
    let scene = Scene::new(1 << 20);
    let (finished, _) = scene.explain(&[python, "-c", SCRIPT, "confined"]);
    finished.succeeded();
    check(&scene);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_call_of_another_architecture_counts_once() {
    const GETPID_OF_I386: &str = r"
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b'\xb8\x14\0\0\0\xcd\x80\xc3')
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
";
    let Some(python) = python() else { return };
    if !Command::new(python).args(["-c", GETPID_OF_I386]).status().unwrap().success() {
        return skip("this kernel runs no 32-bit programs");
    }
    let scene = Scene::new(1);
    scene.explain(&[python, "-c", SCRIPT, "confined", python, "-c", GETPID_OF_I386]).0.succeeded();
    assert_eq!(scene.receipt()["hidden"]["foreign_calls"], 1);
}

#[test]
fn explain_claims_nothing_without_its_proc() {
    if !is_root() {
        return skip("only root can unmount /proc");
    }
    if !has("unshare") {
        return;
    }
    let scene = Scene::new(1 << 20);
    // No /proc, and that of another PID namespace, in which the numbers are those of others.
    for script in ["mount -t tmpfs none /proc && exec \"$0\" \"$@\"", "exec \"$0\" \"$@\""] {
        let explain = scene.command(&[], &["cp", "source", "target"]);
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "sh", "-c", script]);
        command.arg(explain.get_program()).args(explain.get_args());
        command.current_dir(scene.folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let finished = Running::start(command).finish();
        finished.failed(1, &["/proc", "mount -t proc"]);
        assert!(!scene.path("target").exists());
    }
}

#[test]
fn explain_reports_calls_that_a_container_forbids() {
    let Some(python) = python() else { return };
    let scene = Scene::new(1 << 20);
    let explain = scene.command(&[], &[python, "-c", SCRIPT, "as it is"]);
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT, "confined"]).arg(explain.get_program()).args(explain.get_args());
    command.current_dir(scene.folder.path()).stdin(Stdio::null());
    assert!(command.status().unwrap().success());
    check(&scene);
    // All calls have to be looked at to see any refused.
    assert!(scene.receipt()["all_calls"].as_u64().unwrap() > 512);
}
