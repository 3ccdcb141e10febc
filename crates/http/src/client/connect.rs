//! Makes connections.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use url::Url;

use super::error::ClientError;

/// Connects to the server of a URL, trying its addresses in turn until the time is over.
pub(super) fn connect(url: &Url, patience: Duration) -> Result<TcpStream, ClientError> {
    let address = address(url);
    let deadline = Instant::now() + patience;
    let fail = |action| {
        let address = address.clone();
        move |source| ClientError::Network { action, address, source }
    };
    let found: Vec<SocketAddr> = address.to_socket_addrs().map_err(fail("looking up"))?.collect();
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for (index, each) in found.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        // One that does not answer must not use up the time of those behind it.
        let share = left / u32::try_from(found.len() - index).unwrap_or(u32::MAX);
        match TcpStream::connect_timeout(each, share.max(SHORTEST)) {
            Ok(stream) => {
                let prepare = || {
                    stream.set_nodelay(true)?;
                    stream.set_nonblocking(true)
                };
                prepare().map_err(fail("connecting to"))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(fail("connecting to")(last))
}

/// Host and port of a URL.
pub(super) fn address(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or(80);
    format!("{}:{port}", url.host_str().unwrap_or_default())
}

/// No address gets less time than this.
const SHORTEST: Duration = Duration::from_millis(100);
