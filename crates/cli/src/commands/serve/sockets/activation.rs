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
        let (action, address) = ("taking over", format!("socket {} of LISTEN_FDS", index + 1));
        let fail = |source| Failure::Network { action, address: address.clone(), source };
        let socket = passed_socket(&mut passed, index).map_err(fail)?;
        if sockopt::socket_acceptconn(&socket).map_err(|errno| fail(errno.into()))? {
            return Ok(socket);
        }
        // The socket does not listen, so no connection can arrive.
        Err(Failure::Failed {
            line: format!("{action} {address}: nothing listens on it"),
            hint: Some(Hint::new("pass a socket unit with ListenStream=")),
            exit_code: 1,
        })
    });
    sockets.collect()
}

fn passed_socket(passed: &mut ListenFd, index: usize) -> io::Result<OwnedFd> {
    if let Ok(Some(socket)) = passed.take_tcp_listener(index) {
        return Ok(socket.into());
    }
    match passed.take_unix_listener(index) {
        Ok(Some(socket)) => Ok(socket.into()),
        Ok(None) => Err(Errno::BADF.into()),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            Err(io::Error::new(error.kind(), "it is not a stream socket"))
        }
        Err(error) => Err(error),
    }
}
