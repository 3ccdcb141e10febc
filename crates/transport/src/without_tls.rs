//! TLS in a program that was built without the feature `tls`.
//!
//! The types have the same methods as those of rustls. None of them can be created, so whatever
//! needs them is unreachable, and the other crates need to know nothing of the feature.

#![allow(clippy::missing_errors_doc)] // there is one error

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::SystemTime;

use rustix::io::Errno;
use underpass_engine::hint::{Hint, Hinted};
use underpass_engine::wait::Limits;
use underpass_engine::{RecordKind, TlsTransport};
use underpass_protocol::request::host_map::HostMap;

pub use crate::session_facts::{
    CERTIFICATE_REQUIRED, EncryptedBy, KernelTlsObstacle, SessionFacts,
};
pub use crate::trust::{Pin, Trust, UnknownPin};

/// The reason why there is no TLS.
pub const MISSING: Option<&str> =
    Some("this program was built without TLS: use http, or build it with the feature tls");

/// There is no TLS.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{}", MISSING.unwrap_or_default())]
pub struct TlsError;

/// The reason why a handshake failed. None begins.
#[derive(Debug, thiserror::Error)]
#[error("{}", TlsError)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The first bytes are not TLS.
    PlainHttp,
    /// An authority has checked the answer to its challenge.
    Challenge,
    /// The peer disconnected before the handshake was done.
    Closed,
    /// The socket failed.
    Io(io::Error),
}

impl Hinted for HandshakeError {
    fn hint(&self) -> Option<Hint> {
        None
    }
}

/// The certificate and key of a server.
#[derive(Clone, Debug)]
pub struct Identity(Infallible);

impl Identity {
    /// Reads PEM files.
    pub fn load(_certificates: &Path, _key: &Path) -> Result<Self, TlsError> {
        Err(TlsError)
    }

    /// Returns whether both have the same certificates.
    pub fn is_same(&self, _other: &Self) -> bool {
        match self.0 {}
    }

    /// Makes a certificate that its own key has signed.
    pub fn self_signed(_names: &[String]) -> Result<Self, TlsError> {
        Err(TlsError)
    }

    /// Returns the names for a certificate of this machine: none.
    pub fn names_of_this_host() -> Vec<String> {
        Vec::new()
    }

    /// Returns the pin of the public key.
    pub fn pin(&self) -> Pin {
        match self.0 {}
    }

    /// Returns what is wrong with an identity that can be used.
    pub fn warning(&self) -> Option<&str> {
        match self.0 {}
    }

    /// Returns the SHA-256 of the certificate.
    pub fn fingerprint(&self) -> String {
        match self.0 {}
    }
}

/// The identities of a server, of which there are none.
#[derive(Clone, Debug, Default)]
pub struct Identities(());

impl Identities {
    /// Uses this identity for clients that ask for no name of their own.
    pub fn set_default(&self, identity: Identity) {
        match identity.0 {}
    }

    /// Uses these identities for clients that ask for the names of sites.
    pub fn set_sites(&self, _of_sites: HostMap<Option<Identity>>) {}

    /// Returns the answer to the challenge with this token over plain HTTP.
    pub fn http_answer(&self, _token: &str) -> Option<String> {
        None
    }

    /// Returns the end of each identity's validity, with its name.
    pub fn expiries(&self) -> Vec<(String, SystemTime)> {
        Vec::new()
    }
}

/// Accepts handshakes.
#[derive(Clone, Debug)]
pub struct Acceptor(Infallible);

impl Acceptor {
    /// Creates an acceptor, for which there is no identity.
    pub fn new(identity: Identity, _kernel: bool) -> Result<Self, TlsError> {
        match identity.0 {}
    }

    /// Creates an acceptor with these identities.
    pub fn with_identities(_identities: Identities, _kernel: bool) -> Result<Self, TlsError> {
        Err(TlsError)
    }

    /// Returns an acceptor that also lets authorities check its names.
    pub fn for_challenges(self) -> Self {
        match self.0 {}
    }

