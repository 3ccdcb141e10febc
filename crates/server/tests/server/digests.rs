//! Digests: of the whole file with every part of it, computed once, stored with the file, and never
//! those of another version.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use sha2::{Digest as _, Sha256, Sha512};
use underpass_engine::Version;
use underpass_protocol::digest::{Algorithm, Digest, write_digests};
use underpass_server::digest::stored;

use super::rig::{
    FileSystem, Mounted, Reply, Running, Site, pattern, request, settings, skip, wait_until,
};

const WANT: &str = "Want-Repr-Digest: sha-256=1";
const LEN: usize = 24 << 20;

fn sha256(bytes: &[u8]) -> Digest {
    Digest::new(Algorithm::Sha256, Sha256::digest(bytes).as_slice()).unwrap()
}

fn sha512(bytes: &[u8]) -> Digest {
    Digest::new(Algorithm::Sha512, Sha512::digest(bytes).as_slice()).unwrap()
}

#[track_caller]
fn assert_digest(reply: &Reply, status: u16, digest: &Digest) {
    assert_eq!(reply.status, status, "{}", reply.text());
    assert_eq!(reply.field("Repr-Digest"), Some(write_digests([digest]).as_str()));
}

/// A served folder in which files can have attributes.
struct Ground {
    site: Running,
    root: PathBuf,
    _mounted: Option<Mounted>,
}

