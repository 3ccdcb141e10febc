//! What users of uploads can rely on, whatever the server does: each test is a promise, tested with
//! servers that follow a script.

#![allow(clippy::unwrap_used, missing_docs)]

mod bodies;
mod condition;
mod early;
mod expectation;
mod folders;
#[path = "../tls_front/mod.rs"]
mod front; // TLS before a scripted server
mod https;
mod redirects;
mod resumption;
mod retries;
mod rig;
mod sources;
