//! Several entries of a folder as one archive: those alone, and none that may not be seen.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::dav::send;
use super::rig::{Running, Site, folder, pattern, skip};

fn site() -> Running {
    let site = Site::of(&[
        ("folder/a b+c.txt", b"first"),
        ("folder/other.txt", b"other"),
        ("folder/deep/kept", b"kept"),
        ("folder/deep/secret", b"secret"),
        ("folder/secret", b"secret"),
        ("folder/.hidden", b"hidden"),
        ("above", b"above"),
    ]);
    site.write("folder/large", &pattern(3 << 20));
    symlink("other.txt", site.path("folder/link")).unwrap();
    site.with_site(|site| site.hide = vec!["secret".to_owned()]).start()
}

const CHOSEN: &str = "/folder/?archive=tar&entry=large&entry=a%20b%2bc.txt&entry=deep&entry=link";

#[test]
fn an_archive_has_the_chosen_entries_with_all_that_is_in_them() {
    let site = site();
    let reply = site.get(CHOSEN);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.field("Content-Disposition"), Some("attachment; filename=\"folder.tar\""));
    assert!(site.metric("sent_bytes_total{mechanism=\"sendfile\"}") >= (3 << 20) as f64);
    let into = folder();
    fs::write(into.path().join("a.tar"), &reply.body).unwrap();
    let listed = Command::new("tar").arg("-tf").arg(into.path().join("a.tar")).output();
    match listed {
        Ok(listed) => assert_eq!(
            String::from_utf8(listed.stdout).unwrap().lines().collect::<Vec<_>>(),
            [
                "folder/",
                "folder/a b+c.txt",
                "folder/deep/",
                "folder/deep/kept",
                "folder/large",
                "folder/link"
            ]
        ),
        Err(why) => skip(&format!("tar: {why}")),
    }
}

#[test]
fn the_order_and_repetition_of_names_do_not_matter_and_ranges_resume() {
    let site = site();
    let whole = site.get(CHOSEN);
    let again = site
        .get("/folder/?entry=link&entry=deep&entry=deep&entry=a+b%2Bc.txt&entry=large&archive=tar");
    assert_eq!(again.field("ETag"), whole.field("ETag"));
    let tag = format!("If-Range: {}", whole.field("ETag").unwrap());
    let rest = site.ask("GET", CHOSEN, &["Range: bytes=1000000-", &tag]);
    assert!(rest.status == 206 && rest.body == whole.body[1_000_000..]);
    let zip = site.get("/folder/?archive=zip&entry=other.txt");
    assert!(zip.status == 200 && zip.body.windows(16).any(|part| part == b"folder/other.txt"));
    assert!(!zip.body.windows(5).any(|part| part == b"large"));
    for missing in ["none", &"n".repeat(300)] {
        let reply = site.get(&format!("/folder/?archive=zip&entry={missing}"));
        assert_eq!(reply.status, 404, "{missing}");
    }
    assert_ne!(site.get("/folder/?archive=tar").field("ETag"), whole.field("ETag"));
}

#[test]
fn more_names_than_a_target_takes_are_posted() {
    let site = site();
    let name = |number| format!("{:+<200} {number}", "a name with % and & ");
    fs::create_dir(site.path("many")).unwrap();
    for number in 0..2_000 {
        fs::write(site.path(&format!("many/{}", name(number))), "x").unwrap();
    }
    let escaped = |number| {
        name(number).replace('%', "%25").replace('&', "%26").replace('+', "%2B").replace(' ', "%20")
    };
    let lines: String = (0..1_999).map(|number| format!("entry={}\r\n", escaped(number))).collect();
    assert!(lines.len() > 1 << 20);
    let reply =
        send(&site, "POST", "/many/?archive=zip&entry=", &["Content-Type: text/plain"], &lines);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.field("Content-Disposition"), Some("attachment; filename=\"many.zip\""));
    // The target alone cannot continue it.
    assert_eq!((reply.field("ETag"), reply.field("Last-Modified")), (None, None));
    let has =
        |number| reply.body.windows(name(number).len()).any(|part| part == name(number).as_bytes());
    assert!(has(0) && has(1_998) && !has(1_999));
    let form = "entry=large&entry=a+b%2bc.txt&entry=deep&entry=link&other=secret";
    let posted = send(&site, "POST", "/folder/?archive=tar", &[], form);
    assert!(posted.body == site.get(CHOSEN).body);
}

