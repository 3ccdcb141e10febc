//! A TLS front of a plaintext server: it sends the server's bytes in rustls' records.

#![allow(dead_code)] // each test program uses its part

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustls::{HandshakeKind, ServerConnection};
use underpass_client::TlsSetup;
use underpass_testkit::tls::Certificate;
use underpass_transport::tls::Trust;

/// A TLS front, which ends with the test.
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    certificate: Certificate,
    seen: Arc<Seen>,
}

/// The observations and instructions of a front.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    resumed: AtomicUsize,
    /// Whether connections end without `close_notify`.
    cuts: AtomicBool,
    is_over: AtomicBool,
}

impl Front {
    /// Starts a front of this address, with a certificate for `localhost` and `127.0.0.1`.
    pub(crate) fn of(behind: SocketAddr) -> Self {
        let certificate = Certificate::new();
        let config = Arc::new(certificate.server(rustls::ALL_VERSIONS));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Seen>::default();
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if shared.is_over.load(Ordering::Relaxed) {
                    break;
                }
                let (client, config, seen) = (client.unwrap(), config.clone(), shared.clone());
                seen.connections.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || {
                    let Ok(plain) = TcpStream::connect(behind) else { return };
                    let tls = ServerConnection::new(config).unwrap();
                    Relay { client, plain, tls, seen, up: Vec::new() }.run();
                });
            }
        });
        Self { address, certificate, seen }
    }

    /// Makes connections end without `close_notify` from now on.
    pub(crate) fn cut_ends(&self) {
        self.seen.cuts.store(true, Ordering::Relaxed);
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::Relaxed)
    }

    /// Returns how many of them resumed an earlier session.
    pub(crate) fn resumed(&self) -> usize {
        self.seen.resumed.load(Ordering::Relaxed)
    }

    /// Returns the certificate authorities with which a client trusts it.
    pub(crate) fn trusted(&self) -> TlsSetup {
        TlsSetup::new(Trust { authorities: Some(self.certificate()), ..Trust::default() })
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.certificate.folder.path().join("cert.pem")
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.seen.is_over.store(true, Ordering::Relaxed);
        // Wakes up the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// One connection.
struct Relay {
    client: TcpStream,
    plain: TcpStream,
    tls: ServerConnection,
    seen: Arc<Seen>,
    /// Bytes from the client that the server has not accepted yet.
    up: Vec<u8>,
}

impl Relay {
    /// Runs until either end is gone.
    fn run(mut self) {
        self.client.set_nonblocking(true).unwrap();
        self.plain.set_nonblocking(true).unwrap();
        self.client.set_nodelay(true).unwrap();
        let (mut is_shaken, mut has_ended) = (false, false);
        loop {
            if !has_ended && self.up.len() < MOST {
                match self.hear() {
                    Some(true) => {}
                    Some(false) => has_ended = true,
                    None => return self.reset(),
                }
            }
            if !is_shaken && !self.tls.is_handshaking() {
                is_shaken = true;
                let is_resumed = self.tls.handshake_kind() == Some(HandshakeKind::Resumed);
                self.seen.resumed.fetch_add(usize::from(is_resumed), Ordering::Relaxed);
            }
            self.pass_on(has_ended);
            if !self.tls.is_handshaking() && !self.tls.wants_write() {
                let mut bytes = [0; 16 << 10];
                match self.plain.read(&mut bytes) {
                    Ok(0) => return self.finish(),
                    Ok(len) => self.tls.writer().write_all(&bytes[..len]).unwrap(),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return self.reset(),
                }
            }
            if !self.report() {
                return;
            }
            self.wait(has_ended);
        }
    }

    /// Reads from the client; returns `false` at its end, `None` if it broke off.
    fn hear(&mut self) -> Option<bool> {
        match self.tls.read_tls(&mut self.client) {
            Ok(0) => return Some(false),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(true),
            Err(_) => return None,
            Ok(_) => {}
        }
        let Ok(state) = self.tls.process_new_packets() else {
            self.report();
            return None;
        };
        let at = self.up.len();
        self.up.resize(at + state.plaintext_bytes_to_read(), 0);
        self.tls.reader().read_exact(&mut self.up[at..]).unwrap();
        Some(!state.peer_has_closed())
    }

    /// Sends the client's bytes to the server.
    fn pass_on(&mut self, has_ended: bool) {
        while !self.up.is_empty() {
            match self.plain.write(&self.up) {
                Ok(len) => drop(self.up.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.up.clear(),
            }
        }
        if has_ended {
            let _ = self.plain.shutdown(Shutdown::Write);
        }
    }

    /// Sends pending bytes to the client; returns `false` if it is gone.
    fn report(&mut self) -> bool {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.client) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Handles the end of the server's connection.
    fn finish(mut self) {
        if !self.seen.cuts.load(Ordering::Relaxed) {
            self.tls.send_close_notify();
        }
        while self.report() && self.tls.wants_write() {
            poll(&mut [PollFd::new(&self.client, PollFlags::OUT)], None).unwrap();
        }
        let _ = self.client.shutdown(Shutdown::Write);
        // Otherwise unread input from the client would reset the connection.
        self.client.set_nonblocking(false).unwrap();
        let _ = std::io::copy(&mut self.client, &mut std::io::sink());
    }

    /// Resets both connections after one end broke off.
    fn reset(self) {
        for socket in [&self.client, &self.plain] {
            let _ = underpass_engine::socket::arm_reset(socket);
        }
    }

    fn wait(&self, has_ended: bool) {
        let wanted = |is_wanted, flag| if is_wanted { flag } else { PollFlags::empty() };
        let client = wanted(!has_ended && self.up.len() < MOST, PollFlags::IN)
            | wanted(self.tls.wants_write(), PollFlags::OUT);
        let is_open = !self.tls.is_handshaking() && !self.tls.wants_write();
        let plain = wanted(is_open, PollFlags::IN) | wanted(!self.up.is_empty(), PollFlags::OUT);
        let mut ends = [PollFd::new(&self.client, client), PollFd::new(&self.plain, plain)];
        poll(&mut ends, None).unwrap();
    }
}

/// The maximum number of bytes that wait for the server.
const MOST: usize = 256 << 10;
