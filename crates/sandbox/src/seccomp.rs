//! Allows only the system calls that the server makes; all others are refused (seccomp(2)).
//!
//! A refused call fails with `EPERM`, so that a call missing from this list costs one response and
//! not the server. `clone3` fails with `ENOSYS`, because its flags are in memory, which a filter
//! cannot read: glibc then uses clone(2), which may create only threads. Calls allowed with any
//! arguments cost next to nothing: the kernel keeps a bitmap of them (since Linux 5.11).

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::fmt;

use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, apply_filter,
};

use crate::landlock::AllowedAccess;

/// The result of installing the filter.
#[derive(Debug)]
pub(crate) enum Seccomp {
    /// The filter allows this number of system calls.
    Filtered(usize),
    /// The kernel, or an existing filter, refuses to install one.
    Refused(String),
}

/// Restricts this thread, and those that it starts from now on, to the calls of a server with this
/// access.
pub(crate) fn restrict(access: &AllowedAccess) -> Seccomp {
    match install(access) {
        Ok(count) => Seccomp::Filtered(count),
        Err(error) => Seccomp::Refused(error.to_string()),
    }
}

fn install(access: &AllowedAccess) -> Result<usize, Error> {
    let rules = rules(access)?;
    let count = rules.len();
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let without_clone3 = filter(clone3, SeccompAction::Allow, errno(libc::ENOSYS))?;
    let allowed = filter(rules, errno(libc::EPERM), SeccompAction::Allow)?;
    apply_filter(&without_clone3)?;
    apply_filter(&allowed)?;
    Ok(count)
}

fn filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    action: SeccompAction,
) -> Result<BpfProgram, Error> {
    Ok(SeccompFilter::new(rules, otherwise, action, ARCH.try_into()?)?.try_into()?)
}

fn errno(number: i32) -> SeccompAction {
    SeccompAction::Errno(number.unsigned_abs())
}

/// Returns the calls that are allowed. A call with rules is allowed if one of them matches.
fn rules(access: &AllowedAccess) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules: BTreeMap<_, _> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    // Allowed here, because a separate filter refuses it with `ENOSYS`.
    rules.insert(libc::SYS_clone3, Vec::new());
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![masked(0, thread, thread)?]);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![masked(2, libc::PROT_EXEC as u64, 0)?]);
    }
    rules.insert(libc::SYS_socket, sockets(access.connects())?);
    // TCP also connects by a first message (Fast Open), which Landlock does not check.
    let fast_open = libc::MSG_FASTOPEN as u64;
    let mut sending = vec![(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2)];
    if access.connects() {
        // The resolver queries both address families at once.
        sending.push((libc::SYS_sendmmsg, 3));
    }
    for (call, flags) in sending {
        rules.insert(call, vec![masked(flags, fast_open, 0)?]);
    }
    rules.insert(libc::SYS_fcntl, controls()?);
    if access.changes() {
        // Landlock restricts opening files, but not setting attributes by path.
        rules.insert(libc::SYS_fchmod, vec![masked(1, libc::S_ISUID.into(), 0)?]);
        // A folder that is being removed is opened to its owner alone.
        rules.insert(libc::SYS_fchmodat, one_of(2, &[libc::S_IRWXU.into()])?);
        // Allows changing the group of a file, but not its owner.
        rules.insert(libc::SYS_fchown, one_of(1, &[u32::MAX.into()])?);
        rules.insert(libc::SYS_utimensat, Vec::new());
    }
    // No signals to other processes; abort(3) signals its own.
    rules.insert(libc::SYS_tgkill, one_of(0, &[std::process::id().into()])?);
    rules.insert(libc::SYS_prlimit64, one_of(0, &[0])?);
    rules.insert(libc::SYS_prctl, one_of(0, &[libc::PR_SET_NAME as u64, PR_GET_AUXV])?);
    rules.insert(libc::SYS_ioctl, one_of(1, &REQUESTS)?);
    Ok(rules)
}

