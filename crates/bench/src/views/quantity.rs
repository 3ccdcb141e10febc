//! What of a sample can be drawn and compared: one entry for each quantity, whatever the scenario.
//! A record has those of which its samples have a value.

use super::unit::Unit;
use crate::counted::{Call, Counted};
use crate::hostile::Hostile;
use crate::record::{Process, Record, Role, Sample, Scenario, Side, Thread};
use crate::serve::{Latency, Load, Memory, Served};
use crate::statistics::Metric;

/// Something of which samples have a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    /// Its name in the names of files and in anchors.
    pub(crate) name: &'static str,
    /// Its name for people.
    pub(crate) title: &'static str,
    /// Whose it is; none if it is of the whole.
    pub(crate) whose: Option<Whose>,
    /// In what it is told.
    pub(crate) unit: Unit,
    /// Which direction is the better one; none if neither is.
    pub(crate) aim: Option<Aim>,
    of: fn(&Record, &Sample) -> Option<f64>,
}

/// The side of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The side whose way is varied.
    Measured,
    /// The other one.
    Peer,
}

/// Which values are the better ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// The small ones.
    Less,
    /// The large ones.
    More,
}

impl Quantity {
    /// The value of a sample; none if it has none.
    pub(crate) fn of(&self, record: &Record, sample: &Sample) -> Option<f64> {
        (self.of)(record, sample).filter(|value| value.is_finite())
    }

    /// What it is, of whom, for how much: `Processor time of the sender for each GiB`.
    pub(crate) fn heading(&self, record: &Record) -> String {
        let role = self.whose.and_then(|whose| role(record, whose));
        let whose = role.map(|role| format!(" of the {role}")).unwrap_or_default();
        format!("{}{whose}{}", self.title, self.share(record))
    }

    /// What one value is for, if not for a whole sample.
    fn share(&self, record: &Record) -> &'static str {
        let is_served = record.samples.iter().any(|sample| sample.served.is_some());
        match self.name {
            _ if record.arguments.responses.is_some() => " for each response",
            _ if record.scenario == Scenario::Hostile => "",
            "calls" | "cpu" | "peer-cpu" if is_by_bytes(record.scenario) => " for each GiB",
            "calls" if record.scenario == Scenario::ServeIdle => "",
            "calls" | "cpu" | "peer-cpu" | "switches" if is_served => " for each response",
            "cpu" | "peer-cpu" => " for each GiB",
            _ => "",
        }
    }

    /// Which values are the better ones, for people.
    pub(crate) const fn advice(&self) -> &'static str {
        match self.aim {
            Some(Aim::Less) => "less is better",
            Some(Aim::More) => "more is better",
            None => "",
        }
    }
}

/// The quantities of a record: those that at least one sample has, and not as 0 alone.
pub(crate) fn quantities(record: &Record) -> Vec<&'static Quantity> {
    let has = |quantity: &&Quantity| {
        let mut values = record.samples.iter().filter_map(|sample| quantity.of(record, sample));
        values.any(|value| value != 0.0)
    };
    ALL.iter().filter(has).collect()
}

/// Who the sides of the samples are.
pub(crate) fn role(record: &Record, whose: Whose) -> Option<&'static str> {
    let sides = record.samples.iter().filter_map(|sample| match whose {
        Whose::Measured => Some(&sample.measured),
        Whose::Peer => sample.peer.as_ref(),
    });
    sides.map(|side| name(side.role)).next()
}

/// A role for people.
pub(crate) const fn name(role: Role) -> &'static str {
    match role {
        Role::Client => "client",
        Role::Copier => "copier",
        Role::Receiver => "receiver",
        Role::Sender => "sender",
        Role::Server => "server",
    }
}

