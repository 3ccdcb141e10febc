//! The sockets that clients connect to.

pub(crate) mod address;
pub(crate) mod kind;

use std::fs::Permissions;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, lstat, open};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_reuseaddr, set_socket_reuseport, set_tcp_nodelay, socket_domain,
};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, listen, socket_with,
};
use underpass_engine::FileId;
use underpass_engine::socket::limit_unsent;
use underpass_transport::stream::is_abandoned;

use crate::server::listen::address::Address;
use crate::server::listen::kind::ListenerKind;
use crate::server::settings::ServeError;

/// One address, with one listening socket for each worker.
#[derive(Debug)]
pub(crate) struct Listener {
    /// One socket for each worker: for TCP separate sockets, so that the kernel spreads connections
    /// over them, otherwise copies of one.
    pub(crate) sockets: Vec<OwnedFd>,
    /// The address for clients: `127.0.0.1:5000` or `unix:/run/x`.
    pub(crate) address: String,
    pub(crate) kind: ListenerKind,
    /// The path of a Unix socket that the server created and has to remove.
    _path: Option<SocketPath>,
}

impl Listener {
    /// Listens on a port.
    pub(crate) fn tcp(
        address: SocketAddr,
        kind: ListenerKind,
        workers: usize,
    ) -> Result<Self, ServeError> {
        let fail = |source| ServeError::Listen { address: address.to_string(), source };
        tcp(address, kind, workers).map_err(fail)
    }

    /// Listens at a path, with these permissions if there are any. Traffic over a Unix socket
    /// cannot be overheard, so it has no TLS.
    pub(crate) fn unix(path: &Path, mode: Option<u32>, workers: usize) -> Result<Self, ServeError> {
        let address = || Address::Unix(path.to_owned()).to_string();
        unix(path, mode, workers)
            .map_err(|source| ServeError::Listen { address: address(), source })
    }

    /// Takes over a socket that another program has opened for listening, as systemd does.
    pub(crate) fn inherited(
        socket: OwnedFd,
        kind: ListenerKind,
        workers: usize,
    ) -> Result<Self, ServeError> {
        let fail = |source| ServeError::Listen { address: "inherited socket".to_owned(), source };
        let address = local_address(&socket).map_err(fail)?;
        rustix::io::ioctl_fionbio(&socket, true).map_err(|errno| fail(errno.into()))?;
        let is_unix = socket_domain(&socket) == Ok(AddressFamily::UNIX);
        if !is_unix {
            set_tcp_nodelay(&socket, true).map_err(|errno| fail(errno.into()))?;
            let _ = limit_unsent(&socket, Some(UNPROVEN_UNSENT));
        }
        let kind = if is_unix { ListenerKind::Plain } else { kind };
        let sockets = copies(socket, workers).map_err(fail)?;
        Ok(Self { sockets, address, kind, _path: None })
    }
}

/// Listens for clients that are redirected to HTTPS: on `port` of each address of `listeners`, to
/// the first port at that address.
pub(crate) fn redirects(
    listeners: &[Listener],
    port: u16,
    workers: usize,
) -> Result<Vec<Listener>, ServeError> {
    let mut redirects = Vec::new();
    let mut known = Vec::new();
    for to in listeners.iter().filter_map(|listener| listener.address.parse::<SocketAddr>().ok()) {
        if !known.contains(&to.ip()) {
            known.push(to.ip());
            let kind = ListenerKind::Redirect { port: to.port() };
            redirects.push(Listener::tcp(SocketAddr::new(to.ip(), port), kind, workers)?);
        }
    }
    Ok(redirects)
}

