//! Pages in place of folders and of missing paths, single files, and prefixes.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use super::rig::Site;

fn site() -> Site {
    let files: &[(&str, &[u8])] = &[
        ("index.html", b"<p>home"),
        ("app.js", b"script"),
        ("docs/index.html", b"<p>docs"),
        ("docs/page.html", b"<p>page"),
        ("empty/other.txt", b"other"),
    ];
    Site::of(files)
}

#[test]
fn a_folder_shows_its_index_if_enabled() {
    let listed = site().start();
    assert!(listed.get("/docs/").text().contains("page.html"));
    let site = site().with_site(|site| site.renders_index = true).start();
    let reply = site.get("/docs/");
    assert_eq!((reply.status, reply.text().as_str()), (200, "<p>docs"));
    assert_eq!(reply.field("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(site.get("/").text(), "<p>home");
    assert_eq!(site.ask("GET", "/", &["Range: bytes=3-4"]).text(), "ho");
    assert_eq!(site.get("/docs").status, 301, "links on it need the slash");
    assert_eq!(site.get("/empty/").status, 404, "no index, no page");
    assert_eq!(site.get("/empty/other.txt").text(), "other");
    assert_eq!(site.get("/nothing").status, 404);
    let tag = reply.field("ETag").unwrap();
    assert_eq!(site.ask("GET", "/docs/", &[&format!("If-None-Match: {tag}")]).status, 304);
}

#[test]
fn an_application_answers_for_every_path_that_does_not_exist() {
    let site = site().with_site(|site| site.renders_spa = true).start();
    for path in ["/", "/users/7", "/nothing", "/docs/nothing/at/all", "/app.js/"] {
        let reply = site.get(path);
        assert_eq!((reply.status, reply.text().as_str()), (200, "<p>home"), "{path}");
    }
    assert_eq!(site.get("/app.js").text(), "script");
    assert_eq!(site.get("/docs/page.html").text(), "<p>page");
    assert_eq!(site.get("/.underpass/nothing").status, 404);
    assert_eq!(site.get("/../x").status, 400);
}

#[test]
fn an_application_without_its_page_answers_404() {
    let site = Site::of(&[("app.js", b"script")]).with_site(|site| site.renders_spa = true);
    let site = site.start();
    assert_eq!(site.get("/nothing").status, 404);
    assert_eq!(site.get("/").status, 404);
}

#[test]
fn a_page_that_is_being_written_is_not_missing() {
    let site = site().with_site(|site| site.renders_spa = true).start();
    let page = site.path("index.html");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                fs::write(&page, "<p>home").unwrap();
            }
        });
        for path in ["/", "/nothing", "/index.html"] {
            let reply = site.get(path);
            assert!(matches!(reply.status, 200 | 503), "{path}: {}", reply.status);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn everything_is_below_the_prefix() {
    let site = site().with_site(|site| site.path_prefix = "/files/here".to_owned()).start();
    assert_eq!(site.get("/files/here/app.js").text(), "script");
    assert_eq!(site.get("/files/here/docs/page.html").text(), "<p>page");
    assert!(site.get("/files/here/").text().contains("app.js"));
    assert_eq!(site.get("/files/here/.underpass/health").status, 200);
    let redirect = site.get("/files/here");
    assert_eq!((redirect.status, redirect.field("Location")), (301, Some("./here/")));
    for path in ["/", "/app.js", "/files", "/files/", "/files/hereapp.js", "/files/here2/app.js"] {
        assert_eq!(site.get(path).status, 404, "{path}");
    }
    assert_eq!(site.get("/files/here/../../app.js").status, 404);
}

#[test]
fn one_file_is_served_by_its_name_and_by_none() {
    let mut site = Site::of(&[("one file.txt", b"contents"), ("secret.txt", b"no")]);
    site.settings.sites[0].root = Some(site.path("one file.txt"));
    let site = site.start();
    let reply = site.get("/");
    assert_eq!((reply.status, reply.text().as_str()), (200, "contents"));
    assert_eq!(reply.field("Content-Disposition"), Some("inline; filename=\"one file.txt\""));
    assert_eq!(site.get("/one%20file.txt").text(), "contents");
    assert_eq!(site.ask("GET", "/", &["Range: bytes=3-"]).text(), "tents");
    for path in
        ["/secret.txt", "/one%20file.txt/", "/one%20file.txt/x", "/nothing", "/../secret.txt"]
    {
        assert!(matches!(site.get(path).status, 400 | 404), "{path}");
        let reply = site.ask("PROPFIND", path, &["Depth: 0"]);
        assert!(matches!(reply.status, 400 | 404), "PROPFIND {path}");
    }
    fs::rename(site.path("secret.txt"), site.path("one file.txt")).unwrap();
    assert_eq!(site.get("/").text(), "no", "whatever has that name");
    fs::remove_file(site.path("one file.txt")).unwrap();
    assert_eq!(site.get("/").status, 404);
}

#[test]
fn a_single_file_may_be_hidden_or_a_link() {
    let mut site = Site::of(&[(".hidden", b"contents"), ("folder/target", b"behind a link")]);
    site.settings.sites[0].root = Some(site.path(".hidden"));
    assert_eq!(site.start().get("/").text(), "contents");
    for target in [Site::path, |_: &Site, name: &str| name.into()] {
        let mut site = Site::of(&[("elsewhere/target", b"behind a link")]);
        fs::create_dir(site.path("here")).unwrap();
        let target = target(&site, "elsewhere/target");
        let target = if target.is_relative() { "../elsewhere/target".into() } else { target };
        symlink(target, site.path("here/link")).unwrap();
        site.settings.sites[0].root = Some(site.path("here/link"));
        assert_eq!(site.start().get("/").text(), "behind a link");
    }
}

#[test]
fn unusable_roots_are_refused_at_the_start() {
    for (root, word) in [("nothing", "nothing"), ("fifo", "fifo")] {
        let mut site = Site::new();
        let fifo = site.path("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        site.settings.sites[0].root = Some(site.path(root));
        let error = site.try_start().err().unwrap().to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn an_application_is_served_only_with_the_right_to_read_its_page() {
    let site = Site::of(&[("index.html", b"page"), ("pub/a", b"a")]);
    let site = site.with_site(|site| site.renders_spa = true);
    let site = site.auth(&["alice:secret1@/", "@/pub"]).start();
    assert_eq!(site.get("/pub/none").status, 404);
    let alice = "Authorization: Basic YWxpY2U6c2VjcmV0MQ=="; // alice:secret1
    assert_eq!(site.ask("GET", "/pub/none", &[alice]).text(), "page");
}
