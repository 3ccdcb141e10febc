//! Copies that are killed at random moments: no part of a file is found under its name, and
//! `--resume` completes them.
//!
//! `UNDERPASS_KILLS` says how often, instead of a few times; `UNDERPASS_SEED` repeats a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::cp::cp_in;
use crate::rig::{Running, folder, names, noise, underpass};

/// Files of the tree, apart from the large one and its second name: three in each of 210 folders.
const FILES: usize = 630;

/// A tree of files of all sizes, one of which a later run can resume.
fn plant(root: &Path) {
    let bytes = noise(1 << 20);
    for number in 0..FILES {
        let at = root.join(format!("{}/{}", number % 7, number % 30));
        fs::create_dir_all(&at).unwrap();
        let (from, len) = (number * 37, number * 7919 % 30_000);
        fs::write(at.join(format!("file-{number}")), &bytes[from..from + len]).unwrap();
    }
    fs::write(root.join("3/large"), noise(24 << 20)).unwrap();
    fs::hard_link(root.join("3/large"), root.join("5/name")).unwrap();
}

/// Every file below a folder, as a path.
fn files(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(at) = open.pop() {
        let Ok(entries) = fs::read_dir(&at) else { continue };
        for entry in entries.map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                found.insert(entry.path().strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    found
}

/// The expected bytes and time of each file of a tree, read once.
fn contents(root: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let facts = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let read = |path: PathBuf| {
        let at = root.join(&path);
        (path, (fs::read(&at).unwrap(), facts(&at)))
    };
    files(root).into_iter().map(read).collect()
}

fn is_hidden(path: &Path) -> bool {
    path.components().any(|name| {
        let name = name.as_os_str().to_string_lossy();
        name.starts_with('.') && name.ends_with(".part")
    })
}

#[test]
fn killed_copies_leave_no_part_under_a_name_and_are_resumed() {
    let here = folder();
    let (from, to) = (here.path().join("from"), here.path().join("to"));
    plant(&from);
    let originals = contents(&from);
    let wanted: BTreeSet<_> = originals.keys().cloned().collect();
    let total = wanted.len();
    let started = Instant::now();
    cp_in(here.path(), &["-a", "from", "to"]).succeeded();
    let usual = started.elapsed();
    let seed = std::env::var("UNDERPASS_SEED").ok().and_then(|text| text.parse().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut state = seed.unwrap_or_else(now) | 1;
    println!("UNDERPASS_SEED={state}");
    let rounds = std::env::var("UNDERPASS_KILLS").map_or(4, |text| text.parse().unwrap());
    let (mut cut, mut hidden) = (0, 0);
    for round in 0..rounds {
        // A round may have been killed before it made anything.
        let _ = fs::remove_dir_all(&to);
        // Every other copy is into an existing folder, where files are unnamed at first.
        let way: &[&str] = if round % 2 == 0 { &["-a", "--resume"] } else { &["-aT"] };
        if round % 2 == 1 {
            fs::create_dir(&to).unwrap();
        }
        let mut command = underpass();
        command.arg("cp").args(way).args(["from", "to"]).current_dir(here.path());
        let mut copy = Running::start(command);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        std::thread::sleep(usual.mul_f64((state >> 11) as f64 / (1_u64 << 53) as f64));
        copy.signal("KILL");
        copy.child.wait().unwrap();
        let there = files(&to);
        for path in there.iter().filter(|path| !is_hidden(path)) {
            let copy = fs::read(to.join(path)).unwrap();
            assert!(copy == originals[path].0, "round {round}: part of {path:?}");
        }
        cut += u32::from(there.len() < total);
        hidden += u32::from(there.iter().any(|path| is_hidden(path)));
        // The same command again, of which every other one was to make a new folder.
        // One that was killed when nothing was left to do would be copied into the folder it made.
        let is_done = there == wanted;
        let again = if round % 2 == 0 && !is_done { "-a" } else { "-aT" };
        let resumed = cp_in(here.path(), &[again, "--resume", "--json", "from", "to"]);
        let receipt = resumed.succeeded().receipt();
        let done = ["files", "hard_links", "resumed"].map(|name| receipt[name].as_u64().unwrap());
        assert!(done.iter().sum::<u64>() >= total as u64, "{receipt}");
        let copies = contents(&to);
        let there: BTreeSet<_> = copies.keys().cloned().collect();
        let differs = there.symmetric_difference(&wanted).collect::<Vec<_>>();
        assert!(differs.is_empty(), "round {round}: {differs:?}, {receipt}");
        for (path, (bytes, modified)) in &copies {
            assert!(*bytes == originals[path].0, "round {round}: other bytes in {path:?}");
            assert_eq!(*modified, originals[path].1, "round {round}: time of {path:?}");
        }
        assert_eq!(names(here.path()), ["from", "to"], "round {round}");
        if (round + 1) % 100 == 0 {
            println!("{} rounds, {cut} of them cut short", round + 1);
        }
    }
    println!("{cut} of {rounds} were cut short, {hidden} of them left hidden parts");
    assert!(usual > Duration::ZERO);
}
