//! Files with many small pieces of data between holes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use underpass_testkit::mounts::{FileSystem, Mounted};

use crate::cp::bytes::traced_in;
use crate::cp::cp_in;
use crate::rig::{folder, has, noise};

/// Creates a file with this many pieces of data of 4 KiB, each followed by a hole.
fn pieces(path: &Path, count: u64, hole: u64) {
    let file = File::create(path).unwrap();
    for number in 0..count {
        file.write_all_at(&noise(4096), number * (4096 + hole)).unwrap();
    }
    file.set_len(count * (4096 + hole)).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn a_small_piece_between_holes_takes_few_system_calls() {
    const COUNT: usize = 1000;
    if !has("strace") {
        return;
    }
    let here = folder();
    pieces(&here.path().join("a"), COUNT as u64, 4096);
    let words = ["--reflink=never", "--json", "a", "z"];
    let (finished, log) = traced_in(here.path(), &["-e", "trace=!futex"], &words);
    let receipt = finished.succeeded().receipt();
    assert_eq!(receipt["bytes"], COUNT * 4096);
    assert!(receipt["cpu_s"]["system"].as_f64().unwrap() > 0.0, "{receipt}");
    let calls = log.lines().count();
    assert!(calls < COUNT * 7, "{calls} for {COUNT} pieces");
    let (a, z) = (fs::read(here.path().join("a")), fs::read(here.path().join("z")));
    assert!(a.unwrap() == z.unwrap());
}

#[test]
fn holes_between_small_pieces_stay_where_the_file_system_allocates_ahead() {
    for kind in [FileSystem::Xfs, FileSystem::Ext4] {
        let Some(mounted) = Mounted::new(kind, 400) else { continue };
        let root = mounted.root();
        pieces(&root.join("a"), 500, 60 << 10);
        let original = fs::metadata(root.join("a")).unwrap().blocks();
        for option in ["--reflink=never", "--no-zero-copy", "--mechanism=sendfile"] {
            for existing in ["", "--in-place"] {
                fs::write(root.join("z"), noise(100_000)).unwrap();
                let words = [option, existing, "a", "z"];
                let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
                cp_in(&root, &words).succeeded();
                let copy = File::open(root.join("z")).unwrap();
                copy.sync_all().unwrap();
                let blocks = copy.metadata().unwrap().blocks();
                assert!(blocks <= original + original / 8, "{words:?} on {kind:?}: {blocks}");
                assert!(fs::read(root.join("z")).unwrap() == fs::read(root.join("a")).unwrap());
            }
        }
    }
}

#[test]
fn an_original_that_ends_between_small_pieces_is_no_success() {
    if !has("strace") {
        return;
    }
    let here = folder();
    pieces(&here.path().join("a"), 40, 4096);
    // The call reports the end of the file although more was promised.
    let inject = ["-e", "inject=sendfile:retval=0:when=20+"];
    let (finished, _) = traced_in(here.path(), &inject, &["--reflink=never", "a", "z"]);
    finished.failed(1, &["a", "ended"]);
    assert!(!here.path().join("z").exists());
}
