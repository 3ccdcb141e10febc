//! Representations of a file: compressed forms, media types, names, fields of the operator.

use std::fs;

use super::rig::{Running, Site, age, request, text};
use underpass_engine::{Mechanism, Policy};

/// The contents of a neighbour, which ends in the length of its file as gzip does.
const GZIPPED: &str = "gzipped\x0e\0\0\0";

/// A page with a neighbour for each coding.
fn packed() -> Running {
    let site = Site::of(&[("page.html", b"the plain page"), ("other.txt", b"other")]);
    age(&site.path("page.html"), 60);
    site.write("page.html.br", b"brotli");
    site.write("page.html.zst", &zstandard(14));
    site.write("page.html.gz", GZIPPED.as_bytes());
    site.start()
}

/// The head of a frame of Zstandard for contents of this length, and something behind it.
fn zstandard(len: u8) -> Vec<u8> {
    [&[0x28, 0xb5, 0x2f, 0xfd, 0x20, len], b"zstandard".as_slice()].concat()
}

#[test]
fn a_compressed_file_is_sent_to_clients_that_accept_it() {
    let site = packed();
    for (accept, coding, text) in [
        ("gzip", Some("gzip"), GZIPPED),
        ("GZIP, deflate", Some("gzip"), GZIPPED),
        ("x-gzip", Some("gzip"), GZIPPED),
        ("br;q=0.5, gzip", Some("gzip"), GZIPPED),
        ("gzip, deflate, br, zstd", Some("br"), "brotli"),
        ("zstd", Some("zstd"), &text(&zstandard(14))),
        ("gzip;q=0", None, "the plain page"),
        ("identity", None, "the plain page"),
        ("deflate", None, "the plain page"),
        ("gzip;q=0.1, identity", None, "the plain page"),
    ] {
        let reply = site.ask("GET", "/page.html", &[&format!("Accept-Encoding: {accept}")]);
        assert_eq!((reply.status, reply.text().as_str()), (200, text), "{accept}");
        assert_eq!(reply.field("Content-Encoding"), coding, "{accept}");
        assert_eq!(reply.field("Vary"), Some("Accept-Encoding"), "{accept}");
        assert_eq!(reply.field("Content-Type"), Some("text/html; charset=utf-8"), "{accept}");
    }
    let plain = site.get("/page.html");
    assert_eq!((plain.text().as_str(), plain.field("Content-Encoding")), ("the plain page", None));
    assert_eq!(plain.field("Vary"), Some("Accept-Encoding"), "also without Accept-Encoding");
    assert_eq!(site.get("/other.txt").field("Vary"), None, "there is only one of it");
}

#[test]
fn each_coding_has_its_own_file() {
    let site = packed();
    let accept = "Accept-Encoding: gzip";
    let (plain, gzip) = (site.get("/page.html"), site.ask("GET", "/page.html", &[accept]));
    assert_eq!(gzip.field("Content-Length"), Some("11"));
    assert_ne!(gzip.field("ETag"), plain.field("ETag"));
    assert_ne!(gzip.field("Last-Modified"), plain.field("Last-Modified"));
    let tag = |reply: &super::rig::Reply| reply.field("ETag").unwrap().to_owned();
    let ask = |tag: &str| {
        site.ask("GET", "/page.html", &[accept, &format!("If-None-Match: {tag}")]).status
    };
    assert_eq!((ask(&tag(&gzip)), ask(&tag(&plain))), (304, 200));
    let head = site.ask("HEAD", "/page.html", &[accept]);
    assert_eq!(
        (head.field("Content-Length"), head.field("Content-Encoding")),
        (Some("11"), Some("gzip"))
    );
}

