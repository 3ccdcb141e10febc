//! Records made and read in this process.
//!
//! Bytes are encrypted in batches directly into one queue and written to the socket by one call;
//! the remainder stays in the queue, and no more is accepted from the caller before it is sent.
//! Incoming bytes are read in large pieces and decrypted in place.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::{AlertDescription, Error};

use super::connection::{Intent, RecordLayer, StepResult};
use super::queue::{BATCH, ByteQueue, QUEUE_SIZE};
use crate::session_facts::CERTIFICATE_REQUIRED;

/// Room for at least one more record, so that each read makes progress.
const MIN_READ: usize = 17 * 1024;

/// One connection.
#[derive(Debug)]
pub(in crate::tls) struct UserSpace {
    connection: RecordLayer,
    /// Received records.
    incoming: ByteQueue,
    /// Data of records that did not fit into the caller's buffer.
    plaintext: ByteQueue,
    /// Records to be sent.
    outgoing: ByteQueue,
    /// Whether the socket was full: `outgoing` has to be sent first.
    is_stuck: bool,
    /// Whether rustls has seen everything received.
    is_idle: bool,
    /// Whether the peer has closed its sending side.
    is_ended: bool,
    /// Whether this side has closed.
    is_closed: bool,
    failure: Option<Errno>,
}

impl UserSpace {
    /// Continues after a handshake with the bytes received after it and those still to be sent.
    pub(in crate::tls) fn new(
        connection: RecordLayer,
        incoming: ByteQueue,
        outgoing: ByteQueue,
    ) -> Self {
        Self {
            connection,
            is_idle: incoming.is_empty(),
            incoming,
            plaintext: ByteQueue::default(),
            outgoing,
            is_stuck: false,
            is_ended: false,
            is_closed: false,
            failure: None,
        }
    }

