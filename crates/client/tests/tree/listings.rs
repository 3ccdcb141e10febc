//! Listings in the style of each server, and pages that are not listings.

use rustix::fs::Timespec;
use underpass_client::Url;
use underpass_client::tree::EntryRefusal;
use underpass_client::tree::listing::{EntryFacts, Listing, ListingEntry, read};

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

fn base() -> Url {
    Url::parse("http://h:8080/a%20b/").unwrap()
}

#[track_caller]
fn listing(media_type: &str, body: impl AsRef<[u8]>) -> Listing {
    read(&base(), media_type, body.as_ref()).unwrap()
}

/// Returns the paths in a listing; those of folders end in a slash.
#[track_caller]
fn paths(media_type: &str, body: impl AsRef<[u8]>) -> Vec<String> {
    let entries = listing(media_type, body).entries.into_iter();
    let path = |entry: ListingEntry| {
        let slash = if entry.is_folder { "/" } else { "" };
        format!("{}{slash}", entry.path.escape_ascii())
    };
    entries.map(path).collect()
}

#[test]
fn pages_of_each_server_are_understood() {
    let nginx = "<html>\r\n<head><title>Index of /a b/</title></head>\r\n<body>\r\n\
        <h1>Index of /a b/</h1><hr><pre><a href=\"../\">../</a>\r\n\
        <a href=\"sub/\">sub/</a>      21-Nov-2026 10:15      -\r\n\
        <a href=\"100%25.txt\">100%.txt</a>  21-Nov-2026 10:15   1\r\n\
        <a href=\"a%3Ab\">a:b</a>  21-Nov-2026 10:15   1\r\n</pre><hr></body>\r\n</html>\r\n";
    assert_eq!(paths(HTML, nginx), ["sub/", "100%.txt", "a:b"]);
    let apache = "<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 3.2 Final//EN\">\n<html>\n\
        <table><tr><th><a href=\"?C=N;O=D\">Name</a></th><th><a href=\"?C=M;O=A\">Last modified\
        </a></th></tr>\n<tr><td><a href=\"/\">Parent Directory</a></td></tr>\n\
        <tr><td><a href=\"./a:b\">a:b</a></td></tr>\n\
        <tr><td><a href=\"a&amp;b%3cc%3e.txt\">a&amp;b&lt;c&gt;..&gt;</a></td></tr>\n\
        <tr><td><a href=\"x%0ay\">x\ny</a></td></tr></table></html>\n";
    assert_eq!(paths(HTML, apache), ["a:b", "a&b<c>.txt", "x\\ny"]);
    let aiohttp = "<html>\n<head>\n<title>Index of /a b</title>\n</head>\n<body>\n<ul>\n\
        <li><a href=\"/a%20b/s%26%20b\">s&amp; b/</a></li>\n<li><a href=\"/a%20b/f\">f</a></li>\n\
        <li><a href=\"/a%20b/g\">other/</a></li>\n</ul>\n</body>\n</html>";
    assert_eq!(paths(HTML, aiohttp), ["s& b/", "f", "g"]);
    let caddy = "<!DOCTYPE html><html><head><style>a { color: #006ed3; }</style></head><body>\
        <a href=\"../../\">h</a><a href=\"../\">a b</a> <a href=\"./?layout=grid\">Grid</a>\
        <a href=\"./?sort=name&amp;order=desc\"><svg></svg></a>\
        <a class=\"goup\" href=\"..\">Up</a><a href=\"./sub/\"><span>sub/</span></a>\
        <a href=\"./%E4%FF\">\u{fffd}</a><script>var x = '<a href=\"no\">'</script></body></html>";
    assert_eq!(paths(HTML, caddy), ["sub/", "\\xe4\\xff"]);
    let python = "<!DOCTYPE HTML>\n<html lang=\"en\">\n<body>\n<h1>Directory listing for /a b/</h1>\n\
        <hr>\n<ul>\n<li><a href=\"-lead\">-lead</a></li>\n<li><a href=\"%23hash%3Fq\">#hash?q</a></li>\
        \n<li><a href=\"link\">link@</a></li>\n<li><a href=\"q%22t/\">q\"t/</a></li>\n</ul></body></html>";
    assert_eq!(paths(HTML, python), ["-lead", "#hash?q", "link", "q\\\"t/"]);
    let miniserve = "<!DOCTYPE html><html><body><nav><a href=\"javascript:update(&quot;x&quot;)\">\
        Theme</a></nav><a href=\"/a%20b/?download=tar_gz\">Download</a><a href=\"#bottom\">down</a>\
        <table><tr><td><a class=\"root\" href=\"..\">Parent</a><a href=\"/a%20b/sub/\">sub/</a>\
        <a href=\"/a%20b/file?sort=size&amp;order=asc\">1 B</a><a href=\"/a%20b/file\">file</a>\
        </td></tr></table><a href=\"https://github.com/\">server</a></body></html>";
    assert_eq!(paths(HTML, miniserve), ["sub/", "file"]);
    let dufs = "<html><body><table><tr><td><a href=\"../?noscript\">../</a></td></tr>\
        <tr><td><a href=\"sub/?noscript\">sub/</a></td></tr>\
        <tr><td><a href=\"\"></a></td></tr><tr><td><a href=\"n%0Al\">n\nl</a></td></tr></table></body>";
    let listing = listing(HTML, dufs);
    assert_eq!(listing.entries[0].url.as_str(), "http://h:8080/a%20b/sub/");
    assert_eq!(paths(HTML, dufs), ["sub/", "n\\nl"]);
}

