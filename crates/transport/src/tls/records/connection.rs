//! The client and the server of rustls as one type: a step consumes records from one queue and adds
//! records to another.

use std::fmt;

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{CommonState, Error};

use super::queue::ByteQueue;

/// A connection without its own buffers.
pub(in crate::tls) enum RecordLayer {
    /// The client's side.
    Client(Box<UnbufferedClientConnection>),
    /// The server's side.
    Server(Box<UnbufferedServerConnection>),
}

/// What to do once rustls itself has nothing more to do.
#[derive(Clone, Copy)]
pub(in crate::tls) enum Intent<'a> {
    /// Do nothing.
    Listen,
    /// Encrypt these bytes.
    Say(&'a [u8]),
    /// Close the sending side.
    Close,
}

/// The result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tls) enum StepResult {
    /// Something was done; there may be more to do.
    Moved,
    /// Nothing more can be done without more records, or the intent was carried out.
    Idle,
    /// The peer has closed its sending side.
    PeerClosed,
    /// Both sides have closed: nothing can be sent or received any more.
    Closed,
}

impl RecordLayer {
    /// Takes one step with the first `shown` bytes of `incoming`, drops those consumed and returns
    /// their number. Plaintext is passed to `plaintext`, records to send are added to `outgoing`.
    pub(in crate::tls) fn step(
        &mut self,
        incoming: &mut ByteQueue,
        shown: usize,
        outgoing: &mut ByteQueue,
        intent: Intent<'_>,
        plaintext: &mut dyn FnMut(&[u8]),
    ) -> (usize, Result<StepResult, Error>) {
        let records = &mut incoming.bytes_mut()[..shown];
        let (used, turn) = match self {
            Self::Client(client) => {
                process(client.process_tls_records(records), outgoing, intent, plaintext)
            }
            Self::Server(server) => {
                process(server.process_tls_records(records), outgoing, intent, plaintext)
            }
        };
        incoming.consume(used);
        (used, turn)
    }

    /// Returns the state that both sides share.
    pub(in crate::tls) fn common(&self) -> &CommonState {
        match self {
            Self::Client(client) => client,
            Self::Server(server) => server,
        }
    }

    /// Returns the most bytes of incomplete records that are kept. A client accepts long handshake
    /// messages in records of any size; an unauthenticated client may send a server only what fits
    /// into one record.
    pub(in crate::tls) fn max_incoming(&self) -> usize {
        match self {
            Self::Client(_) => 128 * 1024,
            Self::Server(_) => MAX_RECORD,
        }
    }

    /// Queues rustls's alert for the peer after a failure. No record is shown to rustls, which
    /// would fail again.
    pub(in crate::tls) fn take_alerts(
        &mut self,
        incoming: &mut ByteQueue,
        outgoing: &mut ByteQueue,
    ) {
        while self.common().wants_write() {
            let shown = incoming.len();
            if self.step(incoming, shown, outgoing, Intent::Listen, &mut |_| ()).1.is_err() {
                return;
            }
        }
    }
}

/// Performs what one state of rustls requires.
fn process<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    outgoing: &mut ByteQueue,
    intent: Intent<'_>,
    plaintext: &mut dyn FnMut(&[u8]),
) -> (usize, Result<StepResult, Error>) {
    let mut used = status.discard;
    let turn = status.state.and_then(|state| {
        Ok(match state {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    used += record.discard;
                    plaintext(record.payload);
                }
                StepResult::Moved
            }
            ConnectionState::EncodeTlsData(mut record) => {
                fill(outgoing, RECORD, |room| match record.encode(room) {
                    Ok(len) => Ok(len),
                    Err(EncodeError::InsufficientSize(size)) => Err(Some(size.required_size)),
                    Err(EncodeError::AlreadyEncoded) => Err(None),
                })?;
                StepResult::Moved
            }
            // The records are in our queue, which counts as sent.
            ConnectionState::TransmitTlsData(sent) => {
                sent.done();
                StepResult::Moved
            }
            ConnectionState::WriteTraffic(mut traffic) => {
                let grant = |result| match result {
                    Ok(len) => Ok(len),
                    Err(EncryptError::InsufficientSize(size)) => Err(Some(size.required_size)),
                    Err(EncryptError::EncryptExhausted) => Err(None),
                };
                match intent {
                    Intent::Listen => (),
                    Intent::Say(bytes) => fill(outgoing, bytes.len() + RECORD, |room| {
                        grant(traffic.encrypt(bytes, room))
                    })?,
                    Intent::Close => {
                        fill(outgoing, RECORD, |room| grant(traffic.queue_close_notify(room)))?;
                    }
                }
                StepResult::Idle
            }
            ConnectionState::PeerClosed => StepResult::PeerClosed,
            ConnectionState::Closed => StepResult::Closed,
            // The handshake needs more bytes. Early data is never offered, so none arrives.
            _ => StepResult::Idle,
        })
    });
    (used, turn)
}

/// The longest possible record, with its header (RFC 5246 6.2.3).
const MAX_RECORD: usize = 5 + 16 * 1024 + 2048;

/// Room for the overhead of a few records, or for one short record.
const RECORD: usize = 512;

/// Lets rustls write into a queue, a second time if it needs more room.
fn fill(
    queue: &mut ByteQueue,
    guess: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Result<(), Error> {
    let mut room = guess;
    for _ in 0..2 {
        match write(queue.room(room)) {
            Ok(len) => {
                queue.added(len);
                return Ok(());
            }
            Err(Some(required)) => room = required,
            Err(None) => break,
        }
    }
    Err(Error::EncryptError)
}

impl fmt::Debug for RecordLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client(_) => "Connection::Client",
            Self::Server(_) => "Connection::Server",
        })
    }
}
