//! The archive of a folder: real folders unpacked by real programs, and its way
//! through the engine.

#![allow(clippy::unwrap_used)]

mod rig;
mod send;
mod unpack;
mod walk;
