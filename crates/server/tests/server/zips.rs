//! A folder as one zip: its checksums are made once, and only where they are needed.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use super::rig::{Running, Site, folder, pattern, request, skip, wait_until};

const ZIP: &str = "/folder/?archive=zip";

/// The bytes of all files below.
const BYTES: f64 = ((5 << 20) + 3 + 100_001 + 5) as f64;

fn site() -> Site {
    let site = Site::of(&[("folder/a.txt", b"first"), ("folder/empty", b""), ("other", b"x")]);
    site.write("folder/large", &pattern((5 << 20) + 3));
    site.write("folder/deep/er/file", &pattern(100_001));
    site.write("folder/.hidden", b"hidden");
    fs::create_dir(site.path("folder/nothing")).unwrap();
    symlink("a.txt", site.path("folder/link")).unwrap();
    site
}

/// Runs a program on an archive; returns whether it is installed.
fn run(program: &str, args: &[&str], archive: &[u8], into: &Path) -> bool {
    fs::write(into.join("archive.zip"), archive).unwrap();
    let mut command = Command::new(program);
    command.args(args).current_dir(into).stdin(Stdio::null());
    match command.output() {
        Ok(output) => assert!(output.status.success(), "{program}: {output:?}"),
        Err(why) => {
            skip(&format!("{program}: {why}"));
            return false;
        }
    }
    true
}

fn read_bytes(site: &Running) -> f64 {
    site.metric("digest_read_bytes_total")
}

#[test]
fn a_folder_is_a_zip_of_known_length_that_unpacks_to_itself() {
    let site = site().start();
    let head = site.ask("HEAD", ZIP, &[]);
    assert_eq!(read_bytes(&site), 0.0, "the head needs no checksum");
    let reply = site.get(ZIP);
    assert_eq!((reply.status, reply.field("Content-Type")), (200, Some("application/zip")));
    assert_eq!(head.field("Content-Length"), reply.field("Content-Length"));
    assert_eq!(head.field("ETag"), reply.field("ETag"));
    assert_eq!(reply.field("Accept-Ranges"), Some("bytes"));
    assert_eq!(reply.field("Content-Disposition"), Some("attachment; filename=\"folder.zip\""));
    for (program, args) in [("unzip", "-q"), ("bsdtar", "-xf")] {
        let into = folder();
        if !run(program, &[args, "archive.zip"], &reply.body, into.path()) {
            continue;
        }
        let at = |name: &str| into.path().join("folder").join(name);
        assert_eq!(fs::read(at("a.txt")).unwrap(), b"first");
        assert!(fs::read(at("large")).unwrap() == pattern((5 << 20) + 3));
        assert!(fs::read(at("deep/er/file")).unwrap() == pattern(100_001));
        assert_eq!(fs::read(at("empty")).unwrap(), b"");
        assert!(at("nothing").is_dir());
        assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("a.txt"));
        assert!(!at(".hidden").exists());
    }
    assert!(site.metric("sent_bytes_total{mechanism=\"sendfile\"}") >= (5 << 20) as f64);
    // Each file was read once, and is not for the next client.
    assert_eq!(read_bytes(&site), BYTES);
    assert!(site.get(ZIP).body == reply.body);
    assert_eq!(read_bytes(&site), BYTES);
}

