//! Redirects, secrets and proxies: which servers get requests, and what these contain.

use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use underpass_client::download::{DownloadError, Downloader, IfExists, TargetError};
use underpass_client::{ClientError, Credentials, Proxies, UnusableUrl, Url};

use crate::rig::{Client, Server, TAG, give, hang_up, noise, say};

fn redirects(to: String) -> Server {
    Server::start(move |request, stream| {
        let to = if request.path == "/self" { "/self" } else { &to };
        say(stream, &format!("HTTP/1.1 302 Found\nLocation: {to}\nContent-Length: 3\n\nno\n"))
    })
}

#[test]
fn redirects_are_followed_up_to_a_bound() {
    let bytes = noise(1000);
    let target = Server::of(&bytes);
    let first = redirects(target.url("/x").to_string());
    let second = redirects(first.url("/y").to_string());
    Client::new().gets(&second.url("/"), &bytes);
    let failed = Client::new().fails(&first.url("/self"), "more than 5 redirects");
    assert!(!failed.error.is_temporary());
    // They all use one connection each; a test can only see the number of requests.
    assert_eq!(first.requests().len(), 1 + 6);
    let mut client = Client::new();
    client.max_redirects = 0;
    client.fails(&first.url("/"), "more than 0 redirects");
    client.max_redirects = 1;
    let failed = client.fails(&first.url("/self"), "more than 1 redirect");
    assert!(!failed.to_string().contains("redirects"), "{failed}");
}

#[test]
fn secrets_are_sent_only_to_the_given_server() {
    let bytes = noise(40 << 20);
    let target = Server::of(&bytes);
    let first = redirects(target.url("/x").to_string());
    for credentials in [
        Credentials::Bearer("secret".to_owned()),
        Credentials::Basic { user: "me".to_owned(), password: "secret".to_owned() },
    ] {
        let mut client = Client::with(4);
        client.credentials = credentials;
        client.headers = vec![("Cookie".to_owned(), "secret".to_owned())];
        client.gets(&first.url("/"), &bytes);
    }
    for request in first.requests() {
        let value = request.field("authorization").unwrap();
        assert!(["Bearer secret", "Basic bWU6c2VjcmV0"].contains(&value), "{value}");
        assert_eq!(request.field("cookie"), Some("secret"));
    }
    // The requests for later parts contain no secrets, either.
    assert!(target.requests().len() > 4);
    for request in target.requests() {
        assert_eq!((request.field("authorization"), request.field("cookie")), (None, None));
    }
}

#[test]
fn a_user_name_in_the_url_is_sent_as_a_field() {
    let bytes = noise(10);
    let server = Server::of(&bytes);
    let mut url = server.url("/x");
    url.set_username("a%40b").unwrap();
    url.set_password(Some("c:d")).unwrap();
    Client::new().gets(&url, &bytes);
    let requests = server.requests();
    assert_eq!(requests[0].field("authorization"), Some("Basic YUBiOmM6ZA=="));
    assert!(!requests[0].head.contains("c:d"));
    assert_eq!(requests[0].field("host"), Some(server.address.to_string().as_str()));
    assert_eq!(requests[0].field("accept-encoding"), Some("identity"));
}

#[test]
fn a_user_name_in_the_url_survives_a_redirect_to_the_same_server() {
    let bytes = noise(10);
    let body = bytes.clone();
    let server = Server::start(move |request, stream| match request.path.as_str() {
        "/x" => {
            let to = request.field("host").unwrap();
            say(stream, &format!("HTTP/1.1 302 x\nLocation: http://{to}/y\nContent-Length: 0\n\n"))
        }
        _ => give(request, stream, &body, "\"y\""),
    });
    let mut url = server.url("/x");
    url.set_username("me").unwrap();
    url.set_password(Some("secret")).unwrap();
    Client::new().gets(&url, &bytes);
    // Another server does not receive it.
    let first = redirects(server.url("/z").to_string());
    let mut url = first.url("/");
    url.set_username("me").unwrap();
    Client::new().gets(&url, &bytes);
    let sent: Vec<_> =
        server.requests().iter().map(|it| it.field("authorization").map(str::to_owned)).collect();
    let named = Some("Basic bWU6c2VjcmV0".to_owned());
    assert_eq!(sent, [named.clone(), named, None]);
}

#[test]
fn a_name_is_requested_again_if_the_server_is_busy() {
    let server = Server::start(|request, stream| match request.number {
        0 => say(stream, "HTTP/1.1 503 x\nContent-Length: 0\n\n"),
        _ => say(stream, "HTTP/1.1 200 x\nContent-Disposition: attachment; filename=\"a.pdf\"\n\n"),
    });
    let client = Client::new();
    let downloader = Downloader::new(client.agent(None), client.options.clone());
    let name = downloader.suggested_name(&server.url("/dl"), &|_| {});
    assert_eq!(name.unwrap(), Some("a.pdf".into()));
    // An error response suggests no name.
    let missing = Server::start(|_, stream| {
        say(stream, "HTTP/1.1 404 x\nContent-Disposition: attachment; filename=\"a\"\n\n")
    });
    downloader.suggested_name(&missing.url("/"), &|_| {}).unwrap_err();
}

