//! Records without data after a handshake: alerts, tickets, key updates, renegotiation requests.
//!
//! This module is pure: it turns the bytes of records into events. When the kernel decrypts, these
//! are the only records that this process sees, in pieces of any size; this module decides which
//! are allowed.

use rustix::io::Errno;

use crate::session_facts::CERTIFICATE_REQUIRED;

/// The type of records that hold an alert.
pub const ALERT: u8 = 21;
/// The type of records that hold messages of a handshake.
pub const HANDSHAKE: u8 = 22;

/// The longest handshake message that is reassembled, in bytes: the longest allowed one is a ticket
/// (RFC 8446 4.6.1).
pub const MAX_MESSAGE: usize = 65_535 + 512;

/// The limit for requests that cost this process more than the peer.
const MAX_KEY_CHANGES: u32 = 1024;
const MAX_RENEGOTIATIONS: u32 = 1;
const MAX_WARNINGS: u32 = 4;
const MAX_TICKETS: u32 = 256;

const CLOSE_NOTIFY: u8 = 0;
const UNEXPECTED_MESSAGE: u8 = 10;
const ILLEGAL_PARAMETER: u8 = 47;
const DECODE_ERROR: u8 = 50;
const USER_CANCELED: u8 = 90;
/// The alert `certificate_required`: the server requires a certificate, and the client has sent none.
const ALERT_CERTIFICATE_REQUIRED: u8 = 116;

const WARNING: u8 = 1;
const FATAL: u8 = 2;

const HELLO_REQUEST: u8 = 0;
const CLIENT_HELLO: u8 = 1;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// The length of a message's header: its type, three bytes of length.
const HEAD: usize = 4;

/// An event announced by the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// The peer closes its sending side (close_notify).
    End,
    /// All later records of the peer use its next key; if `answer`, ours must do so too.
    NewKey {
        /// Whether the peer requests a new key from this side too.
        answer: bool,
    },
    /// The peer requests another handshake (TLS 1.2), which is refused.
    Renegotiation,
    /// A ticket for resuming this session: the body of the message.
    Ticket(Vec<u8>),
}

/// A violation of the protocol, which ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    /// The alert to send, if any.
    pub alert: Option<u8>,
    /// The corresponding error of a socket.
    pub errno: Errno,
}

impl ProtocolError {
    const fn because(alert: u8) -> Self {
        Self { alert: Some(alert), errno: Errno::PROTO }
    }
}

/// Reads the peer's records after a handshake.
#[derive(Debug)]
pub struct ControlReader {
    is_client: bool,
    is_tls13: bool,
    /// The type of the last record.
    kind: u8,
    /// The beginning of an incomplete message or alert.
    partial: Vec<u8>,
    /// The number of further bytes of a message that are ignored: its body does not matter.
    to_skip: usize,
    key_changes: u32,
    renegotiations: u32,
    warnings: u32,
    tickets: u32,
}

impl ControlReader {
    /// Creates a reader for a client or a server, of TLS 1.3 or 1.2.
    #[must_use]
    pub fn new(is_client: bool, is_tls13: bool) -> Self {
        Self {
            is_client,
            is_tls13,
            kind: HANDSHAKE,
            partial: Vec::new(),
            to_skip: 0,
            key_changes: 0,
            renegotiations: 0,
            warnings: 0,
            tickets: 0,
        }
    }

    /// Checks that data may arrive now.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`] between the parts of a message (RFC 8446, 5.1).
    pub(crate) fn allow_data(&self) -> Result<(), ProtocolError> {
        if self.is_within_message() {
            Err(ProtocolError::because(UNEXPECTED_MESSAGE))
        } else {
            Ok(())
        }
    }

    fn is_within_message(&self) -> bool {
        !self.partial.is_empty() || self.to_skip > 0
    }

