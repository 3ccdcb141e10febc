//! The owner of an upload, who alone may query, continue and end it.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::rig::{Client, Reply, Running, Site, pattern, request, wait_for, wait_until};
use super::uploads::{leave, names, open_site, put, send};

const TOTAL: usize = 3_000_000;
const ME: &str = "Authorization: Basic bWU6c2VjcmV0"; // me:secret
const YOU: &str = "Authorization: Basic eW91OnNlY3JldA=="; // you:secret
const READER: &str = "Authorization: Basic cmVhZGVyOnNlY3JldA=="; // reader:secret

/// A site that everyone may read, and two users may write to.
fn site() -> Site {
    open_site().auth(&["me:secret@/:rw", "you:secret@/:rw", "reader:secret@/", "@/"])
}

/// A resumable upload of which the first bytes have arrived, and more are announced.
fn begin(server: &Running, fields: &[&str], sent: usize) -> (Client, String) {
    let mut client = server.connect();
    let length = format!("Content-Length: {TOTAL}");
    let draft = ["Upload-Draft-Interop-Version: 8", "Upload-Complete: ?1", length.as_str()];
    client.send(request("PUT", "/file", &[fields, &draft].concat()));
    let interim = client.head().unwrap();
    assert_eq!(interim.status, 104);
    client.send(&pattern(TOTAL)[..sent]);
    (client, interim.upload_of("/file"))
}

fn go_on(server: &Running, location: &str, at: usize, fields: &[&str]) -> Reply {
    let mut client = server.connect();
    let offset = format!("Upload-Offset: {at}");
    let draft = ["Upload-Complete: ?1", &offset, "Content-Type: application/partial-upload"];
    let fields = [fields, &draft].concat();
    send(&mut client, "PATCH", location, &fields, &pattern(TOTAL)[at..]);
    client.reply()
}

/// A connection from another address of this machine.
fn from_elsewhere(server: &Running) -> Client {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0))).unwrap();
    connect(&socket, &server.socket()).unwrap();
    Client::new(TcpStream::from(socket))
}

#[test]
fn readers_can_neither_query_nor_end_an_upload() {
    let server = site().start();
    let (mut client, location) = begin(&server, &[ME], 500_000);
    wait_until("it has a name", || names(&server).len() == 1);
    for verb in ["GET", "HEAD", "PATCH", "DELETE"] {
        assert_eq!(server.ask(verb, &location, &[]).status, 401, "{verb}");
        assert_eq!(server.ask(verb, &location, &[READER]).status, 403, "{verb}");
    }
    assert_eq!(server.ask("HEAD", "/file?partial", &[]).status, 401);
    assert_eq!(server.ask("HEAD", "/file?partial", &[READER]).status, 403);
    client.send(&pattern(TOTAL)[500_000..]);
    assert_eq!(client.reply().status, 201);
    assert!(server.get("/file").body == pattern(TOTAL));
}

#[test]
fn a_page_of_another_site_neither_asks_about_an_upload_nor_ends_it() {
    let server = open_site().with_site(|site| site.cors = true).start();
    let (mut client, location) = begin(&server, &[], 500_000);
    wait_until("it has a name", || names(&server).len() == 1);
    for field in ["Origin: http://example.org", "Sec-Fetch-Site: cross-site"] {
        for verb in ["GET", "HEAD", "PATCH", "DELETE"] {
            assert_eq!(server.ask(verb, &location, &[field]).status, 403, "{verb} {field}");
        }
        assert_eq!(server.ask("HEAD", "/file?partial", &[field]).status, 403);
    }
    client.send(&pattern(TOTAL)[500_000..]);
    assert_eq!(client.reply().status, 201);
}

#[test]
fn querying_the_offset_of_an_upload_does_not_end_it() {
    let server = site().start();
    let (mut client, location) = begin(&server, &[ME], 500_000);
    let offset = |reply: Reply| reply.field("Upload-Offset").map(str::to_owned);
    let here = wait_for("it is here", || {
        offset(server.ask("HEAD", &location, &[ME])).filter(|at| at == "500000")
    });
    assert_eq!(offset(server.ask("GET", &location, &[ME])), Some(here));
    client.send(&pattern(TOTAL)[500_000..]);
    assert_eq!(client.reply().status, 201);
    // The same for one without an address.
    let mut client = server.connect();
    let range = format!("Content-Range: bytes 0-{}/{TOTAL}", TOTAL - 1);
    client.send(request("PUT", "/other", &[ME, &range, &format!("Content-Length: {TOTAL}")]));
    client.send(&pattern(TOTAL)[..1_000]);
    wait_until("it is here", || {
        offset(server.ask("HEAD", "/other?partial", &[ME])).is_some_and(|at| at == "1000")
    });
    client.send(&pattern(TOTAL)[1_000..]);
    assert_eq!(client.reply().status, 201);
}

