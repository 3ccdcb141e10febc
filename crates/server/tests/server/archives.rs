//! A folder as one tar: whole, in ranges, resumed, and never with mixed versions.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use super::rig::{Running, Site, folder, pattern, request, skip, wait_until};
use super::uploads::{open_site, send};

const LARGE: usize = (5 << 20) + 3;

/// The bytes of all files in [`site`]'s folder.
pub(crate) const BYTES: f64 = (LARGE + 100_001 + 5) as f64;

pub(crate) fn site() -> Site {
    let site = Site::of(&[("folder/a.txt", b"first"), ("folder/empty", b""), ("other", b"x")]);
    site.write("folder/large", &pattern(LARGE));
    site.write("folder/deep/er/file", &pattern(100_001));
    site.write("folder/.hidden", b"hidden");
    fs::create_dir(site.path("folder/nothing")).unwrap();
    symlink("a.txt", site.path("folder/link")).unwrap();
    site
}

pub(crate) const TAR: &str = "/folder/?archive=tar";

/// Runs a program on an archive; returns whether it is installed.
fn unpack(program: &str, option: &str, archive: &[u8], into: &Path) -> bool {
    fs::write(into.join("archive"), archive).unwrap();
    let mut command = Command::new(program);
    command.args([option, "archive"]).current_dir(into).stdin(Stdio::null());
    let output = command.output();
    match &output {
        Ok(output) => assert!(output.status.success(), "{program}: {output:?}"),
        Err(why) => skip(&format!("{program}: {why}")),
    }
    output.is_ok()
}

/// Checks the head of a whole archive, and what programs with these options unpack; returns its
/// bytes.
pub(crate) fn check_whole(site: &Running, url: &str, programs: [(&str, &str); 2]) -> Vec<u8> {
    let head = site.ask("HEAD", url, &[]);
    let reply = site.get(url);
    assert_eq!(reply.status, 200);
    for name in ["Content-Type", "Content-Length", "Content-Disposition", "ETag"] {
        assert_eq!(head.field(name), reply.field(name));
    }
    assert_eq!(reply.field("Accept-Ranges"), Some("bytes"));
    assert_eq!(reply.field("Cache-Control"), Some("no-cache"));
    assert_eq!(reply.field("Last-Modified"), None, "it would stay when a file is removed");
    for (program, option) in programs {
        let into = folder();
        if !unpack(program, option, &reply.body, into.path()) {
            continue;
        }
        let at = |name: &str| into.path().join("folder").join(name);
        assert_eq!(fs::read(at("a.txt")).unwrap(), b"first");
        assert!(fs::read(at("large")).unwrap() == pattern(LARGE));
        assert!(fs::read(at("deep/er/file")).unwrap() == pattern(100_001));
        assert_eq!(fs::read(at("empty")).unwrap(), b"");
        assert!(at("nothing").is_dir());
        assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("a.txt"));
        assert!(!at(".hidden").exists());
    }
    assert!(site.metric("sent_bytes_total{mechanism=\"sendfile\"}") >= LARGE as f64);
    reply.body
}

/// Checks ranges of an archive, these among them, and returns all of it.
pub(crate) fn check_ranges(site: &Running, url: &str, ranges: &[(usize, usize)]) -> Vec<u8> {
    let head = site.ask("HEAD", url, &[]);
    let len: usize = head.field("Content-Length").unwrap().parse().unwrap();
    let mut client = site.connect();
    let mut ask = |range: &str| client.ask("GET", url, &[&format!("Range: bytes={range}")]);
    let mut joined = Vec::new();
    while joined.len() < len {
        let reply = ask(&format!("{}-{}", joined.len(), joined.len() + 500_002));
        assert_eq!(reply.status, 206);
        joined.extend(reply.body);
    }
    let whole = site.get(url).body;
    assert!(joined == whole);
    for (from, to) in ranges.iter().copied().chain([(0, 1), (len - 1, len)]) {
        assert!(ask(&format!("{from}-{}", to - 1)).body == whole[from..to], "{from} {to}");
    }
    assert_eq!(ask("-100").body, whole[len - 100..]);
    let behind = ask(&format!("{len}-"));
    assert_eq!(behind.status, 416);
    assert_eq!(behind.field("Content-Range"), Some(format!("bytes */{len}").as_str()));
    let two = ask("0-99,2000000-2000099").body;
    let has = |part: &[u8]| two.windows(part.len()).any(|window| window == part);
    assert!(has(&whole[..100]) && has(&whole[2_000_000..2_000_100]));
    whole
}

