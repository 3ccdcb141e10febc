//! Media types and fields that the operator sets for some files.

use super::rig::{Running, Site};
use underpass_server::{MediaTypes, PathHeader, ServeError, Settings};

fn header(pattern: &str, name: &str, value: &str) -> PathHeader {
    PathHeader { pattern: pattern.to_owned(), name: name.to_owned(), value: value.to_owned() }
}

fn site(headers: &[(&str, &str, &str)]) -> Site {
    let site = Site::of(&[
        ("index.html", b"<p>"),
        ("v2/a/manifests/latest", b"{}"),
        ("v2/a/b/manifests/latest", b"{}"),
        ("page.thing", b"0123456789"),
        ("x.js", b"1"),
        ("x.js.gz", b"packed\x01\0\0\0"),
        ("model.gguf", b"1"),
    ]);
    let headers = headers.iter().map(|(pattern, name, value)| header(pattern, name, value));
    site.with_site(|site| site.path_headers = headers.collect())
}

fn field(site: &Running, path: &str, name: &str) -> Option<String> {
    let (get, head) = (site.get(path), site.ask("HEAD", path, &[]));
    assert_eq!(get.field(name), head.field(name), "{path}");
    get.field(name).map(str::to_owned)
}

#[test]
fn a_pattern_chooses_the_files_that_get_a_field() {
    let site = site(&[
        ("/v2/*/manifests/*", "Content-Type", "application/x-manifest"),
        ("*.js", "Cache-Control", "immutable"),
        ("*.js", "X-Kind", "first"),
        ("/x.js", "x-kind", "last"),
    ]);
    let site = site.with_site(|site| site.cache_control = Some("no-cache".to_owned())).start();
    let of = |path: &str, name: &str| field(&site, path, name);
    assert_eq!(of("/v2/a/manifests/latest", "Content-Type").unwrap(), "application/x-manifest");
    assert_ne!(of("/v2/a/b/manifests/latest", "Content-Type").unwrap(), "application/x-manifest");
    assert_eq!(of("/x.js", "Cache-Control").as_deref(), Some("immutable"));
    assert_eq!(of("/index.html", "Cache-Control").as_deref(), Some("no-cache"));
    assert_eq!(of("/x.js", "X-Kind").as_deref(), Some("last"));
    assert_eq!(of("/index.html", "X-Kind"), None);
    let packed = site.ask("GET", "/x.js", &["Accept-Encoding: gzip"]);
    assert_eq!(
        (packed.text().as_str(), packed.field("X-Kind")),
        ("packed\x01\0\0\0", Some("last"))
    );
    let tag = packed.field("ETag").unwrap();
    let same =
        site.ask("GET", "/x.js", &["Accept-Encoding: gzip", &format!("If-None-Match: {tag}")]);
    assert_eq!((same.status, same.field("X-Kind")), (304, Some("last")));
    assert_eq!(site.get("/none.js").field("X-Kind"), None, "it is no file");
    assert_eq!(site.ask("GET", "/x.js", &["If-Match: \"other\""]).field("X-Kind"), None);
}

#[test]
fn a_field_of_some_files_replaces_that_of_every_response() {
    let site = site(&[("*.js", "x-kind", "script"), ("*", "X-Content-Type-Options", "none")]);
    let common = ["X-Kind", "X-Kind", "X-Other"].map(|name| (name.to_owned(), "all".to_owned()));
    let site = site.with_site(|site| site.headers = common.to_vec()).start();
    for _ in 0..2 {
        let script = site.get("/x.js");
        assert_eq!(
            (script.field("X-Kind"), script.field("X-Other")),
            (Some("script"), Some("all"))
        );
        assert_eq!(script.field("X-Content-Type-Options"), Some("none"));
        let kinds = |path: &str| {
            let fields = site.get(path).fields;
            fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("X-Kind")).count()
        };
        assert_eq!((kinds("/index.html"), kinds("/none.js")), (2, 2));
    }
}

#[test]
fn a_chosen_media_type_counts_everywhere() {
    let site = site(&[("*.thing", "content-type", "text/html")]);
    let rules = ["me:secret@/:rw", "@/"];
    let site = site.auth(&rules).start();
    let parts = site.ask("GET", "/page.thing", &["Range: bytes=0-1,5-6"]);
    assert!(parts.text().contains("Content-Type: text/html\r\n"), "{}", parts.text());
    let whole = site.get("/page.thing");
    assert_eq!(whole.field("Content-Type"), Some("text/html"));
    assert_eq!(whole.field("Content-Security-Policy"), Some("sandbox"), "it can have scripts now");
}

#[test]
fn media_types_are_chosen_by_extension() {
    let mut types = MediaTypes::default();
    types.choose("js=application/x-mine").unwrap();
    types.add_system("application/x-gguf gguf\napplication/x-other html");
    let site = site(&[]).with_site(|site| site.media_types = types).start();
    let of = |path: &str| field(&site, path, "Content-Type").unwrap();
    assert_eq!(of("/x.js"), "application/x-mine");
    assert_eq!(of("/index.html"), "text/html; charset=utf-8");
    assert_eq!(of("/page.thing"), "application/octet-stream");
}

#[test]
fn fields_that_would_break_a_response_are_refused_at_the_start() {
    let refused = |change: fn(&mut Settings)| {
        let site = Site::new().with(change);
        site.try_start().err().unwrap()
    };
    let error = refused(|settings| {
        settings.sites[0].path_headers = vec![header("*", "Content-Length", "1")]
    });
    assert!(matches!(error, ServeError::Header(_)), "{error}");
    let error =
        refused(|settings| settings.sites[0].path_headers = vec![header("*", "X", "a\r\nb: c")]);
    assert!(matches!(error, ServeError::Header(_)), "{error}");
    let error = refused(|settings| {
        settings.sites[0].path_headers = vec![header("*", "Content-Type", "html")]
    });
    assert!(matches!(error, ServeError::Header(_)), "{error}");
    let error = refused(|settings| settings.sites[0].path_headers = vec![header("[", "X", "a")]);
    assert!(matches!(error, ServeError::Pattern { .. }), "{error}");
}
