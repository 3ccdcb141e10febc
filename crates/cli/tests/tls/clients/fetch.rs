//! `get` from servers of all kinds.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::clients::site::{Authority, Nginx, at_home, free_port, run, until_listening};
use crate::rig::{Running, folder, has, noise, noise_file, piped, until};

const LEN: usize = (20 << 20) + 321;

#[test]
fn nginx_gives_files_and_folders_in_either_version() {
    let authority = Authority::new();
    let certificate = authority.issue("localhost");
    let (old, new, plain) = (free_port(), free_port(), free_port());
    let away = format!(
        "}} server {{ listen 127.0.0.1:{plain}; return 301 https://localhost:{new}$request_uri;"
    );
    let Some(nginx) = Nginx::new(&[
        (old, &certificate, "ssl_protocols TLSv1.2;"),
        (new, &certificate, &format!("ssl_protocols TLSv1.3; {away}")),
    ]) else {
        return;
    };
    noise_file(&nginx.root(), "file", LEN);
    fs::create_dir(nginx.root().join("folder")).unwrap();
    noise_file(&nginx.root().join("folder"), "small", 1000);
    noise_file(&nginx.root().join("folder"), "large", 300_000);
    until_listening(plain);
    let ca = authority.path();
    for (url, version) in [
        (format!("https://localhost:{old}/"), "TLSv1.2"),
        (format!("https://localhost:{new}/"), "TLSv1.3"),
        (format!("http://localhost:{plain}/"), "TLSv1.3"),
    ] {
        let home = folder();
        let args = ["get", "--cacert", &ca, "-j", "3", "--json", &format!("{url}file")];
        let receipt = run(home.path(), &args).succeeded().receipt();
        assert!(fs::read(home.path().join("file")).unwrap() == noise(LEN), "{url}");
        assert_eq!(receipt["tls"]["version"], version);
        assert!(receipt["tls"]["suite"].as_str().unwrap().starts_with("TLS"), "{receipt}");
        assert_where(&receipt, 2 * LEN as u64);
        let args = ["get", "--cacert", &ca, "-r", "--json", "--explain", &format!("{url}folder/")];
        let finished = run(home.path(), &args).succeeded();
        assert_eq!(finished.receipt()["tls"]["version"], version);
        assert!(
            finished.stderr.contains(&format!("  tls          {version}, ")),
            "{}",
            finished.stderr
        );
        assert!(fs::read(home.path().join("folder/large")).unwrap() == noise(300_000));
        assert!(fs::read(home.path().join("folder/small")).unwrap() == noise(1000));
    }
}

