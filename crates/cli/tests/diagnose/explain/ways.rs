//! Rarely used ways to move bytes, and those that cannot be observed.

use std::process::Command;

use crate::explain::scene::{Scene, crossed, end, moved};
use underpass_testkit::mounts::{FileSystem, Mounted};
use underpass_testkit::skip;

/// Runs a program in Python, which has most system calls.
fn python(scene: &Scene, program: &str) -> Option<serde_json::Value> {
    let (finished, receipt) = scene.explain(&[crate::explain::scene::python()?, "-c", program]);
    finished.succeeded();
    Some(receipt)
}

#[test]
fn kinds_of_descriptors_are_distinguished() {
    let scene = Scene::new(10);
    let program = "import os, socket
near, far = os.pipe()
os.write(far, b'x' * 11); os.read(near, 100)
a, b = socket.socketpair(); a.send(b'x' * 12); b.recv(100)
main, terminal = os.openpty(); os.write(terminal, b'x' * 13); os.read(main, 100)
null = os.open('/dev/null', os.O_WRONLY); os.write(null, b'x' * 14)
event = os.eventfd(1); os.eventfd_read(event)
# Another file under the number of one that was closed.
copy = os.dup(null); os.close(null); os.dup2(far, copy); os.write(copy, b'x' * 100)";
    let Some(receipt) = python(&scene, program) else { return };
    assert_eq!(crossed(&receipt, "out", "pipe", "read_write"), (111, 2), "{receipt}");
    assert_eq!(crossed(&receipt, "in", "pipe", "read_write"), (11, 1));
    assert_eq!(crossed(&receipt, "out", "socket", "read_write"), (12, 1));
    assert_eq!(crossed(&receipt, "in", "socket", "read_write"), (12, 1));
    assert_eq!(crossed(&receipt, "out", "terminal", "read_write"), (13, 1));
    assert_eq!(crossed(&receipt, "out", "device", "read_write"), (14, 1));
    assert_eq!(end(&receipt, "/dev/null")["written"]["bytes"], 14);
    assert!(crossed(&receipt, "in", "other", "read_write").0 >= 8);
}

#[test]
fn a_vector_that_is_partly_a_mapped_file_is_split() {
    let scene = Scene::new(100_000);
    let program = "import mmap, os
file = open('source', 'rb')
whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
target = os.open('target', os.O_CREAT | os.O_WRONLY)
os.writev(target, [b'h' * 1000, memoryview(whole)[4096:96000], b't' * 10])
os.write(target, memoryview(whole)[:500])
del_me = memoryview(whole)[:1].release()
whole.close()
# The same place in memory, or another, but no file any more.
again = mmap.mmap(-1, 100000); os.write(target, memoryview(again)[:700])";
    let Some(receipt) = python(&scene, program) else { return };
    let target = end(&receipt, "/target");
    assert_eq!(target["written"]["bytes"], 1000 + 91_904 + 10 + 500 + 700, "{receipt}");
    assert_eq!(crossed(&receipt, "out", "file", "mmap"), (91_904 + 500, 2), "{receipt}");
}

#[test]
fn constants_of_a_program_are_not_taken_for_a_mapped_file() {
    let scene = Scene::new(10);
    let (finished, receipt) = scene.explain(&["sh", "-c", "/bin/echo hello; id; cat source"]);
    finished.succeeded();
    let any =
        receipt["crossings"].as_array().unwrap().iter().any(|each| each["mechanism"] == "mmap");
    assert!(!any, "{receipt}");
}