/// Every quantity, in the order in which they are drawn.
const ALL: &[Quantity] = &[
    Quantity {
        name: "time",
        title: "Time",
        whose: None,
        unit: Unit::Seconds,
        aim: Some(Aim::Less),
        of: |record, sample| {
            // Whoever asks a server does so for as long as was said.
            sample.served.is_none().then(|| record.value(Metric::Wall, sample))
        },
    },
    Quantity {
        name: "rate",
        title: "Responses in a second",
        whose: None,
        unit: Unit::Count,
        aim: Some(Aim::More),
        of: |record, sample| {
            // Of small files and very large ones responses tell nothing together.
            let is_scale = record.scenario == Scenario::Scale;
            let load = requested(sample).filter(|_| !is_scale)?;
            Some(load.bytes as f64 / record.cells[sample.cell].size as f64 / load.elapsed_s)
        },
    },
    Quantity {
        name: "throughput",
        title: "Bytes in a second",
        whose: None,
        unit: Unit::Bytes,
        aim: Some(Aim::More),
        of: |record, sample| {
            let is_scale = record.scenario == Scenario::Scale;
            let load = requested(sample).filter(|_| is_scale)?;
            Some(load.bytes as f64 / load.elapsed_s)
        },
    },
    Quantity {
        name: "cpu",
        title: "Processor time",
        whose: Some(Whose::Measured),
        unit: Unit::Seconds,
        aim: Some(Aim::Less),
        of: |record, sample| cost(record, sample, Metric::Cpu),
    },
    Quantity {
        name: "peer-cpu",
        title: "Processor time",
        whose: Some(Whose::Peer),
        unit: Unit::Seconds,
        aim: Some(Aim::Less),
        of: |record, sample| cost(record, sample, Metric::PeerCpu),
    },
    Quantity {
        name: "calls",
        title: "System calls",
        whose: Some(Whose::Measured),
        unit: Unit::Count,
        aim: Some(Aim::Less),
        of: |record, sample| {
            let by_receipt = sample.measured.thread.as_ref().filter(|thread| thread.calls > 0);
            if let Some(thread) = by_receipt {
                return Some(thread.calls as f64 / responses(record));
            }
            let counted = counted(record, sample.cell, sample.measured.role)?;
            if sample.served.is_none() {
                return Some(sum(counted, |call| Motion::of(&call.name).is_some()) as f64);
            }
            Some(sum(counted, |_| true) as f64 / served(record, counted).unwrap_or(1.0))
        },
    },
    Quantity {
        name: "switches",
        title: "Context switches",
        whose: Some(Whose::Measured),
        unit: Unit::Count,
        aim: Some(Aim::Less),
        of: |record, sample| match &sample.served {
            None => Some(switches(record.scenario, &sample.measured)? / responses(record)),
            Some(Served::Requests(load) | Served::Scale { load, .. }) => {
                Some(switches(record.scenario, &sample.measured)? / load.responses as f64)
            }
            Some(_) => None,
        },
    },
    Quantity {
        name: "user-space",
        title: "Bytes through user space",
        whose: Some(Whose::Measured),
        unit: Unit::Bytes,
        aim: Some(Aim::Less),
        of: |record, sample| {
            let thread = sample.measured.thread.as_ref()?;
            Some(thread.user_space_bytes as f64 / responses(record))
        },
    },
    Quantity {
        name: "p50",
        title: "Latency of half of the requests",
        whose: None,
        unit: Unit::Seconds,
        aim: Some(Aim::Less),
        of: |_, sample| Some(requested(sample)?.latency?.p50_s),
    },
    Quantity {
        name: "p99",
        title: "Latency of 99 of 100 requests",
        whose: None,
        unit: Unit::Seconds,
        aim: Some(Aim::Less),
        of: |_, sample| Some(requested(sample)?.latency?.p99_s),
    },
    Quantity {
        name: "alone",
        title: "Latency of 99 of 100 requests, alone",
        whose: None,
        unit: Unit::Seconds,
        aim: Some(Aim::Less),
        of: |_, sample| Some(windows(sample)?.0.latency?.p99_s),
    },
    Quantity {
        name: "beside",
        title: "Latency of 99 of 100 requests, beside cold files",
        whose: None,
        unit: Unit::Seconds,
        aim: Some(Aim::Less),
        of: |_, sample| Some(windows(sample)?.1.latency?.p99_s),
    },
    Quantity {
        name: "slowdown",
        title: "Latency beside cold files, as a multiple of that alone",
        whose: None,
        unit: Unit::Times,
        aim: Some(Aim::Less),
        of: |_, sample| {
            let (alone, beside, _) = windows(sample)?;
            Some(beside.latency?.p99_s / alone.latency?.p99_s)
        },
    },
    Quantity {
        name: "streams",
        title: "Bytes of cold files in a second",
        whose: None,
        unit: Unit::Bytes,
        aim: Some(Aim::More),
        of: |_, sample| {
            let (_, beside, streamed) = windows(sample)?;
            Some(streamed as f64 / beside.elapsed_s)
        },
    },
    Quantity {
        name: "memory-start",
        title: "Resident memory after one request",
        whose: Some(Whose::Measured),
        unit: Unit::Bytes,
        aim: Some(Aim::Less),
        of: |_, sample| Some(crowd(sample)?.0[0].resident_bytes as f64),
    },
    Quantity {
        name: "memory-busy",
        title: "Resident memory under load",
        whose: Some(Whose::Measured),
        unit: Unit::Bytes,
        aim: Some(Aim::Less),
        of: |_, sample| match sample.served? {
            Served::Scale { busy, .. } => Some(busy.resident_bytes as f64),
            _ => None,
        },
    },
    Quantity {
        name: "beside",
        title: "99 of 100 requests of a good client beside bad ones",
        whose: None,
        unit: Unit::Seconds,
        aim: Some(Aim::Less),
        of: |_, sample| Some(hostile(sample)?.beside.latency?.p99_s),
    },
    Quantity {
        name: "memory-hostile",
        title: "The most resident memory beside bad clients",
        whose: Some(Whose::Measured),
        unit: Unit::Bytes,
        aim: Some(Aim::Less),
        of: |_, sample| Some(hostile(sample)?.peak_bytes as f64),
    },
    Quantity {
        name: "memory-idle",
        title: "Resident memory with idle connections",
        whose: Some(Whose::Measured),
        unit: Unit::Bytes,
        aim: Some(Aim::Less),
        of: |_, sample| Some(crowd(sample)?.0[1].resident_bytes as f64),
    },
    Quantity {
        name: "memory-slow",
        title: "Resident memory with slow downloads besides",
        whose: Some(Whose::Measured),
        unit: Unit::Bytes,
        aim: Some(Aim::Less),
        of: |_, sample| Some(crowd(sample)?.0[2].resident_bytes as f64),
    },
    Quantity {
        name: "answers",
        title: "Time to answer one more connection",
        whose: None,
        unit: Unit::Seconds,
        aim: Some(Aim::Less),
        of: |_, sample| Some(crowd(sample)?.1.p50_s),
    },
];

