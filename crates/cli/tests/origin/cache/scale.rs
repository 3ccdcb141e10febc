//! Three nodes behind a balancer, with the configurations that are offered for that.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tempfile::TempDir;
use underpass_testkit::{free_port, until_listening};

use crate::node::{Node, until_stored};
use crate::rig::{Running, folder, has, has_rare, noise, piped, run, serve, underpass, until};
use crate::scripted_origin::{Gate, Object, Origin};

const FILES: usize = 12;
const LEN: usize = 4 << 20;

/// The contents of a file.
fn contents(path: &str) -> Vec<u8> {
    let mut bytes = noise(LEN);
    bytes[..path.len()].copy_from_slice(path.as_bytes());
    bytes
}

fn origin() -> Origin {
    Origin::new(|request, sending| {
        Object::new(contents(&request.path), &request.path[1..]).send(request, sending);
    })
}

/// An offered configuration, with these nodes and this port.
pub fn config(name: &str, nodes: &[Node], port: u16) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/origin").join(name);
    let mut text = fs::read_to_string(path).unwrap();
    for (index, node) in nodes.iter().enumerate() {
        let example = format!("192.0.2.{}:5000", index + 1);
        assert!(text.contains(&example), "{name}: {example}");
        text = text.replace(&example, node.address());
    }
    text.replace("bind :8080", &format!("bind 127.0.0.1:{port}"))
        .replace("listen 8080", &format!("listen 127.0.0.1:{port}"))
}

pub fn start(program: &str, args: &[&str], port: u16) -> Running {
    let mut command = piped(program);
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").args(args);
    let running = Running::start(command);
    until_listening(port);
    running
}

/// Downloads all files slowly, kills a node that is in the middle of some, and compares.
fn one_node_is_killed(balancer: impl Fn(&TempDir, &[Node], u16) -> Running) {
    let origin = origin();
    let mut nodes: Vec<_> = (0..3).map(|_| Node::new(&origin.url(), &[])).collect();
    let (here, port) = (folder(), free_port());
    let balancer = balancer(&here, &nodes, port);
    let clients: Vec<_> = (0..2 * FILES)
        .map(|client| {
            let (name, target) = (client % FILES, here.path().join(format!("file-{client}")));
            let mut command = underpass();
            command.args(["get", "--rate", "2M", "-q", "-o"]).arg(&target);
            command.arg(format!("http://127.0.0.1:{port}/{name}"));
            (name, target, Running::start(command))
        })
        .collect();
    let readers = |node: &Node| {
        let rows = serde_json::from_slice::<Value>(&node.get("/.underpass/cache?json").body);
        let rows = rows.unwrap();
        rows.as_array().unwrap().iter().map(|row| row["readers"].as_u64().unwrap()).sum::<u64>()
    };
    let mut victim = 0;
    until("a node that is read from", || {
        let found = nodes.iter().position(|node| readers(node) > 1);
        victim = found.unwrap_or(0);
        found.is_some()
    });
    let mut killed = nodes.remove(victim);
    killed.server.child.kill().unwrap();
    for (name, target, client) in clients {
        client.finish().succeeded();
        assert!(fs::read(target).unwrap() == contents(&format!("/{name}")), "{name}");
    }
    for node in &nodes {
        until("fills that have ended", || node.metric("reserved_bytes") == 0);
        // Each file that a node has was fetched once.
        assert_eq!(node.metric("origin_bytes_total"), node.metric("used_bytes"));
    }
    assert!(nodes.iter().map(|node| node.metric("used_bytes")).sum::<u64>() >= LEN as u64);
    drop(balancer);
}

#[test]
fn clients_behind_haproxy_lose_nothing_when_a_node_is_killed() {
    if !has("haproxy") {
        return;
    }
    one_node_is_killed(|here, nodes, port| {
        let path = here.path().join("haproxy.cfg");
        fs::write(&path, config("haproxy.cfg", nodes, port)).unwrap();
        start("haproxy", &["-db", "-q", "-f", path.to_str().unwrap()], port)
    });
}

