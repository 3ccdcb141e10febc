//! Several sites in one process: each request gets files of its site, and none of another.

mod reloads;

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::rig::{Finished, Running, folder, has, piped, run, underpass, until};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use underpass_testkit::http::{Client, Reply};
use underpass_testkit::tls::certificate;

/// A server with a config file, beside the folders of its sites.
struct Sites {
    folder: TempDir,
    server: Running,
}

impl Sites {
    /// Starts a server with a config in which `DIR` is the folder of the test.
    fn new(config: &str, prepare: impl FnOnce(&Path)) -> Self {
        Self::with(config, &[], prepare)
    }

    fn with(config: &str, args: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        let folder = folder();
        prepare(folder.path());
        write_config(folder.path(), config);
        let mut command = underpass();
        command.args(["serve", "--port", "0", "--log-format", "json", "--config"]);
        command.arg(folder.path().join("config/underpass.toml")).args(args);
        command.current_dir(&folder);
        Self { server: Running::listening(command), folder }
    }

    /// Changes the config, and has it read again.
    fn reload(&self, config: &str) {
        write_config(self.folder.path(), config);
        self.server.signal("HUP");
    }

    fn port(&self) -> &str {
        let authority = self.server.address.split('/').nth(2).unwrap();
        authority.rsplit(':').next().unwrap()
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(format!("127.0.0.1:{}", self.port())).unwrap()
    }

    /// Sends a request as it is, and reads the response to its end.
    fn raw(&self, request: &str) -> Reply {
        let mut client = Client::new(self.connect());
        client.send(request);
        client.finish()
    }

    fn get(&self, host: &str, path: &str) -> Reply {
        self.get_with(host, path, "")
    }

    fn get_with(&self, host: &str, path: &str, fields: &str) -> Reply {
        self.raw(&format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n"
        ))
    }

    /// The body that a site has at a path.
    fn body(&self, host: &str, path: &str) -> String {
        let reply = self.get(host, path);
        assert_eq!(reply.status, 200, "{host}{path}: {reply:?}");
        reply.text()
    }

    fn status(&self, host: &str, path: &str) -> u16 {
        self.get(host, path).status
    }

    /// The status of a request that changes something, such as `PUT /file`, with an empty body.
    fn change(&self, host: &str, request: &str) -> u16 {
        let fields = "Connection: close\r\nContent-Length: 0\r\n";
        self.raw(&format!("{request} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")).status
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs curl with this machine under the names of the sites.
    fn curl(&self, args: &[&str]) -> Finished {
        let mut command = piped("curl");
        for name in ["a.test", "b.test", "x.w.test"] {
            command.arg("--resolve").arg(format!("{name}:{}:127.0.0.1", self.port()));
        }
        command.arg("-sS").args(args).current_dir(&self.folder);
        Running::start(command).finish()
    }

    /// Ends the server; returns what it said, and its log.
    fn end(self) -> (String, String) {
        self.server.signal("TERM");
        let finished = self.server.finish();
        assert_eq!(finished.code(), Some(0), "{finished:?}");
        (finished.stderr, String::from_utf8_lossy(&finished.stdout).into_owned())
    }
}

fn write_config(folder: &Path, config: &str) {
    fs::create_dir_all(folder.join("config")).unwrap();
    let text = config.replace("DIR", folder.to_str().unwrap());
    fs::write(folder.join("config/underpass.toml"), text).unwrap();
}

