//! The receipt of another program. Its field names are stable, and those that it shares with the
//! receipt of a transfer have the same meaning.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde::Serialize;
use underpass_engine::{EndKind, Mechanism, Usage, errno};
use underpass_receipt::{
    CpuReceipt, DeclineReceipt, FaultsReceipt, MechanismReceipt, SwitchesReceipt,
};

use super::calls::ByteDirection;
use super::counts::CallCount;
use super::ledger::{Count, EndCount, HiddenCalls, Ledger, MemoryKind, RefusalCount};
use super::tracer::{Ending, Tracer};

/// The receipt of a program, as one JSON object.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramReceipt {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its exit code; absent if a signal has ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// The number of the signal that ended it; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Bytes delivered: written from memory, or moved inside the kernel.
    pub bytes: u64,
    /// Seconds from its first instruction to the end of the last process.
    pub elapsed_s: f64,
    /// The bytes that each mechanism delivered.
    pub mechanisms: Vec<MechanismReceipt>,
    /// The mechanisms that the kernel declined, so that the program had to use another one.
    pub declined: Vec<RefusalReceipt>,
    /// Calls that failed for another reason.
    pub failed: Vec<RefusalReceipt>,
    /// Bytes copied between user and kernel space, in either direction.
    pub user_space_bytes: u64,
    /// System calls that moved bytes or tried to.
    pub calls: u64,
    /// The number of those that would have had to wait, and did not (`EAGAIN`).
    pub waits: u64,
    /// Processor time of all processes.
    pub cpu_s: CpuReceipt,
    /// Context switches of all processes, without those caused by tracing.
    pub context_switches: SwitchesReceipt,
    /// Page faults of all processes.
    pub page_faults: FaultsReceipt,
    /// The number of processes.
    pub processes: u64,
    /// The number of threads of all processes.
    pub threads: u64,
    /// The bytes copied between the kernel and memory, by kind of descriptor.
    pub crossings: Vec<CrossingReceipt>,
    /// The bytes moved inside the kernel, by kind of descriptor.
    pub moves: Vec<MoveReceipt>,
    /// The ends with the most bytes, those with the most first.
    pub ends: Vec<EndReceipt>,
    /// The number of ends left out.
    pub ends_left_out: usize,
    /// The system calls that were watched, by name.
    pub system_calls: Vec<CallReceipt>,
    /// Bytes of files, programs and libraries apart, that were mapped into memory.
    pub mapped_bytes: u64,
    /// The number of these files.
    pub mapped_files: u64,
    /// Work that cannot be observed.
    pub hidden: HiddenCalls,
    /// The number of times that tracing stopped a thread.
    pub stops: u64,
    /// The number of all system calls; absent if not every call was traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_calls: Option<u64>,
    /// All calls by name, those that took longest first; absent if not every call was traced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls_by_name: Vec<CallCount>,
}

/// One kind of error.
#[derive(Clone, Debug, Serialize)]
pub struct RefusalReceipt {
    /// The error.
    #[serde(flatten)]
    pub refusal: DeclineReceipt,
    /// The source; `other` stands for memory, too.
    pub from: EndKind,
    /// The sink.
    pub to: EndKind,
}

/// Bytes of one kind that crossed between the kernel and memory.
#[derive(Clone, Debug, Serialize)]
pub struct CrossingReceipt {
    /// `in` or `out` of memory.
    pub direction: &'static str,
    /// The kind of the source or sink.
    pub kind: EndKind,
    /// `read_write`; `mmap` if the memory was a part of a file; `msg_zerocopy` or `vmsplice` if
    /// the kernel took the pages without copying.
    pub mechanism: &'static str,
    /// Its bytes and calls.
    #[serde(flatten)]
    pub count: Count,
}

