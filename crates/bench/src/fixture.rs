//! Fixed records for the tests of what is computed and drawn from records.

use underpass_engine::Mechanism::{ReadWrite, Sendfile, Splice};

use super::plan::Variant;
use super::record::{
    Arguments, Cell, Environment, Over, Process, Receivers, Record, Role, SCHEMA, Sample, Scenario,
    Side, SinkKind, Thread,
};
use super::way::{Step, Way};

/// Two rounds at 1 MiB, the second twice as slow: read_write at 4K in 100 ms and at 64K in 50,
/// sendfile at 4K in 60 and at 64K in 25, splice declined.
pub(crate) fn net_record() -> Record {
    let rows =
        [(ReadWrite, 4, 0.1), (ReadWrite, 64, 0.05), (Sendfile, 4, 0.06), (Sendfile, 64, 0.025)];
    let mut cells: Vec<_> = rows
        .iter()
        .map(|(mechanism, step, _)| cell(1 << 20, Variant::baseline(*mechanism, step << 10)))
        .collect();
    cells.push(Cell {
        sha256: None,
        declined: Some("EINVAL".to_owned()),
        ..cell(1 << 20, Variant::baseline(Splice, 4 << 10))
    });
    let samples = (1..=2).flat_map(|round| {
        rows.iter().enumerate().map(move |(index, (_, _, time))| {
            sample(index, round, time * f64::from(round), time * f64::from(round) / 2.0)
        })
    });
    Record { samples: samples.collect(), cells, ..empty(Scenario::Net) }
}

/// One round of `chain`, in which sendfile costs `ratios` as much as one buffer.
pub(crate) fn chain_record(sizes: &[u64], ratios: &[f64]) -> Record {
    let baseline = Variant::new(Way::OneBuffer, Step::Default);
    let sendfile = Variant::new(Way::Only(Sendfile), Step::Default);
    let mut record = Record { baseline, ..empty(Scenario::Chain) };
    record.arguments.responses = Some(100);
    for (size, ratio) in sizes.iter().zip(ratios) {
        for (variant, time) in [(baseline, 0.001), (sendfile, 0.001 * ratio)] {
            record.samples.push(sample(record.cells.len(), 1, time * 2.0, time));
            record.cells.push(cell(*size, variant));
        }
    }
    record
}

/// A record without cells.
pub(crate) fn empty(scenario: Scenario) -> Record {
    Record {
        schema: SCHEMA,
        scenario,
        underpass: "0.1.0".to_owned(),
        started: "2024-05-06T07:08:09Z".to_owned(),
        arguments: Arguments {
            sizes: vec![1 << 20],
            mechanisms: vec![Way::Only(Sendfile)],
            steps: vec![Step::Bytes(4 << 10), Step::Bytes(64 << 10)],
            runs: 2,
            warmup: 1,
            cold: false,
            side: Role::Sender,
            sink: (scenario == Scenario::Net).then_some(SinkKind::Drop),
            responses: None,
            serve: None,
            transfers: None,
            over: Over::Loopback,
            receivers: Receivers::Ours,
        },
        environment: Environment {
            kernel: "6.1.0".to_owned(),
            machine: "x86_64".to_owned(),
            cpu: "Some Processor".to_owned(),
            cores: 2,
            first_core: 0,
            second_core: 1,
            memory_bytes: 8 << 30,
            source_file_system: "ext4".to_owned(),
            target_file_system: None,
            congestion: Some("cubic".to_owned()),
            congestion_default: "cubic".to_owned(),
            load_average: [0.1, 0.2, 0.3],
            optimized: true,
            cp: None,
            nginx: None,
            programs: Vec::new(),
        },
        baseline: Variant::baseline(ReadWrite, 4 << 10),
        copies: None,
        cells: Vec::new(),
        samples: Vec::new(),
        counted: Vec::new(),
        missing: Vec::new(),
    }
}

pub(crate) fn cell(size: u64, variant: Variant) -> Cell {
    let sha256 = Some("0123456789abcdef".to_owned());
    Cell { size, variant, sha256, declined: None, connections: None, load: None }
}

/// A sample of an idle machine.
pub(crate) fn sample(cell: usize, round: u32, wall_s: f64, cpu_s: f64) -> Sample {
    let thread = Thread {
        system_s: cpu_s,
        calls: 16,
        voluntary_switches: 5,
        involuntary_switches: 1,
        minor_faults: 2,
        user_space_bytes: 2 << 20,
        ..Thread::default()
    };
    let process = Process { wall_s, cpu_s, ..Process::default() };
    let side = |role| Side {
        role,
        elapsed_s: wall_s,
        thread: Some(thread.clone()),
        process: Some(process),
    };
    Sample {
        cell,
        round,
        wall_s,
        measured: side(Role::Sender),
        peer: Some(side(Role::Receiver)),
        watched_s: wall_s,
        other_cpu_s: 0.0,
        served: None,
    }
}