impl Ground {
    /// The usual folder; if it is on a file system that cannot keep digests (overlayfs, in a
    /// container), one on a file system of its own. `None`, with a message, if that fails.
    fn new(files: &[(&str, &[u8])]) -> Option<Self> {
        let site = Site::new();
        let probe = site.path("probe");
        fs::write(&probe, "probe").unwrap();
        let mounted = match keep(&probe, b"probe") {
            Ok(()) => None,
            Err(_) => Some(Mounted::new(FileSystem::Ext4, 100)?),
        };
        fs::remove_file(probe).unwrap();
        let root = mounted.as_ref().map_or_else(|| site.path("."), Mounted::root);
        files.iter().for_each(|(name, bytes)| fs::write(root.join(name), bytes).unwrap());
        let site = site.with_site(|site| site.root = Some(root.clone())).start();
        Some(Self { site, root, _mounted: mounted })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The digest that is stored with a file.
    fn kept(&self, name: &str) -> Option<Vec<Digest>> {
        load_digest(&self.path(name)).map(stored::StoredDigest::into_digests)
    }

    /// Another server of this folder, with nothing in memory.
    fn another(&self) -> Running {
        let mut site = Site::new();
        site.settings = settings(&self.root);
        site.start()
    }
}

fn load_digest(path: &Path) -> Option<stored::StoredDigest> {
    let file = File::open(path).unwrap();
    stored::load_digest(&file, &Version::of(&file).unwrap())
}

fn keep(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let file = File::open(path)?;
    stored::store(&file, &Version::of(&file)?, &[sha256(bytes)]).map(drop)
}

#[test]
fn every_response_with_bytes_of_a_file_has_the_digest_of_the_whole() {
    for len in [0, 1, 12 << 10, 300_000] {
        let bytes = pattern(len);
        let site = Site::of(&[("file", &bytes)]).start();
        let digest = sha256(&bytes);
        assert_digest(&site.ask("HEAD", "/file", &[WANT]), 200, &digest);
        let whole = site.ask("GET", "/file", &[WANT]);
        assert_digest(&whole, 200, &digest);
        assert!(whole.body == bytes);
        if len > 1 {
            let part = site.ask("GET", "/file", &[WANT, "Range: bytes=1-9"]);
            assert_digest(&part, 206, &digest);
            assert!(part.body == bytes[1..10]);
            let parts = site.ask("GET", "/file", &[WANT, "Range: bytes=0-0,-1"]);
            assert_digest(&parts, 206, &digest);
        }
        assert_eq!(site.metric("digests_total"), 1.0);
        assert_eq!(site.metric("digest_read_bytes_total"), len as f64);
    }
}

#[test]
fn no_digest_without_request_or_without_bytes() {
    let site = Site::of(&[("file", b"text"), ("folder/file", b"text")]).start();
    assert_eq!(site.get("/file").field("Repr-Digest"), None);
    for want in ["sha-256=0", "sha-256=11", "sha-256", "md5=10", "sha-256=:AA==:", "sha-256=1,", ""]
    {
        let reply = site.ask("GET", "/file", &[&format!("Want-Repr-Digest: {want}")]);
        assert_eq!((reply.status, reply.field("Repr-Digest")), (200, None), "{want}");
    }
    let etag = site.get("/file").field("ETag").unwrap().to_owned();
    let not_modified = site.ask("GET", "/file", &[WANT, &format!("If-None-Match: {etag}")]);
    assert_eq!((not_modified.status, not_modified.field("Repr-Digest")), (304, None));
    for (status, path, field) in [
        (412, "/file", "If-Match: \"other\""),
        (416, "/file", "Range: bytes=4-"),
        (404, "/none", "Accept: */*"),
        (200, "/folder/", "Accept: */*"),
        (200, "/folder/?archive=tar", "Accept: */*"),
    ] {
        let reply = site.ask("GET", path, &[WANT, field]);
        assert_eq!((reply.status, reply.field("Repr-Digest")), (status, None), "{path}");
    }
    assert_eq!(site.metric("digest_read_bytes_total"), 0.0, "no file was read");
}

#[test]
fn the_preferred_digest_is_sent_unless_another_is_known() {
    let site = Site::of(&[("file", b"text")]).start();
    let ask = |want: &str| site.ask("HEAD", "/file", &[&format!("Want-Repr-Digest: {want}")]);
    assert_digest(&ask("sha-256=3, sha-512=10, md5=10"), 200, &sha512(b"text"));
    assert_digest(&ask("sha-256=10, sha-512=3"), 200, &sha512(b"text"));
    assert_digest(&ask("sha-256=10"), 200, &sha256(b"text"));
    assert_digest(&ask("sha-512=3, sha-256=10"), 200, &sha256(b"text"));
    assert_eq!(site.metric("digests_total"), 2.0);
}

#[test]
fn a_compressed_form_has_its_own_digest() {
    let site =
        Site::of(&[("file.txt", b"text"), ("file.txt.gz", b"\x1f\x8bpacked\x04\0\0\0")]).start();
    let packed = site.ask("GET", "/file.txt", &[WANT, "Accept-Encoding: gzip"]);
    assert_eq!(packed.field("Content-Encoding"), Some("gzip"));
    assert_digest(&packed, 200, &sha256(b"\x1f\x8bpacked\x04\0\0\0"));
    assert_digest(&site.ask("GET", "/file.txt", &[WANT]), 200, &sha256(b"text"));
    // That of the file, whatever form of it the client would accept.
    let hash = site.ask("GET", "/file.txt?hash", &["Accept-Encoding: gzip"]);
    assert_eq!(hash.text(), sha256(b"text").hex());
}

#[test]
fn a_hash_query_returns_the_digest_in_hexadecimal() {
    let site = Site::of(&[("file", b"text")]).start();
    let reply = site.get("/file?hash");
    assert_eq!((reply.status, reply.text()), (200, sha256(b"text").hex()));
    assert_eq!(reply.field("Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(site.get("/file?hash=sha-512").text(), sha512(b"text").hex());
    assert_eq!(site.get("/file?hash=sha256").text(), sha256(b"text").hex());
    let head = site.ask("HEAD", "/file?hash", &[]);
    assert_eq!((head.status, head.field("Content-Length")), (200, Some("64")));
    let unknown = site.get("/file?hash=md5");
    assert_eq!(unknown.status, 400);
    assert!(unknown.text().contains("sha-256 and sha-512"), "{}", unknown.text());
    assert_eq!(site.get("/none?hash").status, 404);
}

#[test]
fn no_digest_without_the_right_to_read() {
    let site = Site::of(&[("file", b"text")]).auth(&["me:secret@/"]).start();
    assert_eq!(site.get("/file?hash").status, 401);
    assert_eq!(site.ask("HEAD", "/file", &[WANT]).field("Repr-Digest"), None);
}

#[test]
fn a_generated_file_has_no_digest() {
    let mut site = Site::new();
    site.settings.sites[0].root = Some("/proc/self".into());
    let site = site.start();
    assert_eq!(site.ask("GET", "/status", &[WANT]).field("Repr-Digest"), None);
    assert_eq!(site.get("/status?hash").status, 404);
}

#[test]
fn each_version_has_its_own_digest_at_once() {
    let site = Site::new().start();
    let path = site.path("file");
    for version in 0..20_u8 {
        // In place, with the same length: only the times distinguish the versions.
        let bytes = [version; 1000];
        let options = File::options().write(true).create(true).truncate(false).open(&path);
        options.unwrap().write_all_at(&bytes, 0).unwrap();
        let reply = site.ask("GET", "/file", &[WANT]);
        assert!(reply.body == bytes);
        assert_digest(&reply, 200, &sha256(&bytes));
    }
    fs::write(site.path("new"), "replaced").unwrap();
    fs::rename(site.path("new"), &path).unwrap();
    assert_digest(&site.ask("GET", "/file", &[WANT]), 200, &sha256(b"replaced"));
}

#[test]
fn a_digest_requested_several_times_at_once_is_computed_once() {
    let bytes = pattern(LEN);
    let site = Site::of(&[("file", &bytes)]).with(|settings| settings.workers = 2).start();
    let digest = sha256(&bytes);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_digest(&site.ask("HEAD", "/file", &[WANT]), 200, &digest));
        }
    });
    assert_eq!(site.metric("digests_total"), 1.0);
    assert_eq!(site.metric("digest_read_bytes_total"), LEN as f64);
}