#[test]
fn an_upload_without_a_byte_is_known_to_its_client() {
    let server = open_site().start();
    let (mut client, location) = begin(&server, &[], 0);
    assert_eq!(server.ask("HEAD", &location, &[]).field("Upload-Offset"), Some("0"));
    client.send(pattern(TOTAL));
    assert_eq!(client.reply().status, 201);
}

#[test]
fn the_address_of_an_upload_is_of_no_use_to_another_writer() {
    let server = site().start();
    let (client, location) = begin(&server, &[ME], 500_000);
    leave(&server, client);
    for verb in ["GET", "HEAD", "DELETE"] {
        assert_eq!(server.ask(verb, &location, &[YOU]).status, 404, "{verb}");
    }
    assert_eq!(go_on(&server, &location, 500_000, &[YOU]).status, 404);
    // Nor is it for a file of another name.
    let other = location.replace("/file?", "/other?");
    assert_eq!(go_on(&server, &other, 500_000, &[ME]).status, 404);
    assert_eq!(go_on(&server, &location, 500_000, &[ME]).status, 201);
    assert!(server.get("/file").body == pattern(TOTAL));
}

#[test]
fn the_file_name_of_a_part_differs_from_its_upload_token() {
    let server = site().start();
    let (client, location) = begin(&server, &[ME], 500_000);
    leave(&server, client);
    let begun = put(&server, "/ranged", &[ME, "Content-Range: bytes 0-3/8"], b"mine");
    assert_eq!(begun.status, 202);
    let parts = names(&server);
    assert_eq!(parts.len(), 2);
    for part in parts {
        let mut words = part.rsplit('.').skip(1);
        let (token, name) = (words.next().unwrap(), words.next().unwrap());
        assert!(!location.contains(token), "{part} {location}");
        for user in [ME, YOU] {
            let address = format!("/{name}?upload={token}-x");
            assert_eq!(server.ask("HEAD", &address, &[user]).status, 404, "{part}");
            assert_eq!(server.ask("DELETE", &address, &[user]).status, 404, "{part}");
        }
    }
    assert_eq!(server.ask("HEAD", "/ranged?partial", &[ME]).field("Upload-Offset"), Some("4"));
}

#[test]
fn without_users_parts_belong_to_addresses() {
    let server = open_site().start();
    let begin = "Content-Range: bytes 0-3/8";
    assert_eq!(put(&server, "/file", &[begin], b"mine").status, 202);
    let mut other = from_elsewhere(&server);
    assert_eq!(other.try_ask("HEAD", "/file?partial", &[]).unwrap().status, 404);
    send(&mut other, "PUT", "/file", &["Content-Range: bytes 4-7/8"], b"evil");
    assert_eq!(other.reply().status, 416);
    assert_eq!(put(&server, "/file", &["Content-Range: bytes 4-7/8"], b"mine").status, 201);
    assert_eq!(server.get("/file").text(), "minemine");
    // With the address of an upload it can be resumed from anywhere.
    let created = server.ask("PUT", "/large", &["Upload-Complete: ?0"]);
    let location = created.upload_of("/large");
    let offset = from_elsewhere(&server).try_ask("HEAD", &location, &[]).unwrap();
    assert_eq!(offset.field("Upload-Offset"), Some("0"));
}

#[test]
fn an_upload_begun_without_a_password_is_continued_with_one() {
    let server = open_site().auth(&["me:secret@/:rw", "you:secret@/:rw", "@/:rw"]).start();
    let (client, location) = begin(&server, &[], 500_000);
    leave(&server, client);
    let offset = server.ask("HEAD", &location, &[ME]);
    assert_eq!(offset.field("Upload-Offset"), Some("500000"));
    assert_eq!(go_on(&server, &location, 500_000, &[ME]).status, 201);
    // That of a user is not for those without a password, nor for another user.
    let (client, location) = begin(&server, &[ME], 500_000);
    leave(&server, client);
    assert_eq!(go_on(&server, &location, 500_000, &[]).status, 404);
    assert_eq!(go_on(&server, &location, 500_000, &[YOU]).status, 404);
    assert_eq!(go_on(&server, &location, 500_000, &[ME]).status, 204);
}

