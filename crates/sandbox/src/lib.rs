//! Restricts a file server before it answers a client: its user and capabilities, its access to
//! files and ports (Landlock), its system calls (seccomp), and memory dumps.
//!
//! The restrictions apply to the calling thread and those that it starts, so they must be applied
//! while there is only one. An older kernel enforces fewer of them; [`Confinement`] tells which are
//! in effect.
//!
//! ```
//! use underpass_sandbox::{AllowedAccess, AllowedRoot, Sandbox};
//!
//! // The restrictions of a thread cannot be undone, so this one is separate.
//! let thread = std::thread::spawn(|| {
//!     let access = AllowedAccess {
//!         roots: vec![AllowedRoot { path: std::env::temp_dir(), ..AllowedRoot::default() }],
//!         ..AllowedAccess::default()
//!     };
//!     Sandbox::new(&access).apply()
//! });
//! let confinement = thread.join().expect("no panic")?;
//! println!("{confinement}");
//! # Ok::<_, underpass_sandbox::SandboxError>(())
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod access;
mod error;
mod landlock;
mod privileges;
mod sandbox;
mod seccomp;
mod trusted;
mod user;

pub use error::{SandboxError, UserError};
pub use landlock::{AllowedAccess, AllowedRoot};
pub use sandbox::{Confinement, Sandbox};
pub use trusted::open_log;
pub use user::User;