#[test]
fn a_file_that_is_written_to_all_the_time_is_served_without_a_wrong_digest() {
    let site = Site::new().start();
    let path = site.path("log");
    let mut log = File::create(&path).unwrap();
    log.write_all(&pattern(1 << 20)).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                log.write_all(b"another line\n").unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        });
        for _ in 0..5 {
            let Ok(reply) = site.connect().try_ask("GET", "/log", &[WANT]) else { continue };
            if let Some(field) = reply.field("Repr-Digest").filter(|_| reply.status == 200) {
                assert_eq!(field, write_digests([&sha256(&reply.body)]));
            }
            let hash = site.get("/log?hash");
            assert!(matches!(hash.status, 200 | 503), "{}", hash.status);
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let bytes = fs::read(&path).unwrap();
    assert_eq!(site.get("/log?hash").text(), sha256(&bytes).hex());
}

#[test]
fn a_digest_is_stored_with_its_file_without_a_change_of_the_tag() {
    let bytes = pattern(100_000);
    let Some(ground) = Ground::new(&[("file", &bytes)]) else { return };
    let tag = ground.site.get("/file").field("ETag").unwrap().to_owned();
    let modified = fs::metadata(ground.path("file")).unwrap().modified().unwrap();
    assert_digest(&ground.site.ask("HEAD", "/file", &[WANT]), 200, &sha256(&bytes));
    wait_until("it is kept", || ground.kept("file") == Some(vec![sha256(&bytes)]));
    assert_eq!(fs::metadata(ground.path("file")).unwrap().modified().unwrap(), modified);
    // A second algorithm is stored in addition to the first.
    assert_eq!(ground.site.get("/file?hash=sha-512").text(), sha512(&bytes).hex());
    wait_until("both are kept", || ground.kept("file").is_some_and(|kept| kept.len() == 2));

    let another = ground.another();
    for site in [&ground.site, &another] {
        let reply = site.ask("GET", "/file", &[WANT]);
        assert_digest(&reply, 200, &sha256(&bytes));
        assert_eq!(reply.field("ETag"), Some(tag.as_str()));
        assert_eq!(site.ask("GET", "/file", &[&format!("If-None-Match: {tag}")]).status, 304);
        let rest = site.ask("GET", "/file", &["Range: bytes=9-", &format!("If-Range: {tag}")]);
        assert_eq!(rest.status, 206);
    }
    assert_eq!(another.get("/file?hash=sha-512").text(), sha512(&bytes).hex());
    assert_eq!(another.metric("digest_read_bytes_total"), 0.0, "nothing had to be read again");
}