#[test]
fn a_range_is_one_of_the_file_unless_it_continues_a_packed_one() {
    let site = packed();
    let accept = "Accept-Encoding: gzip, br";
    let ask = |fields: &[&str]| {
        let fields = [&[accept, "Range: bytes=2-4"], fields].concat();
        site.ask("GET", "/page.html", &fields)
    };
    let tag =
        |fields: &[&str]| site.ask("GET", "/page.html", fields).field("ETag").unwrap().to_owned();
    // Clients that unpack what they get unpack a part as well, or fail.
    let part = ask(&[]);
    assert_eq!(part.part(), (206, Some("bytes 2-4/14"), "e p".to_owned()));
    assert_eq!(
        (part.field("Content-Encoding"), part.field("Vary")),
        (None, Some("Accept-Encoding"))
    );
    assert_eq!(part.field("ETag").unwrap(), tag(&[]));
    let head = site.ask("HEAD", "/page.html", &[accept, "Range: bytes=2-4"]);
    assert_eq!((head.status, head.field("Content-Length")), (200, Some("14")));
    // Browsers have the beginning of the packed file, and say so.
    for (coding, place, text) in [("gzip", "bytes 2-4/11", "ipp"), ("br", "bytes 2-4/6", "otl")] {
        let tag = tag(&[&format!("Accept-Encoding: {coding}")]);
        for field in ["If-Range", "If-Match"] {
            let part = ask(&[&format!("{field}: {tag}")]);
            assert_eq!(part.part(), (206, Some(place), text.to_owned()), "{field} {coding}");
            assert_eq!(part.field("Content-Encoding"), Some(coding), "{field}");
        }
    }
    let part = ask(&[&format!("If-Range: {}", tag(&[]))]);
    assert_eq!(part.part(), (206, Some("bytes 2-4/14"), "e p".to_owned()));
    let other = ask(&["If-Range: \"other\""]);
    assert_eq!((other.status, other.text().as_str()), (200, "the plain page"));
    // gzip gives both the same date.
    let date = site.get("/page.html").field("Last-Modified").unwrap().to_owned();
    let dated = ask(&[&format!("If-Range: {date}")]);
    assert_eq!((dated.status, dated.text().as_str()), (200, "the plain page"));
}

#[test]
fn a_compressed_file_older_than_its_original_is_not_used() {
    let site = packed();
    let mut client = site.connect();
    let mut ask = || client.ask("GET", "/page.html", &["Accept-Encoding: gzip"]);
    assert_eq!(ask().text(), GZIPPED);
    fs::write(site.path("page.html"), b"a newer page").unwrap();
    for name in ["br", "zst", "gz"] {
        age(&site.path(&format!("page.html.{name}")), 3600);
    }
    let reply = ask();
    assert_eq!((reply.text().as_str(), reply.field("Vary")), ("a newer page", None));
    // Once recreated, it is used again, from the next lookup of the file on.
    let again = "gzipped again\x0c\0\0\0";
    fs::write(site.path("page.html.gz"), again).unwrap();
    super::rig::wait_until("the new one is used", || ask().text() == again);
}

#[test]
fn compressed_files_of_the_same_second_are_compared_by_finer_times() {
    let site = packed();
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_000_000_000_500);
    let set = |name: &str, time| {
        fs::File::open(site.path(name)).unwrap().set_modified(time).unwrap();
    };
    let ask = || site.ask("GET", "/page.html", &["Accept-Encoding: gzip"]).text();
    let millisecond = std::time::Duration::from_millis(1);
    set("page.html", at);
    for (time, expected) in
        [(at, GZIPPED), (at - millisecond, "the plain page"), (at - 500 * millisecond, GZIPPED)]
    {
        set("page.html.gz", time);
        super::rig::wait_until("it is looked at again", || ask() == expected);
    }
}

#[test]
fn incomplete_or_unusual_compressed_files_are_not_used() {
    let site = packed();
    let mut open = fs::File::options().append(true).open(site.path("page.html.br")).unwrap();
    std::io::Write::write_all(&mut open, b"half").unwrap();
    // Half of it, two members, the frame of another file, and too large a window.
    let window = [0x28, 0xb5, 0x2f, 0xfd, 0, 14 << 3];
    for (coding, name, contents) in [
        ("br", "br", None),
        ("gzip", "gz", Some(b"gzip".to_vec())),
        ("gzip", "gz", Some(b"first\x07\0\0\0last\x07\0\0\0".to_vec())),
        ("zstd", "zst", Some(zstandard(15))),
        ("zstd", "zst", Some([&window, [0; 20].as_slice()].concat())),
        ("zstd", "zst", Some(b"other".to_vec())),
    ] {
        if let Some(contents) = &contents {
            fs::write(site.path(&format!("page.html.{name}")), contents).unwrap();
        }
        let reply = site.ask("GET", "/page.html", &[&format!("Accept-Encoding: {coding}")]);
        assert_eq!(
            (reply.text().as_str(), reply.field("Content-Encoding")),
            ("the plain page", None),
            "{coding}: {contents:?}"
        );
    }
}

