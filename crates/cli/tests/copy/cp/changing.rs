//! Originals that are written to while they are copied.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use underpass_testkit::KilledOnDrop;

use crate::cp::cp_in;
use crate::rig::{Finished, Running, folder, has, names, noise, noise_file, run, traced};

/// Another version of a file of this length.
fn version(number: u8, len: usize) -> Vec<u8> {
    vec![number; len]
}

/// When another program writes.
#[derive(Clone, Copy, PartialEq)]
enum Writes {
    Once,
    Always,
}

/// Copies the file `a` with these words, and writes another version into it while it is copied.
///
/// The program is stopped at its first call that moves bytes, or at each, until the file was changed.
fn copied_beside_a_writer(here: &Path, words: &[&str], writes: Writes) -> Finished {
    let len = fs::metadata(here.join("a")).unwrap().len() as usize;
    let elsewhere = folder();
    let log = elsewhere.path().join("trace");
    let when = match writes {
        Writes::Once => "1",
        // A signal interrupts sendfile, which is then called again.
        Writes::Always if words.contains(&"--reflink=never") => "1+2",
        Writes::Always => "1+",
    };
    let inject = format!("inject=read,pread64,copy_file_range,sendfile:signal=STOP:when={when}");
    let source = here.join("a").canonicalize().unwrap();
    let mut command = traced(&log, &["-P", source.to_str().unwrap(), "-e", &inject]);
    command.arg("cp").args(words).current_dir(here);
    let mut running = Running::start(command);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut stops = 0;
    while running.child.try_wait().unwrap().is_none() {
        let seen = fs::read_to_string(&log).unwrap_or_default();
        // strace logs the stop of each thread; the signal arrives once.
        let signal = seen.match_indices("--- SIGSTOP {").nth(stops);
        if signal.is_some_and(|(at, _)| seen[at..].contains("stopped by SIGSTOP")) {
            stops += 1;
            fs::write(here.join("a"), version(stops as u8, len)).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + stops as u64);
            File::options().write(true).open(here.join("a")).unwrap().set_modified(time).unwrap();
            running.signal("CONT");
        }
        assert!(Instant::now() < deadline, "it goes on forever: {seen}");
        std::thread::sleep(Duration::from_millis(5));
    }
    running.finish()
}

#[test]
fn a_file_that_changes_once_is_copied_again_and_twice_fails() {
    if !has("strace") {
        return;
    }
    for (words, len) in [
        (&["--json", "a", "z"][..], 5000),
        (&["--json", "--reflink=never", "--step", "8M", "a", "z"], 3 << 20),
        (&["--json", "--sparse", "always", "a", "z"], 100_000),
        (&["--json", "--integrity", "detect", "-p", "--mechanism", "read_write", "a", "z"], 5000),
    ] {
        let here = folder();
        noise_file(here.path(), "a", len);
        let finished = copied_beside_a_writer(here.path(), words, Writes::Once).succeeded();
        let copy = fs::read(here.path().join("z")).unwrap();
        assert!(copy == version(1, len), "{words:?}: a mixture, or the old version");
        assert!(
            finished.stderr.contains("a changed while it was copied: copied again"),
            "{words:?}: {}",
            finished.stderr
        );
        assert_eq!(finished.receipt()["copied_again"], 1, "{words:?}");
        fs::remove_file(here.path().join("z")).unwrap();
        let finished = copied_beside_a_writer(here.path(), words, Writes::Always);
        assert_eq!(finished.code(), Some(1), "{words:?}: {}", finished.stderr);
        assert!(
            finished.stderr.contains("copying a to z: the source changed"),
            "{words:?}: {}",
            finished.stderr
        );
        assert!(finished.stderr.contains("--integrity fast"), "{words:?}: {}", finished.stderr);
        assert_eq!(names(here.path()), ["a"], "{words:?}");
    }
}

#[test]
fn a_tree_is_copied_while_one_file_changes() {
    if !has("strace") {
        return;
    }
    let here = folder();
    fs::create_dir(here.path().join("tree")).unwrap();
    noise_file(here.path(), "a", 5000);
    fs::hard_link(here.path().join("a"), here.path().join("tree/a")).unwrap();
    fs::remove_file(here.path().join("a")).unwrap();
    noise_file(&here.path().join("tree"), "other", 100);
    let tree = here.path().join("tree");
    let finished = copied_beside_a_writer(&tree, &["-a", ".", "../z"], Writes::Always);
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    assert_eq!(names(&here.path().join("z")), ["other"], "{}", finished.stderr);
    assert_eq!(fs::read(here.path().join("z/other")).unwrap(), noise(100));
}

#[test]
fn fast_integrity_does_not_check_the_source_for_changes() {
    if !has("strace") {
        return;
    }
    let here = folder();
    noise_file(here.path(), "a", 5000);
    let words = ["--integrity", "fast", "--json", "a", "z"];
    let finished = copied_beside_a_writer(here.path(), &words, Writes::Once).succeeded();
    assert_eq!(finished.stderr, "");
    assert_eq!(finished.receipt()["copied_again"], 0);
    let help = run(["cp", "--help"]).succeeded().text();
    assert!(help.contains("[default: detect]"), "{help}");
    assert!(run(["send", "--help"]).succeeded().text().contains("[default: detect]"));
}

/// Maps a file, closes its descriptor and writes one number after the other into each of its pages.
const COUNTER: &str = "
import itertools, mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
mapping = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
os.close(file)
for number in itertools.count():
    for at in range(0, len(mapping), 4096): mapping[at] = number % 256
    if number == 0: print('written', flush=True)
";

#[test]
fn a_file_with_a_shared_mapping_is_copied_in_one_version_whatever_its_size() {
    // tmpfs does not show changes through a mapping (docs/design.md).
    let is_tmpfs = rustix::fs::statfs(folder().path()).unwrap().f_type == 0x0102_1994;
    if !has("python3") || is_tmpfs {
        return;
    }
    for (words, len) in [
        (&["a", "z"][..], 40_960),
        (&["--verify", "a", "z"], 40_960),
        (&["-a", "--mechanism", "read_write", "a", "z"], 61_440),
        (&["--sparse=always", "a", "z"], 40_960),
        (&["--sparse=always", "a", "z"], 1 << 20),
    ] {
        let here = folder();
        fs::write(here.path().join("a"), vec![0; len]).unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", COUNTER]).arg(here.path().join("a")).stdout(Stdio::piped());
        let mut writer = KilledOnDrop(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(writer.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        for _ in 0..2 {
            let finished = cp_in(here.path(), words);
            match finished.code() {
                Some(0) => {
                    let copy = fs::read(here.path().join("z")).unwrap();
                    let pages: Vec<u8> = copy.iter().step_by(4096).copied().collect();
                    // The writer may have paused between two pages.
                    let mut rest = pages.iter().skip_while(|page| **page == pages[0]);
                    let is_whole = rest.all(|page| *page == pages[0].wrapping_sub(1));
                    assert!(is_whole, "{words:?}: a mixture: {pages:?}");
                }
                code => {
                    assert_eq!(code, Some(1), "{words:?}: {}", finished.stderr);
                    assert!(finished.stderr.contains("the source changed"), "{}", finished.stderr);
                }
            }
        }
    }
}
