//! Failures of ACME: the certificate authority is down or refuses, the folder is not writable.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::process::{Command, Stdio};

use crate::acme::authority::Authority;
use crate::acme::site::Site;
use crate::rig::{Running, folder, has, run, underpass};
use underpass_testkit::free_port;

const MONTH: u32 = 30 * 24 * 60 * 60;

#[test]
fn a_server_starts_without_its_authority_and_retries() {
    let Some(mut authority) = Authority::prepared(MONTH) else { return };
    let site = Site::new(&authority);
    let server = site.start(&["--acme", "a.example"]);
    server.says("no certificate for a.example yet: clients are refused until 127.0.0.1 has issued");
    server.says("no new certificate for a.example from 127.0.0.1: connecting to 127.0.0.1:");
    server.says("Connection refused; next attempt in ");
    let refused = Command::new("curl")
        .args(["-skS", "--noproxy", "*", &format!("https://127.0.0.1:{}/", site.tls)])
        .output()
        .unwrap();
    // A failed handshake, for which there is an alert.
    assert_eq!(refused.status.code(), Some(35), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("alert"), "{refused:?}");
    authority.start();
    server.says("the certificate of a.example from 127.0.0.1 is valid until ");
    assert_eq!(site.get(&authority, "a.example", "/file").succeeded().text(), "contents");
}

#[test]
fn a_refused_name_is_reported_and_does_not_disturb_others() {
    let Some(authority) = Authority::new(MONTH) else { return };
    let site = Site::new(&authority);
    let server = site.start(&["--acme", "blocked.example", "--acme", "a.example"]);
    server.says(
        "no new certificate for blocked.example from 127.0.0.1: the certificate authority refused the order: ",
    );
    server.says("(rejectedIdentifier); next attempt in ");
    server.says("the certificate of a.example from 127.0.0.1 is valid until ");
    assert_eq!(site.get(&authority, "a.example", "/file").succeeded().text(), "contents");
}

#[test]
fn an_unanswered_challenge_is_reported() {
    let Some(authority) = Authority::new(MONTH) else { return };
    let mut site = Site::new(&authority);
    site.tls = free_port();
    let server = site.start(&["--acme", "a.example"]);
    server.says("the certificate authority refused TLS-ALPN-01: ");
    server.says("); next attempt in ");
}

#[test]
fn a_folder_that_cannot_be_written_to_is_an_error_at_the_start() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("root")).unwrap();
    fs::write(at("file"), "").unwrap();
    let serve = |state: &str, options: &[&str]| {
        let mut command = underpass();
        command.args(["serve", "-p0", "-b127.0.0.1", "--acme", "a.example", "--acme-directory"]);
        command.args(["https://127.0.0.1:1/dir", "--acme-state"]).arg(at(state));
        command.args(options).arg(at("root"));
        Running::start(command).finish()
    };
    serve("file/state", &[]).failed(1, &["--acme-state: creating", "Not a directory"]);
    if rustix::process::geteuid().is_root() {
        fs::DirBuilder::new().mode(0o700).create(at("owned")).unwrap();
        serve("owned", &["--user", "nobody"]).failed(1, &["--acme-state: ", "Permission denied"]);
    }
}

#[test]
fn keys_are_not_found_behind_a_link_out_of_the_root() {
    if !has("curl") {
        return;
    }
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let state = at("above/state/127.0.0.1-1-dir");
    for path in [&at("root"), &state] {
        fs::create_dir_all(path).unwrap();
    }
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let pem = made.cert.pem() + &made.signing_key.serialize_pem();
    fs::write(state.join("a.example.pem"), pem).unwrap();
    fs::write(state.join("account.json"), "{}").unwrap();
    fs::write(at("above/other"), "other").unwrap();
    symlink(at("above"), at("root/link")).unwrap();
    let port = free_port();
    let mut command = underpass();
    command.args(["serve", "--allow-symlink", "--acme", "a.example", "--acme-directory"]);
    command.args(["https://127.0.0.1:1/dir", "--bind", &format!("127.0.0.1:{port}")]);
    command.arg("--acme-state").arg(at("above/state")).arg(at("root"));
    let _server = Running::listening(command);
    let get = |path: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-sSk", "--noproxy", "*", "-w", " %{http_code}"]);
        curl.arg(format!("https://127.0.0.1:{port}/link/{path}"));
        String::from_utf8_lossy(&curl.output().unwrap().stdout).into_owned()
    };
    for name in ["a.example.pem", "account.json", ""] {
        let reply = get(&format!("state/127.0.0.1-1-dir/{name}"));
        assert!(reply.ends_with(" 404"), "{name}: {reply}");
    }
    assert_eq!(get("?simple"), "other\n 200");
    let archive = get("?archive=tar");
    assert!(archive.contains("other") && !archive.contains("PRIVATE KEY"), "{archive}");
}

#[test]
fn files_that_root_creates_belong_to_the_user_of_the_server() {
    if !rustix::process::geteuid().is_root() {
        return crate::rig::skip("only root becomes another user");
    }
    let Some(authority) = Authority::new(MONTH) else { return };
    let site = Site::new(&authority);
    // Others may pass through the folders of the test.
    let passable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(site.folder.path(), passable).unwrap();
    // The folder of all authorities is there, and is root's.
    fs::create_dir_all(site.state()).unwrap();
    let server = site.start(&["--acme", "a.example", "--user", "nobody"]);
    server.says("the certificate of a.example from 127.0.0.1 is valid until ");
}

#[test]
fn options_that_do_not_fit_are_wrong_usage() {
    let folder = folder();
    let root = folder.path().to_str().unwrap();
    let state = folder.path().join("state");
    let state = state.to_str().unwrap();
    for (options, words) in [
        (["--acme", "*.example.org"].as_slice(), ["--acme", "DNS"].as_slice()),
        (&["--acme", "192.0.2.1"], &["--acme", "address"]),
        (&["--acme", "a b"], &["--acme", "not a host name"]),
        (&["--acme", "a.example", "--tls", "self"], &["leave out --tls"]),
        (&["--acme", "a.example", "--tls-cert", "x"], &["leave out --tls"]),
        (&["--acme-email", "a@b.example"], &["--acme-email needs --acme NAME"]),
        (&["--acme", "a.example", "--acme-directory", "http://ca/"], &["begins with https://"]),
        (
            &["--acme", "files.example.org", "--acme-state", state],
            &["would be served", "--acme-state"],
        ),
    ] {
        run(["serve", "-p0", "-b127.0.0.1"].iter().chain(options).chain(&[root])).failed(2, words);
    }
}

#[test]
fn a_config_file_has_the_same_options() {
    let folder = folder();
    let config = folder.path().join("underpass.toml");
    fs::write(&config, "acme = ['a.example', '*.example']\n").unwrap();
    let mut command = underpass();
    command.args(["serve", "--config"]).arg(config).stdin(Stdio::null());
    Running::start(command).finish().failed(2, &["underpass.toml, line 1: ", "DNS"]);
}