#[test]
fn a_stored_digest_is_invalid_after_any_change_of_the_file() {
    let changes: [fn(&Path); 4] = [
        |path| File::options().write(true).open(path).unwrap().write_all_at(b"other", 5).unwrap(),
        |path| {
            // With the mtime set back, as some programs do.
            let file = File::options().write(true).open(path).unwrap();
            let modified = file.metadata().unwrap().modified().unwrap();
            file.write_all_at(b"other", 5).unwrap();
            file.set_modified(modified).unwrap();
        },
        |path| fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap(),
        |path| File::options().append(true).open(path).unwrap().write_all(b"more").unwrap(),
    ];
    for change in changes {
        let Some(ground) = Ground::new(&[("file", &pattern(1000))]) else { return };
        let tag = ground.site.ask("HEAD", "/file", &[WANT]).field("ETag").unwrap().to_owned();
        wait_until("it is kept", || ground.kept("file").is_some());
        // Later than the attribute by more than the clock can be imprecise.
        thread::sleep(Duration::from_millis(50));
        change(&ground.path("file"));
        assert_eq!(ground.kept("file"), None);
        let bytes = fs::read(ground.path("file")).unwrap();
        for site in [&ground.site, &ground.another()] {
            let reply = site.ask("GET", "/file", &[WANT]);
            assert_digest(&reply, 200, &sha256(&bytes));
            assert_ne!(reply.field("ETag"), Some(tag.as_str()));
        }
    }
}

#[test]
fn a_running_download_is_not_disturbed_by_storing_a_digest() {
    let bytes = pattern(LEN);
    let Some(ground) = Ground::new(&[("file", &bytes)]) else { return };
    let mut slow = ground.site.connect_narrow();
    slow.send(request("GET", "/file", &[]));
    let tag = slow.head().unwrap().field("ETag").unwrap().to_owned();
    let begun = slow.take(1 << 20).unwrap();
    assert_digest(&ground.site.ask("HEAD", "/file", &[WANT]), 200, &sha256(&bytes));
    wait_until("it is kept", || ground.kept("file") == Some(vec![sha256(&bytes)]));
    let rest = slow.take(LEN - (1 << 20)).unwrap();
    assert!(begun == bytes[..1 << 20] && rest == bytes[1 << 20..]);
    let again = ground.site.ask("HEAD", "/file", &[WANT]);
    assert_eq!(again.field("ETag"), Some(tag.as_str()));
    assert_eq!(ground.site.metric("digests_total"), 1.0);
}

#[test]
fn a_running_archive_is_not_disturbed_either() {
    let bytes = pattern(LEN);
    let Some(ground) = Ground::new(&[("file", &bytes)]) else { return };
    let mut slow = ground.site.connect_narrow();
    slow.send(request("GET", "/?archive=tar", &[]));
    let head = slow.head().unwrap();
    let len: usize = head.field("Content-Length").unwrap().parse().unwrap();
    slow.take(1 << 20).unwrap();
    assert_digest(&ground.site.ask("HEAD", "/file", &[WANT]), 200, &sha256(&bytes));
    wait_until("it is kept", || ground.kept("file").is_some());
    slow.take(len - (1 << 20)).unwrap();
}

#[test]
fn a_digest_that_cannot_be_stored_is_remembered() {
    for (kind, is_kept) in [(FileSystem::Tmpfs, None), (FileSystem::Overlay, Some(false))] {
        let Some(mounted) = Mounted::new(kind, 64) else { return };
        let path = mounted.root().join("file");
        fs::write(&path, "text").unwrap();
        let mut site = Site::new();
        site.settings = settings(&mounted.root());
        let site = site.start();
        let tag = site.get("/file").field("ETag").unwrap().to_owned();
        for _ in 0..3 {
            let reply = site.ask("HEAD", "/file", &[WANT]);
            assert_digest(&reply, 200, &sha256(b"text"));
            assert_eq!(reply.field("ETag"), Some(tag.as_str()));
        }
        assert_eq!(site.metric("digests_total"), 1.0, "{kind:?}");
        if let Some(is_kept) = is_kept {
            assert_eq!(load_digest(&path).is_some(), is_kept);
        }
        drop(site);
    }
}