#[test]
fn a_changed_compressed_file_is_seen_by_the_next_request() {
    let site = packed();
    let mut client = site.connect();
    let mut ask = || client.ask("GET", "/page.html", &["Accept-Encoding: gzip"]).text();
    assert_eq!(ask(), GZIPPED);
    fs::write(site.path("page.html.gz"), "changed\x0e\0\0\0").unwrap();
    assert_eq!(ask(), "changed\x0e\0\0\0");
    fs::remove_file(site.path("page.html.gz")).unwrap();
    assert_eq!(ask(), "the plain page");
}

#[test]
fn a_compressed_file_requested_by_its_own_name_is_a_plain_file() {
    let site = packed();
    let reply = site.ask("GET", "/page.html.gz", &["Accept-Encoding: gzip"]);
    assert_eq!((reply.text().as_str(), reply.field("Content-Encoding")), (GZIPPED, None));
}

#[test]
fn a_compressed_file_with_other_rights_is_not_used() {
    let files = [("dl/app", b"good".as_slice()), ("dl/other", b"other"), ("pub/a", b"plain")];
    let site = Site::of(&files).with_site(|site| site.changes.upload = true);
    age(&site.path("dl/app"), 60);
    age(&site.path("pub/a"), 60);
    site.write("pub/a.gz", b"packed\x05\0\0\0");
    let site = site.auth(&["bob:pw@/dl:rw,/dl/app", "u:p@/", "@/pub/a,/dl"]).start();
    let gzip = ["Accept-Encoding: gzip"];
    let bob = ["Authorization: Basic Ym9iOnB3"];
    for name in ["app", "other"] {
        let mut client = site.connect();
        let fields = [bob[0], "Content-Length: 8"];
        client.send(request("PUT", &format!("/dl/{name}.gz"), &fields));
        client.send("evil\x05\0\0\0");
        assert_eq!(client.reply().status, 201);
    }
    assert_eq!(site.ask("PUT", "/dl/app", &[bob[0], "Content-Length: 0"]).status, 403);
    assert_eq!(site.ask("GET", "/dl/app", &gzip).text(), "good", "bob may not write to it");
    assert_eq!(site.ask("GET", "/dl/other", &gzip).text(), "evil\x05\0\0\0", "bob may write to it");
    assert_eq!(site.get("/pub/a.gz").status, 401);
    assert_eq!(site.ask("GET", "/pub/a", &gzip).text(), "plain");
}

#[test]
fn media_types_follow_from_names() {
    let names = [
        ("a.html", "text/html; charset=utf-8"),
        ("a.HTML", "text/html; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.png", "image/png"),
        ("a.mp4", "video/mp4"),
        ("a.wasm", "application/wasm"),
        ("a.pdf", "application/pdf"),
        ("a.unheard-of", "application/octet-stream"),
        ("plain", "application/octet-stream"),
    ];
    let site = Site::new();
    names.iter().for_each(|(name, _)| site.write(name, b"x"));
    let site = site.start();
    for (name, media_type) in names {
        assert_eq!(site.get(&format!("/{name}")).field("Content-Type"), Some(media_type), "{name}");
    }
}

#[test]
fn a_download_has_its_name_whatever_is_in_it() {
    let site = Site::of(&[("plain name.txt", b"x"), ("f\u{fc}r \"dich\".txt", b"y")]).start();
    let ask = |path: &str| {
        let reply = site.get(path);
        assert_eq!(reply.status, 200, "{path}");
        reply.field("Content-Disposition").map(str::to_owned)
    };
    assert_eq!(ask("/plain%20name.txt"), None, "it is shown");
    let plain = ask("/plain%20name.txt?download");
    assert_eq!(plain.as_deref(), Some("attachment; filename=\"plain name.txt\""));
    let other = ask("/f%C3%BCr%20%22dich%22.txt?download=1");
    assert_eq!(
        other.as_deref(),
        Some("attachment; filename=\"f_r _dich_.txt\"; filename*=UTF-8''f%C3%BCr%20%22dich%22.txt")
    );
}

