//! The table of `bench hostile`, drawn from a record alone.

use super::record::{Good, Hostile};
use crate::layout::{Columns, three_digits};
use crate::record::{Record, Sample};
use crate::serve::{Served, server_busy};
use crate::statistics::Summary;
use crate::table::{MILLI, dash};

/// A line for each kind of bad clients and each server.
pub(crate) fn render(record: &Record) -> String {
    let mut columns = Columns::new([
        "load",
        "server",
        "p50 ms",
        "beside",
        "p99 ms",
        "beside",
        "x",
        "failed",
        "memory MiB",
        "most",
        "server busy",
        "open",
        "begun",
    ]);
    for (index, cell) in record.cells.iter().enumerate() {
        let of = |value: fn(&Hostile) -> Option<f64>| {
            record.summary_by(index, |sample| value(&hostile(sample)?))
        };
        let name = cell.load.map_or_else(dash, super::load::Kind::name);
        let mut line = vec![name, cell.variant.to_string()];
        line.push(number(of(|hostile| p50(&hostile.alone)), MILLI));
        line.push(number(of(|hostile| p50(&hostile.beside)), MILLI));
        line.push(number(of(|hostile| p99(&hostile.alone)), MILLI));
        line.push(number(of(|hostile| p99(&hostile.beside)), MILLI));
        line.push(number(of(|hostile| Some(p99(&hostile.beside)? / p99(&hostile.alone)?)), 1.0));
        line.push(count(of(|hostile| Some(hostile.beside.failed as f64))));
        line.push(number(of(|hostile| Some(hostile.start_bytes as f64)), MEBI));
        line.push(number(of(|hostile| Some(hostile.peak_bytes as f64)), MEBI));
        let busy = record.summary_by(index, server_busy);
        line.push(busy.map_or_else(dash, |all| format!("{:.0} %", all.median * 100.0)));
        line.push(count(of(|hostile| Some(f64::from(hostile.open)))));
        line.push(count(of(|hostile| Some(hostile.begun as f64))));
        columns.line(line);
    }
    let connections = record.arguments.serve.map_or(0, |setting| setting.connections);
    format!(
        "A good client, alone and beside up to {connections} connections of bad ones\n{}",
        columns.draw()
    )
}

fn hostile(sample: &Sample) -> Option<Hostile> {
    match sample.served? {
        Served::Hostile(hostile) => Some(hostile),
        _ => None,
    }
}

fn p50(good: &Good) -> Option<f64> {
    Some(good.latency?.p50_s)
}

fn p99(good: &Good) -> Option<f64> {
    Some(good.latency?.p99_s)
}

fn number(summary: Option<Summary>, unit: f64) -> String {
    summary.map_or_else(dash, |all| three_digits(all.median * unit))
}

fn count(summary: Option<Summary>) -> String {
    summary.map_or_else(dash, |all| format!("{:.0}", all.median))
}

/// Mebibytes for each byte.
const MEBI: f64 = 1.0 / (1 << 20) as f64;
