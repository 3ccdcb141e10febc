//! `get -r --update`: folders by their listings, and the entries that are removed here.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::mirror::origin::{Origin, Page};
use crate::mirror::peers::Peer;
use crate::rig::{Finished, Running, folder, names, noise, run, underpass};
use underpass_testkit::mounts::{FileSystem, Mounted};

/// `get -r --update` of a folder into `dir`.
pub(crate) fn update(url: &str, dir: &Path, args: &[&str]) -> Finished {
    run(["get", "-r", "--update", url, "-d", dir.to_str().unwrap()].iter().chain(args))
}

/// Writes a file whose time is this many seconds after another.
pub(crate) fn put(root: &Path, path: &str, bytes: &[u8], age: u64) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000 + age);
    File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
}

/// The listing of a folder as JSON, as nginx has it.
pub(crate) fn listing(entries: &[(&str, &[u8])]) -> Page {
    let entry = |(name, bytes): &(&str, &[u8])| match name.strip_suffix('/') {
        Some(name) => format!(
            r#"{{"name":"{name}","type":"directory","mtime":"Sun, 06 Nov 1994 08:49:37 GMT"}}"#
        ),
        None => format!(
            r#"{{"name":"{name}","type":"file","mtime":"Sun, 06 Nov 1994 08:49:37 GMT","size":{}}}"#,
            bytes.len()
        ),
    };
    let text = entries.iter().map(entry).collect::<Vec<_>>().join(",");
    Page::new(format!("[{text}]").as_bytes(), &["Content-Type: application/json"])
}

#[test]
fn an_unchanged_mirror_costs_a_request_for_each_folder() {
    let root = folder();
    for (at, path) in ["a", "b", "one/c", "one/d", "one/two/e"].iter().enumerate() {
        put(root.path(), path, &noise(1_000 * (at + 1)), at as u64);
    }
    let peers = [
        (Some(Peer::ours(root.path())), 3),
        (Peer::nginx(root.path(), "json"), 3),
        (Peer::nginx(root.path(), "html"), 3 + 5),
        (Peer::python(root.path()), 3 + 5),
    ];
    for (peer, requests) in peers {
        let Some(peer) = peer else { continue };
        let (here, name) = (folder(), peer.name);
        let first = update(&peer.url, here.path(), &["--json"]).succeeded().receipt();
        assert_eq!((&first["files"], &first["way"]), (&5.into(), &"listing".into()), "{name}");
        let before = peer.requests().len();
        let again = update(&peer.url, here.path(), &["--json"]).succeeded().receipt();
        assert_eq!((&again["files"], &again["here"]), (&0.into(), &5.into()), "{name}");
        assert_eq!((&again["bytes"], &again["removed"]), (&0.into(), &0.into()), "{name}");
        let lines = peer.requests().split_off(before);
        let said = update(&peer.url, here.path(), &[]).succeeded().stderr;
        assert_eq!(said, "nothing to fetch: 5 files are here already\n", "{name}");
        assert_eq!(lines.len(), requests, "{name}: {lines:?}");
        // What has changed, what is new and what is missing here comes.
        put(root.path(), "one/c", b"changed", 9);
        put(root.path(), "one/new", b"new", 9);
        fs::remove_file(here.path().join("a")).unwrap();
        let changed = update(&peer.url, here.path(), &["--json"]).succeeded().receipt();
        assert_eq!((&changed["files"], &changed["here"]), (&3.into(), &3.into()), "{name}");
        assert_eq!(fs::read(here.path().join("one/c")).unwrap(), b"changed");
        put(root.path(), "one/c", &noise(3_000), 2);
        fs::remove_file(root.path().join("one/new")).unwrap();
    }
}

