//! The system calls that move bytes, and what their arguments mean.

use crate::trace::CallFilter;

/// A system call that is watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchedCall {
    /// Its name in the manual.
    pub(super) name: &'static str,
    number: i64,
    watch: CallFilter,
    /// Its effect.
    pub(super) effect: SyscallEffect,
}

/// The effect of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyscallEffect {
    /// Copies between a descriptor, the first argument, and memory.
    Cross {
        /// The direction of the copy.
        direction: ByteDirection,
        /// The form of the memory in the second and third argument.
        memory: MemoryArguments,
        /// Which argument has the flags of recv(2) and send(2), if any.
        flags: Option<usize>,
    },
    /// Moves bytes inside the kernel.
    Move {
        /// The argument that is the source.
        from: usize,
        /// The argument that is the sink.
        to: usize,
    },
    /// Gives pages of the program to a pipe, or copies from one: vmsplice(2).
    Vmsplice,
    /// Makes two files share blocks: FICLONE.
    Clone,
    /// Makes parts of two files share blocks: FICLONERANGE.
    CloneRange,
    /// Creates or drives a ring, whose calls are invisible: io_uring(7).
    Ring,
    /// Submits operations that run later and are invisible: io_submit(2).
    Later,
    /// Copies between the memory of processes: process_vm_readv(2), message queues.
    BetweenProcesses,
    /// Lets a socket refer to pages of the program: `SO_ZEROCOPY`.
    AllowZeroCopy,
    /// Makes the kernel refuse calls from now on: seccomp(2).
    Confine,
    /// mmap(2).
    Map,
    /// munmap(2).
    Unmap,
    /// mremap(2).
    Remap,
}

/// The direction in which bytes cross between the kernel and a program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum ByteDirection {
    /// Into memory: read(2).
    In,
    /// Out of memory: write(2).
    Out,
}

/// The form in which arguments name the memory of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryArguments {
    /// An address and a length.
    Buffer,
    /// Several buffers: `iovec`.
    Vector,
    /// Several buffers in a `msghdr`.
    Message,
    /// Several messages in `mmsghdr`s; the call returns the number of messages, not bytes.
    Messages,
}

/// Returns the call with this number and these arguments if it is watched. Without a filter, all
/// calls arrive here.
pub(super) fn find(number: i64, arguments: &[u64; 6]) -> Option<&'static WatchedCall> {
    TABLE.iter().find(|known| known.number == number && is_watched(known, arguments))
}

/// Returns the calls for which the kernel stops the program.
pub(super) fn watched() -> Vec<(i64, CallFilter)> {
    TABLE.iter().map(|known| (known.number, known.watch)).collect()
}

fn is_watched(known: &WatchedCall, arguments: &[u64; 6]) -> bool {
    let word = |index: u8| arguments[usize::from(index)] as u32;
    match known.watch {
        CallFilter::Always => true,
        CallFilter::If { argument, is } => word(argument) == is,
        CallFilter::Unless { argument, mask, value } => word(argument) & mask != value,
    }
}

const fn known_as(name: &'static str, number: libc::c_long, effect: SyscallEffect) -> WatchedCall {
    WatchedCall { name, number, watch: CallFilter::Always, effect }
}

const fn crossing(
    name: &'static str,
    number: libc::c_long,
    direction: ByteDirection,
    memory: MemoryArguments,
) -> WatchedCall {
    let flags = match (memory, name.as_bytes()) {
        (Buffer, b"recvfrom" | b"sendto") => Some(3),
        (Message, _) => Some(2),
        (Messages, _) => Some(3),
        _ => None,
    };
    known_as(name, number, SyscallEffect::Cross { direction, memory, flags })
}

const fn between(name: &'static str, number: libc::c_long) -> WatchedCall {
    known_as(name, number, SyscallEffect::BetweenProcesses)
}

const fn request(number: u32, effect: SyscallEffect) -> WatchedCall {
    let watch = CallFilter::If { argument: 1, is: number };
    WatchedCall { name: "ioctl", number: libc::SYS_ioctl, watch, effect }
}