/// Bytes of one kind that were moved inside the kernel.
#[derive(Clone, Debug, Serialize)]
pub struct MoveReceipt {
    /// The mechanism.
    pub mechanism: &'static str,
    /// The source; for splice(2), the one before the pipe.
    pub from: EndKind,
    /// The sink.
    pub to: EndKind,
    /// Its bytes and calls.
    #[serde(flatten)]
    pub count: Count,
}

/// The traffic of one end.
#[derive(Clone, Debug, Serialize)]
pub struct EndReceipt {
    /// Its path, protocol, or another name.
    pub name: String,
    /// The kind of the end.
    pub kind: EndKind,
    /// Its bytes and calls, by direction.
    #[serde(flatten)]
    pub count: EndCount,
}

/// The calls of one system call.
#[derive(Clone, Debug, Serialize)]
pub struct CallReceipt {
    /// Its name.
    pub name: &'static str,
    /// Its bytes and calls.
    #[serde(flatten)]
    pub count: Count,
}

impl ProgramReceipt {
    /// Creates the receipt of a program that has ended.
    pub(super) fn new(
        words: &[OsString],
        ending: Ending,
        elapsed_s: f64,
        tracer: Tracer<'_>,
    ) -> Self {
        let (ledger, mut usage) = (&tracer.observer.ledger, Usage::of_ended_children());
        // Each stop causes one switch.
        usage.voluntary_switches = usage.voluntary_switches.saturating_sub(tracer.stops);
        let (exit_code, signal) = match ending {
            Ending::Code(code) => (Some(code), None),
            Ending::Signal(signal) => (None, Some(signal)),
        };
        let (ends, ends_left_out) = ends(ledger);
        let (mapped_bytes, mapped_files) = ledger.mapped_data();
        let all_calls = tracer.every.then(|| tracer.counts.by_name());
        Self {
            command: words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            exit_code,
            signal,
            bytes: ledger.delivered(),
            elapsed_s,
            mechanisms: mechanisms(ledger),
            declined: refusals(ledger, RefusalCount::is_decline),
            failed: refusals(ledger, |refusal| !refusal.is_decline()),
            user_space_bytes: user_space_bytes(ledger),
            calls: ledger.by_call.values().map(|count| count.calls).sum(),
            waits: ledger.waits,
            cpu_s: usage.into(),
            context_switches: usage.into(),
            page_faults: usage.into(),
            processes: tracer.process_count,
            threads: tracer.thread_count,
            crossings: crossings(ledger),
            moves: moves(ledger),
            ends,
            ends_left_out,
            system_calls: ledger
                .by_call
                .iter()
                .map(|(name, count)| CallReceipt { name, count: *count })
                .collect(),
            mapped_bytes,
            mapped_files,
            hidden: ledger.hidden,
            stops: tracer.stops,
            all_calls: all_calls.as_ref().map(|counts| counts.iter().map(|it| it.calls).sum()),
            calls_by_name: all_calls.unwrap_or_default(),
        }
    }

    /// Returns the exit code of the program as a shell has it: 128 and the number of the signal
    /// that ended it, if one did.
    #[must_use]
    pub fn shell_exit_code(&self) -> u8 {
        let signal = self.signal.and_then(|signal| u8::try_from(signal).ok());
        self.exit_code.unwrap_or_else(|| 128_u8.wrapping_add(signal.unwrap_or(0)))
    }
}

/// Returns the bytes that were copied, not referenced.
fn user_space_bytes(ledger: &Ledger) -> u64 {
    let copied =
        ledger.crossings.iter().filter(|((.., origin), _)| *origin != MemoryKind::Referenced);
    copied.map(|(_, count)| count.bytes).sum()
}

/// Returns the name of the mechanism by which bytes crossed.
fn mechanism(origin: MemoryKind, kind: EndKind) -> &'static str {
    match (origin, kind) {
        (MemoryKind::Buffer, _) => Mechanism::ReadWrite.name(),
        (MemoryKind::Mapping, _) => Mechanism::Mmap.name(),
        (MemoryKind::Referenced, EndKind::Pipe) => "vmsplice",
        (MemoryKind::Referenced, _) => "msg_zerocopy",
    }
}