/// Checks that an archive is resumed until a file in it has changed; returns its first tag.
pub(crate) fn check_resumption(site: &Running, url: &str) -> String {
    let first = site.get(url);
    let tag = first.field("ETag").unwrap().to_owned();
    let fields = ["Range: bytes=1000000-", &format!("If-Range: {tag}")];
    let rest = site.ask("GET", url, &fields);
    assert!(rest.status == 206 && rest.body == first.body[1_000_000..]);
    assert_eq!(site.ask("GET", url, &[&format!("If-None-Match: {tag}")]).status, 304);
    // No date tells one version of a folder from another.
    let date = httpdate::fmt_http_date(SystemTime::now());
    let ranged = ["Range: bytes=9-", &format!("If-Range: {date}")];
    assert_eq!(site.ask("GET", url, &ranged).status, 200);
    assert_eq!(site.ask("GET", url, &[&format!("If-Modified-Since: {date}")]).status, 200);
    fs::write(site.path("folder/a.txt"), b"other").unwrap();
    // What was laid out a moment ago is kept for a second.
    wait_until("the change is seen", || {
        site.connect().try_ask("GET", url, &fields).is_ok_and(|reply| reply.status == 200)
    });
    assert_ne!(site.ask("GET", url, &fields).field("ETag"), Some(tag.as_str()));
    tag
}

/// Checks that an archive in which a member changes ends in a reset.
pub(crate) fn check_changing_members(url: &str) {
    for (changed, in_place) in [("folder/a", true), ("folder/z", false)] {
        let site = Site::new();
        site.write("folder/a", &pattern(24 << 20));
        site.write("folder/z", &pattern(1000));
        let site = site.start();
        let mut client = site.connect_narrow();
        client.send(request("GET", url, &[]));
        assert_eq!(client.head().unwrap().status, 200);
        client.take(1 << 20).unwrap();
        if in_place {
            let file = fs::File::options().write(true).open(site.path(changed)).unwrap();
            file.write_all_at(b"other", 0).unwrap();
        } else {
            fs::write(site.path(changed), "shorter").unwrap();
        }
        let end = client.end().map_err(|error| error.kind());
        assert_eq!(end, Err(io::ErrorKind::ConnectionReset), "{changed}");
        wait_until("it is logged", || {
            site.lines().iter().any(|line| line.contains("\"failure\":\"changed\""))
        });
    }
}

#[test]
fn a_folder_is_an_archive_of_known_length_that_unpacks_to_itself() {
    let site = site().start();
    let reply = site.ask("HEAD", TAR, &[]);
    assert_eq!(reply.field("Content-Type"), Some("application/x-tar"));
    assert_eq!(reply.field("Content-Disposition"), Some("attachment; filename=\"folder.tar\""));
    check_whole(&site, TAR, [("tar", "-xf"), ("bsdtar", "-xf")]);
}

#[test]
fn ranges_of_an_archive_are_those_of_the_whole() {
    check_ranges(&site().start(), TAR, &[(511, 513), (1000, 3_200_000)]);
}

#[test]
fn a_broken_download_of_an_archive_is_resumed_only_if_nothing_changed() {
    check_resumption(&site().start(), TAR);
}

#[test]
fn a_member_that_changes_in_mid_archive_resets_the_connection() {
    check_changing_members(TAR);
}

#[test]
fn an_archive_after_a_change_of_another_program_is_whole() {
    let site = Site::of(&[("folder/a", b"first"), ("folder/z", b"last")]).start();
    let whole = (1..=20).filter(|round| {
        site.get(TAR);
        fs::write(site.path("folder/a"), format!("in round {round}")).unwrap();
        let mut client = site.connect();
        client.send(request("GET", TAR, &[]));
        client.try_reply(true).is_ok()
    });
    // A walk that the machine holds up is kept for longer.
    let whole = whole.count();
    assert!(whole > 10, "{whole} of 20");
}

