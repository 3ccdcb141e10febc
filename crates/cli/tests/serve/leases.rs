//! Files on which another program holds a write lease, as Samba does for its clients.

use std::fs;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use underpass_testkit::http::{Client, Reply};

use crate::rig::lease::hold_lease;
use crate::rig::{Running, folder, has, serve};

#[test]
fn a_file_is_sent_once_another_program_has_released_its_lease() {
    if !has("python3") {
        return;
    }
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "the text").unwrap();
    let server = serve(&folder, &[]);
    for (target, expected) in [
        ("/?archive=tar", "the text"),
        ("/?archive=zip", "the text"),
        ("/file?hash", "41a1f654dc79"),
        ("/file", "the text"),
    ] {
        let holder = hold_lease(&file);
        let mut client = Client::new(server.connect());
        client
            .send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        let reply = client.finish();
        assert_eq!(reply.status, 200, "{target}: {reply:?}");
        assert!(reply.text().contains(expected), "{target}: {reply:?}");
        holder.finish().succeeded();
    }
}

/// Sends a request for `/file` to a server that allows changes, and returns the reply.
fn ask(server: &Running, head: &str, body: &str) -> Reply {
    let mut client = Client::new(server.connect());
    let len = body.len();
    client.send(format!("{head}\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n{body}"));
    client.reply()
}

#[test]
fn an_upload_keeps_the_acl_and_the_properties_of_a_file_with_a_lease() {
    if !has("python3") {
        return;
    }
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "old").unwrap();
    let has_acl = setxattr(&file, ACL, ACL_FOR_NOBODY, XattrFlags::empty()).is_ok();
    let server = serve(&folder, &["--allow-upload"]);
    // The property is stored while there is a lease, too.
    let holder = hold_lease(&file);
    let changed = ask(&server, "PROPPATCH /file HTTP/1.1", COLOUR);
    assert!(changed.status == 207 && changed.text().contains(" 200 "), "{changed:?}");
    holder.finish().succeeded();

    let check = |expected: &str| {
        assert_eq!(fs::read_to_string(&file).unwrap(), expected);
        let mut acl = [0; 100];
        let len = getxattr(&file, ACL, &mut acl[..]);
        assert!(!has_acl || acl[..len.unwrap()] == *ACL_FOR_NOBODY, "{expected}");
        let found = ask(&server, "PROPFIND /file HTTP/1.1\r\nDepth: 0", "");
        assert!(found.text().contains("blue"), "{expected}: {found:?}");
    };
    let holder = hold_lease(&file);
    assert_eq!(ask(&server, "PUT /file HTTP/1.1", "new").status, 204);
    holder.finish().succeeded();
    check("new");

    // Another program may also take a lease while the body is sent.
    let mut client = Client::new(server.connect());
    let fields = "Host: localhost\r\nContent-Length: 5\r\nExpect: 100-continue";
    client.send(format!("PUT /file HTTP/1.1\r\n{fields}\r\n\r\n"));
    assert_eq!(client.head().unwrap().status, 100);
    let holder = hold_lease(&file);
    client.send("newer");
    assert_eq!(client.reply().status, 204);
    holder.finish().succeeded();
    check("newer");
}

#[test]
fn a_file_whose_lease_is_not_released_is_not_replaced() {
    if !has("python3") {
        return;
    }
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "old").unwrap();
    let server = serve(&folder, &["--allow-upload"]);
    let holder = hold_lease(&file);
    holder.signal("STOP");
    let refused = ask(&server, "PUT /file HTTP/1.1", "new");
    holder.signal("CONT");
    assert_eq!((refused.status, refused.field("Retry-After").is_some()), (503, true));
    holder.finish().succeeded();
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
}

#[test]
fn a_file_is_copied_once_another_program_has_released_its_lease() {
    if !has("python3") {
        return;
    }
    let folder = folder();
    fs::create_dir(folder.path().join("folder")).unwrap();
    let file = folder.path().join("folder/file");
    fs::write(&file, "the text").unwrap();
    let server = serve(&folder, &["--allow-upload"]);
    for (from, to, copy) in [("folder/file", "copy", "copy"), ("folder/", "new/", "new/file")] {
        let holder = hold_lease(&file);
        let head = format!("COPY /{from} HTTP/1.1\r\nDestination: /{to}");
        let reply = ask(&server, &head, "");
        assert_eq!(reply.status, 201, "{from}: {reply:?}");
        assert_eq!(fs::read_to_string(folder.path().join(copy)).unwrap(), "the text");
        holder.finish().succeeded();
    }
}

/// The attribute with the ACL of a file.
const ACL: &str = "system.posix_acl_access";

/// An ACL: `user::rw-`, `user:nobody:r--`, `group::---`, `mask::r--`, `other::---`.
const ACL_FOR_NOBODY: &[u8] = b"\x02\0\0\0\
    \x01\0\x06\0\xff\xff\xff\xff\
    \x02\0\x04\0\xfe\xff\0\0\
    \x04\0\0\0\xff\xff\xff\xff\
    \x10\0\x04\0\xff\xff\xff\xff\
    \x20\0\0\0\xff\xff\xff\xff";

/// The body of a request that stores a property.
const COLOUR: &str = "<propertyupdate xmlns='DAV:'><set><prop><colour xmlns='urn:x'>blue</colour>\
    </prop></set></propertyupdate>";
