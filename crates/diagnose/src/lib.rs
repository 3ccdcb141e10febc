//! What this machine can do, and what another program asks of the kernel.
//!
//! [`doctor::examine`] tries what can be tried between two ends and returns findings.
//!
//! [`explain::run`] follows a program and all that it starts from system call to system call, and
//! returns what moved its bytes as values; [`explain::attach`] counts the system calls of programs
//! that run already. [`trace`] is the tracer below both.
//!
//! The crate prints nothing: `underpass doctor` and `underpass explain` do that.

#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("underpass-diagnose is about Linux system calls and needs Linux");

pub mod doctor;
mod end_kind;
pub mod explain;
pub mod probe;
mod procfs;
pub mod trace;

pub use end_kind::EndKind;
