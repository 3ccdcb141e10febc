//! A client of HTTP that reads replies strictly, without the code that is tested.

mod client;

pub use client::{Client, End, Reply, request};