#[test]
fn clients_behind_nginx_lose_nothing_when_a_node_is_killed() {
    if !has("nginx") {
        return;
    }
    one_node_is_killed(|here, nodes, port| {
        let (path, here) = (here.path().join("nginx.conf"), here.path().display().to_string());
        // Without a home of its own: it has its files here.
        let own = format!(
            "http {{ client_body_temp_path {here}/1; proxy_temp_path {here}/2; \
             fastcgi_temp_path {here}/3; uwsgi_temp_path {here}/4; scgi_temp_path {here}/5;"
        );
        let text = config("nginx.conf", nodes, port).replace("http {", &own);
        fs::write(&path, text).unwrap();
        let global = format!("daemon off; master_process off; pid {here}/pid;");
        start("nginx", &["-e", "stderr", "-c", path.to_str().unwrap(), "-g", &global], port)
    });
}

/// The program, which `scripts/test-peers` installs: no distribution has it.
fn envoy() -> Option<PathBuf> {
    // The test's own path is `target/PROFILE/deps/NAME`.
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(3).unwrap().join("peers/envoy");
    has_rare(path.to_str().unwrap()).then_some(path)
}

#[test]
fn envoy_accepts_its_configuration() {
    let Some(envoy) = envoy() else { return };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/origin/envoy.yaml");
    let output = Command::new(envoy).args(["--mode", "validate", "-c"]).arg(path).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn clients_behind_envoy_lose_nothing_when_a_node_is_killed() {
    let Some(envoy) = envoy() else { return };
    one_node_is_killed(|here, nodes, port| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/origin/envoy.yaml");
        let mut text = fs::read_to_string(path).unwrap();
        for (index, node) in nodes.iter().enumerate() {
            let example = format!("address: 192.0.2.{}, port_value: 5000", index + 1);
            let (host, own) = node.address().split_once(':').unwrap();
            assert!(text.contains(&example), "{example}");
            text = text.replace(&example, &format!("address: {host}, port_value: {own}"));
        }
        let (example, own) =
            ("0.0.0.0, port_value: 8080", format!("127.0.0.1, port_value: {port}"));
        assert!(text.contains(example));
        let path = here.path().join("envoy.yaml");
        fs::write(&path, text.replace(example, &own)).unwrap();
        let (path, envoy) = (path.to_str().unwrap(), envoy.to_str().unwrap());
        let args = ["--disable-hot-restart", "--concurrency", "1", "-l", "error", "-c", path];
        start(envoy, &args, port)
    });
}

/// Fills a node by a list; returns the receipt.
fn fill(node: &Node, list: &str, args: &[&str]) -> (Option<i32>, Value, String) {
    let here = folder();
    let path = here.path().join("list");
    fs::write(&path, list).unwrap();
    let url = format!("http://{}", node.address());
    let words = ["fill", "--node", &url, "--manifest", path.to_str().unwrap(), "--json"];
    let finished = run(words.iter().chain(args));
    (finished.code(), finished.receipt(), finished.stderr)
}

