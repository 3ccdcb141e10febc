//! The contents of a record, as values: headings, tables, commands, warnings. The terminal,
//! Markdown and the page show the same.

use crate::record::{
    CPU, CommandLine, Contender, Counted, Metric, NamedCall, PEER_CPU, Rank, Record, Sample,
    Summary, TIME, Unit, served_amount, served_in, three_digits,
};

/// A table: headings, and lines of cells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// A title, or how to read the table.
    pub(crate) title: String,
    pub(crate) headings: Vec<String>,
    /// Cells, each of which may have a second, smaller line.
    pub(crate) lines: Vec<Vec<[String; 2]>>,
    /// The number of first columns that hold words, not figures.
    pub(crate) words: usize,
}

impl Table {
    /// Adds a line of cells without a second line.
    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        self.lines.push(cells.into_iter().map(plain).collect());
    }
}

/// Creates a cell without a second line.
fn plain(text: String) -> [String; 2] {
    [text, String::new()]
}

pub(crate) fn heading(record: &Record) -> String {
    format!("underpass bench {}", record.about.command)
}

/// Describes source and target of the bytes.
pub(crate) fn subject(record: &Record) -> String {
    let cache = if record.arguments.cold { "cold" } else { "warm" };
    format!("{}, page cache {cache}", (record.about.subject)(record))
}

/// Returns the machine and the other programs.
pub(crate) fn machine(record: &Record) -> String {
    let environment = &record.environment;
    let mut parts = vec![
        format!("Linux {} on {}", environment.kernel, environment.machine),
        environment.cpu.clone(),
        format!("{} cores", environment.cores),
        Unit::Bytes.show(environment.memory_bytes as f64),
    ];
    if let Some(used) = &environment.congestion {
        parts.push(format!("{used} (the system's default: {})", environment.congestion_default));
    }
    let programs = environment.cp.iter().chain(&environment.nginx).chain(&environment.programs);
    parts.extend(programs.cloned());
    parts.join(", ")
}

/// Returns how to read the figures.
pub(crate) fn reading(record: &Record) -> String {
    let rounds = |count: u32| format!("{count} {}", if count == 1 { "round" } else { "rounds" });
    format!(
        "Medians of {} after {} of warm-up, with minimum and maximum below; x is the \
         median of the ratios to {} in the same round.",
        rounds(record.arguments.runs),
        rounds(record.arguments.warmup),
        baseline(record),
    )
}

pub(crate) fn baseline(record: &Record) -> String {
    let label = record.baseline.to_string();
    match record.baseline.contender {
        Contender::Only(_) => format!("traditional {label}"),
        _ => label,
    }
}

/// Returns where and how it was measured: names with values.
pub(crate) fn conditions(record: &Record) -> Vec<(&'static str, String)> {
    let loads = record.environment.load_average.map(|load| format!("{load:.2}"));
    vec![
        ("Begun", record.started.clone()),
        ("Machine", machine(record)),
        ("Load before", loads.join(", ")),
        ("Program", format!("underpass {}", record.underpass)),
        ("Compared with", baseline(record)),
        ("Schema of the record", record.schema.to_string()),
    ]
}

/// The line for a record without warnings.
pub(crate) const NO_CAVEATS: &str = "No caveats.";

/// Returns what was run, a line for each contender.
pub(crate) fn commands(record: &Record) -> Vec<String> {
    let of_clients = record.arguments.transfers.iter().flat_map(|transfers| &transfers.commands);
    let of_copies = record.copies.iter().flat_map(|copies| &copies.commands);
    let line = |command: &CommandLine| {
        let words = command.client.iter().chain(&command.command).cloned().collect::<String>();
        let against = command.server.iter().map(|server| format!(", against {server}"));
        format!("{}: {words}{}", command.contender.label(), against.collect::<String>())
    };
    of_clients.chain(of_copies).map(line).collect()
}

pub(crate) fn tables(record: &Record) -> Vec<Table> {
    let sizes = record.sizes();
    let is_matrix = record.has_steps() && sizes.len() > 1;
    let largest = sizes.iter().copied().max().filter(|_| is_matrix);
    let mut tables = Vec::new();
    if is_matrix {
        tables.extend(times(record).into_iter().map(|metric| by_size(record, metric)));
    }
    tables.push(in_full(record, largest));
    tables.extend(ratios_to_others(record));
    tables.extend(calls(record));
    tables
}

/// Returns the metrics that are times: of everything, and of the processor.
fn times(record: &Record) -> Vec<&'static Metric> {
    let mut metrics = record.metrics(Rank::Main);
    metrics.retain(|metric| [TIME.name, CPU.name].contains(&metric.name));
    metrics
}

