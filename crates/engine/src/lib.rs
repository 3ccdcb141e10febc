//! Moves bytes between files, sockets and pipes inside the Linux kernel, and reports how.
//!
//! A file that is sent over a network or copied usually passes from the kernel into a buffer of the
//! program and back again. This crate leaves its bytes in the kernel: it moves them by reflink,
//! copy_file_range, sendfile or splice, whichever the kernel offers for the two ends, and falls
//! back at the exact byte where it does not. The [`Report`] then says which mechanisms moved the
//! bytes; it is written by the code that moved them.
//!
//! ```no_run
//! use std::fs::File;
//! use std::net::TcpStream;
//! use underpass_engine::{Chain, Sink, Source, Transfer};
//!
//! let file = File::open("disk.img")?;
//! let peer = TcpStream::connect("192.0.2.1:9000")?;
//! let source = Source::of(&file)?;
//! let header = format!("{} bytes follow\n", file.metadata()?.len());
//! let chain = Chain::new().bytes(header.into_bytes()).source(source);
//! let report = Transfer::new(chain, Sink::of(&peer)?).run()?;
//! println!("{} bytes, {} of them in user space", report.bytes(), report.user_space_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The bytes of a file are passed to a socket or pipe by reference: do not write to the file in
//! place before the peer has them, or request an [`Integrity`] level that guards against it.
//!
//! The crate starts no thread and prints nothing. Its only global state is the list of the last 256
//! calls of [`announce_attribute`]. Only [`Transfer::run`], [`await_writes`] and the functions of
//! [`wait`] wait. A program that writes to sockets and pipes should ignore `SIGPIPE`,
//! as Rust's own runtime does: not every mechanism can suppress it.

#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("underpass-engine is about Linux system calls and needs Linux");

pub mod atomic_file;
mod chain;
mod error;
mod integrity;
pub mod ktls;
mod mechanisms;
mod report;
mod size;
pub mod socket;
mod transfer;
pub mod wait;

pub use chain::{
    Chain, EndKind, Memory, Segment, Sink, Source, data_ranges, is_absent, is_resident, next_data,
};
pub use error::{Error, errno, hint, printable};
pub use integrity::{
    FileId, Integrity, UnknownIntegrity, Version, WriterCheck, Writers, announce_attribute,
    await_writes, birth_time, is_file, is_folder, kept_time, mount_epoch, mtime, since_1970,
    times_of_new,
};
pub use mechanisms::{
    DeclineReason, Mechanism, PipePool, Policy, SMALL_TRANSFER, UnknownMechanism, Wait,
};
pub use report::{Decline, Declined, Report, Tally};
pub use size::{Grouped, MinFree, NotASize, NotMinFree, Size};
pub use socket::tls_transport::{RecordKind, TlsTransport};
pub use transfer::{
    Capabilities, Confirm, FilePart, Options, PeerMessage, Progress, Status, Transfer, buffered,
    send_small, send_with_head,
};
pub use underpass_sys::{Kind, Usage, close};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
