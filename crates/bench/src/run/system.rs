//! System settings for the time of a run: the congestion control of the servers' connections, and
//! the limit of open files.

use std::fs::{self, File};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use underpass_engine::socket::{CongestionUnavailable, UNPACED, paces};

use crate::error::{Result, Shortage, UsageError};

/// The system's congestion control, which other programs take as they find it. If this run has
/// changed it, it is put back when dropped. No other run changes it meanwhile.
#[derive(Debug)]
pub(crate) struct SystemCongestion {
    pub(crate) name: String,
    before: Option<String>,
    /// Locked, by several runs if none of them has changed the setting.
    _lock: Option<File>,
}

impl SystemCongestion {
    /// Sets the requested one. `auto` keeps the system's own, unless that paces and another one
    /// may be set, which needs root.
    pub(crate) fn choose(requested: &str) -> Result<Self> {
        let lock = File::open(CONGESTION).ok();
        try_lock(lock.as_ref(), FlockOperation::NonBlockingLockShared)?;
        let before = current();
        let wanted: &[&str] = match requested {
            "auto" if paces(&before) => &UNPACED,
            "auto" => &[],
            requested if requested == before => &[],
            requested => &[requested],
        };
        let may_set = || fs::OpenOptions::new().write(true).open(CONGESTION).is_ok();
        if wanted.iter().any(|name| is_available(name)) && may_set() {
            try_lock(lock.as_ref(), FlockOperation::NonBlockingLockExclusive)?;
        }
        let set = wanted.iter().find(|name| fs::write(CONGESTION, name).is_ok());
        match set {
            Some(name) => Ok(Self { name: (*name).to_owned(), before: Some(before), _lock: lock }),
            None if requested == "auto" || requested == before => {
                Ok(Self { name: before, before: None, _lock: lock })
            }
            None if is_available(requested) => Err(UsageError::CongestionNeedsRoot.into()),
            None => Err(UsageError::from(CongestionUnavailable::new(requested)).into()),
        }
    }

    /// Returns the algorithm that would be set, but leaves the system as it is: for namespaces.
    pub(crate) fn leave(requested: &str) -> Self {
        let name = match requested {
            "auto" if paces(&current()) => UNPACED.first().map(|name| (*name).to_owned()),
            "auto" => None,
            requested => Some(requested.to_owned()),
        };
        Self { name: name.unwrap_or_else(current), before: None, _lock: None }
    }
}

impl Drop for SystemCongestion {
    fn drop(&mut self) {
        // If another program has set another one meanwhile, that stays.
        if let Some(before) = self.before.take().filter(|_| current() == self.name) {
            // Setting it worked before; a failure now cannot be handled here.
            let _ = fs::write(CONGESTION, before);
        }
    }
}

/// Takes the lock of the setting, which another run holds if it has changed it or relies on it.
fn try_lock(file: Option<&File>, operation: FlockOperation) -> Result<()> {
    match file.map(|file| flock(file, operation)) {
        Some(Err(Errno::WOULDBLOCK)) => Err(Shortage::CongestionInUse.into()),
        _ => Ok(()),
    }
}

/// Returns whether this system supports it, which does not mean that this user may set it.
fn is_available(name: &str) -> bool {
    let available = fs::read_to_string(AVAILABLE);
    available.is_ok_and(|names| names.split_whitespace().any(|known| known == name))
}

pub(super) fn current() -> String {
    fs::read_to_string(CONGESTION).unwrap_or_default().trim().to_owned()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Lets this process and those that it starts have this many files open.
pub(crate) fn allow_open_files(needed: u64) -> Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    // Only root can exceed the maximum.
    let maximum = maximum.map(|maximum| maximum.max(needed));
    let raised = Rlimit { current: Some(needed), maximum };
    setrlimit(Resource::Nofile, raised).map_err(|_| Shortage::OpenFiles { needed }.into())
}

/// The setting, of which each network namespace has its own.
pub(super) const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::BenchError;

    #[test]
    fn an_unknown_congestion_control_is_refused_and_nothing_is_set() {
        let before = current();
        let failure = SystemCongestion::choose("none").unwrap_err();
        assert!(matches!(failure, BenchError::Usage(UsageError::CongestionControl(_))));
        assert_eq!(current(), before);
    }

    #[test]
    fn a_setting_that_another_run_relies_on_is_not_changed() {
        let before = current();
        let available = fs::read_to_string(AVAILABLE).unwrap();
        let Some(other) = available.split_whitespace().find(|name| *name != before) else { return };
        let other_run = File::open(CONGESTION).unwrap();
        flock(&other_run, FlockOperation::LockShared).unwrap();
        let failure = SystemCongestion::choose(other).unwrap_err();
        let is_expected = match failure {
            BenchError::Shortage(Shortage::CongestionInUse) => is_root(),
            BenchError::Usage(UsageError::CongestionNeedsRoot) => !is_root(),
            _ => false,
        };
        assert!(is_expected);
        assert_eq!(current(), before);
    }

    #[test]
    fn files_that_may_be_open_already_need_no_limit() {
        allow_open_files(3).unwrap();
        let failure = allow_open_files(u64::MAX - 1).unwrap_err().to_string();
        assert!(failure.contains("open files"), "{failure}");
    }
}
