//! Unix sockets marked so that the peer recognizes underpass, even after this process has ended.
//!
//! The mark is the address of the socket: the kernel keeps it for the peer as long as the peer's
//! socket exists, and no connection ever exists without it. Other programs ignore it. A connecting
//! socket gets a name in the abstract namespace; a listening one has redundant components in its
//! path.

use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{bind, socket_with};

/// Connects a marked socket to the path.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Names are unique per network namespace, which processes of several PID namespaces may share.
    let random = RandomState::new().hash_one(process::id());
    let name = format!("{NAME}{}-{random:016x}", process::id());
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// Listens on a marked socket at the path.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    let path = marked(path);
    SocketAddrUnix::new(&path)?; // the error of the kernel for a path that is too long
    UnixListener::bind(path)
}

/// Returns whether a path is a socket that no process listens on. It does not wait, even for a
/// process that accepts nothing.
#[must_use]
pub fn is_abandoned(path: &Path) -> bool {
    let refuses = || {
        // A stream socket refuses datagrams with another error, so a listening process gets no
        // connection.
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        rustix::net::connect(socket, &SocketAddrUnix::new(path)?)
    };
    path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
        && refuses() == Err(Errno::CONNREFUSED)
}

/// Returns whether the peer marked its socket.
pub(super) fn has_marked_peer(socket: &UnixStream) -> bool {
    socket.peer_addr().is_ok_and(|address| is_marked(&address))
}

fn is_marked(address: &SocketAddr) -> bool {
    let is_name = address.as_abstract_name().is_some_and(|name| name.starts_with(NAME.as_bytes()));
    is_name || address.as_pathname().is_some_and(|path| split(path).0.ends_with(DETOUR))
}

/// Returns a marked spelling of the path.
fn marked(path: &Path) -> PathBuf {
    let (folder, name) = split(path);
    OsString::from_vec([folder, DETOUR, name].concat()).into()
}

/// Splits the path after its last slash.
fn split(path: &Path) -> (&[u8], &[u8]) {
    let path = path.as_os_str().as_bytes();
    path.split_at(path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1))
}

/// The prefix of the names of connecting sockets.
const NAME: &str = "underpass-";

/// The mark before the last component of a path: it does not change the path, and is not typed by
/// chance.
const DETOUR: &[u8] = b".//.//";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_paths_name_the_same_file() {
        for (path, expected) in [
            ("socket", ".//.//socket"),
            ("./socket", "././/.//socket"),
            ("/socket", "/.//.//socket"),
            ("/run/a/socket", "/run/a/.//.//socket"),
        ] {
            assert_eq!(marked(Path::new(path)), Path::new(expected));
            assert_eq!(marked(Path::new(path)).as_os_str(), expected);
        }
    }

    #[test]
    fn only_marked_addresses_count_as_marked() {
        let path = |path: &str| SocketAddr::from_pathname(path).unwrap();
        let name = |name: &str| SocketAddr::from_abstract_name(name).unwrap();
        for (address, expected) in [
            (path(".//.//socket"), true),
            (path("/run/.//.//socket"), true),
            (path("/run/socket"), false),
            (path("./socket"), false),
            (path("underpass-1"), false),
            (name("underpass-1-0"), true),
            (name("00001"), false),
            (UnixStream::pair().unwrap().0.local_addr().unwrap(), false),
        ] {
            assert_eq!(is_marked(&address), expected, "{address:?}");
        }
    }
}
