//! Inherited sockets: `LISTEN_FDS`, as systemd passes them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use listenfd::ListenFd;
use rustix::io::Errno;
use rustix::net::sockopt;

use crate::failure::{Failure, Result};

/// Returns the listening sockets that this process inherited; usually none.
///
/// Call this before there is a second thread: it removes the variables.
pub(crate) fn inherited() -> Result<Vec<OwnedFd>> {
    let mut passed = ListenFd::from_env();
    let sockets = (0..passed.len()).map(|index| {
        let socket = take(&mut passed, index).and_then(listening);
        socket.map_err(|source| Failure::Network {
            action: "taking over",
            address: format!("socket {} of LISTEN_FDS", index + 1),
            source,
        })
    });
    sockets.collect()
}

fn take(passed: &mut ListenFd, index: usize) -> io::Result<OwnedFd> {
    if let Ok(Some(socket)) = passed.take_tcp_listener(index) {
        return Ok(socket.into());
    }
    match passed.take_unix_listener(index)? {
        Some(socket) => Ok(socket.into()),
        None => Err(Errno::BADF.into()),
    }
}

/// Refuses a socket that no connection can come from.
fn listening(socket: OwnedFd) -> io::Result<OwnedFd> {
    if sockopt::socket_acceptconn(socket.as_fd())? { Ok(socket) } else { Err(Errno::INVAL.into()) }
}
