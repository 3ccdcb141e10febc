//! The scenarios, from what was typed to a record: which ways there are, and what the others are
//! compared with.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use underpass_engine::Mechanism;

use super::arguments::{ChainArgs, CopyArgs, NetArgs, RunArgs, WayArgs};
use super::chain::SmallFiles;
use super::child::Cores;
use super::copy::Copy;
use super::counter::Counter;
use super::data::{Folder, Noise};
use super::environment::{cp_version, now, survey};
use super::link::Link;
use super::net::Net;
use super::plan::{Variant, variants, ways};
use super::record::{
    Arguments, Environment, Over, Receivers, Record, Role, SCHEMA, Scenario, SinkKind,
};
use super::rounds::{Course, Results, Schedule};
use super::way::{Step, Way};
use crate::error::Result;

/// Measures files over TCP.
///
/// # Errors
///
/// Whatever keeps it from measuring, verifying or counting; see [`BenchError`](crate::BenchError).
pub fn net(args: &NetArgs, cancel: &AtomicBool) -> Result<Record> {
    let side = Role::from(args.side);
    let (all, baseline) = match side {
        Role::Receiver => (FROM_SOCKET, Variant::baseline(Mechanism::ReadWrite, 64 << 10)),
        _ => (TO_SOCKET, TRADITIONAL),
    };
    let (source, target) = folders(&args.run, args.ways.to.as_deref(), &args.sizes)?;
    let cores = Cores::available();
    let written = (args.sink == SinkKind::File).then_some(target.path());
    let environment = survey(cores, source.path(), written);
    // Namespaces begin with a congestion control of their own; on loopback each connection sets its.
    let link = match args.over {
        Over::Loopback => None,
        Over::Veth => Some(Link::open(args.over, &args.congestion)?),
    };
    let congestion = link.as_ref().map_or(&args.congestion, |link| &link.congestion).clone();
    let asked = asked(&args.run, &args.ways, &args.sizes, all);
    let arguments = Arguments { side, sink: Some(args.sink), over: args.over, ..asked };
    let (counter, missing) = Counter::unless(args.no_count, &target);
    let mut course = Net {
        counter,
        source,
        target,
        noise: Noise::new(largest(&args.sizes))?,
        side,
        sink: args.sink,
        cold: args.ways.cold,
        congestion,
        link,
        cores,
        cancel,
        sha256: String::new(),
        seen_congestion: None,
    };
    let record = begin(Scenario::Net, arguments, environment, baseline);
    let mut record = measure(Record { missing, ..record }, &mut course, cancel)?;
    record.environment.congestion = course.seen_congestion;
    Ok(record)
}

/// Measures files to files.
///
/// # Errors
///
/// Whatever keeps it from measuring, verifying or counting; see [`BenchError`](crate::BenchError).
pub fn copy(args: &CopyArgs, cancel: &AtomicBool) -> Result<Record> {
    let (source, target) = folders(&args.run, args.ways.to.as_deref(), &args.sizes)?;
    let cores = Cores::available();
    let cp = cp_version();
    let mut arguments = asked(&args.run, &args.ways, &args.sizes, TO_FILE);
    arguments.side = Role::Copier;
    if cp.is_some() {
        arguments.mechanisms.push(Way::Cp);
    }
    let environment = Environment { cp, ..survey(cores, source.path(), Some(target.path())) };
    let (counter, missing) = Counter::unless(args.no_count, &source);
    let mut course = Copy {
        counter,
        source,
        target,
        noise: Noise::new(largest(&args.sizes))?,
        workshop: None,
        cold: args.ways.cold,
        cores,
        cancel,
        sha256: String::new(),
    };
    let record = begin(Scenario::Copy, arguments, environment, TRADITIONAL);
    measure(Record { missing, ..record }, &mut course, cancel)
}

/// Measures headers with small files.
///
/// # Errors
///
/// Whatever keeps it from measuring, verifying or counting; see [`BenchError`](crate::BenchError).
pub fn chain(args: &ChainArgs, cancel: &AtomicBool) -> Result<Record> {
    let source = Folder::create(&args.run.dir)?;
    source.require_space(largest(&args.sizes))?;
    let cores = Cores::available();
    let environment = survey(cores, source.path(), None);
    let arguments = Arguments {
        sizes: once(&args.sizes),
        mechanisms: vec![Way::Only(Mechanism::Sendfile)],
        steps: vec![Step::Default],
        runs: args.run.runs,
        warmup: args.run.warmup,
        cold: false,
        side: Role::Sender,
        sink: Some(SinkKind::Drop),
        responses: Some(args.responses),
        serve: None,
        transfers: None,
        over: Over::Loopback,
        receivers: Receivers::Ours,
    };
    let mut course = SmallFiles {
        source,
        noise: Noise::new(largest(&args.sizes))?,
        responses: args.responses,
        congestion: args.congestion.clone(),
        cores,
        cancel,
        sha256: String::new(),
        seen_congestion: None,
    };
    let baseline = Variant::new(Way::OneBuffer, Step::Default);
    let record = begin(Scenario::Chain, arguments, environment, baseline);
    let mut record = measure(record, &mut course, cancel)?;
    record.environment.congestion = course.seen_congestion;
    Ok(record)
}

