//! The life of a certificate: the first one, restarts, renewals.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use underpass_testkit::free_port;

use crate::acme::authority::Authority;
use crate::acme::site::Site;
use crate::rig::until;

const MONTH: u32 = 30 * 24 * 60 * 60;

#[test]
fn a_certificate_is_ordered_by_a_handshake_and_survives_a_restart() {
    let Some(mut authority) = Authority::new(MONTH) else { return };
    let site = Site::new(&authority);
    let server = site.start(&["--acme", "A.example", "--acme", "b.example"]);
    server.says("no certificate for a.example and b.example yet");
    server.says("registered an account at 127.0.0.1, agreeing to its terms: ");
    for name in ["a.example", "b.example"] {
        server.says(&format!("the certificate of {name} from 127.0.0.1 is valid until "));
        assert_eq!(site.get(&authority, name, "/file").succeeded().text(), "contents");
        let metrics = site.get(&authority, name, "/.underpass/metrics").succeeded().text();
        let gauge = format!("underpass_certificate_expiry_seconds{{name=\"{name}\"}} ");
        let end = metrics.lines().find_map(|line| line.strip_prefix(&gauge)).unwrap();
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let left = end.parse::<u64>().unwrap() - now;
        assert!((u64::from(MONTH) - 300..=u64::from(MONTH)).contains(&left), "{left}");
    }
    // The first certificate is sent to clients that request another name, which reject it.
    let other = site.get(&authority, "c.example", "/file");
    assert_eq!(other.code(), Some(60), "{}", other.stderr);
    assert_eq!(authority.issued(), 2);
    private(&site.state());
    server.end();
    authority.stop();
    let server = site.start(&["--acme", "a.example", "--acme", "b.example"]);
    for name in ["a.example", "b.example"] {
        assert_eq!(site.get(&authority, name, "/file").succeeded().text(), "contents");
    }
    assert!(!server.log().contains("certificate for"), "{}", server.log());
}

/// Checks that only its owner can use a folder and what is in it.
fn private(path: &Path) {
    let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| private(&entry.unwrap().path()));
    }
}

#[test]
fn a_certificate_is_ordered_over_plain_http_past_files_and_passwords() {
    let Some(authority) = Authority::new(MONTH) else { return };
    let mut site = Site::new(&authority);
    // Nothing listens where the authority checks challenges over TLS.
    site.tls = free_port();
    let challenges = site.folder.path().join("root/.well-known/acme-challenge");
    fs::create_dir_all(&challenges).unwrap();
    fs::write(challenges.join("mine"), "mine").unwrap();
    let port = authority.http.to_string();
    let server = site.start(&[
        "--acme",
        "a.example",
        "--redirect-http",
        &port,
        "--auth",
        "u:p@/",
        "--show-hidden",
    ]);
    server.says("the certificate of a.example from 127.0.0.1 is valid until ");
    let denied = site.get(&authority, "a.example", "/.well-known/acme-challenge/mine").succeeded();
    assert!(!denied.text().contains("mine\n") && denied.text() != "mine", "{}", denied.text());
    // What is not a challenge under way is redirected like everything else.
    let plain = Command::new("curl")
        .args(["-sS", "--noproxy", "*", "-o", "/dev/null", "-w", "%{http_code}"])
        .arg(format!("http://127.0.0.1:{port}/.well-known/acme-challenge/mine"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&plain.stdout), "301");
}

#[test]
fn certificates_are_renewed_under_load_without_a_lost_connection() {
    let Some(authority) = Authority::new(15) else { return };
    let site = Site::new(&authority);
    fs::write(site.folder.path().join("root/large"), vec![7; 3 << 20]).unwrap();
    let server = site.start(&["--acme", "a.example"]);
    server.says("the certificate of a.example");
    let is_over = AtomicBool::new(false);
    let fetched = thread::scope(|scope| {
        let short = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                let got = site.get(&authority, "a.example", "/file").succeeded();
                assert_eq!(got.text(), "contents");
                count += 1;
            }
            count
        });
        // It lasts longer than two certificates.
        let long = scope.spawn(|| {
            let map = site.map("a.example");
            let mut curl = Command::new("curl");
            curl.args(["-sSf", "--noproxy", "*", "--limit-rate", "128K", "--resolve", &map]);
            curl.arg("--cacert").arg(authority.root());
            curl.arg(format!("https://a.example:{}/large", site.tls));
            let output = curl.stderr(Stdio::inherit()).output().unwrap();
            assert!(output.status.success(), "{:?}", output.status);
            output.stdout.len()
        });
        let started = Instant::now();
        while authority.issued() < 3 && started.elapsed() < Duration::from_secs(120) {
            thread::sleep(Duration::from_millis(100));
        }
        let long = long.join();
        is_over.store(true, Ordering::Relaxed);
        (short.join().unwrap(), long.unwrap())
    });
    assert!(authority.issued() >= 3, "{}", server.log());
    assert!(fetched.0 > 10, "{fetched:?}");
    assert_eq!(fetched.1, 3 << 20);
}

#[test]
fn two_processes_share_a_folder_and_one_of_them_orders() {
    let Some(authority) = Authority::new(MONTH) else { return };
    let mut site = Site::new(&authority);
    // The authority contacts only the first one, so the other could not order any.
    let first = site.start(&["--acme", "a.example"]);
    let other = free_port();
    let second = site.start_at(other, &["--acme", "a.example"]);
    first.says("the certificate of a.example");
    site.tls = other;
    until("a certificate of the other process", || {
        site.get(&authority, "a.example", "/file").code() == Some(0)
    });
    assert_eq!(authority.issued(), 1, "{}", second.log());
}
