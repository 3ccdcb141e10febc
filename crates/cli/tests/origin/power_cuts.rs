//! Power that is cut at random moments: what has its final name afterwards is whole, and the same
//! command completes the rest. Copies are completed by `--resume`, which must not believe what has the
//! right size and time and not the right bytes.
//!
//! The disk is a file on XFS, so that its content can be cloned atomically while commands write.
//! The clone is mounted, which replays its journal, compared and checked. The volatile cache of a
//! real disk is not simulated.
//!
//! `UNDERPASS_CUTS` says how often, instead of a few times.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use underpass_testkit::edit_journal;

use crate::node::Node;
use crate::rig::{Running, folder, names, noise, noise_file, skip, underpass, until};
use crate::scripted_origin::{Object, Origin};

const SIZE: usize = 24 << 20;

/// Files of the tree that is copied.
const FILES: usize = 24;

fn call(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// An image that is mounted until it is dropped.
struct Mount(PathBuf);

impl Mount {
    fn new(image: &Path, at: &Path) -> Result<Self, String> {
        fs::create_dir_all(at).unwrap();
        call("mount", &["-o", "loop", text(image), text(at)])?;
        Ok(Self(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let path = text(&self.0);
        // A killed process may still be closing its files.
        for _ in 0..100 {
            if call("umount", &[path]).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        let _ = call("umount", &["-l", path]);
    }
}

fn make(image: &Path, mebibytes: u64, kind: &str) -> Result<(), String> {
    File::create(image).unwrap().set_len(mebibytes << 20).unwrap();
    let quiet = if kind == "ext4" { ["-q", "-F"] } else { ["-q", "-f"] };
    call(&format!("mkfs.{kind}"), &[quiet[0], quiet[1], text(image)])
}

fn clone(image: &Path, to: &Path) {
    call("cp", &["--reflink=always", text(image), text(to)]).unwrap();
}

/// The work in progress when the power is cut.
#[derive(Clone, Copy, Debug)]
enum Work {
    Copy,
    Get,
    Put,
}

/// Where the bytes come from.
struct Sources {
    folder: tempfile::TempDir,
    server: Running,
}

impl Sources {
    fn new() -> Self {
        let folder = folder();
        noise_file(folder.path(), "file", SIZE);
        let tree = folder.path().join("tree");
        fs::create_dir(&tree).unwrap();
        for number in 0..FILES {
            noise_file(&tree, &number.to_string(), 100_000 + number * 40_000);
        }
        let server = serve(folder.path(), &[]);
        Self { folder, server }
    }

    /// Begins the work in a folder of the disk: the command, and a server if there has to be one.
    fn begin(&self, work: Work, disk: &Path) -> (Option<Running>, Command) {
        let mut command = underpass();
        let from = |name: &str| self.folder.path().join(name);
        match work {
            Work::Copy => {
                command
                    .args(["cp", "-a", "-T", "--resume"])
                    .arg(from("tree"))
                    .arg(disk.join("copy"));
                (None, command)
            }
            Work::Get => {
                let url = format!("{}file", self.server.address);
                command.args(["get", "--sync", "-q", "-o"]).arg(disk.join("got")).arg(url);
                (None, command)
            }
            Work::Put => {
                let server = serve(disk, &["--allow-upload"]);
                let url = format!("{}put", server.address);
                command.args(["put", "-q"]).arg(from("file")).arg(url);
                (Some(server), command)
            }
        }
    }

    /// Everything of the disk that has its final name is as it should be; whether that is all.
    ///
    /// `is_promised` is false for what was not requested to be on the disk: then it may be less.
    fn compare(&self, work: Work, disk: &Path, is_promised: bool) -> bool {
        let is_same = |name: &Path, original: &str| {
            let Ok(bytes) = fs::read(name) else { return false };
            let expected = fs::read(self.folder.path().join(original)).unwrap();
            let is_same = bytes == expected;
            let (name, len, of) = (name.display(), bytes.len(), expected.len());
            assert!(is_same || !is_promised, "{name}: {len} of {of} bytes, or others");
            is_same
        };
        match work {
            Work::Get => is_same(&disk.join("got"), "file"),
            Work::Put => is_same(&disk.join("put"), "file"),
            Work::Copy => (0..FILES).all(|number| {
                is_same(&disk.join(format!("copy/{number}")), &format!("tree/{number}"))
            }),
        }
    }
}

fn serve(root: &Path, options: &[&str]) -> Running {
    crate::rig::serve(root, &[&["--bind", "127.0.0.1", "-q"], options].concat())
}

/// Does the work until the power is cut after some time; whether it had ended by then.
fn cut(sources: &Sources, work: Work, disk: (&Path, &Path), after: Duration, to: &Path) -> bool {
    let (image, root) = disk;
    let (server, mut command) = sources.begin(work, root);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let is_over = AtomicBool::new(false);
    let has_ended = thread::scope(|scope| {
        // The kernel would write back and commit after seconds: here as often as can be.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = call("sync", &["-f", text(root)]);
                thread::sleep(Duration::from_millis(7));
            }
        });
        thread::sleep(after);
        let has_ended = child.try_wait().unwrap().is_some_and(|status| status.success());
        clone(image, to);
        is_over.store(true, Ordering::Relaxed);
        has_ended
    });
    let _ = child.kill();
    child.wait().unwrap();
    drop(server);
    has_ended
}

/// Makes markers tell of another run of the machine, as they would after a real cut, also where mounts
/// have no numbers of their own.
fn another_boot(copy: &Path) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    // A folder without its final name has its marker, too.
    for folder in fs::read_dir(copy.parent().unwrap()).unwrap().map(Result::unwrap) {
        let Ok(found) = fs::read_dir(folder.path()) else { continue };
        for path in found.map(|entry| entry.unwrap().path()) {
            if path.file_name().unwrap().to_string_lossy().starts_with(".unfinished.") {
                let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                fs::write(&path, text.replace(boot.trim(), "another")).unwrap();
            }
        }
    }
}

