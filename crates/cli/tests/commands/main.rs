//! What holds for all commands: options, help, messages, the manual, and how they are interrupted.

#![allow(clippy::unwrap_used, missing_docs)]

mod completions;
#[cfg(all(feature = "bench", feature = "explain", feature = "tls"))]
// it describes the whole program
mod errors;
mod features;
#[cfg(all(feature = "bench", feature = "explain", feature = "tls"))]
// it describes the whole program
mod help_in_need;
mod interrupts;
#[cfg(all(feature = "bench", feature = "explain", feature = "tls"))]
// it describes the whole program
mod manual;
mod options;
mod printable;
#[path = "../rig/mod.rs"]
mod rig;
