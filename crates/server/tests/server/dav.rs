//! Properties of files and folders: what WebDAV clients can read and set, and with which rights.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::changes_delete::{open_site, statuses};
use super::rig::{FileSystem, Mounted, Reply, Running, Site, age, request};

const ALICE: &str = "Authorization: Basic YWxpY2U6c2VjcmV0MQ=="; // alice:secret1
const BOB: &str = "Authorization: Basic Ym9iOnNlY3JldDI="; // bob:secret2

/// Sends a request with a body.
pub(crate) fn send(site: &Running, verb: &str, path: &str, fields: &[&str], body: &str) -> Reply {
    let length = format!("Content-Length: {}", body.len());
    let mut client = site.connect();
    client.send(request(verb, path, &[fields, &[length.as_str()]].concat()) + body);
    client.reply()
}

/// The links that a PROPFIND of a folder and its entries has, in order.
fn links(site: &Running, path: &str, fields: &[&str]) -> Vec<String> {
    let reply = site.ask("PROPFIND", path, &[&["Depth: 1"], fields].concat());
    assert_eq!(reply.status, 207, "{path}: {}", reply.text());
    let text = reply.text();
    let links = text.split("<D:response><D:href>").skip(1);
    let mut links: Vec<_> = links.map(|rest| rest.split_once('<').unwrap().0.to_owned()).collect();
    links.sort();
    links
}

/// The value of a property in a reply.
fn value(reply: &Reply, name: &str) -> String {
    let text = reply.text();
    let (_, rest) = text.split_once(&format!("<D:{name}>")).unwrap_or_else(|| panic!("{text}"));
    rest.split_once("</").unwrap().0.replace("&quot;", "\"")
}

fn patch(site: &Running, path: &str, changes: &str) -> Reply {
    let body = format!(
        "<D:propertyupdate xmlns:D='DAV:' xmlns:x='urn:x' \
         xmlns:w='urn:schemas-microsoft-com:'>{changes}</D:propertyupdate>"
    );
    send(site, "PROPPATCH", path, &[], &body)
}

#[test]
fn a_removed_root_has_no_properties() {
    let site = open_site(&[]).start();
    fs::remove_dir_all(site.path("")).unwrap();
    for depth in ["Depth: 0", "Depth: 1"] {
        assert_eq!(site.ask("PROPFIND", "/", &[depth]).status, 404, "{depth}");
    }
    let set = "<D:set><D:prop><x:note>x</x:note></D:prop></D:set>";
    assert_eq!(patch(&site, "/", set).status, 404);
}

#[test]
fn properties_match_the_fields_of_get() {
    let site = Site::of(&[("dir/a b&c.txt", b"hello"), ("dir/sub/x", b"")]).start();
    age(&site.path("dir/a b&c.txt"), 3600);
    let path = "/dir/a%20b%26c.txt";
    let (head, found) = (site.ask("HEAD", path, &[]), site.ask("PROPFIND", path, &["Depth: 0"]));
    assert_eq!(found.status, 207, "{}", found.text());
    assert_eq!(found.field("Content-Type"), Some("application/xml; charset=utf-8"));
    for (property, field) in [
        ("getetag", "ETag"),
        ("getlastmodified", "Last-Modified"),
        ("getcontentlength", "Content-Length"),
        ("getcontenttype", "Content-Type"),
    ] {
        assert_eq!(Some(&*value(&found, property)), head.field(field), "{property}");
    }
    assert_eq!(value(&found, "displayname"), "a b&amp;c.txt");
    assert_eq!(value(&found, "href"), path);
    // Storing a digest with the file does not change its tag here, either.
    assert_eq!(site.get(&format!("{path}?hash")).status, 200);
    let (head, found) = (site.ask("HEAD", path, &[]), site.ask("PROPFIND", path, &["Depth: 1"]));
    assert_eq!(Some(&*value(&found, "getetag")), head.field("ETag"));
    let folder = site.ask("PROPFIND", "/dir", &["Depth: 0"]);
    assert!(folder.text().contains("<D:collection/>") && !folder.text().contains("getetag"));
    assert_eq!(folder.field("Content-Location"), Some("/dir/"));
    assert_eq!(links(&site, "/dir", &[]), ["/dir/", path, "/dir/sub/"]);
}

