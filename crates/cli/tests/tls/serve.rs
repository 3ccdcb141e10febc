//! HTTPS with common programs: each gets every byte, and authenticates the server.

use std::fs;
use std::io::Write;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::rig::{Finished, Running, end, folder, has, noise_file, run, site, until};
use serde_json::Value;
use underpass_engine::ktls;

const LEN: usize = 20 << 20;

/// A served folder with a file, and a server that speaks HTTPS with a certificate of its own.
struct Site(site::Site);

impl Deref for Site {
    type Target = site::Site;

    fn deref(&self) -> &site::Site {
        &self.0
    }
}

impl Site {
    fn new(args: &[&str]) -> Self {
        let site = site::Site::new(&[], args).unwrap();
        noise_file(&site.source(""), "file", LEN);
        assert!(site.server.address.starts_with("https://127.0.0.1:"), "{}", site.server.address);
        Self(site)
    }

    /// `127.0.0.1:5000`
    fn at(&self) -> &str {
        self.server.host()
    }

    /// Runs such a program with these arguments.
    fn tell(&self, program: &str, args: &[&str], input: &str) -> Finished {
        let mut command = self.peer(program, args);
        let mut running = Running::start({
            command.stdin(Stdio::piped());
            command
        });
        running.child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        running.finish()
    }

    /// The body that curl gets without checking the certificate.
    fn get(&self, path: &str) -> String {
        self.fetch("curl", &["-sSk", "--fail", &self.url(path)]).succeeded().text()
    }

