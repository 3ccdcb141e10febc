//! Redirects whose target changes between two parts of a file.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest, Sha256};
use underpass_protocol::digest::hex;

use crate::rig::{Client, Server, hang_up, head, noise, say};

const LEN: usize = 24 << 20;

/// Another file of the same length.
fn other() -> Arc<Vec<u8>> {
    Arc::new(noise(LEN).iter().map(|byte| !byte).collect())
}

/// A server whose `/latest` redirects to the first of these URLs until a transfer breaks off, then
/// to the second. The last digit of a URL selects the file. All responses have these fields.
fn redirector(to: [&'static str; 2], fields: &'static str) -> Server {
    let (old, new) = (noise(LEN), other());
    let has_broken = AtomicBool::new(false);
    Server::start(move |request, stream| {
        if request.path == "/latest" {
            let to = to[usize::from(has_broken.load(Ordering::Relaxed))];
            let head = format!("302 Found\nLocation: {to}\nContent-Length: 0");
            return say(stream, &format!("HTTP/1.1 {head}\n\n"));
        }
        let bytes = if request.path.ends_with('2') { &new } else { &old };
        // It accepts any condition, and sends the given fields.
        let tag = request.field("if-range").unwrap_or("x");
        let (head, range) = head(request, bytes, tag);
        say(stream, &head.replace(&format!("ETag: {tag}\n"), fields))?;
        if has_broken.swap(true, Ordering::Relaxed) {
            return stream.write_all(&bytes[range]);
        }
        stream.write_all(&bytes[range.start..range.start + (8 << 20)])?;
        hang_up()
    })
}

/// A tag of time and size, as nginx makes it.
const TIME_AND_SIZE: &str = "ETag: \"5e0b-1800000\"\n";

const DATES: &str =
    "Date: Sun, 06 Nov 1994 08:49:37 GMT\nLast-Modified: Sun, 06 Nov 1994 08:49:30 GMT\n";

#[test]
fn parts_of_two_redirect_targets_are_not_combined() {
    for fields in [TIME_AND_SIZE, DATES] {
        for connections in [1, 4] {
            // The first one works again after its failure.
            let server = redirector(["/v1", "/v2"], fields);
            let client = Client::with(connections);
            client.gets(&server.url("/latest"), &noise(LEN));
            assert_eq!(client.events("StartingOver"), 0, "{fields}");
        }
        // A later process does not know whether it does.
        let server = redirector(["/v1", "/v2"], fields);
        let mut client = Client::with(1);
        client.options.retries = 0;
        let failed = client.get(&server.url("/latest")).unwrap_err();
        assert!(failed.kept.is_some(), "{failed:?}");
        client.gets(&server.url("/latest"), &other());
        assert_eq!(client.events("StartingOver"), 1, "{fields}");
    }
}

#[test]
fn parts_of_one_url_with_different_signatures_are_combined() {
    let digest = "ETag: \"d41d8cd98f00b204e9800998ecf8427e\"\n";
    let signed = ["/v1?signature=1", "/v1?signature=1&again=1"];
    for (to, fields) in
        [(signed, TIME_AND_SIZE), (signed, DATES), (["/once/1", "/again/1"], digest)]
    {
        let server = redirector(to, fields);
        let mut client = Client::with(1);
        client.options.retries = 0;
        client.get(&server.url("/latest")).unwrap_err();
        let done = client.gets(&server.url("/latest"), &noise(LEN));
        assert_eq!(done.resumed_at, 8 << 20, "{fields}");
    }
}

#[test]
fn a_digest_joins_parts_of_two_urls() {
    let server = redirector(["/v1", "/again1"], TIME_AND_SIZE);
    let mut client = Client::with(1);
    client.options.retries = 0;
    client.get(&server.url("/latest")).unwrap_err();
    let sum = hex(&Sha256::digest(noise(LEN).as_slice()));
    client.options.expected = vec![format!("sha-256:{sum}").parse().unwrap()];
    let done = client.gets(&server.url("/latest"), &noise(LEN));
    assert_eq!(done.resumed_at, 8 << 20);
}