#[test]
fn a_page_that_a_script_fills_is_reported() {
    let page = "<head><link rel=\"icon\" href=\"/__dufs_v0.47.0__/favicon.ico\"></head>\
        <template id=\"index-data\">eyJ9</template>";
    assert!(listing(HTML, page).is_scripted);
    assert!(!listing(HTML, "<link rel=\"icon\" href=\"/favicon.ico\">").is_scripted);
}

#[test]
fn machine_readable_listings_have_sizes_and_times() {
    let fact = |size, modified: Option<(i64, i64)>, mode| {
        let modified = modified.map(|(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec });
        EntryFacts { size, modified, mode, tag: None }
    };
    let facts = |media_type, body: &[u8]| {
        let entries = listing(media_type, body).entries.into_iter();
        entries.map(|entry| (entry.path, entry.is_folder, entry.facts)).collect::<Vec<_>>()
    };
    let ours = br#"[{"name":"d","size":null,"mtime":"2001-09-09T01:46:40.5Z","mode":"0750",
        "is_dir":true,"is_symlink":false,"url":"./d/"},
        {"name":"\ufffd","name_bytes":"%FF","size":3,"mtime":null,"mode":"0644","is_dir":false,
        "is_symlink":false,"url":"./%FF"}]"#;
    let time = Some((1_000_000_000, 500_000_000));
    let expected = [
        (b"d".to_vec(), true, fact(None, time, Some(0o750))),
        (b"\xff".to_vec(), false, fact(Some(3), None, Some(0o644))),
    ];
    assert_eq!(facts(JSON, ours), expected);
    let caddy = br#"[{"name":"d/","size":4096,"url":"./d/","mod_time":"2001-09-09T01:46:40.5Z",
        "mode":2147484141,"is_dir":true,"is_symlink":false},
        {"name":"l","size":3,"url":"./l","mod_time":"2026-11-21T10:15:57Z","mode":134218239,
        "is_dir":false,"is_symlink":true}]"#;
    let expected = [
        (b"d".to_vec(), true, fact(None, time, Some(0o755))),
        (b"l".to_vec(), false, EntryFacts::default()),
    ];
    assert_eq!(facts(JSON, caddy), expected);
    let nginx = b"[\r\n{ \"name\":\"d\", \"type\":\"directory\", \
        \"mtime\":\"Sun, 09 Sep 2001 01:46:40 GMT\" },\r\n{ \"name\":\"a:\xff%2F\", \
        \"type\":\"file\", \"mtime\":\"Sun, 09 Sep 2001 01:46:40 GMT\", \"size\":1 }\r\n]";
    let whole = Some((1_000_000_000, 0));
    let expected = [
        (b"d".to_vec(), true, fact(None, whole, None)),
        (b"a:\xff%2F".to_vec(), false, fact(Some(1), whole, None)),
    ];
    assert_eq!(facts(JSON, nginx), expected);
    let dufs = br#"{"href":"/","kind":"Index","paths":[
        {"path_type":"Dir","name":"d","mtime":1000000000500,"size":0},
        {"path_type":"SymlinkFile","name":"l","mtime":1,"size":3},
        {"path_type":"File","name":"","mtime":1,"size":1},
        {"path_type":"File","name":"f","mtime":-500,"size":1}]}"#;
    let expected = [
        (b"d".to_vec(), true, fact(None, time, None)),
        (b"l".to_vec(), false, EntryFacts::default()),
        (b"f".to_vec(), false, fact(Some(1), Some((-1, 500_000_000)), None)),
    ];
    assert_eq!(facts(JSON, dufs), expected);
}