/// Returns what each mechanism delivered: for read_write the bytes written, with the number of
/// reads and writes.
fn mechanisms(ledger: &Ledger) -> Vec<MechanismReceipt> {
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for ((name, ..), count) in &ledger.moves {
        let sum = sums.entry(name).or_default();
        *sum = (sum.0 + count.bytes, sum.1 + count.calls);
    }
    for ((direction, kind, origin), count) in &ledger.crossings {
        let sum = sums.entry(mechanism(*origin, *kind)).or_default();
        let is_delivered = *direction == ByteDirection::Out || *origin == MemoryKind::Mapping;
        *sum = (sum.0 + if is_delivered { count.bytes } else { 0 }, sum.1 + count.calls);
    }
    let moved = sums.into_iter().filter(|(_, (bytes, _))| *bytes > 0);
    moved
        .map(|(name, (bytes, calls))| MechanismReceipt {
            mechanism: None,
            name: name.to_owned(),
            bytes,
            calls,
        })
        .collect()
}

fn refusals(ledger: &Ledger, which: impl Fn(&RefusalCount) -> bool) -> Vec<RefusalReceipt> {
    let refusals = ledger.refusals.iter().filter(|refusal| which(refusal));
    refusals
        .map(|refusal| {
            let symbol = refusal.symbol();
            RefusalReceipt {
                refusal: DeclineReceipt {
                    what: None,
                    mechanism: refusal.what.to_owned(),
                    at: refusal.at,
                    times: refusal.times,
                    reason: errno::errno_help(refusal.what, &symbol).map(ToOwned::to_owned),
                    errno: symbol,
                },
                from: refusal.from,
                to: refusal.to,
            }
        })
        .collect()
}

fn crossings(ledger: &Ledger) -> Vec<CrossingReceipt> {
    let mut crossings: Vec<_> = ledger
        .crossings
        .iter()
        .map(|((direction, kind, origin), count)| CrossingReceipt {
            direction: match direction {
                ByteDirection::In => "in",
                ByteDirection::Out => "out",
            },
            kind: *kind,
            mechanism: mechanism(*origin, *kind),
            count: *count,
        })
        .collect();
    // Incoming bytes come before outgoing ones; the most first.
    crossings.sort_by_key(|each| (each.direction, std::cmp::Reverse(each.count.bytes)));
    crossings
}

fn moves(ledger: &Ledger) -> Vec<MoveReceipt> {
    let moved = ledger.moves.iter();
    let mut moves: Vec<_> = moved
        .map(|((mechanism, from, to), count)| MoveReceipt {
            mechanism,
            from: *from,
            to: *to,
            count: *count,
        })
        .collect();
    moves.sort_by_key(|each| std::cmp::Reverse(each.count.bytes));
    moves
}

/// Returns the ends with the most bytes, and the number of further ends.
fn ends(ledger: &Ledger) -> (Vec<EndReceipt>, usize) {
    let sum = |count: &EndCount| {
        let EndCount { read, written, moved_from, moved_to, .. } = count;
        read.bytes + written.bytes + moved_from.bytes + moved_to.bytes
    };
    let mut ends: Vec<_> = ledger.ends.iter().filter(|(_, count)| sum(count) > 0).collect();
    ends.sort_by(|(name, count), (other, others)| {
        sum(others).cmp(&sum(count)).then_with(|| name.cmp(other))
    });
    let left_out = ends.len().saturating_sub(MAX_ENDS);
    let ends = ends.into_iter().take(MAX_ENDS).map(|((kind, name), count)| EndReceipt {
        name: name.to_string(),
        kind: *kind,
        count: *count,
    });
    (ends.collect(), left_out)
}

/// The maximum number of listed ends.
const MAX_ENDS: usize = 100;
