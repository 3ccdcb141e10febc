//! What the server gives up before it serves anybody: its user, its capabilities, files outside of
//! its folder, system calls that it has no use for, and memory dumps.
//!
//! All of it holds for the thread that does it and for those that it starts, so it has to happen
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
