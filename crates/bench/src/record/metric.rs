//! The metrics of samples: one entry for each, from which tables, charts and comparisons are
//! made. Those of a single scenario are in its file.

use super::{Counted, Load, NamedCall, Record, Role, Sample, Served, Side, Unit};

/// A value that is measured in each sample, or computed from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    /// Its name in file names and anchors.
    pub(crate) name: &'static str,
    /// Its name for people.
    pub(crate) title: &'static str,
    /// Its name above a column.
    pub(crate) short: &'static str,
    /// The side that it is measured on; `None` for both together.
    pub(crate) whose: Option<SampleSide>,
    pub(crate) unit: Unit,
    /// Which direction is better; `None` if neither is.
    pub(crate) preference: Option<Preference>,
    pub(crate) rank: Rank,
    pub(crate) of: fn(&Record, &Sample) -> Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleSide {
    /// The side that is varied.
    Measured,
    /// The other one.
    Peer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preference {
    Less,
    More,
}

/// Where a metric is shown: also wherever those of a higher rank are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Table,
    Chart,
    /// As bars on the terminal, and when two records are compared.
    Main,
    /// In the first sentence of a page.
    Finding,
}

/// Writes a metric in a few lines: its name, its title, the head of its column, unit and rank, what
/// marks it, and the value of a sample, or the kind of served samples that has it with the value.
/// The lower value is the better one unless a mark says more.
macro_rules! metric {
    (
        $name:literal: $title:literal, $short:literal, $unit:ident, $rank:ident $(, $mark:ident)*;
        $served:pat => $value:expr
    ) => {
        $crate::record::metric!($name: $title, $short, $unit, $rank $(, $mark)*;
            |_, sample| match sample.served? {
                $served => Some($value),
                _ => None,
            })
    };
    (
        $name:literal: $title:literal, $short:literal, $unit:ident, $rank:ident $(, $mark:ident)*;
        $of:expr
    ) => {
        $crate::record::Metric {
            name: $name,
            title: $title,
            short: $short,
            whose: None,
            unit: $crate::record::Unit::$unit,
            preference: Some($crate::record::Preference::Less),
            rank: $crate::record::Rank::$rank,
            of: $of,
        }
        $(.$mark())*
    };
}
pub(crate) use metric;

impl Metric {
    pub(crate) const fn measured(self) -> Self {
        Self { whose: Some(SampleSide::Measured), ..self }
    }

    pub(crate) const fn peer(self) -> Self {
        Self { whose: Some(SampleSide::Peer), ..self }
    }

    pub(crate) const fn more(self) -> Self {
        Self { preference: Some(Preference::More), ..self }
    }

    /// Marks the metric as neither better high nor low.
    pub(crate) const fn neutral(self) -> Self {
        Self { preference: None, ..self }
    }

    /// Returns the value of a sample; none if it has none.
    pub(crate) fn value(&self, record: &Record, sample: &Sample) -> Option<f64> {
        (self.of)(record, sample).filter(|value| value.is_finite())
    }

    /// Returns the full title: `Processor time of the sender for each GiB`.
    pub(crate) fn heading(&self, record: &Record) -> String {
        let role = self.whose.and_then(|whose| role(record, whose));
        let whose = role.map(|role| format!(" of the {role}")).unwrap_or_default();
        format!("{}{whose}{}", self.title, self.share(record))
    }

    pub(crate) fn column(&self, record: &Record) -> String {
        let peer = self.whose.filter(|whose| *whose == SampleSide::Peer);
        let role = peer.and_then(|peer| role(record, peer)).map(|role| format!("{role} "));
        format!("{}{}{}", role.unwrap_or_default(), self.short, self.share(record))
    }

    /// Returns what one value is for, if not for a whole sample.
    fn share(&self, record: &Record) -> String {
        let unit = self.served_unit(record);
        unit.map_or_else(String::new, |unit| format!(" for each {}", unit.label()))
    }

    fn served_unit(&self, record: &Record) -> Option<ServedUnit> {
        use ServedUnit::{Gib, Response};
        let served = record.samples.iter().find_map(|sample| sample.served.as_ref());
        match (served, self.name) {
            _ if record.arguments.responses.is_some() => Some(Response),
            (Some(Served::Requests(_)), "calls" | "cpu" | "switches") => Some(Response),
            (Some(Served::Scale { .. }), "switches") => Some(Response),
            (Some(Served::Scale { .. } | Served::Fairness { .. }), "calls") => Some(Gib),
            (Some(Served::Scale { .. }) | None, "cpu" | "peer-cpu") => Some(Gib),
            _ => None,
        }
    }

    pub(crate) const fn advice(&self) -> &'static str {
        match self.preference {
            Some(Preference::Less) => "less is better",
            Some(Preference::More) => "more is better",
            None => "",
        }
    }
}