#[test]
fn declined_calls_are_listed_with_their_ends_and_reason() {
    let scene = Scene::new(100);
    let program = "import os
source = os.open('source', os.O_RDONLY)
end = os.open('end', os.O_CREAT | os.O_WRONLY | os.O_APPEND)
for call in (lambda: os.copy_file_range(source, end, 10), lambda: os.sendfile(end, source, 0, 10),
             lambda: os.sendfile(end, source, 0, 10), lambda: os.splice(source, end, 10)):
    try: call()
    except OSError: pass
near, far = os.pipe()
os.set_blocking(near, False)
try: os.read(near, 1)
except BlockingIOError: pass
try: os.read(far, 1)
except OSError: pass";
    let Some(receipt) = python(&scene, program) else { return };
    let declined = receipt["declined"].as_array().unwrap();
    let found: Vec<_> = declined
        .iter()
        .map(|each| {
            let text = |name: &str| each[name].as_str().unwrap_or_default().to_owned();
            (text("mechanism"), text("errno"), each["times"].as_u64().unwrap())
        })
        .collect();
    let expected = [
        ("copy_file_range".to_owned(), "EBADF".to_owned(), 1),
        ("sendfile".to_owned(), "EINVAL".to_owned(), 2),
        ("splice".to_owned(), "EINVAL".to_owned(), 1),
    ];
    assert_eq!(found, expected, "{receipt}");
    assert!(declined.iter().all(|each| each["reason"].is_string() && each["from"] == "file"));
    let failed = receipt["failed"].as_array().unwrap();
    let of_read = failed.iter().find(|each| each["mechanism"] == "read" && each["from"] == "pipe");
    assert_eq!(of_read.unwrap()["errno"], "EBADF");
    assert!(receipt["waits"].as_u64().unwrap() >= 1);
}

#[test]
fn bytes_through_an_own_pipe_count_once() {
    let scene = Scene::new(200_000);
    let program = "import os
source = os.open('source', os.O_RDONLY); target = os.open('target', os.O_CREAT | os.O_WRONLY)
near, far = os.pipe()
while moved := os.splice(source, far, 65536):
    while moved: moved -= os.splice(near, target, moved)
# The last stays in the pipe and is read.
os.splice(os.open('source', os.O_RDONLY), far, 777)
os.read(near, 10000)";
    let Some(receipt) = python(&scene, program) else { return };
    assert_eq!(moved(&receipt, "splice", "file", "file").0, 200_000, "{receipt}");
    assert_eq!(moved(&receipt, "splice", "file", "pipe").0, 777, "{receipt}");
    assert_eq!(crossed(&receipt, "in", "pipe", "read_write"), (777, 1));
}

#[test]
fn bytes_read_from_a_pipe_have_left_it() {
    let scene = Scene::new(60_000);
    let program = "import os
source = os.open('source', os.O_RDONLY); target = os.open('target', os.O_CREAT | os.O_WRONLY)
near, far = os.pipe()
assert os.splice(source, far, 60000) == len(os.read(near, 60000)) == 60000
os.write(far, b'x' * 50000)
assert os.splice(near, target, 50000) == 50000";
    let Some(receipt) = python(&scene, program) else { return };
    assert_eq!(moved(&receipt, "splice", "file", "pipe").0, 60_000, "{receipt}");
    assert_eq!(moved(&receipt, "splice", "pipe", "file").0, 50_000, "{receipt}");
    assert_eq!(moved(&receipt, "splice", "file", "file").0, 0, "{receipt}");
}

#[test]
fn vmsplice_out_of_a_pipe_is_a_copy() {
    let scene = Scene::new(10);
    let program = "import ctypes, os
near, far = os.pipe()
buffer = ctypes.create_string_buffer(b'x' * 9999, 10000)
vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 10000)
call = ctypes.CDLL(None).vmsplice
assert call(far, vector, 1, 0) == 10000
assert call(near, vector, 1, 0) == 10000";
    let Some(receipt) = python(&scene, program) else { return };
    assert_eq!(crossed(&receipt, "out", "pipe", "vmsplice"), (10_000, 1), "{receipt}");
    assert_eq!(crossed(&receipt, "in", "pipe", "read_write"), (10_000, 1), "{receipt}");
}

#[test]
fn a_datagram_counts_as_far_as_it_is_copied() {
    let scene = Scene::new(10);
    let program = "import socket
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
for _ in range(2): one.send(b'x' * 40000)
other.recv(100, socket.MSG_TRUNC)
other.recvmsg_into([bytearray(50), bytearray(60)], 0, socket.MSG_TRUNC)";
    let Some(receipt) = python(&scene, program) else { return };
    assert_eq!(crossed(&receipt, "in", "socket", "read_write"), (210, 2), "{receipt}");
}