fn check(kind: &str, image: &Path) {
    match kind {
        "ext4" => call("e2fsck", &["-fn", text(image)]).unwrap(),
        _ => call("xfs_repair", &["-n", text(image)]).unwrap(),
    }
}

/// Mounts the disk that holds the images of others, at `on` in a folder; skips without the rights.
fn outer_disk(folder: &Path) -> Option<Mount> {
    let image = folder.join("outer");
    let outer = make(&image, 3000, "xfs").and_then(|()| Mount::new(&image, &folder.join("on")));
    outer.map_err(|reason| skip(&reason)).ok()
}

fn rounds() -> u32 {
    std::env::var("UNDERPASS_CUTS").map_or(3, |text| text.parse().unwrap())
}

#[test]
fn named_files_are_complete_after_a_power_cut_and_the_rest_resumes() {
    let scratch = folder();
    let at = |name: &str| scratch.path().join(name);
    let Some(_outer) = outer_disk(scratch.path()) else { return };
    let on = |name: &str| at("on").join(name);
    for kind in ["ext4", "xfs"] {
        make(&on(kind), 400, kind).unwrap();
    }
    let sources = Sources::new();
    let mut moment = 17_u64;
    let (mut ended, mut whole) = (0, 0);
    for round in 0..rounds() {
        let work = [Work::Copy, Work::Get, Work::Put][round as usize % 3];
        let kind = ["ext4", "xfs"][round as usize / 3 % 2];
        moment = moment.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let after = Duration::from_millis((moment >> 33) % 260);
        let (disk, lost) = (on("disk"), on("lost"));
        clone(&on(kind), &disk);
        let mounted = Mount::new(&disk, &at("disk")).unwrap();
        let had_ended = cut(&sources, work, (&disk, &at("disk")), after, &lost);
        drop(mounted);
        let mounted = Mount::new(&lost, &at("disk")).unwrap();
        println!("{round}: {work:?} on {kind} after {after:?}: {:?}", names(&at("disk")));
        // A copy is on the disk only if that was requested.
        let is_promised = !matches!(work, Work::Copy);
        let is_whole = sources.compare(work, &at("disk"), is_promised);
        assert!(is_whole || !had_ended || !is_promised, "{work:?} had ended");
        drop(mounted);
        check(kind, &lost);
        let mounted = Mount::new(&lost, &at("disk")).unwrap();
        // Whether it can be seen or not: the command decides by itself what it does again.
        if !is_whole || matches!(work, Work::Copy) {
            another_boot(&at("disk").join("copy"));
            let (server, mut again) = sources.begin(work, &at("disk"));
            let done = again.output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{work:?}: {}: {said}", done.status);
            drop(server);
        }
        assert!(sources.compare(work, &at("disk"), true), "{work:?} is not completed");
        drop(mounted);
        (ended, whole) = (ended + u32::from(had_ended), whole + u32::from(is_whole));
    }
    println!("{} cuts: {ended} after the end, {whole} whole, none half", rounds());
}

/// Makes the journals of a cache tell of another run of the machine.
fn another_boot_of_cache(cache: &Path) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for shard in fs::read_dir(cache.join("objects")).unwrap().map(Result::unwrap) {
        for path in fs::read_dir(shard.path()).unwrap().map(|entry| entry.unwrap().path()) {
            if path.extension().is_some_and(|it| it == "json") {
                edit_journal(&path, |line| line.replace(boot.trim(), "another"));
            }
        }
    }
}