impl Record {
    /// Returns the metrics of at least this rank of which a sample has a value other than 0.
    pub(crate) fn metrics(&self, rank: Rank) -> Vec<&'static Metric> {
        let has = |metric: &&Metric| {
            let mut values = self.samples.iter().filter_map(|sample| metric.value(self, sample));
            metric.rank >= rank && values.any(|value| value != 0.0)
        };
        self.about.metrics.iter().copied().filter(has).collect()
    }
}

fn role(record: &Record, whose: SampleSide) -> Option<&'static str> {
    let side = |sample: &Sample| match whose {
        SampleSide::Measured => Some(sample.measured.role.name()),
        SampleSide::Peer => Some(sample.peer.as_ref()?.role.name()),
    };
    record.samples.iter().find_map(side)
}

/// The time of a scenario without a fixed duration.
pub(crate) const TIME: Metric = metric! { "time": "Time", "time", Seconds, Finding;
    |record, sample| sample.served.is_none().then(|| record.each(sample, sample.wall_s))
};

/// Processor time of the side that is varied.
pub(crate) const CPU: Metric = metric! { "cpu": "Processor time", "CPU", Seconds, Finding, measured;
    |record, sample| cost(record, sample, Some(&sample.measured))
};

pub(crate) const PEER_CPU: Metric = metric! { "peer-cpu": "Processor time", "CPU", Seconds, Chart, peer;
    |record, sample| cost(record, sample, sample.peer.as_ref())
};

pub(crate) const SPEED: Metric = metric! { "speed": "Bytes in a second", "B/s", Bytes, Table, more;
    |record, sample| Some(record.cells[sample.cell].size as f64 / sample.wall_s)
};

/// System calls that moved bytes; of a server, all of them.
pub(crate) const CALLS: Metric =
    metric! { "calls": "System calls", "calls", Count, Main, measured; calls };

pub(crate) const SWITCHES: Metric = metric! { "switches": "Context switches", "switches", Count, Chart, measured;
    |record, sample| {
        let parts = match &sample.served {
            None => responses(record),
            Some(Served::Requests(load) | Served::Scale { load, .. }) => load.responses as f64,
            Some(_) => return None,
        };
        Some(switches(record.about.by_thread, &sample.measured)? / parts)
    }
};

pub(crate) const FAULTS: Metric = metric! { "faults": "Page faults", "faults", Count, Table, measured;
    |_, sample| {
        let thread = sample.measured.thread.as_ref()?;
        Some(thread.minor_faults.saturating_add(thread.major_faults) as f64)
    }
};

/// Bytes that were copied between the kernel and the program.
pub(crate) const USER_SPACE: Metric = metric! { "user-space": "Bytes through user space", "user space",
    Bytes, Chart, measured; |record, sample| {
        let thread = sample.measured.thread.as_ref()?;
        Some(thread.user_space_bytes as f64 / responses(record))
    }
};

/// Responses, counted by their bytes.
pub(crate) const RATE: Metric = metric! { "rate": "Responses per second", "per second", Count, Finding, more;
    |record, sample| Some(answered(record, sample)? / requested(sample)?.elapsed_s)
};

pub(crate) const THROUGHPUT: Metric = metric! { "throughput": "Bytes in a second", "B/s", Bytes, Finding, more;
    |_, sample| requested(sample).map(|load| load.bytes as f64 / load.elapsed_s)
};

pub(crate) const P50: Metric = metric! { "p50": "Latency of half of the requests", "p50", Seconds, Chart;
    |_, sample| Some(requested(sample)?.latency?.p50_s)
};

pub(crate) const P99: Metric = metric! { "p99": "Latency of 99 of 100 requests", "p99", Seconds, Main;
    |_, sample| Some(requested(sample)?.latency?.p99_s)
};

pub(crate) const LONGEST: Metric = metric! { "max": "The longest latency", "max", Seconds, Table;
    |_, sample| Some(requested(sample)?.latency?.max_s)
};

pub(crate) const SERVER_BUSY: Metric = metric! { "server-busy": "Part of its core that the server used",
    "server busy", Percent, Table, neutral;
    |_, sample| Some(sample.measured.process?.cpu_s / sample.measured.elapsed_s)
};

/// Processor time of server, load and interrupts: on loopback a server can leave part of its work
/// to the core of its client.
pub(crate) const MACHINE: Metric = metric! {
    "machine-cpu": "Processor time of the whole machine for each response", "machine CPU", Seconds, Table;
    |record, sample| Some(requested(sample)?.machine_s? / answered(record, sample)?)
};

pub(crate) const MACHINE_PER_GIB: Metric = Metric {
    title: "Processor time of the whole machine for each GiB",
    of: |_, sample| {
        requested(sample).and_then(|load| Some(load.machine_s? / load.bytes as f64 * GIB))
    },
    ..MACHINE
};

