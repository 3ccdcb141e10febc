//! Confines the server before it serves a client: its user, its capabilities, files outside of
//! its folder, unneeded system calls, and memory dumps.
//!
//! The confinement applies to the calling thread and those that it starts, so it must be done
//! before there is a second thread.

mod access;
mod confinement;
mod landlock;
mod privileges;
mod seccomp;
mod user;

pub(crate) use confinement::{Confine, Confinement};
pub(crate) use landlock::Bounds;
pub(crate) use user::User;