/// Returns a metric, a line for each size, a column for each contender at its best step.
fn by_size(record: &Record, metric: &Metric) -> Table {
    let contenders = record.contenders();
    let mut headings = vec!["size".to_owned(), baseline(record)];
    headings.extend(contenders.iter().map(|contender| contender.label().to_owned()));
    let line = |size: u64| {
        let mut line = vec![plain(record.about.size_label(size))];
        let baseline = record.cell(size, record.baseline);
        let best = contenders.iter().map(|contender| record.best(size, *contender));
        let cells = [baseline].into_iter().chain(best);
        line.extend(cells.map(|cell| match cell {
            None => plain(dash()),
            Some(index) => {
                let variant = record.cells[index].variant;
                let [value, range] = value(record, index, metric);
                let has_step = variant != record.baseline && variant.contender.has_steps();
                let step = if has_step { format!(" @{}", variant.step) } else { String::new() };
                [value, format!("{range}{step}")]
            }
        }));
        line
    };
    let title = format!("{}; @ is the step that took the least time", metric.heading(record));
    let lines = record.sizes().into_iter().map(line).collect();
    Table { title, headings, lines, words: 1 }
}

/// Returns every cell, or those of one size, with all metrics.
fn in_full(record: &Record, only: Option<u64>) -> Table {
    let metrics = record.metrics(Rank::Table);
    let has_points = record.cells.iter().any(|cell| cell.connections.is_some());
    let has_loads = record.cells.iter().any(|cell| cell.load.is_some());
    let mut headings = Vec::new();
    headings.extend(has_points.then(|| "connections".to_owned()));
    headings.extend(has_loads.then(|| "load".to_owned()));
    headings.extend((!has_loads).then(|| "size".to_owned()));
    headings.push(String::new());
    let words = headings.len();
    headings.extend(metrics.iter().map(|metric| metric.column(record)));
    let mut lines = Vec::new();
    for (index, cell) in record.cells.iter().enumerate() {
        if only.is_some_and(|size| cell.size != size) {
            continue;
        }
        let mut line = Vec::new();
        line.extend(cell.connections.map(|count| plain(count.to_string())));
        line.extend(cell.load.map(|load| plain(load.name())));
        line.extend((!has_loads).then(|| plain(record.about.size_label(cell.size))));
        line.push(plain(cell.variant.to_string()));
        match &cell.declined {
            Some(errno) => line.extend([plain("declined".to_owned()), plain(errno.clone())]),
            None => line.extend(metrics.iter().map(|metric| value(record, index, metric))),
        }
        lines.push(line);
    }
    Table { title: (record.about.caption)(record), headings, lines, words }
}

/// Returns the ratio of our cost to each other contender's, in scenarios that move whole files.
fn ratios_to_others(record: &Record) -> Option<Table> {
    if record.arguments.transfers.is_none() && record.copies.is_none() {
        return None;
    }
    let times = times(record);
    let mut headings = ["size", "", "to"].map(str::to_owned).to_vec();
    headings.extend(times.iter().map(|metric| metric.short.to_owned()));
    let cells = || record.cells.iter().enumerate();
    let mut lines = Vec::new();
    for (ours, cell) in cells().filter(|(_, cell)| cell.variant.contender.is_ours()) {
        let is_other = |contender: Contender| !contender.is_ours();
        let others = cells().filter(|(_, other)| other.size == cell.size);
        for (other, of) in others.filter(|(_, other)| is_other(other.variant.contender)) {
            let size = record.about.size_label(cell.size);
            let mut line =
                [size, cell.variant.to_string(), of.variant.to_string()].map(plain).to_vec();
            line.extend(times.iter().map(|metric| {
                let value = |sample: &Sample| metric.value(record, sample);
                match record.ratio_between(ours, other, value) {
                    Some(ratio) => [Unit::Times.show(ratio.median), range(ratio, Unit::Times)],
                    None => plain(dash()),
                }
            }));
            lines.push(line);
        }
    }
    let title = "Ratio of ours to each other contender in the same round".to_owned();
    (!lines.is_empty()).then_some(Table { title, headings, lines, words: 3 })
}

/// Returns the median with its ratio to the baseline, and the range below.
pub(crate) fn value(record: &Record, index: usize, metric: &Metric) -> [String; 2] {
    let value = |sample: &Sample| metric.value(record, sample);
    let Some(summary) = record.summary_by(index, value) else {
        let cell = &record.cells[index];
        return match &cell.declined {
            Some(errno) => ["declined".to_owned(), errno.clone()],
            None => plain(dash()),
        };
    };
    let has_ratio = [TIME.name, CPU.name, PEER_CPU.name].contains(&metric.name)
        || metric.rank >= Rank::Main && metric.unit != Unit::Times;
    let is_baseline = record.cells[index].variant == record.baseline;
    let ratio = record.ratio_by(index, value).filter(|_| has_ratio && !is_baseline);
    let ratio = ratio.map(|ratio| format!(" {}", Unit::Times.show(ratio.median)));
    let median = metric.unit.show(summary.median);
    [format!("{median}{}", ratio.unwrap_or_default()), range(summary, metric.unit)]
}

