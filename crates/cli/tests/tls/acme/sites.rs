//! Sites of one process with certificates of their own, each from the authority.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::acme::authority::Authority;
use crate::acme::site::{Server, Site};
use crate::rig::{Running, folder, underpass, until};

const MONTH: u32 = 30 * 24 * 60 * 60;

/// A config file with these sites.
fn config(site: &Site, sites: &[&str]) -> String {
    let path = site.folder.path().join("config/underpass.toml");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let tables: Vec<_> = sites.iter().map(|keys| format!("[[site]]\n{keys}\n")).collect();
    fs::write(&path, tables.concat()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn hang_up(server: &Server) {
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-s", "HUP", &pid]).status().unwrap().success());
}

const A: &str = "names = ['a.example', 'A2.example']\nacme = true";
const B: &str = "names = ['b.example']\nacme = true\nauth = ['u:p@/']";

#[test]
fn a_site_that_sighup_adds_gets_its_certificate_while_a_download_goes_on() {
    let Some(authority) = Authority::new(MONTH) else { return };
    let site = Site::new(&authority);
    fs::write(site.folder.path().join("root/large"), vec![7; 2 << 20]).unwrap();
    let server = site.start(&["--config", &config(&site, &[A])]);
    server.says("no certificate for a.example and a2.example yet");
    for name in ["a.example", "a2.example"] {
        server.says(&format!("the certificate of {name} from 127.0.0.1 is valid until "));
        assert_eq!(site.get(&authority, name, "/file").succeeded().text(), "contents");
    }
    let mut curl = Command::new("curl");
    curl.args(["-sSf", "--noproxy", "*", "--limit-rate", "512K"]);
    curl.args(["--resolve", &site.map("a.example"), "--cacert"]).arg(authority.root());
    curl.arg(format!("https://a.example:{}/large", site.tls));
    let long = curl.stdout(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(500));
    config(&site, &[A, B]);
    hang_up(&server);
    server.says("the certificate of b.example from 127.0.0.1 is valid until ");
    let locked = site.get(&authority, "b.example", "/file").succeeded();
    assert!(locked.text().starts_with("401"), "{}", locked.text());
    let output = long.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout.len() == 2 << 20, "{:?}", output.status);
    assert_eq!(authority.issued(), 3, "{}", server.log());
    // A connection for one of them is not for the other, which has another certificate.
    let other = ["-H", "Host: b.example", "--resolve", &site.map("a.example")].map(str::to_owned);
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--noproxy", "*", "-o", "/dev/null", "-w", "%{http_code}", "--cacert"]);
    curl.arg(authority.root()).args(other).arg(format!("https://a.example:{}/file", site.tls));
    assert_eq!(curl.output().unwrap().stdout, b"421");
    // What is removed is shown no longer, and comes back without another order.
    config(&site, &[A]);
    hang_up(&server);
    until("one site", || site.get(&authority, "b.example", "/file").code() == Some(60));
    config(&site, &[A, B]);
    hang_up(&server);
    until("two sites", || site.get(&authority, "b.example", "/file").code() == Some(0));
    assert_eq!(authority.issued(), 3, "{}", server.log());
}

#[test]
fn sites_with_files_of_a_certificate_and_with_orders_stand_beside_each_other() {
    let Some(authority) = Authority::new(MONTH) else { return };
    let site = Site::new(&authority);
    let own = rcgen::generate_simple_self_signed(["own.example".to_owned()]).unwrap();
    let at = |name: &str| site.folder.path().join(name).to_str().unwrap().to_owned();
    let pem = own.cert.pem() + &own.signing_key.serialize_pem();
    fs::write(at("own.pem"), &pem).unwrap();
    let files = format!("tls-cert = '{0}'\ntls-key = '{0}'", at("own.pem"));
    let own = format!("names = ['own.example']\ndefault = true\n{files}");
    let path = config(&site, &[&own, A]);
    let server = site.start(&["--config", &path]);
    server.says("the certificate of a.example from 127.0.0.1 is valid until ");
    assert_eq!(site.get(&authority, "a.example", "/file").succeeded().text(), "contents");
    // The files are for all other names, as they are of the default site.
    for name in ["own.example", "other.example"] {
        let mut curl = Command::new("curl");
        curl.args(["-sSk", "--noproxy", "*", "--resolve", &site.map(name)]);
        curl.arg(format!("https://{name}:{}/.underpass/metrics", site.tls));
        let metrics = String::from_utf8(curl.output().unwrap().stdout).unwrap();
        let expiry = |name: &str| {
            metrics.contains(&format!("underpass_certificate_expiry_seconds{{name=\"{name}\"}}"))
        };
        assert!(expiry("") && expiry("a.example"), "{metrics}");
    }
}

#[test]
fn names_for_which_no_certificate_can_be_ordered_are_refused_with_their_site() {
    let folder = folder();
    let path = folder.path().join("underpass.toml");
    for (text, words) in [
        ("[[site]]\nnames = ['*.example.org']\nacme = true", "line 1: acme: *.example.org: a "),
        ("[[site]]\nnames = ['192.0.2.1']\nacme = true", "line 1: acme: 192.0.2.1: "),
        ("[[site]]\ndefault = true\nacme = true", "line 1: acme = true orders certificates for"),
        ("[[site]]\nnames = ['a.example']\nacme = ['a.example']", "line 3: acme is true or false"),
        (
            "[[site]]\nnames = ['a.example']\nacme = true\ntls-cert = 'x'",
            "line 3: acme gets certificates: leave out",
        ),
        (
            "[[site]]\nnames = ['a.example']\nacme-email = 'me@a.example'",
            "line 3: acme-email is for all sites",
        ),
        (
            "[[site]]\nnames = ['a.example']\nacme = true\n[[site]]\nnames = ['b.example']",
            "line 4: this site has no tls-cert, but others have",
        ),
        ("acme = true", "line 1: acme needs names"),
        ("acme = true\n[[site]]\nnames = ['*.a.example']", "line 2: acme: *.a.example: "),
    ] {
        fs::write(&path, text).unwrap();
        let mut command = underpass();
        command.args(["serve", "-p0", "-b127.0.0.1", "--acme-state"]).arg(folder.path().join("s"));
        command.args(["--acme-directory", "https://127.0.0.1:1/dir", "--config"]).arg(&path);
        command.arg("/usr/share");
        Running::start(command).finish().failed(2, &[words]);
    }
    fs::write(&path, "[[site]]\nnames = ['a.example.org', 'nas.lan']\nacme = true").unwrap();
    let mut command = underpass();
    command.args(["serve", "-p0", "-b127.0.0.1", "--acme-state"]).arg(folder.path().join("s"));
    command.arg("--config").arg(&path).arg("/usr/share");
    Running::start(command).finish().failed(2, &["line 1: acme: nas.lan: no public authority"]);
}
