//! Fixed records of servers for the tests of what is computed and drawn from records.

use super::record::{Latency, Load, Memory, Served, Setting};
use crate::fixture::{empty, sample};
use crate::plan::Variant;
use crate::record::{Cell, Process, Record, Role, Sample, Scenario, Side};
use crate::way::{Step, Way};

/// Two rounds at 1 KiB and 1 MiB, the second twice as slow: underpass needs half as much processor
/// time as nginx and serves twice as many requests.
pub(crate) fn requests_record() -> Record {
    record(Scenario::Serve, &[1 << 10, 1 << 20], |size, _, factor| {
        let responses = (1e5 / factor) as u64 / size.ilog2() as u64;
        Served::Requests(load(64, responses, size, 1e-3 * factor))
    })
}

/// One hot file, 40 times slower with nginx and twice with underpass.
pub(crate) fn fairness_record() -> Record {
    let mut record = record(Scenario::ServeFairness, &[10 << 10], |size, share, _| {
        let slower = if share == 1.0 { 40.0 } else { 2.0 };
        Served::Fairness {
            alone: load(16, 100_000, size, 1e-4),
            beside: load(16, 10_000, size, 1e-4 * slower),
            streamed_bytes: 3 << 30,
        }
    });
    record.arguments.cold = true;
    for sample in &mut record.samples {
        let process = Process { storage_read_bytes: 3 << 30, ..process(sample) };
        sample.measured.process = Some(process);
    }
    record
}

/// Memory in the proportion of the factor.
pub(crate) fn idle_record() -> Record {
    record(Scenario::ServeIdle, &[128 << 20], |_, _, factor| {
        let memory = |mib: f64| {
            let bytes = (mib * factor) as u64 * (1 << 20);
            Memory { resident_bytes: bytes, proportional_bytes: bytes / 2 }
        };
        let answers = Latency { p50_s: 1e-4, p99_s: 2e-3, max_s: 2e-3 };
        Served::Idle { start: memory(20.0), idle: memory(24.0), slow: memory(44.0), answers }
    })
}

/// Two rounds of nginx, with the factors 1 and 2, and underpass, with half of them.
fn record(scenario: Scenario, sizes: &[u64], served: impl Fn(u64, f64, f64) -> Served) -> Record {
    let baseline = Variant::new(Way::Nginx, Step::Default);
    let ours = Variant::new(Way::Underpass, Step::Default);
    let mut record = Record { baseline, ..empty(scenario) };
    record.environment.nginx = Some("nginx/1.2.3".to_owned());
    record.arguments.serve = Some(setting(scenario));
    for size in sizes {
        for (variant, share) in [(baseline, 1.0), (ours, 0.5)] {
            let cell = record.cells.len();
            let sha256 = Some("0123456789abcdef".to_owned());
            record.cells.push(Cell {
                size: *size,
                variant,
                sha256,
                declined: None,
                connections: None,
                load: None,
            });
            for round in 1..=2 {
                let factor = f64::from(round) * share;
                record.samples.push(one(cell, round, served(*size, share, factor)));
            }
        }
    }
    record
}

/// A sample of 2 s, of which the server works half and the load a quarter.
fn one(cell: usize, round: u32, served: Served) -> Sample {
    let mut sample = Sample { served: Some(served), ..sample(cell, round, 2.0, 0.5) };
    let process = Process { cpu_s: 1.0, ..process(&sample) };
    sample.measured =
        Side { role: Role::Server, process: Some(process), thread: None, ..sample.measured };
    sample
}

fn process(sample: &Sample) -> Process {
    sample.measured.process.unwrap_or_default()
}

fn load(connections: u32, responses: u64, size: u64, p50_s: f64) -> Load {
    let latency = Latency { p50_s, p99_s: p50_s * 5.0, max_s: p50_s * 9.0 };
    let bytes = responses * size;
    Load { connections, elapsed_s: 2.0, responses, bytes, latency: Some(latency) }
}

fn setting(scenario: Scenario) -> Setting {
    let (streams, stream_bytes) = match scenario {
        Scenario::ServeFairness => (Some(6), Some(512 << 20)),
        _ => (None, None),
    };
    let (idle, slow) = match scenario {
        Scenario::ServeIdle => (Some(10_000), Some(2000)),
        _ => (None, None),
    };
    let connections = if scenario == Scenario::Serve { 64 } else { 16 };
    Setting {
        connections,
        seconds: 2.0,
        log: false,
        tls: false,
        streams,
        stream_bytes,
        idle,
        sparse_from: None,
        slow,
    }
}