/// Returns minimum and maximum, unless they are the same; a common unit is written once.
fn range(summary: Summary, unit: Unit) -> String {
    if summary.min == summary.max {
        return String::new();
    }
    let (min, max) = (unit.show(summary.min), unit.show(summary.max));
    match (min.split_once(' '), max.split_once(' ')) {
        (Some((number, one)), Some((_, other))) if one == other => format!("{number}–{max}"),
        _ => format!("{min}–{max}"),
    }
}

pub(crate) fn dash() -> String {
    "–".to_owned()
}

/// The main result of a record: the cost of each contender relative to the baseline.
#[derive(Debug, Default)]
pub(crate) struct Finding {
    /// The size of the finding, and the contender that it is compared with.
    pub(crate) at: String,
    /// Each contender with its ratios.
    pub(crate) contenders: Vec<(String, String)>,
}

/// Returns the finding at the largest size; none if there is nothing to compare.
pub(crate) fn finding(record: &Record) -> Option<Finding> {
    let size = record.sizes().into_iter().max()?;
    let metrics = record.metrics(Rank::Finding);
    let ratios = |contender| {
        let cell = record.best(size, contender)?;
        let ratio = |metric: &&Metric| {
            let ratio = record.ratio_by(cell, |sample| metric.value(record, sample))?;
            Some(format!("{} {}", Unit::Times.show(ratio.median), metric.title.to_lowercase()))
        };
        let ratios: Vec<_> = metrics.iter().filter_map(ratio).collect();
        (!ratios.is_empty()).then(|| (record.cells[cell].variant.to_string(), ratios.join(", ")))
    };
    let contenders: Vec<_> = record.contenders().into_iter().filter_map(ratios).collect();
    let at = format!("At {}, compared with {}", record.about.size_label(size), baseline(record));
    (!contenders.is_empty()).then_some(Finding { at, contenders })
}

/// Returns the calls at the largest size that took longest; `None` if nothing was counted.
pub(crate) fn calls(record: &Record) -> Option<Table> {
    let size = |counted: &&Counted| record.cells.get(counted.cell).map(|cell| cell.size);
    let largest = record.counted.iter().filter_map(|counted| size(&counted)).max()?;
    let shown: Vec<_> = record.counted.iter().filter(|one| size(one) == Some(largest)).collect();
    let has_sides = shown.iter().any(|one| one.role != shown[0].role);
    let mut headings = vec!["program"];
    headings.extend(has_sides.then_some("side"));
    let is_served = shown.iter().any(|one| one.served_bytes.is_some());
    headings.extend(["call", "calls"]);
    let share = format!("each {}", served_in(record).label());
    headings.extend(is_served.then_some(share.as_str()));
    headings.extend(["errors", "ms", "usecs/call", "of the time"]);
    let headings = headings.into_iter().map(str::to_owned).collect();
    let title = "System calls by name, counted in a separate pass, in which tracing slows each \
         of them; those that only wait are left out"
        .to_owned();
    let words = 2 + usize::from(has_sides);
    let mut table = Table { title, headings, lines: Vec::new(), words };
    for counted in shown {
        let calls = longest(counted);
        let whole: f64 = calls.iter().map(|call| call.seconds).sum();
        let is_shown = |call: &&NamedCall| call.seconds >= whole * MIN_SHARE;
        for (index, call) in calls.into_iter().take(MAX_LINES).filter(is_shown).enumerate() {
            let first = |text: String| if index == 0 { text } else { String::new() };
            let mut line = vec![first(record.label(counted.cell))];
            line.extend(has_sides.then(|| first(counted.role.name().to_owned())));
            line.extend([call.name.clone(), call.calls.to_string()]);
            line.extend(is_served.then(|| each(call, served_amount(record, counted))));
            line.extend(figures(call, whole));
            table.push(line);
        }
    }
    Some(table)
}

/// Returns the calls of a process, the longest first, without those that wait for others.
fn longest(counted: &Counted) -> Vec<&NamedCall> {
    let works = |call: &&NamedCall| !WAITS.split(' ').any(|name| call.name == name);
    let mut calls: Vec<_> = counted.calls.iter().filter(works).collect();
    calls.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    calls
}

/// Returns how often a call was made for each response or GiB.
fn each(call: &NamedCall, amount: Option<f64>) -> String {
    amount.map_or_else(dash, |amount| Unit::Count.show(call.calls as f64 / amount))
}

fn figures(call: &NamedCall, whole: f64) -> [String; 4] {
    let each = call.seconds * 1e6 / call.calls.max(1) as f64;
    let share = if whole > 0.0 { call.seconds / whole * 100.0 } else { 0.0 };
    [
        call.errors.to_string(),
        three_digits(call.seconds * 1e3),
        three_digits(each),
        format!("{share:.1} %"),
    ]
}

/// The maximum number of lines per process.
const MAX_LINES: usize = 3;

/// The minimum share of the time that is worth a line.
const MIN_SHARE: f64 = 0.005;

/// System calls that only wait for another process or for time to pass.
const WAITS: &str = "accept accept4 clock_nanosleep epoll_pwait epoll_wait futex nanosleep \
    poll ppoll pselect6 restart_syscall select wait4 waitid";
