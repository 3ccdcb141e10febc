//! The README on the page of a folder of a bucket.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::node::Node;
use crate::s3::serve::before;
use crate::scripted_origin::{Gate, Object, Origin, Request, Sending};

/// Sends the listing of these files, with their lengths.
fn list(files: &[(&str, u64)], sending: &mut Sending) {
    let entries: String = files
        .iter()
        .map(|(key, len)| format!("<Contents><Key>sub/{key}</Key><Size>{len}</Size></Contents>"))
        .collect();
    let page = format!("<ListBucketResult>{entries}</ListBucketResult>");
    sending.answer("HTTP/1.1 200 OK\nContent-Type: application/xml", page.as_bytes());
}

/// A store whose folder has these files, all with the same text.
fn store(files: &'static [(&'static str, u64)], text: &str) -> Origin {
    let object = Object::new(text.as_bytes().to_vec(), "a");
    Origin::new(move |request: &Request, sending: &mut Sending| {
        if request.path.contains("list-type=2") {
            list(files, sending)
        } else {
            object.send(request, sending)
        }
    })
}

fn page(node: &Node, path: &str, lines: &[&str]) -> String {
    let reply = node.ask("GET", path, &[&["Accept: text/html"], lines].concat());
    assert_eq!(reply.status, 200, "{path}: {}", reply.head);
    String::from_utf8(reply.body).unwrap()
}

/// The objects that were requested from the store.
fn requests(store: &Origin) -> Vec<String> {
    let requests =
        store.requests().into_iter().filter(|request| !request.path.contains("list-type=2"));
    requests.map(|request| request.path).collect()
}

#[test]
fn the_page_of_a_folder_has_its_readme() {
    let store = store(&[("a", 1), ("readme.txt", 9), ("README.md", 9)], "# A *title*");
    let node = before(&store, &[]);
    for _ in 0..3 {
        let text = page(&node, "/", &[]);
        assert!(text.contains("A <em>title</em></h1>"), "{text}");
    }
    assert_eq!(requests(&store), ["/bucket/sub/README.md"]);
    node.get("/README.md").assert_is(200, b"# A *title*");
    assert_eq!(requests(&store).len(), 1, "it is in the cache");
}

#[test]
fn no_readme_is_requested_where_none_is_shown() {
    let store = store(&[("a", 1), ("README.md", 9), ("README.d", 1)], "# A *title*");
    let node = before(&store, &[]);
    node.ask("HEAD", "/", &["Accept: text/html"]);
    node.get("/?json");
    node.get("/?simple");
    node.get("/");
    page(&node, "/?q=a", &[]);
    page(&node, "/?after=README.d", &[]);
    for args in [&["--hide", "README.md"][..], &["--auth", "a:b@/", "--auth", "@/a"]] {
        let node = before(&store, args);
        assert!(!page(&node, "/", &[]).contains("<em>title"), "{args:?}");
    }
    assert_eq!(requests(&store), [""; 0]);
    for files in [&[("README.md", (128 << 10) + 1)][..], &[("README.rst", 9)]] {
        let store = self::store(files, "# A *title*");
        let node = before(&store, &[]);
        assert_eq!(node.ask("GET", "/", &["Accept: text/html"]).status, 200);
        assert_eq!(requests(&store), [""; 0], "{files:?}");
    }
}

#[test]
fn a_readme_that_cannot_be_fetched_is_left_out() {
    // The README is longer by now, gone, without an end, or late.
    let gate = Gate::default();
    let held = gate.clone();
    let is_short = Arc::new(AtomicBool::new(false));
    let becomes_short = Arc::clone(&is_short);
    let long = Object::new(vec![b'x'; 5 << 20], "a").with("Cache-Control: max-age=0");
    let store = Origin::new(move |request: &Request, sending: &mut Sending| match () {
        () if request.path.contains("list-type=2") => {
            let folder = ["long", "gone", "cut", "late"].into_iter();
            let mut folder = folder.filter(|name| request.path.contains(&format!("sub%2F{name}")));
            let key = folder.next().map_or("README".to_owned(), |name| format!("{name}/README"));
            list(&[(&key, 9)], sending);
        }
        () if request.path.contains("/long/") && is_short.load(Ordering::Relaxed) => {
            Object::new(b"short words".to_vec(), "b").send(request, sending);
        }
        () if request.path.contains("/long/") => long.send(request, sending),
        () if request.path.contains("/cut/") => {
            sending.closes = true;
            sending.head("HTTP/1.1 200 OK\nTransfer-Encoding: chunked");
            sending.body(b"5\r\nhello\r\n");
        }
        () if request.path.contains("/late/") => {
            held.wait();
            sending.answer("HTTP/1.1 200 OK\nETag: \"a\"", b"late words");
        }
        () => sending.answer("HTTP/1.1 404 No", b"gone"),
    });
    let node = before(&store, &["--fresh", "0"]);
    for path in ["/long/", "/gone/", "/cut/", "/late/"] {
        let text = page(&node, path, &[]);
        assert!(!text.contains("<article"), "{path}: {text}");
    }
    assert!(node.metric("origin_bytes_total") < 2 << 20, "all of a long file was fetched");
    gate.open();
    becomes_short.store(true, Ordering::Relaxed);
    for (path, words) in [("/late/", "late words"), ("/long/", "short words")] {
        crate::rig::until("the words", || page(&node, path, &[]).contains(words));
    }
}

#[test]
fn a_readme_that_has_changed_is_on_the_next_page() {
    let is_new = Arc::new(AtomicBool::new(false));
    let becomes_new = Arc::clone(&is_new);
    let store = Origin::new(move |request: &Request, sending: &mut Sending| {
        let (text, tag) = if is_new.load(Ordering::Relaxed) {
            (&b"new words"[..], "b")
        } else {
            (&b"old words"[..], "a")
        };
        if request.path.contains("list-type=2") {
            list(&[("README.txt", 9)], sending)
        } else {
            Object::new(text.to_vec(), tag).with("Cache-Control: no-cache").send(request, sending);
        }
    });
    let node = before(&store, &[]);
    assert!(page(&node, "/", &[]).contains("old words"));
    becomes_new.store(true, Ordering::Relaxed);
    // The listing is the same one.
    assert!(page(&node, "/", &[]).contains("new words"));
}
