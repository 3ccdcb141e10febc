//! `put` to servers of all kinds.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::clients::site::{Authority, Nginx, at_home, free_port, run, until_listening};
use crate::rig::{Running, folder, names, noise, noise_file, until};

const LEN: usize = 24 << 20;

#[test]
fn nginx_takes_files_streams_and_folders() {
    let authority = Authority::new();
    let certificate = authority.issue("localhost");
    let port = free_port();
    let Some(nginx) = Nginx::new(&[(port, &certificate, "")]) else { return };
    let (home, ca) = (folder(), authority.path());
    noise_file(home.path(), "file", 5 << 20);
    fs::create_dir_all(home.path().join("tree/empty")).unwrap();
    noise_file(&home.path().join("tree"), "one", 1000);
    until_listening(port);
    let url = format!("https://localhost:{port}/");
    let arrived = |name: &str| fs::read(nginx.root().join(name)).unwrap();
    let args = ["put", "file", &url, "--cacert", &ca, "--json"];
    let receipt = run(home.path(), &args).succeeded().receipt();
    assert!(arrived("file") == noise(5 << 20));
    assert_eq!(receipt["status"], 201);
    // Older ones offer the newest version only if configured.
    assert!(receipt["tls"]["version"].as_str().unwrap().starts_with("TLSv1."), "{receipt}");

    let mut command = at_home(home.path(), &["put", "-", &format!("{url}stream"), "--cacert", &ca]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&noise(1 << 20)).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(arrived("stream") == noise(1 << 20));

    run(home.path(), &["put", "-r", "tree", &url, "--cacert", &ca]).succeeded();
    assert!(arrived("tree/one") == noise(1000));
    noise_file(home.path(), "large", 21 << 20);
    run(home.path(), &["put", "large", &url, "--cacert", &ca]).failed(1, &["413", "larger"]);
}

#[test]
fn a_killed_upload_to_our_own_server_goes_on_where_it_was() {
    let (served, home) = (folder(), folder());
    noise_file(home.path(), "file", LEN);
    let authority = Authority::new();
    let (certificate, key) = authority.issue("127.0.0.1");
    let mut command =
        at_home(home.path(), &["serve", "--quiet", "-A", "--port", "0", "--tls-cert"]);
    command.arg(certificate).arg("--tls-key").arg(key).arg(served.path());
    let server = Running::listening(command);
    let (ca, url) = (authority.path(), format!("{}target", server.address));
    let args = ["put", "file", &url, "--cacert", &ca, "--json"];
    let mut put = Running::start(at_home(home.path(), &[&args[..], &["--rate", "8M"]].concat()));
    let part = || {
        let name = names(served.path()).into_iter().find(|name| name.ends_with(".upload"))?;
        fs::metadata(served.path().join(name)).ok().map(|facts| facts.len())
    };
    until("a part has arrived", || part().is_some_and(|len| len > 2 << 20));
    put.child.kill().unwrap();
    put.child.wait().unwrap();
    let args = [&args[..], &["--digest", "sha-256"]].concat();
    let receipt = run(home.path(), &args).succeeded().receipt();
    let (before, now) =
        (receipt["resumed_at"].as_u64().unwrap(), receipt["bytes"].as_u64().unwrap());
    assert!(before > 1 << 20, "{receipt}");
    assert_eq!(before + now, LEN as u64);
    assert_eq!(names(served.path()), ["target"]);
    assert!(fs::read(served.path().join("target")).unwrap() == noise(LEN));
}