#[test]
fn fields_of_the_operator_are_on_every_response() {
    let fields = [("X-Frame-Options", "DENY"), ("server", "mine")];
    let site = Site::of(&[("a", b"first")]).with_site(|site| {
        site.headers = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        site.cache_control = Some("max-age=60".to_owned());
    });
    let site = site.start();
    for path in ["/a", "/nothing", "/", "/%00", "/.underpass/health"] {
        let reply = site.get(path);
        for (name, value) in fields {
            assert_eq!(reply.field(name), Some(value), "{path}");
        }
    }
    let mut client = site.connect();
    client.send("nonsense\r\n\r\n");
    assert_eq!(client.reply().field("X-Frame-Options"), Some("DENY"));
    // Only files are to be cached.
    assert_eq!(site.get("/a").field("Cache-Control"), Some("max-age=60"));
    let part = site.ask("GET", "/a", &["Range: bytes=0-1"]);
    assert_eq!(part.field("Cache-Control"), Some("max-age=60"));
    assert_eq!(site.get("/nothing").field("Cache-Control"), None);
    assert_ne!(site.get("/").field("Cache-Control"), Some("max-age=60"));
}

#[test]
fn scripts_of_other_sites_may_read_if_enabled() {
    let site = Site::of(&[("a", b"first")]);
    assert_eq!(site.start().get("/a").field("Access-Control-Allow-Origin"), None);
    let site = Site::of(&[("a", b"first")]).with_site(|site| site.cors = true);
    let site = site.auth(&["user:word@/"]).start();
    for path in ["/a", "/nothing", "/"] {
        let reply = site.get(path);
        assert_eq!(reply.field("Access-Control-Allow-Origin"), Some("*"), "{path}");
        let exposed = reply.field("Access-Control-Expose-Headers").unwrap();
        for field in ["Content-Range", "ETag", "Content-Disposition", "Underpass-Incomplete"] {
            assert!(exposed.contains(field), "{exposed}");
        }
    }
    let own = Site::of(&[("a", b"first")]).with_site(|site| {
        site.cors = true;
        site.headers =
            vec![("access-control-allow-origin".to_owned(), "https://a.test".to_owned())];
    });
    let reply = own.start().get("/a");
    assert_eq!(reply.field("Access-Control-Allow-Origin"), Some("https://a.test"));
    assert_eq!(reply.head.to_ascii_lowercase().matches("access-control-allow-origin").count(), 1);
    // A browser's preflight request has no credentials, whatever will follow.
    let fields = ["Origin: http://other", "Access-Control-Request-Headers: authorization, range"];
    let reply = site.ask("OPTIONS", "/a", &fields);
    assert_eq!(reply.status, 204);
    assert_eq!(reply.field("Access-Control-Allow-Methods"), Some("GET, HEAD, OPTIONS"));
    let allowed = reply.field("Access-Control-Allow-Headers").unwrap().to_ascii_lowercase();
    assert!(allowed.contains("authorization"), "{allowed}");
}

#[test]
fn server_timing_names_the_mechanism() {
    let site = Site::of(&[("small", b"x")]);
    site.write("large", &super::rig::pattern(100_000));
    let site = site.start();
    for (path, way) in [("/small", "read_write"), ("/large", "sendfile")] {
        let timing = format!("path;desc=\"{way}\", integrity;desc=\"detect\"");
        let asked = site.get(&format!("{path}?explain"));
        assert_eq!(asked.field("Server-Timing"), Some(timing.as_str()), "{path}");
        let asked = site.ask("GET", path, &["Underpass-Explain: 1"]);
        assert_eq!(asked.field("Server-Timing"), Some(timing.as_str()), "{path}");
        assert_eq!(site.get(path).field("Server-Timing"), None, "{path}");
        let bytes = site.get("/.underpass/metrics").text();
        let line = format!("underpass_sent_bytes_total{{mechanism=\"{way}\"}} 0\n");
        assert!(!bytes.contains(&line), "it did go that way");
    }
    let timing = |site: &Running, path: &str, fields: &[&str]| {
        let reply = site.ask("GET", path, &[&["Underpass-Explain: 1"], fields].concat());
        reply.field("Server-Timing").unwrap().to_owned()
    };
    for path in ["/?archive=tar", "/large"] {
        let refused = timing(&site, path, &["If-Match: \"other\""]);
        assert!(refused.starts_with("path;desc=\"none\""), "{path} {refused}");
    }
    let none = site.ask("HEAD", "/large?explain", &[]);
    assert!(none.field("Server-Timing").unwrap().starts_with("path;desc=\"none\""));
    let copying = Site::of(&[("small", b"x")])
        .with(|settings| settings.policy = Policy::Require(Mechanism::ReadWrite))
        .start();
    let archive = timing(&copying, "/?archive=tar", &[]);
    assert!(archive.starts_with("path;desc=\"read_write\""), "{archive}");
}
