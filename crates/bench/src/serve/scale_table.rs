//! The table of `bench scale`, drawn from a record alone.

use super::record::{Load, Served};
use super::table::{load_busy, requested, server_busy};
use crate::layout::{Columns, three_digits};
use crate::record::{Record, Sample};
use crate::statistics::Summary;
use crate::table::{MILLI, dash, range};
use crate::way::short_size;

/// A line for each point and server.
pub(crate) fn render(record: &Record) -> String {
    let mut columns = Columns::new([
        "connections",
        "size",
        "server",
        "GiB in a second",
        "least-most",
        "CPU ms for a GiB",
        "least-most",
        "memory MiB",
        "at rest",
        "server busy",
        "load busy",
    ]);
    for (index, cell) in record.cells.iter().enumerate() {
        let of = |value: fn(&Sample) -> Option<f64>| record.summary_by(index, value);
        let connections = cell.connections.map_or_else(dash, |count| count.to_string());
        let mut line = vec![connections, short_size(cell.size), cell.variant.to_string()];
        for (summary, unit) in [(of(rate), 1.0), (of(cost), MILLI)] {
            line.push(summary.map_or_else(dash, |all| three_digits(all.median * unit)));
            line.push(summary.map_or_else(dash, |all| range(all, unit)));
        }
        line.push(number(of(|sample| memory(sample).map(|(_, busy)| busy))));
        line.push(number(of(|sample| memory(sample).map(|(start, _)| start))));
        for part in [of(server_busy), of(load_busy)] {
            line.push(part.map_or_else(dash, |all| format!("{:.0} %", all.median * 100.0)));
        }
        columns.line(line);
    }
    let sparse = record.arguments.serve.and_then(|setting| setting.sparse_from);
    let sparse = sparse.map_or_else(String::new, |size| {
        format!("; files from {} on are sparse, in memory, on no disk", short_size(size))
    });
    format!("Connections that ask again and again for a file{sparse}\n{}", columns.draw())
}

/// GiB in a second.
fn rate(sample: &Sample) -> Option<f64> {
    let Load { bytes, elapsed_s, .. } = requested(sample)?;
    Some(bytes as f64 / GIBI / elapsed_s)
}

/// Processor seconds of the server for a GiB.
fn cost(sample: &Sample) -> Option<f64> {
    let bytes = requested(sample)?.bytes;
    Some(sample.measured.process?.cpu_s / (bytes as f64 / GIBI))
}

/// MiB of the server's memory before, and while connections were open.
fn memory(sample: &Sample) -> Option<(f64, f64)> {
    let Served::Scale { start, busy, .. } = sample.served? else { return None };
    let mebi = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    Some((mebi(start.resident_bytes), mebi(busy.resident_bytes)))
}

fn number(summary: Option<Summary>) -> String {
    summary.map_or_else(dash, |all| three_digits(all.median))
}

const GIBI: f64 = (1 << 30) as f64;
