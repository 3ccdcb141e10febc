//! The header of the PROXY protocol, which a proxy sends before everything else, even before the
//! TLS handshake.

use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::connection::peer::{Activity, Peer};
use crate::connection::socket::READABLE;
use underpass_protocol::request::proxy_header::{BadHeader, MAX_BINARY, ProxiedClient, parse};

/// The reason why a connection has no header.
#[derive(Debug)]
pub(crate) enum ProxyHeaderError {
    /// The proxy left, or took too long, after these bytes.
    Ended(Vec<u8>),
    /// It sent something else.
    Bad(Box<RefusedHeader>),
}

/// The bytes that a proxy sent instead of a header.
#[derive(Debug)]
pub(crate) struct RefusedHeader {
    /// Its first bytes.
    pub(crate) bytes: Vec<u8>,
    /// Why they are not a header.
    pub(crate) fault: BadHeader,
}

/// Reads the header of a connection, and nothing after it.
pub(crate) async fn read(peer: &Peer) -> Result<ProxiedClient, ProxyHeaderError> {
    peer.set_activity(Activity::Handshaking, Instant::now());
    let mut bytes = Vec::new();
    loop {
        if peer.socket.ready(READABLE).await.is_err() {
            return Err(ProxyHeaderError::Ended(bytes));
        }
        let known = bytes.len();
        bytes.resize(MAX_HEADER, 0);
        let seen = recv(&peer.socket, &mut bytes[known..], RecvFlags::PEEK);
        bytes.truncate(known + seen.map_or(0, |(len, _)| len));
        match seen {
            Ok((1.., _)) => {}
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => {
                peer.socket.clear_ready(READABLE);
                continue;
            }
            Ok(_) | Err(_) => return Err(ProxyHeaderError::Ended(bytes)),
        }
        let (origin, end) = match parse(&bytes) {
            Ok(Some((origin, len))) => (Some(origin), len),
            // Everything received so far belongs to the header.
            Ok(None) => (None, bytes.len()),
            Err(fault) => {
                return Err(ProxyHeaderError::Bad(Box::new(RefusedHeader { bytes, fault })));
            }
        };
        // These bytes were only peeked, so one call takes them all.
        match recv(&peer.socket, &mut bytes[known..end], RecvFlags::empty()) {
            Ok((len, _)) if len == end - known => {}
            _ => return Err(ProxyHeaderError::Ended(bytes)),
        }
        if let Some(origin) = origin {
            return Ok(origin);
        }
    }
}

/// The maximum length of a header.
const MAX_HEADER: usize = 16 + MAX_BINARY;
