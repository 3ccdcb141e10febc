//! The tables of the scenarios with servers, drawn from a record alone.

use super::record::{Latency, Load, Memory, Served};
use crate::layout::{Columns, three_digits};
use crate::record::{Record, Sample, Scenario, Side, Thread};
use crate::statistics::{Metric, Summary};
use crate::table::{MICRO, MILLI, dash, range, times};
use crate::way::short_size;

/// What was measured, for the first line.
pub(crate) fn title(record: &Record) -> String {
    let file_system = &record.environment.source_file_system;
    let logs = match record.arguments.serve.is_some_and(|setting| setting.log) {
        true => "with access logs (nginx's with buffer=64k flush=1s)",
        false => "without access logs",
    };
    let scheme = match record.arguments.serve.is_some_and(|setting| setting.tls) {
        true => "HTTPS (TLS 1.3, AES-128-GCM, P-256)",
        false => "HTTP",
    };
    format!("files on {file_system} by {scheme} on loopback, {logs}")
}

/// The tables of the record.
pub(crate) fn render(record: &Record) -> String {
    match record.scenario {
        Scenario::ServeFairness => fairness(record),
        Scenario::Scale => super::scale_table::render(record),
        Scenario::ServeIdle => idle(record),
        _ => requests(record),
    }
}

/// Processor time and number of requests, a line for each server at each size.
fn requests(record: &Record) -> String {
    let mut columns = Columns::new([
        "size",
        "server",
        "CPU us",
        "least-most",
        "x",
        "in a second",
        "least-most",
        "x",
        "p50 us",
        "p99 us",
        "max us",
        "server busy",
        "load busy",
    ]);
    for (index, cell) in record.cells.iter().enumerate() {
        let cpu = record.summary(index, Metric::Cpu);
        let rate = |sample: &Sample| {
            let load = requested(sample)?;
            Some(load.bytes as f64 / cell.size as f64 / load.elapsed_s)
        };
        let mut line = vec![short_size(cell.size), cell.variant.to_string()];
        line.extend([number(cpu, MICRO), span(cpu, MICRO)]);
        line.push(times(record.ratio(index, Metric::Cpu)));
        let all = record.summary_by(index, rate);
        line.extend([number(all, 1.0), span(all, 1.0), times(record.ratio_by(index, rate))]);
        let latency = |sample: &Sample| requested(sample)?.latency;
        line.extend(latencies(record, index, latency));
        line.push(percent(record.summary_by(index, server_busy)));
        line.push(percent(record.summary_by(index, load_busy)));
        columns.line(line);
    }
    let each = match record.scenario {
        Scenario::ServeHandshakes => "new connection with one request, and such in a second",
        _ => "request, and requests in a second",
    };
    format!(
        "Processor time of the server for each {each}, {}\n{}",
        connections(record),
        columns.draw()
    )
}

/// Half of them, 99 of 100, and the longest.
fn latencies(
    record: &Record,
    index: usize,
    latency: impl Fn(&Sample) -> Option<Latency>,
) -> [String; 3] {
    let parts: [fn(Latency) -> f64; 3] = [|all| all.p50_s, |all| all.p99_s, |all| all.max_s];
    parts.map(|part| number(record.summary_by(index, |sample| Some(part(latency(sample)?))), MICRO))
}