/// The folders of source and target, with room in them for the largest file.
pub(crate) fn folders(run: &RunArgs, to: Option<&Path>, sizes: &[u64]) -> Result<(Folder, Folder)> {
    let largest = largest(sizes);
    let source = Folder::create(&run.dir)?;
    let target = Folder::create(to.unwrap_or(&run.dir))?;
    // Both in one folder share its room.
    source.require_space(largest.saturating_mul(if to.is_none() { 2 } else { 1 }))?;
    target.require_space(largest)?;
    Ok((source, target))
}

/// What was asked for, as the record tells it.
pub(crate) fn asked(run: &RunArgs, args: &WayArgs, sizes: &[u64], all: &[Way]) -> Arguments {
    Arguments {
        sizes: once(sizes),
        mechanisms: ways(&args.mechanism, all),
        steps: args.step.clone(),
        runs: run.runs,
        warmup: run.warmup,
        cold: args.cold,
        side: Role::Sender,
        sink: None,
        responses: None,
        serve: None,
        transfers: None,
        over: Over::Loopback,
        receivers: Receivers::Ours,
    }
}

/// A record without results.
pub(crate) fn begin(
    scenario: Scenario,
    arguments: Arguments,
    environment: Environment,
    baseline: Variant,
) -> Record {
    Record {
        schema: SCHEMA,
        scenario,
        underpass: env!("CARGO_PKG_VERSION").to_owned(),
        started: now(),
        arguments,
        environment,
        baseline,
        copies: None,
        cells: Vec::new(),
        samples: Vec::new(),
        counted: Vec::new(),
        missing: Vec::new(),
    }
}

/// The record with the results of what it says was asked for.
fn measure(record: Record, course: &mut impl Course, cancel: &AtomicBool) -> Result<Record> {
    let Arguments { mechanisms, steps, .. } = &record.arguments;
    let variants = variants(mechanisms, steps, record.baseline);
    run(record, variants, course, cancel)
}

/// The same with these variants.
pub(crate) fn run(
    record: Record,
    variants: Vec<Variant>,
    course: &mut impl Course,
    cancel: &AtomicBool,
) -> Result<Record> {
    let Arguments { sizes, runs, warmup, .. } = &record.arguments;
    let schedule = Schedule { sizes: sizes.clone(), variants, warmup: *warmup, runs: *runs };
    let Results { cells, samples, counted } = schedule.run(course, cancel)?;
    Ok(Record { cells, samples, counted, ..record })
}

/// The largest size, as files are made one after the other.
pub(crate) fn largest(sizes: &[u64]) -> u64 {
    sizes.iter().copied().max().unwrap_or(0)
}

/// Each size or number once.
pub(crate) fn once<T: Clone + PartialEq>(numbers: &[T]) -> Vec<T> {
    let mut found = Vec::new();
    for number in numbers {
        if !found.contains(number) {
            found.push(number.clone());
        }
    }
    found
}

/// How files used to be sent and copied: read a page, write a page.
const TRADITIONAL: Variant = Variant::baseline(Mechanism::ReadWrite, 4 << 10);

/// The ways from a file to a socket.
pub(crate) const TO_SOCKET: &[Way] = &[
    Way::Auto,
    Way::Only(Mechanism::Sendfile),
    Way::Only(Mechanism::Splice),
    Way::Only(Mechanism::Mmap),
    Way::Only(Mechanism::ReadWrite),
];

/// The ways from a socket to a file.
const FROM_SOCKET: &[Way] =
    &[Way::Auto, Way::Only(Mechanism::Splice), Way::Only(Mechanism::ReadWrite)];

/// The ways from a file to a file.
const TO_FILE: &[Way] = &[
    Way::Auto,
    Way::Only(Mechanism::Reflink),
    Way::Only(Mechanism::CopyFileRange),
    Way::Only(Mechanism::Sendfile),
    Way::Only(Mechanism::Splice),
    Way::Only(Mechanism::Mmap),
    Way::Only(Mechanism::ReadWrite),
];
