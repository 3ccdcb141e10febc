//! The bytes of a connection: TLS, and the heads and bodies that come in.

#![forbid(unsafe_code)]