#[test]
fn requested_properties_are_returned_and_missing_ones_named() {
    let site = Site::of(&[("file", b"x")]).start();
    let ask = |inside: &str| {
        let body = format!("<propfind xmlns='DAV:'>{inside}</propfind>");
        send(&site, "PROPFIND", "/file", &["Depth: 0"], &body)
    };
    let reply = ask("<prop><getcontentlength/><nothing xmlns='urn:n'/></prop>").text();
    let (there, missing) = reply.split_once("200 OK").unwrap();
    assert!(there.contains("<D:getcontentlength>1</D:getcontentlength>"), "{reply}");
    assert!(missing.contains("<x:nothing xmlns:x=\"urn:n\"/>") && missing.contains("404"));
    let names = ask("<propname/>").text();
    assert!(names.contains("<D:getetag/>") && !names.contains("404"), "{names}");
    let quota = "<propfind xmlns='DAV:'><prop><quota-available-bytes/></prop></propfind>";
    let quota = send(&site, "PROPFIND", "/", &["Depth: 0"], quota);
    assert!(value(&quota, "quota-available-bytes").parse::<u64>().unwrap() > 0);
    for bad in ["", "<a/>", "<prop><x:y/></prop>", "<allprop>"] {
        assert_eq!(ask(bad).status, 400, "{bad}");
    }
    let bomb = "<!DOCTYPE a [<!ENTITY e 'x'>]><propfind xmlns='DAV:'><allprop/></propfind>";
    assert_eq!(send(&site, "PROPFIND", "/file", &["Depth: 0"], bomb).status, 400);
    assert_eq!(send(&site, "PROPFIND", "/file", &["Depth: 0"], &" ".repeat(70_000)).status, 413);
}

#[test]
fn depth_is_bounded_and_bodies_come_in_any_form() {
    let site = Site::of(&[("file", b"x"), ("dir/file", b"x")]).start();
    for (depth, path, status) in [
        (Some("Depth: infinity"), "/dir/", 403),
        (None, "/dir/", 403),
        (Some("Depth: 2"), "/dir/", 400),
        (Some("Depth: infinity"), "/file", 207),
        (None, "/file", 207),
        (Some("Depth: 0"), "/nothing", 404),
        (Some("Depth: 0"), "/file/", 404),
    ] {
        let fields: Vec<_> = depth.into_iter().collect();
        let reply = site.ask("PROPFIND", path, &fields);
        assert_eq!(reply.status, status, "{path} {depth:?}");
        assert_eq!(reply.text().contains("propfind-finite-depth"), status == 403);
    }
    let mut client = site.connect();
    let chunks = ["<propfind xmlns='DAV:'>", "<propname/>", "</propfind>"];
    let body: String = chunks.iter().map(|one| format!("{:x}\r\n{one}\r\n", one.len())).collect();
    let fields = ["Depth: 0", "Transfer-Encoding: chunked"];
    client.send(request("PROPFIND", "/file", &fields) + &body + "0\r\n\r\n");
    client.send(request("GET", "/file", &[]));
    assert!(client.reply().text().contains("<D:getetag/>"));
    assert_eq!(client.reply().text(), "x", "the next request follows the body");
    let fields = ["Depth: 0", "Content-Length: 45", "Expect: 100-continue"];
    client.send(request("PROPFIND", "/file", &fields));
    assert_eq!(client.head().unwrap().status, 100);
    client.send(chunks.concat());
    assert_eq!(client.reply().status, 207);
    assert_eq!(client.get("/file").text(), "x");
}