#[test]
fn a_node_is_filled_by_a_list() {
    let origin = origin();
    let node = Node::new(&origin.url(), &[]);
    let (code, receipt, said) = fill(&node, "/2\n/1 9\n", &[]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!((&receipt["files"], &receipt["failed"]), (&2.into(), &0.into()), "{receipt}");
    assert_eq!(receipt["bytes"], (2 * LEN) as u64);
    assert_eq!(receipt["fetched_bytes"], (2 * LEN) as u64);
    assert!(said.contains("1 of 2: /1, 4.00 MiB"), "{said}");
    for path in ["/1", "/2"] {
        node.get(path).assert_is(200, &contents(path));
    }
    assert_eq!(origin.sent(), 2 * LEN as u64);
    // What is here is not fetched again, and what is popular here is a list for another node.
    let list = String::from_utf8(node.get("/.underpass/popular").body).unwrap();
    let (_, receipt, _) = fill(&node, &list, &["--rate", "100M", "-q"]);
    assert_eq!((&receipt["files"], &receipt["fetched_bytes"]), (&2.into(), &0.into()));
    let other = Node::new(&format!("http://{}/", node.address()), &[]);
    let (code, receipt, _) = fill(&other, &list, &["--rate", "100M", "-q"]);
    assert_eq!((code, &receipt["fetched_bytes"]), (Some(0), &(2 * LEN as u64).into()));
    assert_eq!(origin.sent(), 2 * LEN as u64);
}

/// What was fetched of the version before is not counted as a part of the new one.
#[test]
fn a_file_that_changes_between_two_pieces_is_begun_again() {
    for (changes, code) in [(1, 0), (100, 1)] {
        let (objects, count) = (["a", "b"].map(|tag| (tag, noise(LEN))), AtomicUsize::new(0));
        let origin = Origin::new(move |request, sending| {
            // Each piece is validated, and has changed.
            let number = count.fetch_add(1, Ordering::Relaxed);
            let (tag, bytes) = &objects[number.min(changes) % 2];
            let object = Object::new(bytes.to_vec(), tag).with("Cache-Control: max-age=0");
            object.send(request, sending);
        });
        let node = Node::new(&origin.url(), &[]);
        // Pieces of 2 MiB.
        let (exit, receipt, said) = fill(&node, "/a\n", &["--rate", "2M"]);
        assert_eq!(exit, Some(code), "{said}");
        if code == 0 {
            assert_eq!(receipt["bytes"], LEN as u64);
            until_stored(&node, LEN as u64);
        } else {
            assert!(said.contains("/a: it keeps changing"), "{said}");
        }
    }
}

#[test]
fn a_list_that_is_larger_than_the_cache_of_its_node_is_not_complete() {
    let origin = origin();
    let node = Node::new(&origin.url(), &["--cache-size", "10M"]);
    // Repeated, a path takes no more.
    let (code, _, said) = fill(&node, "/1\n/2\n/1\n/2\n", &[]);
    assert_eq!(code, Some(0), "{said}");
    let (code, receipt, said) = fill(&node, "/1 9\n/2 8\n/3 7\n/4 6\n", &[]);
    assert_eq!((code, &receipt["files"]), (Some(1), &2.into()), "{receipt}");
    let error = receipt["error"].as_str().unwrap();
    for words in ["holds 10.00 MiB", "up to /3", "12.02 MiB", "was not fetched"] {
        assert!(error.contains(words) && said.contains(words), "{error}: {said}");
    }
    // The node decides by the least recent use which of the files it has room for.
    let sent = origin.sent();
    let (code, receipt, said) = fill(&node, "/3\n/4\n", &[]);
    assert_eq!((code, &receipt["files"]), (Some(0), &2.into()), "{said}");
    assert!(origin.sent() > sent);
}

#[test]
fn a_list_has_the_fields_by_which_files_vary() {
    let origin = Origin::new(|request, sending| {
        let body = format!("{} {:?}", request.path, request.field("x-kind"));
        let lines = "Vary: X-Kind\nCache-Control: max-age=1000";
        Object::new(body.into_bytes(), "one").with(lines).send(request, sending);
    });
    let node = Node::new(&origin.url(), &["--vary-on", "X-Kind"]);
    let list = "/a\n/a\n  X-Kind: one\n/b\n\tX-Kind: two, three\n";
    let (code, receipt, said) = fill(&node, list, &[]);
    assert_eq!((code, &receipt["files"]), (Some(0), &3.into()), "{said}");
    // For all of a list.
    let (code, ..) = fill(&node, "/a\n/b\n", &["--header", "X-Kind: four"]);
    assert_eq!((code, origin.requests().len()), (Some(0), 5));
    for (path, fields, kind) in [
        ("/a", &[][..], "None"),
        ("/a", &["X-Kind: one"], "Some(\"one\")"),
        ("/b", &["X-Kind: two,three"], "Some(\"two, three\")"),
        ("/a", &["X-Kind: four"], "Some(\"four\")"),
        ("/b", &["X-Kind: four"], "Some(\"four\")"),
    ] {
        node.ask("GET", path, fields).assert_is(200, format!("{path} {kind}").as_bytes());
    }
    assert_eq!(origin.requests().len(), 5);
    let here = folder();
    fs::write(here.path().join("list"), "/a\n  no field\n").unwrap();
    let (url, list) = (format!("http://{}", node.address()), here.path().join("list"));
    let words = ["fill", "--node", &url, "--manifest", list.to_str().unwrap()];
    run(words).failed(2, &["line 2", "NAME: VALUE"]);
}

#[test]
fn popular_objects_can_be_listed_for_another_node() {
    let origin = Origin::new(|request, sending| {
        let body = format!("{} {:?}", request.path, request.field("x-kind"));
        let lines = "Vary: X-Kind\nCache-Control: max-age=1000";
        Object::new(body.into_bytes(), "one").with(lines).send(request, sending);
    });
    let args = ["--vary-on", "X-Kind", "--vary-on", "X-Other"];
    let node = Node::new(&origin.url(), &args);
    let requests = [
        ("/a%20b?x=1", &["X-Kind: one", "X-Other: a b; c=\"d\""][..]),
        ("/a%20b?x=1", &[][..]),
        ("/a%20b?x=1", &["X-Kind:"]),
        ("/b", &["X-Kind: two,  three"]),
    ];
    node.ask("GET", "/b", &["X-Kind: two, three"]);
    let bodies = requests.map(|(path, fields)| node.ask("GET", path, fields).body);
    let list = String::from_utf8(node.get("/.underpass/popular").body).unwrap();
    assert!(list.starts_with("/b 2\n  x-kind: two, three\n/a%20b?x=1 1\n"), "{list}");
    let first = node.get("/.underpass/popular?n=1");
    assert_eq!(first.body, b"/b 2\n  x-kind: two, three\n");
    let other = Node::new(&origin.url(), &args);
    let (code, receipt, said) = fill(&other, &list, &[]);
    assert_eq!((code, &receipt["files"]), (Some(0), &4.into()), "{said}");
    let before = origin.requests().len();
    for ((path, fields), body) in requests.into_iter().zip(&bodies) {
        other.ask("GET", path, fields).assert_is(200, body);
    }
    assert_eq!(origin.requests().len(), before, "{list}");
}

#[test]
fn failed_paths_of_a_fill_are_reported_and_the_others_filled() {
    let object = Object::new(b"hello".to_vec(), "a");
    let origin = Origin::new(move |request, sending| match request.path.as_str() {
        "/none" => sending.answer("HTTP/1.1 404 No", b""),
        "/private" => sending.answer("HTTP/1.1 200 OK\nCache-Control: private", b"hello"),
        "/open" => {
            sending.head("HTTP/1.1 200 OK\nConnection: close");
            sending.body(b"hello");
            sending.closes = true;
        }
        _ => object.send(request, sending),
    });
    let node = Node::new(&origin.url(), &[]);
    let (code, receipt, said) = fill(&node, "/none\n/private\n/open\n/a\n", &[]);
    assert_eq!((code, &receipt["failed"], &receipt["files"]), (Some(1), &3.into(), &1.into()));
    assert!(said.contains("/none") && said.contains("404"), "{said}");
    for path in ["/private", "/open"] {
        assert!(said.contains(&format!("{path}: ")) && said.contains("not cached"), "{said}");
    }
    let node = Node::new(&origin.url(), &["--auth", "w:w@/:rw", "--auth", "@/"]);
    let (code, receipt, said) = fill(&node, "/a\n/b\n", &["--no-netrc"]);
    assert_eq!((code, &receipt["files"]), (Some(1), &0.into()), "{said}");
    assert!(said.contains(node.address()) && said.contains("--user"), "{said}");
    let (code, ..) = fill(&node, "/a\n", &["--user", "w:w"]);
    assert_eq!(code, Some(0));
    let url = format!("http://{}", node.address());
    run(["fill", "--node", &url, "--manifest", "/none/list"]).failed(1, &["/none/list"]);
}

#[test]
fn a_path_that_no_file_has_is_refused_with_the_reason() {
    let origin = Origin::of(&Object::new(b"hello".to_vec(), "a"));
    let node = Node::new(&origin.url(), &[]);
    let (code, _, said) = fill(&node, "/100%\n/a#b\n/a%2Fb\n/a\n", &[]);
    assert_eq!(code, Some(1), "{said}");
    for why in ["/100%: ", "%25", "/a#b: ", "%23", "/a%2Fb: ", "a slash"] {
        assert!(said.contains(why), "{why}: {said}");
    }
    let refused = |target: &str| {
        let reply = node.ask("POST", target, &["Content-Length: 0"]);
        assert_eq!(reply.status, 400, "{target}");
        String::from_utf8(reply.body).unwrap()
    };
    for target in ["fill?path=a", "fill", "expire?prefix=a", "expire"] {
        let said = refused(&format!("/.underpass/{target}"));
        assert!(said.contains("write a path such as /a/b"), "{said}");
    }
    assert!(refused("/.underpass/fill?path=/a&from=x").contains("numbers of bytes"));
    assert!(
        refused("/.underpass/expire?prefix=/a%2500").contains("?prefix=: the path contains a NUL")
    );
}

#[test]
fn a_server_without_a_cache_is_no_node() {
    let folder = folder();
    let list = folder.path().join("list");
    fs::write(&list, "/a\n").unwrap();
    let server = serve(folder.path(), &[]);
    let list = list.to_str().unwrap();
    run(["fill", "--node", &server.address, "--manifest", list])
        .failed(1, &["not a cache node", "--origin"]);
    // A long page is not mistaken for an answer that breaks off.
    let origin = Origin::new(|_, sending| sending.answer("HTTP/1.1 200 OK", &noise(9000)));
    run(["fill", "--node", &origin.url(), "--manifest", list]).failed(1, &["invalid response"]);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_path_that_fails_for_a_moment_is_retried_with_a_message() {
    let object = Object::new(b"hello".to_vec(), "a");
    let origin = Origin::new(move |request, sending| match request.number {
        0 => sending.answer("HTTP/1.1 503 No", b""),
        _ => object.send(request, sending),
    });
    let node = Node::new(&origin.url(), &[]);
    let (code, receipt, said) = fill(&node, "/a\n", &[]);
    assert_eq!((code, &receipt["files"]), (Some(0), &1.into()), "{said}");
    assert!(said.contains("/a: the server answered 503 "), "{said}");
    assert!(said.contains("; trying again in "), "{said}");
}

#[test]
fn a_path_that_takes_too_long_does_not_stop_the_rest() {
    let gate = Gate::default();
    let held = gate.clone();
    let quick = Object::new(b"quick".to_vec(), "a");
    let origin = Origin::new(move |request, sending| match request.path.as_str() {
        "/slow" => held.wait(),
        _ => quick.send(request, sending),
    });
    let node = Node::new(&origin.url(), &[]);
    let limits = ["--timeout", "1", "--retries", "0"];
    let (code, receipt, said) = fill(&node, "/slow 9\n/quick\n", &limits);
    gate.open();
    assert_eq!((code, &receipt["files"], &receipt["failed"]), (Some(1), &1.into(), &1.into()));
    assert!(said.contains("/slow: too little progress within the time limit"), "{said}");
}

#[test]
fn a_node_with_few_descriptors_serves_any_number_of_objects() {
    let origin = Origin::new(|request, sending| {
        Object::new(request.path.clone().into_bytes(), &request.path).send(request, sending);
    });
    let node = Node::limited("-n 1024", &origin.url());
    for number in 0..600 {
        let path = format!("/{number}");
        node.get(&path).assert_is(200, path.as_bytes());
    }
    let open = fs::read_dir(format!("/proc/{}/fd", node.server.child.id())).unwrap().count();
    assert!(open < 400, "{open} descriptors");
}