#[test]
fn a_broken_download_does_not_resume_after_a_change_of_bytes_in_flight() {
    let site = Site::new();
    site.write("folder/a", &pattern(100_000));
    site.write("folder/z", &pattern(24 << 20));
    let site = site.start();
    let len = 1 << 20;
    for is_closed in [true, false] {
        let mut client = site.connect_narrow();
        client.send(request("GET", TAR, &[]));
        let head = client.head().unwrap();
        let tag = head.field("ETag").unwrap().to_owned();
        // All of it is in flight by now, and pages are sent by reference.
        client.take(len / 2).unwrap();
        let file = fs::File::options().write(true).open(site.path("folder/a")).unwrap();
        file.write_all_at(b"other", 50_000).unwrap();
        client.take(len / 2).unwrap();
        if is_closed {
            drop(client);
        }
        let fields = [&*format!("Range: bytes={len}-1100000"), &format!("If-Range: {tag}")];
        let mut other = site.connect_narrow();
        other.send(request("GET", TAR, &fields));
        let reply = other.head().unwrap();
        assert_eq!(reply.status, 200, "the folder is in another version");
        assert_ne!(reply.field("ETag"), Some(tag.as_str()));
    }
}

#[test]
fn links_that_leave_the_root_are_members_where_they_are_followed() {
    for follows in [false, true] {
        let site = site();
        symlink("/etc/passwd", site.path("folder/passwd")).unwrap();
        symlink("../../../../../../../../../etc/passwd", site.path("folder/up")).unwrap();
        let site = site.with_site(|site| site.allows_symlinks_outside = follows).start();
        let tar = site.get(TAR).body;
        assert_eq!(tar.windows(6).any(|window| window == b"passwd"), follows);
        let status = if follows { 200 } else { 404 };
        assert_eq!(site.get("/folder/?archive=zip&entry=passwd").status, status);
        assert_eq!(site.get("/folder/?archive=zip&entry=link").status, 200);
    }
}

#[test]
fn archives_can_be_disabled_and_other_formats_are_refused() {
    let site = site().with_site(|site| site.archive = false).start();
    assert_eq!(site.get(TAR).status, 403);
    assert_eq!(site.get("/folder/?archive=zip").status, 403);
    let mut client = site.connect();
    client.send(request(
        "POST",
        "/folder/?archive=zip",
        &["Content-Length: 9", "Expect: 100-continue"],
    ));
    assert_eq!(client.reply().status, 403, "before the names have arrived");
    assert!(
        !site.ask("GET", "/folder/", &["Accept: text/html"]).text().contains("name=\"archive\"")
    );
    let site: Running = Site::of(&[("folder/a", b"x")]).start();
    assert_eq!(site.get("/folder/?archive=rar").status, 400);
    assert_eq!(site.get("/folder/?archive").status, 400);
    assert_eq!(site.get("/folder?archive=tar").field("Location"), Some("./folder/?archive=tar"));
}

#[test]
fn folders_that_are_not_listed_have_no_archives() {
    type Change = fn(&mut underpass_server::Settings);
    let changes: [(Change, u16); 3] = [
        (|settings| settings.sites[0].listing = false, 403),
        (|settings| settings.sites[0].renders_index = true, 403),
        // Only the root has another page.
        (|settings| settings.sites[0].renders_spa = true, 200),
    ];
    for (change, below) in changes {
        let site = site().with(change).start();
        for target in ["/?archive=tar", "/?archive=zip&entry=folder"] {
            let reply = site.get(target);
            assert_eq!(reply.status, 403, "{target}");
            assert!(!reply.text().contains("other"), "{target}");
        }
        assert_eq!(site.get("/folder/?archive=tar").status, below);
        let mut client = site.connect();
        client.send(request("POST", "/?archive=tar", &["Content-Length: 12"]));
        client.send("entry=folder");
        assert_eq!(client.reply().status, 403);
    }
}

#[test]
fn an_archive_has_changes_that_were_acknowledged_before() {
    let site = open_site().with_site(|site| site.changes.delete = true);
    site.write("folder/old", b"old");
    let server = site.start();
    let mut before = server.get(TAR).body.len();
    for (verb, name, fields, body) in [
        ("PUT", "new", &[][..], &b"new"[..]),
        ("PUT", "new", &[], &[7; 2000]),
        ("PATCH", "new", &["X-Update-Range: append"], &[7; 2000]),
        ("MKCOL", "sub/", &[], b""),
        ("COPY", "new", &["Destination: /folder/copy"], b""),
    ] {
        let mut client = server.connect();
        send(&mut client, verb, &format!("/folder/{name}"), fields, body);
        let status = client.reply().status;
        assert!([201, 204].contains(&status), "{verb} {status}");
        let after = server.get(TAR).body.len();
        assert!(after > before, "{verb} {name}: {before} {after}");
        before = after;
    }
    server.ask("DELETE", "/folder/new", &[]);
    assert!(server.get(TAR).body.len() < before);
}
