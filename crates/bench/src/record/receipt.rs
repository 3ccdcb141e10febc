//! The receipts that `underpass` prints with `--json`, as far as the bench reads them.
//! docs/mechanisms.md describes all of their fields under "Receipts".

use serde::{Deserialize, Serialize};

/// The receipt of a transfer by the measured program.
#[derive(Debug, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) bytes: u64,
    pub(crate) elapsed_s: f64,
    pub(crate) mechanisms: Vec<MechanismReceipt>,
    pub(crate) declined: Vec<DeclineReceipt>,
    pub(crate) user_space_bytes: u64,
    pub(crate) calls: u64,
    pub(crate) cpu_s: CpuReceipt,
    pub(crate) context_switches: SwitchesReceipt,
    pub(crate) page_faults: FaultsReceipt,
    pub(crate) congestion: Option<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct MechanismReceipt {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) calls: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DeclineReceipt {
    pub(crate) mechanism: String,
    pub(crate) errno: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CpuReceipt {
    pub(crate) user: f64,
    pub(crate) system: f64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SwitchesReceipt {
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FaultsReceipt {
    pub(crate) minor: u64,
    pub(crate) major: u64,
}