/// Returns the rules for socket(2).
fn sockets(connects: bool) -> Result<Vec<SeccompRule>, BackendError> {
    // Netlink reports what a peer has received.
    let mut rules = one_of(0, &[libc::AF_NETLINK as u64])?;
    let mut allow = |family: i32, kind: i32, protocol: Option<i32>| {
        let kind = condition(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), kind as u64)?;
        let family = condition(0, SeccompCmpOp::Eq, family as u64)?;
        let protocol = protocol.map(|number| condition(2, SeccompCmpOp::Eq, number as u64));
        let all = [family, kind].into_iter().map(Ok).chain(protocol);
        rules.push(SeccompRule::new(all.collect::<Result<_, _>>()?)?);
        Ok::<_, BackendError>(())
    };
    // Messages to systemd. Streams are not allowed: Landlock does not restrict connections to Unix
    // sockets, and services with more rights listen on them.
    allow(libc::AF_UNIX, libc::SOCK_DGRAM, None)?;
    if connects {
        // Names are resolved over the network and by services of this machine.
        allow(libc::AF_UNIX, libc::SOCK_STREAM, None)?;
        for family in [libc::AF_INET, libc::AF_INET6] {
            // Landlock does not restrict other protocols, such as MPTCP, which reaches every TCP
            // server.
            for protocol in [libc::IPPROTO_IP, libc::IPPROTO_TCP] {
                allow(family, libc::SOCK_STREAM, Some(protocol))?;
            }
            for protocol in [libc::IPPROTO_IP, libc::IPPROTO_UDP] {
                allow(family, libc::SOCK_DGRAM, Some(protocol))?;
            }
        }
    }
    Ok(rules)
}

/// Returns the rules for fcntl(2): a descriptor may send no signal to another process, and no
/// signal other than that of a lease.
fn controls() -> Result<Vec<SeccompRule>, BackendError> {
    let is = |command: i32| condition(1, SeccompCmpOp::Eq, command as u64);
    let others = [libc::F_SETOWN, F_SETOWN_EX, F_SETSIG].map(|command| command as u64);
    let others = others.into_iter().map(|command| condition(1, SeccompCmpOp::Ne, command));
    let nobody = condition(2, SeccompCmpOp::Eq, 0)?;
    let urgent = condition(2, SeccompCmpOp::Eq, libc::SIGURG as u64)?;
    Ok(vec![
        SeccompRule::new(others.collect::<Result<_, _>>()?)?,
        SeccompRule::new(vec![is(libc::F_SETOWN)?, nobody])?,
        SeccompRule::new(vec![is(F_SETSIG)?, urgent])?,
    ])
}

/// Returns a rule that matches if the bits of `mask` in an argument equal those of `value`.
fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompRule, BackendError> {
    let masked = SeccompCmpOp::MaskedEq(mask);
    SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Qword, masked, value)?])
}

/// Returns a rule for each value that an argument may have.
fn one_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    let rule = |value: &u64| SeccompRule::new(vec![condition(argument, SeccompCmpOp::Eq, *value)?]);
    values.iter().map(rule).collect()
}

/// Returns a condition for an argument of four bytes.
fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

impl fmt::Display for Seccomp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filtered(count) => write!(f, "{count} system calls allowed by seccomp"),
            Self::Refused(why) => write!(f, "system calls not filtered: {why}"),
        }
    }
}

/// Commands of fcntl(2) that the libc crate lacks.
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;

/// The bits of a socket's type without its flags (`SOCK_TYPE_MASK` of linux/net.h).
const SOCKET_TYPE: u64 = 0xf;

/// The prctl(2) command for the auxiliary vector, since Linux 6.4; libc does not name it.
const PR_GET_AUXV: u64 = 0x4155_5856;

/// The ioctl(2) requests of the server: clones, flags of case-insensitive folders, and the queues
/// and urgent bytes of sockets.
const REQUESTS: [u64; 8] = [
    0x4004_9409, // FICLONE
    0x4020_940D, // FICLONERANGE
    libc::FS_IOC_GETFLAGS,
    libc::FIONBIO,
    libc::FIONREAD,
    libc::TIOCOUTQ, // also SIOCOUTQ
    0x894B,         // SIOCOUTQNSD
    0x8905,         // SIOCATMARK
];

/// Calls that are allowed with any arguments.
const ALLOWED: &[i64] = &[
    // Files and folders beneath descriptors; Landlock restricts which ones.
    libc::SYS_chdir,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_flock,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pread64,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
    451, // cachestat, which libc does not name on all architectures
    // Open pipes and sockets.
    libc::SYS_accept4,
    libc::SYS_bind, // netlink; Landlock refuses TCP
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_pipe2,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendfile,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    libc::SYS_splice,
    libc::SYS_tee,
    // Waiting.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_restart_syscall,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // Its own threads, memory and signals.
    libc::SYS_brk,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getrlimit,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_ioprio_set,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mremap,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_setpriority,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_umask,
    libc::SYS_uname,
    // Older calls that glibc uses on these architectures.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];
