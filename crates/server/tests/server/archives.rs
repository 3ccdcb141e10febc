//! A folder as one tar: whole, in ranges, resumed, and never one with a mixture in it.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use super::rig::{Running, Site, folder, pattern, request, skip};
use super::uploads::{open_site, send};

fn site() -> Site {
    let site = Site::of(&[("folder/a.txt", b"first"), ("folder/empty", b""), ("other", b"x")]);
    site.write("folder/large", &pattern(3 << 20));
    site.write("folder/deep/er/file", &pattern(100_001));
    site.write("folder/.hidden", b"hidden");
    fs::create_dir(site.path("folder/nothing")).unwrap();
    symlink("a.txt", site.path("folder/link")).unwrap();
    site
}

const TAR: &str = "/folder/?archive=tar";

/// Unpacks an archive with this program.
fn unpack(program: &str, archive: &[u8], into: &Path) {
    let file = into.join("archive.tar");
    fs::write(&file, archive).unwrap();
    let mut command = Command::new(program);
    command.arg("-xf").arg(&file).arg("-C").arg(into).stdin(Stdio::null());
    match command.output() {
        Ok(output) => assert!(output.status.success(), "{program}: {output:?}"),
        Err(why) => skip(&format!("{program}: {why}")),
    }
}

#[test]
fn a_folder_is_an_archive_of_known_length_that_unpacks_to_itself() {
    let site = site().start();
    let head = site.ask("HEAD", TAR, &[]);
    let reply = site.get(TAR);
    assert_eq!((reply.status, reply.field("Content-Type")), (200, Some("application/x-tar")));
    assert_eq!(head.field("Content-Length"), reply.field("Content-Length"));
    assert_eq!(reply.field("Accept-Ranges"), Some("bytes"));
    assert_eq!(reply.field("Content-Disposition"), Some("attachment; filename=\"folder.tar\""));
    for program in ["tar", "bsdtar"] {
        let into = folder();
        unpack(program, &reply.body, into.path());
        if !into.path().join("folder").exists() {
            continue;
        }
        let at = |name: &str| into.path().join("folder").join(name);
        assert_eq!(fs::read(at("a.txt")).unwrap(), b"first");
        assert!(fs::read(at("large")).unwrap() == pattern(3 << 20));
        assert!(fs::read(at("deep/er/file")).unwrap() == pattern(100_001));
        assert_eq!(fs::read(at("empty")).unwrap(), b"");
        assert!(at("nothing").is_dir());
        assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("a.txt"));
        assert!(!at(".hidden").exists());
    }
    assert!(site.metric("sent_bytes_total{mechanism=\"sendfile\"}") >= (3 << 20) as f64);
}

#[test]
fn ranges_of_an_archive_are_those_of_the_whole() {
    let site = site().start();
    let whole = site.get(TAR).body;
    let mut client = site.connect();
    let mut ask = |range: &str| client.ask("GET", TAR, &[&format!("Range: bytes={range}")]);
    let mut joined = Vec::new();
    while joined.len() < whole.len() {
        let reply = ask(&format!("{}-{}", joined.len(), joined.len() + 500_002));
        assert_eq!(reply.status, 206);
        joined.extend(reply.body);
    }
    assert!(joined == whole);
    for (from, to) in [(0, 1), (511, 513), (1000, 3_200_000), (whole.len() - 1, whole.len())] {
        assert!(ask(&format!("{from}-{}", to - 1)).body == whole[from..to], "{from} {to}");
    }
    assert_eq!(ask("-100").body, whole[whole.len() - 100..]);
    let behind = ask(&format!("{}-", whole.len()));
    assert_eq!(behind.status, 416);
    assert_eq!(behind.field("Content-Range"), Some(format!("bytes */{}", whole.len()).as_str()));
    let two = ask("0-99,2000000-2000099").body;
    let has = |part: &[u8]| two.windows(part.len()).any(|window| window == part);
    assert!(has(&whole[..100]) && has(&whole[2_000_000..2_000_100]));
}

#[test]
fn a_broken_download_of_an_archive_is_resumed_only_if_nothing_changed() {
    let site = site().start();
    let first = site.get(TAR);
    let tag = first.field("ETag").unwrap().to_owned();
    let resume = || site.ask("GET", TAR, &["Range: bytes=1000000-", &format!("If-Range: {tag}")]);
    let rest = resume();
    assert!(rest.status == 206 && rest.body == first.body[1_000_000..]);
    let unchanged = site.ask("GET", TAR, &[&format!("If-None-Match: {tag}")]);
    assert_eq!(unchanged.status, 304);
    fs::write(site.path("folder/a.txt"), b"other").unwrap();
    // What was laid out a moment ago is kept for a second.
    super::rig::wait_until("the change is seen", || {
        let mut client = site.connect();
        let fields = ["Range: bytes=1000000-", &format!("If-Range: {tag}")];
        client.try_ask("GET", TAR, &fields).is_ok_and(|reply| reply.status == 200)
    });
    assert_ne!(resume().field("ETag"), Some(tag.as_str()));
}

#[test]
fn a_member_that_changes_in_mid_archive_resets_the_connection() {
    let site = Site::new();
    let len = 24 << 20;
    site.write("folder/a", &pattern(len));
    site.write("folder/z", &pattern(1000));
    let site = site.start();
    for (changed, contents) in [("folder/a", &b"other"[..]), ("folder/z", b"shorter")] {
        let mut client = site.connect_narrow();
        client.send(request("GET", TAR, &[]));
        assert_eq!(client.head().unwrap().status, 200);
        client.take(1 << 20).unwrap();
        if changed == "folder/a" {
            let file = fs::File::options().write(true).open(site.path(changed)).unwrap();
            file.write_all_at(contents, 0).unwrap();
        } else {
            fs::write(site.path(changed), contents).unwrap();
        }
        let end = client.end().map_err(|error| error.kind());
        assert_eq!(end, Err(io::ErrorKind::ConnectionReset), "{changed}");
        std::thread::sleep(std::time::Duration::from_millis(1100)); // until it is laid out again
    }
    assert!(site.lines().iter().any(|line| line.contains("\"failure\":\"changed\"")));
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
fn a_broken_download_does_not_continue_after_a_change_of_what_was_on_its_way() {
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
        // All of it is on its way by now, and pages go by reference.
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
        let site =
            site.with(|settings| settings.sites[0].allows_symlinks_outside = follows).start();
        let tar = site.get(TAR).body;
        assert_eq!(tar.windows(6).any(|window| window == b"passwd"), follows);
        let status = if follows { 200 } else { 404 };
        assert_eq!(site.get("/folder/?archive=zip&entry=passwd").status, status);
        assert_eq!(site.get("/folder/?archive=zip&entry=link").status, 200);
    }
}

#[test]
fn archives_can_be_refused_and_other_formats_are() {
    let site = site().with(|settings| settings.sites[0].archive = false).start();
    assert_eq!(site.get(TAR).status, 400);
    assert_eq!(site.get("/folder/?archive=zip").status, 400);
    assert!(
        !site.ask("GET", "/folder/", &["Accept: text/html"]).text().contains("name=\"archive\"")
    );
    let site: Running = Site::of(&[("folder/a", b"x")]).start();
    assert_eq!(site.get("/folder/?archive=rar").status, 400);
    assert_eq!(site.get("/folder/?archive").status, 400);
    assert_eq!(site.get("/folder?archive=tar").field("Location"), Some("./folder/?archive=tar"));
}

#[test]
fn an_archive_has_what_was_acknowledged_before() {
    let site = open_site().with(|settings| settings.sites[0].changes.delete = true);
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