#[test]
fn a_posted_selection_has_the_rights_of_a_get() {
    let files: &[(&str, &[u8])] = &[("open/a", b"a"), ("closed/b", b"b"), ("open/secret", b"s")];
    let site = Site::of(files).auth(&["me:pw@/:rw", "@/open"]);
    let site = site.with_site(|site| {
        site.hide = vec!["secret".to_owned()];
        site.changes.upload = true;
        site.changes.delete = true;
    });
    let site = site.start();
    let (me, evil) = ("Authorization: Basic bWU6cHc=", "Origin: http://example.org");
    for (target, field, body, status) in [
        ("/open/?archive=tar", "A: 1", "entry=a", 200),
        // As a link on another site could have it.
        ("/open/?archive=tar", evil, "entry=a", 200),
        ("/open/?archive=tar", "Range: bytes=0-3", "entry=a", 200),
        ("/closed/?archive=tar", "A: 1", "entry=b", 401),
        ("/?archive=tar", "A: 1", "entry=closed", 401),
        ("/?archive=tar", me, "entry=closed", 200),
        ("/open/?archive=tar", me, "entry=secret", 404),
        ("/open/?archive=tar", me, "entry=..%2Fclosed", 400),
        ("/open/?archive=tar", me, "entry=..", 400),
        ("/open/?archive=rar", me, "entry=a", 400),
        // Without a name, the whole folder is not meant.
        ("/open/?archive=tar", me, "", 400),
        ("/open/?archive=tar&entry=a", me, "entry", 400),
        (
            "/open/?archive=tar",
            me,
            "--boundary\r\nContent-Disposition: form-data\r\n\r\na\r\n",
            400,
        ),
        ("/open/?archive=tar", me, "[\"a\"]", 400),
        ("/open/a?archive=tar", me, "entry=a", 405),
        ("/open/a/?archive=tar", me, "entry=a", 404),
        ("/none/?archive=tar", me, "entry=a", 404),
        ("/open/", me, "entry=a", 405),
    ] {
        let reply = send(&site, "POST", target, &[field], body);
        assert_eq!(reply.status, status, "{target} {field} {body}: {}", reply.text());
        assert!(reply.field("Access-Control-Allow-Origin").is_none());
    }
    let head = ["Content-Length: 3000000", me];
    assert_eq!(site.ask("POST", "/open/?archive=tar", &head).status, 413);
    assert_eq!(site.get("/open/a").text(), "a");
}

#[test]
fn names_that_are_missing_hidden_or_elsewhere_are_refused() {
    let site = site();
    for (entry, status) in [
        ("missing", 404),
        ("secret", 404),
        (".hidden", 404),
        ("deep%2Fsecret", 400),
        ("deep/kept", 400),
        ("..", 400),
        (".", 400),
        ("%2e%2e", 400),
        ("a%00b", 400),
        ("", 400),
        ("%2Fetc", 400),
    ] {
        for format in ["tar", "zip"] {
            let path = format!("/folder/?archive={format}&entry=other.txt&entry={entry}");
            let reply = site.get(&path);
            assert_eq!(reply.status, status, "{path}: {}", reply.text());
        }
    }
    assert_eq!(site.get("/folder/?archive=rar&entry=large").status, 400);
    // One page of names, as a browser sends them, is within the largest head.
    let many: String = (0..1_000).map(|number| format!("&entry=missing-{number}")).collect();
    assert_eq!(site.get(&format!("/folder/?archive=tar{many}")).status, 404);
}
