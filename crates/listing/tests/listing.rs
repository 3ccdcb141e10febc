//! What a listing shows of a folder.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Timespec, fstat, mknodat, openat2};
use rustix::io::Errno;
use serde_json::Value;
use tempfile::TempDir;
use underpass_listing::{
    Attributes, BROWSER_LIMIT, BadQuery, ChangeRights, Describe, Entries, Format, Listing,
    ListingQuery, MAX_ENTRIES, NamedEntries, NamedEntry, Prepared, Resolve, Unsorted,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Names that break careless servers.
const AWKWARD: [&[u8]; 14] = [
    b"it's \"quoted\".txt",
    b"line\nbreak",
    b"return\r",
    b"<b>bold",
    b"100%25.txt",
    b"what?.txt",
    b"#hash",
    b":colon:80",
    b"...",
    b"..almost",
    b"caf\xe9",
    b"back\\slash",
    b"a&amp;b",
    b" spaces  ",
];

/// Entries that are not on disk.
struct Names<'n>(&'n [NamedEntry<'n>]);

impl NamedEntries for Names<'_> {
    fn get(&self, index: usize) -> Option<NamedEntry<'_>> {
        self.0.get(index).copied()
    }
}

/// A folder on disk, and how a test server would list it.
struct Root {
    folder: TempDir,
    opened: File,
    shows_hidden: bool,
    is_browser: bool,
    hidden: &'static [u8],
    may: ChangeRights,
    /// The error of following a link.
    link_error: Option<Errno>,
}

impl Root {
    /// Creates an empty folder.
    fn new() -> io::Result<Self> {
        let folder = TempDir::new()?;
        let opened = File::open(folder.path())?;
        Ok(Self {
            folder,
            opened,
            shows_hidden: true,
            is_browser: false,
            hidden: b"",
            may: ChangeRights::default(),
            link_error: None,
        })
    }

    /// Creates a folder with empty files.
    fn with_files<N: AsRef<[u8]>>(names: impl IntoIterator<Item = N>) -> io::Result<Self> {
        let root = Self::new()?;
        for name in names {
            root.file(name.as_ref(), 0)?;
        }
        Ok(root)
    }

    /// Returns the path of an entry.
    fn path(&self, name: &[u8]) -> PathBuf {
        self.folder.path().join(OsStr::from_bytes(name))
    }

    /// Creates a file of this size.
    fn file(&self, name: &[u8], len: u64) -> io::Result<()> {
        File::create(self.path(name))?.set_len(len)
    }

    /// Opens a path below the root.
    fn open(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = flags | OFlags::CLOEXEC;
        Ok(openat2(&self.opened, path, flags, Mode::empty(), ResolveFlags::BENEATH)?)
    }