    /// Returns the identities.
    pub fn identities(&self) -> &Identities {
        match self.0 {}
    }

    /// Returns an acceptor for streams that are not HTTP.
    pub fn for_streams(self) -> Self {
        match self.0 {}
    }

    /// Sets whether a network card may read the pages of files directly.
    pub fn zero_copy(self, _wanted: bool) -> Self {
        match self.0 {}
    }

    /// Returns whether a signature takes long.
    pub fn is_slow(&self) -> bool {
        match self.0 {}
    }
}

/// Begins handshakes.
#[derive(Clone, Debug)]
pub struct Connector(Infallible);

impl Connector {
    /// Reads the authorities.
    pub fn new(_trust: &Trust) -> Result<Self, TlsError> {
        Err(TlsError)
    }

    /// Returns a connector for streams that are not HTTP.
    pub fn for_streams(self) -> Self {
        match self.0 {}
    }
}

/// A handshake in progress.
#[derive(Debug)]
pub struct Handshake(Infallible);

/// The progress of a handshake.
#[derive(Debug)]
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
    pub fn accept(acceptor: &Acceptor) -> Result<Self, HandshakeError> {
        match acceptor.0 {}
    }

    /// Creates the client's side.
    pub fn connect(connector: &Connector, _host: &str) -> Result<Self, HandshakeError> {
        match connector.0 {}
    }

    /// Proceeds as far as possible without waiting.
    pub fn advance(
        &mut self,
        _socket: BorrowedFd<'_>,
    ) -> Result<HandshakeProgress, HandshakeError> {
        match self.0 {}
    }

    /// Completes a handshake, waiting for the peer where necessary.
    pub fn complete(
        self,
        _socket: impl AsFd,
        _limits: Limits<'_>,
    ) -> Result<Session, HandshakeError> {
        match self.0 {}
    }

    /// Returns how many bytes have arrived that could not be used yet.
    pub fn kept(&self) -> usize {
        match self.0 {}
    }
}

/// TLS on one socket after its handshake.
#[derive(Debug)]
pub struct Session(Infallible);

impl Session {
    /// Returns the name that the client asked for.
    pub fn server_name(&self) -> Option<&str> {
        match self.0 {}
    }

    /// Returns the facts of the session.
    pub fn facts(&self) -> &SessionFacts {
        match self.0 {}
    }

    /// Returns whether bytes or an end wait here rather than in the socket.
    pub fn has_input(&self) -> bool {
        match self.0 {}
    }

    /// Returns whether the peer has neither sent data nor ended the connection.
    pub fn is_quiet(&self, _socket: BorrowedFd<'_>) -> bool {
        match self.0 {}
    }

    /// Returns whether the next that can be received is data.
    pub fn peek(&self, _socket: BorrowedFd<'_>) -> Option<bool> {
        match self.0 {}
    }

    /// Returns how many bytes of records the socket has not taken yet.
    pub fn held(&self) -> usize {
        match self.0 {}
    }

    /// Returns how many bytes arrived that were not received yet.
    pub fn kept(&self) -> usize {
        match self.0 {}
    }

    /// Sends the end of the connection.
    pub fn close(&self, _socket: BorrowedFd<'_>) {
        match self.0 {}
    }
}

impl TlsTransport for Session {
    fn is_in_kernel(&self) -> bool {
        match self.0 {}
    }

    fn send(&self, _socket: BorrowedFd<'_>, _bytes: &[u8], _more: bool) -> Result<usize, Errno> {
        match self.0 {}
    }

    fn flush(&self, _socket: BorrowedFd<'_>) -> Result<(), Errno> {
        match self.0 {}
    }

    fn receive(&self, _socket: BorrowedFd<'_>, _buffer: &mut [u8]) -> Result<usize, Errno> {
        match self.0 {}
    }

    fn take_control(&self, _socket: BorrowedFd<'_>) -> Result<RecordKind, Errno> {
        match self.0 {}
    }

    fn sent(&self, _socket: BorrowedFd<'_>, _bytes: usize) -> Result<(), Errno> {
        match self.0 {}
    }
}
