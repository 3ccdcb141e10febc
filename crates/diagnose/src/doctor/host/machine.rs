//! The kernel, and what this process may use of it besides moving bytes.

use std::fs;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::system::uname;
use underpass_engine::errno;

use crate::probe;

use crate::doctor::finding::Finding;

/// Facts about the host.
#[derive(Clone, Debug)]
pub(crate) struct HostInfo {
    /// Its name and release, and the processor's architecture.
    pub(crate) kernel: String,
    /// Whether paths can be kept beneath a folder.
    pub(crate) openat2: Result<(), Errno>,
    /// The version of Landlock.
    pub(crate) landlock: Result<u32, Errno>,
    /// Whether a ring can be created, and the value of `kernel.io_uring_disabled`.
    pub(crate) io_uring: (Result<(), Errno>, Option<String>),
    /// Whether the target is a peer.
    pub(crate) is_stream: bool,
}

impl HostInfo {
    /// Gathers all facts.
    pub(crate) fn gather(is_stream: bool) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
        Self {
            kernel: format!("Linux {} {}", release(), std::env::consts::ARCH),
            openat2: openat2(CWD, ".", flags, Mode::empty(), resolve).map(drop),
            landlock: probe::landlock(),
            io_uring: (probe::io_uring(), disabled.map(|text| text.trim().to_owned())),
            is_stream,
        }
    }
}

/// Returns the release of the kernel.
pub(crate) fn release() -> String {
    // Files come first: rustix assumes that uname(2) succeeds, and a filter may refuse it.
    match fs::read_to_string("/proc/sys/kernel/osrelease") {
        Ok(release) => release.trim().to_owned(),
        Err(_) => uname().release().to_string_lossy().into_owned(),
    }
}

/// Returns the findings for these facts.
pub(crate) fn findings(info: &HostInfo) -> Vec<Finding> {
    let kernel = Finding::best("kernel")
        .finding(info.kernel.clone())
        .consequence("everything here was tried; nothing is concluded from the version");
    vec![kernel, beneath(info), landlock(info), io_uring(info)]
}

fn beneath(info: &HostInfo) -> Finding {
    let name = "openat2";
    let refused =
        |errno| format!("the kernel cannot keep paths beneath a folder ({})", named(errno));
    match (info.openat2, info.is_stream) {
        (Ok(()), _) => Finding::best(name)
            .finding("the kernel can keep paths beneath a folder")
            .consequence("no request to serve can leave the served folder"),
        (Err(errno), true) => Finding::closed(name)
            .finding(refused(errno))
            .consequence("serve cannot open any file")
            .remedy("run Linux 5.6 or newer, and let filters (seccomp) allow openat2(2)"),
        (Err(errno), false) => Finding::unneeded(name)
            .finding(refused(errno))
            .consequence("only serve and archives need it"),
    }
}

fn landlock(info: &HostInfo) -> Finding {
    let name = "landlock";
    match (info.landlock, info.is_stream) {
        (Ok(version), _) if version >= WHOLE => Finding::best(name)
            .finding(format!("version {version}"))
            .consequence("serve confines itself to its folders, and makes no connections"),
        (Ok(version), _) => Finding::limited(name)
            .finding(format!("version {version}"))
            .consequence("serve confines itself to its folders, but not completely")
            .remedy("run Linux 6.12 or newer"),
        (Err(errno), true) => Finding::limited(name)
            .finding(format!("not available ({})", named(errno)))
            .consequence("serve is not confined")
            .remedy(match errno {
                Errno::OPNOTSUPP => "switch it on: lsm=landlock,... on the kernel's command line",
                _ => "run a kernel with CONFIG_SECURITY_LANDLOCK=y, and let filters allow it",
            }),
        (Err(errno), false) => Finding::unneeded(name)
            .finding(format!("not available ({})", named(errno)))
            .consequence("only serve uses it"),
    }
}

fn io_uring(info: &HostInfo) -> Finding {
    let (made, disabled) = &info.io_uring;
    let disabled = match disabled {
        Some(value) => format!("kernel.io_uring_disabled is {value}"),
        None => "kernel.io_uring_disabled cannot be read".to_owned(),
    };
    let finding = match made {
        Ok(()) => format!("allowed: a ring was made ({disabled})"),
        Err(errno) => format!("not allowed: {} ({disabled})", named(*errno)),
    };
    Finding::unneeded("io_uring")
        .finding(finding)
        .consequence("underpass does not use it: it has no sendfile, and its splice is slower")
}

fn named(errno: Errno) -> String {
    errno::name(errno).into_owned()
}

/// The Landlock version from which on everything that serve uses is supported.
const WHOLE: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::{count_closed, text};

    #[test]
    fn kernel_findings_match_the_snapshots() {
        let whole = HostInfo {
            kernel: "Linux 6.18.0 x86_64".to_owned(),
            openat2: Ok(()),
            landlock: Ok(7),
            io_uring: (Ok(()), Some("0".to_owned())),
            is_stream: true,
        };
        let filtered = HostInfo {
            openat2: Err(Errno::PERM),
            landlock: Err(Errno::NOSYS),
            io_uring: (Err(Errno::PERM), None),
            ..whole.clone()
        };
        let copying = HostInfo { is_stream: false, ..filtered.clone() };
        let older = HostInfo { landlock: Ok(3), ..whole.clone() };
        let mut rendered = String::new();
        for (info, closed) in [(whole, 0), (filtered, 1), (copying, 0), (older, 0)] {
            let found = findings(&info);
            assert_eq!(count_closed(&found), closed, "{found:?}");
            rendered += &text(&found);
        }
        assert_eq!(rendered, include_str!("../snapshots/machine.txt"));
    }
}
