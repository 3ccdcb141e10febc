//! The purpose of a listener.

/// The purpose of a listener and of each connection that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    /// Plain HTTP.
    Plain,
    /// HTTP over TLS.
    Tls,
    /// Plain HTTP that is redirected to HTTPS on this port.
    Redirect {
        /// The port of TLS at the same address.
        port: u16,
    },
}
