//! Common properties of all commands: options, help, messages, the manual, interruption.

#![allow(clippy::unwrap_used, missing_docs)]

mod completions;
mod features;
mod interrupts;
mod options;
mod printable;
#[path = "../rig/mod.rs"]
mod rig;

// These describe the whole program.
#[cfg(all(feature = "bench", feature = "explain"))]
mod errors;
#[cfg(all(feature = "bench", feature = "explain"))]
mod help_in_need;
#[cfg(all(feature = "bench", feature = "explain"))]
mod manual;