#[test]
fn delete_keeps_names_that_differ_in_case_only() {
    let Some(mounted) = Mounted::new(FileSystem::NoCase, 16) else { return };
    let (root, place) = (folder(), mounted.root().join("t"));
    for path in ["READ.me", "Photos/One", "Photos/Old/X", "photos/Two"] {
        put(root.path(), path, path.as_bytes(), 0);
    }
    let peer = Peer::ours(root.path());
    for round in 0..2 {
        let receipt = update(&peer.url, &place, &["--delete", "--json"]).succeeded().receipt();
        assert_eq!(receipt["removed"], 0, "round {round}: {receipt}");
        assert_eq!(names(&place), ["photos", "read.me"], "round {round}");
        assert_eq!(names(&place.join("photos")), ["old", "one", "two"], "round {round}");
    }
    fs::write(place.join("photos/old/stale"), "").unwrap();
    fs::remove_file(root.path().join("photos/Two")).unwrap();
    let receipt = update(&peer.url, &place, &["--delete", "--json"]).succeeded().receipt();
    assert_eq!(receipt["removed"], 2, "{receipt}");
    assert_eq!(names(&place.join("photos")), ["old", "one"]);
    assert_eq!(fs::read_to_string(place.join("photos/old/x")).unwrap(), "Photos/Old/X");
}

#[test]
fn names_that_differ_in_case_only_never_replace_each_other() {
    let Some(mounted) = Mounted::new(FileSystem::NoCase, 128) else { return };
    let root = folder();
    for (path, len) in [("README", 10), ("readme", 20), ("Photos/x", 30), ("photos/X", 40)] {
        put(root.path(), path, &noise(len), len as u64);
    }
    // These have journals of their own.
    for (path, len) in [("large", 17 << 20), ("LARGE", 18 << 20)] {
        put(root.path(), path, &noise(len), len as u64);
    }
    let peers = [Some(Peer::ours(root.path())), Peer::python(root.path())];
    for peer in peers.into_iter().flatten() {
        for (number, options) in [&["--update"][..], &["-f"], &[]].into_iter().enumerate() {
            let here = mounted.root().join(format!("{}{number}", peer.name));
            // A second run must not take one file for the other.
            for round in 0..2 {
                let dir = here.to_str().unwrap();
                let words = ["get", "-r", &peer.url, "-d", dir];
                let finished = run(words.iter().chain(options)).failed(1, &["lacks 3 files"]);
                // Kept files may have the names of others until these have their final names.
                let reason = if options.is_empty() { "is left out" } else { "in another case" };
                let left_out = finished.stderr.matches(reason).count();
                assert_eq!(left_out, 3, "{} {options:?} {round}: {}", peer.name, finished.stderr);
            }
        }
    }
}

#[test]
fn delete_removes_exactly_the_names_that_are_not_listed() {
    let (root, place) = (folder(), folder());
    put(root.path(), "keep", b"keep", 0);
    put(root.path(), "one/gone", b"gone", 0);
    put(root.path(), "gone/deep/file", b"gone", 0);
    let peers = [
        Some(Peer::ours(root.path())),
        Peer::nginx(root.path(), "html"),
        Peer::python(root.path()),
    ];
    for peer in peers.into_iter().flatten() {
        let name = peer.name;
        put(root.path(), "one/gone", b"gone", 0);
        put(root.path(), "gone/deep/file", b"gone", 0);
        let here = place.path().join(name);
        update(&peer.url, &here, &["--delete"]).succeeded();
        assert_eq!(names(&here), ["gone", "keep", "one"]);
        fs::remove_file(root.path().join("one/gone")).unwrap();
        fs::remove_dir_all(root.path().join("gone")).unwrap();
        // Links lead nowhere, in and out of the folder, and go themselves.
        let outside = place.path().join("outside");
        put(&outside, "file", b"mine", 0);
        symlink(&outside, here.join("link")).unwrap();
        symlink(&outside, here.join("gone/link")).unwrap();
        put(&here, "mine.tmp", b"mine", 0);
        put(&here, "gone/deep/größer", b"more", 0);
        // Without the option all stays.
        update(&peer.url, &here, &[]).succeeded();
        assert_eq!(names(&here), ["gone", "keep", "link", "mine.tmp", "one"]);
        update(&peer.url, &here, &["--delete", "--max-delete", "7"])
            .failed(1, &["8 entries, more than 7", "nothing was removed"]);
        assert_eq!(names(&here), ["gone", "keep", "link", "mine.tmp", "one"]);
        let args = ["--delete", "--max-delete", "7", "--exclude", "*.tmp"];
        let done = update(&peer.url, &here, &args).succeeded();
        for path in ["one/gone", "gone/deep/größer"] {
            assert!(done.stderr.contains(&format!("{path} is removed")), "{}", done.stderr);
        }
        assert!(done.stderr.contains("7 removed"), "{}", done.stderr);
        assert_eq!(names(&here), ["keep", "mine.tmp", "one"], "{name}");
        assert_eq!(names(&here.join("one")), [""; 0]);
        // As of an archive that broke off.
        put(&here, "one/.underpass-get.part", b"begun", 0);
        put(&here, ".underpass-get.journal", b"", 0);
        let done = update(&peer.url, &here, &["--delete", "--json"]).succeeded().receipt();
        assert_eq!(done["removed"], 3);
        assert_eq!(names(&here), ["keep", "one"], "{name}");
        assert_eq!(names(&here.join("one")), [""; 0]);
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"mine");
    }
}

