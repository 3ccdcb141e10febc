//! Common programs that move files: the mechanism that each really uses.

use std::fs;
use std::process::Command;

use crate::explain::scene::{Scene, by_call, crossed, end, fetch, free_port, moved, python};
use crate::rig::{has, nginx, noise};

const LEN: usize = 3_000_000;

#[test]
fn nginx_sends_by_sendfile() {
    if !(has("curl") && nginx_is_here()) {
        return;
    }
    let scene = Scene::new(LEN);
    let port = free_port();
    let root = scene.folder.path();
    let http =
        format!("sendfile on; server {{ listen 127.0.0.1:{port}; root {}; }}", root.display());
    let config = nginx::config(root, &http);
    let (program, errors) = (program(), scene.path("errors"));
    let [config, errors] = [&config, &errors].map(|path| path.to_str().unwrap());
    let words = [&program, "-c", config, "-e", errors];
    let server = scene.serve(&words, port);
    fetch(port, "source", &scene.path("target"));
    server.end();
    assert!(fs::read(scene.path("target")).unwrap() == noise(LEN));
    let receipt = scene.receipt();
    assert_eq!(moved(&receipt, "sendfile", "file", "socket").0, LEN as u64, "{receipt}");
    assert_eq!(end(&receipt, "/source")["moved_from"]["bytes"], LEN);
    assert_eq!(end(&receipt, "/source")["read"]["bytes"], 0);
    // A master and its workers.
    assert!(receipt["processes"].as_u64().unwrap() >= 2, "{receipt}");
}

#[test]
fn the_server_of_python_reads_and_writes() {
    let Some(python) = python().filter(|_| has("curl")) else { return };
    let scene = Scene::new(LEN);
    let port = free_port();
    let (bind, number) = ("127.0.0.1", port.to_string());
    let server = scene.serve(&[python, "-m", "http.server", "-b", bind, &number], port);
    fetch(port, "source", &scene.path("target"));
    server.signal("TERM");
    server.finish();
    let receipt = scene.receipt();
    let source = end(&receipt, "/source");
    assert_eq!(source["read"]["bytes"], LEN, "{receipt}");
    assert_eq!(source["moved_from"]["bytes"], 0);
    // The heads of answers beside the file.
    let (sent, calls) = crossed(&receipt, "out", "socket", "read_write");
    assert!((LEN as u64..LEN as u64 + 2_000).contains(&sent), "{receipt}");
    assert!(calls > 1);
    assert_eq!(receipt["moves"].as_array().unwrap().len(), 0);
    assert!(receipt["user_space_bytes"].as_u64().unwrap() >= 2 * LEN as u64);
}

#[test]
fn cp_copies_in_the_kernel() {
    let scene = Scene::new(LEN);
    let (finished, receipt) = scene.explain(&["cp", "source", "target"]);
    finished.succeeded();
    let by = |mechanism| moved(&receipt, mechanism, "file", "file").0;
    assert_eq!(by("copy_file_range") + by("reflink"), LEN as u64, "{receipt}");
    assert_eq!(end(&receipt, "/source")["read"]["bytes"], 0);
    // Where it could not share blocks, the reason is given.
    if by("reflink") == 0 {
        let declined = &receipt["declined"][0];
        assert_eq!(declined["mechanism"], "reflink");
        assert!(declined["reason"].is_string(), "{declined}");
    }
}

#[test]
fn curl_receives_into_its_memory_and_writes() {
    let Some(python) = python().filter(|_| has("curl")) else { return };
    let scene = Scene::new(LEN);
    let port = free_port();
    let folder = scene.folder.path();
    let mut server = Command::new(python);
    server.args(["-m", "http.server", "-b", "127.0.0.1", &port.to_string()]).current_dir(folder);
    server.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut server = server.spawn().unwrap();
    crate::rig::until("a server", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let url = format!("http://127.0.0.1:{port}/source");
    let (finished, receipt) = scene.explain(&["curl", "-sf", "-o", "target", &url]);
    server.kill().unwrap();
    server.wait().unwrap();
    finished.succeeded();
    assert!(fs::read(scene.path("target")).unwrap() == noise(LEN));
    assert_eq!(end(&receipt, "/target")["written"]["bytes"], LEN, "{receipt}");
    let (received, _) = crossed(&receipt, "in", "socket", "read_write");
    assert!((LEN as u64..LEN as u64 + 2_000).contains(&received), "{receipt}");
    assert_eq!(receipt["moves"].as_array().unwrap().len(), 0);
}

#[test]
fn dd_reads_and_writes_blocks() {
    let scene = Scene::new(1 << 20);
    let words = ["dd", "if=source", "of=target", "bs=4k", "status=none"];
    let (finished, receipt) = scene.explain(&words);
    finished.succeeded();
    let (source, target) = (end(&receipt, "/source"), end(&receipt, "/target"));
    assert_eq!(source["read"]["bytes"], 1 << 20);
    // 256 blocks and the end.
    assert_eq!(source["read"]["calls"], 257);
    assert_eq!(source["read"]["mean_bytes"], 4096);
    assert_eq!(target["written"]["bytes"], 1 << 20);
    assert_eq!(target["written"]["calls"], 256);
}

#[test]
fn sendfile_of_python_is_seen() {
    let Some(python) = python() else { return };
    let scene = Scene::new(LEN);
    let program = "import os, socket, threading
near, far = socket.socketpair()
file = open('source', 'rb')
reader = threading.Thread(target=lambda: [None for _ in iter(lambda: far.recv(65536), b'')])
reader.start()
at = 0
while moved := os.sendfile(near.fileno(), file.fileno(), at, 65535): at += moved
near.close()
reader.join()
";
    let (finished, receipt) = scene.explain(&[python, "-c", program]);
    finished.succeeded();
    let (bytes, calls) = moved(&receipt, "sendfile", "file", "socket");
    assert_eq!(bytes, LEN as u64);
    assert!(calls > LEN as u64 / 65535, "{receipt}");
    assert_eq!(by_call(&receipt, "sendfile"), (bytes, calls));
    // What the thread takes out at the other side goes through its memory.
    assert_eq!(crossed(&receipt, "in", "socket", "read_write").0, LEN as u64);
    assert!(receipt["threads"].as_u64().unwrap() >= 2);
}

fn program() -> String {
    let places = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"];
    let found = places.iter().find(|path| std::path::Path::new(path).is_file());
    (*found.unwrap_or(&"nginx")).to_owned()
}

fn nginx_is_here() -> bool {
    // Debian keeps it where only root looks.
    std::path::Path::new(&program()).is_file() || has("nginx")
}
