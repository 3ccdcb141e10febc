//! The sockets of a server: addresses to listen on, and sockets that systemd has opened.

mod activation;
mod listen;

pub(super) use activation::inherited;
pub(super) use listen::addresses;
