//! What these tests share: made-up members, folders of awkward things, and the programs that
//! unpack them.

#![allow(unreachable_pub)] // as in the other rigs

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat, symlinkat};
use underpass_server::archive::{
    ArchivePiece, Layout, WalkOptions, engine_version, open_member, walk,
};

use underpass_testkit::{AWKWARD_NAMES, Content, TreeEntry, tree};

pub use underpass_testkit::{folder, has, noise};

/// The descriptor of a folder.
pub fn opened(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

/// The number of descriptors that are open below this folder, whatever other tests have open.
pub fn open_below(root: &Path) -> usize {
    let targets = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        // Another thread's may be closed by now.
        fs::read_link(entry.ok()?.path()).ok()
    });
    targets.filter(|path| path != root && path.starts_with(root)).count()
}

/// What a walk of this folder finds, hidden names included, below the name `top`.
pub fn layout_of(path: &Path) -> Layout {
    let options = WalkOptions { top: b"top", shows_hidden: true, ..WalkOptions::default() };
    walk(opened(path), &options).unwrap()
}

/// The paths of all members as the `tar` crate reads them.
pub fn paths(archive: &[u8]) -> Vec<Vec<u8>> {
    let mut archive = tar::Archive::new(archive);
    archive.entries().unwrap().map(|entry| entry.unwrap().path_bytes().into_owned()).collect()
}

/// A range of an archive, with the files read.
pub fn read(layout: &Layout, folder: &OwnedFd, range: std::ops::Range<u64>) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in layout.pieces(range) {
        match piece {
            ArchivePiece::Bytes(bytes) => out.extend_from_slice(&bytes),
            ArchivePiece::File { path, version, offset, len } => {
                let file =
                    File::from(open_member(folder, &path, &engine_version(&version)).unwrap());
                let start = out.len();
                out.resize(start + len as usize, 0);
                file.read_exact_at(&mut out[start..], offset).unwrap();
            }
            ArchivePiece::Checksum { .. } => panic!("a tar has none"),
        }
    }
    out
}

/// A folder with one of everything that has gone wrong somewhere.
pub fn awkward(root: &Path) {
    let more = [".hidden", "...", "trailing.", "a", "a-", "a.", "a0", "\u{1b}[31m", "1 path=x"];
    let names = AWKWARD_NAMES.into_iter().chain(more);
    let mut names: Vec<_> = names.map(|name| name.as_bytes().to_vec()).collect();
    names.push(b"\xff\xfe latin-1 \xe4".to_vec());
    names.push("\u{e4}".repeat(60).into_bytes());
    names.push(b"\xff\n= ".repeat(40));
    names.push("\u{e4}\n = ".repeat(30).into_bytes());
    for len in [99, 100, 101, 255] {
        names.push(vec![b'n'; len]);
    }
    for (index, name) in names.iter().enumerate() {
        // From empty over about a block to more than a pipe holds.
        let len = [0, 1, 511, 512, 513, 8_193, 70_000][index % 7];
        fs::write(root.join(OsStr::from_bytes(name)), noise(len)).unwrap();
    }
    fs::create_dir_all(root.join("empty folder")).unwrap();
    let inner = root.join(OsStr::from_bytes(b"folder \xff")).join("in\nner");
    fs::create_dir_all(&inner).unwrap();
    fs::write(inner.join("file"), b"inside").unwrap();
    let long = root.join("l".repeat(200)).join("m".repeat(200)).join("\u{e4}".repeat(100));
    fs::create_dir_all(&long).unwrap();
    fs::write(long.join("o".repeat(250)), b"far").unwrap();
    fs::create_dir(root.join("a!")).unwrap();
    fs::write(root.join("a!/x"), b"x").unwrap();
    links(root);
    modes_and_times(root);
}

/// Symbolic links that lead inside, outside, nowhere, and far; and a hard link.
fn links(root: &Path) {
    symlink("plain", root.join("link")).unwrap();
    symlink("/etc/passwd", root.join("link outside")).unwrap();
    symlink("../../..", root.join("link up")).unwrap();
    symlink("nowhere", root.join("link dangling")).unwrap();
    symlink("empty folder", root.join("link to folder")).unwrap();
    symlink("t".repeat(101), root.join("link far")).unwrap();
    symlink("t".repeat(4_000), root.join("link farther")).unwrap();
    symlink(OsStr::from_bytes(b"\xff\n"), root.join("link to bytes")).unwrap();
    let bytes = b"\xff\n= ".repeat(40);
    symlink(OsStr::from_bytes(&bytes), root.join("link to \u{e4} bytes")).unwrap();
    symlink("\u{e4}", root.join("link to \u{e4}")).unwrap();
    fs::hard_link(root.join("a-"), root.join("hard link")).unwrap();
    let pipe = root.join("pipe");
    rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
    std::os::unix::net::UnixListener::bind(root.join("socket")).map(drop).unwrap();
}

fn modes_and_times(root: &Path) {
    for (name, mode) in [("plain", 0o755), ("a", 0o400), ("a.", 0o640), ("empty folder", 0o700)] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let times = [
        ("a", UNIX_EPOCH + Duration::new(1_000_000_000, 0)),
        ("a-", UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789)),
        ("a0", UNIX_EPOCH + Duration::new(1_234_567_890, 1)),
        ("a:b", UNIX_EPOCH - Duration::from_secs(86_400)),
    ];
    for (name, time) in times {
        File::open(root.join(name)).unwrap().set_modified(time).unwrap();
    }
}

/// Creates nested folders, with a file and a link in each.
pub fn deep(root: &Path, levels: usize, name: &str) {
    let mut folder = opened(root);
    for _ in 0..levels {
        mkdirat(&folder, name, Mode::RWXU).unwrap();
        folder = openat(&folder, name, OFlags::DIRECTORY, Mode::empty()).unwrap();
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let file = openat(&folder, "file", flags, Mode::RUSR | Mode::WUSR).unwrap();
        File::from(file).write_all(name.as_bytes()).unwrap();
        symlinkat("file", &folder, "zlink").unwrap();
    }
}

/// What must be the same after unpacking.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Permissions, time, contents.
    File(u32, SystemTime, Vec<u8>),
    /// Permissions, time.
    Folder(u32, SystemTime),
    /// Target, and its time: seconds and nanoseconds.
    Link(OsString, i64, i64),
}

/// Everything in a folder by path, except what archives cannot hold.
pub fn contents(root: &Path) -> Vec<(PathBuf, Found)> {
    let entries = tree(root).into_iter().filter_map(|(path, TreeEntry { content, facts })| {
        let (mode, time) = (facts.mode() & 0o7777, facts.modified().unwrap());
        let found = match content {
            Content::Folder => Found::Folder(mode, time),
            Content::File(bytes) => Found::File(mode, time, bytes),
            Content::Link(target) => Found::Link(target, facts.mtime(), facts.mtime_nsec()),
            Content::Other => return None,
        };
        Some((path, found))
    });
    entries.collect()
}

/// Runs a program with this input.
pub fn fed(command: &mut Command, input: &[u8]) -> Output {
    let piped = Stdio::piped;
    let mut child = command.stdin(piped()).stdout(piped()).stderr(piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A program that reads no further says why by its exit code.
        scope.spawn(move || stdin.write_all(input).is_ok());
        child.wait_with_output().unwrap()
    })
}
