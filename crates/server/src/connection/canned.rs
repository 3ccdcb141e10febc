//! Fixed responses, which are sent without reading the request.

use rustix::net::{SendFlags, Shutdown, send, shutdown};

use crate::connection::socket::Socket;
use crate::server::listen::kind::ListenerKind;

/// Refuses a connection because there are too many, without giving it a task.
pub(crate) fn refuse(socket: &Socket, kind: ListenerKind) {
    let answer = if kind == ListenerKind::Tls { TLS_ALERT } else { TOO_MANY };
    // A new socket's buffer has room for this, and a client that has left needs no response.
    let _ = send(socket, answer, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    // This keeps the response from being discarded together with an unread request.
    let _ = shutdown(socket, Shutdown::Write);
}

/// The response to a connection that is refused before its TLS handshake: a fatal alert,
/// `internal_error` (RFC 8446 6), in its own record.
const TLS_ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 80];

/// The response to a connection that is refused.
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\n\
    Content-Type: text/plain; charset=utf-8\r\nContent-Length: 46\r\n\r\n\
    503 Service Unavailable: too many connections\n";

/// The response to any request but the health check over a connection of the reserve.
pub(crate) const TOO_MANY_DETAIL: &str = "too many connections";

/// The error if the headers of a trusted proxy name different clients.
pub(crate) const CONTRADICTION: &str = "Forwarded and X-Forwarded-For name different clients: \
     the proxy has to remove the one that it does not set";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::response::RETRY_LATER;

    #[test]
    fn the_canned_response_matches_its_content_length() {
        let text = String::from_utf8_lossy(TOO_MANY);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head} {body}");
        assert!(head.contains(&format!("\r\nRetry-After: {RETRY_LATER}\r\n")), "{head}");
    }
}
