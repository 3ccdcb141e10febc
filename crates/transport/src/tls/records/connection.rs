//! rustls' client and server as one: a step takes records from one queue and puts what is to be
//! sent into another.

use std::fmt;

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{CommonState, Error};

use super::queue::Queue;

/// A connection without buffers of its own.
pub(in crate::tls) enum Connection {
    /// The side that asked.
    Client(Box<UnbufferedClientConnection>),
    /// The side that was asked.
    Server(Box<UnbufferedServerConnection>),
}

/// What is wanted when rustls has nothing more to do of itself.
#[derive(Clone, Copy)]
pub(in crate::tls) enum Intent<'a> {
    /// Nothing.
    Listen,
    /// These bytes are to be encrypted.
    Say(&'a [u8]),
    /// Nothing more will be said.
    Close,
}

/// What one step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tls) enum StepResult {
    /// Something was done; there may be more.
    Moved,
    /// Nothing more can be done without more records, or the wish was granted.
    Idle,
    /// The peer said that it has nothing more to say.
    PeerClosed,
    /// Both sides said so: nothing can be sent or received any more.
    Closed,
}

impl Connection {
    /// One step with the first `shown` bytes of `incoming`. Which of them are used up is forgotten
    /// there; how many. Plaintext goes to `plaintext`, records to be sent to `outgoing`.
    pub(in crate::tls) fn step(
        &mut self,
        incoming: &mut Queue,
        shown: usize,
        outgoing: &mut Queue,
        wish: Intent<'_>,
        plaintext: &mut dyn FnMut(&[u8]),
    ) -> (usize, Result<StepResult, Error>) {
        let records = &mut incoming.bytes_mut()[..shown];
        let (used, turn) = match self {
            Self::Client(client) => {
                take(client.process_tls_records(records), outgoing, wish, plaintext)
            }
            Self::Server(server) => {
                take(server.process_tls_records(records), outgoing, wish, plaintext)
            }
        };
        incoming.take(used);
        (used, turn)
    }

    /// Returns what both sides have in common.
    pub(in crate::tls) fn common(&self) -> &CommonState {
        match self {
            Self::Client(client) => client,
            Self::Server(server) => server,
        }
    }

    /// More than this is never kept of records that are not yet whole. A client hears long
    /// messages of a handshake out, in records of any size; what strangers say to a server fits into
    /// one record.
    pub(in crate::tls) fn max_incoming(&self) -> usize {
        match self {
            Self::Client(_) => 128 * 1024,
            Self::Server(_) => MAX_RECORD,
        }
    }

    /// After a failure: what rustls wants to tell the peer about it. No record is looked at for it,
    /// as rustls would fail again, and that it does not expect.
    pub(in crate::tls) fn take_alerts(&mut self, incoming: &mut Queue, outgoing: &mut Queue) {
        while self.common().wants_write() {
            let shown = incoming.len();
            if self.step(incoming, shown, outgoing, Intent::Listen, &mut |_| ()).1.is_err() {
                return;
            }
        }
    }
}

/// Does what one state of rustls asks for.
fn take<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    outgoing: &mut Queue,
    wish: Intent<'_>,
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
            // They are in our hands, which is as good as sent.
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
                match wish {
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
            // Data before the end of a handshake is never offered, so none comes.
            ConnectionState::BlockedHandshake | ConnectionState::ReadEarlyData(_) => {
                StepResult::Idle
            }
            _ => StepResult::Idle,
        })
    });
    (used, turn)
}

/// The longest record there may be, with its head (RFC 5246 6.2.3).
const MAX_RECORD: usize = 5 + 16 * 1024 + 2048;

/// Room for what is around a few records, or for a short one.
const RECORD: usize = 512;

/// Lets rustls write into a queue, again if it says that it needs more room.
fn fill(
    queue: &mut Queue,
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

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client(_) => "Connection::Client",
            Self::Server(_) => "Connection::Server",
        })
    }
}