    fn metric(&self, name: &str) -> f64 {
        let text = self.get(".underpass/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("underpass_{name} ")));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Ends the server; its messages, and the lines of its log.
    fn end(self) -> (String, Vec<Value>) {
        let (finished, lines) = end(self.0.server);
        (finished.stderr, lines)
    }

    #[track_caller]
    fn assert_same(&self, fetched: &str) {
        let (one, other) = (self.target(fetched), self.source("file"));
        assert!(fs::read(one).unwrap() == fs::read(other).unwrap(), "{fetched}");
    }
}

/// A certificate and its key, made by openssl.
fn certificate(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let (certificate, key) =
        (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (certificate, key)
}

#[test]
fn curl_gets_and_puts_over_both_versions() {
    if !has("curl") {
        return;
    }
    let site = Site::new(&["--tls", "self", "--allow-upload"]);
    let url = site.url("file");
    for version in ["--tlsv1.3", "--tls-max=1.2"] {
        let (flag, value) = version.split_once('=').unwrap_or((version, ""));
        let args = ["-sSk", "--fail", flag, value, "-o", "got", &url];
        let args: Vec<_> = args.into_iter().filter(|arg| !arg.is_empty()).collect();
        site.fetch("curl", &args).succeeded();
        site.assert_same("got");
    }
    site.fetch("curl", &["-sSk", "-r", "0-9999999", "-o", "part", &url]).succeeded();
    site.fetch("curl", &["-sSk", "-C", "-", "-o", "part", &url]).succeeded();
    site.assert_same("part");
    let up = site.url("up");
    site.fetch("curl", &["-sSk", "--fail", "-T", "got", &up]).succeeded();
    site.assert_same(site.source("up").to_str().unwrap());
    let first = site.fetch("curl", &["-sSk", "-I", &site.url("file?explain")]).text();
    assert!(first.contains("tls;desc="), "{first}");
    let (_, lines) = site.end();
    for version in ["TLSv1.3", "TLSv1.2"] {
        assert!(lines.iter().any(|line| line["tls"]["version"] == version), "{lines:?}");
    }
    assert!(lines.iter().all(|line| line["complete"] == true), "{lines:?}");
}

#[test]
fn curl_accepts_the_pin_printed_at_the_start() {
    if !has("curl") {
        return;
    }
    let site = Site::new(&["--tls", "self"]);
    let url = site.url("");
    let other = "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let refused = site.fetch("curl", &["-sSk", "--pinnedpubkey", other, &url]);
    assert_eq!(refused.code(), Some(90), "{}", refused.stderr);
    let file = site.url("file");
    // Known when the server has ended: it is asked again for that.
    let shown = has("openssl").then(|| {
        let args = ["s_client", "-connect", site.at(), "-showcerts"];
        let chain = site.fetch("openssl", &args).text();
        let args = ["x509", "-noout", "-fingerprint", "-sha256"];
        site.tell("openssl", &args, &chain).succeeded().text()
    });
    let key = site.fetch("curl", &["-sSk", "-w", "%{certs}", "-o", "got", &file]);
    assert_eq!(key.code(), Some(0));
    let (said, _) = site.end();
    let pin = said.split("--pinnedpubkey ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert!(pin.starts_with("sha256//"), "{said}");
    assert!(said.contains(&format!("underpass get --pin {pin} {url}")), "{said}");
    if let Some(shown) = shown {
        let fingerprint = shown.trim().split('=').nth(1).unwrap();
        assert!(said.contains(fingerprint), "{shown} {said}");
    }
}

/// What a server says at its start, as far as a client needs it, by a pin that is really checked.
#[test]
fn a_pin_is_that_of_the_key() {
    if !has("openssl") || !has("curl") {
        return;
    }
    let keys = folder();
    let (certificate, key) = certificate(keys.path(), "one");
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let site = Site::new(&["--tls-cert", certificate, "--tls-key", key]);
    let script =
        "openssl pkey -in \"$0\" -pubout -outform DER | openssl dgst -sha256 -binary | base64";
    let digest = site.fetch("sh", &["-c", script, key]).succeeded().text();
    let pin = format!("sha256//{}", digest.trim());
    let url = site.url("file");
    let args = ["-sSk", "--fail", "--pinnedpubkey", &pin, "-o", "got", &url];
    site.fetch("curl", &args).succeeded();
    site.assert_same("got");
    // A client that trusts the certificate needs nothing else.
    site.fetch("curl", &["-sS", "--cacert", certificate, "-o", "again", &url]).succeeded();
    site.assert_same("again");
    let refused = site.fetch("curl", &["-sS", &url]);
    assert_eq!(refused.code(), Some(60), "{}", refused.stderr);
}

#[test]
fn wget_and_python_get_every_byte() {
    let site = Site::new(&["--tls", "self", "--allow-upload"]);
    if has("wget") {
        let args = ["-q", "--no-check-certificate", "-O", "wget", &site.url("file")];
        site.fetch("wget", &args).succeeded();
        site.assert_same("wget");
    }
    if has("python3") {
        let script = "
import http.client, ssl, sys
context = ssl._create_unverified_context()
connection = http.client.HTTPSConnection(sys.argv[1], context=context)
for _ in range(200):
    connection.request('GET', '/file', headers={'Range': 'bytes=5-14'})
    reply = connection.getresponse()
    assert reply.status == 206 and len(reply.read()) == 10
connection.request('GET', '/file')
body = connection.getresponse().read()
connection.request('PUT', '/python', body)
assert connection.getresponse().read() == b''
open('python', 'wb').write(body)
assert connection.sock.selected_alpn_protocol() in (None, 'http/1.1')
# An end that nobody announced is an error here.
connection.request('GET', '/file', headers={'Connection': 'close'})
assert len(connection.getresponse().read()) == len(body)
";
        site.fetch("python3", &["-c", script, site.at()]).succeeded();
        site.assert_same("python");
        site.assert_same(site.source("python").to_str().unwrap());
    }
}

#[test]
fn openssl_resumes_and_renews_keys_and_cannot_renegotiate() {
    if !has("openssl") || !has("curl") {
        return;
    }
    let site = Site::new(&["--tls", "self"]);
    let connect = ["s_client", "-quiet", "-no_ign_eof", "-connect", site.at()];
    let request = "GET /file HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-9\r\n\r\n";
    for version in ["-tls1_2", "-tls1_3"] {
        let session = format!("session{version}");
        // The tickets of 1.3 come with the answer, which has to be waited for.
        let script = "{ printf 'GET /.underpass/health HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'; \
            for _ in $(seq 100); do sleep 0.1; ! grep -qs '\"OK\"' said || break; done; } | \
            openssl s_client -connect \"$0\" \"$1\" $3 \"$2\" >said 2>&1; cat said; rm said";
        let first = site.fetch("sh", &["-c", script, site.at(), version, &session, "-sess_out"]);
        assert!(first.text().contains("New, TLSv"), "{}", first.text());
        let again = site.fetch("sh", &["-c", script, site.at(), version, &session, "-sess_in"]);
        assert!(again.text().contains("Reused, TLSv"), "{}", again.text());
        assert!(again.text().contains("\"OK\""), "{}", again.text());
    }
    assert_eq!(site.metric("tls_resumed_total"), 2.0);
    // K asks for new keys of both sides in TLS 1.3, R to renegotiate in TLS 1.2.
    let script = "{ sleep 1; echo \"$2\"; sleep 1; printf '%s\\r\\n' 'GET /.underpass/health HTTP/1.1' 'Host: a' ''; \
        for _ in $(seq \"$3\"); do sleep 0.1; ! grep -qs '\"OK\"' said || break; done; } | \
        openssl s_client -connect \"$0\" \"$1\" >said 2>&1; cat said; rm said";
    let renewed = site.fetch("sh", &["-c", script, site.at(), "-tls1_3", "K", "100"]).text();
    assert!(renewed.contains("KEYUPDATE") && renewed.contains("\"OK\""), "{renewed}");
    let renegotiated = site.fetch("sh", &["-c", script, site.at(), "-tls1_2", "R", "10"]).text();
    assert!(renegotiated.contains("RENEGOTIATING"), "{renegotiated}");
    // It goes on as it was, or ends: what it does not do is to shake hands again.
    assert_eq!(site.metric("tls_handshakes_failed_total{reason=\"tls\"}"), 0.0);
    let answer = site.tell("openssl", &connect, request);
    assert!(!answer.stderr.contains("panicked"), "{}", answer.stderr);
    let (said, _) = site.end();
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn sighup_reads_the_certificate_again_and_a_bad_one_changes_nothing() {
    if !has("openssl") || !has("curl") {
        return;
    }
    let keys = folder();
    let (used, key) = certificate(keys.path(), "used");
    let (used, key) = (used.to_str().unwrap(), key.to_str().unwrap());
    let (one, two) = (keys.path().join("one"), certificate(keys.path(), "two").0);
    fs::copy(used, &one).unwrap();
    let site = Site::new(&["--tls-cert", used, "--tls-key", key]);
    let believed = |by: &Path| {
        let args = ["-sS", "--cacert", by.to_str().unwrap(), &site.url(".underpass/health")];
        site.fetch("curl", &args).code() == Some(0)
    };
    assert!(believed(&one) && !believed(&two));
    fs::write(used, "no certificate").unwrap();
    site.server.signal("HUP");
    // The key of another certificate is refused, too.
    fs::copy(&two, used).unwrap();
    site.server.signal("HUP");
    assert!(believed(&one) && !believed(&two));
    // As programs that renew certificates do it: another file in the place of the old one.
    fs::rename(keys.path().join("two.key"), key).unwrap();
    fs::rename(&two, used).unwrap();
    let two = PathBuf::from(used);
    site.server.signal("HUP");
    until("the new certificate is shown", || believed(&two));
    assert!(!believed(&one));
    let (said, _) = site.end();
    assert!(said.contains("the previous certificate stays in use"), "{said}");
    assert!(said.contains("reloaded "), "{said}");
}

#[test]
fn requests_without_tls_are_redirected_or_refused() {
    if !has("curl") {
        return;
    }
    let site = Site::new(&["--tls", "self", "--redirect-http", "0"]);
    let plain = site.fetch("curl", &["-sS", "-i", &site.url("file").replace("https", "http")]);
    let text = plain.succeeded().text();
    assert!(text.starts_with("HTTP/1.1 400") && text.contains(&site.url("file")), "{text}");
    let (said, _) = site.end();
    let line = said.lines().find(|line| line.starts_with("redirecting http://127.0.0.1:")).unwrap();
    assert!(line.ends_with("/ to it"), "{line}");
}

#[test]
fn each_wrong_option_is_one_line_with_its_exit_code() {
    let keys = folder();
    let at = |name: &str| keys.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("text"), "no certificate").unwrap();
    let (text, missing) = (&*at("text"), &*at("missing"));
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["--tls-cert", text], 2, &["--tls-cert needs --tls-key"]),
        (&["--tls-key", text], 2, &["--tls-key needs --tls-cert"]),
        (&["--tls", "self", "--tls-cert", text], 2, &["leave out --tls-cert"]),
        (&["--tls", "else"], 2, &["--tls", "self"]),
        (&["--redirect-http", "80"], 2, &["--redirect-http", "--tls-cert"]),
        (&["--tls-zero-copy"], 2, &["--tls-zero-copy", "--tls-cert"]),
        (&["--tls-cert", missing, "--tls-key", text], 1, &[missing, "No such file"]),
        (&["--tls-cert", text, "--tls-key", text], 1, &[text]),
    ];
    for (args, code, words) in cases {
        let all = [&["serve", "--port", "0"], *args].concat();
        let finished = run(all).failed(*code, words);
        assert_eq!(finished.stderr.lines().count(), 1, "{args:?}: {}", finished.stderr);
    }
    if ktls::probe().is_ok_and(|support| support.module.is_ok()) {
        underpass_testkit::skip("the kernel encrypts");
    } else {
        let args = ["serve", "--port", "0", "--tls", "self", "--mechanism", "sendfile"];
        run(args).failed(2, &["--mechanism sendfile", "kernel TLS"]);
    }
    let socket = format!("unix:{}", at("socket"));
    let args = ["serve", "--tls", "self", "--redirect-http", "0", "--bind", &socket];
    run(args).failed(2, &["--redirect-http", "--bind"]);
}