/// Mappings of memory alone are irrelevant unless they replace one of a file.
const MAP: WatchedCall = WatchedCall {
    name: "mmap",
    number: libc::SYS_mmap,
    watch: CallFilter::Unless {
        argument: 3,
        mask: (libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u32,
        value: libc::MAP_ANONYMOUS as u32,
    },
    effect: SyscallEffect::Map,
};

use ByteDirection::{In, Out};
use MemoryArguments::{Buffer, Message, Messages, Vector};

const TABLE: [WatchedCall; 38] = [
    crossing("read", libc::SYS_read, In, Buffer),
    crossing("write", libc::SYS_write, Out, Buffer),
    crossing("pread64", libc::SYS_pread64, In, Buffer),
    crossing("pwrite64", libc::SYS_pwrite64, Out, Buffer),
    crossing("recvfrom", libc::SYS_recvfrom, In, Buffer),
    crossing("sendto", libc::SYS_sendto, Out, Buffer),
    crossing("readv", libc::SYS_readv, In, Vector),
    crossing("writev", libc::SYS_writev, Out, Vector),
    crossing("preadv", libc::SYS_preadv, In, Vector),
    crossing("pwritev", libc::SYS_pwritev, Out, Vector),
    crossing("preadv2", libc::SYS_preadv2, In, Vector),
    crossing("pwritev2", libc::SYS_pwritev2, Out, Vector),
    crossing("recvmsg", libc::SYS_recvmsg, In, Message),
    crossing("sendmsg", libc::SYS_sendmsg, Out, Message),
    crossing("recvmmsg", libc::SYS_recvmmsg, In, Messages),
    crossing("sendmmsg", libc::SYS_sendmmsg, Out, Messages),
    known_as("sendfile", libc::SYS_sendfile, SyscallEffect::Move { from: 1, to: 0 }),
    known_as("splice", libc::SYS_splice, SyscallEffect::Move { from: 0, to: 2 }),
    known_as("tee", libc::SYS_tee, SyscallEffect::Move { from: 0, to: 1 }),
    known_as("copy_file_range", libc::SYS_copy_file_range, SyscallEffect::Move { from: 0, to: 2 }),
    known_as("vmsplice", libc::SYS_vmsplice, SyscallEffect::Vmsplice),
    request(libc::FICLONE as u32, SyscallEffect::Clone),
    request(libc::FICLONERANGE as u32, SyscallEffect::CloneRange),
    known_as("io_uring_setup", libc::SYS_io_uring_setup, SyscallEffect::Ring),
    known_as("io_uring_enter", libc::SYS_io_uring_enter, SyscallEffect::Ring),
    known_as("io_submit", libc::SYS_io_submit, SyscallEffect::Later),
    between("process_vm_readv", libc::SYS_process_vm_readv),
    between("process_vm_writev", libc::SYS_process_vm_writev),
    between("msgsnd", libc::SYS_msgsnd),
    between("msgrcv", libc::SYS_msgrcv),
    between("mq_timedsend", libc::SYS_mq_timedsend),
    between("mq_timedreceive", libc::SYS_mq_timedreceive),
    WatchedCall {
        name: "setsockopt",
        number: libc::SYS_setsockopt,
        watch: CallFilter::If { argument: 2, is: libc::SO_ZEROCOPY as u32 },
        effect: SyscallEffect::AllowZeroCopy,
    },
    MAP,
    known_as("munmap", libc::SYS_munmap, SyscallEffect::Unmap),
    known_as("mremap", libc::SYS_mremap, SyscallEffect::Remap),
    known_as("seccomp", libc::SYS_seccomp, SyscallEffect::Confine),
    WatchedCall {
        name: "prctl",
        number: libc::SYS_prctl,
        watch: CallFilter::If { argument: 0, is: libc::PR_SET_SECCOMP as u32 },
        effect: SyscallEffect::Confine,
    },
];