/// Returns whether a journal says that something is on the disk.
fn has_synced(cache: &Path) -> bool {
    let shards = fs::read_dir(cache.join("objects")).unwrap();
    let files = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
    let mut texts = files.filter_map(|file| fs::read_to_string(file.unwrap().path()).ok());
    texts.any(|text| text.contains("\"safe\":[["))
}

fn used(folder: &Path) -> u64 {
    let output = Command::new("du").args(["-s", "-B1"]).arg(folder).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Reads parts of an object in an order that makes extents leave, until the node ends.
fn read_parts(node: &Node, bytes: &[u8], is_over: &AtomicBool) {
    for part in [2, 0, 3, 1].into_iter().cycle() {
        let start = part * EXTENT;
        let end = (start + EXTENT - (3 << 20)).min(bytes.len());
        let reply = node.range("/a", &format!("{start}-{}", end - 1));
        assert!(bytes[start..end].starts_with(&reply.body));
        if is_over.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// The power is cut while extents of a cache leave and others come. What is there afterwards is right,
/// and takes no more room than it may.
#[test]
fn a_cache_has_no_wrong_byte_after_a_power_cut_while_parts_leave() {
    let scratch = folder();
    let at = |name: &str| scratch.path().join(name);
    let Some(_outer) = outer_disk(scratch.path()) else { return };
    let on = |name: &str| at("on").join(name);
    let (disk, cache) = (at("disk"), at("disk").join("cache"));
    let mut bytes = noise(1 << 20).repeat(200);
    bytes
        .chunks_mut(4096)
        .enumerate()
        .for_each(|(at, page)| page[..8].copy_from_slice(&at.to_le_bytes()));
    let object = Object::new(bytes, "a");
    let bytes = object.bytes.clone();
    let origin = Origin::of(&object);
    let (mut moment, mut evicted, mut fetched) = (u64::from(std::process::id()), 0, 0);
    for round in 0..rounds() {
        let kind = ["ext4", "xfs"][round as usize % 2];
        make(&on("image"), 400, kind).unwrap();
        let mounted = Mount::new(&on("image"), &disk).unwrap();
        let node = Node::at(&cache, &origin.url(), &BUDGET);
        // Two extents that are on the disk for certain.
        node.range("/a", &format!("0-{}", 2 * EXTENT - 1)).assert_is(206, &bytes[..2 * EXTENT]);
        until("bytes that are synced", || has_synced(&cache));
        moment = moment.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let is_over = AtomicBool::new(false);
        let mut node = node;
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = call("sync", &["-f", text(&disk)]);
                    thread::sleep(Duration::from_millis(7));
                }
            });
            let reader = scope.spawn(|| read_parts(&node, &bytes, &is_over));
            until("an eviction", || node.metric("evicted_total") > 0);
            thread::sleep(Duration::from_millis((moment >> 33) % 800));
            clone(&on("image"), &on("lost"));
            is_over.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        evicted += node.metric("evicted_total");
        node.server.child.kill().unwrap();
        node.server.child.wait().unwrap();
        drop(mounted);
        // XFS refuses a clone as long as the original is mounted, in any namespace.
        let mut mounted = None;
        until("a mounted clone", || {
            mounted = Mount::new(&on("lost"), &disk).ok();
            mounted.is_some()
        });
        another_boot_of_cache(&cache);
        let before = origin.sent();
        let mut node = Node::at(&cache, &origin.url(), &BUDGET);
        until("room", || used(&cache) < 142 << 20);
        for start in (0..bytes.len()).step_by(4 << 20) {
            let end = (start + (4 << 20)).min(bytes.len());
            node.range("/a", &format!("{start}-{}", end - 1)).assert_is(206, &bytes[start..end]);
        }
        assert!(used(&cache) < 142 << 20, "{}", used(&cache));
        fetched += origin.sent() - before;
        node.server.child.kill().unwrap();
        node.server.child.wait().unwrap();
        drop(mounted);
        check(kind, &on("lost"));
        let _ = (fs::remove_file(on("lost")), fs::remove_file(on("image")));
    }
    let (rounds, fetched) = (rounds(), fetched >> 20);
    println!(
        "{rounds} cuts, {evicted} extents evicted, {fetched} of {} MiB fetched again",
        rounds * 200
    );
}

/// What is removed at once from a large object.
const EXTENT: usize = 64 << 20;

const BUDGET: [&str; 2] = ["--cache-size", "140M"];
