//! TLS over the one stream of `send` and `recv`.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Args;
use underpass_engine::Policy;
use underpass_engine::wait::Limits;
use underpass_transport::stream::{Stream, StreamAddress};
use underpass_transport::tls::{
    Acceptor, Connector, Handshake, HandshakeError, Identity, Pin, Session,
};

use super::meet::StreamUsage;
use super::tls_trust::TlsTrustArgs;
use crate::failure::{Failure, Result};

/// The TLS options of `send` and `recv`.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct StreamTlsArgs {
    /// Encrypt the stream with TLS: the side that listens presents a certificate, the other side
    /// verifies it
    #[arg(long)]
    tls: bool,

    /// Present this certificate, followed in the file by those of its issuers [default: a new one
    /// for this stream, whose --pin is printed]
    #[arg(long, value_name = "PEM", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Use this private key for --tls-cert
    #[arg(long, value_name = "PEM", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    #[command(flatten)]
    trust: TlsTrustArgs,
}

/// The role of this side in the handshake.
#[derive(Debug)]
pub(crate) enum StreamTls {
    /// It listens and shows a certificate, with its pin if it was made for this stream.
    Accepts(Acceptor, Option<Pin>),
    /// It connects to this host and checks the certificate that it shows.
    Connects(Connector, String),
}

impl StreamTlsArgs {
    /// Returns the TLS setup of the options; `None` without `--tls`.
    pub(crate) fn choose(
        &self,
        to: Option<&StreamAddress>,
        listen: Option<&StreamAddress>,
        policy: Policy,
    ) -> Result<Option<StreamTls>> {
        if !self.tls {
            return if self.trust.is_given() || self.tls_cert.is_some() {
                Err(StreamUsage::NotTls.into())
            } else {
                Ok(None)
            };
        }
        match (to, listen) {
            (Some(StreamAddress::Unix(_)), _) | (_, Some(StreamAddress::Unix(_))) => {
                Err(StreamUsage::LocalTls.into())
            }
            (Some(StreamAddress::Tcp { host, .. }), _) => {
                if self.tls_cert.is_some() {
                    return Err(StreamUsage::NotListening.into());
                }
                let connector = self.trust.setup(policy)?.connector().map_err(Failure::line)?;
                Ok(Some(StreamTls::Connects(connector.for_streams(), host.clone())))
            }
            (None, _) => {
                if self.trust.is_given() {
                    return Err(StreamUsage::NotConnecting.into());
                }
                let (identity, is_known) = self.identity()?;
                let pin = (!is_known).then(|| identity.pin());
                let acceptor = Acceptor::new(identity, policy.allows_kernel_tls());
                let acceptor = acceptor.map_err(Failure::line)?.for_streams();
                Ok(Some(StreamTls::Accepts(acceptor, pin)))
            }
        }
    }

    /// Returns the certificate to show, and whether it was given rather than made.
    fn identity(&self) -> Result<(Identity, bool)> {
        let (identity, is_known) = match (&self.tls_cert, &self.tls_key) {
            (Some(certificates), Some(key)) => (Identity::load(certificates, key), true),
            _ => (Identity::self_signed(&Identity::names_of_this_host()), false),
        };
        Ok((identity.map_err(Failure::line)?, is_known))
    }
}

impl StreamTls {
    /// Returns the pin that the peer needs.
    pub(crate) fn pin(&self) -> Option<Pin> {
        match self {
            Self::Accepts(_, pin) => *pin,
            Self::Connects(..) => None,
        }
    }

    /// Performs the handshake with the peer.
    pub(crate) fn handshake(
        &self,
        stream: &Stream,
        timeout: Option<Duration>,
        cancel: &AtomicBool,
    ) -> Result<Session> {
        let timeout = Some(timeout.unwrap_or(HANDSHAKE_TIMEOUT));
        let limits = Limits::since(Instant::now(), timeout, Some(cancel));
        let pending = match self {
            Self::Accepts(acceptor, _) => Handshake::accept(acceptor),
            Self::Connects(connector, host) => Handshake::connect(connector, host),
        };
        let outcome = pending.and_then(|it| it.complete(stream, limits));
        outcome.map_err(|error| {
            let (address, action) = (stream.peer(), "TLS handshake with");
            match error {
                HandshakeError::Io(source) => Failure::Network { action, address, source },
                error => Failure::hinted(format!("TLS with {address}: {error}"), &error),
            }
        })
    }
}

/// The time that a handshake may take without `--timeout`.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
