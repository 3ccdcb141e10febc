//! HAProxy and nginx in front of the server, which learns the addresses of clients.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::rig::{self, Running, has};
use crate::site::Site;

use underpass_testkit::{free_port, until_listening};

/// The client, which proxies see at an address of its own.
const CLIENT: &str = "127.0.0.2";

/// The arguments of HAProxy with a configuration among the fetched files.
const HAPROXY: [&str; 3] = ["-db", "-f", "haproxy.cfg"];

/// Fetches through a proxy; the status.
fn fetch(site: &Site, url: &str, more: &[&str]) -> String {
    let args = ["-sS", "-k", "--interface", CLIENT, "-o", "got", "-w", "%{http_code}", url];
    let status = site.fetch("curl", &[&args, more].concat()).succeeded().text();
    assert_eq!(fs::read(site.target("got")).unwrap(), b"contents", "{url}");
    status
}

/// The server's port on loopback.
fn port(site: &Site) -> String {
    let url = site.url("");
    url.trim_end_matches('/').rsplit(':').next().unwrap().to_owned()
}

/// The lines of the log about the file.
fn lines(site: Site) -> Vec<Value> {
    site.end().into_iter().filter(|line| line["target"] == "/file").collect()
}

/// Starts a proxy that listens on these ports.
fn start(command: Command, ports: &[u16]) -> Running {
    let proxy = Running::start(command);
    ports.iter().for_each(|port| until_listening(*port));
    proxy
}

/// Starts nginx in front of the site, with further directives.
pub(crate) fn nginx(site: &Site, listening: u16, further: &str) -> Running {
    let server = port(site);
    let http = format!(
        "server {{ listen 127.0.0.1:{listening}; location / {{ {further}\n\
         proxy_pass http://127.0.0.1:{server}; proxy_set_header Forwarded \"\";\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         proxy_set_header X-Forwarded-Proto $scheme; }} }}"
    );
    let config = rig::nginx::config(&site.target(""), &http);
    start(rig::nginx::command("nginx", &config), &[listening])
}

/// Ends a proxy.
pub(crate) fn stop(proxy: Running) {
    proxy.signal("TERM");
    proxy.finish();
}

#[test]
fn haproxy_names_the_client_by_both_versions_of_the_proxy_protocol() {
    if !has("haproxy") {
        return;
    }
    for tls in [&[][..], &["--tls", "self"]] {
        let args = [&["--trusted-proxy", "127.0.0.1", "--proxy-protocol"], tls].concat();
        let Some(site) = Site::new(&["curl"], &args) else { return };
        fs::write(site.source("file"), "contents").unwrap();
        let (one, two, server) = (free_port(), free_port(), port(&site));
        let config = format!(
            "defaults\n mode tcp\n timeout connect 60s\n timeout client 60s\n timeout server 60s\n\
             listen one\n bind 127.0.0.1:{one}\n server s 127.0.0.1:{server} send-proxy\n\
             listen two\n bind 127.0.0.1:{two}\n server s 127.0.0.1:{server} send-proxy-v2\n"
        );
        fs::write(site.target("haproxy.cfg"), config).unwrap();
        let proxy = start(site.peer("haproxy", &HAPROXY), &[one, two]);
        let scheme = if tls.is_empty() { "http" } else { "https" };
        for port in [one, two] {
            assert_eq!(fetch(&site, &format!("{scheme}://127.0.0.1:{port}/file"), &[]), "200");
        }
        stop(proxy);
        let lines = lines(site);
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line["remote"] == CLIENT), "{lines:?}");
    }
}

#[test]
fn haproxy_and_nginx_name_the_client_by_fields() {
    if !has("haproxy") {
        return;
    }
    let args = ["--trusted-proxy", "127.0.0.1"];
    let Some(site) = Site::new(&["curl", "nginx"], &args) else { return };
    fs::write(site.source("file"), "contents").unwrap();
    let (one, two, server) = (free_port(), free_port(), port(&site));
    let config = format!(
        "defaults\n mode http\n timeout connect 60s\n timeout client 60s\n timeout server 60s\n\
         listen one\n bind 127.0.0.1:{one}\n option forwardfor\n server s 127.0.0.1:{server}\n"
    );
    fs::write(site.target("haproxy.cfg"), config).unwrap();
    let haproxy = start(site.peer("haproxy", &HAPROXY), &[one]);
    let nginx = nginx(&site, two, "");
    // Fields from the client itself are not trusted.
    for forged in [&[][..], &["-H", "X-Forwarded-For: 192.0.2.1"]] {
        for port in [one, two] {
            assert_eq!(fetch(&site, &format!("http://127.0.0.1:{port}/file"), forged), "200");
        }
    }
    assert_eq!(fetch(&site, &site.url("file"), &["-H", "X-Forwarded-For: 192.0.2.1"]), "200");
    stop(haproxy);
    stop(nginx);
    let lines = lines(site);
    assert_eq!(lines.len(), 5);
    assert!(lines.iter().all(|line| line["remote"] == CLIENT), "{lines:?}");
}