/// Opens one socket for each worker on the same port: the kernel spreads connections over them.
fn tcp(address: SocketAddr, kind: ListenerKind, workers: usize) -> io::Result<Listener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut sockets = Vec::with_capacity(workers);
    let mut at = address;
    for index in 0..workers {
        let socket = stream(family)?;
        set_socket_reuseaddr(&socket, true)?;
        // A full TCP segment is never held back for more, and a response is sent as a whole.
        // Connections inherit the option, which saves each of them a call.
        set_tcp_nodelay(&socket, true)?;
        // A client that reads nothing of a large file must not cost the filling of a large buffer.
        let _ = limit_unsent(&socket, Some(UNPROVEN_UNSENT));
        if address.is_ipv6() {
            // This allows 0.0.0.0 and [::] to be used side by side.
            set_ipv6_v6only(&socket, true)?;
        }
        // The first socket is without it: a port that another program listens on must be an error,
        // even if that program would share it.
        if index > 0 {
            set_socket_reuseport(&socket, true)?;
        }
        bind(&socket, &at)?;
        set_socket_reuseport(&socket, true)?;
        if index == 0 {
            at = TcpListener::from(socket.try_clone()?).local_addr()?;
        }
        sockets.push(socket);
    }
    for socket in &sockets {
        listen(socket, BACKLOG)?;
    }
    Ok(Listener { sockets, address: at.to_string(), kind, _path: None })
}

/// Opens a socket at a path. A socket that was left there by a killed program is replaced.
fn unix(path: &Path, mode: Option<u32>, workers: usize) -> io::Result<Listener> {
    let socket = stream(AddressFamily::UNIX)?;
    let address = SocketAddrUnix::new(path)?;
    if let Err(errno) = bind(&socket, &address) {
        if errno != Errno::ADDRINUSE || !is_abandoned(path) {
            // The kernel's error would say that a server listens there.
            let is_other = errno == Errno::ADDRINUSE && is_other_than_socket(path);
            return Err(if is_other { Errno::NOTSOCK } else { errno }.into());
        }
        std::fs::remove_file(path)?;
        bind(&socket, &address)?;
    }
    let id = id_of(path);
    let made = SocketPath { id, path: path.to_owned() };
    if let Some(mode) = mode {
        // No client can connect before it listens. If another user has put something else at the
        // path, it is left alone.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = open(path, flags, Mode::empty())?;
        if Some(FileId::of(&fstat(&opened)?)) != id {
            return Err(Errno::STALE.into());
        }
        let opened = format!("/proc/self/fd/{}", opened.as_raw_fd());
        std::fs::set_permissions(opened, Permissions::from_mode(mode))?;
    }
    listen(&socket, BACKLOG)?;
    let address = format!("unix:{}", path.display());
    let sockets = copies(socket, workers)?;
    Ok(Listener { sockets, address, kind: ListenerKind::Plain, _path: Some(made) })
}

/// Returns whether something other than a socket is at a path.
fn is_other_than_socket(path: &Path) -> bool {
    lstat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Socket)
}

/// Returns the identity of the entry at a path, which may be a link.
fn id_of(path: &Path) -> Option<FileId> {
    lstat(path).ok().map(|stat| FileId::of(&stat))
}

fn stream(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

fn copies(socket: OwnedFd, workers: usize) -> io::Result<Vec<OwnedFd>> {
    let mut sockets = Vec::with_capacity(workers);
    for _ in 1..workers {
        sockets.push(socket.try_clone()?);
    }
    sockets.push(socket);
    Ok(sockets)
}

fn local_address(socket: &OwnedFd) -> io::Result<String> {
    if socket_domain(socket)? == AddressFamily::UNIX {
        let address = UnixListener::from(socket.try_clone()?).local_addr()?;
        let path = address.as_pathname().unwrap_or_else(|| Path::new("(unnamed)"));
        return Ok(format!("unix:{}", path.display()));
    }
    Ok(SocketAddr::try_from(getsockname(socket)?)?.to_string())
}

/// Removes the path of a socket when its server stops accepting.
#[derive(Debug)]
struct SocketPath {
    path: PathBuf,
    /// The socket that was created there: another program may have replaced it.
    id: Option<FileId>,
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        if self.id.is_some() && self.id == id_of(&self.path) {
            // The path may be out of reach of a confined process.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The maximum number of bytes that a connection takes and has not sent, until its client
/// has read some of them.
const UNPROVEN_UNSENT: u32 = 128 << 10;

/// The number of connections that may wait to be accepted; the kernel caps it at
/// net.core.somaxconn.
const BACKLOG: i32 = 4096;
