//! `get`, `put`, `send` and `recv` over TLS, with the programs that people have at the other end.

mod fetch;
mod send;
mod site;
mod streams;
mod trust;
