//! Receipts: what a transfer did, as values whose JSON field names are stable.
//!
//! The crates that move bytes report what they did as their own types. This crate turns those
//! reports into receipts, for all programs that print or return them. It prints nothing.
//!
//! ```
//! use std::fs::File;
//! use underpass_engine::{Chain, Sink, Transfer};
//! use underpass_receipt::Receipt;
//!
//! let sink = File::options().write(true).open("/dev/null")?;
//! let chain = Chain::<File>::new().bytes(b"hello".to_vec());
//! let report = Transfer::new(chain, Sink::of(&sink)?).run()?;
//! assert_eq!(Receipt::from(&report).bytes, 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod copy;
mod download;
mod transfer;
mod tree;
mod upload;

pub use copy::{CopyReceipt, SystemReceipt};
pub use download::{DigestReceipt, GetReceipt, shown};
pub use transfer::{
    CpuReceipt, DeclineReceipt, FaultsReceipt, MechanismReceipt, Receipt, SwitchesReceipt,
    TlsReceipt, UploadDigest, UploadReceipt,
};
pub use tree::TreeReceipt;
pub use underpass_engine::EndKind;