#[test]
fn nothing_is_removed_unless_every_listing_was_read() {
    let (origin, here) = (Origin::start(), folder());
    let file = |bytes: &[u8]| Page::new(bytes, &["Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"]);
    let whole = listing(&[("a", b"one"), ("sub/", b"")]);
    origin.set("/", whole.clone());
    origin.set("/a", file(b"one"));
    origin.set("/sub/", listing(&[("b", b"two")]));
    origin.set("/sub/b", file(b"two"));
    let dir = here.path();
    update(&origin.url("/"), dir, &["--delete"]).succeeded();
    put(dir, "mine", b"mine", 0);
    put(dir, "sub/mine", b"mine", 0);
    let html = |text: &str, fields: &[&str]| {
        Page::new(text.as_bytes(), &[&["Content-Type: text/html"], fields].concat())
    };
    let index = "<title>Index of /</title><a href=a>a</a><a href=sub/>sub</a>";
    let mut cut = whole.clone();
    cut.cut = Some(whole.body.len() - 9);
    let refused = Page { status: Some(403), ..Page::default() };
    let gone = Page { status: Some(404), ..Page::default() };
    for (path, page, words) in [
        ("/", cut, "ended before the last byte"),
        ("/", html(index, &["Connection: close"]), "may not list everything"),
        ("/", html(index, &["Link: </?page=2>; rel=\"next\""]), "may not list everything"),
        ("/", html("<h1>Welcome</h1><a href=a>a</a><a href=sub/>sub</a>", &[]), "may not list"),
        ("/", html("<h1>Log in</h1>", &[]), "neither an archive nor a listing"),
        ("/", listing(&[]), "lists nothing"),
        ("/sub/", refused, "nothing is removed"),
        ("/sub/", html("<p>Moved", &[]), "nothing is removed"),
        ("/a", gone, "nothing is removed"),
    ] {
        let before = match path {
            "/" => whole.clone(),
            "/a" => file(b"one"),
            _ => listing(&[("b", b"two")]),
        };
        if path == "/a" {
            fs::remove_file(dir.join("a")).unwrap();
        }
        origin.set(path, page);
        let failed = update(&origin.url("/"), dir, &["--delete", "--retries", "0"]);
        let failed = failed.failed(1, &[]);
        assert!(failed.stderr.contains(words), "{words}: {}", failed.stderr);
        assert!(dir.join("mine").exists() && dir.join("sub/mine").exists(), "{}", failed.stderr);
        assert!(dir.join("sub/b").exists(), "{}", failed.stderr);
        origin.set(path, before);
    }
    // An unreachable server, and one that is there again.
    update("http://127.0.0.1:1/", dir, &["--delete", "--retries", "0"]).failed(1, &["refused"]);
    assert!(dir.join("mine").exists());
    update(&origin.url("/"), dir, &["--delete"]).succeeded();
    assert_eq!(
        (names(dir), names(&dir.join("sub"))),
        (vec!["a".into(), "sub".into()], vec!["b".into()])
    );
}

