//! Records made and read by the kernel. This module handles those without data.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ConnectionTrafficSecrets, Error};
use underpass_engine::RecordKind;
use underpass_engine::ktls::{self, Cipher, KeyDirection, RecordKeys, TlsVersion};

use super::connection::RecordLayer;
use super::control::{ALERT, ControlReader, HANDSHAKE, PeerEvent, ProtocolError};
use super::key_usage::KeyUsage;

/// Level and description of alerts: the warnings that nothing follows and that renegotiation is
/// refused, and fatal alerts.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];
const NO_RENEGOTIATION: [u8; 2] = [1, 100];
const BAD_RECORD_MAC: u8 = 20;
const FATAL: u8 = 2;

/// The longest record that holds no data.
const MAX_RECORD: usize = 16 * 1024 + 256;

/// One connection whose keys the kernel has.
#[derive(Debug)]
pub(in crate::tls) struct Kernel {
    secrets: Secrets,
    version: TlsVersion,
    control: ControlReader,
    /// Records to send before anything else, in order.
    pending: VecDeque<PendingRecord>,
    usage: KeyUsage,
    is_ended: bool,
    is_closed: bool,
    failure: Option<Errno>,
}

/// A record that holds no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingRecord {
    Alert([u8; 2]),
    /// All later records from this side use its next key.
    NewKey,
}

/// The source of new keys and the receiver of tickets.
enum Secrets {
    Client(Box<KernelConnection<ClientConnectionData>>),
    Server(Box<KernelConnection<ServerConnectionData>>),
}

/// The reason why the kernel could not take the keys.
#[derive(Debug)]
pub(in crate::tls) enum TakeOverError {
    Tls(Error),
    Socket(Errno),
}

impl Kernel {
    /// Hands the keys of a connection to the kernel. None of its records may be buffered here, and
    /// the socket must be attached.
    pub(in crate::tls) fn take_over(
        socket: BorrowedFd<'_>,
        connection: RecordLayer,
        version: TlsVersion,
        cipher: Cipher,
        can_change_keys: bool,
    ) -> Result<Self, TakeOverError> {
        let is_client = matches!(connection, RecordLayer::Client(_));
        let (secrets, kept) = match connection {
            RecordLayer::Client(client) => client
                .dangerous_into_kernel_connection()
                .map(|(secrets, kept)| (secrets, Secrets::Client(Box::new(kept)))),
            RecordLayer::Server(server) => server
                .dangerous_into_kernel_connection()
                .map(|(secrets, kept)| (secrets, Secrets::Server(Box::new(kept)))),
        }
        .map_err(TakeOverError::Tls)?;
        let (sent, to_send) = secrets.tx;
        for (direction, (sequence, secrets)) in
            [(KeyDirection::Receive, secrets.rx), (KeyDirection::Send, (sent, to_send))]
        {
            install(socket, direction, version, sequence, &secrets)
                .map_err(TakeOverError::Socket)?;
        }
        let is_tls13 = version == TlsVersion::Tls13;
        Ok(Self {
            secrets: kept,
            version,
            control: ControlReader::new(is_client, is_tls13),
            pending: VecDeque::new(),
            usage: KeyUsage::new(cipher, is_tls13 && can_change_keys, sent),
            is_ended: false,
            is_closed: false,
            failure: None,
        })
    }