    /// Prepares the listing of a folder, and passes it to `read`.
    fn prepared<T>(
        &self,
        path: &str,
        query: &str,
        read: impl FnOnce(Prepared<'_>) -> Result<T>,
    ) -> Result<T> {
        let folder = self.open(path.as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        let listing = Listing {
            entries: Entries::Folder { folder: folder.as_fd(), root: self },
            path: path.as_bytes(),
            query: parse(query)?,
            is_browser: self.is_browser,
            shows_hidden: self.shows_hidden,
            hides: &|path, _| !self.hidden.is_empty() && path == self.hidden,
            shows_times: &|_| true,
            may_read: &|path| !path.ends_with(b"secret/README.md"),
            may: self.may,
            archive: true,
            walks: true,
            is_wanted: &|| true,
            describe: None,
        };
        read(listing.prepare()?)
    }

    /// Returns the listing of these entries instead of those on disk.
    fn named(&self, entries: &[NamedEntry<'_>], query: &str) -> Result<String> {
        let listing = Listing {
            entries: Entries::Named(&Names(entries)),
            path: b"",
            query: parse(query)?,
            is_browser: self.is_browser,
            shows_hidden: self.shows_hidden,
            hides: &|path, _| !self.hidden.is_empty() && path == self.hidden,
            shows_times: &|_| true,
            may_read: &|_| true,
            may: self.may,
            archive: true,
            walks: true,
            is_wanted: &|| true,
            describe: None,
        };
        let (mut body, prepared) = (Vec::new(), listing.prepare()?);
        let longest = prepared.longest()?;
        prepared.write(&mut |piece| {
            body.extend(piece);
            Ok(())
        })?;
        assert!(body.len() as u64 <= longest);
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Returns the listing, and the link to the next page.
    fn list(&self, path: &str, query: &str) -> Result<(Vec<u8>, Option<String>)> {
        self.prepared(path, query, |prepared| {
            let next = prepared.next_page().map(str::to_owned);
            let mut body = Vec::new();
            prepared.write(&mut |piece| {
                body.extend(piece);
                Ok(())
            })?;
            Ok((body, next))
        })
    }

    /// Returns the listing as text.
    fn text(&self, path: &str, query: &str) -> Result<String> {
        Ok(String::from_utf8(self.list(path, query)?.0)?)
    }

    /// Returns the objects of a JSON listing.
    fn json(&self, query: &str) -> Result<Vec<Value>> {
        Ok(serde_json::from_slice(&self.list("", &format!("json&{query}"))?.0)?)
    }

    /// Returns the names in their order.
    fn names(&self, query: &str) -> Result<Vec<String>> {
        Ok(self.text("", &format!("simple&{query}"))?.lines().map(str::to_owned).collect())
    }
}

impl Resolve for Root {
    fn resolve(&self, path_below_root: &[u8]) -> io::Result<Attributes> {
        if let Some(errno) = self.link_error {
            return Err(errno.into());
        }
        Ok(Attributes::from(&fstat(self.open(path_below_root, OFlags::PATH)?)?))
    }
}

/// Parses a query as a server would.
fn parse(query: &str) -> std::result::Result<ListingQuery, BadQuery> {
    let value = |key: &str| {
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let (_, value) = pairs.into_iter().find(|(name, _)| *name == key)?;
        Some(Cow::from(percent_decode_str(value)))
    };
    ListingQuery::read(value, if query.contains("index") { Format::Index } else { Format::Html })
}

/// Returns the names that the links of a page lead to, as a crawler understands them.
fn linked(page: &str) -> BTreeSet<Vec<u8>> {
    let rows = page.split_once("<tbody>").map_or("", |(_, rows)| rows);
    let hrefs = rows.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let hrefs = hrefs.filter(|href| !href.starts_with('?') && *href != "../");
    hrefs.map(|href| percent_decode_str(href).collect()).collect()
}

#[test]
fn awkward_names_are_linked_exactly_in_every_format() -> Result<()> {
    let root = Root::with_files(AWKWARD)?;
    let expected: BTreeSet<_> = AWKWARD.iter().map(|name| name.to_vec()).collect();
    assert_eq!(linked(&root.text("", "")?), expected);
    let urls = root.json("")?.iter().map(url_of).collect::<BTreeSet<_>>();
    assert_eq!(urls, expected);
    let (lines, _) = root.list("", "simple")?;
    assert_eq!(lines.iter().filter(|&&byte| byte == b'\n').count(), AWKWARD.len());
    Ok(())
}

/// Returns the name that the URL of an object leads to.
fn url_of(object: &Value) -> Vec<u8> {
    let url = object["url"].as_str().unwrap_or_default();
    percent_decode_str(url.trim_start_matches("./")).collect()
}

#[test]
fn names_are_escaped_on_the_page() -> Result<()> {
    let root = Root::with_files([b"<img onerror=x>\"'&".as_slice()])?;
    let page = root.text("", "q=<img onerror=x>\"'%26")?;
    assert!(!page.contains("<img"), "{page}");
    assert!(page.contains("&lt;img onerror=x&gt;&quot;'&amp;"), "{page}");
    Ok(())
}

#[test]
fn a_name_that_is_not_utf_8_is_exact_in_a_separate_field() -> Result<()> {
    let root = Root::with_files([b"caf\xe9".as_slice(), b"tea"])?;
    let objects = root.json("")?;
    assert_eq!(objects[0]["name"], "caf\u{fffd}");
    assert_eq!(objects[0]["name_bytes"], "caf%E9");
    assert_eq!(objects[1].get("name_bytes"), None);
    Ok(())
}

#[test]
fn an_object_describes_its_entry() -> Result<()> {
    let root = Root::new()?;
    fs::create_dir(root.path(b"folder"))?;
    root.file(b"file", 5_000_000_000)?;
    let modified = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 120_000_000);
    File::options().write(true).open(root.path(b"file"))?.set_modified(modified)?;
    symlink("file", root.path(b"link"))?;
    let objects = root.json("")?;
    assert_eq!(objects[0]["size"], Value::Null);
    assert_eq!(objects[0]["is_dir"], true);
    assert_eq!(objects[0]["url"], "./folder/");
    for (object, is_symlink) in [(&objects[1], false), (&objects[2], true)] {
        assert_eq!(object["size"], 5_000_000_000_u64);
        assert_eq!(object["mtime"], "2001-09-09T01:46:40.12Z");
        assert_eq!(object["is_dir"], false);
        assert_eq!(object["is_symlink"], is_symlink);
        assert_eq!(object["mode"].as_str().map(str::len), Some(4));
    }
    Ok(())
}

#[test]
fn an_empty_listing_is_an_empty_array() -> Result<()> {
    let root = Root::new()?;
    assert_eq!(root.json("")?, Vec::<Value>::new());
    assert_eq!(root.text("", "ndjson")?, "");
    assert_eq!(root.text("", "simple")?, "");
    let page = root.text("", "")?;
    assert!(page.contains("This folder is empty.") && page.contains("0 entries"), "{page}");
    Ok(())
}

#[test]
fn entries_that_cannot_be_fetched_are_left_out_and_links_counted() -> Result<()> {
    let root = Root::with_files(["file"])?;
    symlink("nowhere", root.path(b"broken"))?;
    symlink("/etc", root.path(b"outside"))?;
    symlink("../..", root.path(b"above"))?;
    symlink("loop", root.path(b"loop"))?;
    mknodat(&root.opened, "pipe", FileType::Fifo, Mode::RUSR, 0)?;
    assert_eq!(root.names("")?, ["file"]);
    assert_eq!(root.names("sort=time")?, ["file"]);
    assert!(root.text("", "")?.contains("4 links are not shown"));
    Ok(())
}

#[test]
fn a_listing_that_lacks_an_unreadable_link_is_marked() -> Result<()> {
    let mut root = Root::with_files(["file"])?;
    symlink("file", root.path(b"link"))?;
    for errno in [Errno::AGAIN, Errno::MFILE, Errno::NOMEM, Errno::IO, Errno::STALE] {
        root.link_error = Some(errno);
        assert!(root.json("").is_err(), "{errno}");
        assert!(root.text("", "")?.contains("1 link is not shown"), "{errno}");
        assert_eq!(root.names("")?, ["file", "link"]);
        let size = root.text("", "size")?;
        assert!(size.contains("\"files\":1") && size.contains("\"complete\":false"), "{size}");
        assert!(root.names("q=file&below")? == ["file"]);
    }
    Ok(())
}

#[test]
fn hidden_names_are_listed_only_when_shown() -> Result<()> {
    let mut root = Root::with_files([".secret", "plain", "private"])?;
    root.hidden = b"private";
    assert_eq!(root.names("")?, [".secret", "plain"]);
    root.shows_hidden = false;
    assert_eq!(root.names("")?, ["plain"]);
    assert_eq!(root.names("q=secret")?, Vec::<String>::new());
    Ok(())
}

#[test]
fn globs_match_paths_from_the_root() -> Result<()> {
    let mut root = Root::new()?;
    fs::create_dir(root.path(b"folder"))?;
    root.file(b"folder/private", 0)?;
    root.file(b"private", 0)?;
    root.hidden = b"folder/private";
    assert_eq!(root.text("folder", "simple")?, "");
    assert_eq!(root.names("")?, ["folder/", "private"]);
    Ok(())
}

#[test]
fn each_order_has_folders_first_and_both_directions() -> Result<()> {
    let root = Root::new()?;
    for (name, len) in [("b10", 1), ("B9", 3), ("a", 2)] {
        root.file(name.as_bytes(), len)?;
        let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(len);
        File::options().write(true).open(root.path(name.as_bytes()))?.set_modified(modified)?;
    }
    fs::create_dir(root.path(b"z"))?;
    for (query, expected) in [
        ("", ["z/", "a", "B9", "b10"]),
        ("order=desc", ["z/", "b10", "B9", "a"]),
        ("sort=size", ["z/", "b10", "a", "B9"]),
        ("sort=size&order=desc", ["z/", "B9", "a", "b10"]),
        ("sort=time", ["z/", "b10", "a", "B9"]),
        ("sort=time&order=desc", ["z/", "B9", "a", "b10"]),
    ] {
        assert_eq!(root.names(query)?, expected, "{query}");
    }
    Ok(())
}

#[test]
fn pages_after_names_in_json_add_up_to_the_whole_listing() -> Result<()> {
    let mut root = Root::with_files(["p", "q", "r"])?;
    for name in ["a", "b", "c", "d", ".e"] {
        fs::create_dir(root.path(name.as_bytes()))?;
    }
    symlink("a", root.path(b"link"))?;
    root.shows_hidden = false;
    for order in ["", "&order=desc", "&q="] {
        let whole = root.json(&format!("json{order}"))?;
        let (mut pages, mut query) = (Vec::new(), format!("limit=2{order}"));
        loop {
            let page = root.json(&query)?;
            let Some(last) = page.last() else { break };
            let last = last["name"].as_str().ok_or("no name")?;
            query = format!("limit=2{order}&after={last}");
            pages.extend(page);
            assert!(pages.len() <= whole.len(), "{order}: {pages:?}");
        }
        assert_eq!(pages, whole, "{order}");
    }
    // What is not shown is not revealed by a cursor either.
    assert_eq!(root.json("after=.e")?, root.json("after=.f")?);
    assert_eq!(root.json("after=b")?, root.json("after=b/")?);
    Ok(())
}

#[test]
fn pages_add_up_to_the_whole_listing_in_every_order() -> Result<()> {
    let root = Root::new()?;
    for number in 0..57_u64 {
        root.file(format!("file {number}").as_bytes(), number % 5)?;
    }
    for number in 0..8 {
        fs::create_dir(root.path(format!("%folder:{number}").as_bytes()))?;
    }
    for order in ["sort=name", "order=desc", "sort=size", "sort=size&order=desc", "sort=time"] {
        let whole = root.names(order)?;
        assert_eq!(whole.len(), 65);
        for limit in [1, 7, 64, 65, 66] {
            let mut query = format!("simple&{order}&limit={limit}");
            let mut joined = Vec::new();
            loop {
                let (page, next) = root.list("", &query)?;
                let page = String::from_utf8(page)?;
                assert!(page.lines().count() <= limit);
                joined.extend(page.lines().map(str::to_owned));
                let Some(next) = next else { break };
                query = next.trim_start_matches('?').to_owned();
            }
            assert_eq!(joined, whole, "{order} by {limit}");
        }
    }
    Ok(())
}

#[test]
fn a_page_continues_after_a_removed_entry() -> Result<()> {
    let root = Root::with_files(["a", "b", "c", "d"])?;
    let (_, next) = root.list("", "simple&limit=2")?;
    fs::remove_file(root.path(b"b"))?;
    root.file(b"a2", 0)?;
    let query = next.as_deref().unwrap_or_default().trim_start_matches('?');
    assert_eq!(root.list("", query)?.0, b"c\nd\n");
    Ok(())
}

#[test]
fn a_search_finds_accents_in_either_form() -> Result<()> {
    let forms = ["Cafe\u{301}", "CAF\u{c9}"];
    let root = Root::with_files(forms)?;
    for word in ["caf%C3%A9", "cafe%CC%81"] {
        for query in [format!("q={word}"), format!("q={word}&below")] {
            assert_eq!(root.names(&query)?.len(), 2, "{query}");
        }
    }
    Ok(())
}

#[test]
fn a_search_ignores_case() -> Result<()> {
    let root = Root::with_files(["Grüße.TXT", "other"])?;
    assert_eq!(root.names("q=GRÜSSE")?, Vec::<String>::new());
    assert_eq!(root.names("q=GRÜß")?, ["Grüße.TXT"]);
    assert_eq!(root.names("q=.txt")?, ["Grüße.TXT"]);
    Ok(())
}

#[test]
fn a_browser_gets_pages_and_a_crawler_everything() -> Result<()> {
    let count = BROWSER_LIMIT + 1;
    let mut root = Root::with_files((0..count).map(|number| number.to_string()))?;
    assert_eq!(linked(&root.text("", "")?).len(), count);
    root.is_browser = true;
    let (page, next) = root.list("", "")?;
    let page = String::from_utf8(page)?;
    assert_eq!(linked(&page).len(), BROWSER_LIMIT);
    assert_eq!(next.as_deref(), Some("?after=1999"));
    assert!(page.contains("1\u{2013}2,000 of 2,001 entries"));
    assert_eq!(root.json("")?.len(), count, "programs ask for a limit if they want one");
    Ok(())
}

#[test]
fn more_entries_than_are_held_are_streamed() -> Result<()> {
    let count = MAX_ENTRIES + 1;
    let root = Root::with_files((0..count).map(|number| number.to_string()))?;
    for query in ["", "sort=size&order=desc"] {
        let names: BTreeSet<_> = root.names(query)?.into_iter().collect();
        assert_eq!(names.len(), count, "{query}");
        assert_eq!(linked(&root.text("", query)?).len(), count, "{query}");
    }
    assert_eq!(root.names("after=9999")?.len(), 1);
    Ok(())
}

#[test]
fn pieces_are_bounded_and_a_client_that_left_ends_the_listing() -> Result<()> {
    let root = Root::with_files((0..2_000).map(|number| format!("{number:0200}")))?;
    let mut pieces = Vec::new();
    root.prepared("", "", |prepared| {
        prepared.write(&mut |piece| {
            pieces.push(piece.len());
            Ok(())
        })?;
        Ok(())
    })?;
    assert!(pieces.len() > 20);
    assert!(pieces.iter().all(|&len| len < 64 << 10), "{pieces:?}");
    let mut taken = 0;
    let result = root.prepared("", "", |prepared| {
        Ok(prepared.write(&mut |_| {
            taken += 1;
            Err(io::ErrorKind::BrokenPipe.into())
        }))
    })?;
    assert_eq!(result.map_err(|error| error.kind()), Err(io::ErrorKind::BrokenPipe));
    assert_eq!(taken, 1);
    Ok(())
}

#[test]
fn only_entries_parents_and_pages_are_links() -> Result<()> {
    let root = Root::new()?;
    fs::create_dir_all(root.path(b"a/b/c"))?;
    let page = root.text("a/b", "")?;
    let hrefs: Vec<_> =
        page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(hrefs, ["../", "c/"]);
    let above: Vec<_> =
        page.split("Href=\"").skip(2).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(above, ["../../", "../"]);
    assert!(page.contains("name=\"archive\" value=\"tar\""));
    Ok(())
}

#[test]
fn buttons_and_parts_of_a_page_have_labels_for_screen_readers() -> Result<()> {
    let mut root = Root::new()?;
    fs::create_dir_all(root.path(b"a<b"))?;
    root.may = ChangeRights { upload: true, ..ChangeRights::default() };
    let page = root.text("", "")?;
    for format in ["zip", "tar"] {
        let label = format!(" aria-label=\"Download a&lt;b as {format}\">{format}</button>");
        assert!(page.contains(&label), "{label}: {page}");
    }
    assert!(page.contains("<section class=\"change\" aria-label=\""), "{page}");
    Ok(())
}

#[test]
fn programs_get_the_format_of_nginx() -> Result<()> {
    let root = Root::new()?;
    fs::create_dir(root.path(b"a folder"))?;
    let long = "x".repeat(60);
    for (name, len) in [("1:<&>.txt", 5_000_000_000), (&long, 7), (&long[..50], 0)] {
        root.file(name.as_bytes(), len)?;
    }
    for name in fs::read_dir(&root.folder)? {
        let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        File::open(name?.path())?.set_modified(modified)?;
    }
    let page = root.text("", "index")?;
    let (space, cut) = (" ".repeat(41), "x".repeat(47));
    let (full, spaces) = ("x".repeat(50), " ".repeat(50 - 9));
    assert_eq!(
        page.split("\r\n").collect::<Vec<_>>(),
        [
            "<html>",
            "<head><title>Index of /</title></head>",
            "<body>",
            "<h1>Index of /</h1><hr><pre><a href=\"../\">../</a>",
            &format!(
                "<a href=\"a%20folder/\">a folder/</a>{space} 09-Sep-2001 01:46                   -"
            ),
            &format!(
                "<a href=\"1%3A%3C%26%3E.txt\">1:&lt;&amp;&gt;.txt</a>{spaces} 09-Sep-2001 01:46          5000000000"
            ),
            &format!("<a href=\"{full}\">{full}</a> 09-Sep-2001 01:46                   0"),
            &format!("<a href=\"{long}\">{cut}..&gt;</a> 09-Sep-2001 01:46                   7"),
            "</pre><hr></body>",
            "</html>",
            "",
        ]
    );
    let (page, next) = root.list("", "index&limit=1")?;
    let page = String::from_utf8(page)?;
    let next = next.ok_or("no next page")?.replace('&', "&amp;");
    assert!(page.contains(&format!("<a rel=\"next\" href=\"{next}\">Next page</a>")), "{page}");
    assert_eq!(linked(&page.replace("<pre>", "<tbody>")).len(), 1);
    Ok(())
}

#[test]
fn awkward_names_are_linked_exactly_in_the_format_of_nginx() -> Result<()> {
    let root = Root::with_files(AWKWARD)?;
    let expected: BTreeSet<_> = AWKWARD.iter().map(|name| name.to_vec()).collect();
    let page = root.text("", "index")?;
    assert_eq!(linked(&page.replace("<pre>", "<tbody>")), expected);
    assert!(!page.contains("<b>"), "{page}");
    Ok(())
}

#[test]
fn an_order_is_kept_from_folder_to_folder() -> Result<()> {
    let root = Root::new()?;
    fs::create_dir_all(root.path(b"a/b"))?;
    root.file(b"a/file", 0)?;
    let page = root.text("a", "sort=size&order=desc")?;
    assert!(page.contains("href=\"b/?sort=size&amp;order=desc\""));
    assert!(page.contains("href=\"../?sort=size&amp;order=desc\""));
    assert!(page.contains("href=\"file\""));
    Ok(())
}

#[test]
fn a_page_without_rows_is_small_and_loads_nothing_else() -> Result<()> {
    let page = Root::new()?.text("", "")?;
    assert!(page.len() < 64 << 10, "{}", page.len());
    assert_eq!(page.matches("<link").count(), 1);
    assert!(page.contains("<link rel=\"icon\" Href=\"data:image/svg+xml,"));
    for elsewhere in [" src=", "url(http", "@import", "https:"] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    Ok(())
}

/// Returns the contents of the elements of a page with this name.
fn elements<'p>(page: &'p str, name: &str) -> Vec<&'p str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    page.split(&open).skip(1).filter_map(|rest| rest.split(&close).next()).collect()
}

#[test]
fn only_scripts_of_this_server_run_on_a_page() -> Result<()> {
    use base64::Engine as _;
    use sha2::Digest as _;
    let mut root = Root::with_files(["file", "README.md"])?;
    root.may = ChangeRights { upload: true, delete: true, ..ChangeRights::default() };
    let page = root.text("", "")?;
    let policy = underpass_listing::CONTENT_SECURITY_POLICY;
    let (styles, scripts) = (elements(&page, "style"), elements(&page, "script"));
    assert_eq!((styles.len(), scripts.len()), (3, 3));
    for contents in styles.into_iter().chain(scripts) {
        let digest = sha2::Sha256::digest(contents);
        let digest = base64::engine::general_purpose::STANDARD.encode(digest);
        assert!(policy.contains(&format!("'sha256-{digest}'")), "{digest}: {}", &contents[..60]);
    }
    assert!(!policy.contains("unsafe") && policy.matches("sha256-").count() == 6);
    for inline in [" style=", " onclick=", " onload=", " onsubmit=", "javascript:"] {
        assert!(!page.contains(inline), "{inline}");
    }
    Ok(())
}

#[test]
fn a_page_offers_only_what_its_reader_may_do() -> Result<()> {
    let mut root = Root::with_files(["file"])?;
    let plain = root.text("", "")?;
    let words = ["data-may", "Upload", "Delete", "MKCOL", "MOVE", "type=\"file\"", "data-do"];
    for word in words {
        assert!(!plain.contains(word), "{word}");
    }
    root.may = ChangeRights { delete: true, ..ChangeRights::default() };
    let page = root.text("", "")?;
    assert!(page.contains("data-may=\"delete\"") && !page.contains("type=\"file\""));
    root.may = ChangeRights { upload: true, ..ChangeRights::default() };
    let page = root.text("", "")?;
    assert!(page.contains("data-may=\"upload\"") && page.contains("type=\"file\""));
    // Programs get the same in both cases.
    let json = root.text("", "json")?;
    root.may = ChangeRights::default();
    assert_eq!(json, root.text("", "json")?);
    Ok(())
}

#[test]
fn a_readme_is_below_the_rows_of_the_first_page() -> Result<()> {
    let root = Root::new()?;
    fs::create_dir_all(root.path(b"docs"))?;
    fs::write(root.path(b"docs/README.md"), "# Title\n\n[a](a.md) <script>x</script>")?;
    fs::write(root.path(b"docs/other"), "")?;
    let page = root.text("docs", "")?;
    let (rows, readme) = page.split_once("<article class=\"readme\"").ok_or("no README")?;
    assert!(rows.contains("</main>") && readme.contains("<h1 id=\"readme-title\">Title</h1>"));
    assert!(readme.contains("<a Href=\"a.md\">a</a>") && !readme.contains("<script>x"));
    for query in ["q=other", "sort=name&after=other"] {
        assert!(!root.text("docs", query)?.contains("readme-title"), "{query}");
    }
    fs::write(root.path(b"docs/README.md"), [b"plain \xff".as_slice(), b"<b>"].concat())?;
    assert!(root.text("docs", "")?.contains("plain \u{fffd}"));
    fs::remove_file(root.path(b"docs/README.md"))?;
    fs::write(root.path(b"docs/README"), "*plain* <text>")?;
    assert!(root.text("docs", "")?.contains("<pre class=\"plain\">*plain* &lt;text&gt;</pre>"));
    Ok(())
}

#[test]
fn only_a_small_readable_readme_is_shown() -> Result<()> {
    let mut root = Root::new()?;
    for folder in ["hidden", "secret", "link", "pipe", "folder", "large"] {
        fs::create_dir(root.path(folder.as_bytes()))?;
    }
    for folder in ["hidden", "secret", "."] {
        fs::write(root.path(format!("{folder}/README.md").as_bytes()), "shown")?;
    }
    symlink("../README.md", root.path(b"link/README.md"))?;
    mknodat(&root.opened, "pipe/README.md", FileType::Fifo, Mode::RUSR, 0)?;
    fs::create_dir(root.path(b"folder/README.md"))?;
    fs::write(root.path(b"large/README.md"), "shown ".repeat(30_000))?;
    root.hidden = b"hidden/README.md";
    assert!(root.text("", "")?.contains("class=\"readme\""));
    for folder in ["hidden", "secret", "link", "pipe", "folder", "large"] {
        assert!(!root.text(folder, "")?.contains("class=\"readme\""), "{folder}");
    }
    Ok(())
}

#[test]
fn given_names_are_listed_like_a_folder() -> Result<()> {
    let mut root = Root::new()?;
    let mut entries = Vec::new();
    for (at, name) in AWKWARD.into_iter().chain([b".dot".as_slice(), b"hidden"]).enumerate() {
        root.file(name, at as u64 * 700)?;
        entries.push(NamedEntry {
            name,
            is_folder: false,
            len: at as u64 * 700,
            modified: Some(Timespec::default()),
        });
    }
    for entry in &mut entries {
        let modified = fs::metadata(root.path(entry.name))?.modified()?;
        let since = modified.duration_since(std::time::UNIX_EPOCH)?;
        entry.modified = Some(since.try_into()?);
    }
    root.hidden = b"hidden";
    root.shows_hidden = false;
    for query in
        ["simple", "sort=size", "sort=time&order=asc", "limit=3", "q=A", "limit=2&after=..."]
    {
        let on_disk = root.list("", query)?.0;
        assert_eq!(root.named(&entries, query)?, String::from_utf8_lossy(&on_disk), "{query}");
    }
    let folder = NamedEntry { name: b"f", is_folder: true, len: 0, modified: None };
    let json = root.named(&[folder], "json")?;
    let expected = serde_json::json!([{
        "name": "f", "size": null, "mtime": null, "mode": null, "is_dir": true,
        "is_symlink": false, "url": "./f/",
    }]);
    assert_eq!(serde_json::from_str::<Value>(&json)?, expected);
    Ok(())
}

#[test]
fn too_many_names_to_sort_are_listed_unsorted() -> Result<()> {
    let root = Root::new()?;
    let name = |at: usize| format!("{}", at * 7919 % (MAX_ENTRIES + 1));
    let names: Vec<_> = (0..=MAX_ENTRIES).map(name).collect();
    let entry = |name| NamedEntry { name, is_folder: false, len: 0, modified: None };
    let entries: Vec<_> = names.iter().map(|name| entry(name.as_bytes())).collect();
    assert!(root.named(&entries, "simple")? == names.join("\n") + "\n");
    assert_eq!(root.named(&[], "json")?, "[\n]\n");
    Ok(())
}

/// Writes long properties for each entry.
struct Verbose {
    /// An entry that cannot be read.
    unknown: Option<&'static [u8]>,
}

impl Describe for Verbose {
    fn begin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"begin\n");
    }

    fn describe(&self, path: &[u8], _: bool, out: &mut Vec<u8>) -> io::Result<()> {
        if self.unknown == Some(path) {
            return Err(Errno::MFILE.into());
        }
        out.extend_from_slice(path);
        out.resize(out.len() + 8192, b'.');
        out.push(b'\n');
        Ok(())
    }

    fn end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"end\n");
    }
}

