//! Fixed records of every form, for the tests of computations and drawings.

use underpass_engine::Mechanism::{ReadWrite, Sendfile, Splice};

use crate::record::{
    Arguments, Cell, CommandLine, Contender, Copies, Environment, IdleFound, Latency, Load,
    MemoryState, OriginalKind, PinnedSides, ProcessCost, Record, Role, SCHEMA, Sample, Served,
    ServerMemory, Setting, Side, SinkKind, Step, ThreadCost, Transfers, Variant,
};
use crate::scenarios;

/// Two rounds at 1 MiB, the second twice as slow: read_write at 4K in 100 ms and at 64K in 50,
/// sendfile at 4K in 60 and at 64K in 25, splice declined.
pub(super) fn net_record() -> Record {
    let rows =
        [(ReadWrite, 4, 0.1), (ReadWrite, 64, 0.05), (Sendfile, 4, 0.06), (Sendfile, 64, 0.025)];
    let mut cells: Vec<_> = rows
        .iter()
        .map(|(mechanism, step, _)| cell(1 << 20, Variant::mechanism(*mechanism, step << 10)))
        .collect();
    cells.push(Cell {
        sha256: None,
        declined: Some("EINVAL".to_owned()),
        ..cell(1 << 20, Variant::mechanism(Splice, 4 << 10))
    });
    let samples = (1..=2).flat_map(|round| {
        rows.iter().enumerate().map(move |(index, (_, _, time))| {
            sample(index, round, time * f64::from(round), time * f64::from(round) / 2.0)
        })
    });
    Record { samples: samples.collect(), cells, ..empty("net") }
}

/// One round of `chain`, in which sendfile costs `ratios` as much as one buffer.
pub(super) fn chain_record(sizes: &[u64], ratios: &[f64]) -> Record {
    let baseline = Variant::new(Contender::OneBuffer, Step::Default);
    let sendfile = Variant::new(Contender::Only(Sendfile), Step::Default);
    let mut record = Record { baseline, ..empty("chain") };
    record.arguments.responses = Some(100);
    for (size, ratio) in sizes.iter().zip(ratios) {
        for (variant, time) in [(baseline, 0.001), (sendfile, 0.001 * ratio)] {
            record.samples.push(sample(record.cells.len(), 1, time * 2.0, time));
            record.cells.push(cell(*size, variant));
        }
    }
    record
}

/// Returns a record without cells.
pub(super) fn empty(scenario: &str) -> Record {
    Record {
        schema: SCHEMA,
        scenario: scenario.to_owned(),
        about: scenarios::find(scenario).unwrap(),
        underpass: "0.1.0".to_owned(),
        started: "2024-05-06T07:08:09Z".to_owned(),
        arguments: Arguments {
            sizes: vec![1 << 20],
            mechanisms: vec![Contender::Only(Sendfile)],
            steps: vec![Step::Bytes(4 << 10), Step::Bytes(64 << 10)],
            runs: 2,
            warmup: 1,
            sink: (scenario == "net").then_some(SinkKind::Drop),
            ..Arguments::default()
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
            congestion: Some("cubic".to_owned()),
            congestion_default: "cubic".to_owned(),
            load_average: [0.1, 0.2, 0.3],
            optimized: true,
            ..Environment::default()
        },
        baseline: Variant::mechanism(ReadWrite, 4 << 10),
        copies: None,
        cells: Vec::new(),
        samples: Vec::new(),
        counted: Vec::new(),
        missing: Vec::new(),
    }
}

pub(super) fn cell(size: u64, variant: Variant) -> Cell {
    Cell { sha256: Some("0123456789abcdef".to_owned()), ..Cell::new(size, variant) }
}

