//! The receipt of one transfer, and the fields that all receipts share.

use serde::{Deserialize, Serialize};
use underpass_engine::{Declined, EndKind, Mechanism, Report, Tally, Usage};
use underpass_transport::tls::{EncryptedBy, SessionFacts};

/// The receipt of a transfer, as one JSON object.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Receipt {
    /// The reason why the transfer failed; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The kind of the source; absent where there can be several kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<EndKind>,
    /// The kind of the sink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<EndKind>,
    /// Payload bytes delivered to the sink.
    pub bytes: u64,
    /// Seconds from the first step to the end; for `send` until the peer had everything.
    pub elapsed_s: f64,
    /// The bytes that each mechanism moved.
    pub mechanisms: Vec<MechanismReceipt>,
    /// The mechanisms that the kernel declined, and where.
    pub declined: Vec<DeclineReceipt>,
    /// Payload bytes copied between user and kernel space, in either direction.
    pub user_space_bytes: u64,
    /// System calls that moved bytes or tried to, including those of declined mechanisms.
    pub calls: u64,
    /// The number of waits for an end that was not ready.
    pub waits: u64,
    /// Processor time of the moving thread.
    pub cpu_s: CpuReceipt,
    /// Context switches of the moving thread.
    pub context_switches: SwitchesReceipt,
    /// Page faults of the moving thread.
    pub page_faults: FaultsReceipt,
    /// The integrity level that actually held.
    pub integrity: String,
    /// The congestion control of the connection; absent without TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// The TLS properties of the connection; absent without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsReceipt>,
    /// Additional facts about an upload.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<UploadReceipt>,
}

/// The facts about TLS.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TlsReceipt {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: String,
    /// The cipher suite by its name in RFC 8446 or RFC 5289.
    pub suite: String,
    /// Whether it resumed an earlier session.
    pub resumed: bool,
    /// Where records were encrypted: `kernel` or `user_space`.
    #[serde(rename = "where")]
    pub place: String,
    /// The reason why the kernel did not encrypt; absent if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The facts about an upload.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct UploadReceipt {
    /// The file that was sent.
    pub file: String,
    /// The resulting URL.
    pub url: String,
    /// The status of the server's response; absent without a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Whether nothing was sent because the target exists and must not be replaced.
    #[serde(default)]
    pub was_there: bool,
    /// Whether the response shows that the server did not check this condition.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_replaced: bool,
    /// Bytes that the server had before.
    pub resumed_at: u64,
    /// Whether an interrupted upload could be resumed.
    pub resumable: bool,
    /// The digest sent for the server to check; absent if none was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<UploadDigest>,
}

/// The digest that was sent with a file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct UploadDigest {
    /// The algorithm.
    pub algorithm: String,
    /// The digest, in hexadecimal.
    pub value: String,
    /// Bytes that were read into user space for it.
    pub read_bytes: u64,
}

/// The bytes that one mechanism moved.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct MechanismReceipt {
    /// The mechanism; `None` for one that only other programs use, and in a parsed receipt.
    #[serde(skip)]
    pub mechanism: Option<Mechanism>,
    /// Its name.
    pub name: String,
    /// Bytes it delivered.
    pub bytes: u64,
    /// System calls it made.
    pub calls: u64,
}

/// One decline of a mechanism or integrity level.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DeclineReceipt {
    /// The mechanism or level; `None` for one that only other programs use, and in a parsed
    /// receipt.
    #[serde(skip)]
    pub what: Option<Declined>,
    /// The mechanism, or integrity level, that was declined.
    pub mechanism: String,
    /// The kernel's answer by its symbol; `user_space_tls`, `unsuitable_ends` or `excluded` if no
    /// call was made.
    pub errno: String,
    /// Bytes delivered when it was first declined.
    pub at: u64,
    /// The number of times it was declined with this answer.
    pub times: u64,
    /// The meaning of the answer, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Processor seconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct CpuReceipt {
    /// Seconds in user space (`ru_utime` of getrusage(2)).
    pub user: f64,
    /// Seconds in the kernel (`ru_stime`).
    pub system: f64,
}

/// Context switches.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct SwitchesReceipt {
    /// The number of switches because the thread waited (`ru_nvcsw` of getrusage(2)).
    pub voluntary: u64,
    /// The number of switches because its time slice was used up (`ru_nivcsw`).
    pub involuntary: u64,
}

/// Page faults.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct FaultsReceipt {
    /// The number of faults served from memory (`ru_minflt` of getrusage(2)).
    pub minor: u64,
    /// The number of faults served from a disk (`ru_majflt`).
    pub major: u64,
}

impl From<&Report> for Receipt {
    fn from(report: &Report) -> Self {
        let receipt = Self {
            error: None,
            from: None,
            to: None,
            bytes: report.bytes(),
            elapsed_s: report.elapsed().as_secs_f64(),
            mechanisms: report
                .mechanisms()
                .map(|(mechanism, Tally { bytes, calls })| {
                    let name = mechanism.to_string();
                    MechanismReceipt { mechanism: Some(mechanism), name, bytes, calls }
                })
                .collect(),
            declined: report
                .declined()
                .iter()
                .map(|decline| DeclineReceipt {
                    what: Some(decline.what),
                    mechanism: decline.what.name().to_owned(),
                    errno: decline.reason.name().into_owned(),
                    at: decline.at,
                    times: decline.times,
                    reason: decline.meaning().map(ToOwned::to_owned),
                })
                .collect(),
            user_space_bytes: report.user_space_bytes(),
            calls: report.calls(),
            waits: report.waits(),
            cpu_s: CpuReceipt::default(),
            context_switches: SwitchesReceipt::default(),
            page_faults: FaultsReceipt::default(),
            integrity: report.integrity().to_string(),
            congestion: None,
            tls: None,
            upload: None,
        };
        receipt.spent(report.usage().unwrap_or_default())
    }
}

impl Receipt {
    /// Replaces the resource usage.
    pub(crate) fn spent(self, usage: Usage) -> Self {
        let (cpu_s, page_faults) = (usage.into(), usage.into());
        Self { cpu_s, context_switches: usage.into(), page_faults, ..self }
    }

    /// Adds the kinds of both ends.
    #[must_use]
    pub fn between(self, from: EndKind, to: EndKind) -> Self {
        Self { from: Some(from), to: Some(to), ..self }
    }
}

impl From<Usage> for CpuReceipt {
    fn from(usage: Usage) -> Self {
        Self { user: usage.user.as_secs_f64(), system: usage.system.as_secs_f64() }
    }
}

impl From<Usage> for SwitchesReceipt {
    fn from(usage: Usage) -> Self {
        Self { voluntary: usage.voluntary_switches, involuntary: usage.involuntary_switches }
    }
}

impl From<Usage> for FaultsReceipt {
    fn from(usage: Usage) -> Self {
        Self { minor: usage.minor_faults, major: usage.major_faults }
    }
}

impl From<&SessionFacts> for TlsReceipt {
    fn from(facts: &SessionFacts) -> Self {
        let (place, why) = match facts.encrypted_by {
            EncryptedBy::Kernel => ("kernel", None),
            EncryptedBy::UserSpace(why) => ("user_space", Some(why.name().to_owned())),
        };
        Self {
            version: facts.version.to_owned(),
            suite: facts.suite.to_string(),
            resumed: facts.is_resumed,
            place: place.to_owned(),
            why,
        }
    }
}
