//! Copies within and between real file systems, mounted by the tests.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::rig::injection::{Call, refusing};
use crate::rig::scratch::pattern;
use rustix::io::Errno;
use underpass_engine::atomic_file::{AtomicFile, Existing};
use underpass_engine::{
    DeclineReason, Declined, Error, Integrity, Mechanism, Options, Policy, Report, Sink, Source,
    Transfer,
};
use underpass_testkit::mounts::{FileSystem, Mounted};

const ALL: [FileSystem; 5] =
    [FileSystem::Btrfs, FileSystem::Ext4, FileSystem::Overlay, FileSystem::Tmpfs, FileSystem::Xfs];

/// Whole blocks of each file system and part of one.
const LEN: usize = (1 << 20) + 1234;

fn mount(kind: FileSystem) -> Option<Mounted> {
    Mounted::new(kind, 200)
}

const fn shares_blocks(kind: FileSystem) -> bool {
    matches!(kind, FileSystem::Btrfs | FileSystem::Xfs)
}

fn copy(from: &Path, to: &Path, options: Options<'_>) -> Result<Report, Error> {
    let (source, sink) = (File::open(from).unwrap(), File::create(to).unwrap());
    Transfer::new(Source::of(&source).unwrap(), Sink::of(&sink).unwrap()).options(options).run()
}

/// Returns the declines of a report, as name and reason.
fn declines(report: &Report) -> Vec<(&'static str, DeclineReason)> {
    report.declined().iter().map(|decline| (decline.what.name(), decline.reason)).collect()
}

#[test]
fn each_file_system_copies_in_the_cheapest_way_it_has() {
    for kind in ALL {
        let Some(mounted) = mount(kind) else { continue };
        let (from, to) = (mounted.root().join("from"), mounted.root().join("to"));
        fs::write(&from, pattern(LEN)).unwrap();
        let report = copy(&from, &to, Options::default()).unwrap();
        assert!(fs::read(&to).unwrap() == pattern(LEN), "{kind:?}");
        assert_eq!(report.user_space_bytes(), 0, "{kind:?}");
        if shares_blocks(kind) {
            assert_eq!(report.by(Mechanism::Reflink).bytes, LEN as u64, "{kind:?}");
            assert_eq!(declines(&report), [], "{kind:?}");
        } else {
            assert_eq!(report.by(Mechanism::CopyFileRange).bytes, LEN as u64, "{kind:?}");
            let refused = DeclineReason::Errno(Errno::OPNOTSUPP);
            assert_eq!(declines(&report), [("reflink", refused)], "{kind:?}");
        }

        let policy = Policy::Require(Mechanism::Reflink);
        let required = copy(&from, &to, Options::default().policy(policy));
        assert_eq!(required.is_ok(), shares_blocks(kind), "{kind:?}");
        if let Err(error) = required {
            let errno = DeclineReason::Errno(Errno::OPNOTSUPP);
            assert!(matches!(error, Error::Declined { reason, .. } if reason == errno));
        }
    }
}

#[test]
fn a_reflink_is_one_call_whatever_the_size() {
    for kind in [FileSystem::Btrfs, FileSystem::Xfs] {
        let Some(mounted) = mount(kind) else { continue };
        let (from, to) = (mounted.root().join("from"), mounted.root().join("to"));
        let mut file = File::create(&from).unwrap();
        file.write_all(&pattern(40 << 20)).unwrap();
        file.set_len(8 << 30).unwrap();
        // Data that is not on the disk yet has to be written before it can be shared.
        file.sync_all().unwrap();
        let report = copy(&from, &to, Options::default()).unwrap();
        assert_eq!(report.by(Mechanism::Reflink).bytes, 8 << 30);
        assert_eq!(report.calls(), 1);
        let mut start = vec![0; 40 << 20];
        File::open(&to).unwrap().read_exact(&mut start).unwrap();
        assert!(start == pattern(40 << 20), "{kind:?}");
        assert_eq!(fs::metadata(&to).unwrap().len(), 8 << 30);
        assert!(fs::metadata(&to).unwrap().blocks() * 512 < 100 << 20);
    }
}

#[test]
fn a_range_that_is_not_aligned_to_blocks_is_copied() {
    for kind in [FileSystem::Btrfs, FileSystem::Xfs] {
        let Some(mounted) = mount(kind) else { continue };
        let (from, to) = (mounted.root().join("from"), mounted.root().join("to"));
        fs::write(&from, pattern(LEN)).unwrap();
        let (source, sink) = (File::open(&from).unwrap(), File::create(&to).unwrap());
        let range = Source::of(&source).unwrap().at(100).len(300_000);
        let report = Transfer::new(range, Sink::of(&sink).unwrap().at(7)).run().unwrap();
        assert_eq!(
            declines(&report),
            [("reflink", DeclineReason::Errno(Errno::INVAL))],
            "{kind:?}"
        );
        assert_eq!(report.by(Mechanism::CopyFileRange).bytes, 300_000, "{kind:?}");
        let copied = fs::read(&to).unwrap();
        assert_eq!(copied[..7], [0; 7]);
        assert!(copied[7..] == pattern(LEN)[100..300_100], "{kind:?}");
    }
}