#[test]
fn patterns_choose_what_is_fetched() {
    let root = folder();
    for path in ["a.iso", "b.txt", "one/c.iso", "one/d.tmp", "tmp/e.iso", "one/tmp/f.iso"] {
        put(root.path(), path, path.as_bytes(), 0);
    }
    let peer = Peer::ours(root.path());
    let all = |dir: &Path| {
        let entries = underpass_testkit::tree(dir).into_iter();
        let files = entries.filter(|(_, entry)| !entry.facts.is_dir());
        files.map(|(path, _)| path.display().to_string()).collect::<Vec<_>>().join(" ")
    };
    for (args, expected) in [
        (vec!["--include", "*.iso"], "a.iso one/c.iso one/tmp/f.iso tmp/e.iso"),
        (vec!["--exclude", "tmp/"], "a.iso b.txt one/c.iso one/d.tmp"),
        (vec!["--exclude", "/tmp"], "a.iso b.txt one/c.iso one/d.tmp one/tmp/f.iso"),
        (
            vec!["--include", "*.iso", "--include", "b.*", "--exclude", "one/*.iso"],
            "a.iso b.txt one/tmp/f.iso tmp/e.iso",
        ),
    ] {
        let here = folder();
        let before = peer.requests().len();
        run(["get", "-r", &peer.url, "-d", here.path().to_str().unwrap()].iter().chain(&args))
            .succeeded();
        assert_eq!(all(here.path()), expected, "{args:?}");
        let lines = peer.requests().split_off(before);
        let enters = lines.iter().any(|line| line == "GET /tmp/");
        assert_eq!(enters, expected.contains("tmp/e"), "{args:?} {lines:?}");
    }
    let wrong = ["get", "-r", &peer.url, "--include", "["];
    run(wrong).failed(2, &["--include", "unclosed"]);
    run(["get", &peer.url, "--exclude", "x"]).failed(2, &["--recursive"]);
    run(["get", "-r", &peer.url, "--delete"]).failed(2, &["--update"]);
}

#[test]
fn one_rate_holds_for_the_whole_folder() {
    let root = folder();
    for name in ["a", "b", "c", "d"] {
        put(root.path(), name, &noise(256 << 10), 0);
    }
    let peer = Peer::ours(root.path());
    for args in [vec!["--update"], vec![]] {
        let here = folder();
        let started = Instant::now();
        let words = ["get", "-r", &peer.url, "--rate", "512K", "-d", here.path().to_str().unwrap()];
        run(words.iter().chain(&args)).succeeded();
        // A mebibyte takes two seconds, less what may be made up for.
        assert!(started.elapsed() >= Duration::from_millis(1_500), "{args:?}");
        assert_eq!(names(here.path()), ["a", "b", "c", "d"]);
    }
}

#[test]
fn an_interrupted_update_is_resumed() {
    let (origin, here) = (Origin::start(), folder());
    let time = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
    let (one, two) = (noise(300_000), noise(200_000));
    origin.set("/", listing(&[("a", &one), ("b", &two)]));
    origin.set("/a", Page::new(&one, &[time]));
    let mut cut = Page::new(&two, &[time]);
    cut.cut = Some(100_000);
    origin.set("/b", cut);
    put(here.path(), "b", b"old", 0);
    update(&origin.url("/"), here.path(), &["--retries", "0", "-j", "1"])
        .failed(1, &["lacks one file"]);
    assert_eq!(fs::read(here.path().join("b")).unwrap(), b"old");
    origin.set("/b", Page::new(&two, &[time]));
    origin.take_exchanges();
    update(&origin.url("/"), here.path(), &[]).succeeded();
    assert_eq!(origin.log()[1..], ["GET /b 200 200000"]);
    assert!(fs::read(here.path().join("b")).unwrap() == two);
    assert_eq!(names(here.path()), ["a", "b"]);
}

