//! `get`, `put`, `send` and `recv` over TLS, with common programs as peers.

mod fetch;
mod send;
mod site;
mod streams;
mod trust;
