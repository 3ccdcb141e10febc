//! Folders as pages, as JSON, as plain names; and all of a large one, page by page.

use std::fs;
use std::io::Read;

use super::rig::{Reply, Running, Site, age};

fn site() -> Running {
    let files: &[(&str, &[u8])] =
        &[("b.txt", b"22"), ("a.txt", b"1"), ("c.txt", b"333"), ("zoo/x", b""), ("Zoo2/x", b"")];
    let site = Site::of(files);
    age(&site.path("a.txt"), 10);
    age(&site.path("c.txt"), 20);
    site.start()
}

fn names(site: &Running, query: &str) -> Vec<String> {
    site.get(&format!("/{query}")).text().lines().map(str::to_owned).collect()
}

#[test]
fn a_folder_is_a_page_that_loads_nothing_from_elsewhere() {
    let site = site();
    let reply = site.ask("GET", "/", &["Accept: text/html,application/xhtml+xml,*/*;q=0.8"]);
    assert_eq!(
        (reply.status, reply.field("Content-Type")),
        (200, Some("text/html; charset=utf-8"))
    );
    assert_eq!(reply.field("Transfer-Encoding"), Some("chunked"));
    assert_eq!(reply.field("Cache-Control"), Some("no-cache"));
    assert!(reply.field("Content-Security-Policy").is_some());
    assert!(reply.field("Vary").unwrap().contains("Accept"));
    let page = reply.text();
    for part in ["a.txt", "b.txt", "zoo/", "name=\"archive\" value=\"tar\""] {
        assert!(page.contains(part), "{part}");
    }
    for part in ["src=\"http", "href=\"http", "@import", "url(http"] {
        assert!(!page.contains(part), "{part}");
    }
    assert!(page.len() < 50 << 10, "{} bytes", page.len());
}