#[test]
fn properties_reveal_nothing_that_listings_hide() {
    let files: &[(&str, &[u8])] =
        &[(".hidden", b"x"), ("kept/file", b"x"), ("secret.key", b"x"), ("open/file", b"x")];
    let site = Site::of(files).with_site(|site| site.hide = vec!["*.key".to_owned()]).start();
    symlink("/etc/passwd", site.path("out")).unwrap();
    symlink("open/file", site.path("in")).unwrap();
    assert_eq!(links(&site, "/", &[]), ["/", "/in", "/kept/", "/open/"]);
    statuses(
        &site,
        &[
            ("PROPFIND", "/.hidden", &["Depth: 0"], 404),
            ("PROPFIND", "/secret.key", &["Depth: 0"], 404),
            ("PROPFIND", "/out", &["Depth: 0"], 404),
            ("PROPFIND", "/.underpass/metrics", &["Depth: 0"], 405),
        ],
    );
    for change in [
        |settings: &mut underpass_server::Settings| settings.sites[0].listing = false,
        |settings: &mut underpass_server::Settings| settings.sites[0].renders_index = true,
    ] {
        let site = Site::of(files).with(change).start();
        let rows: [(&str, &str, &[&str], u16); 3] = [
            ("PROPFIND", "/", &["Depth: 1"], 403),
            ("PROPFIND", "/", &["Depth: 0"], 207),
            ("PROPFIND", "/kept/file", &["Depth: 1"], 207),
        ];
        statuses(&site, &rows);
    }
}

#[test]
fn users_see_what_they_may_read() {
    let files: &[(&str, &[u8])] = &[("bob/deep/file", b"x"), ("alice/file", b"x"), ("top", b"x")];
    let rules = ["alice:secret1@/:rw", "bob:secret2@/bob/deep"];
    let site = open_site(files).auth(&rules).start();
    assert_eq!(links(&site, "/", &[BOB]), ["/", "/bob/"]);
    assert_eq!(links(&site, "/", &[ALICE]), ["/", "/alice/", "/bob/", "/top"]);
    let depth = "Depth: 0";
    statuses(
        &site,
        &[
            ("PROPFIND", "/", &[depth], 401),
            ("PROPFIND", "/top", &[depth, BOB], 403),
            ("PROPFIND", "/alice/", &[depth, BOB], 403),
            ("PROPFIND", "/bob/deep/file", &[depth, BOB], 207),
            ("PROPPATCH", "/bob/deep/file", &[BOB], 403),
            ("LOCK", "/bob/deep/file", &[BOB], 403),
            ("UNLOCK", "/bob/deep/file", &[BOB], 403),
        ],
    );
    // The time of a folder that only leads on would reveal changes that the user may not see.
    let reply = site.ask("PROPFIND", "/bob/", &[depth, BOB]);
    assert!(!reply.text().contains("getlastmodified"), "{}", reply.text());
}

#[test]
fn a_read_only_server_reports_properties_and_stores_none() {
    let site = Site::of(&[("file", b"x")]).start();
    assert_eq!(site.ask("OPTIONS", "/", &[]).field("DAV"), Some("1"));
    for verb in ["PROPPATCH", "LOCK", "UNLOCK"] {
        assert_eq!(site.ask(verb, "/file", &[]).status, 405, "{verb}");
    }
    let site = open_site(&[("file", b"x")]).start();
    let reply = site.ask("OPTIONS", "/", &[]);
    assert_eq!((reply.field("DAV"), reply.field("MS-Author-Via")), (Some("1, 2"), Some("DAV")));
    assert!(reply.field("Allow").unwrap().ends_with("PROPPATCH, LOCK, UNLOCK"));
    for verb in ["PROPPATCH", "LOCK", "UNLOCK"] {
        let reply = site.ask(verb, "/file", &["Origin: http://example.org"]);
        assert_eq!(reply.status, 403, "{verb}");
    }
    let file = site.path("file");
    let single = Site::of(&[]).with_site(|site| site.root = Some(file)).start();
    assert_eq!(value(&single.ask("PROPFIND", "/", &["Depth: 1"]), "getcontentlength"), "1");
}

#[test]
fn an_upload_gets_the_time_of_its_original_without_a_fraction() {
    let site = open_site(&[]).start();
    for (sent, time) in [
        ("1000000000", Some(1_000_000_000)),
        ("1000000001.75", Some(1_000_000_001)),
        ("1000000000.7x", None),
        ("-1", None),
    ] {
        let reply = send(&site, "PUT", "/file", &[&format!("X-OC-Mtime: {sent}")], "text");
        assert_eq!(reply.field("X-OC-MTime"), time.map(|_| "accepted"), "{sent}");
        let stored = fs::metadata(site.path("file")).unwrap();
        assert!(
            time.is_none_or(|time| (stored.mtime(), stored.mtime_nsec()) == (time, 0)),
            "{sent}"
        );
    }
}

