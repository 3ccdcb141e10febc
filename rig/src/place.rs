//! What the checks know of the machine they run in.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// Where TLS is expected to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// In the kernel, whose module is loaded.
    Kernel,
    /// In user space, for want of the module.
    UserSpace,
}

impl Where {
    /// As it is printed.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::UserSpace => "user-space",
        }
    }

    /// As receipts say it.
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
    /// Where TLS is expected to be done.
    pub(crate) wanted: Where,
    /// A folder in memory for the files of the checks.
    pub(crate) folder: PathBuf,
    /// Whether this kernel can change the keys of a connection.
    pub(crate) can_change_keys: bool,
    /// What the kernel had counted before the first check.
    pub(crate) from: TlsCounts,
}

impl Place {
    /// Looks at the machine; an error says that it is not the one that was meant.
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

    /// The folder that servers serve.
    pub(crate) fn served(&self) -> PathBuf {
        self.folder.join("served")
    }

    /// Whether the kernel is to do TLS.
    pub(crate) fn in_kernel(&self) -> bool {
        self.wanted == Where::Kernel
    }
}

/// What the kernel has counted of its TLS, by the names of `/proc/net/tls_stat`.
#[derive(Debug)]
pub(crate) struct TlsCounts(BTreeMap<String, u64>);

impl TlsCounts {
    /// Reads the counters. All are zero where there is no such file.
    pub(crate) fn now() -> Self {
        let text = fs::read_to_string("/proc/net/tls_stat").unwrap_or_default();
        let counts = text.lines().filter_map(|line| {
            let (name, value) = line.split_once(char::is_whitespace)?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        });
        Self(counts.collect())
    }

    /// By how much a counter has grown since.
    pub(crate) fn growth(&self, name: &str) -> u64 {
        let now = Self::now();
        let value = |counts: &Self| counts.0.get(name).copied().unwrap_or(0);
        value(&now).saturating_sub(value(self))
    }

    /// Fails unless a counter has grown by exactly that.
    pub(crate) fn grown(&self, name: &str, by: u64) -> Result<()> {
        let growth = self.growth(name);
        if growth == by {
            return Ok(());
        }
        Err(format!("{name} of /proc/net/tls_stat grew by {growth}, not by {by}").into())
    }

    /// All counters that have grown since, as text.
    pub(crate) fn grown_by(&self) -> String {
        let grown = Self::now().0.into_keys().map(|name| (self.growth(&name), name));
        let grown = grown.filter(|(growth, _)| *growth > 0);
        grown.map(|(growth, name)| format!("{name} {growth}")).collect::<Vec<_>>().join(", ")
    }
}
