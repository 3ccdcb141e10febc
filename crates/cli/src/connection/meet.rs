//! Connects a stream, or waits for a peer that connects.

use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use underpass_engine::socket::CongestionUnavailable;
use underpass_transport::stream::{Stream, StreamAddress};
use underpass_transport::tls::Pin;

use crate::failure::{Failure, Result, UsageError};
use crate::output;

/// The reason why the options make no valid stream.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamUsage {
    #[error(transparent)]
    Congestion(CongestionUnavailable),
    #[error("--tls is for streams over TCP: a Unix socket does not leave this machine")]
    LocalTls,
    #[error("no address was given")]
    NoAddress,
    #[error("'{0}' does not name a host to connect to")]
    NoHost(StreamAddress),
    #[error("--tls-cert is for the side that listens")]
    NotListening,
    #[error("certificates and pins need --tls")]
    NotTls,
    #[error("--cacert, --insecure and --pin are for the side that connects")]
    NotConnecting,
}

impl UsageError for StreamUsage {}

/// Connects to `to`, or waits at `listen` for one peer, no longer than `timeout`, and prints that
/// address on standard error, with the options that the peer needs.
pub(crate) fn meet(
    to: Option<&StreamAddress>,
    listen: Option<&StreamAddress>,
    pin: Option<Pin>,
    timeout: Option<Duration>,
    cancel: &AtomicBool,
) -> Result<Stream> {
    let failed = |action, address: &str| {
        let address = address.to_owned();
        move |source| Failure::Network { action, address, source }
    };
    if let Some(to) = to {
        if matches!(to, StreamAddress::Tcp { host, .. } if host.is_empty()) {
            return Err(StreamUsage::NoHost(to.clone()).into());
        }
        return to.connect(timeout, cancel).map_err(failed("connecting to", &to.to_string()));
    }
    let listen = listen.ok_or(StreamUsage::NoAddress)?;
    let listener = listen.listen().map_err(failed("listening on", &listen.to_string()))?;
    let address = listener.address();
    output::listening(&address);
    if let Some(pin) = pin {
        output::pin(pin);
    }
    listener.accept(timeout, cancel).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => {
            let timeout = timeout.unwrap_or_default();
            Failure::line(format!("no peer connected to {address} within {timeout:?}"))
        }
        io::ErrorKind::Interrupted => failed("listening on", &address)(error),
        _ => failed("accepting on", &address)(error),
    })
}
