//! Paths: nothing outside the root is served, whatever they say, and files of any name can be.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::rig::{Running, Site, is_root, settings, skip};

/// A site with files outside its root.
fn site() -> Site {
    let mut site = Site::of(&[
        ("outside.txt", b"outside"),
        ("root/inside.txt", b"inside"),
        ("root/folder/deep.txt", b"deep"),
        ("root/.hidden", b"hidden"),
        ("root/.git/config", b"hidden"),
    ]);
    site.settings = settings(&site.path("root"));
    site
}

#[test]
fn no_path_leads_above_the_root() {
    let site = site().start();
    for path in [
        "/../outside.txt",
        "/%2e%2e/outside.txt",
        "/.%2E/outside.txt",
        "/folder/../../outside.txt",
        "/folder/%2e%2e/%2e%2e/outside.txt",
        "/..",
        "/../",
        "http://localhost/../outside.txt",
    ] {
        assert_eq!(site.get(path).status, 400, "{path}");
    }
    for path in ["/..%2foutside.txt", "/%2e%2e%2foutside.txt", "/folder%2fdeep.txt"] {
        assert_eq!(site.get(path).status, 404, "{path}");
    }
    for path in ["/..%5coutside.txt", "/.../outside.txt", "/root/outside.txt", "//outside.txt"] {
        assert_eq!(site.get(path).status, 404, "{path}");
    }
    let absolute = site.path("outside.txt").display().to_string();
    assert_eq!(site.get(&format!("/{absolute}")).status, 404);
}

#[test]
fn a_path_is_normalized_before_it_is_looked_up() {
    let site = site().start();
    for path in ["//folder//deep.txt", "/./folder/./deep.txt", "/folder/../folder/deep.txt"] {
        assert_eq!(site.get(path).text(), "deep", "{path}");
    }
    assert_eq!(site.get("/%66older/deep%2Etxt").text(), "deep");
    assert_eq!(site.get("/folder/deep.txt/").status, 404);
    assert_eq!(site.get("/inside.txt/x").status, 404, "a file is no folder");
}

#[test]
fn impossible_names_are_refused() {
    let site = site().start();
    for path in ["/a%00b", "/%00", "/%zz", "/%", "/100%.txt", "/a%2"] {
        assert_eq!(site.get(path).status, 400, "{path}");
    }
    let long = "x".repeat(300);
    assert_eq!(site.get(&format!("/{long}")).status, 404);
    let deep = "/x".repeat(4000);
    assert_eq!(site.get(&deep).status, 404);
}

#[test]
fn links_are_followed_inside_the_root_and_no_further() {
    let site = site();
    for (target, link) in [
        ("inside.txt", "inner"),
        ("folder", "inner-folder"),
        ("../root/inside.txt", "out-and-in"),
        ("../outside.txt", "outer"),
        ("..", "outer-folder"),
        ("loop-b", "loop-a"),
        ("loop-a", "loop-b"),
        ("nothing", "dangling"),
        ("/proc/self/root", "magic"),
        ("/proc/self/cwd", "cwd"),
    ] {
        symlink(target, site.path("root").join(link)).unwrap();
    }
    symlink(site.path("outside.txt"), site.path("root/absolute")).unwrap();
    symlink(site.path("root/inside.txt"), site.path("root/absolute-inner")).unwrap();
    let open = settings(&site.path("root"));
    let site = site.start();
    let list = site.get("/?simple").text();
    for (path, text) in [("/inner", "inside"), ("/inner-folder/deep.txt", "deep")] {
        assert_eq!(site.get(path).text(), text, "{path}");
        assert!(list.contains(path[1..].split('/').next().unwrap()), "{path}");
    }
    for path in [
        "/outer",
        "/outer-folder/",
        "/outer-folder/outside.txt",
        "/out-and-in",
        "/absolute",
        "/absolute-inner",
        "/loop-a",
        "/loop-a/x",
        "/dangling",
        "/magic/etc/passwd",
        "/magic/",
        "/cwd/",
    ] {
        assert_eq!(site.get(path).status, 404, "{path}");
        let name = path[1..].split('/').next().unwrap();
        assert!(!list.lines().any(|line| line.trim_end_matches('/') == name), "{name} in {list}");
    }

    let mut open_site = Site::new();
    open_site.settings = open;
    open_site.settings.sites[0].allows_symlinks_outside = true;
    let open = open_site.start();
    for (path, text) in [("/outer", "outside"), ("/absolute", "outside"), ("/inner", "inside")] {
        assert_eq!(open.get(path).text(), text, "{path}");
    }
    assert_eq!(open.get("/outer-folder/outside.txt").text(), "outside");
    for path in ["/magic/etc/passwd", "/loop-a", "/dangling", "/../outside.txt"] {
        assert!(matches!(open.get(path).status, 400 | 404), "{path}");
    }
}