#[test]
fn credentials_stay_with_the_server_that_was_named() {
    let (named, other, here) = (Origin::start(), Origin::start(), folder());
    let location = format!("Location: {}", other.url("/new/"));
    named.set("/old/", Page { status: Some(302), ..Page::new(b"", &[&location]) });
    let index = "<title>Index of /new/</title><a href=a>a</a><a href=big>b</a><a href=sub/>s</a>";
    let html = |text: &str| Page::new(text.as_bytes(), &["Content-Type: text/html"]);
    other.set("/new/", html(index));
    other.set("/new/sub/", html("<title>Index of /new/sub/</title>"));
    other.set("/new/a", Page::new(b"one", &[]));
    // Large files have requests of their own.
    let big = noise(17 << 20);
    other.set("/new/big", Page::new(&big, &["ETag: \"1\""]));
    let secrets = ["-u", "me:pw", "-H", "X-Key: pw"];
    update(&named.url("/old/"), here.path(), &secrets).succeeded();
    assert!(fs::read(here.path().join("old/big")).unwrap() == big);
    let is_secret = |head: &str| {
        let head = head.to_lowercase();
        head.contains("authorization") || head.contains("x-key")
    };
    let (first, second) = (named.take_exchanges(), other.take_exchanges());
    assert!(first.iter().all(|it| is_secret(&it.request.head)), "{first:?}");
    assert!(second.len() >= 4, "{second:?}");
    assert!(!second.iter().any(|it| is_secret(&it.request.head)), "{second:?}");
}

