//! Finds which mechanisms a machine supports, and which system calls another program makes.
//!
//! [`doctor::examine`] tries every mechanism between two ends and returns findings.
//!
//! [`explain::run`] traces the system calls of a program and all processes that it starts, and
//! returns what moved its bytes as values; [`trace`] is the tracer that it uses. Both need the
//! feature `explain`, which is on by default.
//!
//! The crate prints nothing: `underpass doctor` and `underpass explain` do that.
//!
//! ```
//! use std::path::Path;
//! use underpass_diagnose::doctor::{FindingState, TrialTarget, examine};
//!
//! let target = TrialTarget::Folder(std::env::temp_dir());
//! let diagnosis = examine(Some(Path::new("Cargo.toml")), &target)?;
//! for finding in &diagnosis.findings {
//!     if finding.state == FindingState::Closed {
//!         println!("{}: {}", finding.name, finding.finding);
//!     }
//! }
//! # Ok::<(), underpass_diagnose::doctor::DoctorError>(())
//! ```

#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("underpass-diagnose uses Linux system calls and needs Linux");

pub mod doctor;
#[cfg(feature = "explain")]
pub mod explain;
pub mod probe;
#[cfg(feature = "explain")]
mod procfs;
#[cfg(feature = "explain")]
pub mod trace;