/// The latency of a hot file, two lines for each server.
fn fairness(record: &Record) -> String {
    let mut columns = Columns::new([
        "server",
        "",
        "p50 us",
        "p99 us",
        "max us",
        "in a second",
        "p99 beside/alone",
        "least-most",
        "streams MiB/s",
    ]);
    for (index, cell) in record.cells.iter().enumerate() {
        let of = |value: fn(&Windows) -> Option<f64>| {
            record.summary_by(index, |sample| value(&Windows::of(sample)?))
        };
        for name in ["alone", "beside"] {
            let is_alone = name == "alone";
            let load = |sample: &Sample| {
                let both = Windows::of(sample)?;
                Some(if is_alone { both.alone } else { both.beside })
            };
            let rate = |sample: &Sample| {
                let load = load(sample)?;
                Some(load.responses as f64 / load.elapsed_s)
            };
            let mut line = vec![cell.variant.to_string(), name.to_owned()];
            line.extend(latencies(record, index, |sample| load(sample)?.latency));
            line.push(number(record.summary_by(index, rate), 1.0));
            if !is_alone {
                let slowdown = of(Windows::slowdown);
                line.extend([times(slowdown), span(slowdown, 1.0)]);
                line.push(number(of(|both| Some(both.streamed())), MEBI));
            }
            columns.line(line);
        }
    }
    format!("{}\n{}", fairness_caption(record), columns.draw())
}

fn fairness_caption(record: &Record) -> String {
    let setting = record.arguments.serve;
    let streams = setting.and_then(|setting| setting.streams).unwrap_or(0);
    let bytes = setting.and_then(|setting| setting.stream_bytes).unwrap_or(0);
    let size = record.cells.first().map_or(0, |cell| cell.size);
    format!(
        "Latency of a hot file of {}, {}: alone, and beside {streams} clients that stream\na cold \
         file of {} each",
        short_size(size),
        connections(record),
        short_size(bytes)
    )
}

/// Memory with very many connections, and how soon one more is answered.
fn idle(record: &Record) -> String {
    let size = record.cells.first().map_or(0, |cell| cell.size);
    format!(
        "Memory of all processes of the server together; the downloads are of {}\n{}\nFrom \
         connecting to the end of a small file, one after the other, all of them at once\n{}",
        short_size(size),
        memory(record),
        answers(record)
    )
}

/// Memory, a line for each server at each stage.
fn memory(record: &Record) -> String {
    let setting = record.arguments.serve;
    let idle = setting.and_then(|setting| setting.idle).unwrap_or(0);
    let slow = setting.and_then(|setting| setting.slow).unwrap_or(0);
    let names = [
        "after one request".to_owned(),
        format!("with {idle} idle connections"),
        format!("and {slow} slow downloads"),
    ];
    let stages: [fn(Crowded) -> Memory; 3] =
        [|crowded| crowded.start, |crowded| crowded.idle, |crowded| crowded.slow];
    let kinds: [fn(Memory) -> u64; 2] =
        [|memory| memory.resident_bytes, |memory| memory.proportional_bytes];
    let kind = |name| [name, "least-most", "x"];
    let headings = [&["", "server"][..], &kind("resident MiB"), &kind("proportional MiB")];
    let mut columns = Columns::new(headings.concat());
    for (name, stage) in names.iter().zip(stages) {
        for (index, cell) in record.cells.iter().enumerate() {
            let mut line = vec![name.clone(), cell.variant.to_string()];
            for kind in kinds {
                let value = |sample: &Sample| Some(kind(stage(Crowded::of(sample)?)) as f64);
                let all = record.summary_by(index, value);
                line.extend([number(all, MEBI), span(all, MEBI)]);
                line.push(times(record.ratio_by(index, value)));
            }
            columns.line(line);
        }
    }
    columns.draw()
}

/// How soon a new connection was answered, a line for each server.
fn answers(record: &Record) -> String {
    let mut columns =
        Columns::new(["server", "median ms", "least-most", "longest ms", "least-most"]);
    for (index, cell) in record.cells.iter().enumerate() {
        let mut line = vec![cell.variant.to_string()];
        let parts: [fn(Latency) -> f64; 2] = [|answers| answers.p50_s, |answers| answers.max_s];
        for part in parts {
            let value = |sample: &Sample| Some(part(Crowded::of(sample)?.answers));
            let all = record.summary_by(index, value);
            line.extend([number(all, MILLI), span(all, MILLI)]);
        }
        columns.line(line);
    }
    columns.draw()
}

/// Both windows of a sample of `serve_fairness`.
struct Windows {
    alone: Load,
    beside: Load,
    streamed_bytes: u64,
}