/// The receipt says where TLS was processed, and its count of copied bytes agrees.
fn assert_where(receipt: &serde_json::Value, copied: u64) {
    match receipt["tls"]["where"].as_str().unwrap() {
        "kernel" => {
            assert_eq!(receipt["user_space_bytes"], 0, "{receipt}");
            assert!(receipt["tls"].get("why").is_none(), "{receipt}");
        }
        "user_space" => {
            assert_eq!(receipt["user_space_bytes"], copied, "{receipt}");
            assert!(receipt["tls"]["why"].is_string(), "{receipt}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_killed_download_goes_on_where_it_was() {
    let authority = Authority::new();
    let certificate = authority.issue("localhost");
    let port = free_port();
    let Some(nginx) = Nginx::new(&[(port, &certificate, "")]) else { return };
    noise_file(&nginx.root(), "file", LEN);
    until_listening(port);
    let (home, ca, url) = (folder(), authority.path(), format!("https://localhost:{port}/file"));
    let args = ["get", "--cacert", &ca, "--json", &url];
    let mut get = Running::start(at_home(home.path(), &[&args[..], &["--rate", "8M"]].concat()));
    let noted = || {
        let text = fs::read_to_string(home.path().join("file.part.journal")).unwrap_or_default();
        let pieces = text.lines().skip(1).filter_map(|line| line.split(' ').nth(1));
        pieces.map(|done| done.parse::<u64>().unwrap()).sum::<u64>()
    };
    until("a part has arrived", || noted() > 2 << 20);
    get.child.kill().unwrap();
    get.child.wait().unwrap();
    let receipt = run(home.path(), &args).succeeded().receipt();
    assert!(fs::read(home.path().join("file")).unwrap() == noise(LEN));
    let (before, now) =
        (receipt["resumed_at"].as_u64().unwrap(), receipt["bytes"].as_u64().unwrap());
    assert!(before > 2 << 20, "{receipt}");
    assert_eq!(before + now, LEN as u64);
}

#[test]
fn servers_without_close_notify_are_read_up_to_their_length() {
    if !(has("openssl") && has("python3")) {
        return;
    }
    let authority = Authority::new();
    let (certificate, key) = authority.issue("localhost");
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let served = folder();
    noise_file(served.path(), "file", 3 << 20);
    let port = free_port();
    let script = "import http.server, ssl, sys\n\
        server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), \
        http.server.SimpleHTTPRequestHandler)\n\
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n\
        context.load_cert_chain(sys.argv[2], sys.argv[3])\n\
        server.socket = context.wrap_socket(server.socket, server_side=True)\n\
        server.serve_forever()\n";
    let mut python = piped("python3");
    python.args(["-c", script, &port.to_string(), certificate, key]).current_dir(&served);
    let _python = Running::start(python);
    until_listening(port);
    let (home, ca) = (folder(), authority.path());
    let url = format!("https://localhost:{port}/file");
    run(home.path(), &["get", "--cacert", &ca, &url, "-o", "python"]).succeeded();
    assert!(fs::read(home.path().join("python")).unwrap() == noise(3 << 20));

    // Its answers have no length, so that their end has to be announced.
    let port = free_port();
    let mut openssl = piped("openssl");
    openssl.args(["s_server", "-WWW", "-quiet", "-accept", &format!("127.0.0.1:{port}")]);
    openssl.args(["-cert", certificate, "-key", key]).current_dir(&served);
    let _openssl = Running::start(openssl);
    until_listening(port);
    let url = format!("https://localhost:{port}/file");
    run(home.path(), &["get", "--cacert", &ca, &url, "-o", "openssl"]).succeeded();
    assert!(fs::read(home.path().join("openssl")).unwrap() == noise(3 << 20));
}

#[test]
fn our_own_server_gives_a_folder_as_an_archive() {
    let (served, home) = (folder(), folder());
    noise_file(served.path(), "one", 200_000);
    noise_file(served.path(), "two", 2 << 20);
    let authority = Authority::new();
    let (certificate, key) = authority.issue("127.0.0.1");
    let mut command = at_home(home.path(), &["serve", "--quiet", "--port", "0", "--tls-cert"]);
    command.arg(certificate).arg("--tls-key").arg(key).arg(served.path());
    let server = Running::listening(command);
    let args =
        ["get", "-r", "--json", "-d", "here", "--cacert", &authority.path(), &server.address];
    let receipt = run(home.path(), &args).succeeded().receipt();
    assert_eq!(receipt["way"], "archive");
    assert_eq!(receipt["tls"]["version"], "TLSv1.3");
    assert!(fs::read(home.path().join("here/one")).unwrap() == noise(200_000));
    assert!(fs::read(home.path().join("here/two")).unwrap() == noise(2 << 20));
}

#[test]
fn a_proxy_from_the_environment_is_used_and_reads_nothing() {
    let (served, home) = (folder(), folder());
    noise_file(served.path(), "file", 100_000);
    let authority = Authority::new();
    let (certificate, key) = authority.issue("no.such.host.invalid");
    let mut command = at_home(home.path(), &["serve", "--quiet", "--port", "0", "--tls-cert"]);
    command.arg(certificate).arg("--tls-key").arg(key).arg(served.path());
    let server = Running::listening(command);
    let at = server.address.trim_start_matches("https://").trim_end_matches('/').to_owned();
    let (proxy, heads) = proxy(at);
    let (url, ca) = ("https://no.such.host.invalid/file", authority.path());
    let get = |args: &[&str], variable: (&str, &str)| {
        let mut command =
            at_home(home.path(), &["get", "--cacert", &ca, "-f", "--retries", "0", url]);
        command.args(args).env(variable.0, variable.1);
        Running::start(command).finish()
    };
    let given = format!("http://me:secret@{proxy}");
    get(&[], ("https_proxy", &given)).succeeded();
    get(&[], ("ALL_PROXY", &given)).succeeded();
    get(&["--proxy", &given], ("x", "")).succeeded();
    assert!(fs::read(home.path().join("file")).unwrap() == noise(100_000));
    let heads = heads.lock().unwrap();
    assert_eq!(heads.len(), 3);
    for head in &*heads {
        assert!(head.starts_with("CONNECT no.such.host.invalid:443 HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n"), "{head}");
        assert!(!head.contains("/file"), "{head}");
    }
    drop(heads);
    get(&["--no-proxy"], ("https_proxy", &given)).failed(1, &["looking up no.such.host.invalid"]);
    get(&["--proxy", &format!("http://{proxy}")], ("x", ""))
        .failed(1, &["407", "give the proxy a password"]);
    get(&[], ("https_proxy", &format!("https://{proxy}")))
        .failed(2, &["$https_proxy", "over http"]);
}

/// A proxy that accepts known users and connects all to the same server; its address, and the
/// requests to it.
fn proxy(to: String) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, heads) = (listener.local_addr().unwrap().to_string(), Arc::default());
    let log: Arc<Mutex<Vec<String>>> = Arc::clone(&heads);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).unwrap() > 0 {
                head.extend(byte);
            }
            let head = String::from_utf8(head).unwrap();
            if !head.contains("Proxy-Authorization") {
                client.write_all(b"HTTP/1.1 407 Who?\r\nContent-Length: 0\r\n\r\n").unwrap();
                continue;
            }
            log.lock().unwrap().push(head);
            client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").unwrap();
            relay(client, TcpStream::connect(&to).unwrap());
        }
    });
    (address, heads)
}

/// Relays bytes in both directions.
fn relay(client: TcpStream, server: TcpStream) {
    let ends = [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)];
    for (mut from, mut to) in ends {
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}
