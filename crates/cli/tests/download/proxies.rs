//! The proxies of `underpass get`.

use std::io::Write;

use underpass_testkit::http::{Server, close, respond};

use crate::file::{get, get_in, recorder};
use crate::rig::{Running, folder, free_port};

#[test]
fn proxies_are_taken_from_the_usual_variables() {
    let here = folder();
    let cases: [(&str, &[&str], bool); 7] = [
        ("http_proxy", &[], true),
        ("all_proxy", &[], true),
        ("ALL_PROXY", &[], true),
        // In a CGI program this is a field of a client's request.
        ("HTTP_PROXY", &[], false),
        ("http_proxy", &["--no-proxy"], false),
        ("none", &["--proxy"], true),
        ("no_proxy", &[], false),
    ];
    for (variable, args, is_used) in cases {
        let (server, proxy) = (recorder(), recorder());
        let url = format!("http://{}/x", server.address);
        let mut command = get_in(here.path(), &[&url, "-f"]);
        command.args(args).env_remove("no_proxy").env_remove("NO_PROXY");
        let through = proxy.address.to_string();
        if args == ["--proxy"] {
            command.arg(&through);
        } else if variable == "no_proxy" {
            command.env("http_proxy", &through).env("no_proxy", "example.org,127.0.0.1");
        } else {
            command.env(variable, &through);
        }
        Running::start(command).finish().succeeded();
        let used = if is_used { proxy } else { server };
        let request = &used.requests()[0];
        let target = if is_used { &url } else { "/x" };
        assert_eq!((&*request.method, &*request.path), ("GET", target), "{variable} {args:?}");
    }
}

#[test]
fn a_proxy_of_another_kind_matters_only_where_it_is_used() {
    let (here, server) = (folder(), recorder());
    let (url, through) = (format!("http://{}/x", server.address), server.address.to_string());
    let socks = "socks5://127.0.0.1:1";
    for (variables, is_used) in [
        (&[("all_proxy", socks)][..], true),
        (&[("all_proxy", socks), ("no_proxy", "127.0.0.1")], false),
        (&[("all_proxy", socks), ("http_proxy", &through)], false),
        (&[("https_proxy", socks)], false),
    ] {
        let mut command = get_in(here.path(), &[&url, "-f"]);
        command.env_remove("no_proxy").env_remove("NO_PROXY").envs(variables.iter().copied());
        let finished = Running::start(command).finish();
        if is_used {
            finished.failed(2, &["$all_proxy", socks, "over http"]);
        } else {
            finished.succeeded();
        }
    }
    // A redirect does not go past the proxy.
    let moved = Server::start(|_, stream| {
        stream.write_all(
            b"HTTP/1.1 302 Found\r\nLocation: https://h/\r\nContent-Length: 0\r\n\r\n",
        )?;
        close()
    });
    let url = format!("http://{}/x", moved.address);
    let mut command = get_in(here.path(), &[&url, "-f"]);
    command.env("https_proxy", socks);
    Running::start(command).finish().failed(1, &["uses socks5"]);
    // Only one of these files is behind it.
    let files = Server::start(|request, stream| {
        let (head, body) = match request.path.as_str() {
            "/" => ("200 OK\nContent-Type: text/html", "<a href='a'>a</a><a href='b'>b</a>"),
            "/a" => ("302 Found\nLocation: https://h/", ""),
            _ => ("200 OK", "ok"),
        };
        respond(request, stream, &format!("HTTP/1.1 {head}"), body.as_bytes())
    });
    let mut command = get_in(here.path(), &["-r", &files.url("/"), "-d", "files"]);
    command.env("https_proxy", socks);
    Running::start(command).finish().failed(1, &["files lacks one file"]);
    assert_eq!(std::fs::read(here.path().join("files/b")).unwrap(), b"ok");
}

#[test]
fn a_proxy_that_does_not_answer_is_named_as_one() {
    let here = folder();
    let proxy = format!("127.0.0.1:{}", free_port());
    for url in ["http://127.0.0.1:1/x", "https://127.0.0.1:1/x"] {
        get(here.path(), &[url, "--proxy", &proxy, "--retries", "0"])
            .failed(1, &[&format!("connecting to the proxy {proxy}: Connection refused")]);
    }
    let closing = Server::start(|_, _| close());
    let proxy = closing.address.to_string();
    for url in ["http://127.0.0.1:1/x", "https://127.0.0.1:1/x"] {
        get(here.path(), &[url, "--proxy", &proxy, "--retries", "0"]).failed(
            1,
            &[&format!("the proxy {proxy}"), "closed the connection without a response"],
        );
    }
    get(here.path(), &[&closing.url("/x"), "--no-proxy", "--retries", "0"])
        .failed(1, &["the server closed the connection without a response"]);
}

#[test]
fn what_only_a_proxy_can_send_is_not_attributed_to_the_server() {
    let here = folder();
    for (answer, words) in [
        ("SSH-2.0-x", "invalid response from the proxy 127.0.0.1:"),
        ("HTTP/1.1 200 OK\r\nContent-Length: x", "invalid response from the proxy 127.0.0.1:"),
        ("HTTP/1.1 407 x\r\nContent-Length: 0", "the proxy answered 407 "),
        // The server may have sent it.
        ("HTTP/1.1 404 x\r\nContent-Length: 0", "the server answered 404 "),
    ] {
        let proxy = Server::start(move |_, stream| {
            stream.write_all(format!("{answer}\r\n\r\n").as_bytes())?;
            close()
        });
        let through = proxy.address.to_string();
        get(here.path(), &["http://127.0.0.1:1/x", "--proxy", &through]).failed(1, &[words]);
    }
}