#[test]
fn times_are_set_and_other_computed_properties_are_not() {
    let site = open_site(&[("file", b"x")]).start();
    let time = "Thu, 02 Jan 2020 03:04:05 GMT";
    for (property, seconds) in [
        ("<D:getlastmodified>Thu, 02 Jan 2020 03:04:05 GMT</D:getlastmodified>", 1_577_934_245),
        (
            "<w:Win32LastModifiedTime>Fri, 03 Jan 2020 00:00:00 GMT</w:Win32LastModifiedTime>\
          <w:Win32FileAttributes>00000020</w:Win32FileAttributes>",
            1_578_009_600,
        ),
        ("<D:lastmodified>1577934245</D:lastmodified>", 1_577_934_245),
    ] {
        let reply = patch(&site, "/file", &format!("<D:set><D:prop>{property}</D:prop></D:set>"));
        assert_eq!(reply.status, 207);
        assert!(reply.text().contains("200 OK"), "{}", reply.text());
        assert_eq!(fs::metadata(site.path("file")).unwrap().mtime(), seconds, "{property}");
    }
    let unknown = "<D:set><D:prop><w:Win32LastModifiedTime>Mon, 01 Jan 1601 00:00:00 GMT\
        </w:Win32LastModifiedTime></D:prop></D:set>";
    assert!(patch(&site, "/file", unknown).text().contains("200 OK"));
    let found = site.ask("PROPFIND", "/file", &["Depth: 0"]);
    assert_eq!(value(&found, "getlastmodified"), time);
    assert!(found.text().contains(">00000020</x:Win32FileAttributes>"), "{}", found.text());
    let both = "<D:set><D:prop><D:getetag>x</D:getetag><x:a>1</x:a>\
        <D:getlastmodified>yesterday</D:getlastmodified></D:prop></D:set>";
    let reply = patch(&site, "/file", both).text();
    for status in ["403 Forbidden", "409 Conflict", "424 Failed Dependency"] {
        assert!(reply.contains(status), "{reply}");
    }
    assert!(!site.ask("PROPFIND", "/file", &["Depth: 0"]).text().contains("urn:x"));
}

#[test]
fn stored_properties_move_to_another_file_system() {
    let Some(mounted) = Mounted::new(FileSystem::Ext4, 16) else { return };
    // The mount point has a name in the folder that is served.
    let folder = mounted.root().parent().unwrap().to_owned();
    fs::create_dir_all(folder.join("dir/deep")).unwrap();
    for name in ["single", "dir/x", "dir/deep/y"] {
        fs::write(folder.join(name), name).unwrap();
    }
    let site = Site::new().with_site(|site| {
        site.root = Some(folder.clone());
        site.changes.upload = true;
        site.changes.delete = true;
    });
    let site = site.start();
    for path in ["/single", "/dir/", "/dir/x", "/dir/deep/", "/dir/deep/y"] {
        let set = format!("<D:set><D:prop><x:own>{path}</x:own></D:prop></D:set>");
        if !patch(&site, path, &set).text().contains("200 OK") {
            return super::rig::skip("this file system has no extended attributes");
        }
    }
    let moves = [("/single", "Destination: /root/single"), ("/dir/", "Destination: /root/moved/")];
    for (path, to) in moves {
        statuses(&site, &[("MOVE", path, &[to], 201)]);
    }
    for (from, to) in [
        ("/single", "/root/single"),
        ("/dir/", "/root/moved/"),
        ("/dir/x", "/root/moved/x"),
        ("/dir/deep/", "/root/moved/deep/"),
        ("/dir/deep/y", "/root/moved/deep/y"),
    ] {
        let found = site.ask("PROPFIND", to, &["Depth: 0"]).text();
        assert!(found.contains(&format!(">{from}</x:own>")), "{to}: {found}");
        assert!(!folder.join(&from[1..]).exists(), "{from}");
    }
}

