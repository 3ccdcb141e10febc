//! A connection of the load, with TLS or without.
//!
//! It does as little work as possible, to not affect the measurement: without TLS the kernel drops
//! bodies; with TLS, certificates are not checked.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use underpass_engine::wait::Limits;

use super::responses::ResponseFault;
use crate::error::BenchError;

pub(crate) type Tls = Arc<ClientConfig>;

/// A connection that does not block.
#[derive(Debug)]
pub(crate) struct LoadConnection {
    pub(crate) socket: TcpStream,
    tls: Option<Box<Encrypted>>,
}

#[derive(Debug)]
struct Encrypted {
    connection: ClientConnection,
    /// The bytes read from the socket.
    buffer: Vec<u8>,
    /// The number of them that were parsed.
    used: usize,
}

/// Returns what clients of the bench offer: TLS 1.3, the cheapest suite first, which both nginx and
/// underpass then choose, and no resumption of earlier sessions.
pub(crate) fn accept_any_certificate() -> crate::error::Result<Tls> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(AcceptAny(Arc::clone(&provider)));
    let suite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let groups = vec![aws_lc_rs::kx_group::X25519];
    let provider =
        CryptoProvider { cipher_suites: vec![suite], kx_groups: groups, ..(*provider).clone() };
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| BenchError::measuring("TLS of the load", error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

impl LoadConnection {
    /// Creates a connection that has sent nothing yet and does not block from now on.
    pub(crate) fn new(socket: TcpStream, tls: Option<&Tls>) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let name = || ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        let begin = |tls: &Tls| -> io::Result<_> {
            let connection = ClientConnection::new(Arc::clone(tls), name());
            let connection = connection.map_err(io::Error::other)?;
            Ok(Box::new(Encrypted { connection, buffer: Vec::new(), used: 0 }))
        };
        Ok(Self { socket, tls: tls.map(begin).transpose()? })
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Sends a request, which an idle connection takes whole, or queues it for after a handshake.
    pub(crate) fn ask(&mut self, request: &[u8]) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.connection.writer().write_all(request)?;
            return tls.flush(&self.socket);
        }
        match send(&self.socket, request, SendFlags::NOSIGNAL)? {
            sent if sent == request.len() => Ok(()),
            _ => Err(ErrorKind::WriteZero.into()),
        }
    }

    /// Reads the available bytes; returns 0 at the end, `WouldBlock` if there are none.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return Ok(recv(&self.socket, buffer, RecvFlags::empty())?.0);
        };
        loop {
            match tls.connection.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            if !tls.advance(&self.socket)? {
                return Ok(0);
            }
        }
    }

    /// Discards up to `room.len()` received bytes and returns their number.
    pub(crate) fn skip(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self.tls {
            Some(_) => self.read(room),
            None => Ok(recv(&self.socket, room, RecvFlags::TRUNC)?.1),
        }
    }

    pub(crate) fn wait(&self) -> io::Result<()> {
        let limits = Limits::since(Instant::now(), Some(MAX_WAIT), None);
        let outcome = limits.until_ready(&self.socket, PollFlags::IN);
        outcome.map_err(|_| ResponseFault::Silence.into())
    }

    /// Sends a close_notify, if TLS is used.
    pub(crate) fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.connection.send_close_notify();
            // The server may have closed the connection first.
            let _ = tls.flush(&self.socket);
        }
    }
}

impl Encrypted {
    /// Reads more bytes, not 4 KiB at a time as the TLS library would; returns `false` at the end.
    fn advance(&mut self, socket: &TcpStream) -> io::Result<bool> {
        if self.used == self.buffer.len() {
            self.used = 0;
            self.buffer.resize(READ, 0);
            let outcome = recv(socket, self.buffer.as_mut_slice(), RecvFlags::empty());
            self.buffer.truncate(outcome.as_ref().map_or(0, |(len, _)| *len));
            if outcome?.0 == 0 {
                return Ok(false);
            }
        }
        let mut rest = &self.buffer[self.used..];
        self.used += self.connection.read_tls(&mut rest)?;
        self.connection.process_new_packets().map_err(io::Error::other)?;
        self.flush(socket)?;
        Ok(true)
    }

    /// Sends pending bytes: a few packets, which a socket always accepts.
    fn flush(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut socket)?;
        }
        Ok(())
    }
}

/// Accepts every certificate: the bench has started the server.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The maximum time to wait for the next bytes of a server.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(120);

/// The number of bytes read from an encrypted connection at once.
const READ: usize = 64 << 10;