#[test]
fn the_digest_of_a_read_only_file_is_remembered() {
    let Some(mounted) = Mounted::new(FileSystem::Tmpfs, 16) else { return };
    fs::write(mounted.root().join("file"), "text").unwrap();
    let remount = ["-o", "remount,ro"];
    let status = std::process::Command::new("mount").args(remount).arg(mounted.root()).status();
    if !status.is_ok_and(|status| status.success()) {
        return skip("a file system cannot be made read-only here");
    }
    let mut site = Site::new();
    site.settings = settings(&mounted.root());
    let site = site.start();
    for _ in 0..3 {
        assert_digest(&site.ask("HEAD", "/file", &[WANT]), 200, &sha256(b"text"));
    }
    assert_eq!(site.metric("digests_total"), 1.0);
    assert_eq!(load_digest(&mounted.root().join("file")), None);
    assert!(site.notes().is_empty(), "{:?}", site.notes());
    drop(site);
}

#[test]
fn a_digest_without_waiting_clients_is_cancelled() {
    let Some(mounted) = Mounted::new(FileSystem::Tmpfs, 16) else { return };
    // A hole is read without a disk, and takes far longer to be read than to be left.
    const LARGE: u64 = 1 << 40;
    File::create(mounted.root().join("large")).unwrap().set_len(LARGE).unwrap();
    let mut site = Site::new();
    site.settings = settings(&mounted.root());
    let site = site.start();
    let mut client = site.connect();
    client.send(request("HEAD", "/large", &[WANT]));
    let read_bytes = || site.metric("digest_read_bytes_total");
    wait_until("it is being read", || read_bytes() > 0.0);
    // The other one is served meanwhile.
    fs::write(mounted.root().join("small"), "text").unwrap();
    assert_digest(&site.ask("HEAD", "/small", &[WANT]), 200, &sha256(b"text"));
    drop(client);
    wait_until("it is given up", || {
        let before = read_bytes();
        thread::sleep(Duration::from_millis(100));
        read_bytes() == before
    });
    assert!(read_bytes() < LARGE as f64);
    assert_eq!(site.metric("digests_total"), 1.0);
    drop(site);
}

#[test]
fn a_client_with_large_files_does_not_keep_others_waiting() {
    let Some(mounted) = Mounted::new(FileSystem::Tmpfs, 16) else { return };
    let mut site = Site::new();
    site.settings = settings(&mounted.root());
    let site = site.start();
    let digests: Vec<_> = ["a", "b", "c"]
        .map(|name| {
            // A hole is read without a disk, and takes far longer to be read than to be left.
            File::create(mounted.root().join(name)).unwrap().set_len(1 << 40).unwrap();
            let mut client = site.connect();
            client.send(request("GET", &format!("/{name}?hash"), &[]));
            client
        })
        .into();
    wait_until("the first two are read", || site.metric("digest_read_bytes_total") > 0.0);
    fs::write(mounted.root().join("small"), "text").unwrap();
    let reply = site.connect_from(Ipv4Addr::new(127, 0, 0, 2)).get("/small?hash");
    assert_eq!(reply.text(), sha256(b"text").hex());
    drop((digests, site));
}

/// The reply to a PUT of these bytes with a field about them.
fn put(site: &Running, path: &str, field: &str, bytes: &[u8]) -> Reply {
    let mut client = site.connect();
    let len = format!("Content-Length: {}", bytes.len());
    client.send(request("PUT", path, &[field, &len]));
    client.send(bytes);
    client.reply()
}