/// Processor time for each GiB that was moved, or for each response.
fn cost(record: &Record, sample: &Sample, metric: Metric) -> Option<f64> {
    match (&sample.served, record.arguments.responses) {
        (Some(Served::Scale { load, .. }), _) => {
            let seconds = metric.of(record.scenario, sample);
            Some(seconds / load.bytes as f64 * GIB)
        }
        (Some(Served::Requests(_)), _) | (None, Some(_)) => Some(record.value(metric, sample)),
        (Some(_), _) => None,
        (None, None) => {
            let size = record.cells[sample.cell].size as f64;
            Some(record.value(metric, sample) / size * GIB)
        }
    }
}

/// Context switches of a side: of the thread that moved the bytes, but of the whole process where a
/// peer of which nothing else is known is beside it.
fn switches(scenario: Scenario, side: &Side) -> Option<f64> {
    let of_thread = |thread: &Thread| thread.voluntary_switches + thread.involuntary_switches;
    let of_process = |process: &Process| process.voluntary_switches + process.involuntary_switches;
    let count = match scenario {
        Scenario::Chain | Scenario::Net => side.thread.as_ref().map(of_thread),
        _ => side.process.as_ref().map(of_process),
    };
    count.map(|count| count as f64)
}

/// Responses of one sample; 1 if it is of a transfer.
fn responses(record: &Record) -> f64 {
    f64::from(record.arguments.responses.unwrap_or(1))
}

/// What was counted of a process in the pass of its own; none if nothing was.
pub(crate) fn counted(record: &Record, cell: usize, role: Role) -> Option<&Counted> {
    record.counted.iter().find(|one| (one.cell, one.role) == (cell, role))
}

/// How many calls of this kind there were.
pub(crate) fn sum(counted: &Counted, is_meant: impl Fn(&Call) -> bool) -> u64 {
    let meant = counted.calls.iter().filter(|call| is_meant(call));
    meant.fold(0, |sum, call| sum.saturating_add(call.calls))
}

/// How many responses, or GiB, arrived while the calls of a server were counted; none if there were
/// none, or if that is not what was measured.
pub(crate) fn served(record: &Record, counted: &Counted) -> Option<f64> {
    let bytes = counted.served_bytes.filter(|bytes| *bytes > 0)?;
    let each = match is_by_bytes(record.scenario) {
        true => GIB,
        false => record.cells.get(counted.cell)?.size as f64,
    };
    Some(bytes as f64 / each)
}

/// In what [`served`] counts, and charts and tables share.
pub(crate) const fn served_in(scenario: Scenario) -> &'static str {
    if is_by_bytes(scenario) { "GiB" } else { "response" }
}

/// Whether responses of different sizes are measured together, so that only their bytes can be
/// compared.
const fn is_by_bytes(scenario: Scenario) -> bool {
    matches!(scenario, Scenario::Scale | Scenario::ServeFairness)
}

/// Which way a system call moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Motion {
    /// Into the program.
    In,
    /// Inside the kernel.
    Inside,
    /// Out of the program.
    Out,
}

impl Motion {
    /// By the name of the call; none if it moves nothing.
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            "read" | "pread64" | "readv" | "preadv" | "preadv2" | "recvfrom" | "recvmsg" => {
                Some(Self::In)
            }
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "sendto" | "sendmsg" => {
                Some(Self::Out)
            }
            "sendfile" | "sendfile64" | "splice" | "copy_file_range" => Some(Self::Inside),
            _ => None,
        }
    }
}

fn requested(sample: &Sample) -> Option<Load> {
    match sample.served? {
        Served::Requests(load) | Served::Scale { load, .. } => Some(load),
        _ => None,
    }
}

/// Both windows of a sample of `serve_fairness`, and the bytes that were streamed.
fn windows(sample: &Sample) -> Option<(Load, Load, u64)> {
    match sample.served? {
        Served::Fairness { alone, beside, streamed_bytes } => Some((alone, beside, streamed_bytes)),
        _ => None,
    }
}

/// A sample of `hostile`.
fn hostile(sample: &Sample) -> Option<Hostile> {
    match sample.served? {
        Served::Hostile(hostile) => Some(hostile),
        _ => None,
    }
}

/// The memory at each stage of a sample of `serve_idle`, and how soon it answered then.
fn crowd(sample: &Sample) -> Option<([Memory; 3], Latency)> {
    match sample.served? {
        Served::Idle { start, idle, slow, answers } => Some(([start, idle, slow], answers)),
        _ => None,
    }
}

/// Bytes of a GiB.
pub(crate) const GIB: f64 = (1 << 30) as f64;