#[test]
fn owners_of_parts_survive_a_restart() {
    let site = site();
    let (root, changes, access) =
        (site.path(""), site.settings.sites[0].changes, site.settings.sites[0].access.clone());
    let server = site.start();
    let (client, location) = begin(&server, &[ME], 500_000);
    leave(&server, client);
    put(&server, "/ranged", &[ME, "Content-Range: bytes 0-3/8"], b"mine");
    let again = Site::new().with_site(|site| {
        (site.root, site.changes, site.access) = (Some(root), changes, access);
    });
    let again = again.start();
    assert_eq!(again.ask("HEAD", &location, &[YOU]).status, 404);
    assert_eq!(again.ask("HEAD", "/ranged?partial", &[YOU]).status, 404);
    let rest = ["Content-Range: bytes 4-7/8", ME];
    assert_eq!(put(&again, "/ranged", &rest, b"mine").status, 201);
    assert_eq!(go_on(&again, &location, 500_000, &[ME]).status, 201);
    assert!(again.get("/file").body == pattern(TOTAL));
}

#[test]
fn an_upload_still_belongs_to_its_site_after_a_change_of_names() {
    let site = open_site();
    let (root, changes) = (site.path(""), site.settings.sites[0].changes);
    let named = |names: &[&str]| {
        let site = Site::new().with(|settings| {
            let site = &mut settings.sites[0];
            (site.root, site.changes) = (Some(root.clone()), changes);
            site.names = names.iter().map(|name| name.parse().unwrap()).collect();
        });
        site.start()
    };
    let server = named(&["c.test", "b.test"]);
    let created = server.ask("PUT", "http://c.test/file", &["Upload-Complete: ?0"]);
    let location = created.upload_of("http://c.test/file");
    let part = ["Content-Range: bytes 0-0/2"];
    assert_eq!(put(&server, "http://c.test/other", &part, b"a").status, 202);
    let kept = |server: &Running| server.ask("HEAD", "http://c.test/other?partial", &[]).status;
    for names in [&["b.test", "c.test"][..], &["a.test", "b.test", "c.test"]] {
        let again = named(names);
        assert_eq!(again.ask("HEAD", &location, &[]).field("Upload-Offset"), Some("0"));
        assert_eq!(kept(&again), 204);
    }
    let again = named(&["a.test", "c.test", "b.test"]);
    put(&again, "http://c.test/other", &[], b"new");
    assert_eq!(underpass_testkit::names(&root).len(), 2);
    // It is not that of another site.
    assert_eq!(put(&again, "http://c.test/other", &part, b"a").status, 202);
    assert_eq!(kept(&named(&["c.test", "0.test"])), 404);
}

#[test]
fn the_url_of_an_upload_is_given_to_its_owner_only() {
    let server = open_site().start();
    let (mut client, location) = begin(&server, &[], 1_000);
    let token = location.split_once("upload=").unwrap().1.to_owned();
    wait_until("it has begun", || server.metric("transfers_open") > 0.0);
    server.ask("HEAD", &location, &[]);
    server.ask("HEAD", &location, &[&format!("Referer: http://localhost{location}")]);
    // A head that cannot be parsed is identified by its first line.
    let mut bad = server.connect();
    bad.send(format!("PATCH {location} HTTP/1.1\r\nno field\r\n\r\n"));
    assert_eq!(bad.reply().status, 400);
    client.send(&pattern(TOTAL)[1_000..2_000]);
    leave(&server, client);
    let mut going_on = server.connect();
    let fields = [
        "Upload-Complete: ?1",
        "Upload-Offset: 2000",
        "Content-Type: application/partial-upload",
        "Content-Length: 2998000",
    ];
    going_on.send(request("PATCH", &location, &fields));
    going_on.send([0]);
    wait_until("it goes on", || server.metric("transfers_open") > 0.0);
    let mut shown = server.get("/.underpass/transfers?json").text();
    assert!(shown.contains("PATCH"), "{shown}");
    shown += &server.get("/.underpass/transfers").text();
    shown += &server.get("/.underpass/metrics").text();
    leave(&server, going_on);
    server.line("PATCH");
    shown += &server.lines().concat();
    shown += &server.notes().concat();
    assert!(shown.contains("/file?upload=*") && !shown.contains(&token), "{shown}");
}