#[test]
fn a_folder_of_procfs_does_not_lead_out() {
    let mut site = Site::new();
    site.settings.sites[0].root = Some("/proc/self".into());
    let site = site.start();
    for path in ["/root/etc/passwd", "/cwd/", "/exe", "/fd/0", "/task/../root/"] {
        assert!(matches!(site.get(path).status, 400 | 404), "{path}");
    }
}

#[test]
fn generated_files_are_served_with_their_text() {
    let mut site = Site::new();
    site.settings.sites[0].root = Some("/proc/self".into());
    let site = site.start();
    let reply = site.get("/status");
    assert_eq!(reply.status, 200);
    assert!(reply.text().contains("\nPid:"), "{}", reply.text());
    assert_eq!(site.ask("HEAD", "/status", &[]).status, 200);
    assert_eq!(site.get("/status?download").status, 200);
    // The environment and the arguments of this process may contain passwords.
    let thread = format!("/task/{}/environ", std::process::id());
    for path in ["/environ", "/cmdline", &thread] {
        assert_eq!(site.get(path).status, 404, "{path}");
    }

    // sysfs reports that each has a page of contents.
    let mut site = Site::new();
    site.settings.sites[0].root = Some("/sys/kernel".into());
    let site = site.start();
    let mut seen = 0;
    // Each is requested before anything else reads it: one that was not read for long counts as
    // written just now.
    for name in ["fscaps", "kexec_crash_loaded", "kexec_loaded", "profiling", "rcu_expedited"] {
        let path = format!("/{name}");
        let reply = site.get(&path);
        if let Ok(expected) = fs::read(format!("/sys/kernel{path}")) {
            assert_eq!((reply.status, reply.body), (200, expected), "{name}");
            seen += 1;
        }
    }
    assert!(seen > 0);
}

#[test]
fn hidden_names_do_not_exist() {
    let hidden = ["/.hidden", "/.git/config", "/.git/", "/.git", "/./.hidden", "/%2ehidden"];
    let site = site();
    let root = site.path("root");
    site.write("root/keep/private.key", b"key");
    site.write("root/keep/build/out", b"out");
    site.write("root/build/out", b"out");
    let site = site.with_site(|site| site.hide = vec!["*.key".into(), "/keep/build".into()]);
    let site = site.start();
    for path in hidden.iter().chain(&["/keep/private.key", "/keep/build/out", "/keep/build/"]) {
        assert_eq!(site.get(path).status, 404, "{path}");
    }
    assert_eq!(site.get("/build/out").text(), "out");
    let list = site.get("/keep/?simple").text();
    assert_eq!(list, "");
    assert!(!site.get("/?simple").text().contains('.') || !site.get("/").text().contains(".git"));

    let mut open = Site::new();
    open.settings = settings(&root);
    open.settings.sites[0].shows_hidden = true;
    let open = open.start();
    assert_eq!(open.get("/.hidden").text(), "hidden");
    assert_eq!(open.get("/.git/config").text(), "hidden");
    assert!(open.get("/?simple").text().contains(".git/"));
}

/// The names of files that make trouble elsewhere.
const AWKWARD: [&[u8]; 14] = [
    b"quo\"te'",
    b"new\nline",
    b"<script>alert(1)",
    b"100%",
    b"%41",
    b"what?",
    b"#hash",
    b"a:b",
    b":colon",
    b"back\\slash",
    b"sp ace+plus&amp;",
    b"\xff\xfe\x01",
    "\u{fc}\u{1f600}".as_bytes(),
    b"tab\t\x1b[31m",
];