#[test]
fn only_links_further_down_are_taken_and_each_once() {
    let page = |links: &[&str]| {
        let links = links.iter().map(|link| format!("<a href=\"{link}\">x</a>"));
        links.collect::<String>()
    };
    let links = [
        "one",
        "./one",
        "one#part",
        "/a%20b/one",
        "http://h:8080/a%20b/two/three",
        "https://h:8080/a%20b/no",
        "http://h/a%20b/no",
        "//other/a%20b/no",
        "../no",
        "%2e%2e/no",
        "/a%20bc/no",
        "mailto:somebody@h",
        ".",
        "",
        "?C=N",
        "six?C=N",
        "seven/?C=N",
    ];
    assert_eq!(paths(HTML, page(&links)), ["one", "two/three", "seven/"]);
    let base = "<base href=\"/a%20b/sub/\"><base href=\"/\"><a href=\"x\">x</a>";
    assert_eq!(paths(HTML, base), ["sub/x"]);
    assert_eq!(paths("application/xhtml+xml", "<a href='x'/>"), ["x"]);
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for (link, refusal) in [
        ("..%2Fx", EntryRefusal::Slash),
        ("%2Fetc%2Fpasswd", EntryRefusal::Slash),
        ("a/..%2F..%2Fb", EntryRefusal::Slash),
        ("x%00y", EntryRefusal::Nul),
        (".underpass-get.part", EntryRefusal::Reserved),
    ] {
        let listing = listing(HTML, format!("<a href=\"{link}\">x</a><a href=\"{link}\">x</a>"));
        assert_eq!(listing.entries, [], "{link}");
        let refusals: Vec<_> = listing.refused.iter().map(|(_, refusal)| *refusal).collect();
        assert_eq!(refusals, [refusal], "{link}");
    }
    let named = |name: &str| format!(r#"[{{"name":"{name}","type":"file"}}]"#);
    let refused = |name| listing(JSON, named(name)).refused;
    assert_eq!(refused("../x"), [(b"../x".to_vec(), EntryRefusal::Slash)]);
    assert_eq!(refused("a/b"), [(b"a/b".to_vec(), EntryRefusal::Slash)]);
    assert_eq!(listing(JSON, named("..")), Listing { is_other_page: true, ..Listing::default() });
}

#[test]
fn other_documents_are_not_read_as_listings() {
    assert_eq!(read(&base(), "text/plain", b"<a href=x>"), None);
    assert_eq!(read(&base(), "", b"<a href=x>"), None);
    for body in ["", "{}", "3", "[3]", "{\"paths\":3}"] {
        assert_eq!(read(&base(), JSON, body.as_bytes()), None, "{body}");
    }
    assert_eq!(listing(JSON, "[]"), Listing { is_whole: true, ..Listing::default() });
    assert_eq!(listing(HTML, ""), Listing { is_other_page: true, ..Listing::default() });
}

#[test]
fn a_page_without_signs_of_a_listing_is_another_page() {
    for (page, is_other) in [
        ("<h1>Welcome</h1><a href=/>home</a>", true),
        ("<form action=login></form>", true),
        ("<a href='//other/a%20b/?sort=name'>elsewhere</a>", true),
        ("<h1>Index of /a</h1>", false),
        ("<a href='../'>up</a>", false),
        ("<a href='?sort=name'>Name</a>", false),
    ] {
        assert_eq!(listing(HTML, page).is_other_page, is_other, "{page}");
    }
}

#[test]
fn a_page_is_whole_if_it_calls_itself_a_listing() {
    for (page, is_whole) in [
        ("<head><title>Index of /a</title></head><body><a href=x>x</a>", true),
        ("<h1>Directory listing for /a b/</h1><a href=x>x</a>", true),
        ("<TITLE>\n index OF /</TITLE><a href=x>x</a>", true),
        ("<title>Welcome</title><p>Index of /</p><a href=x>x</a>", false),
        ("<title>My index of things</title><a href=x>x</a>", false),
        ("<title></title>Index of /<a href=x>x</a>", false),
        ("<script>'<title>Index of /'</script><a href=x>x</a>", false),
        // Links of a server behind a proxy that does not know its own address.
        ("<title>Index of /a</title><a href='https://h/a%20b/x'>x</a>", false),
        ("<title>Index of /a</title><a href=x>x</a><a href='https://elsewhere/'>by</a>", true),
        (
            "<title>Index of /a</title><a href=x>x</a><a rel='Nofollow NEXT' href='?page=2'>2</a>",
            false,
        ),
        ("<title>Index of /a</title><link rel=next href='?page=2'><a href=x>x</a>", false),
    ] {
        let page = format!("<html>{page}</body></html>\n");
        assert_eq!(listing(HTML, &page).is_whole, is_whole, "{page}");
        // A proxy that lost its server sends what it has.
        for cut in 0..page.len() - "</html>\n".len() {
            assert!(!listing(HTML, &page[..cut]).is_whole, "{cut}: {page}");
        }
        assert!(!listing(HTML, &page).is_cut, "{page}");
    }
}

#[test]
fn a_page_is_not_whole_if_a_link_may_stand_for_a_file_that_is_not_listed() {
    for (links, is_whole) in [
        ("<a href='../'>up</a>", true),
        ("<a href='/a%20b'>here</a><a href='/'>up</a><a href=x>x</a>", true),
        ("<a href='?C=M;O=A'>M</a><a href='?sort=size&amp;order=asc'>s</a><a href=x>x</a>", true),
        ("<a href='#top'>top</a><a href='mailto:root@h'>root</a><a href=x>x</a>", true),
        ("<a href='x?sort=size'>1 B</a><a href=x>x</a>", true),
        ("<a href='..%2fx'>refused</a>", true),
        // A proxy that does not rewrite links, or another name of the server.
        ("<a href='http://backend/a%20b/x'>x</a>", false),
        ("<a href='http://backend/x'>x</a><a href='../'>up</a>", false),
        ("<base href='http://cdn/a%20b/'><a href=x>x</a>", false),
        ("<base href='/files/a%20b/'><a href=x>x</a>", false),
        ("<a href='/backend/a%20b/x'>x</a><a href=y>y</a>", false),
        // Files that are named by a query, a script, or a name that is not escaped.
        ("<a href='?file=x'>x</a><a href=y>y</a>", false),
        ("<a href='get.php?f=x'>x</a><a href='get.php'>y</a>", false),
        ("<a href='x?'>x?</a><a href=x>x</a>", false),
        ("<a href='z?sort=size'>1 B</a><a href=x>x</a>", false),
        ("<a href='javascript:show(1)'>x</a><a href=y>y</a>", false),
        ("<a href='x:y'>x:y</a><a href=y>y</a>", false),
        // More files on another page.
        ("<a href=x>x</a><a href='?page=2'>Next</a>", false),
        ("<a href=x>x</a><a href='?start=100'>&gt;&gt;</a>", false),
        // An error message instead of the links.
        ("<b>Warning</b>: too many open files", false),
    ] {
        let page = format!("<html><title>Index of /a b/</title>{links}</html>");
        assert_eq!(listing(HTML, &page).is_whole, is_whole, "{links}");
    }
    // Python's listings have no link to the parent folder.
    assert!(listing(HTML, "<html><h1>Directory listing for /a b/</h1></html>").is_whole);
    let book = "<html><title>Index of the book</title><a href=x>x</a></html>";
    assert!(!listing(HTML, book).is_whole);
}

#[test]
fn a_page_whose_links_all_lead_elsewhere_is_not_an_empty_folder() {
    for (links, count) in [
        // Behind a proxy that does not rewrite links.
        ("<a href='../'>up</a><a href='/b/x'>x</a><a href='/b/y'>y</a>", 2),
        ("<a href='http://backend/x'>x</a><a href='http://backend/y'>y</a>", 2),
        ("<a href='http://backend/a%20b/x'>x</a>", 1),
        ("<base href='/files/'><a href=x>x</a>", 1),
        ("<a href='/b/x'>x</a><a href=y>y</a>", 0),
        ("<a href='/b/x'>x</a><a href='..%2fx'>refused</a>", 0),
        // Empty folders of nginx and Apache, Caddy and miniserve.
        ("<a href='../'>../</a>", 0),
        ("<a href='?C=N;O=D'>Name</a><a href='/'>Parent Directory</a>", 0),
        ("<a href='/'>/</a><a href='./?sort=name'>N</a><a href='https://caddyserver.com'>C</a>", 0),
        ("<a href='/?sort=size'>/</a><a href='https://github.com/svenstaro/miniserve'>m</a>", 0),
        ("<a href='#top'>top</a><a href='mailto:a@b'>a</a><a href='javascript:show()'>s</a>", 0),
    ] {
        let page = format!("<html><title>Index of /a b/</title>{links}</html>");
        assert_eq!(listing(HTML, &page).links_elsewhere, count, "{links}");
    }
}

#[test]
fn a_listing_without_its_end_is_cut_and_another_page_need_not_have_one() {
    for (page, is_cut) in [
        ("<html><title>Index of /a</title><a href=x>x</a>", true),
        ("<html><title>Index of /a</title><a href=x>x</a></HTML >", false),
        // As from Apache with `IndexOptions SuppressHTMLPreamble`.
        ("<h1>Index of /a</h1><a href=x>x</a>", false),
        ("<html><title>Welcome</title><a href=x>x</a>", false),
    ] {
        assert_eq!(listing(HTML, page).is_cut, is_cut, "{page}");
    }
}

#[test]
fn json_is_whole_if_each_object_is_an_entry() {
    for (json, is_whole) in [
        (r#"[{"name":"x","type":"file"}]"#, true),
        (r#"[{"name":"x","type":"file"},{"error":"log in"}]"#, false),
        (r#"[{"name":"x","url":"https://elsewhere/x"}]"#, false),
        (r#"{"kind":"Index","paths":[]}"#, true),
        (r#"{"error":"log in","paths":[]}"#, false),
    ] {
        assert_eq!(listing(JSON, json).is_whole, is_whole, "{json}");
    }
    for (json, is_other) in [
        ("[]", false),
        (r#"[{"name":"x"},{"id":1}]"#, false),
        (r#"[{"id":1,"title":"x"},{"id":2}]"#, true),
        (r#"{"kind":"Index","paths":[{"id":1}]}"#, true),
        (r#"[{"name":"x","url":"https://elsewhere/x"}]"#, true),
    ] {
        assert_eq!(listing(JSON, json).is_other_page, is_other, "{json}");
    }
}
