//! The receipts that `underpass` prints with `--json`, as far as the bench reads them.

use serde::{Deserialize, Serialize};

/// What a transfer of the measured program did.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(crate) struct Receipt {
    /// Payload bytes delivered.
    pub(crate) bytes: u64,
    /// Seconds from the first step to the end.
    pub(crate) elapsed_s: f64,
    /// What each mechanism moved.
    pub(crate) mechanisms: Vec<MechanismReceipt>,
    /// What the kernel declined.
    pub(crate) declined: Vec<DeclineReceipt>,
    /// Payload bytes copied between user and kernel space.
    pub(crate) user_space_bytes: u64,
    /// System calls that moved bytes or tried to.
    pub(crate) calls: u64,
    /// Processor time of the moving thread.
    pub(crate) cpu_s: CpuReceipt,
    /// Context switches of the moving thread.
    pub(crate) context_switches: SwitchesReceipt,
    /// Page faults of the moving thread.
    pub(crate) page_faults: FaultsReceipt,
    /// The congestion control of the connection; absent without TCP.
    pub(crate) congestion: Option<String>,
}

/// What one mechanism moved.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct MechanismReceipt {
    /// Its name.
    pub(crate) name: String,
    /// Bytes it delivered.
    pub(crate) bytes: u64,
    /// System calls it made.
    pub(crate) calls: u64,
}

/// One refusal of the kernel.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct DeclineReceipt {
    /// The mechanism that was declined.
    pub(crate) mechanism: String,
    /// The kernel's answer by its symbol.
    pub(crate) errno: String,
}

/// Processor seconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
pub(crate) struct CpuReceipt {
    /// In user space.
    pub(crate) user: f64,
    /// In the kernel.
    pub(crate) system: f64,
}

/// Context switches.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
pub(crate) struct SwitchesReceipt {
    /// Because the thread waited.
    pub(crate) voluntary: u64,
    /// Because its time was up.
    pub(crate) involuntary: u64,
}

/// Page faults.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
pub(crate) struct FaultsReceipt {
    /// Served from memory.
    pub(crate) minor: u64,
    /// Served from a disk.
    pub(crate) major: u64,
}
