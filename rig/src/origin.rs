//! A server that speaks TLS in user space and gives one custom response.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::Result;
use crate::peer::PATIENCE;
use crate::terms;

/// A connection to a client.
pub(crate) type Connection = StreamOwned<ServerConnection, TcpStream>;

/// The server, which ends after a given number of connections.
#[derive(Debug)]
pub(crate) struct Origin {
    /// Its port on 127.0.0.1.
    pub(crate) port: u16,
    served: JoinHandle<std::result::Result<(), String>>,
}

impl Origin {
    /// Answers the first request of each of `connections` by `answer`, which gets the request's
    /// head and the number of earlier connections.
    pub(crate) fn start(
        connections: usize,
        answer: impl Fn(&mut Connection, &str, usize) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let config = terms::server()?;
        let served = std::thread::spawn(move || {
            for before in 0..connections {
                let (stream, _) = listener.accept().map_err(|error| error.to_string())?;
                serve(stream, Arc::clone(&config), |stream, head| answer(stream, head, before))
                    .map_err(|error| error.to_string())?;
            }
            Ok(())
        });
        Ok(Self { port, served })
    }

    /// Returns the URL of its response.
    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}/file", self.port)
    }

    /// Waits until it has answered, and fails if it could not.
    pub(crate) fn end(self) -> Result<()> {
        Ok(self.served.join().map_err(|_| "the origin panicked")??)
    }
}

/// Reads one head and answers it.
fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    answer: impl Fn(&mut Connection, &str) -> Result<()>,
) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut stream = StreamOwned::new(ServerConnection::new(config)?, stream);
    let mut head = String::new();
    {
        // The client sends nothing more before it has an answer.
        let mut reader = BufReader::with_capacity(1, &mut stream);
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Err(format!("the client left after: {head}").into());
            }
        }
    }
    answer(&mut stream, &head)?;
    // Closing a socket with unread bytes, such as the client's part of a key change, resets the
    // connection and discards what the client has not read yet. So its bytes are read; it may have
    // left.
    let _ = stream.sock.shutdown(Shutdown::Write);
    let _ = std::io::copy(&mut stream.sock, &mut std::io::sink());
    Ok(())
}

/// Sends the head of a response with these fields, each with its line end.
pub(crate) fn send_head(stream: &mut Connection, status: &str, fields: &str) -> Result<()> {
    let head = format!("HTTP/1.1 {status}\r\n{fields}Connection: close\r\n\r\n");
    Ok(stream.write_all(head.as_bytes())?)
}

/// Sends `close_notify`, and closes the connection for writing.
pub(crate) fn close_notify(stream: &mut Connection) -> Result<()> {
    stream.conn.send_close_notify();
    stream.flush()?;
    Ok(stream.sock.shutdown(Shutdown::Write)?)
}

/// Changes our sending key, and requests that the client change its own.
pub(crate) fn change_keys(stream: &mut Connection) -> Result<()> {
    stream.conn.refresh_traffic_keys()?;
    Ok(stream.flush()?)
}

/// Closes without close_notify, as an intermediary might.
pub(crate) fn cut(stream: &mut Connection) -> Result<()> {
    stream.flush()?;
    Ok(stream.sock.shutdown(Shutdown::Write)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Origin, change_keys, close_notify, cut, send_head};
    use crate::pattern::{self, Arrived};
    use crate::peer::Peer;

    /// Fetches 64 KiB whose sender changes keys in the middle.
    fn fetch(ends_well: bool) -> crate::Result<()> {
        let len = 64 << 10;
        let origin = Origin::start(1, move |stream, head, _| {
            assert!(head.starts_with("GET /file HTTP/1.1\r\n"), "{head}");
            send_head(stream, "200 OK", &format!("Content-Length: {len}\r\n"))?;
            pattern::write(stream, 0, len / 2)?;
            change_keys(stream)?;
            pattern::write(stream, len / 2, len)?;
            if ends_well { close_notify(stream) } else { cut(stream) }
        })?;
        let mut peer = Peer::connect(origin.port)?;
        assert_eq!(peer.get("/file", "", 200)?.length()?, len);
        Arrived::default().read(peer.body(), len)?;
        let ended = peer.ends_well();
        // The origin also reads until the client has closed.
        drop(peer);
        origin.end()?;
        ended
    }

    #[test]
    fn a_peer_follows_a_change_of_keys_and_hears_the_end() {
        fetch(true).unwrap();
    }

    #[test]
    fn a_peer_tells_a_cut_from_an_end() {
        let error = fetch(false).unwrap_err().to_string();
        assert!(error.starts_with("not ended by close_notify"), "{error}");
    }
}
