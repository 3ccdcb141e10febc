//! Both ends of HTTP without the code under test: a client that reads replies strictly, and a
//! server that answers as a test decides.

mod client;
mod server;

pub use client::{Client, End, Reply, request};
pub use server::{Request, Server, close, file_head, respond, serve_until_exit, write_head};
