//! Inherited sockets: `LISTEN_FDS`, as systemd passes them.

use std::io;
use std::os::fd::OwnedFd;

use listenfd::ListenFd;
use rustix::io::Errno;
use rustix::net::sockopt;
use underpass_engine::hint::Hint;

use crate::failure::{Failure, Result};

/// Returns the listening sockets that this process inherited; usually none.
///
/// Call this before there is a second thread: it removes the variables.
pub(crate) fn inherited() -> Result<Vec<OwnedFd>> {
    let mut passed = ListenFd::from_env();
    let sockets = (0..passed.len()).map(|index| {
        let action = "taking over";
        let address = format!("socket {} of LISTEN_FDS", index + 1);
        let listens = |socket: OwnedFd| sockopt::socket_acceptconn(&socket).map(|is| (is, socket));
        match take(&mut passed, index).and_then(|socket| Ok(listens(socket)?)) {
            Ok((true, socket)) => Ok(socket),
            // No connection can come from it.
            Ok((false, _)) => Err(Failure::Failed {
                line: format!("{action} {address}: nothing listens on it"),
                hint: Some(Hint::new("pass a socket unit with ListenStream=")),
                exit_code: 1,
            }),
            Err(source) => Err(Failure::Network { action, address, source }),
        }
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