/// Returns a sample of an idle machine.
pub(super) fn sample(cell: usize, round: u32, wall_s: f64, cpu_s: f64) -> Sample {
    let thread = ThreadCost {
        system_s: cpu_s,
        calls: 16,
        voluntary_switches: 5,
        involuntary_switches: 1,
        minor_faults: 2,
        user_space_bytes: 2 << 20,
        ..ThreadCost::default()
    };
    let process = ProcessCost { wall_s, cpu_s, ..ProcessCost::default() };
    let side = |role| Side { thread: Some(thread.clone()), ..Side::process(role, wall_s, process) };
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

/// Two rounds at 1 KiB and 1 MiB, the second twice as slow: underpass needs half as much processor
/// time as nginx and serves twice as many requests.
pub(super) fn requests_record() -> Record {
    servers("serve", &[1 << 10, 1 << 20], |size, _, factor| {
        let responses = (1e5 / factor) as u64 / size.ilog2() as u64;
        Served::Requests(load(64, responses, size, 1e-3 * factor))
    })
}

/// One hot file, 40 times slower with nginx and twice with underpass.
pub(super) fn fairness_record() -> Record {
    let mut record = servers("serve_fairness", &[10 << 10], |size, share, _| {
        let slower = if share == 1.0 { 40.0 } else { 2.0 };
        Served::Fairness {
            alone: load(16, 100_000, size, 1e-4),
            beside: load(16, 10_000, size, 1e-4 * slower),
            streamed_bytes: 3 << 30,
        }
    });
    record.arguments.cold = true;
    for sample in &mut record.samples {
        let process = ProcessCost { storage_read_bytes: 3 << 30, ..process(sample) };
        sample.measured.process = Some(process);
    }
    record
}

/// Memory in the proportion of the factor.
pub(super) fn idle_record() -> Record {
    servers("serve_idle", &[128 << 20], |_, _, factor| {
        let memory = |mib: f64| {
            let bytes = (mib * factor) as u64 * (1 << 20);
            ServerMemory { resident_bytes: bytes, proportional_bytes: bytes / 2 }
        };
        let answers = Latency { p50_s: 1e-4, p99_s: 2e-3, max_s: 2e-3 };
        let (start, idle, slow) = (memory(20.0), memory(24.0), memory(44.0));
        Served::Idle(IdleFound { start, idle, slow, answers })
    })
}

/// Two rounds of nginx, with the factors 1 and 2, and underpass, with half of them.
fn servers(scenario: &str, sizes: &[u64], served: impl Fn(u64, f64, f64) -> Served) -> Record {
    let baseline = Variant::new(Contender::Nginx, Step::Default);
    let ours = Variant::new(Contender::Underpass, Step::Default);
    let mut record = Record { baseline, ..empty(scenario) };
    record.environment.nginx = Some("nginx/1.2.3".to_owned());
    record.arguments.serve = Some(setting(scenario));
    for size in sizes {
        for (variant, share) in [(baseline, 1.0), (ours, 0.5)] {
            let index = record.cells.len();
            record.cells.push(cell(*size, variant));
            for round in 1..=2 {
                let factor = f64::from(round) * share;
                record.samples.push(served_sample(index, round, served(*size, share, factor)));
            }
        }
    }
    record
}

/// Returns a sample of 2 s, of which the server works half and the load a quarter.
fn served_sample(cell: usize, round: u32, served: Served) -> Sample {
    let mut sample = Sample { served: Some(served), ..sample(cell, round, 2.0, 0.5) };
    let process = ProcessCost { cpu_s: 1.0, ..process(&sample) };
    sample.measured =
        Side { role: Role::Server, process: Some(process), thread: None, ..sample.measured };
    sample
}

fn process(sample: &Sample) -> ProcessCost {
    sample.measured.process.unwrap_or_default()
}

fn load(connections: u32, responses: u64, size: u64, p50_s: f64) -> Load {
    let latency = Latency { p50_s, p99_s: p50_s * 5.0, max_s: p50_s * 9.0 };
    let bytes = responses * size;
    Load { connections, elapsed_s: 2.0, responses, bytes, latency: Some(latency), machine_s: None }
}

fn setting(scenario: &str) -> Setting {
    let connections = if scenario == "serve" { 64 } else { 16 };
    let setting = Setting { connections, seconds: 2.0, ..Setting::default() };
    match scenario {
        "serve_fairness" => Setting { streams: Some(6), stream_bytes: Some(512 << 20), ..setting },
        "serve_idle" => Setting { idle: Some(10_000), slow: Some(2000), ..setting },
        _ => setting,
    }
}

/// Three other programs and ours, which takes a quarter of curl's time and half of its processor time.
pub(super) fn get_record() -> Record {
    let contenders = [
        (Contender::Curl, 4.0),
        (Contender::Wget, 8.0),
        (Contender::Aria2, 6.0),
        (Contender::Underpass, 1.0),
    ];
    let mut record = clients("get", &contenders);
    let transfers = record.arguments.transfers.as_mut();
    if let Some(transfers) = transfers {
        (transfers.server, transfers.pinned) = (Some(Contender::Nginx), PinnedSides::Server);
        transfers.memory = MemoryState::Found;
    }
    record.environment.nginx = Some("nginx/1.2.3".to_owned());
    record.environment.programs = vec!["curl 1.2".to_owned(), "GNU Wget 3.4".to_owned()];
    record
}

/// Two other contenders and ours, waiting for the disk and not, without one that was not installed.
pub(super) fn put_record() -> Record {
    let contenders = [
        (Contender::CurlToNginx, 2.0),
        (Contender::CurlToUnderpass, 1.5),
        (Contender::Underpass, 1.0),
        (Contender::UnderpassSynced, 4.0),
    ];
    let mut record = clients("put", &contenders);
    if let Some(transfers) = record.arguments.transfers.as_mut() {
        transfers.missing = vec!["dufs".to_owned()];
    }
    record
}

/// Returns the record of a folder, by one other program and ours.
pub(super) fn tree_record() -> Record {
    let mut record = clients("tree", &[(Contender::Wget, 5.0), (Contender::Underpass, 1.0)]);
    if let Some(transfers) = record.arguments.transfers.as_mut() {
        transfers.server = Some(Contender::Underpass);
        (transfers.files, transfers.large) = (Some(100), Some(2));
        transfers.large_bytes = Some(256 << 10);
    }
    record
}

/// Returns a record of two rounds, the second twice as slow, in which a contender takes this many
/// seconds, and a quarter of them of a processor and as much again.
fn clients(scenario: &str, contenders: &[(Contender, f64)]) -> Record {
    let mut record = empty(scenario);
    record.baseline = Variant::plain(contenders[0].0);
    record.arguments.side = Role::Client;
    record.environment.target_file_system = Some("ext4".to_owned());
    (record.environment.first_core, record.environment.second_core) = (1, 0);
    let mut commands = Vec::new();
    for (index, (contender, seconds)) in contenders.iter().enumerate() {
        record.cells.push(cell(1 << 20, Variant::plain(*contender)));
        let samples = (1..=2).map(|round| transferred(index, round, seconds * f64::from(round)));
        record.samples.extend(samples);
        commands.push(CommandLine {
            client: Some(format!("{contender} URL")),
            server: Some("underpass serve".to_owned()),
            ..CommandLine::of(*contender)
        });
    }
    record.arguments.transfers = Some(Transfers { commands, ..Transfers::default() });
    record
}

fn transferred(cell: usize, round: u32, wall_s: f64) -> Sample {
    let sample = sample(cell, round, wall_s, 0.0);
    let cost = |cpu_s| ProcessCost { wall_s, cpu_s, ..ProcessCost::default() };
    let side = |role, cpu_s| Side::process(role, wall_s, cost(cpu_s));
    Sample {
        measured: side(Role::Client, wall_s / 4.0 + 0.25 * f64::from(round)),
        peer: Some(side(Role::Server, 0.125)),
        ..sample
    }
}

/// Two rounds, the second twice as slow, of a program and ours, which takes half of its time.
pub(super) fn cp_record() -> Record {
    let mut record = empty("cp");
    let contenders = [(Contender::CpArchive, 2.0), (Contender::Underpass, 1.0)];
    record.baseline = Variant::plain(contenders[0].0);
    record.arguments.side = Role::Copier;
    record.environment.target_file_system = Some("ext4".to_owned());
    record.environment.cp = Some("cp (GNU coreutils) 1.2".to_owned());
    let mut commands = Vec::new();
    for (index, (contender, seconds)) in contenders.into_iter().enumerate() {
        record.cells.push(cell(1 << 20, Variant::new(contender, Step::Default)));
        record.samples.extend((1..=2).map(|round| {
            let wall_s = seconds * f64::from(round);
            let process = ProcessCost { wall_s, cpu_s: wall_s / 2.0, ..ProcessCost::default() };
            let measured = Side::process(Role::Copier, wall_s, process);
            Sample { measured, peer: None, ..sample(index, round, wall_s, 0.0) }
        }));
        let command = Some(format!("{contender} ORIGINAL COPY"));
        commands.push(CommandLine { command, ..CommandLine::of(contender) });
    }
    record.copies = Some(Copies {
        original: OriginalKind::SmallFiles,
        files: 100,
        allocated_bytes: 1 << 20,
        commands,
        missing: vec!["xcp".to_owned()],
        ..Copies::default()
    });
    record
}
