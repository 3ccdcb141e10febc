//! Parts of a folder's page: its transferred length, its paging, its icon, and logging out.

use std::fs;

use super::rig::{Running, Site};
use underpass_server::Changes;

const BROWSER: [&str; 2] = ["Accept: text/html", "Sec-Fetch-Dest: document"];

/// The hrefs of the links between pages.
fn pages(site: &Running, path: &str) -> (String, Vec<(String, String)>) {
    let page = site.ask("GET", path, &BROWSER).text();
    let summary = page.split("class=\"summary\">").nth(1).unwrap().split("</p>").next().unwrap();
    let links = page
        .split("<nav class=\"pages\"")
        .nth(1)
        .map_or("", |nav| nav.split("</nav>").next().unwrap());
    let links = links.split("href=\"").skip(1).map(|link| {
        let (href, rest) = link.split_once("\">").unwrap();
        (rest.split('<').next().unwrap().to_owned(), href.replace("&amp;", "&"))
    });
    (summary.to_owned(), links.collect())
}

/// Browsers send `Sec-Fetch-*` only to https and to localhost.
#[test]
fn a_browser_gets_paged_listings_over_plain_http_too() {
    let site = Site::new();
    (0..2_001).for_each(|number| site.write(&number.to_string(), b""));
    let site = site.start();
    let is_cut = |fields: &[&str]| site.ask("GET", "/", fields).text().contains("(page 1 of 2)");
    assert!(is_cut(&BROWSER));
    assert!(is_cut(&["Accept: text/html", "Upgrade-Insecure-Requests: 1"]));
    assert!(!is_cut(&["Accept: text/html"]));
}

#[test]
fn each_page_leads_to_the_ones_before_and_after_it() {
    let site = Site::new();
    for number in 0..25 {
        site.write(&format!("{number:02}"), &vec![b'x'; number * 7 % 5]);
    }
    let site = site.start();
    for order in ["", "&sort=size&order=desc", "&sort=time"] {
        let mut forth = vec![format!("/?limit=6{order}")];
        loop {
            let (_, links) = pages(&site, forth.last().unwrap());
            let next = links.iter().find(|(text, _)| text == "Next page");
            let Some((_, next)) = next else { break };
            forth.push(format!("/{next}"));
        }
        assert_eq!(forth.len(), 5, "{forth:?}");
        let mut back = vec![forth[4].clone()];
        for number in (1..=4).rev() {
            let (summary, links) = pages(&site, back.last().unwrap());
            assert!(summary.contains(&format!("(page {} of 5)", number + 1)), "{summary}");
            let (_, previous) = links.iter().find(|(text, _)| text == "Previous page").unwrap();
            back.push(format!("/{previous}"));
        }
        let rows = |path: &String| {
            let page = site.ask("GET", path, &BROWSER).text();
            let rows = page.split("<tbody>").nth(1).unwrap().split("</table>").next().unwrap();
            rows.to_owned()
        };
        back.reverse();
        for (one, other) in forth.iter().zip(&back) {
            assert_eq!(rows(one), rows(other), "{one} {other}");
        }
        let (summary, links) = pages(&site, &forth[0]);
        assert!(summary.contains("(page 1 of 5)"), "{summary}");
        assert_eq!(links.len(), 1, "{links:?}");
    }
    assert!(pages(&site, "/").1.is_empty());
}

/// The length of a page as a browser gets it, without the framing of chunks.
fn transferred(site: &Running, path: &str) -> usize {
    let fields = [&BROWSER[..], &["Accept-Encoding: gzip, deflate, br, zstd"]].concat();
    let reply = site.ask("GET", path, &fields);
    assert_eq!((reply.status, reply.field("Content-Encoding")), (200, Some("gzip")));
    reply.body.len()
}