impl Windows {
    fn of(sample: &Sample) -> Option<Self> {
        match sample.served? {
            Served::Fairness { alone, beside, streamed_bytes } => {
                Some(Self { alone, beside, streamed_bytes })
            }
            _ => None,
        }
    }

    fn slowdown(&self) -> Option<f64> {
        Some(self.beside.latency?.p99_s / self.alone.latency?.p99_s)
    }

    /// Bytes of the streams in a second.
    fn streamed(&self) -> f64 {
        self.streamed_bytes as f64 / self.beside.elapsed_s
    }
}

/// A sample of `serve_idle`.
#[derive(Clone, Copy)]
struct Crowded {
    start: Memory,
    idle: Memory,
    slow: Memory,
    answers: Latency,
}

impl Crowded {
    fn of(sample: &Sample) -> Option<Self> {
        match sample.served? {
            Served::Idle { start, idle, slow, answers } => {
                Some(Self { start, idle, slow, answers })
            }
            _ => None,
        }
    }
}

pub(super) fn requested(sample: &Sample) -> Option<Load> {
    match sample.served? {
        Served::Requests(load) | Served::Scale { load, .. } => Some(load),
        _ => None,
    }
}

/// The part of its core that the server used.
pub(crate) fn server_busy(sample: &Sample) -> Option<f64> {
    Some(sample.measured.process?.cpu_s / sample.measured.elapsed_s)
}

/// The part of its core that the load used.
pub(crate) fn load_busy(sample: &Sample) -> Option<f64> {
    let cpu_s = |side: &Side| Some(side.thread.as_ref().map(Thread::cpu_s)? / side.elapsed_s);
    sample.peer.as_ref().and_then(cpu_s)
}

/// How many connections there were: at some sizes fewer.
fn connections(record: &Record) -> String {
    let asked = record.arguments.serve.map_or(0, |setting| setting.connections);
    let fewer: Vec<String> = record
        .sizes()
        .into_iter()
        .filter_map(|size| {
            let is_fewer = |sample: &&Sample| record.cells[sample.cell].size == size;
            let load = requested(record.samples.iter().find(is_fewer)?)?;
            (load.connections != asked)
                .then(|| format!("at {} {}", short_size(size), load.connections))
        })
        .collect();
    match fewer.is_empty() {
        true => format!("{asked} connections"),
        false => format!("{asked} connections ({})", fewer.join(", ")),
    }
}

fn number(summary: Option<Summary>, unit: f64) -> String {
    summary.map_or_else(dash, |all| three_digits(all.median * unit))
}

fn span(summary: Option<Summary>, unit: f64) -> String {
    summary.map_or_else(dash, |all| range(all, unit))
}

fn percent(summary: Option<Summary>) -> String {
    summary.map_or_else(dash, |all| format!("{:.0} %", all.median * 100.0))
}

/// Mebibytes for each byte.
const MEBI: f64 = 1.0 / (1 << 20) as f64;

#[cfg(test)]
mod tests {
    use crate::serve::fixture::{fairness_record, idle_record, requests_record};
    use crate::table;

    #[test]
    fn the_same_record_gives_the_same_table_byte_for_byte() {
        for (record, text) in [
            (requests_record(), include_str!("../snapshots/serve.txt")),
            (fairness_record(), include_str!("../snapshots/serve_fairness.txt")),
            (idle_record(), include_str!("../snapshots/serve_idle.txt")),
        ] {
            assert_eq!(table::render(&record), text);
        }
    }

    #[test]
    fn a_record_without_nginx_has_a_table_without_ratios_that_says_so() {
        let mut record = requests_record();
        record.environment.nginx = None;
        record.samples.retain(|sample| sample.cell % 2 == 1);
        for sample in &mut record.samples {
            sample.cell /= 2;
        }
        record.cells.retain(|cell| cell.variant != record.baseline);
        let text = table::render(&record);
        assert!(text.contains("nginx is not installed"), "{text}");
        assert!(!text.contains("0.50x"), "{text}");
    }
}
