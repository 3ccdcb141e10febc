//! Folders to be fetched, servers that have them, and the fetched folders.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::TcpStream;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use underpass_testkit::{AWKWARD_NAMES, Content, TreeEntry, tree};

use crate::rig::{Finished, Running, free_port, noise, run, underpass, until};

/// What must be the same at both ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Permissions, time, length and hash of the contents.
    File(u32, SystemTime, (usize, u64)),
    Folder(u32, SystemTime),
    Link(OsString, i64, i64),
}

/// Everything in a folder by its path, itself included.
pub(crate) fn contents(root: &Path) -> BTreeMap<Vec<u8>, Found> {
    let own = TreeEntry { content: Content::Folder, facts: fs::metadata(root).unwrap() };
    let entries = tree(root).into_iter().chain([(PathBuf::new(), own)]);
    let found = entries.map(|(path, TreeEntry { content, facts })| {
        let (mode, time) = (facts.mode() & 0o7777, facts.modified().unwrap());
        let found = match content {
            Content::Folder => Found::Folder(mode, time),
            Content::File(bytes) => Found::File(mode, time, hash(&bytes)),
            Content::Link(target) => Found::Link(target, facts.mtime(), facts.mtime_nsec()),
            Content::Other => panic!("neither a file, a folder nor a link: {}", path.display()),
        };
        (path.into_os_string().into_vec(), found)
    });
    found.collect()
}

/// Contents that differ, short enough to be shown.
fn hash(bytes: &[u8]) -> (usize, u64) {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    (bytes.len(), hasher.finish())
}

/// Fails with what is different.
#[track_caller]
pub(crate) fn same<T: Debug + PartialEq>(
    here: &BTreeMap<Vec<u8>, T>,
    there: &BTreeMap<Vec<u8>, T>,
    what: &str,
) {
    for path in here.keys().chain(there.keys()) {
        let (here, there) = (here.get(path), there.get(path));
        assert_eq!(here, there, "{what}: {}", path.escape_ascii());
    }
}

/// The contents of all files by their paths, and `None` for folders.
pub(crate) fn files(root: &Path) -> BTreeMap<Vec<u8>, Option<(usize, u64)>> {
    let bytes = contents(root).into_iter().map(|(path, found)| match found {
        Found::File(_, _, bytes) => (path, Some(bytes)),
        Found::Folder(..) => (path, None),
        Found::Link(..) => panic!("a link at {}", path.escape_ascii()),
    });
    bytes.collect()
}

/// Names that some program has mishandled, with contents of all sizes.
pub(crate) fn awkward(root: &Path) {
    let long = "n".repeat(255);
    let more = ["100%", "?query=1", "a&amp;b", "<b>", "a;b", "a+b", "a@b", &long];
    for (index, name) in AWKWARD_NAMES.into_iter().chain(more).enumerate() {
        let len = [0, 1, 511, 512, 513, 8_193, 70_000, 200_000][index % 8];
        put(root, name.as_bytes(), &noise(len), index as u64);
    }
    fs::create_dir_all(root.join("empty folder")).unwrap();
    let inner = root.join("folder %2F \"x\"").join("in ner");
    fs::create_dir_all(&inner).unwrap();
    put(&inner, b"file", b"inside", 77);
}

fn put(folder: &Path, name: &[u8], bytes: &[u8], age: u64) {
    let path = folder.join(OsStr::from_bytes(name));
    fs::write(&path, bytes).unwrap();
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000 + age);
    File::open(&path).unwrap().set_modified(time).unwrap();
}

/// Facts that only an archive contains: links, permissions, times to the nanosecond, other bytes.
pub(crate) fn more_awkward(root: &Path) {
    awkward(root);
    put(root, b"\xff\xfe latin-1 \xe4", b"bytes", 5);
    put(root, &b"\xff\n= ".repeat(40), b"bytes", 6);
    symlink("plain", root.join("link")).unwrap();
    symlink("nowhere", root.join("link dangling")).unwrap();
    symlink("../plain", root.join("empty folder").join("link up")).unwrap();
    symlink(OsStr::from_bytes(b"\xff\n"), root.join("link to bytes")).unwrap();
    for (name, mode) in [("plain", 0o755), (" ", 0o400), ("~", 0o604), ("empty folder", 0o500)] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let times = [
        ("plain", UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789)),
        ("-rf", UNIX_EPOCH + Duration::new(1, 1)),
        ("a:b", UNIX_EPOCH - Duration::from_secs(86_400)),
        ("folder %2F \"x\"", UNIX_EPOCH + Duration::new(1_111_111_111, 111)),
        (".", UNIX_EPOCH + Duration::new(1_222_222_222, 222)),
    ];
    for (name, time) in times {
        File::open(root.join(name)).unwrap().set_modified(time).unwrap();
    }
}

/// Our server for this folder, with these arguments.
pub(crate) fn ours(root: &Path, args: &[&str]) -> Running {
    let mut command = underpass();
    command.args(["serve", "--bind", "127.0.0.1:0"]).args(args).arg(root);
    Running::listening(command)
}

/// Its address, with a slash at the end.
pub(crate) fn address(server: &Running) -> String {
    server.address.split(' ').next().unwrap().to_owned()
}

/// Fetches a folder into `dir`.
pub(crate) fn get(url: &str, dir: &Path, args: &[&str]) -> Finished {
    run(["get", "-r", url, "-d", dir.to_str().unwrap()].iter().chain(args))
}

/// Another server. Killed when dropped.
pub(crate) struct Peer {
    child: Child,
    pub(crate) url: String,
}

impl Peer {
    /// Starts a server that gets its port by `command`, and waits until it answers.
    pub(crate) fn start(command: impl FnOnce(u16) -> Command) -> Self {
        let port = free_port();
        let mut command = command(port);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let peer = Self { child, url: format!("http://127.0.0.1:{port}/") };
        until("a server that answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        peer
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SIGTERM also ends the processes that it has started.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-s", "TERM", &pid]).status();
        let _ = self.child.wait();
    }
}