    /// Reads a record that holds no data, or the part of one that was not read before.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`] if the peer may not send this.
    pub fn read(&mut self, kind: u8, bytes: &[u8]) -> Result<Vec<PeerEvent>, ProtocolError> {
        // RFC 8446 5.1: nothing may arrive between the parts of a message.
        if kind != self.kind {
            self.allow_data()?;
        }
        self.kind = kind;
        match kind {
            ALERT => self.read_alert(bytes).map(|end| end.into_iter().collect()),
            HANDSHAKE => self.read_messages(bytes),
            _ => Err(ProtocolError::because(UNEXPECTED_MESSAGE)),
        }
    }

    /// Reads an alert (RFC 8446 6, RFC 5246 7.2).
    fn read_alert(&mut self, bytes: &[u8]) -> Result<Option<PeerEvent>, ProtocolError> {
        self.partial.extend_from_slice(bytes);
        if self.partial.len() == 1 {
            // Wait for the second byte: the caller had room for one.
            return Ok(None);
        }
        let alert = std::mem::take(&mut self.partial);
        let [level, description] = alert[..] else {
            return Err(ProtocolError::because(DECODE_ERROR));
        };
        if description == CLOSE_NOTIFY {
            return Ok(Some(PeerEvent::End));
        }
        match level {
            WARNING if !self.is_tls13 || description == USER_CANCELED => {
                count(&mut self.warnings, MAX_WARNINGS)?;
                Ok(None)
            }
            WARNING => Err(ProtocolError::because(DECODE_ERROR)),
            FATAL if description == ALERT_CERTIFICATE_REQUIRED => {
                Err(ProtocolError { alert: None, errno: CERTIFICATE_REQUIRED })
            }
            FATAL => Err(ProtocolError { alert: None, errno: Errno::CONNRESET }),
            _ => Err(ProtocolError::because(ILLEGAL_PARAMETER)),
        }
    }

    fn read_messages(&mut self, bytes: &[u8]) -> Result<Vec<PeerEvent>, ProtocolError> {
        if bytes.is_empty() {
            return Err(ProtocolError::because(UNEXPECTED_MESSAGE)); // RFC 8446 5.1
        }
        let skipped = self.to_skip.min(bytes.len());
        self.to_skip -= skipped;
        let mut messages = std::mem::take(&mut self.partial);
        messages.extend_from_slice(&bytes[skipped..]);
        let (mut rest, mut events) = (messages.as_slice(), Vec::new());
        while let Some((&[kind, a, b, c], behind)) = rest.split_first_chunk::<HEAD>() {
            let len = u32::from_be_bytes([0, a, b, c]) as usize;
            self.check_head(kind, len)?;
            if kind == CLIENT_HELLO {
                // The body may be long and does not matter.
                let skipped = len.min(behind.len());
                self.to_skip = len - skipped;
                events.push(self.read_message(kind, &[])?);
                rest = &behind[skipped..];
                continue;
            }
            let Some((body, behind)) = behind.split_at_checked(len) else { break };
            // Any data after it would be under the old key.
            if kind == KEY_UPDATE && !behind.is_empty() {
                return Err(ProtocolError::because(UNEXPECTED_MESSAGE));
            }
            events.push(self.read_message(kind, body)?);
            rest = behind;
        }
        self.partial = rest.to_vec();
        Ok(events)
    }

    /// Refuses a message as soon as its header is complete.
    fn check_head(&self, kind: u8, len: usize) -> Result<(), ProtocolError> {
        let may_come = match kind {
            NEW_SESSION_TICKET => self.is_client && self.is_tls13,
            KEY_UPDATE => self.is_tls13,
            HELLO_REQUEST => self.is_client && !self.is_tls13,
            CLIENT_HELLO => !self.is_client && !self.is_tls13,
            _ => false,
        };
        let has_len = match kind {
            KEY_UPDATE => len == 1,
            HELLO_REQUEST => len == 0,
            _ => len <= MAX_MESSAGE,
        };
        match (may_come, has_len) {
            (false, _) => Err(ProtocolError::because(UNEXPECTED_MESSAGE)),
            (true, false) => Err(ProtocolError::because(DECODE_ERROR)),
            (true, true) => Ok(()),
        }
    }

