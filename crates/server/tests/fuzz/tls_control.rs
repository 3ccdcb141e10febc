//! What a peer says after a TLS handshake has one meaning, in whatever pieces it arrives, and takes
//! no more memory than one message.

use underpass_transport::tls::control::{ALERT, ControlReader, HANDSHAKE, MAX_MESSAGE, PeerEvent};

use crate::input::Input;

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"\x03\x16\x11\x04\0\0\x03\x07\x08\x09\x04\0\0\x01\x06\x18\0\0\x01\x01",
    b"\x02\x16\x05\x18\0\0\x01\0\x15\x02\x01\0",
    b"\x01\x16\x04\0\0\0\0\x15\x02\x01\x64\x15\x02\x02\x28",
    b"\0\x16\x02\x01\0\x16\x02\0\0\x14\x01\x01",
];

/// A side, a version, and records: their type, their length, their bytes.
pub(crate) fn check(data: &[u8]) {
    let mut input = Input(data);
    let sides = input.byte();
    let (is_client, is_tls13) = (sides & 1 != 0, sides & 2 != 0);
    let mut control = ControlReader::new(is_client, is_tls13);
    let (mut messages, mut events) = (Vec::new(), Vec::new());
    while !input.0.is_empty() {
        let (kind, len) = (input.byte(), usize::from(input.byte()));
        let (bytes, rest) = input.0.split_at(len.min(input.0.len()));
        input = Input(rest);
        let Ok(said) = control.read(kind, bytes) else { return };
        assert!(kind == HANDSHAKE || kind == ALERT, "nothing else may come");
        for event in &said {
            match event {
                PeerEvent::End => assert_eq!(kind, ALERT),
                PeerEvent::NewKey { .. } => assert!(is_tls13),
                PeerEvent::Renegotiation => assert!(!is_tls13),
                PeerEvent::Ticket(body) => {
                    assert!(is_tls13 && is_client && body.len() <= MAX_MESSAGE);
                }
            }
        }
        if kind == HANDSHAKE {
            messages.extend_from_slice(bytes);
            events.extend(said);
        }
    }
    let mut control = ControlReader::new(is_client, is_tls13);
    let one_by_one = messages.chunks(1).map(|byte| control.read(HANDSHAKE, byte).unwrap());
    assert_eq!(one_by_one.flatten().collect::<Vec<_>>(), events);
}
