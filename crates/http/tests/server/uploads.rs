//! Files that are put: what is answered, what is there afterwards, and what is not.

use std::fs;

use super::rig::{Client, Reply, Running, Site, pattern, request};

/// A folder that may be written to.
pub(crate) fn open_site() -> Site {
    Site::new().with(|settings| settings.changes.upload = true)
}

/// The reply to a request with a body, on a connection of its own.
pub(crate) fn put(server: &Running, path: &str, fields: &[&str], body: &[u8]) -> Reply {
    let mut client = server.connect();
    send(&mut client, "PUT", path, fields, body);
    client.reply()
}

/// Sends a request with a body and its length.
pub(crate) fn send(client: &mut Client, verb: &str, path: &str, fields: &[&str], body: &[u8]) {
    let length = format!("Content-Length: {}", body.len());
    let fields: Vec<_> = fields.iter().copied().chain([length.as_str()]).collect();
    client.send(request(verb, path, &fields));
    client.send(body);
}

#[test]
fn a_file_is_put_where_there_was_none_and_replaced_where_there_was() {
    let server = open_site().start();
    let first = put(&server, "/a%20file", &[], b"first");
    assert_eq!(first.status, 201);
    assert_eq!(fs::read(server.path("a file")).unwrap(), b"first");
    let got = server.get("/a%20file");
    assert_eq!(got.field("ETag"), first.field("ETag"));
    assert_eq!(got.field("Last-Modified"), first.field("Last-Modified"));
    let second = put(&server, "/a%20file", &[], &pattern(3 << 20));
    assert_eq!(second.status, 204);
    assert_ne!(second.field("ETag"), first.field("ETag"));
    assert!(server.get("/a%20file").body == pattern(3 << 20));
    assert_eq!(fs::read_dir(server.path("")).unwrap().count(), 1);
}