#[test]
fn a_tag_is_that_of_the_url_that_has_answered() {
    let (old, new) = (noise(1000), std::sync::Arc::new(vec![7; 1000]));
    let is_new = std::sync::Arc::new(AtomicBool::new(false));
    let (first, second, flag) = (old.clone(), new.clone(), is_new.clone());
    let server = Server::start(move |request, stream| match request.path.as_str() {
        "/latest" => {
            let to = if flag.load(Ordering::Relaxed) { "/v2" } else { "/v1" };
            say(stream, &format!("HTTP/1.1 302 x\nLocation: {to}\nContent-Length: 0\n\n"))
        }
        _ if request.field("if-none-match") == Some("\"same\"") => {
            say(stream, "HTTP/1.1 304 x\nETag: \"same\"\n\n")
        }
        "/v1" => give(request, stream, &first, "\"same\""),
        _ => give(request, stream, &second, "\"same\""),
    });
    let mut client = Client::new();
    client.if_exists = IfExists::Update;
    client.gets(&server.url("/latest"), &old);
    is_new.store(true, Ordering::Relaxed);
    client.gets(&server.url("/latest"), &new);
    client.gets(&server.url("/latest"), &new);
}

#[test]
fn an_unmodified_version_with_another_tag_is_fetched() {
    let (old, new) = (noise(1000), std::sync::Arc::new(vec![7; 1000]));
    let (first, second) = (old.clone(), new.clone());
    let server = Server::start(move |request, stream| match request.field("if-none-match") {
        Some("\"new\"") => say(stream, "HTTP/1.1 304 x\nETag: W/\"new\"\n\n"),
        // As from a broken cache.
        Some(_) => say(stream, "HTTP/1.1 304 x\nETag: \"new\"\n\n"),
        None if request.number == 0 => give(request, stream, &first, "\"old\""),
        None => give(request, stream, &second, "\"new\""),
    });
    let mut client = Client::new();
    client.if_exists = IfExists::Update;
    client.gets(&server.url("/"), &old);
    client.gets(&server.url("/"), &new);
    client.gets(&server.url("/"), &new);
}

#[test]
fn a_proxy_that_never_opens_the_tunnel_is_given_up() {
    let proxy = Server::start(|_, stream| {
        (0..10_000).try_for_each(|_| say(stream, "HTTP/1.1 103 Early Hints\n\n"))?;
        hang_up()
    });
    let mut client = Client::new();
    client.options.retries = 0;
    client.proxies = Proxies { https: Some(proxy.url("/")), ..Proxies::default() };
    client.fails(&Url::parse("https://no.such.host.invalid/").unwrap(), "too many interim answers");
}

#[test]
fn a_proxy_gets_the_absolute_url() {
    let bytes = noise(1000);
    let proxy = Server::of(&bytes);
    let mut client = Client::new();
    let mut through = proxy.url("/");
    through.set_username("pro").unwrap();
    through.set_password(Some("xy")).unwrap();
    client.proxies =
        Proxies { http: Some(through), https: None, except: vec!["localhost".to_owned()] };
    client.credentials = Credentials::Bearer("for the server".to_owned());
    client.gets(&Url::parse("http://no.such.host.invalid:81/a?b#c").unwrap(), &bytes);
    let request = &proxy.requests()[0];
    assert_eq!(request.path, "http://no.such.host.invalid:81/a?b");
    assert_eq!(request.field("host"), Some("no.such.host.invalid:81"));
    assert_eq!(request.field("proxy-authorization"), Some("Basic cHJvOnh5"));
    assert_eq!(request.field("authorization"), Some("Bearer for the server"));
    // A server in `except` is contacted directly, without the password for the proxy.
    let server = Server::of(&bytes);
    let mut url = server.url("/z");
    url.set_host(Some("localhost")).unwrap();
    client.gets(&url, &bytes);
    assert_eq!(server.requests()[0].path, "/z");
    assert_eq!(server.requests()[0].field("proxy-authorization"), None);
    assert_eq!(proxy.requests().len(), 1);
}

#[test]
fn addresses_of_other_kinds_are_refused_in_plain_words() {
    let client = Client::new();
    client.fails(&Url::parse("ftp://a/b").unwrap(), "URL scheme ftp");
    let server = redirects("ftp://127.0.0.1:1/".to_owned());
    let failed = client.fails(&server.url("/"), "ftp");
    let is_it =
        matches!(failed.error, DownloadError::Client(ClientError::Url(UnusableUrl::Scheme { .. })));
    assert!(is_it, "{failed:?}");
}

#[test]
fn a_connection_with_unread_input_is_not_reused() {
    let bytes = noise(40 << 20);
    let body = bytes.clone();
    let server = Server::start(move |request, stream| {
        give(request, stream, &body, "\"x\"")?;
        // These bytes respond to no request.
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
    });
    Client::with(2).gets(&server.url("/"), &bytes);
}

