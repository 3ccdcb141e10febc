//! Helpers for the tests of several crates: bytes, folders and their contents, file systems, ports,
//! programs, HTTP, waiting.
//!
//! Every function panics on failure, which fails the test.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

pub mod http;
pub mod mounts;
#[cfg(feature = "tls")]
pub mod tls;
mod tree;

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::{Deref, DerefMut, Range};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use underpass_sys::{release_lease, take_read_lease};

pub use tree::{AWKWARD_NAMES, Content, TreeEntry, tree};

/// Returns `len` bytes in which no two offsets share a pattern; they are always the same.
#[must_use]
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Changes each line of a journal, which keeps a checksum that is right.
///
/// # Panics
///
/// If it cannot be read or written.
pub fn edit_journal(path: &Path, edit: impl Fn(&str) -> String) {
    let text = fs::read_to_string(path).unwrap();
    let sealed = |line: &str| {
        let text = edit(line[..line.len() - 8].trim_end());
        let padded = format!("{text:<0$}", (text.len() + 9).next_multiple_of(64) - 9);
        format!("{padded}{:08x}\n", crc32fast::hash(padded.as_bytes()))
    };
    fs::write(path, text.lines().map(sealed).collect::<String>()).unwrap();
}

/// Writes a file of [`noise`] and returns its path.
///
/// # Panics
///
/// If it cannot be written.
pub fn noise_file(folder: &Path, name: &str, len: usize) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, noise(len)).unwrap();
    path
}

/// Returns the first `len` bytes of a sequence without zeros and without two equal pages.
#[must_use]
pub fn pattern(len: usize) -> Vec<u8> {
    static KEPT: OnceLock<Vec<u8>> = OnceLock::new();
    let byte = |at: usize| ((at ^ (at >> 8) ^ (at >> 16)) % 251 + 1) as u8;
    if len > KEPT_LEN {
        return (0..len).map(byte).collect();
    }
    KEPT.get_or_init(|| (0..KEPT_LEN).map(byte).collect())[..len].to_vec()
}

/// The length of the repeated part of the [`pattern`].
const KEPT_LEN: usize = 24 << 20;

/// Returns the folder in which tests put their files: `tmp` in the target folder, which is on a
/// real file system, or `UNDERPASS_TEST_FOLDER`.
///
/// # Panics
///
/// If it cannot be created.
#[must_use]
pub fn test_root() -> PathBuf {
    let elsewhere = std::env::var_os("UNDERPASS_TEST_FOLDER").map(PathBuf::from);
    let root = elsewhere.unwrap_or_else(|| {
        // The test's own path is `target/PROFILE/deps/NAME`.
        let own = std::env::current_exe().unwrap();
        own.ancestors().nth(3).unwrap().join("tmp")
    });
    fs::create_dir_all(&root).unwrap();
    root
}

/// Creates a folder for one test, which is removed with its contents when it is dropped.
///
/// # Panics
///
/// If it cannot be created.
#[must_use]
pub fn folder() -> TempDir {
    tempfile::tempdir_in(test_root()).unwrap()
}

/// Returns the names in a folder, hidden ones included, in order.
///
/// # Panics
///
/// If the folder cannot be read.
#[must_use]
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns whether the test runs as root.
#[must_use]
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Returns whether the tests run in full, at full size: `UNDERPASS_FULL` is set, and not 0.
#[must_use]
pub fn is_full() -> bool {
    std::env::var_os("UNDERPASS_FULL").is_some_and(|value| value != "0")
}

/// Reports that a test cannot run here.
///
/// # Panics
///
/// In CI (`CI` is set), where every test can run.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "cannot test: {reason}");
    // Not captured by the test harness, so that the test does not appear to have passed.
    let mut terminal = File::options().append(true).open("/dev/stderr").unwrap();
    let _ = writeln!(terminal, "skipped: {reason}");
}

/// Returns whether a program is installed.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// Returns whether a program is installed, and reports that a test cannot run here if it is not.
///
/// # Panics
///
/// If it is not installed in CI, as [`skip`] does.
#[must_use]
pub fn has(program: &str) -> bool {
    let found = is_installed(program);
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}

/// A process that is killed when it is dropped, unless it has ended.
#[derive(Debug)]
pub struct KilledOnDrop(pub Child);

impl Deref for KilledOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KilledOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a free port on loopback that no other call on this machine returns while this process
/// runs. Tests run in parallel, and if two were given the same port, both would use the server of
/// one.
///
/// The port is outside the range from which the kernel chooses ports for connections (`ip(7)`,
/// `ip_local_port_range`), unless that was changed.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    let count = PORTS.end - PORTS.start;
    let start = RandomState::new().hash_one(0) % u64::from(count);
    let mut candidates = (PORTS.start..PORTS.end).cycle().skip(start as usize).take(count.into());
    let port = candidates.find(|port| {
        let name = format!("underpass-test-port-{port}");
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let Ok(reservation) = UnixListener::bind_addr(&address) else { return false };
        // The reservation lasts as long as the process.
        std::mem::forget(reservation);
        TcpListener::bind(("127.0.0.1", *port)).is_ok()
    });
    port.expect("a free port")
}

/// The ports for the servers of tests.
const PORTS: Range<u16> = 10_000..32_000;

/// Waits until a port on loopback accepts connections.
///
/// # Panics
///
/// After [`PATIENCE`].
#[track_caller]
pub fn until_listening(port: u16) {
    wait_until("a port that accepts connections", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
}

/// Waits until no process has the file open for writing.
///
/// While another test of this process starts a program, the child has a copy of each descriptor
/// until its exec. A descriptor that this test has closed meanwhile is still open there, and the
/// kernel refuses leases on its file.
///
/// # Panics
///
/// After [`PATIENCE`], or if the file cannot be opened.
#[track_caller]
pub fn until_closed_by_writers(path: &Path) {
    let file = File::open(path).unwrap();
    wait_until("a file that is not open for writing", || {
        let refused = take_read_lease(&file).map_err(io::Error::from).err();
        let _ = release_lease(&file);
        // Any refusal for a reason other than a writer is permanent.
        refused.is_none_or(|error| error.kind() != io::ErrorKind::WouldBlock)
    });
}

/// Checks every few milliseconds whether the condition holds, until it does.
///
/// # Panics
///
/// After [`PATIENCE`].
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The longest wait: far longer than any operation in a test.
pub const PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::free_port;

    #[test]
    fn no_port_is_returned_twice() {
        let ports: HashSet<_> = (0..500).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 500);
    }
}
