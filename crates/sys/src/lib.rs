//! The system calls that rustix leaves out or cannot make safe, each with types around it.
//!
//! This is the only crate of the workspace with unsafe code. Every function that it offers is safe
//! to call with any arguments, and every unsafe block names the test that proves it, by its file
//! below `crates/`.
//!
//! ```
//! use rustix::fs::OFlags;
//! use rustix::io::Errno;
//! use underpass_sys::open_beneath;
//!
//! let folder = std::fs::File::open("/")?;
//! let outside = open_beneath(&folder, b"../etc", OFlags::PATH);
//! assert_eq!(outside.err(), Some(Errno::XDEV));
//! # Ok::<(), std::io::Error>(())
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!("underpass-sys is about Linux system calls and needs Linux");

mod beneath;
mod descriptor;
mod ethtool;
mod kernel;
mod kind;
mod mapping;
mod netlink;
#[cfg(feature = "process")]
mod process;
mod record;
mod trace;
mod usage;

use rustix::io::Errno;

pub use beneath::open_beneath;
pub use descriptor::{
    SocketOption, await_write_back, cached, clear_lease_owner, clone_range, close, has_read_lease,
    is_at_mark, release_lease, set_option, set_pacing_rate, set_unsent_limit, take_read_lease,
    unacknowledged, unsent, unwritten, write_back,
};
pub use ethtool::{Features, features};
pub use kernel::{landlock_version, make_ring};
pub use kind::{Kind, is_on_fuse};
pub use mapping::{MappedSink, Mapping};
pub use netlink::{Netlink, leading_u32};
#[cfg(feature = "process")]
pub use process::{SAME_REQUEST, cancel_on, duplicate, is_ignored, was_closed};
pub use record::{receive_record, send_record};
pub use trace::{
    CallInfo, ReceivedSignal, Resume, SignalSet, StartFailure, TraceRequest, TracedProgram,
    spawn_traced, trace, wait_for_any,
};
pub use usage::{Usage, prepare_allocator, processor_time, set_thread_priority};

/// Returns the error of this thread's last system call.
fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