#[test]
fn an_existing_file_is_replaced_kept_or_recognized_as_the_same() {
    let server = Server::start(|request, stream| {
        let date = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
        let body = if request.head.starts_with("HEAD") { "" } else { "new" };
        say(stream, &format!("HTTP/1.1 200 OK\n{date}\nContent-Length: 3\n\n{body}"))
    });
    let mut client = Client::new();
    fs::write(client.path(), "old").unwrap();
    for if_exists in [IfExists::Refuse, IfExists::SameIsFine] {
        client.if_exists = if_exists;
        let failed = client.get(&server.url("/")).unwrap_err();
        assert!(matches!(failed.error, DownloadError::Target(TargetError::Exists)), "{failed:?}");
        assert_eq!(fs::read(client.path()).unwrap(), b"old");
    }
    client.if_exists = IfExists::Replace;
    client.gets(&server.url("/"), b"new");
    client.if_exists = IfExists::SameIsFine;
    let before = server.requests().len();
    let done = client.get(&server.url("/")).unwrap();
    assert!(done.was_here && done.report.bytes() == 0 && done.resumed_at == 3);
    assert!(server.requests()[before..].iter().all(|request| request.head.starts_with("HEAD")));
}

#[test]
fn an_existing_file_is_called_different_only_if_it_is() {
    let size = "Content-Length: 3";
    let (time, other) =
        ("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT", "Last-Modified: yesterday");
    for (fields, is_different) in [
        (format!("Content-Length: 4\n{time}"), true),
        ("Content-Length: 4".to_owned(), true),
        (format!("{size}\n{time}"), true),
        (time.to_owned(), true),
        (size.to_owned(), false),
        (format!("{size}\n{other}"), false),
        (String::new(), false),
    ] {
        let head = format!("HTTP/1.1 200 OK\nConnection: close\n{fields}\n\n");
        let server = Server::start(move |_, stream| {
            say(stream, &head)?;
            hang_up()
        });
        let mut client = Client::new();
        fs::write(client.path(), "old").unwrap();
        client.if_exists = IfExists::SameIsFine;
        let error = client.get(&server.url("/")).unwrap_err().error;
        let is_called_different = match error {
            DownloadError::Target(TargetError::Exists) => true,
            DownloadError::Target(TargetError::Incomparable) => false,
            error => panic!("{error}"),
        };
        assert_eq!(is_called_different, is_different, "{fields}");
        assert_eq!(fs::read(client.path()).unwrap(), b"old");
    }
}

#[test]
fn an_error_status_takes_precedence_over_an_existing_file() {
    for status in ["400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found"] {
        let server = Server::start(move |_, stream| {
            say(stream, &format!("HTTP/1.1 {status}\nContent-Length: 0\n\n"))
        });
        let mut client = Client::new();
        fs::write(client.path(), "old").unwrap();
        for if_exists in [IfExists::SameIsFine, IfExists::Replace] {
            client.if_exists = if_exists;
            let failed = client.get(&server.url("/")).unwrap_err();
            assert!(failed.to_string().contains(status), "{if_exists:?}, {status}: {failed}");
            assert_eq!(fs::read(client.path()).unwrap(), b"old");
        }
    }
}

#[test]
fn a_server_that_refuses_head_can_have_the_same_file() {
    for refusal in ["403 Forbidden", "405 Method Not Allowed", "501 Not Implemented"] {
        let server = Server::start(move |request, stream| {
            if request.head.starts_with("HEAD") {
                return say(stream, &format!("HTTP/1.1 {refusal}\nContent-Length: 0\n\n"));
            }
            let date = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
            say(stream, &format!("HTTP/1.1 200 OK\n{date}\nContent-Length: 3\n\nnew"))
        });
        let mut client = Client::new();
        client.gets(&server.url("/"), b"new");
        client.if_exists = IfExists::SameIsFine;
        assert!(client.get(&server.url("/")).unwrap().was_here);
        fs::write(client.path(), "other").unwrap();
        let failed = client.get(&server.url("/")).unwrap_err();
        assert!(matches!(failed.error, DownloadError::Target(TargetError::Exists)), "{failed:?}");
    }
}

#[test]
fn a_server_that_refuses_ranges_gets_a_request_for_the_whole() {
    let bytes = noise(20 << 20);
    for refusal in ["400 Bad", "403 No", "405 No", "501 No"] {
        for is_well in [true, false] {
            let body = bytes.clone();
            let server = Server::start(move |request, stream| {
                if is_well && request.field("range").is_none() {
                    return give(request, stream, &body, TAG);
                }
                say(stream, &format!("HTTP/1.1 {refusal}\nContent-Length: 0\n\n"))
            });
            if is_well {
                drop(Client::with(2).gets(&server.url("/"), &bytes))
            } else {
                drop(Client::with(2).fails(&server.url("/"), &refusal[..3]))
            }
            assert_eq!(server.requests().len(), 2, "{refusal}");
        }
    }
}