#[test]
fn a_page_is_small_as_it_is_sent() {
    let site = Site::new();
    for name in ["docs", "music", "photos"] {
        fs::create_dir(site.path(name)).unwrap();
    }
    for number in 0..9 {
        site.write(&format!("file with a name {number}.tar.gz"), &vec![0; 1000 * number]);
    }
    let readme = "# Title\n\nA [link](music/) and a table.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n";
    site.write("README.md", readme.as_bytes());
    fs::create_dir(site.path("many")).unwrap();
    for number in 0..5_000_u32 {
        let name = format!("many/{:08x}-{number}.jpg", number.wrapping_mul(2_654_435_761));
        site.write(&name, &vec![0; number as usize % 300]);
    }
    let changes = Changes { upload: true, delete: true, ..Changes::default() };
    let site = site.with_site(|site| site.changes = changes).start();
    // With all that uploads and changes need, and a README.
    let len = transferred(&site, "/");
    assert!(len <= 20 << 10, "{len} bytes");
    let len = transferred(&site, "/many/?limit=5000");
    assert!(len <= 150 << 10, "{len} bytes");
}

#[test]
fn the_icon_that_browsers_request_exists_unless_a_file_replaces_it() {
    let site = Site::new().start();
    let icon = site.get("/favicon.ico");
    assert_eq!((icon.status, icon.field("Content-Type")), (200, Some("image/svg+xml")));
    assert!(icon.text().starts_with("<svg ") && icon.field("Cache-Control").is_some());
    assert_eq!(site.ask("HEAD", "/favicon.ico", &[]).status, 200);
    assert_eq!(site.get("/folder/favicon.ico").status, 404);
    fs::write(site.path("favicon.ico"), "own").unwrap();
    assert_eq!(site.get("/favicon.ico").text(), "own");
    for change in [
        |settings: &mut underpass_server::Settings| settings.sites[0].listing = false,
        |settings: &mut underpass_server::Settings| settings.sites[0].renders_index = true,
    ] {
        assert_eq!(Site::new().with(change).start().get("/favicon.ico").status, 404);
    }
}

#[test]
fn logging_out_is_a_challenge_whatever_the_password() {
    let alice = "Authorization: Basic YWxpY2U6c2VjcmV0"; // alice:secret
    let site = Site::of(&[("file", b"x")]).auth(&["alice:secret@/"]).start();
    let page = site.ask("GET", "/", &[&BROWSER[..], &[alice]].concat()).text();
    assert!(page.contains("name=\"logout\"") && !page.contains("name=\"login\""));
    let out = site.ask("GET", "/?logout=1", &[&BROWSER[..], &[alice]].concat());
    assert_eq!(out.status, 401);
    assert!(out.field("WWW-Authenticate").unwrap().starts_with("Basic realm="));
    assert!(out.text().contains("you are logged out"));
    // A page of another site cannot do it.
    let foreign = site.ask("GET", "/?logout=1", &["Sec-Fetch-Site: cross-site", alice]);
    assert_eq!(foreign.status, 200);
    let open = Site::of(&[("file", b"x")]).start();
    assert_eq!(open.get("/?logout=1").status, 200);
}

#[test]
fn a_user_without_the_right_is_offered_to_log_in_as_another() {
    let alice = "Authorization: Basic YWxpY2U6c2VjcmV0"; // alice:secret
    let files: &[(&str, &[u8])] = &[("hers/file", b"x"), ("his/file", b"x")];
    let site = Site::of(files).auth(&["alice:secret@/hers", "bob:other@/"]).start();
    let ask = |path: &str, fields: &[&str]| site.ask("GET", path, &[&BROWSER[..], fields].concat());
    let refused = ask("/his/file", &[alice]);
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("<a href=\"?login\">Log in as another user</a>"));
    let asked = ask("/his/file?login", &[alice]);
    assert_eq!(asked.status, 401);
    assert!(asked.field("WWW-Authenticate").unwrap().starts_with("Basic realm="));
    let bob = "Authorization: Basic Ym9iOm90aGVy"; // bob:other
    assert_eq!(ask("/his/file?login", &[bob]).text(), "x", "the address then gives the file");
    // A page of another site cannot make the browser forget the password.
    let foreign = ask("/his/file?login", &["Sec-Fetch-Site: cross-site", alice]);
    assert_eq!(foreign.status, 403);
}
