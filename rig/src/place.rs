//! The facts about the machine in which the checks run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// Where TLS is expected to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// In the kernel, whose module is loaded.
    Kernel,
    /// In user space, because the module is not loaded.
    UserSpace,
}

impl Where {
    /// Returns the name in the output.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::UserSpace => "user-space",
        }
    }

    /// Returns the name in receipts.
    pub(crate) const fn receipt(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::UserSpace => "user_space",
        }
    }
}

/// The machine.
#[derive(Debug)]
pub(crate) struct Place {
    /// Where TLS is expected to run.
    pub(crate) wanted: Where,
    /// A folder in memory for the files of the checks.
    pub(crate) folder: PathBuf,
    /// Whether this kernel can change the keys of a connection.
    pub(crate) can_change_keys: bool,
    /// The kernel's counters before the first check.
    pub(crate) from: TlsCounts,
}

impl Place {
    /// Examines the machine; fails if it is not the expected one.
    pub(crate) fn new(wanted: Where) -> Result<Self> {
        let protocols = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_ulp")?;
        let has_module = protocols.split_whitespace().any(|name| name == "tls");
        if has_module != (wanted == Where::Kernel) {
            return Err(format!("the kernel offers above TCP: {}", protocols.trim()).into());
        }
        let folder = Path::new("/data").join(wanted.name());
        fs::create_dir_all(folder.join("served"))?;
        let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        let mut numbers = release.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
        let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Ok(Self { wanted, folder, can_change_keys: version >= (6, 14), from: TlsCounts::now() })
    }

    /// Returns the folder that servers serve.
    pub(crate) fn served(&self) -> PathBuf {
        self.folder.join("served")
    }

    /// Returns whether the kernel has to run TLS.
    pub(crate) fn in_kernel(&self) -> bool {
        self.wanted == Where::Kernel
    }
}

/// The TLS counters of the kernel, by their names in `/proc/net/tls_stat`.
#[derive(Debug)]
pub(crate) struct TlsCounts(BTreeMap<String, u64>);

impl TlsCounts {
    /// Reads the counters. All are zero if the file does not exist.
    pub(crate) fn now() -> Self {
        let text = fs::read_to_string("/proc/net/tls_stat").unwrap_or_default();
        let counts = text.lines().filter_map(|line| {
            let (name, value) = line.split_once(char::is_whitespace)?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        });
        Self(counts.collect())
    }

    /// Returns by how much a counter has grown since.
    pub(crate) fn growth(&self, name: &str) -> u64 {
        let now = Self::now();
        let value = |counts: &Self| counts.0.get(name).copied().unwrap_or(0);
        value(&now).saturating_sub(value(self))
    }

    /// Fails unless a counter has grown by exactly this much.
    pub(crate) fn grown(&self, name: &str, by: u64) -> Result<()> {
        let growth = self.growth(name);
        if growth == by {
            return Ok(());
        }
        Err(format!("{name} of /proc/net/tls_stat grew by {growth}, not by {by}").into())
    }

    /// Returns all counters that have grown since, as text.
    pub(crate) fn grown_by(&self) -> String {
        let grown = Self::now().0.into_keys().map(|name| (self.growth(&name), name));
        let grown = grown.filter(|(growth, _)| *growth > 0);
        grown.map(|(growth, name)| format!("{name} {growth}")).collect::<Vec<_>>().join(", ")
    }
}
