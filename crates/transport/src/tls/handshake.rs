//! A handshake over a non-blocking socket.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::{Error, HandshakeKind, InvalidMessage, ProtocolVersion};
use underpass_engine::ktls;

use super::acceptor::{Acceptor, RequestedName};
use super::certificates::ACME_PROTOCOL;
use super::connector::{Connector, server_name};
use super::error::HandshakeError;
use super::kernel_offer::{KernelOffer, refused};
use super::records::{
    ByteQueue, Intent, Kernel, RecordLayer, StepResult, TakeOverError, UserSpace,
};
use super::session::{Records, Session};
use super::suites;
use crate::session_facts::{EncryptedBy, KernelTlsObstacle, SessionFacts};

/// The number of bytes peeked at once: more than either side usually sends.
const LOOK: usize = 16 * 1024;

/// The length of a record's header: its type, two bytes of version, two of length.
const RECORD_HEAD: usize = 5;

/// The record type of handshake messages, with which each connection begins.
const HANDSHAKE: u8 = 22;

/// A handshake in progress. It is `Send`, so that a step can be taken on another thread.
#[derive(Debug)]
pub struct Handshake {
    /// `None` after completion or a failure.
    connection: Option<RecordLayer>,
    incoming: ByteQueue,
    outgoing: ByteQueue,
    /// The number of bytes of `incoming` that rustls has seen but not consumed: always whole
    /// records.
    shown: usize,
    /// The number of bytes at the end of `incoming` that are also still in the socket.
    peeked: usize,
    /// Whether the first bytes of the peer have arrived.
    has_begun: bool,
    /// Whether only bytes known to belong to the handshake may be consumed from the socket.
    leaves_rest_in_socket: bool,
    wanted: Arc<KernelOffer>,
    /// The place for the name that the client requests, if there are sites.
    sni: Option<Arc<RequestedName>>,
}

/// The progress of a handshake.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // the large variant is destructured at once
pub enum HandshakeProgress {
    /// The socket has to become readable.
    Reads,
    /// The socket has to become writable.
    Writes,
    /// The handshake is done.
    Done(Session),
}

impl Handshake {
    /// Creates the server's side.
    ///
    /// # Errors
    ///
    /// [`HandshakeError::Tls`] if rustls cannot begin.
    pub fn accept(acceptor: &Acceptor) -> Result<Self, HandshakeError> {
        let (config, sni) = acceptor.config();
        let server = UnbufferedServerConnection::new(config)?;
        Ok(Self { sni, ..Self::new(RecordLayer::Server(Box::new(server)), acceptor.wanted()) })
    }

    /// Creates the client's side; `host` is a name or an address as in a URL, without brackets.
    ///
    /// # Errors
    ///
    /// [`HandshakeError::Name`] if no certificate can have that name.
    pub fn connect(connector: &Connector, host: &str) -> Result<Self, HandshakeError> {
        let client = UnbufferedClientConnection::new(connector.config(), server_name(host)?)?;
        Ok(Self::new(RecordLayer::Client(Box::new(client)), connector.wanted()))
    }

    fn new(connection: RecordLayer, wanted: Arc<KernelOffer>) -> Self {
        Self {
            has_begun: matches!(connection, RecordLayer::Client(_)),
            connection: Some(connection),
            incoming: ByteQueue::default(),
            outgoing: ByteQueue::default(),
            shown: 0,
            peeked: 0,
            leaves_rest_in_socket: wanted.obstacle().is_none(),
            wanted,
            sni: None,
        }
    }

    /// Proceeds as far as possible without waiting, even on a blocking socket.
    ///
    /// # Errors
    ///
    /// See [`HandshakeError`]. An alert is sent to the peer, as far as the socket accepts it. After
    /// completion or an error, this must not be called again.
    pub fn advance(&mut self, socket: BorrowedFd<'_>) -> Result<HandshakeProgress, HandshakeError> {
        let progress = self.go(socket);
        match &progress {
            Ok(HandshakeProgress::Reads | HandshakeProgress::Writes) => {
                self.incoming.shrink();
                self.outgoing.shrink();
            }
            Ok(HandshakeProgress::Done(_)) => (),
            Err(_) => self.connection = None,
        }
        progress
    }

