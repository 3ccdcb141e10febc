//! TLS over the one stream of `send` and `recv`.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use underpass_engine::wait::Limits;
use underpass_engine::{Policy, TlsTransport};
use underpass_transport::tls::{
    Acceptor, Connector, Handshake, HandshakeError, Identity, Pin, Session,
};

use crate::address::{Address, Stream};
use crate::failure::{Failure, Result};
use crate::trust::{TrustArgs, uses_kernel};

/// Whether, and as whom, a stream is encrypted.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct VeilArgs {
    /// Encrypt the stream: the side that listens shows a certificate, the other one looks at it
    #[arg(long)]
    tls: bool,

    /// The certificate to show, PEM, and behind it those that vouch for it [default: one made for
    /// this stream, of which --pin is told]
    #[arg(long, value_name = "PEM", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The private key of the certificate, PEM
    #[arg(long, value_name = "PEM", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    #[command(flatten)]
    trust: TrustArgs,
}

/// What this side does when a stream is to be encrypted.
#[derive(Debug)]
pub(crate) enum Veil {
    /// It listens, and shows who it is; the pin of a certificate that nobody knows yet.
    Shows(Acceptor, Option<Pin>),
    /// It connects to this host, and looks who is there.
    Looks(Connector, String),
}

impl VeilArgs {
    /// What is to be done; nothing without `--tls`.
    pub(crate) fn veil(
        &self,
        to: Option<&Address>,
        listen: Option<&Address>,
        policy: Policy,
    ) -> Result<Option<Veil>> {
        let usage = |message: &str| Err(Failure::Usage(message.to_owned()));
        if !self.tls {
            return match self.trust.is_given() || self.tls_cert.is_some() {
                true => usage("certificates and pins are for streams with --tls"),
                false => Ok(None),
            };
        }
        match (to, listen) {
            (Some(Address::Unix(_)), _) | (_, Some(Address::Unix(_))) => {
                usage("--tls is for streams over TCP: nobody is on the way of a unix socket")
            }
            (Some(Address::Tcp { host, .. }), _) => {
                if self.tls_cert.is_some() {
                    return usage("--tls-cert is for the side that listens");
                }
                let connector = self.trust.setup(policy)?.connector().map_err(Failure::line)?;
                Ok(Some(Veil::Looks(connector.for_streams(), host.clone())))
            }
            (None, _) => {
                if self.trust.is_given() {
                    return usage("--cacert, --insecure and --pin are for the side that connects");
                }
                let (identity, is_known) = self.identity()?;
                let pin = (!is_known).then(|| identity.pin());
                let acceptor = Acceptor::new(identity, uses_kernel(policy));
                let acceptor = acceptor.map_err(Failure::line)?.for_streams();
                Ok(Some(Veil::Shows(acceptor, pin)))
            }
        }
    }

    /// The certificate to show, and whether others know it.
    fn identity(&self) -> Result<(Identity, bool)> {
        let (identity, is_known) = match (&self.tls_cert, &self.tls_key) {
            (Some(certificates), Some(key)) => (Identity::load(certificates, key), true),
            _ => (Identity::self_signed(&Identity::names_of_this_host()), false),
        };
        Ok((identity.map_err(Failure::line)?, is_known))
    }
}

impl Veil {
    /// The pin that the other side has to know.
    pub(crate) fn pin(&self) -> Option<Pin> {
        match self {
            Self::Shows(_, pin) => *pin,
            Self::Looks(..) => None,
        }
    }

    /// Shakes hands with the peer.
    pub(crate) fn shake_hands(
        &self,
        stream: &Stream,
        patience: Option<Duration>,
        cancel: &AtomicBool,
    ) -> Result<Session> {
        let patience = Some(patience.unwrap_or(HANDSHAKE));
        let limits = Limits::since(Instant::now(), patience, Some(cancel));
        let handshake = match self {
            Self::Shows(acceptor, _) => Handshake::accept(acceptor),
            Self::Looks(connector, host) => Handshake::connect(connector, host),
        };
        let outcome = handshake.and_then(|it| it.complete(stream, limits));
        outcome.map_err(|error| {
            let (address, action) = (stream.peer(), "shaking hands with");
            match error {
                HandshakeError::Io(source) => Failure::Network { action, address, source },
                error => Failure::hinted(format!("TLS with {address}: {error}"), &error),
            }
        })
    }
}

/// Says that nothing more follows, and waits until that is on its way.
///
/// # Errors
///
/// As `TlsTransport::flush`; `EINTR` soon after `cancel` became true, `ETIMEDOUT` when nothing has moved for
/// too long.
pub(crate) fn end(
    session: &Session,
    stream: &Stream,
    cancel: &AtomicBool,
    timeout: Option<Duration>,
) -> std::result::Result<(), Errno> {
    session.close(stream.as_fd());
    let limits = Limits::since(Instant::now(), timeout, Some(cancel));
    while let Err(errno) = session.flush(stream.as_fd()) {
        if errno != Errno::AGAIN && errno != Errno::INTR {
            return Err(errno);
        }
        limits.poll(&mut [PollFd::new(stream, PollFlags::OUT)])?;
    }
    Ok(())
}

/// How long a handshake may take if nobody has said how long nothing may move.
const HANDSHAKE: Duration = Duration::from_secs(30);
