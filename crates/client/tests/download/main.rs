//! Downloads from servers over real sockets, including servers that misbehave.

#![allow(clippy::unwrap_used)]
#![allow(clippy::single_range_in_vec_init)]
#![allow(unreachable_pub)]

mod answers; // statuses, framing, heads
mod asking; // redirects, secrets, proxies
mod changes; // files that change while they are fetched
#[path = "../tls_front/mod.rs"]
mod front; // TLS before the servers of the rig
mod https;
mod parallel; // several connections
mod redirects; // redirects that lead elsewhere
mod replaced; // parts that others have replaced
mod resume; // what outlives a process
mod retries; // connections that fail
mod rig;