pub(crate) const LOAD_BUSY: Metric = metric! { "load-busy": "Part of its core that the load used",
    "load busy", Percent, Table, neutral; |_, sample| {
        let load = sample.peer.as_ref()?;
        Some(load.thread.as_ref()?.cpu_s() / load.elapsed_s)
    }
};

fn calls(record: &Record, sample: &Sample) -> Option<f64> {
    let by_receipt = sample.measured.thread.as_ref().filter(|thread| thread.calls > 0);
    if let Some(thread) = by_receipt {
        return Some(thread.calls as f64 / responses(record));
    }
    let counted = counted(record, sample.cell, sample.measured.role)?;
    if sample.served.is_none() {
        return Some(sum(counted, moves_bytes) as f64);
    }
    Some(sum(counted, |_| true) as f64 / served_amount(record, counted).unwrap_or(1.0))
}

/// Returns how many responses arrived, those that were under way at an end by their bytes.
fn answered(record: &Record, sample: &Sample) -> Option<f64> {
    Some(requested(sample)?.bytes as f64 / record.cells[sample.cell].size as f64)
}

/// Returns the processor time for each GiB, or for each response.
fn cost(record: &Record, sample: &Sample, side: Option<&Side>) -> Option<f64> {
    let cpu_s = side.map_or(0.0, |side| record.cpu_s(side));
    match (&sample.served, record.arguments.responses) {
        (Some(Served::Scale { load, .. }), _) => Some(cpu_s / load.bytes as f64 * GIB),
        (Some(Served::Requests(_)), _) | (None, Some(_)) => Some(record.each(sample, cpu_s)),
        (Some(_), _) => None,
        (None, None) => Some(cpu_s / record.cells[sample.cell].size as f64 * GIB),
    }
}

/// Returns the context switches of the thread that moved the bytes, or of the whole process in
/// scenarios with other programs, whose threads are unknown.
fn switches(by_thread: bool, side: &Side) -> Option<f64> {
    let (voluntary, involuntary) = if by_thread {
        let thread = side.thread.as_ref()?;
        (thread.voluntary_switches, thread.involuntary_switches)
    } else {
        let process = side.process?;
        (process.voluntary_switches, process.involuntary_switches)
    };
    Some(voluntary.saturating_add(involuntary) as f64)
}

/// Returns the number of responses of one sample; 1 for a transfer.
fn responses(record: &Record) -> f64 {
    f64::from(record.arguments.responses.unwrap_or(1))
}

/// Returns the load of a server's clients, if requests were measured.
fn requested(sample: &Sample) -> Option<Load> {
    match sample.served? {
        Served::Requests(load) | Served::Scale { load, .. } => Some(load),
        _ => None,
    }
}

/// Returns the calls of a process in the counted pass; `None` if they were not counted.
fn counted(record: &Record, cell: usize, role: Role) -> Option<&Counted> {
    record.counted.iter().find(|one| (one.cell, one.role) == (cell, role))
}

fn sum(counted: &Counted, is_meant: impl Fn(&NamedCall) -> bool) -> u64 {
    let meant = counted.calls.iter().filter(|call| is_meant(call));
    meant.fold(0, |sum, call| sum.saturating_add(call.calls))
}

/// Returns how many responses, or GiB, arrived while the calls of a server were counted; `None` if
/// there were none, or if something else was measured.
pub(crate) fn served_amount(record: &Record, counted: &Counted) -> Option<f64> {
    let bytes = counted.served_bytes.filter(|bytes| *bytes > 0)?;
    let each = match served_in(record) {
        ServedUnit::Gib => GIB,
        ServedUnit::Response => record.cells.get(counted.cell)?.size as f64,
    };
    Some(bytes as f64 / each)
}

/// Returns the unit in which [`served_amount`] counts. Responses of different sizes can only be
/// compared by their bytes.
pub(crate) fn served_in(record: &Record) -> ServedUnit {
    let is_by_bytes = |sample: &Sample| {
        matches!(sample.served, Some(Served::Scale { .. } | Served::Fairness { .. }))
    };
    if record.samples.iter().any(is_by_bytes) { ServedUnit::Gib } else { ServedUnit::Response }
}

/// The unit of what was served, for which calls and times are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServedUnit {
    Response,
    Gib,
}

impl ServedUnit {
    /// Returns its name after `each`.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Response => "response",
            Self::Gib => "GiB",
        }
    }
}

fn moves_bytes(call: &NamedCall) -> bool {
    MOVERS.split(' ').any(|name| call.name == name)
}

/// System calls that move bytes.
const MOVERS: &str = "copy_file_range pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readv \
    recvfrom recvmsg sendfile sendfile64 sendmsg sendto splice write writev";

pub(crate) const GIB: f64 = (1 << 30) as f64;