fn file(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Two roots with the same names in them.
fn two_roots(folder: &Path) {
    for root in ["a", "b"] {
        file(folder, &format!("{root}/same"), &format!("of {root}\n"));
        file(folder, &format!("{root}/folder/inner"), &format!("inner of {root}\n"));
        file(folder, &format!("{root}/folder/only-{root}"), "x\n");
    }
}

const TWO: &str = "
[[site]]
names = ['a.test', '[::1]']
root = 'DIR/a'

[[site]]
names = ['b.test', '*.w.test']
root = 'DIR/b'
";

#[test]
fn the_name_of_a_request_chooses_its_site() {
    let sites = Sites::new(TWO, two_roots);
    for (host, text) in [
        ("a.test", "of a\n"),
        ("A.Test.:80", "of a\n"),
        ("[::1]:5000", "of a\n"),
        ("b.test", "of b\n"),
        ("x.w.test", "of b\n"),
        ("x.y.w.test:1", "of b\n"),
    ] {
        // The second time the file is open already.
        for _ in 0..2 {
            assert_eq!(sites.body(host, "/same"), text, "{host}");
        }
    }
    for host in ["c.test", "w.test", "", "127.0.0.1", "a.test.evil", "xa.test"] {
        let reply = sites.get(host, "/same");
        assert_eq!((reply.status, reply.text().contains("of ")), (421, false), "{host}: {reply:?}");
    }
    // The target counts, not Host (RFC 9112 3.2.2).
    let absolute = "GET http://b.test/same HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    assert_eq!(sites.raw(absolute).text(), "of b\n");
    assert_eq!(sites.raw("GET /same HTTP/1.0\r\n\r\n").status, 421);
    assert_eq!(sites.raw("GET /same HTTP/1.0\r\nHost: b.test\r\n\r\n").text(), "of b\n");
    assert_eq!(sites.status("c.test", "/.underpass/health"), 200);
    let (_, log) = sites.end();
    let of_b = log.lines().filter(|line| line.contains(r#""site":"b.test""#)).count();
    assert_eq!(of_b, 8, "{log}");
}

#[test]
fn the_default_site_answers_for_other_names() {
    let config = format!("{TWO}\ndefault = true\n");
    let sites = Sites::new(&config, two_roots);
    assert_eq!(sites.raw("GET /same HTTP/1.0\r\n\r\n").text(), "of b\n");
    assert_eq!(sites.body("127.0.0.1", "/same"), "of b\n");
    assert_eq!(sites.body("a.test", "/same"), "of a\n");
    // As for a server with one site: a page must not be able to give this machine a name.
    assert_eq!(sites.status("evil.test", "/same"), 421);
}

#[test]
fn no_site_serves_the_files_of_another() {
    let sites = Sites::new(TWO, two_roots);
    for round in 0..2 {
        for (host, own, other) in [("a.test", "a", "b"), ("b.test", "b", "a")] {
            for path in ["/folder/?json", "/folder/?archive=tar", "/folder/?archive=zip"] {
                let body = sites.body(host, path);
                assert!(body.contains(&format!("only-{own}")), "{round} {host}{path}: {body}");
                assert!(!body.contains(&format!("only-{other}")), "{round} {host}{path}: {body}");
            }
            let hash = sites.body(host, "/same?hash");
            let digest = Sha256::digest(format!("of {own}\n"));
            let expected: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(hash.contains(&expected), "{host}: {hash}");
            assert_eq!(sites.status(host, &format!("/folder/only-{other}")), 404);
        }
    }
    // One folder under two names with different rules: the listings differ, too.
    let config = "
[[site]]
names = ['a.test']
root = 'DIR/a'

[[site]]
names = ['b.test']
root = 'DIR/a'
hide = ['only-a']
";
    let sites = Sites::new(config, two_roots);
    for _ in 0..2 {
        assert!(sites.body("a.test", "/folder/?archive=tar").contains("only-a"));
        assert!(!sites.body("b.test", "/folder/?archive=tar").contains("only-a"));
        assert!(sites.body("a.test", "/folder/?json").contains("only-a"));
        assert!(!sites.body("b.test", "/folder/?json").contains("only-a"));
        assert_eq!(sites.status("a.test", "/folder/only-a"), 200);
        assert_eq!(sites.status("b.test", "/folder/only-a"), 404);
    }
}

#[test]
fn links_and_dots_lead_to_no_other_site() {
    let sites = Sites::new(TWO, |folder| {
        two_roots(folder);
        symlink("../b/same", folder.join("a/link")).unwrap();
        symlink(folder.join("b"), folder.join("a/all")).unwrap();
    });
    for path in ["/link", "/all/same", "/../b/same", "/%2e%2e/b/same"] {
        let reply = sites.get("a.test", path);
        assert!(matches!(reply.status, 400 | 404), "{path}: {reply:?}");
    }
}

#[test]
fn each_site_has_its_own_passwords_headers_and_rights() {
    let config = "
header = ['X-All: yes']
hide = ['secret']

[[site]]
names = ['a.test']
root = 'DIR/a'
auth = ['alice:pw@/:rw']
header = ['X-Own: a']
allow_upload = true

[[site]]
names = ['b.test']
root = 'DIR/b'
auth = ['bob:pw@/', 'alice:other@/']
no_listing = true
hide = ['inner']
mime = ['dat=text/x-dat']
";
    let sites = Sites::new(config, |folder| {
        two_roots(folder);
        file(folder, "a/secret", "x");
        file(folder, "b/file.dat", "x");
    });
    let auth = |user: &str| {
        let token = base64(user);
        format!("Authorization: Basic {token}\r\n")
    };
    for (host, user, status) in [
        ("a.test", "alice:pw", 200),
        ("b.test", "alice:pw", 401),
        ("b.test", "alice:other", 200),
        ("a.test", "alice:other", 401),
        ("a.test", "bob:pw", 401),
        ("b.test", "bob:pw", 200),
    ] {
        for _ in 0..2 {
            let reply = sites.get_with(host, "/same", &auth(user));
            assert_eq!(reply.status, status, "{user} at {host}: {reply:?}");
        }
    }
    let (alice, bob) = (auth("alice:pw"), auth("bob:pw"));
    let of_a = sites.get_with("a.test", "/same", &alice);
    assert_eq!((of_a.field("x-own"), of_a.field("x-all")), (Some("a"), None));
    let of_b = sites.get_with("b.test", "/same", &bob);
    assert_eq!((of_b.field("x-own"), of_b.field("x-all")), (None, Some("yes")));
    assert_eq!(sites.get_with("a.test", "/secret", &alice).status, 404);
    assert_eq!(sites.get_with("a.test", "/folder/inner", &alice).status, 200);
    assert_eq!(sites.get_with("b.test", "/folder/inner", &bob).status, 404);
    assert_eq!(sites.get_with("b.test", "/folder/", &bob).status, 403);
    let typed = sites.get_with("b.test", "/file.dat", &bob);
    assert_eq!(typed.field("content-type"), Some("text/x-dat"));
    let put = |host: &str, auth: &str| {
        let head = format!("PUT /new HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{auth}");
        sites.raw(&format!("{head}Content-Length: 3\r\n\r\nnew")).status
    };
    assert_eq!((put("b.test", &bob), put("b.test", &alice)), (403, 401));
    assert_eq!(put("a.test", &alice), 201);
    assert!(sites.path("a/new").exists() && !sites.path("b/new").exists());
}

fn base64(text: &str) -> String {
    let mut child =
        Command::new("base64").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
}

#[test]
fn an_upload_is_continued_at_its_own_site_only() {
    let config = "
allow_upload = true

[[site]]
names = ['a.test']
root = 'DIR/a'

[[site]]
names = ['b.test']
root = 'DIR/b'
";
    let sites = Sites::new(config, two_roots);
    let head = "PUT /big HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nUpload-Complete: ?0\r\n";
    let begun = sites.raw(&format!("{head}Content-Length: 3\r\n\r\none"));
    let location = begun.field("location").unwrap_or_else(|| panic!("{begun:?}")).to_owned();
    let path = format!("/big{location}");
    let ask = |host: &str| {
        let head = format!("HEAD {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        sites.raw(&head)
    };
    assert_eq!(ask("b.test").status, 404);
    let there = ask("a.test");
    assert_eq!(there.field("upload-offset"), Some("3"), "{there:?}");
}

#[test]
fn an_upload_is_that_of_its_site_where_another_serves_the_same_folder() {
    let config = "
allow_upload = true
allow_delete = true
root = 'DIR/a'

[[site]]
names = ['a.test']
auth = ['me:of-a@/:rw']

[[site]]
names = ['b.test']
auth = ['me:of-b@/:rw']
";
    let sites = Sites::new(config, two_roots);
    let ask = |method: &str, host: &str, path: &str, fields: &str| {
        let password = base64(&format!("me:of-{}", &host[..1]));
        sites.raw(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
             Authorization: Basic {password}\r\n{fields}\r\n\r\n"
        ))
    };
    // One with an address, and one by its name.
    let begun = ask("PUT", "b.test", "/big", "Upload-Complete: ?0\r\nContent-Length: 0");
    let location = begun.field("location").unwrap_or_else(|| panic!("{begun:?}"));
    let location = format!("/big{location}");
    let range = "Content-Range: bytes 0-0/2\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(ask("PUT", "b.test", "/named", range).status, 202);
    for (host, status) in [("a.test", 404), ("b.test", 204)] {
        for path in [&location, "/named?partial"] {
            assert_eq!(ask("HEAD", host, path, "").status, status, "{host} {path}");
        }
    }
    assert_eq!(ask("DELETE", "a.test", &location, "").status, 404);
    assert_eq!(ask("DELETE", "b.test", &location, "").status, 204);
}

#[test]
fn paths_and_whole_sites_are_redirected() {
    let config = "
[[site]]
names = ['a.test']
root = 'DIR/a'
redirect = ['/old /same 301', '/docs/* https://docs.test/v2/* 308', '/gone /same?x']
auth = ['alice:pw@/']

[[site]]
names = ['www.a.test']
redirect = ['/* http://a.test/* 307']
";
    let sites = Sites::new(config, two_roots);
    for (host, path, status, location) in [
        ("a.test", "/old", 301, "/same"),
        ("a.test", "/old?q=1", 301, "/same?q=1"),
        ("a.test", "/gone?q=1", 302, "/same?x"),
        ("a.test", "/docs/a%20b/c?q", 308, "https://docs.test/v2/a%20b/c?q"),
        ("www.a.test", "/", 307, "http://a.test/"),
        ("www.a.test", "/any/thing", 307, "http://a.test/any/thing"),
    ] {
        let reply = sites.get(host, path);
        assert_eq!((reply.status, reply.field("location")), (status, Some(location)), "{path}");
    }
    assert_eq!(sites.status("a.test", "/same"), 401);
    assert_eq!(sites.status("www.a.test", "/.underpass/health"), 200);
    // What names a file on the command line is one default site.
    let only = Sites::with("", &["--redirect", "/x /y 308", "."], |_| ());
    let reply = only.get("localhost", "/x");
    assert_eq!((reply.status, reply.field("location")), (308, Some("/y")));
    let args =
        ["--redirect", "/x /y 308", "--redirect", "/z http://h/", "--path-prefix", "/p", "."];
    let below = Sites::with("", &args, |_| ());
    for (path, location) in [("/p/x", "/p/y"), ("/p/z", "http://h/")] {
        assert_eq!(below.get("localhost", path).field("location"), Some(location));
    }
}

#[test]
fn the_last_of_several_headers_that_match_counts() {
    let header = |line| ["--header", line];
    let args = [
        &header("X-One: all")[..],
        &header("*.txt X-One: text"),
        &header("*.txt X-Two: text"),
        &header("X-Two: all"),
        &header("Cache-Control: no-store"),
        &["--cache-control", "max-age=60", "."],
    ];
    let site = Sites::with("", &args.concat(), |folder| {
        fs::write(folder.join("a.txt"), "a").unwrap();
    });
    let reply = site.get("localhost", "/a.txt");
    assert_eq!((reply.field("x-one"), reply.field("x-two")), (Some("text"), Some("all")));
    assert_eq!(reply.field("cache-control"), Some("no-store"));
}

const SECURE: &str = "
[[site]]
names = ['a.test']
root = 'DIR/a'
tls_cert = 'DIR/keys/a.test.pem'
tls_key = 'DIR/keys/a.test.key'

[[site]]
names = ['b.test', 'x.w.test']
root = 'DIR/b'
tls_cert = 'DIR/keys/b.test.pem'
tls_key = 'DIR/keys/b.test.key'
";

fn with_keys(folder: &Path) {
    two_roots(folder);
    fs::create_dir(folder.join("keys")).unwrap();
    for name in ["a.test", "b.test", "c.test"] {
        certificate(&folder.join("keys"), name, &[name]);
    }
}

#[test]
fn the_handshake_chooses_the_certificate_and_binds_the_connection_to_it() {
    if !has("curl") {
        return;
    }
    let sites = Sites::new(SECURE, with_keys);
    let get = |name: &str, authority: &str, more: &[&str]| {
        let url = format!("https://{name}:{}/same", sites.port());
        let by = format!("keys/{authority}.pem");
        let finished =
            sites.curl(&[&["--cacert", &by, "-w", " %{http_code}", &url], more].concat());
        (finished.code(), String::from_utf8_lossy(&finished.stdout).into_owned())
    };
    assert_eq!(get("a.test", "a.test", &[]), (Some(0), "of a\n 200".to_owned()));
    assert_eq!(get("b.test", "b.test", &[]), (Some(0), "of b\n 200".to_owned()));
    assert_eq!(get("a.test", "b.test", &[]).0, Some(60));
    // A request for one site over a connection to another gets 421.
    let (code, text) = get("a.test", "a.test", &["-H", "Host: b.test"]);
    assert!(code == Some(0) && text.ends_with(" 421") && !text.contains("of b"), "{text}");
    // A health check is answered over any connection.
    let health = format!("https://a.test:{}/.underpass/health", sites.port());
    let by = ["-k", "-o", "answer", "-w", "%{http_code}", "-H", "Host: b.test", &health];
    assert_eq!(sites.curl(&by).succeeded().text(), "200");
    // Under both names of one site it is the same connection.
    let (_, text) = get("b.test", "b.test", &["-H", "Host: x.w.test"]);
    assert_eq!(text, "of b\n 200");
    // A site that is changed shows another certificate.
    sites.reload(&SECURE.replace("keys/b.test", "keys/c.test"));
    until("the other certificate is shown", || {
        get("b.test", "b.test", &["-k"]).0 == Some(0) && get("b.test", "b.test", &[]).0 == Some(60)
    });
    assert_eq!(get("a.test", "a.test", &[]).1, "of a\n 200");
}

#[test]
fn no_site_serves_or_changes_the_files_of_the_server() {
    if !has("curl") {
        return;
    }
    let config = "
log_file = 'DIR/a/[1]access.log'

[[site]]
names = ['a.test']
root = 'DIR/a'
allow_all = true
tls_cert = 'DIR/a/a.test.pem'
tls_key = 'DIR/a/folder/link.key'

[[site]]
names = ['b.test']
root = 'DIR'
allow_all = true
tls_cert = 'DIR/a/a.test.pem'
tls_key = 'DIR/a/folder/link.key'
";
    let sites = Sites::new(config, |folder| {
        two_roots(folder);
        certificate(&folder.join("a"), "a.test", &["a.test"]);
        symlink("../a.test.key", folder.join("a/folder/link.key")).unwrap();
        file(folder, "a/1access.log", "another\n");
    });
    let ask = |name: &str, path: &str, more: &[&str]| {
        let url = format!("https://{name}:{}/{path}", sites.port());
        let mut args = vec!["-k", "--path-as-is", "-g", "-w", " %{http_code}", &url];
        args.extend(more);
        sites.curl(&args).text()
    };
    for (name, path) in [
        ("a.test", "a.test.key"),
        ("a.test", "folder/link.key"),
        ("a.test", "a.test.pem"),
        ("a.test", "[1]access.log"),
        ("b.test", "a/a.test.key"),
        ("b.test", "a/[1]access.log"),
        ("b.test", "config/underpass.toml"),
    ] {
        let reply = ask(name, path, &[]);
        assert!(reply.ends_with(" 404"), "{name} {path}: {reply}");
        let reply = ask(name, path, &["-T", "config/underpass.toml"]);
        assert!(reply.ends_with(" 403"), "{name} {path}: {reply}");
    }
    assert_eq!(ask("b.test", "a/1access.log", &[]), "another\n 200");
    let listing = ask("b.test", "a/?simple", &[]);
    assert_eq!(listing, "folder/\n1access.log\nsame\n 200");
    let zip = ask("a.test", "?archive=tar", &["--output", "all.tar"]);
    assert_eq!(zip, " 200");
    let tar = fs::read_to_string(sites.path("all.tar")).unwrap();
    assert!(tar.contains("of a") && !tar.contains("PRIVATE KEY"), "{tar}");
    // Nor does a folder with one of them go to another path, under which it would not be hidden.
    assert!(ask("b.test", "config", &["-X", "DELETE"]).ends_with(" 403"));
    let destination = "Destination: /elsewhere";
    assert!(ask("b.test", "config", &["-X", "MOVE", "-H", destination]).ends_with(" 403"));
}

#[test]
fn the_default_site_is_explained_and_only_one_is_allowed() {
    let default = "[[site]]\nroot = 'DIR/a'\ndefault = true\n";
    for (config, words) in [
        ("[[site]]\nnames = ['*']\nroot = 'DIR/a'\n", ["line 2", "default = true"]),
        (&[default, default].concat(), ["two sites", "default = true"]),
    ] {
        let folder = folder();
        two_roots(folder.path());
        write_config(folder.path(), config);
        let config = folder.path().join("config/underpass.toml");
        run(["serve", "--port", "0", "--config", config.to_str().unwrap()]).failed(2, &words);
    }
}

#[test]
fn a_site_without_a_certificate_among_others_is_refused() {
    let folder = folder();
    with_keys(folder.path());
    write_config(
        folder.path(),
        &format!("{SECURE}\n[[site]]\nnames = ['c.test']\nroot = 'DIR/a'\n"),
    );
    let config = folder.path().join("config/underpass.toml");
    run(["serve", "--port", "0", "--config", config.to_str().unwrap()])
        .failed(2, &["line 14", "no tls-cert"]);
}

#[test]
fn a_site_loses_no_certificate_while_the_server_runs() {
    if !has("curl") {
        return;
    }
    let outer =
        |name: &str| format!("tls_cert = 'DIR/keys/{name}.pem'\ntls_key = 'DIR/keys/{name}.key'\n");
    let sites = Sites::new(&format!("{}{SECURE}", outer("a.test")), with_keys);
    let shows = |name: &str| {
        let url = format!("https://b.test:{}/same", sites.port());
        sites.curl(&["-kv", &url]).stderr.contains(&format!("subject: CN={name}"))
    };
    assert!(shows("b.test"));
    // Without one of its own it has the one before the sites, and without any it is refused.
    let bare = TWO.replace("[::1]", "::1").replace(", '::1'", "");
    sites.reload(&format!("{}{bare}", outer("c.test")));
    until("the certificate before the sites is shown", || shows("c.test"));
    let half = SECURE.rsplit_once("tls_cert").unwrap().0;
    for config in [half, &bare] {
        sites.reload(config);
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    assert!(shows("c.test"));
    let (said, _) = sites.end();
    assert!(said.contains("reloaded "), "{said}");
    assert!(!said.contains("has changed"), "{said}");
    assert_eq!(said.matches("the previous sites stay in use").count(), 2, "{said}");
    assert!(said.contains("this site has no tls-cert"), "{said}");
    assert!(said.contains("restart the server to disable HTTPS"), "{said}");
}

#[test]
fn the_certificate_before_the_sites_moves_without_that_of_a_site() {
    if !has("curl") {
        return;
    }
    let outer =
        |name: &str| format!("tls_cert = 'DIR/keys/{name}.pem'\ntls_key = 'DIR/keys/{name}.key'\n");
    let site =
        |name: &str, more: &str| format!("[[site]]\nnames = ['{name}']\nroot = 'DIR/a'\n{more}");
    let of_b = site("b.test", &outer("b.test"));
    let config = format!("{}{}{of_b}", outer("b.test"), site("a.test", ""));
    let sites = Sites::new(&config, with_keys);
    // Whether a name is served with a certificate of its own.
    let shows = |name: &str| {
        let resolved = format!("c.test:{}:127.0.0.1", sites.port());
        let key = format!("keys/{name}.pem");
        let url = format!("https://{name}:{}/", sites.port());
        sites.curl(&["--resolve", &resolved, "--cacert", &key, &url]).code() == Some(0)
    };
    assert_eq!((shows("a.test"), shows("b.test")), (false, true));
    sites.reload(&format!("{}{}{of_b}", outer("a.test"), site("a.test", "")));
    until("the other certificate is shown", || shows("a.test"));
    assert!(shows("b.test"));
    // Without one before the sites, that of the first one is also for other names.
    for name in ["a.test", "c.test"] {
        sites.reload(&format!("{}{of_b}", site("a.test", &outer(name))));
        until("that of the first site is for others", || shows(name));
        assert!(shows("b.test"));
    }
    sites.end();
}

#[test]
fn a_certificate_of_a_site_that_clients_refuse_is_warned_of() {
    let sites = Sites::new(SECURE, |folder| {
        with_keys(folder);
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        fs::set_permissions(folder.join("keys/b.test.key"), readable).unwrap();
    });
    let said = sites.end().0;
    assert!(said.contains("every user of this machine can read "), "{said}");
    assert!(said.contains("b.test.key: chmod 600"), "{said}");
    assert!(!said.contains("a.test.key: chmod 600"), "{said}");
}

#[test]
fn a_site_may_refuse_changes_that_the_top_allows() {
    const REFUSES: &str = "allow_all = true
        [[site]]
        names = ['a.test']
        root = 'DIR/a'
        allow_delete = false
        [[site]]
        names = ['b.test']
        root = 'DIR/b'
        allow_upload = false
        [[site]]
        names = ['c.test']
        root = 'DIR/a'
        allow_all = false";
    let sites = Sites::new(REFUSES, two_roots);
    let ask = |host: &str, request: &str| sites.change(host, request);
    assert_eq!(ask("a.test", "DELETE /same"), 405);
    assert_eq!(ask("a.test", "PUT /new"), 201);
    assert_eq!(ask("b.test", "PUT /new"), 405);
    assert_eq!(ask("b.test", "DELETE /same"), 204);
    assert_eq!(ask("c.test", "PUT /newer"), 405);
    assert_eq!(ask("c.test", "DELETE /new"), 405);
    assert!(sites.path("a/same").exists() && !sites.path("b/new").exists());
}

#[test]
fn the_environment_may_refuse_what_the_file_allows() {
    let folder = folder();
    two_roots(folder.path());
    write_config(folder.path(), "root = 'DIR/a'\nallow_all = true");
    let mut command = underpass();
    command.args(["serve", "--port", "0", "--config"]);
    command.arg(folder.path().join("config/underpass.toml"));
    command.env("UNDERPASS_ALLOW_DELETE", "false");
    let sites = Sites { server: Running::listening(command), folder };
    let ask = |request: &str| sites.change("localhost", request);
    assert_eq!((ask("PUT /new"), ask("DELETE /new")), (201, 405));
}

#[test]
fn sites_are_added_changed_and_removed_while_downloads_go_on() {
    if !has("curl") {
        return;
    }
    const LEN: usize = 8 << 20;
    let config = |sites: &str| format!("header = ['X-Version: 1']\n{sites}");
    let sites = Sites::with(&config(TWO), &["--no-sandbox"], |folder| {
        two_roots(folder);
        fs::write(folder.join("a/large"), vec![b'a'; LEN]).unwrap();
        file(folder, "c/same", "of c\n");
    });
    let url = format!("http://a.test:{}/large", sites.port());
    let mut slow = Command::new("curl");
    slow.args(["-sS", "--limit-rate", "4M", "--resolve"]);
    slow.arg(format!("a.test:{}:127.0.0.1", sites.port())).args(["-D", "head", "-o", "got", &url]);
    slow.current_dir(&sites.folder).stdin(Stdio::null());
    slow.stdout(Stdio::piped()).stderr(Stdio::piped());
    let slow = Running::start(slow);
    until("the download has begun", || {
        fs::metadata(sites.path("got")).is_ok_and(|got| got.len() > 0)
    });
    let mut idle = Client::new(sites.connect());
    let mut ask = |host: &str| {
        idle.send(format!("GET /same HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        idle.reply()
    };
    assert_eq!(ask("a.test").text(), "of a\n");
    // The first site is gone, the second one has another root, and there is a new one.
    let changed = "
[[site]]
names = ['b.test']
root = 'DIR/c'

[[site]]
names = ['c.test']
root = 'DIR/b'
";
    sites.reload(&config(changed).replace("Version: 1", "Version: 2"));
    until("the new site is there", || sites.status("c.test", "/same") == 200);
    // The same connection, which has been idle.
    assert_eq!(ask("a.test").status, 421);
    let reply = ask("b.test");
    assert_eq!((&*reply.text(), reply.field("x-version")), ("of c\n", Some("2")));
    assert_eq!(sites.body("c.test", "/same"), "of b\n");
    // A root that was replaced is opened again.
    fs::rename(sites.path("c"), sites.path("old")).unwrap();
    file(sites.folder.path(), "c/same", "new c\n");
    sites.server.signal("HUP");
    until("the new root is served", || sites.body("b.test", "/same") == "new c\n");
    slow.finish().succeeded();
    assert_eq!(fs::read(sites.path("got")).unwrap(), vec![b'a'; LEN]);
    let head = fs::read_to_string(sites.path("head")).unwrap();
    assert!(head.contains("X-Version: 1"), "{head}");
}

#[test]
fn paths_outside_the_sandbox_are_refused_until_a_restart() {
    let refusal = |options: &str| {
        let sites = Sites::new(TWO, |folder| {
            two_roots(folder);
            file(folder, "a/within/same", "within a\n");
            file(folder, "c/same", "of c\n");
        });
        let site = |options: &str| format!("{TWO}\n[[site]]\nnames = ['c.test']\n{options}\n");
        sites.reload(&site("root = 'DIR/a/within'"));
        until("a folder within a root is served", || sites.status("c.test", "/same") == 200);
        assert_eq!(sites.body("c.test", "/same"), "within a\n");
        sites.reload(&site(options));
        // A reload that is refused shows in nothing but its line.
        std::thread::sleep(std::time::Duration::from_secs(1));
        sites.end().0
    };
    let other = refusal("root = 'DIR/c'");
    let changes = refusal("root = 'DIR/a'\nallow_upload = true");
    let cache = refusal("origin = 'http://127.0.0.1:9/'\ncache = 'DIR/new'");
    if !other.contains("confined by Landlock") {
        return crate::rig::skip("this kernel has no Landlock");
    }
    assert!(
        other.contains("does not allow reading ") && other.contains("/c: restart the server"),
        "{other}"
    );
    assert!(changes.contains("does not allow changes of "), "{changes}");
    assert!(cache.contains("does not allow changes of "), "{cache}");
}

#[test]
fn a_root_that_was_replaced_needs_a_restart() {
    let sites = Sites::new(TWO, two_roots);
    let root = |name: &str| sites.folder.path().join(name);
    fs::rename(root("a"), root("old")).unwrap();
    file(sites.folder.path(), "a/same", "new\n");
    sites.reload(TWO);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let notes = sites.end().0;
    if !notes.contains("confined by Landlock") {
        return crate::rig::skip("this kernel has no Landlock");
    }
    assert!(notes.contains("does not allow reading what is now "), "{notes}");
    assert!(notes.contains("the previous sites stay in use"), "{notes}");
}

#[test]
fn a_config_with_an_error_changes_nothing_and_says_its_line() {
    let sites = Sites::new(TWO, two_roots);
    for (config, _) in [
        ("[[site]]\nnames = ['a.test']\nroot = 'DIR/none'\n", ""),
        ("[[site]]\nnames = ['a.test']\n", ""),
        ("\n[[site]]\nnames = ['a b']\nroot = 'DIR/a'\n", ""),
        ("[[site]]\nnames = ['a.test']\nroot = 'DIR/a'\nprot = 1\n", ""),
        ("[[site]]\nnames = ['a.test']\nroot = 'DIR/a'\nport = 1\n", ""),
        ("[[site]]\nnames = ['a.test'\n", ""),
        ("[[site]]\nnames = ['d']\nroot = 'DIR/a'\n[[site]]\nnames = ['d']\nroot = 'DIR/b'\n", ""),
    ] {
        sites.reload(config);
        assert_eq!(sites.body("a.test", "/same"), "of a\n");
    }
    sites.reload(&TWO.replace("b.test", "d.test"));
    until("the right config counts", || sites.status("d.test", "/same") == 200);
    let (said, _) = sites.end();
    assert!(said.contains("the previous sites stay in use"), "{said}");
    assert!(said.contains("reloaded 2 sites"), "{said}");
}

#[test]
fn a_config_that_was_emptied_does_not_open_the_current_folder() {
    let config = "root = 'DIR/a'\nauth = ['me:secret@/']\nno-sandbox = true\n";
    let sites = Sites::new(config, two_roots);
    for cut_off in ["", "# root = 'DIR/a'\n"] {
        sites.reload(cut_off);
        // A reload that is refused shows in nothing but its line.
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert_eq!(sites.status("127.0.0.1", "/config/underpass.toml"), 401);
        assert_eq!(sites.status("127.0.0.1", "/same"), 401);
    }
    sites.reload("root = 'DIR/b'\n");
    until("the next config counts", || sites.status("127.0.0.1", "/same") == 200);
    assert_eq!(sites.body("127.0.0.1", "/same"), "of b\n");
    let said = sites.end().0;
    assert!(said.contains("underpass.toml: neither root nor origin is set"), "{said}");
    assert!(said.contains("the previous sites stay in use"), "{said}");
}

#[test]
fn a_config_that_was_emptied_does_not_open_a_typed_folder() {
    let sites = Sites::with("auth = ['me:secret@/']\nquiet = true\n", &["a"], two_roots);
    sites.reload("");
    // A reload that is refused shows in nothing but its line.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(sites.status("127.0.0.1", "/same"), 401);
    let said = sites.end().0;
    assert!(said.contains("underpass.toml: the file no longer sets anything"), "{said}");
}

#[test]
fn each_wrong_site_is_reported_with_its_line() {
    let folder = folder();
    two_roots(folder.path());
    let config = folder.path().join("config/underpass.toml");
    for (text, words) in [
        ("[[site]]\nroot = 'DIR/a'\n", ["line 1", "names"]),
        ("\n[[site]]\nnames = ['a']\nport = 1\n", ["line 4", "first [[site]]"]),
        ("[[site]]\nnames = ['a']\n", ["line 1", "needs a root"]),
        ("[[site]]\nnames = ['a']\norigin = []\n", ["line 1", "needs a root"]),
        ("[[site]]\nnames = ['a']\nroot = 'DIR/none'\n", ["line 1", "none"]),
        ("[[site]]\nnames = ['a:80']\nroot = 'DIR/a'\n", ["line 2", "a:80"]),
        ("[[site]]\nnames = ['a']\nredirect = ['x']\n", ["line 3", "/old"]),
        ("[[site]]\nnames = 'a'\nroot = 'DIR/a'\nrot = 1\n", ["line 4", "--rot"]),
        ("[site]\nnames = 'a'\n", ["line 1", "[[site]]"]),
        ("[[site]]\ndefault = 'maybe'\n", ["line 2", "true nor false"]),
        (
            "[[site]]\nnames = 'a'\nroot = 'DIR/a'\n[[site]]\nnames = 'A.'\nroot = 'DIR/b'\n",
            ["two sites", "a"],
        ),
    ] {
        write_config(folder.path(), text);
        let finished = run(["serve", "--port", "0", "--config", config.to_str().unwrap()]);
        let said = finished.stderr.clone();
        assert_eq!(finished.code(), Some(2), "{text}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{text}: {said}");
        assert_eq!(said.trim().lines().count(), 1, "{said}");
    }
}

#[test]
fn a_site_in_front_of_an_origin_and_one_with_files_have_different_contents() {
    let origin = Sites::with("", &["b"], two_roots);
    let config = format!(
        "
[[site]]
names = ['a.test']
root = 'DIR/a'
allow_upload = true

[[site]]
names = ['b.test']
origin = '{}'
cache = 'DIR/cache'
fresh = '1h'
cache_free = '0'
",
        origin.server.address
    );
    let sites = Sites::with(&config, &["--no-sandbox"], two_roots);
    for _ in 0..3 {
        assert_eq!(sites.body("a.test", "/same"), "of a\n");
        assert_eq!(sites.body("b.test", "/same"), "of b\n");
    }
    assert_eq!(sites.status("a.test", "/.underpass/cache"), 404);
    assert_eq!(sites.status("b.test", "/.underpass/cache"), 200);
    // The cache stays open, and what is in it fresh, when the sites are read again.
    sites.reload(&format!("{config}\n[[site]]\nnames = ['c.test']\nroot = 'DIR/b'\n"));
    until("the new site is there", || sites.status("c.test", "/same") == 200);
    drop(origin);
    assert_eq!(sites.body("b.test", "/same"), "of b\n");
}

#[test]
fn sites_without_an_origin_do_not_inherit_the_options_of_caches() {
    let origin = Sites::with("", &["b"], two_roots);
    let config = format!(
        "
cache_free = '0'
cache_size = '1G'
stale_if_error = '1d'
s3_region = 'eu'

[[site]]
names = ['a.test']
root = 'DIR/a'

[[site]]
names = ['b.test']
origin = '{}'
cache = 'DIR/cache'

[[site]]
names = ['old.test']
redirect = ['/* https://a.test/* 308']
",
        origin.server.address
    );
    let sites = Sites::new(&config, two_roots);
    assert_eq!(sites.body("a.test", "/same"), "of a\n");
    assert_eq!(sites.body("b.test", "/same"), "of b\n");
    assert_eq!(sites.status("old.test", "/same"), 308);
}

#[test]
fn no_site_serves_or_changes_the_cache_of_another() {
    let origin = Sites::with("", &["b"], two_roots);
    let config = format!(
        "
[[site]]
names = ['a.test']
root = 'DIR'
allow_all = true

[[site]]
names = ['b.test']
origin = '{}'
cache = 'DIR/a/cache'
cache_free = '0'
auth = ['me:secret@/']
",
        origin.server.address
    );
    let sites = Sites::new(&config, two_roots);
    assert_eq!(sites.status("b.test", "/same"), 401);
    let known = sites.get_with("b.test", "/same", "Authorization: Basic bWU6c2VjcmV0\r\n");
    assert_eq!((known.status, &*known.text()), (200, "of b\n"));
    assert!(sites.path("a/cache/objects").is_dir());
    for path in ["/a/cache", "/a/cache/", "/a/cache/objects/", "/a/cache/objects/?json"] {
        assert_eq!(sites.status("a.test", path), 404, "{path}");
    }
    for path in ["/a/?simple", "/?q=cache&below&simple", "/a/?archive=tar"] {
        let body = sites.body("a.test", path);
        assert!(!body.contains("cache") && !body.contains("of b"), "{path}: {body}");
    }
    assert_eq!(sites.change("a.test", "PUT /a/cache/objects/new"), 403);
    assert_eq!(sites.change("a.test", "DELETE /a/"), 403);
    // A root in the cache would have nothing but what is in it.
    sites.reload(&config.replace("root = 'DIR'", "root = 'DIR/a/cache/objects'"));
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(sites.body("a.test", "/a/same"), "of a\n");
    let notes = sites.end().0;
    assert!(notes.contains("is the cache of another site"), "{notes}");
}

#[test]
fn other_options_of_a_cache_need_a_restart() {
    let origin = Sites::with("", &["b"], two_roots);
    let config = format!(
        "[[site]]\nnames = ['b.test']\norigin = '{}'\ncache = 'DIR/cache'\ncache_free = '0'\n",
        origin.server.address
    );
    for args in [&[][..], &["--no-sandbox"]] {
        let sites = Sites::with(&config, args, |_| {});
        assert_eq!(sites.body("b.test", "/same"), "of b\n");
        sites.reload(&format!("{config}fresh = '1h'\n"));
        // It has to be read before the server ends.
        std::thread::sleep(std::time::Duration::from_secs(1));
        let notes = sites.end().0;
        assert!(notes.contains("line 1: --cache"), "{notes}");
        assert!(notes.contains("restart of the server; the previous sites stay in use"), "{notes}");
    }
}

#[test]
fn a_cache_whose_site_was_removed_can_be_added_again() {
    let origin = Sites::with("", &["b"], two_roots);
    let files = "[[site]]\nnames = ['a.test']\nroot = 'DIR/a'\n";
    let both = format!(
        "{files}[[site]]\nnames = ['b.test']\norigin = '{}'\ncache = 'DIR/cache'\ncache_free = '0'\n",
        origin.server.address
    );
    let sites = Sites::new(&both, two_roots);
    assert_eq!(sites.body("b.test", "/same"), "of b\n");
    sites.reload(files);
    until("the site is gone", || sites.status("b.test", "/same") == 421);
    sites.reload(&both);
    until("the site is there again", || sites.status("b.test", "/same") == 200);
}

#[test]
fn a_thousand_sites_start_and_take_little_memory() {
    const SITES: usize = 1000;
    let mut config = String::new();
    for number in 0..SITES {
        config += &format!("[[site]]\nnames = ['s{number}.test']\nroot = 'DIR/a'\n");
    }
    let few = Sites::new(TWO, two_roots);
    let many = Sites::new(&config, two_roots);
    assert_eq!(many.body("s0.test", "/same"), "of a\n");
    assert_eq!(many.body("s999.test", "/same"), "of a\n");
    assert_eq!(many.status("s1000.test", "/same"), 421);
    assert_eq!(few.body("a.test", "/same"), "of a\n");
    let kib = |sites: &Sites| sites.server.peak_kib().unwrap();
    let each = kib(&many).saturating_sub(kib(&few)) as usize / SITES;
    println!("a site takes {each} KiB");
    assert!(each < 64, "{each} KiB for each site");
}

#[test]
fn a_lock_stays_when_its_site_gets_another_name() {
    let config =
        |names: &str| format!("[[site]]\nnames = [{names}]\nroot = 'DIR/a'\nallow-upload = true\n");
    let sites = Sites::new(&config("'one.test'"), two_roots);
    let lock = "<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><locktype><write/>\
                </locktype></lockinfo>";
    let locked = sites.raw(&format!(
        "LOCK /new HTTP/1.1\r\nHost: one.test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{lock}",
        lock.len()
    ));
    assert_eq!(locked.status, 201, "{}", locked.head);
    let put = |host: &str| {
        let request = "HTTP/1.1\r\nConnection: close\r\nContent-Length: 1\r\n";
        sites.raw(&format!("PUT /new {request}Host: {host}\r\n\r\nx")).status
    };
    assert_eq!(put("one.test"), 423);
    sites.reload(&config("'other.test', 'one.test'"));
    until("a site with another name", || sites.get("other.test", "/").status == 200);
    assert_eq!((put("one.test"), put("other.test")), (423, 423));
}

#[test]
fn a_lock_holds_at_another_site_and_stays_that_of_its_user() {
    let site = |name: &str, root: &str| format!("[[site]]\nnames = ['{name}']\nroot = '{root}'\n");
    let one = site("one.test", "DIR/a");
    let users = "allow-upload = true\nauth = ['alice:pw@/:rw']\n";
    let sites = Sites::new(&format!("{users}{one}"), two_roots);
    let auth = format!("Authorization: Basic {}\r\n", base64("alice:pw"));
    let lock = "<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><locktype><write/>\
                </locktype></lockinfo>";
    let ask = |verb: &str, host: &str, path: &str, fields: &str, body: &str| {
        let length = format!("Connection: close\r\nContent-Length: {}\r\n", body.len());
        let head = format!("{verb} {path} HTTP/1.1\r\nHost: {host}\r\n{auth}{fields}{length}");
        sites.raw(&format!("{head}\r\n{body}"))
    };
    let locked = ask("LOCK", "one.test", "/folder/new", "", lock);
    assert_eq!(locked.status, 201, "{locked:?}");
    let own = format!("If: ({})\r\n", locked.field("lock-token").unwrap());
    let two = site("two.test", "DIR/a/folder");
    sites.reload(&format!("{users}{two}{one}"));
    until("another site", || ask("GET", "two.test", "/inner", "", "").status == 200);
    for (host, path) in [("one.test", "/folder/new"), ("two.test", "/new")] {
        assert_eq!(ask("PUT", host, path, "", "x").status, 423, "{host}");
        assert_eq!(ask("LOCK", host, path, "", lock).status, 423, "{host}");
        assert_eq!(ask("PUT", host, path, &own, "x").status, 204, "{host}");
    }
    assert_eq!(ask("PUT", "two.test", "/other", "", "x").status, 201);
}

#[test]
fn the_metrics_are_at_the_default_site_or_at_the_first() {
    let status = |sites: &Sites, host: &str| sites.get(host, "/.underpass/metrics").status;
    let sites = Sites::new(TWO, two_roots);
    assert_eq!((status(&sites, "a.test"), status(&sites, "x.w.test")), (200, 404));
    let config = TWO.replace("root = 'DIR/b'", "root = 'DIR/b'\ndefault = true");
    sites.reload(&config);
    until("a default site", || status(&sites, "a.test") == 404);
    assert_eq!((status(&sites, "b.test"), status(&sites, "127.0.0.1")), (200, 200));
}