#[test]
fn files_of_any_name_are_listed_linked_and_fetched() {
    let site = Site::new();
    for name in AWKWARD {
        fs::write(site.path(".").join(OsStr::from_bytes(name)), name).unwrap();
    }
    let site = site.start();
    let list: serde_json::Value = serde_json::from_slice(&site.get("/?json").body).unwrap();
    let mut fetched: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            let url = entry["url"].as_str().unwrap().strip_prefix("./").unwrap();
            let reply = site.get(&format!("/{url}"));
            assert_eq!(reply.status, 200, "{url}");
            reply.body
        })
        .collect();
    fetched.sort();
    let mut expected: Vec<_> = AWKWARD.iter().map(|name| name.to_vec()).collect();
    expected.sort();
    assert_eq!(fetched, expected);
    for accept in ["Accept: text/html", "Accept: */*"] {
        let page = site.ask("GET", "/", &[accept]).text();
        assert!(!page.contains("<script>alert"), "names are escaped");
    }
    for path in ["/%23hash?download", "/%3Acolon?download", "/new%0Aline?download"] {
        let reply = site.get(path);
        assert!(reply.field("Content-Disposition").unwrap().starts_with("attachment"), "{path}");
    }
}

/// Asks for a path, which has to be refused at once.
fn is_missing_at_once(site: &Running, path: &str) {
    let begun = Instant::now();
    for verb in ["GET", "HEAD"] {
        assert_eq!(site.ask(verb, path, &[]).status, 404, "{path}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{path}");
}

#[test]
fn special_files_are_not_found_at_once() {
    let site = Site::new();
    let at = |name: &str| site.path(name);
    mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    let mut names = vec!["/fifo", "/socket"];
    if is_root() {
        let null = makedev(1, 3);
        mknodat(CWD, at("null"), FileType::CharacterDevice, Mode::RUSR, null).unwrap();
        mknodat(CWD, at("loop"), FileType::BlockDevice, Mode::RUSR, makedev(7, 250)).unwrap();
        names.extend(["/null", "/loop"]);
    } else {
        skip("only root can make devices");
    }
    let site = site.start();
    names.iter().for_each(|name| is_missing_at_once(&site, name));
    assert_eq!(site.get("/?simple").text(), "");
}

#[test]
fn a_folder_without_its_slash_is_redirected_to_itself_and_nowhere_else() {
    let site = Site::of(&[("folder/x", b"x"), ("evil.com/x", b"x"), ("a:b/x", b"x")]).start();
    for (path, location) in [
        ("/folder", "./folder/"),
        ("/folder?sort=size&order=desc", "./folder/?sort=size&order=desc"),
        ("//evil.com", "./evil.com/"),
        ("/a:b", "./a:b/"),
        ("/%66older", "./%66older/"),
    ] {
        let reply = site.get(path);
        assert_eq!((reply.status, reply.field("Location")), (301, Some(location)), "{path}");
    }
    let back = site.get("/folder/../evil.com");
    assert_eq!(back.field("Location"), Some("./evil.com/"));
}

#[test]
fn a_redirect_is_short_but_for_clients_that_cannot_follow_it() {
    let site = Site::of(&[("a b/c/x", b"x"), ("d/c/x", b"x")]).start();
    let aiohttp = "User-Agent: Python/3.12 aiohttp/3.14.5";
    let busybox = "User-Agent: Wget";
    for (path, agent, location) in [
        ("/a%20b/c", "User-Agent: curl/8", "./c/"),
        ("/a%20b/c", "User-Agent: Wget/1.21.3", "./c/"),
        ("/a%20b/c", aiohttp, "../a%20b/c/"),
        ("/d/c", aiohttp, "./c/"),
        ("/a%20b/c?json", busybox, "/a%20b/c/?json"),
        ("/d", busybox, "/d/"),
        ("//d//c", busybox, "/d/c/"),
    ] {
        let reply = site.connect().ask("GET", path, &[agent]);
        assert_eq!(
            (reply.field("Location"), reply.field("Vary")),
            (Some(location), Some("User-Agent")),
            "{path}"
        );
    }
}

#[test]
fn files_that_the_server_may_not_read_are_forbidden() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::of(&[("file", b"x")]).start();
    fs::set_permissions(site.path("file"), fs::Permissions::from_mode(0o000)).unwrap();
    let expected = if is_root() { 200 } else { 403 };
    assert_eq!(site.get("/file").status, expected);
    assert!(Path::new(&site.path("file")).exists());
}