#[test]
fn msg_zerocopy_is_a_copy_unless_the_socket_allows_it() {
    let scene = Scene::new(10);
    let program = "import socket
server = socket.create_server(('127.0.0.1', 0))
for allows in (False, True):
    one = socket.create_connection(server.getsockname()); other = server.accept()[0]
    if allows: one.setsockopt(socket.SOL_SOCKET, 60, 1)
    one.send(b'x' * (2000 if allows else 1000), 0x4000000)
    other.recv(5000)";
    let Some(receipt) = python(&scene, program) else { return };
    assert_eq!(crossed(&receipt, "out", "socket", "read_write").0, 1000, "{receipt}");
    assert_eq!(crossed(&receipt, "out", "socket", "msg_zerocopy").0, 2000, "{receipt}");
}

#[test]
fn reads_into_a_mapped_file_count_as_delivered() {
    let scene = Scene::new(100_000);
    let program = "import mmap, os
target = os.open('target', os.O_CREAT | os.O_RDWR); os.ftruncate(target, 100000)
os.readv(os.open('source', os.O_RDONLY), [mmap.mmap(target, 100000)])";
    let Some(receipt) = python(&scene, program) else { return };
    let by_mmap = crossed(&receipt, "in", "file", "mmap").0;
    assert_eq!((by_mmap, &receipt["bytes"]), (100_000, &100_000.into()), "{receipt}");
}

#[test]
fn both_requests_to_share_blocks_are_seen() {
    let Some(python) = crate::explain::scene::python() else { return };
    let Some(mounted) = Mounted::new(FileSystem::Xfs, 320) else { return };
    let scene = Scene::new(10);
    std::fs::write(mounted.root().join("source"), vec![7; 1 << 20]).unwrap();
    let program = "import fcntl, os, struct, sys
os.chdir(sys.argv[1])
source = os.open('source', os.O_RDONLY)
new = lambda name: os.open(name, os.O_CREAT | os.O_RDWR)
fcntl.ioctl(new('all'), 0x40049409, source)
fcntl.ioctl(new('part'), 0x4020940d, struct.pack('qQQQ', source, 0, 1 << 19, 0))";
    let root = mounted.root();
    let root = root.to_str().unwrap();
    let (finished, receipt) = scene.explain(&[python, "-c", program, root]);
    finished.succeeded();
    assert_eq!(moved(&receipt, "reflink", "file", "file"), ((1 << 20) + (1 << 19), 2), "{receipt}");
}

#[test]
fn copies_between_processes_are_hidden_calls() {
    let scene = Scene::new(10);
    let program = "import ctypes, os
buffer = ctypes.create_string_buffer(100)
vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 100)
call = ctypes.CDLL(None).process_vm_readv
assert call(os.getpid(), vector, 1, vector, 1, 0) == 100";
    let Some(receipt) = python(&scene, program) else { return };
    assert_eq!(receipt["hidden"]["between_processes_calls"], 1, "{receipt}");
}

#[test]
fn the_receipt_says_that_io_uring_hides_its_work() {
    let Some(python) = crate::explain::scene::python() else { return };
    let scene = Scene::new(10);
    // The second attempt fails everywhere, and hides nothing.
    let program = "import ctypes
print(ctypes.CDLL(None).syscall(425, 4, ctypes.create_string_buffer(256)))
ctypes.CDLL(None).syscall(425, 4, 0)";
    let (finished, receipt) = scene.explain(&[python, "-c", program]);
    let is_refused = finished.succeeded().text().starts_with('-');
    assert_eq!(receipt["hidden"]["io_uring_calls"], u64::from(!is_refused), "{receipt}");
    if is_refused {
        return skip("io_uring is switched off");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_underpass"));
    command.args(["explain", "--", "python3", "-c", program]);
    let output = command.output().unwrap();
    let output = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.contains("io_uring") && output.contains("not seen"), "{output}");
}

#[test]
fn context_switches_caused_by_tracing_are_not_counted() {
    let scene = Scene::new(1 << 20);
    let (finished, receipt) =
        scene.explain(&["dd", "if=source", "of=/dev/null", "bs=512", "status=none"]);
    finished.succeeded();
    let stops = receipt["stops"].as_u64().unwrap();
    assert!(stops > 8000, "{receipt}");
    // It reads from the page cache and waits for nothing.
    let voluntary = receipt["context_switches"]["voluntary"].as_u64().unwrap();
    assert!(voluntary < stops / 10, "{receipt}");
}
