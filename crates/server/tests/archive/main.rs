//! The archive of a folder: its layout, real folders unpacked by real programs, and its way
//! through the engine.

#![allow(clippy::unwrap_used)]

mod layout;
mod rig;
mod send;
mod unpack;
mod walk;