#[test]
fn pieces_with_long_properties_are_limited_too() -> Result<()> {
    let root = Root::with_files((0..400).map(|number| format!("{number:03}")))?;
    let mut query = parse("")?;
    query.format = Format::Multistatus;
    let listing = Listing {
        entries: Entries::Folder { folder: root.opened.as_fd(), root: &root },
        path: b"",
        query,
        is_browser: false,
        shows_hidden: true,
        hides: &|_, _| false,
        shows_times: &|_| true,
        may_read: &|_| true,
        may: root.may,
        archive: true,
        walks: true,
        is_wanted: &|| true,
        describe: Some(&Verbose { unknown: None }),
    };
    let (mut unsorted, mut body) = (Unsorted::new(&listing)?, Vec::new());
    while let Some(piece) = unsorted.next(&listing)? {
        assert!(piece.len() < 256 << 10, "{} bytes", piece.len());
        body.extend(piece);
    }
    let body = String::from_utf8(body)?;
    let names: BTreeSet<_> = body.lines().filter_map(|line| line.split_once('.')).collect();
    // One of them is the folder itself.
    assert_eq!((names.len(), body.lines().count()), (401, 403));
    for unknown in [&b""[..], b"000", b"399"] {
        let describe = Verbose { unknown: Some(unknown) };
        let listing = Listing { describe: Some(&describe), ..listing.clone() };
        assert!(listing.prepare()?.write(&mut |_| Ok(())).is_err(), "{unknown:?}");
    }
    Ok(())
}