#[test]
fn an_upload_is_accepted_only_with_the_announced_digest() {
    let site = Site::new().with_site(|site| site.changes.upload = true).start();
    let bytes = pattern(300_000);
    let [right, wrong, long] =
        [sha256(&bytes), sha256(b"other"), sha512(&bytes)].map(|digest| write_digests([&digest]));
    for (status, field) in [
        (201, format!("Repr-Digest: {right}")),
        (201, format!("Content-Digest: {right}, {long}")),
        (201, "Repr-Digest: md5=:AAAAAAAAAAAAAAAAAAAAAA==:".to_owned()),
        (400, format!("Repr-Digest: {wrong}")),
        (400, format!("Content-Digest: {wrong}")),
        (400, format!("Repr-Digest: {wrong}, {long}")),
        (400, "Repr-Digest: sha-256=nonsense".to_owned()),
    ] {
        let reply = put(&site, "/file", &field, &bytes);
        assert_eq!(reply.status, status, "{field}: {}", reply.text());
        if status == 201 {
            assert!(fs::read(site.path("file")).unwrap() == bytes);
            fs::remove_file(site.path("file")).unwrap();
        }
        let left: Vec<_> = fs::read_dir(site.path(".")).unwrap().collect();
        assert!(left.is_empty(), "{field}: {left:?}");
    }
    // The existing file stays if the new one does not have the announced digest.
    assert_eq!(put(&site, "/file", &format!("Repr-Digest: {right}"), &bytes).status, 201);
    assert_eq!(put(&site, "/file", &format!("Repr-Digest: {right}"), b"short").status, 400);
    assert!(fs::read(site.path("file")).unwrap() == bytes);
}

#[test]
fn the_digest_that_came_with_an_upload_is_known() {
    let Some(ground) = Ground::new(&[]) else { return };
    let mut site = Site::new().with_site(|site| site.changes.upload = true);
    site.settings.sites[0].root = Some(ground.root.clone());
    let site = site.start();
    let bytes = pattern(300_000);
    let digest = sha256(&bytes);
    let taken = put(&site, "/file", &format!("Repr-Digest: {}", write_digests([&digest])), &bytes);
    let tag = taken.field("ETag").unwrap().to_owned();
    assert_eq!(site.metric("digest_read_bytes_total"), bytes.len() as f64);
    assert_eq!(ground.kept("file"), Some(vec![digest.clone()]));
    for site in [&site, &ground.another()] {
        let reply = site.ask("HEAD", "/file", &[WANT]);
        assert_digest(&reply, 200, &digest);
        assert_eq!(reply.field("ETag"), Some(tag.as_str()));
    }
    assert_eq!(site.metric("digests_total"), 1.0, "that of the upload");
    // The tag in the response is the one to name when the file is to be replaced.
    let other = put(&site, "/file", "If-Match: \"other\"", b"text");
    assert_eq!(other.status, 412);
    let replaced = put(&site, "/file", &format!("If-Match: {tag}"), b"text");
    assert_eq!(replaced.status, 204, "{}", replaced.text());
    assert_digest(&site.ask("HEAD", "/file", &[WANT]), 200, &sha256(b"text"));
}

#[test]
fn a_file_uploaded_in_parts_is_verified_as_a_whole() {
    let site = Site::new().with_site(|site| site.changes.upload = true).start();
    let bytes = pattern(300_000);
    let (first, rest) = bytes.split_at(100_000);
    let put = |field: &str, range: &str, body: &[u8]| {
        let mut client = site.connect();
        let len = format!("Content-Length: {}", body.len());
        let range = format!("Content-Range: bytes {range}/300000");
        client.send(request("PUT", "/file", &[&range, field, &len]));
        client.send(body);
        client.reply().status
    };
    let (whole, part) = (write_digests([&sha256(&bytes)]), write_digests([&sha256(rest)]));
    for (status, field) in [
        (201, format!("Repr-Digest: {whole}\r\nContent-Digest: {part}")),
        (400, format!("Repr-Digest: {part}")),
        (400, format!("Content-Digest: {whole}")),
    ] {
        assert_eq!(put("Accept: */*", "0-99999", first), 202);
        assert_eq!(put(&field, "100000-299999", rest), status, "{field}");
        if status == 201 {
            assert!(fs::read(site.path("file")).unwrap() == bytes);
            fs::remove_file(site.path("file")).unwrap();
        }
        // Only the last part is refused by its own digest: the one before is still right.
        let kept =
            if field.starts_with("Content-Digest") { vec![first.len() as u64] } else { vec![] };
        let left = fs::read_dir(site.path(".")).unwrap();
        let left: Vec<_> = left.map(|left| left.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(left, kept, "{field}");
    }
    assert_eq!(site.metric("digests_total"), 2.0, "of the last part, and of the whole");
}
