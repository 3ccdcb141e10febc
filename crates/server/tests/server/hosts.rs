//! Host names of requests: pages with a name that was pointed here (DNS rebinding) get nothing.

use super::rig::{Reply, Running, Site};
use underpass_server::{Address, Changes};

fn site() -> Site {
    let changes = Changes { upload: true, delete: true, ..Changes::default() };
    let site = Site::of(&[("a", b"contents"), ("b", b"contents")]);
    site.with_site(|site| site.changes = changes)
}

/// The reply to a request that names this host.
fn ask(site: &Running, verb: &str, path: &str, host: &str, fields: &str) -> Reply {
    let mut client = site.connect();
    client.send(format!(
        "{verb} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{fields}\r\n"
    ));
    client.reply()
}

fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[test]
fn an_unknown_host_is_refused_on_loopback() {
    let site = site().start();
    for (verb, path) in [
        ("GET", "/a"),
        ("GET", "/"),
        ("PUT", "/new"),
        ("DELETE", "/a"),
        ("MKCOL", "/d"),
        ("GET", "/.underpass/transfers"),
    ] {
        let reply = ask(&site, verb, path, "rebound.example:5000", "");
        assert_eq!(reply.status, 421, "{verb} {path}");
        assert!(reply.text().contains("--allow-host rebound.example"), "{}", reply.text());
    }
    let long = ask(&site, "GET", "/a", &"a".repeat(20_000), "");
    assert!(long.status == 421 && long.body.len() < 1024, "{}", long.body.len());
    let absolute = ask(&site, "GET", "http://rebound.example/a", "localhost", "");
    assert_eq!(absolute.status, 421);
    assert!(site.path("a").exists() && !site.path("new").exists());
    let own = own_name();
    for host in ["localhost:1", "127.0.0.1", "[::1]:5000", "192.0.2.1:80", "x.localhost", &own] {
        assert_eq!(ask(&site, "GET", "/a", host, "").status, 200, "{host}");
    }
    // A health check does not know the names of the server.
    assert_eq!(ask(&site, "GET", "/.underpass/health", "balancer.example", "").status, 200);
}

#[test]
fn allowed_names_are_accepted_and_an_asterisk_allows_all() {
    let allow = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        site().with_site(|site| site.allowed_hosts = names).start()
    };
    let some = allow(&["files.example", "other.example"]);
    assert_eq!(ask(&some, "GET", "/a", "Files.Example:8080", "").status, 200);
    assert_eq!(ask(&some, "GET", "/a", "rebound.example", "").status, 421);
    assert_eq!(ask(&allow(&["*"]), "GET", "/a", "rebound.example", "").status, 200);
}

#[test]
fn a_right_password_allows_an_unknown_host_name() {
    let alice = "Authorization: Basic YWxpY2U6c2VjcmV0MQ==\r\n"; // alice:secret1
    let site = site().auth(&["alice:secret1@/:rw", "@/"]).start();
    assert_eq!(ask(&site, "GET", "/a", "rebound.example", alice).status, 200);
    assert_eq!(ask(&site, "GET", "/a", "rebound.example", "").status, 421, "what anyone may read");
    assert_eq!(ask(&site, "DELETE", "/a", "rebound.example", "").status, 401);
    assert_eq!(ask(&site, "DELETE", "/a", "rebound.example", alice).status, 204);
}

#[test]
fn a_unix_socket_accepts_any_host_name() {
    let mut site = site();
    let path = site.path("socket");
    site.address = Address::Unix(path.clone());
    let _site = site.start();
    let mut client = super::rig::Client::unix(path.to_str().unwrap()).unwrap();
    client.send("GET /a HTTP/1.1\r\nHost: proxied.example\r\n\r\n");
    assert_eq!(client.reply().status, 200);
}
