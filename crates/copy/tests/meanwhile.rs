//! What other processes do while something is copied. The observer does it, as it is called at
//! known moments.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Condvar, Mutex};

use tempfile::TempDir;
use underpass_copy::{CopyObserver, CopyOptions, CopyOutcome, CopyTarget, copy};

/// Copies the folder `s` to `k`.
fn run(here: &Path, options: &CopyOptions, observer: &dyn CopyObserver) -> CopyOutcome {
    let (sources, target) = ([here.join("s")], here.join("k"));
    let target = CopyTarget::NewName(&target);
    copy(options, &sources, target, observer, &AtomicBool::new(false)).unwrap()
}

fn archive() -> CopyOptions {
    CopyOptions { recursive: true, hard_links: true, ..CopyOptions::default() }
}

/// Holds up the copy of the large file until the second name of it waits, and then makes that name.
struct Appearing<'a> {
    here: &'a Path,
    /// The folder, `1` or `2`, all small files of which were copied.
    waits: Mutex<Option<PathBuf>>,
    is_waiting: Condvar,
}

const LARGE: usize = 100_000;

impl CopyObserver for Appearing<'_> {
    fn has_room(&self, len: u64) -> bool {
        if len == LARGE as u64 {
            let waits = self.waits.lock().unwrap();
            let waits = self.is_waiting.wait_while(waits, |it| it.is_none()).unwrap();
            fs::write(self.here.join("k").join(waits.as_ref().unwrap()).join("name"), "new")
                .unwrap();
        }
        true
    }

    fn lists(&self) -> bool {
        true
    }

    fn made(&self, from: &Path, _: &Path, _: Option<&Path>) {
        if from.ends_with("later") {
            let folder = from.parent().unwrap().file_name().unwrap();
            self.waits.lock().unwrap().get_or_insert(PathBuf::from(folder));
            self.is_waiting.notify_all();
        }
    }
}

#[test]
fn what_takes_the_name_of_a_hard_link_that_waits_is_treated_as_what_was_there_before() {
    let keep = CopyOptions { no_clobber: true, ..archive() };
    let refuse = CopyOptions { refuse_existing: true, ..archive() };
    for (options, kept, problems, text) in
        [(keep, 1, 0, "new"), (refuse, 0, 1, "new"), (archive(), 0, 0, "")]
    {
        let here = TempDir::new().unwrap();
        let path = |name: &str| here.path().join(name);
        for folder in ["s/1", "s/2", "k/1", "k/2"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        fs::write(path("s/1/name"), vec![1; LARGE]).unwrap();
        fs::hard_link(path("s/1/name"), path("s/2/name")).unwrap();
        // Files are copied in the order of their numbers.
        let number = fs::metadata(path("s/1/name")).unwrap().ino();
        for folder in ["s/1", "s/2"] {
            for count in 0.. {
                let file = path(folder).join(format!("{count}"));
                fs::write(&file, "").unwrap();
                if fs::metadata(&file).unwrap().ino() > number {
                    fs::rename(file, path(folder).join("later")).unwrap();
                    break;
                }
            }
        }
        let observer =
            Appearing { here: here.path(), waits: Mutex::default(), is_waiting: Condvar::new() };
        let outcome = run(here.path(), &CopyOptions { jobs: 2, ..options }, &observer);
        assert_eq!(outcome.problem_count, problems, "{:?}", outcome.problems);
        assert_eq!(outcome.totals.kept, kept);
        let waited = observer.waits.into_inner().unwrap().unwrap();
        let found = fs::read(path("k").join(waited).join("name")).unwrap();
        assert!(found == if text.is_empty() { vec![1; LARGE] } else { text.into() });
    }
}
