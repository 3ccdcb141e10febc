//! The engine as its users see it, linked as one test program.

#![allow(clippy::unwrap_used)]

mod atomic_file;
mod chain;
mod confirm;
mod declines;
mod examples;
mod file_systems;
mod integrity;
mod interrupted;
mod library;
mod listener;
mod matrix;
mod pipes;
mod reserve;
mod rig;
mod small;
mod tls_transport;
mod writers;
