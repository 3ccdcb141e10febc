//! Files and folders of a run, and their digests.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use crate::error::Result;
use crate::run::{Content, FileTree, Noise, RunFolder, digest, sparse};

const PAGE: usize = 4 << 10;

const MEBI: u64 = 1 << 20;

#[test]
fn a_file_of_noise_has_its_size_and_digest_and_no_page_twice() {
    let folder = RunFolder::create(&std::env::temp_dir()).unwrap();
    let file = folder.file("noise");
    let size = (16 << 20) + 3 * PAGE as u64 + 5;
    let sha256 = Noise::new(size).unwrap().write(&file, size).unwrap();
    assert_eq!(digest(&file).unwrap(), sha256);
    let bytes = fs::read(&file).unwrap();
    assert_eq!(bytes.len() as u64, size);
    let pages: std::collections::HashSet<_> = bytes.chunks(PAGE).collect();
    assert_eq!(pages.len(), bytes.len().div_ceil(PAGE));
    Noise::new(MEBI + 1).unwrap().scatter(&file, 3 * MEBI + 5).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().len(), 3 * MEBI + 5);
    folder.clear(&file).unwrap();
    folder.clear(&file).unwrap();
    let path = folder.path().to_owned();
    drop(folder);
    assert!(!path.exists());
}

#[test]
fn a_sparse_file_has_its_size_and_no_part_like_another() {
    let folder = RunFolder::create(&std::env::temp_dir()).unwrap();
    let file = folder.file("sparse");
    for size in [3, MEBI, 3 * MEBI + 5] {
        sparse(&file, size).unwrap();
        let bytes = fs::read(&file).unwrap();
        assert_eq!(bytes.len() as u64, size);
        let parts: std::collections::HashSet<_> = bytes.chunks(MEBI as usize).collect();
        assert_eq!(parts.len(), bytes.len().div_ceil(MEBI as usize));
    }
}

#[test]
fn a_digest_is_that_of_the_standard() {
    let folder = RunFolder::create(&std::env::temp_dir()).unwrap();
    fs::write(folder.file("abc"), "abc").unwrap();
    let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(digest(&folder.file("abc")).unwrap(), sha256);
}

#[test]
fn files_that_would_not_fit_are_refused_beforehand() {
    let folder = RunFolder::create(&std::env::temp_dir()).unwrap();
    folder.require_space(1).unwrap();
    let failure = folder.require_space(u64::MAX).unwrap_err().to_string();
    assert!(failure.contains("are free"), "{failure}");
}

/// Checks that each change of a new folder changes its digest.
fn assert_differs(
    make: impl Fn(&Path),
    digest: fn(&Content) -> Result<String>,
    changes: &[fn(&Path)],
) {
    let digest_of = |root: &Path| digest(&Content::survey(root).unwrap()).unwrap();
    let folder = RunFolder::create(&std::env::temp_dir()).unwrap();
    let (one, other) = (folder.file("one"), folder.file("other"));
    make(&one);
    for (number, change) in changes.iter().enumerate() {
        make(&other);
        assert_eq!(digest_of(&other), digest_of(&one));
        change(&other);
        assert_ne!(digest_of(&other), digest_of(&one), "{number}");
        fs::remove_dir_all(&other).unwrap();
    }
}

/// Makes a folder with a file, a link, and a file with holes.
fn make(root: &Path) {
    fs::create_dir_all(root.join("deep")).unwrap();
    fs::write(root.join("deep/file"), vec![7; 3 << 20]).unwrap();
    fs::set_permissions(root.join("deep/file"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("file", root.join("deep/link")).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 9 << 20).unwrap();
}

fn write_at(path: &Path, at: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(b"changed!", at).unwrap();
}

#[test]
fn any_change_is_found() {
    let changes: [fn(&Path); 6] = [
        |root| fs::rename(root.join("deep/file"), root.join("deep/gile")).unwrap(),
        |root| fs::set_permissions(root.join("deep"), fs::Permissions::from_mode(0o711)).unwrap(),
        |root| fs::remove_file(root.join("deep/link")).unwrap(),
        |root| fs::create_dir(root.join("more")).unwrap(),
        |root| write_at(&root.join("deep/file"), (2 << 20) + 77),
        |root| write_at(&root.join("sparse"), (9 << 20) + 3),
    ];
    assert_differs(make, Content::sha256, &changes);
}

#[test]
fn a_copy_without_holes_is_the_same() {
    let folder = RunFolder::create(&std::env::temp_dir()).unwrap();
    let root = folder.file("root");
    make(&root);
    let found = Content::survey(&root).unwrap();
    assert_eq!((found.files, found.bytes), (2, (12 << 20) + 3));
    let sha256 = found.sha256().unwrap();
    found.drop_cached().unwrap();
    let bytes = fs::read(root.join("sparse")).unwrap();
    fs::write(root.join("sparse"), bytes).unwrap();
    assert_eq!(Content::survey(&root).unwrap().sha256().unwrap(), sha256);
}

const TREE: FileTree = FileTree { files: 250, large: 2, large_bytes: 100_000 };

#[test]
fn a_tree_differs_by_any_name_size_or_byte_of_a_file() {
    let noise = Noise::new(TREE.large_bytes).unwrap();
    let make = |root: &Path| {
        fs::create_dir(root).unwrap();
        TREE.create(root, &mut noise.clone()).unwrap();
    };
    let changes: [fn(&Path); 4] = [
        |root| fs::rename(root.join(SMALL), root.join("folder0001/new")).unwrap(),
        |root| fs::remove_file(root.join(SMALL)).unwrap(),
        |root| write_at(&root.join(SMALL), 1000),
        |root| write_at(&root.join("large1"), TREE.large_bytes),
    ];
    assert_differs(make, Content::sha256_of_files, &changes);
}

const SMALL: &str = "folder0001/file000100";

#[test]
fn a_tree_is_read_as_it_was_created_and_as_it_was_truncated() {
    let folder = RunFolder::create(&std::env::temp_dir()).unwrap();
    TREE.create(folder.path(), &mut Noise::new(TREE.large_bytes).unwrap()).unwrap();
    let grown = Content::survey(folder.path()).unwrap();
    assert_eq!((grown.files, grown.bytes), (TREE.count(), TREE.bytes()));
    assert!(folder.file("folder0002/file000249").is_file());
    TREE.truncate_large(folder.path()).unwrap();
    let light = Content::survey(folder.path()).unwrap();
    let bytes = FileTree { large: 0, ..TREE }.bytes();
    assert_eq!((light.files, light.bytes), (TREE.count(), bytes));
}