    /// Accepts bytes for the peer and returns how many.
    pub(in crate::tls) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        more: bool,
    ) -> Result<usize, Errno> {
        if self.is_stuck {
            self.flush(socket)?;
        }
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if self.is_closed {
            return Err(Errno::PIPE);
        }
        let taken = &bytes[..bytes.len().min(BATCH)];
        if taken.is_empty() {
            return Ok(0);
        }
        self.say(Intent::Say(taken))?;
        match self.push(socket, more || taken.len() < bytes.len()) {
            Ok(()) | Err(Errno::AGAIN) => Ok(taken.len()),
            Err(error) => Err(error),
        }
    }

    /// Writes everything that was accepted to the socket.
    pub(in crate::tls) fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.outgoing.is_empty() { Ok(()) } else { self.push(socket, false) }
    }

    /// Reads the peer's next data; returns 0 at its end.
    pub(in crate::tls) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let held = self.plaintext.len().min(buffer.len());
        buffer[..held].copy_from_slice(&self.plaintext.bytes()[..held]);
        self.plaintext.consume(held);
        let filled =
            if held < buffer.len() { held + self.decrypt(&mut buffer[held..]) } else { held };
        if filled > 0 {
            return Ok(filled);
        }
        loop {
            self.read(socket, buffer.len())?;
            let filled = self.decrypt(buffer);
            if filled > 0 {
                return Ok(filled);
            }
            if self.is_ended {
                return Ok(0);
            }
        }
    }

    /// Returns whether data can be received (`Some(true)`), the end or a failure (`Some(false)`),
    /// or nothing yet.
    pub(in crate::tls) fn peek(&mut self, socket: BorrowedFd<'_>) -> Option<bool> {
        loop {
            self.decrypt(&mut []);
            if !self.plaintext.is_empty() {
                return Some(true);
            }
            match self.read(socket, 0) {
                Ok(()) if !self.is_ended => (),
                Ok(()) => return Some(false),
                Err(Errno::AGAIN) => return None,
                Err(_) => return Some(false),
            }
        }
    }

    /// Returns whether something can be received without reading from the socket.
    pub(in crate::tls) fn has_input(&self) -> bool {
        let is_over = self.is_ended || self.failure.is_some();
        !self.plaintext.is_empty() || !self.is_idle || is_over
    }

    /// Returns how many received bytes were not consumed yet.
    pub(in crate::tls) fn kept(&self) -> usize {
        self.incoming.len() + self.plaintext.len()
    }

    /// Returns how many bytes of records are still to be sent.
    pub(in crate::tls) fn held(&self) -> usize {
        self.outgoing.len()
    }

    /// Sends a close_notify, as far as the socket accepts it.
    pub(in crate::tls) fn close(&mut self, socket: BorrowedFd<'_>) {
        if !self.is_closed && self.failure.is_none() {
            self.is_closed = true;
            let _ = self.say(Intent::Close);
        }
        let _ = self.flush(socket);
        self.outgoing.shrink();
    }

    /// Makes rustls carry out an intent.
    fn say(&mut self, intent: Intent<'_>) -> Result<(), Errno> {
        let Self { connection, incoming, plaintext, outgoing, .. } = self;
        loop {
            // Data that arrives meanwhile was received but not yet read; it is kept.
            let shown = incoming.len();
            let keep = &mut |data: &[u8]| plaintext.add(data);
            match connection.step(incoming, shown, outgoing, intent, keep) {
                (_, Ok(StepResult::Moved)) => (),
                (_, Ok(StepResult::Idle)) => return Ok(()),
                (_, Ok(StepResult::PeerClosed)) => self.is_ended = true,
                (_, Ok(StepResult::Closed)) => return Err(Errno::PIPE),
                (_, Err(error)) => return Err(self.fail(&error)),
            }
        }
    }

    /// Writes records to the socket.
    fn push(&mut self, socket: BorrowedFd<'_>, more: bool) -> Result<(), Errno> {
        let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        flags.set(SendFlags::MORE, more);
        while !self.outgoing.is_empty() {
            match send(socket, self.outgoing.bytes(), flags) {
                Ok(len) => self.outgoing.consume(len),
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => {
                    self.is_stuck = true;
                    self.outgoing.shrink();
                    return Err(Errno::AGAIN);
                }
                Err(error) => {
                    self.outgoing.clear();
                    self.failure.get_or_insert(error);
                    return Err(error);
                }
            }
        }
        self.is_stuck = false;
        Ok(())
    }

    /// Reads about `wanted` bytes of records from the socket.
    fn read(&mut self, socket: BorrowedFd<'_>, wanted: usize) -> Result<(), Errno> {
        if self.is_ended {
            return Ok(());
        }
        if let Some(failure) = self.failure {
            let _ = self.flush(socket); // an alert
            return Err(failure);
        }
        if self.incoming.len() >= self.connection.max_incoming() {
            return Err(self.give_up(socket, Errno::PROTO));
        }
        let limit = QUEUE_SIZE - self.incoming.len().min(QUEUE_SIZE - MIN_READ);
        let max = (wanted + wanted / 64).clamp(MIN_READ, limit);
        let room = self.incoming.room(max);
        match recv(socket, &mut room[..max], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(self.give_up(socket, Errno::CONNABORTED)),
            Ok((_, len)) => {
                self.incoming.added(len);
                self.is_idle = false;
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(Errno::AGAIN) => {
                // The peer may be waiting for the end of our handshake before it sends anything.
                let _ = self.flush(socket);
                self.incoming.shrink();
                Err(Errno::AGAIN)
            }
            Err(error) => Err(self.give_up(socket, error)),
        }
    }

    /// Records that nothing more can arrive.
    fn give_up(&mut self, socket: BorrowedFd<'_>, error: Errno) -> Errno {
        let _ = self.flush(socket);
        self.incoming.clear();
        self.is_idle = true;
        *self.failure.get_or_insert(error)
    }

    /// Decrypts received bytes into a buffer until it is full, and returns how many. The rest of a
    /// record is kept.
    fn decrypt(&mut self, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        while !self.is_idle && self.plaintext.is_empty() && filled < buffer.len().max(1) {
            let Self { connection, incoming, plaintext, outgoing, .. } = self;
            let shown = incoming.len();
            let mut keep = |data: &[u8]| {
                let fits = data.len().min(buffer.len() - filled);
                buffer[filled..filled + fits].copy_from_slice(&data[..fits]);
                filled += fits;
                if fits < data.len() {
                    plaintext.add(&data[fits..]);
                }
            };
            match connection.step(incoming, shown, outgoing, Intent::Listen, &mut keep) {
                (_, Ok(StepResult::Moved)) => (),
                (_, Ok(StepResult::Idle)) => self.is_idle = true,
                (_, Ok(StepResult::PeerClosed | StepResult::Closed)) => {
                    (self.is_ended, self.is_idle) = (true, true);
                    self.incoming.clear(); // RFC 8446 6.1: what follows is ignored
                }
                (_, Err(error)) => drop(self.fail(&error)),
            }
        }
        filled
    }

    /// Records a failure of rustls, and queues its alert.
    fn fail(&mut self, error: &Error) -> Errno {
        self.connection.take_alerts(&mut self.incoming, &mut self.outgoing);
        self.incoming.clear();
        self.is_idle = true;
        *self.failure.get_or_insert(errno(error))
    }
}

/// Returns the socket error that corresponds to a failure of rustls.
pub(in crate::tls) fn errno(error: &Error) -> Errno {
    match error {
        Error::DecryptError => Errno::BADMSG,
        Error::EncryptError => Errno::KEYEXPIRED,
        Error::AlertReceived(AlertDescription::CertificateRequired) => CERTIFICATE_REQUIRED,
        Error::AlertReceived(_) => Errno::CONNRESET,
        _ => Errno::PROTO,
    }
}