    pub(in crate::tls) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        more: bool,
    ) -> Result<usize, Errno> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.flush(socket)?;
        if self.is_closed {
            return Err(Errno::PIPE);
        }
        let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        flags.set(SendFlags::MORE, more);
        let len = rustix::io::retry_on_intr(|| send(socket, bytes, flags))?;
        // The kernel has accepted these bytes; the next call reports that it can take no more.
        let _ = self.sent(socket, len);
        Ok(len)
    }

    /// Sends the pending records.
    pub(in crate::tls) fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        while let Some(pending_record) = self.pending.front().copied() {
            let (kind, bytes): (u8, &[u8]) = match &pending_record {
                PendingRecord::Alert(alert) => (ALERT, alert),
                PendingRecord::NewKey => (HANDSHAKE, &[24, 0, 0, 1, 0]), // RFC 8446 4.6.3
            };
            rustix::io::retry_on_intr(|| ktls::send_record(socket, kind, bytes))?;
            self.pending.pop_front();
            if pending_record == PendingRecord::NewKey {
                self.change_key(socket, KeyDirection::Send)?;
                self.usage.renew();
            }
        }
        Ok(())
    }

    pub(in crate::tls) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        while !self.is_ended && !buffer.is_empty() {
            let record = self.next(socket, buffer, false)?;
            if record.kind == ktls::DATA {
                return Ok(record.len);
            }
            self.handle_control(socket, record.kind, &buffer[..record.len])?;
        }
        Ok(0)
    }

    /// Returns whether data can be received (`Some(true)`), the end or a failure (`Some(false)`),
    /// or nothing yet.
    pub(in crate::tls) fn peek(&mut self, socket: BorrowedFd<'_>) -> Option<bool> {
        match self.take_control(socket) {
            Ok(true) => Some(true),
            Ok(false) => Some(false),
            Err(Errno::AGAIN) => None,
            Err(_) => Some(false),
        }
    }

    /// Returns what is at the front after a mechanism found no data there.
    pub(in crate::tls) fn front(&mut self, socket: BorrowedFd<'_>) -> Result<RecordKind, Errno> {
        if self.is_ended {
            return Ok(RecordKind::End);
        }
        match self.next(socket, &mut [0], true) {
            Err(Errno::AGAIN) => Ok(RecordKind::Data),
            Err(error) => Err(error),
            Ok(record) if record.kind == ktls::DATA => Ok(RecordKind::Data),
            Ok(_) => {
                self.take_record(socket)?;
                Ok(if self.is_ended { RecordKind::End } else { RecordKind::Control })
            }
        }
    }

    /// Handles all records at the front that hold no data. Returns true if data follows, false at
    /// the end.
    fn take_control(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        while !self.is_ended {
            if self.next(socket, &mut [0], true)?.kind == ktls::DATA {
                return Ok(true);
            }
            self.take_record(socket)?;
        }
        Ok(false)
    }

    /// Receives a record that is known not to be data.
    fn take_record(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut buffer = [0; MAX_RECORD];
        let record = self.next(socket, &mut buffer, false)?;
        self.handle_control(socket, record.kind, &buffer[..record.len])
    }

    pub(in crate::tls) fn has_input(&self) -> bool {
        self.is_ended || self.failure.is_some()
    }

    pub(in crate::tls) fn close(&mut self, socket: BorrowedFd<'_>) {
        if !self.is_closed && self.failure.is_none() {
            self.is_closed = true;
            self.pending.push_back(PendingRecord::Alert(CLOSE_NOTIFY));
        }
        let _ = self.flush(socket);
    }

    /// Counts the bytes that one call has given the kernel to encrypt.
    pub(in crate::tls) fn sent(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes: usize,
    ) -> Result<(), Errno> {
        if self.usage.by(bytes) && !self.pending.contains(&PendingRecord::NewKey) {
            self.pending.push_back(PendingRecord::NewKey);
        }
        if !self.pending.is_empty() {
            match self.flush(socket) {
                Ok(()) | Err(Errno::AGAIN) => (),
                Err(error) => return Err(self.give_up(socket, None, error)),
            }
        }
        if self.usage.is_over() {
            self.close(socket);
            return Err(self.give_up(socket, None, Errno::KEYEXPIRED));
        }
        Ok(())
    }

    /// Receives, or peeks at, the next data or record.
    fn next(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
        peek: bool,
    ) -> Result<ktls::TlsRecord, Errno> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        match rustix::io::retry_on_intr(|| ktls::receive(socket, &mut *buffer, peek)) {
            Ok(ktls::TlsRecord { kind: ktls::DATA, len: 0 }) => {
                Err(self.give_up(socket, None, Errno::CONNABORTED))
            }
            Ok(record) if record.kind == ktls::DATA => match self.control.allow_data() {
                Ok(()) => Ok(record),
                Err(ProtocolError { alert, errno }) => Err(self.give_up(socket, alert, errno)),
            },
            Ok(record) => Ok(record),
            Err(Errno::AGAIN) => Err(Errno::AGAIN),
            Err(Errno::BADMSG) => Err(self.give_up(socket, Some(BAD_RECORD_MAC), Errno::BADMSG)),
            Err(error) => Err(self.give_up(socket, None, error)),
        }
    }

    /// Handles a record without data.
    fn handle_control(
        &mut self,
        socket: BorrowedFd<'_>,
        kind: u8,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let events = self.control.read(kind, bytes);
        let events =
            events.map_err(|ProtocolError { alert, errno }| self.give_up(socket, alert, errno))?;
        for event in events {
            match event {
                PeerEvent::End => self.is_ended = true,
                PeerEvent::Renegotiation => {
                    self.pending.push_back(PendingRecord::Alert(NO_RENEGOTIATION))
                }
                PeerEvent::Ticket(ticket) => self.keep(socket, &ticket)?,
                PeerEvent::NewKey { answer } => {
                    if let Err(error) = self.change_key(socket, KeyDirection::Receive) {
                        // Before Linux 6.14 the connection cannot continue. A peer that reconnects
                        // resumes its session.
                        self.close(socket);
                        let errno = if error == Errno::BUSY { Errno::KEYEXPIRED } else { error };
                        return Err(self.give_up(socket, None, errno));
                    }
                    if answer && !self.pending.contains(&PendingRecord::NewKey) {
                        self.pending.push_back(PendingRecord::NewKey);
                    }
                }
            }
        }
        match self.flush(socket) {
            Ok(()) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(self.give_up(socket, None, error)),
        }
    }

    /// Stores a ticket for the next connection.
    fn keep(&mut self, socket: BorrowedFd<'_>, ticket: &[u8]) -> Result<(), Errno> {
        const DECODE_ERROR: u8 = 50;
        let Secrets::Client(client) = &mut self.secrets else { return Ok(()) };
        let kept = client.handle_new_session_ticket(ticket);
        kept.map_err(|_| self.give_up(socket, Some(DECODE_ERROR), Errno::PROTO))
    }

    /// Gives the kernel the next key of one direction.
    fn change_key(&mut self, socket: BorrowedFd<'_>, direction: KeyDirection) -> Result<(), Errno> {
        let next = match (&mut self.secrets, direction) {
            (Secrets::Client(client), KeyDirection::Send) => client.update_tx_secret(),
            (Secrets::Client(client), KeyDirection::Receive) => client.update_rx_secret(),
            (Secrets::Server(server), KeyDirection::Send) => server.update_tx_secret(),
            (Secrets::Server(server), KeyDirection::Receive) => server.update_rx_secret(),
        };
        let (sequence, secrets) = next.map_err(|_| Errno::PROTO)?;
        install(socket, direction, self.version, sequence, &secrets)
    }

    /// Ends sending and receiving, and queues an alert for the peer if there is one.
    fn give_up(&mut self, socket: BorrowedFd<'_>, alert: Option<u8>, errno: Errno) -> Errno {
        if let (Some(alert), None) = (alert, self.failure) {
            self.pending.push_back(PendingRecord::Alert([FATAL, alert]));
            let _ = self.flush(socket);
        }
        *self.failure.get_or_insert(errno)
    }
}

/// Gives the kernel the keys of one direction.
fn install(
    socket: BorrowedFd<'_>,
    direction: KeyDirection,
    version: TlsVersion,
    sequence: u64,
    secrets: &ConnectionTrafficSecrets,
) -> Result<(), Errno> {
    use ConnectionTrafficSecrets as Traffic;
    let (cipher, key, iv) = match secrets {
        Traffic::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
        Traffic::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
        Traffic::Chacha20Poly1305 { key, iv } => (Cipher::ChaCha20Poly1305, key, iv),
        _ => return Err(Errno::PROTONOSUPPORT),
    };
    let iv = iv.as_ref().try_into().map_err(|_| Errno::INVAL)?;
    ktls::install(
        socket,
        direction,
        &RecordKeys { version, cipher, key: key.as_ref(), iv, sequence },
    )
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}