#[test]
fn folders_come_first_and_each_column_sorts_both_ways() {
    let site = site();
    assert_eq!(names(&site, "?simple"), ["zoo/", "Zoo2/", "a.txt", "b.txt", "c.txt"]);
    let files = |query: &str| {
        let all = names(&site, query);
        all.into_iter().filter(|name| !name.ends_with('/')).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(files("?simple&sort=name&order=desc"), "c.txt b.txt a.txt");
    assert_eq!(files("?simple&sort=size"), "a.txt b.txt c.txt");
    assert_eq!(files("?simple&sort=size&order=desc"), "c.txt b.txt a.txt");
    assert_eq!(files("?simple&sort=time"), "c.txt a.txt b.txt");
    assert_eq!(files("?simple&sort=time&order=desc"), "b.txt a.txt c.txt");
    for query in ["?sort=colour", "?order=up", "?limit=0", "?limit=x"] {
        assert_eq!(site.get(&format!("/{query}")).status, 400, "{query}");
    }
}

#[test]
fn programs_get_json_by_query_or_by_accept() {
    let site = site();
    let asked = site.get("/?json");
    let accepted = site.ask("GET", "/", &["Accept: application/json"]);
    assert_eq!(asked.body, accepted.body);
    assert_eq!(asked.field("Content-Type"), Some("application/json"));
    let list: serde_json::Value = serde_json::from_slice(&asked.body).unwrap();
    let entry = &list[2];
    assert_eq!((&entry["name"], &entry["size"]), (&"a.txt".into(), &1.into()));
    assert_eq!((&entry["is_dir"], &entry["is_symlink"]), (&false.into(), &false.into()));
    assert_eq!((&list[0]["is_dir"], &list[0]["url"]), (&true.into(), &"./zoo/".into()));
    assert!(entry["mtime"].as_str().unwrap().ends_with('Z'));
    let lines = site.get("/?ndjson");
    assert_eq!(lines.field("Content-Type"), Some("application/x-ndjson"));
    let first: serde_json::Value =
        serde_json::from_str(lines.text().lines().next().unwrap()).unwrap();
    assert_eq!(first, list[0]);
    let page = site.ask("GET", "/", &["Accept: text/html, application/json;q=0.5"]);
    assert_eq!(page.field("Content-Type"), Some("text/html; charset=utf-8"));
}

#[test]
fn programs_that_name_no_format_get_lines_like_those_of_nginx() {
    let site = site();
    let plain = site.get("/");
    assert_eq!(plain.field("Content-Type"), Some("text/html; charset=utf-8"));
    assert!(plain.field("Content-Security-Policy").is_some());
    for accept in ["Accept: */*", "Accept: text/plain", "Accept: text/html;q=0"] {
        assert_eq!(site.ask("GET", "/", &[accept]).body, plain.body, "{accept}");
    }
    let page = site.ask("GET", "/", &["Accept: text/html"]);
    assert_ne!(page.body, plain.body);
    for reply in [&plain, &page] {
        assert!(reply.field("Vary").unwrap().split(", ").any(|field| field == "Accept"));
    }
    let head = site.ask("HEAD", "/", &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.field("Content-Type"), plain.field("Content-Type"));
    let text = plain.text();
    assert!(text.contains("<pre><a href=\"../\">../</a>\r\n<a href=\"zoo/\">zoo/</a> "), "{text}");
    assert!(text.contains("<a href=\"c.txt\">c.txt</a> "), "{text}");
}

/// A body without its gzip.
fn unzipped(reply: &Reply) -> Vec<u8> {
    assert_eq!(reply.field("Content-Encoding"), Some("gzip"));
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(reply.body.as_slice()).read_to_end(&mut text).unwrap();
    text
}

#[test]
fn listings_are_compressed_for_clients_that_accept_it() {
    let site = Site::new();
    for at in 0..2_000 {
        fs::File::create(site.path(&format!("{at:05}"))).unwrap();
    }
    let site = site.start();
    for path in ["/", "/?json", "/?ndjson", "/?simple", "/?limit=7"] {
        let plain = site.get(path);
        assert_eq!(plain.field("Content-Encoding"), None);
        for (accepted, is_gzipped) in [
            ("gzip, deflate, br, zstd", true),
            ("gzip;q=0.5, identity;q=0.1", true),
            ("*", true),
            ("gzip;q=0", false),
            ("gzip;q=0.5, identity", false),
            ("br", false),
        ] {
            let field = format!("Accept-Encoding: {accepted}");
            let reply = site.ask("GET", path, &[&field]);
            let vary = reply.field("Vary").unwrap();
            assert!(vary.split(", ").any(|name| name == "Accept-Encoding"), "{vary}");
            let head = site.ask("HEAD", path, &[&field]);
            assert_eq!(head.field("Content-Encoding"), reply.field("Content-Encoding"));
            assert!(head.body.is_empty());
            let is_whole =
                if is_gzipped { unzipped(&reply) == plain.body } else { reply.body == plain.body };
            assert!(is_whole, "{path} {accepted}");
            if is_gzipped && plain.body.len() > 10_000 {
                assert!(reply.body.len() < plain.body.len() / 2, "{path} {}", reply.body.len());
            }
        }
    }
    // An HTTP/1.0 client knows no chunks.
    let mut old = site.connect();
    old.send("GET /?simple HTTP/1.0\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n");
    let mut bytes = Vec::new();
    old.stream.read_to_end(&mut bytes).unwrap();
    let start = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[start..]).read_to_string(&mut text).unwrap();
    assert_eq!(text.lines().count(), 2_000);
}

#[test]
fn an_unsorted_listing_is_marked() {
    let site = Site::new();
    fs::create_dir(site.path("many")).unwrap();
    for number in 0..=underpass_listing::MAX_ENTRIES {
        fs::File::create(site.path(&format!("many/{number}"))).unwrap();
    }
    site.write("few/a", b"");
    let site = site.start();
    for (path, expected) in
        [("/many/?simple&sort=size", Some("?1")), ("/many/?simple&limit=9", None), ("/few/", None)]
    {
        assert_eq!(site.get(path).field("Underpass-Unsorted"), expected, "{path}");
    }
}