#[test]
fn stored_properties_stay_with_their_file() {
    let site = open_site(&[("file", b"x"), ("dir/x", b"x")]).start();
    let set = "<D:set><D:prop><x:color xml:lang='de'>blau &amp; <x:b/></x:color></D:prop></D:set>";
    let stored = "<x:color xmlns:x=\"urn:x\" xml:lang=\"de\">blau &amp; ";
    let has = |path: &str| site.ask("PROPFIND", path, &["Depth: 0"]).text().contains(stored);
    for path in ["/file", "/dir/", "/dir/x"] {
        let reply = patch(&site, path, set);
        if !reply.text().contains("200 OK") {
            return super::rig::skip("this file system has no extended attributes");
        }
        assert!(has(path), "{path}");
    }
    statuses(
        &site,
        &[
            ("COPY", "/file", &["Destination: /copy"], 201),
            ("MOVE", "/file", &["Destination: /moved"], 201),
            ("COPY", "/dir/", &["Destination: /whole/"], 201),
            ("COPY", "/dir/", &["Destination: /alone/", "Depth: 0"], 201),
        ],
    );
    assert!(has("/copy") && has("/moved"));
    assert!(has("/whole/") && has("/whole/x") && has("/alone/"));
    assert_eq!(send(&site, "PUT", "/moved", &[], "new").status, 204);
    assert!(has("/moved"), "a new version of the same file");
    assert_eq!(site.get("/moved").text(), "new");
    let large = format!("<D:set><D:prop><x:l>{}</x:l></D:prop></D:set>", "x".repeat(4000));
    assert!(patch(&site, "/moved", &large).text().contains("507 Insufficient Storage"));
    assert!(has("/moved"));
    patch(&site, "/moved", "<D:remove><D:prop><x:color/><x:none/></D:prop></D:remove>");
    assert!(!has("/moved") && has("/copy"));
    symlink("copy", site.path("link")).unwrap();
    assert_eq!(patch(&site, "/link", set).status, 403);
    assert_eq!(patch(&site, "/nothing", set).status, 404);
}

#[test]
fn properties_that_cannot_be_read_are_not_replaced() {
    let site = open_site(&[("file", b"x")]).start();
    let set = |property: &str| {
        let set = format!("<D:set><D:prop>{property}</D:prop></D:set>");
        patch(&site, "/file", &set)
    };
    if !set("<x:keep>kept</x:keep>").text().contains("200 OK") {
        return super::rig::skip("this file system has no extended attributes");
    }
    let attributes: String = (0..32).map(|number| format!(" x:a{number}='1'")).collect();
    assert!(set(&format!("<x:many{attributes}/>")).text().contains("200 OK"));
    // One more attribute, inherited from the language around it, is too many to be stored.
    let more = format!("<D:set xml:lang='de'><D:prop><x:more{attributes}/></D:prop></D:set>");
    assert!(patch(&site, "/file", &more).text().contains("507 "));
    let found = site.ask("PROPFIND", "/file", &["Depth: 0"]).text();
    assert!(found.contains(">kept</x:keep>") && found.contains("<x:many "), "{found}");
    let (name, foreign) = ("user.underpass.properties", b"another program's");
    setxattr(site.path("file"), name, foreign, XattrFlags::REPLACE).unwrap();
    assert_eq!(set("<x:new/>").status, 409);
    let time = "<D:getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</D:getlastmodified>";
    assert!(set(time).text().contains("200 OK"));
    let mut bytes = [0; 64];
    let len = getxattr(site.path("file"), name, &mut bytes[..]).unwrap();
    assert_eq!(&bytes[..len], foreign);
}

#[test]
fn a_property_changes_the_tag_even_right_after_the_file_or_its_digest_was_stored() {
    let site = open_site(&[]).start();
    for round in 0..30 {
        let path = format!("/{round}");
        let put = send(&site, "PUT", &path, &[], "x");
        assert_eq!(put.status, 201, "{}", put.text());
        if round % 2 == 0 {
            assert_eq!(site.get(&format!("{path}?hash")).status, 200);
        }
        let tag = site.ask("HEAD", &path, &[]).field("ETag").unwrap().to_owned();
        let changes = "<D:set><D:prop><x:p>1</x:p></D:prop></D:set>";
        assert_eq!(patch(&site, &path, changes).status, 207);
        assert_ne!(site.ask("HEAD", &path, &[]).field("ETag"), Some(&*tag), "{round}");
    }
}
