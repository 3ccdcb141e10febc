//! Several entries of a folder as one archive: those alone, and none that may not be seen.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

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
    site.with(|settings| settings.sites[0].hide = vec!["secret".to_owned()]).start()
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
    assert_ne!(site.get("/folder/?archive=tar").field("ETag"), whole.field("ETag"));
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