#[test]
fn ranges_of_a_zip_are_those_of_the_whole() {
    let site = site().start();
    let len: usize = site.ask("HEAD", ZIP, &[]).field("Content-Length").unwrap().parse().unwrap();
    let mut client = site.connect();
    let mut ask = |range: &str| client.ask("GET", ZIP, &[&format!("Range: bytes={range}")]);
    // The middle of a file needs no checksum.
    let middle = ask("1000000-1000099").body;
    assert_eq!(read_bytes(&site), 0.0);
    // The end needs those of all files, though none of them is sent.
    let end = ask("-650").body;
    assert_eq!(read_bytes(&site), BYTES);
    let mut joined = Vec::new();
    while joined.len() < len {
        let reply = ask(&format!("{}-{}", joined.len(), joined.len() + 500_002));
        assert_eq!(reply.status, 206);
        joined.extend(reply.body);
    }
    let whole = site.get(ZIP).body;
    assert!(joined == whole);
    assert!(middle == whole[1_000_000..1_000_100] && end == whole[len - 650..]);
    for (from, to) in [(0, 1), (29, 31), (1000, 5_200_000), (len - 1, len), (len - 23, len)] {
        assert!(ask(&format!("{from}-{}", to - 1)).body == whole[from..to], "{from} {to}");
    }
    assert_eq!(ask(&format!("{len}-")).status, 416);
    let two = ask("0-99,2000000-2000099").body;
    let has = |part: &[u8]| two.windows(part.len()).any(|window| window == part);
    assert!(has(&whole[..100]) && has(&whole[2_000_000..2_000_100]));
}

#[test]
fn a_broken_download_of_a_zip_is_resumed_only_if_nothing_changed() {
    let site = site().start();
    let first = site.get(ZIP);
    let tag = first.field("ETag").unwrap().to_owned();
    assert_ne!(site.get("/folder/?archive=tar").field("ETag"), Some(tag.as_str()));
    let fields = ["Range: bytes=1000000-", &format!("If-Range: {tag}")];
    let rest = site.ask("GET", ZIP, &fields);
    assert!(rest.status == 206 && rest.body == first.body[1_000_000..]);
    assert_eq!(site.ask("GET", ZIP, &[&format!("If-None-Match: {tag}")]).status, 304);
    fs::write(site.path("folder/a.txt"), b"other").unwrap();
    wait_until("the change is seen", || {
        site.connect().try_ask("GET", ZIP, &fields).is_ok_and(|reply| reply.status == 200)
    });
    // Only the checksum of the changed file is made again.
    site.get(ZIP);
    assert_eq!(read_bytes(&site), BYTES + 5.0);
}

#[test]
fn a_member_that_changes_in_mid_zip_resets_the_connection() {
    for (changed, in_place) in [("folder/a", true), ("folder/z", false)] {
        let site = Site::new();
        site.write("folder/a", &pattern(24 << 20));
        site.write("folder/z", &pattern(1000));
        let site = site.start();
        let mut client = site.connect_narrow();
        client.send(request("GET", ZIP, &[]));
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
fn a_checksum_is_made_once_for_all_that_wait_for_it() {
    let site = Site::new();
    site.write("folder/large", &pattern(48 << 20));
    let site = site.start();
    let mut clients: Vec<_> = (0..8).map(|_| site.connect_narrow()).collect();
    for client in &mut clients {
        client.send(request("GET", ZIP, &["Range: bytes=-100"]));
    }
    let ends: Vec<_> =
        clients.iter_mut().map(|client| client.try_reply(true).unwrap().body).collect();
    assert!(ends.iter().all(|end| end.len() == 100 && *end == ends[0]));
    assert_eq!(read_bytes(&site), (48 << 20) as f64);
}

#[test]
fn a_client_that_leaves_while_a_checksum_is_made_ends_that() {
    let site = Site::new();
    let file = fs::File::create(site.path("sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    fs::create_dir(site.path("folder")).unwrap();
    fs::rename(site.path("sparse"), site.path("folder/sparse")).unwrap();
    let site = site.start();
    let mut client = site.connect();
    client.send(request("GET", ZIP, &["Range: bytes=-100"]));
    assert_eq!(client.head().unwrap().status, 206);
    wait_until("it is read", || read_bytes(&site) > 0.0);
    drop(client);
    // It would take minutes; the thread ends when nothing is left to do.
    wait_until("nothing is read any more", || threads("checksum") == 0);
    assert!(read_bytes(&site) < (1_u64 << 40) as f64);
}

/// Threads of this process with this name, of the servers of all tests.
fn threads(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|comm| comm.trim_end() == name).count()
}