#[test]
fn between_two_file_systems_sendfile_copies() {
    let mounts: Vec<_> = ALL.into_iter().filter_map(|kind| Some((kind, mount(kind)?))).collect();
    for (from_kind, from) in &mounts {
        let source = from.root().join("source");
        fs::write(&source, pattern(LEN)).unwrap();
        for (to_kind, to) in mounts.iter().filter(|(kind, _)| kind != from_kind) {
            let sink = to.root().join("sink");
            let report = copy(&source, &sink, Options::default()).unwrap();
            let pair = format!("{from_kind:?} to {to_kind:?}");
            let refused = declines(&report);
            assert_eq!(refused.len(), 2, "{pair}: {refused:?}");
            assert_eq!(refused[0].0, "reflink", "{pair}");
            assert_eq!(
                refused[1],
                ("copy_file_range", DeclineReason::Errno(Errno::XDEV)),
                "{pair}"
            );
            assert_eq!(report.by(Mechanism::Sendfile).bytes, LEN as u64, "{pair}");
            assert!(fs::read(&sink).unwrap() == pattern(LEN), "{pair}");
        }
    }
}

#[test]
fn a_snapshot_is_taken_where_blocks_can_be_shared() {
    for kind in ALL {
        let Some(mounted) = mount(kind) else { continue };
        let from = mounted.root().join("from");
        fs::write(&from, pattern(LEN)).unwrap();
        let options = Options::default().integrity(Integrity::Snapshot);
        let report = copy(&from, Path::new("/dev/null"), options).unwrap();
        if shares_blocks(kind) {
            assert_eq!(report.integrity(), Integrity::Snapshot, "{kind:?}");
            continue;
        }
        assert_eq!(report.integrity(), Integrity::Detect, "{kind:?}");
        let decline = report.declined()[0];
        assert_eq!(decline.what, Declined::Integrity(Integrity::Snapshot), "{kind:?}");
        assert_eq!(decline.reason, DeclineReason::Errno(Errno::OPNOTSUPP), "{kind:?}");
    }
}

#[test]
fn a_file_is_created_on_each_file_system_without_leftovers() {
    for kind in ALL {
        let Some(mounted) = mount(kind) else { continue };
        let folder = mounted.root().join("folder");
        fs::create_dir(&folder).unwrap();
        let target = folder.join("file");
        for existing in [Existing::Keep, Existing::Replace] {
            let file = AtomicFile::create(&target, 0o644).unwrap();
            file.reserve(LEN as u64).unwrap();
            file.file().write_all(&pattern(LEN)).unwrap();
            file.commit(existing).unwrap();
            assert!(fs::read(&target).unwrap() == pattern(LEN), "{kind:?}");
        }
        assert!(AtomicFile::create(&target, 0o644).unwrap().commit(Existing::Keep).is_err());
        drop(AtomicFile::create(&target, 0o644).unwrap());
        let left: Vec<_> = fs::read_dir(&folder).unwrap().collect();
        assert_eq!(left.len(), 1, "{kind:?}: {left:?}");
    }
}

#[test]
fn nothing_is_reserved_where_that_would_prevent_compression() {
    for (kind, reserves) in [(FileSystem::Ext4, true), (FileSystem::Btrfs, false)] {
        let Some(mounted) = Mounted::new(kind, 128) else { continue };
        let file = AtomicFile::create(&mounted.root().join("file"), 0o644).unwrap();
        file.reserve(1 << 20).unwrap();
        assert_eq!(file.file().metadata().unwrap().blocks() > 0, reserves, "{kind:?}");
    }
}

#[test]
fn a_disk_too_small_is_found_out_when_space_is_reserved() {
    for kind in [FileSystem::Ext4, FileSystem::Tmpfs, FileSystem::Overlay] {
        let Some(mounted) = Mounted::new(kind, 8) else { continue };
        let file = AtomicFile::create(&mounted.root().join("file"), 0o644).unwrap();
        // fallocate(2) is not called for that much: it would fill the disk before it fails.
        let reserve = || file.reserve(64 << 20);
        let error = refusing(Call::allocate(64 << 20), libc::ENOSYS as u32, reserve).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{kind:?}");
        drop(file);
        assert!(!mounted.root().join("file").exists());
    }
}

#[test]
fn a_disk_that_fills_up_in_mid_copy_is_an_error_with_the_bytes() {
    let Some(large) = mount(FileSystem::Tmpfs) else { return };
    let source = large.root().join("source");
    let contents = pattern(16 << 20);
    fs::write(&source, &contents).unwrap();
    for kind in [FileSystem::Ext4, FileSystem::Tmpfs] {
        for mechanism in
            [Mechanism::Sendfile, Mechanism::Splice, Mechanism::Mmap, Mechanism::ReadWrite]
        {
            let Some(small) = Mounted::new(kind, 8) else { continue };
            let sink = small.root().join("sink");
            let options = Options::default().policy(Policy::Require(mechanism));
            let error = copy(&source, &sink, options).unwrap_err();
            let Error::Io { source: ref reason, .. } = error else { panic!("{error:?}") };
            assert_eq!(reason.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{mechanism}");
            let bytes = error.bytes() as usize;
            assert!(bytes > 1 << 20, "{kind:?} by {mechanism}: {bytes}");
            assert!(fs::read(&sink).unwrap()[..bytes] == contents[..bytes], "{mechanism}");
        }
    }
}
