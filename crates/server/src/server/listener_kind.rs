//! What a listener is for.

/// What a listener, and each connection that comes by it, is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    /// HTTP as it is.
    Plain,
    /// HTTP inside of TLS.
    Tls,
    /// HTTP for those who did not know that there is TLS: they are sent to this port.
    Redirect {
        /// Where TLS is spoken at the same address.
        port: u16,
    },
}