    fn read_message(&mut self, kind: u8, body: &[u8]) -> Result<PeerEvent, ProtocolError> {
        match kind {
            NEW_SESSION_TICKET => {
                count(&mut self.tickets, MAX_TICKETS)?;
                Ok(PeerEvent::Ticket(body.to_vec()))
            }
            KEY_UPDATE => {
                count(&mut self.key_changes, MAX_KEY_CHANGES)?;
                match body {
                    [0] => Ok(PeerEvent::NewKey { answer: false }),
                    [1] => Ok(PeerEvent::NewKey { answer: true }),
                    _ => Err(ProtocolError::because(ILLEGAL_PARAMETER)), // RFC 8446 4.6.3
                }
            }
            _ => {
                count(&mut self.renegotiations, MAX_RENEGOTIATIONS)?;
                Ok(PeerEvent::Renegotiation)
            }
        }
    }
}

/// Increments a counter; fails beyond `max`.
fn count(counter: &mut u32, max: u32) -> Result<(), ProtocolError> {
    *counter += 1;
    if *counter > max { Err(ProtocolError::because(UNEXPECTED_MESSAGE)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record type without meaning after a handshake.
    const CHANGE_CIPHER_SPEC: u8 = 20;
    const REFUSED: ProtocolError = ProtocolError::because(UNEXPECTED_MESSAGE);

    #[test]
    fn alerts_end_a_connection_or_not() {
        let end = Ok(vec![PeerEvent::End]);
        let reset = Err(ProtocolError { alert: None, errno: Errno::CONNRESET });
        let malformed = Err(ProtocolError::because(DECODE_ERROR));
        let refused = Err(ProtocolError { alert: None, errno: CERTIFICATE_REQUIRED });
        let cases: [(&[u8], _, _); 8] = [
            (&[1, 0], end.clone(), end.clone()),
            (&[2, 0], end.clone(), end),
            (&[1, 90], Ok(vec![]), Ok(vec![])),
            (&[1, 100], malformed.clone(), Ok(vec![])),
            (&[2, 40], reset.clone(), reset),
            (&[2, 116], refused.clone(), refused),
            (&[3, 40], Err(ProtocolError::because(47)), Err(ProtocolError::because(47))),
            (&[1, 0, 0], malformed.clone(), malformed),
        ];
        for (bytes, of_13, of_12) in cases {
            assert_eq!(ControlReader::new(true, true).read(ALERT, bytes), of_13, "{bytes:?}");
            assert_eq!(ControlReader::new(true, false).read(ALERT, bytes), of_12, "{bytes:?}");
        }
        // In two parts with nothing in between.
        let mut control = ControlReader::new(true, true);
        assert_eq!(control.read(ALERT, &[1]), Ok(vec![]));
        assert_eq!(control.allow_data(), Err(REFUSED));
        assert_eq!(control.read(ALERT, &[0]), Ok(vec![PeerEvent::End]));
        let mut control = ControlReader::new(false, false);
        for _ in 0..MAX_WARNINGS {
            assert_eq!(control.read(ALERT, &[1, 100]), Ok(vec![]));
        }
        assert_eq!(control.read(ALERT, &[1, 100]), Err(REFUSED));
    }

    #[test]
    fn messages_are_reassembled_from_pieces() {
        let bytes = [4, 0, 0, 3, 7, 8, 9, 4, 0, 0, 1, 6, 24, 0, 0, 1, 1];
        let expected = [
            PeerEvent::Ticket(vec![7, 8, 9]),
            PeerEvent::Ticket(vec![6]),
            PeerEvent::NewKey { answer: true },
        ];
        for cut in 1..=bytes.len() {
            let mut control = ControlReader::new(true, true);
            let pieces = bytes.chunks(cut).map(|piece| control.read(HANDSHAKE, piece).unwrap());
            assert_eq!(pieces.flatten().collect::<Vec<_>>(), expected);
            assert_eq!(control.read(ALERT, &[1, 0]), Ok(vec![PeerEvent::End]));
        }
        let mut control = ControlReader::new(true, true);
        assert_eq!(control.allow_data(), Ok(()));
        assert_eq!(control.read(HANDSHAKE, &bytes[..5]), Ok(vec![]));
        assert_eq!(control.allow_data(), Err(REFUSED), "between the parts of a message");
        assert_eq!(control.read(ALERT, &[1, 0]), Err(REFUSED), "between the parts of a message");
    }

    #[test]
    fn a_renegotiation_request_is_not_buffered() {
        let mut control = ControlReader::new(false, false);
        assert_eq!(control.read(HANDSHAKE, &[1, 0, 0xff]), Ok(vec![]));
        let refused = control.read(HANDSHAKE, &[0xff, 7]);
        assert_eq!(refused, Ok(vec![PeerEvent::Renegotiation]));
        for _ in 0..0xfffe / 2 {
            assert_eq!(control.allow_data(), Err(REFUSED), "between the parts of a message");
            assert_eq!(control.read(HANDSHAKE, &[7, 7]), Ok(vec![]));
            assert_eq!(control.partial, []);
        }
        assert_eq!(control.allow_data(), Ok(()));
    }

    #[test]
    fn each_side_accepts_only_messages_of_the_other_role() {
        const TICKET: &[u8] = &[4, 0, 0, 0];
        const HELLO: &[u8] = &[1, 0, 0, 0];
        let cases: [(&[u8], [bool; 4]); 6] = [
            // A client of 1.3, a server of 1.3, a client of 1.2, a server of 1.2.
            (TICKET, [true, false, false, false]),
            (&[24, 0, 0, 1, 0], [true, true, false, false]),
            (&[0, 0, 0, 0], [false, false, true, false]),
            (HELLO, [false, false, false, true]),
            (&[13, 0, 0, 0], [false; 4]), // CertificateRequest: no certificate was offered
            (&[20, 0, 0, 0], [false; 4]),
        ];
        for (bytes, may_come) in cases {
            let sides = [(true, true), (false, true), (true, false), (false, false)];
            for ((is_client, is_tls13), may_come) in sides.into_iter().zip(may_come) {
                let outcome = ControlReader::new(is_client, is_tls13).read(HANDSHAKE, bytes);
                assert_eq!(outcome.is_ok(), may_come, "{bytes:?} {is_client} {is_tls13}");
            }
        }
    }

    #[test]
    fn malformed_or_excessive_control_records_are_refused() {
        let refuses = |mut control: ControlReader, kind, bytes: &[u8]| {
            control.read(kind, bytes).unwrap_err().alert.unwrap()
        };
        let of_13 = || ControlReader::new(true, true);
        assert_eq!(refuses(of_13(), HANDSHAKE, &[]), UNEXPECTED_MESSAGE);
        assert_eq!(refuses(of_13(), CHANGE_CIPHER_SPEC, &[1]), UNEXPECTED_MESSAGE);
        assert_eq!(refuses(of_13(), 99, &[1]), UNEXPECTED_MESSAGE);
        assert_eq!(refuses(of_13(), HANDSHAKE, &[24, 0, 0, 1, 2]), ILLEGAL_PARAMETER);
        assert_eq!(refuses(of_13(), HANDSHAKE, &[24, 0, 0, 2]), DECODE_ERROR);
        assert_eq!(refuses(of_13(), HANDSHAKE, &[24, 0, 0, 1, 0, 4]), UNEXPECTED_MESSAGE);
        assert_eq!(refuses(of_13(), HANDSHAKE, &[4, 2, 0, 0]), DECODE_ERROR);
        let mut control = ControlReader::new(false, false);
        let again = [1, 0, 0, 0];
        assert_eq!(control.read(HANDSHAKE, &again), Ok(vec![PeerEvent::Renegotiation]));
        assert_eq!(control.read(HANDSHAKE, &again), Err(REFUSED));
        let mut control = of_13();
        for _ in 0..MAX_KEY_CHANGES {
            assert!(control.read(HANDSHAKE, &[24, 0, 0, 1, 1]).is_ok());
        }
        assert_eq!(control.read(HANDSHAKE, &[24, 0, 0, 1, 1]), Err(REFUSED));
    }
}
