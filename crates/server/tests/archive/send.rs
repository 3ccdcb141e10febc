//! The archive on its way through the engine: by sendfile, in short chains, in one version.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use underpass_engine::{Integrity, Mechanism, Options, Report, Sink, Transfer};
use underpass_server::archive::{ArchiveError, ArchiveRange, Layout};

use crate::rig::{awkward, folder, layout_of, noise, open_below, opened, read};

/// Sends a range, and returns what was received and by which mechanisms.
fn sent(mut body: ArchiveRange, options: impl Fn() -> Options<'static>) -> (Vec<u8>, Report) {
    let (near, mut far) = UnixStream::pair().unwrap();
    let receiver = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let mut report = Report::default();
    while let Some(chain) = body.next_chain().unwrap() {
        let transfer = Transfer::new(chain, Sink::of(&near).unwrap()).options(options());
        report.add(&transfer.run().unwrap());
    }
    drop(near);
    (receiver.join().unwrap(), report)
}

fn by(report: &Report, mechanism: Mechanism) -> u64 {
    report.mechanisms().find(|(each, _)| *each == mechanism).map_or(0, |(_, tally)| tally.bytes)
}

#[test]
fn every_large_file_goes_by_sendfile_and_every_range_is_the_archives() {
    let root = folder();
    awkward(root.path());
    for index in 0..100 {
        fs::write(root.path().join(format!("many{index}")), noise(index * 300)).unwrap();
    }
    fs::write(root.path().join("large"), noise(3 << 20)).unwrap();
    let layout = Arc::new(layout_of(root.path()));
    let folder = Arc::new(opened(root.path()));
    let whole = read(&layout, &folder, 0..layout.len());
    let body = |range| ArchiveRange::new(Arc::clone(&layout), Arc::clone(&folder), range);
    let (bytes, report) = sent(body(0..layout.len()), Options::default);
    assert!(bytes == whole);
    assert_eq!(report.bytes(), layout.len());
    assert!(by(&report, Mechanism::Sendfile) > 3 << 20, "{report:?}");
    let (start, end) = (layout.len() / 3, layout.len() / 3 * 2 + 1);
    for range in [start..end, 1..2, layout.len() - 1..u64::MAX] {
        let detect = || Options::default().integrity(Integrity::Detect);
        let (bytes, _) = sent(body(range.clone()), detect);
        assert!(bytes == whole[range.start as usize..range.end.min(layout.len()) as usize]);
    }
}

#[test]
fn without_the_shortcut_for_small_files_each_byte_of_a_file_goes_by_sendfile() {
    let root = folder();
    for (name, len) in [("a", 1), ("b", 0), ("c", 100_000)] {
        fs::write(root.path().join(name), noise(len)).unwrap();
    }
    let layout = Arc::new(layout_of(root.path()));
    let len = layout.len();
    let body = ArchiveRange::new(layout, Arc::new(opened(root.path())), 0..len);
    let (_, report) = sent(body, || Options::default().max_small(0));
    assert_eq!(by(&report, Mechanism::Sendfile), 100_001);
}

/// A body of many small files.
fn many(root: &std::path::Path, count: usize) -> (Arc<Layout>, ArchiveRange) {
    for index in 0..count {
        fs::write(root.join(format!("{index:04}")), "some bytes").unwrap();
    }
    let layout = Arc::new(layout_of(root));
    let body = ArchiveRange::new(Arc::clone(&layout), Arc::new(opened(root)), 0..layout.len());
    (layout, body)
}

#[test]
fn a_chain_holds_few_files_however_many_there_are() {
    let root = folder();
    let (layout, mut body) = many(root.path(), 500);
    let (mut chains, mut bytes) = (0, 0);
    while let Some(chain) = body.next_chain().unwrap() {
        assert!((1..=ArchiveRange::MAX_FILES).contains(&open_below(root.path())));
        chains += 1;
        bytes += chain.len().unwrap();
        assert_eq!(bytes + body.remaining(), layout.len());
    }
    assert_eq!((chains, bytes), (500_usize.div_ceil(ArchiveRange::MAX_FILES), layout.len()));
}

#[test]
fn a_file_that_changes_before_its_turn_ends_the_archive() {
    let root = folder();
    let (_, mut body) = many(root.path(), 100);
    body.next_chain().unwrap();
    fs::write(root.path().join("0050"), "other bytes").unwrap();
    let Err(ArchiveError::Changed { path }) = body.next_chain() else { panic!("not noticed") };
    assert_eq!(path, b"0050");
}