#[test]
fn a_listing_can_be_refused() {
    let site = Site::of(&[("a", b"first"), ("folder/b", b"second")]);
    let site = site.with_site(|site| site.listing = false).start();
    for path in ["/", "/folder/", "/?json", "/folder/?simple"] {
        assert_eq!(site.get(path).status, 403, "{path}");
    }
    assert_eq!(site.get("/a").text(), "first");
    assert_eq!(site.get("/folder/b").text(), "second");
}

#[test]
fn a_changed_folder_is_listed_as_it_is_now() {
    let site = site();
    let mut client = site.connect();
    for at in 0..10 {
        let name = format!("new{at}");
        fs::write(site.path(&name), b"x").unwrap();
        assert!(client.get("/?simple").text().contains(&name));
        fs::remove_file(site.path(&name)).unwrap();
        assert!(!client.get("/?simple").text().contains(&name));
    }
}

/// More entries than a server holds at once.
const MANY: usize = 10_050;

#[test]
fn all_of_ten_thousand_entries_are_listed_with_every_option() {
    let site = Site::new();
    for at in 0..MANY {
        fs::File::create(site.path(&format!("{at:05}"))).unwrap();
    }
    let site = site.start();
    let all: Vec<_> = (0..MANY).map(|at| format!("{at:05}")).collect();
    let mut whole = names(&site, "?simple");
    whole.sort();
    assert!(whole == all);
    let list: Vec<serde_json::Value> = serde_json::from_slice(&site.get("/?json").body).unwrap();
    assert_eq!(list.len(), MANY);
    let packed = unzipped(&site.ask("GET", "/?json", &["Accept-Encoding: gzip"]));
    let packed: Vec<serde_json::Value> = serde_json::from_slice(&packed).unwrap();
    assert_eq!(packed.len(), MANY);

    let mut client = site.connect();
    for start in ["/?simple&limit=3000", "/?ndjson&limit=4000&order=desc"] {
        let (mut path, mut found) = (start.to_owned(), Vec::new());
        loop {
            let reply = client.get(&path);
            let name = |line: &str| match serde_json::from_str::<serde_json::Value>(line) {
                Ok(serde_json::Value::Object(entry)) => entry["name"].as_str().unwrap().to_owned(),
                _ => line.to_owned(),
            };
            found.extend(reply.text().lines().map(name));
            let Some(link) = reply.field("Link") else { break };
            let next = link.strip_prefix('<').unwrap().strip_suffix(">; rel=\"next\"").unwrap();
            path = format!("/{next}");
        }
        if start.contains("desc") {
            found.reverse();
        }
        assert!(found == all, "{start}");
    }
}

#[test]
fn clients_that_read_no_listing_delay_no_other() {
    let site = Site::new();
    for at in 0..700 {
        fs::File::create(site.path(&format!("{at:05}-{}", "x".repeat(240)))).unwrap();
    }
    let site = site.start();
    // More than there are helpers, and each with more to read than it has room for.
    let waiting: Vec<_> = (0..68)
        .map(|_| {
            let mut client = site.connect_narrow();
            client.send(super::rig::request("GET", "/?ndjson", &[]).repeat(16));
            client
        })
        .collect();
    let transfers = "\"target\":\"/?ndjson\"";
    super::rig::wait_until("all of them wait", || {
        site.get("/.underpass/transfers?json").text().matches(transfers).count() == 68
    });
    for _ in 0..10 {
        let mut client = site.connect();
        let reply = client.get("/?simple&limit=3");
        assert_eq!(reply.text().lines().count(), 3);
    }
    drop(waiting);
}

#[test]
fn an_error_page_leads_back_to_the_listing() {
    let site = Site::of(&[("folder/a", b"x")]).start();
    let html = "Accept: text/html";
    let page = site.ask("GET", "/folder/missing", &[html]);
    assert_eq!(page.status, 404);
    let text = page.text();
    assert!(text.contains("<a href=\"./\">Folder above</a>"), "{text}");
    assert!(text.contains("<a href=\"../\">All files</a>"), "{text}");
    assert!(!site.get("/folder/missing").text().contains("href"));
    let site = Site::of(&[]).with_site(|site| site.listing = false).start();
    assert!(!site.ask("GET", "/missing", &[html]).text().contains("href"));
}
