//! A program that writes to a served file through a shared mapping: the file's times then change
//! late or never, and still no response that a client accepts as whole may mix two versions.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use underpass_engine::Integrity;
use underpass_testkit::KilledOnDrop;

use super::rig::{FileSystem, Mounted, Running, Site, skip};

/// Writes one version after the other over the whole file through one mapping. The descriptor is
/// closed as soon as the mapping exists. Arguments: the file, seconds of rest after each version.
const WRITER: &str = "
import mmap, os, sys, time
path, rest = sys.argv[1], float(sys.argv[2])
file = os.open(path, os.O_RDWR)
mapping = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
os.close(file)
versions = [bytes([letter]) * len(mapping) for letter in b'ABCDEFG']
print('begun', flush=True)
while True:
    for version in versions:
        mapping[:] = version
        if rest: time.sleep(rest)
";

/// Begins to write, and returns once the mapping exists; `None` where there is no Python.
fn start_writer(path: &Path, rest: f64) -> Option<KilledOnDrop> {
    let child = Command::new("python3")
        .args(["-c", WRITER])
        .arg(path)
        .arg(rest.to_string())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        skip("python3 is not installed");
        return None;
    };
    let mut said = String::new();
    let out = OwnedFd::from(child.stdout.take().unwrap());
    BufReader::new(fs::File::from(out)).read_line(&mut said).unwrap();
    assert_eq!(said, "begun\n");
    Some(KilledOnDrop(child))
}

/// What two clients saw in some time.
#[derive(Debug, Default)]
struct Seen {
    whole: usize,
    mixed: usize,
    /// Connections that were reset, and answers that were refused.
    failed: usize,
}

/// Requests a file with these fields until the time is over, or `enough` whole responses arrived.
fn ask(site: &Running, fields: &[&str], len: usize, span: Duration, enough: usize) -> Seen {
    let begun = Instant::now();
    let mut seen = Seen::default();
    while begun.elapsed() < span && seen.whole < enough {
        match site.connect().try_ask("GET", "/file", fields) {
            Ok(reply) if reply.status == 503 => {
                assert_eq!(reply.field("Retry-After"), Some("1"));
                seen.failed += 1;
            }
            Ok(reply) => {
                assert!(matches!(reply.status, 200 | 206), "{}", reply.status);
                assert_eq!(reply.body.len(), len);
                let is_mixed = reply.body.iter().any(|byte| *byte != reply.body[0]);
                *(if is_mixed { &mut seen.mixed } else { &mut seen.whole }) += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
                seen.failed += 1;
            }
        }
    }
    seen
}

/// Two clients at once.
fn ask_twice(site: &Running, len: usize, span: Duration, enough: usize) -> Seen {
    thread::scope(|scope| {
        let range = format!("Range: bytes=0-{}", len - 1);
        let second = scope.spawn(move || ask(site, &[&range], len, span, enough));
        let first = ask(site, &[], len, span, enough);
        let second = second.join().unwrap();
        Seen {
            whole: first.whole + second.whole,
            mixed: first.mixed + second.mixed,
            failed: first.failed + second.failed,
        }
    })
}

const LENGTHS: [usize; 4] = [12 << 10, 100 << 10, 1 << 20, 6 << 20];

/// Serves a file that is written to without a pause.
fn serve_while_written(site: &Running, path: &Path) {
    for len in LENGTHS {
        fs::write(path, vec![b'A'; len]).unwrap();
        let Some(writer) = start_writer(path, 0.0) else { return };
        let seen = ask_twice(site, len, Duration::from_millis(1500), usize::MAX);
        drop(writer);
        println!("{len} bytes: {seen:?}");
        assert_eq!(seen.mixed, 0, "{len} bytes: {seen:?}");
    }
}

#[test]
fn no_response_mixes_what_is_written_through_a_mapping_all_the_time() {
    for level in [Integrity::Detect, Integrity::Lease] {
        let site = Site::new().with_site(|site| site.integrity = level).start();
        serve_while_written(&site, &site.path("file"));
    }
}

#[test]
fn a_file_written_through_a_mapping_now_and_then_is_served_in_whole_versions() {
    for level in [Integrity::Detect, Integrity::Lease] {
        let site = Site::new().with_site(|site| site.integrity = level).start();
        for len in LENGTHS {
            let path = site.path("file");
            fs::write(&path, vec![b'A'; len]).unwrap();
            let Some(writer) = start_writer(&path, 1.5) else { return };
            let seen = ask_twice(&site, len, Duration::from_secs(60), 8);
            drop(writer);
            println!("{level}, {len} bytes: {seen:?}");
            assert_eq!((seen.whole, seen.mixed), (16, 0), "{level}, {len} bytes: {seen:?}");
        }
    }
}

#[test]
fn no_response_mixes_what_is_written_through_a_mapping_on_other_file_systems() {
    for kind in [FileSystem::Xfs, FileSystem::Btrfs] {
        let Some(mounted) = Mounted::new(kind, 400) else { continue };
        let mut site = Site::new();
        site.settings.sites[0].root = Some(mounted.root());
        println!("{kind:?}");
        serve_while_written(&site.start(), &mounted.root().join("file"));
    }
}