#[test]
fn folders_that_redirect_elsewhere_are_missing_not_empty() {
    let (origin, here) = (Origin::start(), folder());
    let dir = here.path();
    let to = |path: &str| {
        let location = format!("Location: {path}");
        Page { status: Some(302), ..Page::new(b"", &[&location]) }
    };
    let html = |text: &str| Page::new(text.as_bytes(), &["Content-Type: text/html"]);
    origin.set("/login", html("<title>Sign in</title><form></form>"));
    let whole = listing(&[("a", b"one"), ("sub/", b"")]);
    origin.set("/", whole.clone());
    origin.set("/a", Page::new(b"one", &[]));
    origin.set("/sub/", to("/login"));
    put(dir, "sub/mine", b"mine", 0);
    // A folder that is a page to log in is missing, not empty.
    update(&origin.url("/"), dir, &[]).failed(1, &["lacks one"]);
    update(&origin.url("/login/"), dir, &[]).failed(1, &[]);
    // Neither is another folder the requested one.
    for (page, words) in
        [(to("/"), "leads back to a folder"), (to("/other/"), "may not list everything")]
    {
        origin.set("/other/", html("<title>Index of /other/</title><a href=b>b</a>"));
        origin.set("/other/b", Page::new(b"two", &[]));
        origin.set("/sub/", page);
        let failed = update(&origin.url("/"), dir, &["--delete"]).failed(1, &[]);
        assert!(failed.stderr.contains(words), "{}", failed.stderr);
        assert!(dir.join("sub/mine").exists());
    }
    // A page in place of a listing is no listing.
    let json = |text: &str| Page::new(text.as_bytes(), &["Content-Type: application/json"]);
    for page in [json(r#"{"error":"log in","paths":[]}"#), json(r#"[{"error":"log in"}]"#)] {
        origin.set("/sub/", page);
        let failed = update(&origin.url("/"), dir, &["--delete"]).failed(1, &[]);
        assert!(failed.stderr.contains("nothing "), "{}", failed.stderr);
        assert!(dir.join("sub/mine").exists());
    }
    // A page of another length is not the file that is listed.
    origin.set("/sub/", listing(&[]));
    origin.set("/a", to("/login"));
    fs::remove_file(dir.join("a")).unwrap();
    let failed = update(&origin.url("/"), dir, &["--delete"]).failed(1, &["lacks one"]);
    assert!(failed.stderr.contains("a redirect leads to 35 bytes"), "{}", failed.stderr);
    assert!(!dir.join("a").exists() && dir.join("sub/mine").exists());
    // One of the same length is.
    origin.set("/a", to("/other/b"));
    update(&origin.url("/"), dir, &["--delete"]).succeeded();
    assert_eq!(
        (fs::read(dir.join("a")).unwrap(), dir.join("sub/mine").exists()),
        (b"two".into(), false)
    );
}

#[test]
fn delete_needs_a_separate_folder_for_each_url() {
    let (root, here) = (folder(), folder());
    put(root.path(), "one/x/a", b"one", 0);
    put(root.path(), "two/x/b", b"two", 0);
    put(here.path(), "mine", b"mine", 0);
    let peer = Peer::ours(root.path());
    let get = |args: &[&str]| {
        let mut command = underpass();
        command.env("HOME", "/nonexistent").env_remove("http_proxy").env_remove("all_proxy");
        command.current_dir(here.path()).args(["get", "-r", "--update", "--delete"]).args(args);
        Running::start(command).finish()
    };
    // The root of a server has no name: that would be the current folder.
    get(&[&peer.url]).failed(2, &["-d DIR"]);
    assert_eq!(names(here.path()), ["mine"]);
    let [one, two] = ["one/x/", "two/x/"].map(|path| format!("{}{path}", peer.url));
    get(&[&one, &two]).failed(2, &["two of the URLs"]);
    get(&[&peer.url, &one, "-d", "all"]).failed(2, &["two of the URLs"]);
    assert_eq!(names(here.path()), ["mine"]);
    get(&[&peer.url, "-d", "all"]).succeeded();
    get(&[&one, &format!("{}two/", peer.url)]).succeeded();
    assert_eq!(names(here.path()), ["all", "mine", "two", "x"]);
}

#[test]
fn a_private_file_stays_private() {
    let (origin, here) = (Origin::start(), folder());
    origin.set("/", listing(&[("file", b"new"), ("other", b"new")]));
    origin.set("/file", Page::new(b"new", &[]));
    origin.set("/other", Page::new(b"new", &[]));
    let path = here.path().join("file");
    fs::write(&path, "older").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    update(&origin.url("/"), here.path(), &[]).succeeded();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let usual = mode(&here.path().join("other"));
    assert_eq!((mode(&path), usual & 0o600), (0o600, 0o600));
    assert_ne!(usual, 0o600, "the umask of this test shows nothing");
}

#[test]
fn a_listing_that_was_cut_off_on_the_way_removes_nothing_and_is_no_success() {
    let (origin, here) = (Origin::start(), folder());
    let html = |text: &str| Page::new(text.as_bytes(), &["Content-Type: text/html"]);
    let page = "<html><head><title>Index of /</title></head><body><a href=a>a</a>\n<a href=b>b</a>";
    for name in ["/a", "/b"] {
        origin.set(name, Page::new(b"one", &[]));
    }
    origin.set("/", html(&format!("{page}</body></html>")));
    update(&origin.url("/"), here.path(), &["--delete"]).succeeded();
    // A proxy has lost its server, and ends the page as if it were whole.
    origin.set("/", html(&page[..page.find("\n").unwrap()]));
    let failed = update(&origin.url("/"), here.path(), &["--delete"]);
    failed.failed(1, &["may not list everything"]);
    assert_eq!(names(here.path()), ["a", "b"]);
    let failed = update(&origin.url("/"), here.path(), &[]).failed(1, &["lacks one"]);
    assert!(failed.stderr.contains("the listing is truncated"), "{}", failed.stderr);
}

#[test]
fn a_file_with_the_name_of_the_part_of_another_one_is_not_mistaken_for_it() {
    let (root, here) = (folder(), folder());
    let bytes = noise(17 << 20);
    put(root.path(), "sub/image", &bytes, 0);
    put(root.path(), "sub/image.part", b"begun by somebody", 1);
    put(root.path(), "sub/image.part.journal", b"and noted", 2);
    let peer = Peer::ours(root.path());
    // So that the small ones arrive while the large one is on its way.
    update(&peer.url, here.path(), &["--rate", "20M"]).succeeded();
    let place = here.path().join("sub");
    assert_eq!(names(&place), ["image", "image.part", "image.part.journal"]);
    assert!(fs::read(place.join("image")).unwrap() == bytes);
    assert_eq!(fs::read(place.join("image.part")).unwrap(), b"begun by somebody");
    // One that only we have is in the way of one file, and not of the others.
    fs::remove_file(place.join("image")).unwrap();
    fs::remove_file(root.path().join("sub/image.part")).unwrap();
    fs::remove_file(root.path().join("sub/image.part.journal")).unwrap();
    put(root.path(), "sub/zero", b"", 0);
    let failed = update(&peer.url, here.path(), &[]).failed(1, &["lacks one"]);
    assert!(failed.stderr.contains("image.part cannot be resumed"), "{}", failed.stderr);
    assert_eq!(names(&place), ["image.part", "image.part.journal", "zero"]);
}