    /// Returns how many received bytes are waiting for the rest of their record.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.incoming.len()
    }

    fn go(&mut self, socket: BorrowedFd<'_>) -> Result<HandshakeProgress, HandshakeError> {
        loop {
            let is_done = match self.process_records() {
                Ok(is_done) => is_done,
                Err(error) => {
                    self.take_alerts(&error);
                    // Bytes left in the socket would turn its closing into a reset, after which
                    // some systems drop the alert.
                    let _ = self.take_off(socket, false);
                    let _ = self.push(socket);
                    return Err(error.into());
                }
            };
            self.take_off(socket, is_done)?;
            if is_done {
                return self.finish(socket);
            }
            match self.push(socket) {
                Ok(()) => (),
                Err(Errno::AGAIN) => return Ok(HandshakeProgress::Writes),
                Err(error) => return Err(io_error(error)),
            }
            if !self.read(socket)? {
                return Ok(HandshakeProgress::Reads);
            }
        }
    }

    /// Lets rustls proceed, and returns whether the handshake is done. rustls is shown one record
    /// at a time, so that it never sees one from after the handshake.
    fn process_records(&mut self) -> Result<bool, Error> {
        let connection = self.connection.as_mut().ok_or(Error::HandshakeNotComplete)?;
        loop {
            let Self { incoming, outgoing, shown, .. } = self;
            // No data can arrive before the end of the handshake.
            let (used, turn) =
                connection.step(incoming, *shown, outgoing, Intent::Listen, &mut |_| ());
            *shown -= used;
            match turn? {
                StepResult::Moved => continue,
                StepResult::PeerClosed | StepResult::Closed => {
                    return Err(Error::HandshakeNotComplete);
                }
                StepResult::Idle if !connection.common().is_handshaking() => return Ok(true),
                StepResult::Idle => match record_len(&incoming.bytes()[*shown..]) {
                    Some(len) => *shown += len,
                    None if incoming.len() > connection.max_incoming() => {
                        return Err(InvalidMessage::HandshakePayloadTooLarge.into());
                    }
                    None => return Ok(false),
                },
            }
        }
    }

    /// Consumes bytes from the socket that were only peeked, as far as they belong to the
    /// handshake: all of them until it is done, including the beginning of a record.
    fn take_off(&mut self, socket: BorrowedFd<'_>, is_done: bool) -> Result<(), HandshakeError> {
        let behind = if is_done { self.incoming.len() - self.shown } else { 0 };
        let mut left = self.peeked.saturating_sub(behind);
        if is_done && self.peeked > 0 {
            self.incoming.truncate(self.shown + behind.saturating_sub(self.peeked));
        }
        self.peeked = 0;
        let mut bin = [0; LOOK];
        while left > 0 {
            match recv(socket, &mut bin[..left.min(LOOK)], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(HandshakeError::Closed),
                Ok((_, len)) => left -= len,
                Err(Errno::INTR) => (),
                Err(error) => return Err(io_error(error)),
            }
        }
        Ok(())
    }

    /// Reads from the peer, and returns whether any bytes arrived.
    fn read(&mut self, socket: BorrowedFd<'_>) -> Result<bool, HandshakeError> {
        let looks = self.leaves_rest_in_socket || !self.has_begun;
        let mut flags = RecvFlags::DONTWAIT;
        flags.set(RecvFlags::PEEK, looks);
        loop {
            match recv(socket, &mut self.incoming.room(LOOK)[..LOOK], flags) {
                Ok((_, 0)) => return Err(HandshakeError::Closed),
                Ok((_, len)) => {
                    self.incoming.added(len);
                    self.peeked = if looks { len } else { 0 };
                    return self.begin().map(|()| true);
                }
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(io_error(error)),
            }
        }
    }

    /// Checks that the first byte may begin a TLS record; one of an HTTP method gets a distinct
    /// error.
    fn begin(&mut self) -> Result<(), HandshakeError> {
        let first = self.incoming.bytes().first();
        if !self.has_begun
            && first.is_some_and(|&byte| byte != HANDSHAKE && byte.is_ascii_alphabetic())
        {
            return Err(HandshakeError::PlainHttp);
        }
        self.has_begun = true;
        Ok(())
    }

    fn push(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        while !self.outgoing.is_empty() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match send(socket, self.outgoing.bytes(), flags) {
                Ok(len) => self.outgoing.consume(len),
                Err(Errno::INTR) => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Queues the alert for a failure. rustls has none for a message that is too long.
    fn take_alerts(&mut self, error: &Error) {
        const DECODE_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];
        let Some(connection) = &mut self.connection else { return };
        connection.take_alerts(&mut self.incoming, &mut self.outgoing);
        let is_unsaid =
            self.outgoing.is_empty() && connection.common().protocol_version().is_none();
        if is_unsaid && matches!(error, Error::InvalidMessage(_)) {
            self.outgoing.add(&DECODE_ERROR);
        }
    }

    /// Creates the session.
    fn finish(&mut self, socket: BorrowedFd<'_>) -> Result<HandshakeProgress, HandshakeError> {
        let connection = self.connection.as_ref().ok_or(Error::HandshakeNotComplete)?;
        if connection.common().alpn_protocol() == Some(ACME_PROTOCOL) {
            // RFC 8737 4: this protocol consists of the handshake. The peer closes after its last
            // message, so that is sent as far as the socket accepts it at once.
            let _ = self.push(socket);
            return Err(HandshakeError::Challenge);
        }
        let suite = connection.common().negotiated_cipher_suite();
        let kind = suite.and_then(|suite| suites::kind_of(suite.suite()));
        let mut obstacle = self.wanted.obstacle().or_else(|| self.wanted.obstacle_to(kind));
        // The peer waits for the messages still to be sent, and the kernel numbers records from the
        // next one on. TLS 1.3 tickets are not awaited and can be sent with the first data.
        let is_13 = connection.common().protocol_version() == Some(ProtocolVersion::TLSv1_3);
        let are_tickets = is_13 && matches!(connection, RecordLayer::Server(_));
        if obstacle.is_none() || !are_tickets {
            match self.push(socket) {
                Ok(()) => (),
                Err(Errno::AGAIN) => return Ok(HandshakeProgress::Writes),
                Err(error) => return Err(io_error(error)),
            }
        }
        if obstacle.is_none() {
            obstacle = ktls::attach(socket).err().map(refused);
        }
        let connection = self.connection.take().ok_or(Error::HandshakeNotComplete)?;
        let common = connection.common();
        let mut facts = SessionFacts {
            version: suites::version(common.protocol_version()),
            suite: common.negotiated_cipher_suite().map_or("unknown", |s| suites::name(s.suite())),
            is_resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
            encrypted_by: EncryptedBy::Kernel,
        };
        let (Some((version, cipher)), None) = (kind, obstacle) else {
            facts.encrypted_by =
                EncryptedBy::UserSpace(obstacle.unwrap_or(KernelTlsObstacle::Suite));
            let incoming = std::mem::take(&mut self.incoming);
            let outgoing = std::mem::take(&mut self.outgoing);
            let records = Records::Here(UserSpace::new(connection, incoming, outgoing));
            return Ok(HandshakeProgress::Done(self.session(facts, records, false)));
        };
        let can_change_keys = self.wanted.can_change_keys();
        let kernel = Kernel::take_over(socket, connection, version, cipher, can_change_keys);
        let kernel = kernel.map_err(|refusal| match refusal {
            TakeOverError::Tls(error) => error.into(),
            TakeOverError::Socket(error) => io_error(error),
        })?;
        let by_reference = self.wanted.zero_copy && ktls::set_zero_copy(socket).is_ok();
        Ok(HandshakeProgress::Done(self.session(facts, Records::Kernel(kernel), by_reference)))
    }

    fn session(&self, facts: SessionFacts, records: Records, by_reference: bool) -> Session {
        let server_name = self.sni.as_ref().and_then(|sni| sni.name());
        Session { facts, records: Mutex::new(records), by_reference, server_name }
    }
}

/// Returns the length of the record at the front, if it is complete. A record that is too long
/// counts as complete as soon as that is known: rustls refuses it.
fn record_len(bytes: &[u8]) -> Option<usize> {
    const MAX_RECORD: usize = 16 * 1024 + 2048;
    let (head, _) = bytes.split_at_checked(RECORD_HEAD)?;
    let len = usize::from(u16::from_be_bytes([head[3], head[4]]));
    if len > MAX_RECORD {
        return Some(bytes.len());
    }
    (RECORD_HEAD + len <= bytes.len()).then_some(RECORD_HEAD + len)
}

fn io_error(error: Errno) -> HandshakeError {
    HandshakeError::Io(io::Error::from(error))
}
