//! The scenarios, from what was typed to a record: who takes part, and what the others are compared
//! with.

use std::sync::atomic::AtomicBool;

use super::arguments::{ChunksArgs, LimitArgs, LineArgs, SmallCopyArgs, TableArgs};
use super::sending::Sending;
use crate::arguments::RunArgs;
use crate::child::Cores;
use crate::copy::Copy;
use crate::counted::Missing;
use crate::counter::Counter;
use crate::data::{Folder, Noise};
use crate::environment::{cp_version, survey};
use crate::error::{BenchError, Result};
use crate::link::Link;
use crate::peers::{Peer, Workshop};
use crate::plan::{Variant, ways};
use crate::record::{Arguments, Environment, Over, Receivers, Record, Role, Scenario, SinkKind};
use crate::scenarios::{TO_SOCKET, begin, folders, largest, once, run};
use crate::way::{Choice, Step, Way};

/// Measures the table of sizes.
///
/// # Errors
///
/// Whatever keeps it from measuring, verifying or counting; see [`BenchError`](crate::BenchError).
pub fn table(args: &TableArgs, cancel: &AtomicBool) -> Result<Record> {
    let peers = args.peer.iter().map(|peer| Variant::new(Way::Peer(*peer), usual_step(*peer)));
    let variants = peers.chain(ours(&args.mechanism, &args.step)).collect();
    let asked = Asked { sizes: &args.sizes, step: &args.step, line: &args.line, run: &args.run };
    asked.measure(Scenario::ArticleTable, variants, cancel)
}

/// Measures chunks of several sizes.
///
/// # Errors
///
/// Whatever keeps it from measuring, verifying or counting; see [`BenchError`](crate::BenchError).
pub fn chunks(args: &ChunksArgs, cancel: &AtomicBool) -> Result<Record> {
    let peers = args.peer.iter().flat_map(|peer| at_steps(*peer, &args.step));
    let variants = peers.chain(ours(&args.mechanism, &args.step)).collect();
    let asked = Asked { sizes: &args.sizes, step: &args.step, line: &args.line, run: &args.run };
    asked.measure(Scenario::ArticleChunks, variants, cancel)
}

/// Measures how far from a bare loop it is, which is measured at our own step first.
///
/// # Errors
///
/// Whatever keeps it from measuring, verifying or counting; see [`BenchError`](crate::BenchError).
pub fn limit(args: &LimitArgs, cancel: &AtomicBool) -> Result<Record> {
    let own = Variant::new(Way::Peer(Peer::BareSendfile), Step::Bytes(OWN_STEP));
    let bare = at_steps(Peer::BareSendfile, &args.step);
    let peers = args.peer.iter().flat_map(|peer| match peer {
        Peer::CSendfile => vec![Variant::new(Way::Peer(*peer), Step::Bytes(OWN_STEP))],
        peer => at_steps(*peer, &[usual_step(*peer)]),
    });
    let all = std::iter::once(own).chain(bare).chain(peers);
    let mut variants = Vec::new();
    for variant in all.chain(ours(&args.mechanism, &args.step)) {
        if !variants.contains(&variant) {
            variants.push(variant);
        }
    }
    let asked = Asked { sizes: &args.sizes, step: &args.step, line: &args.line, run: &args.run };
    asked.measure(Scenario::Limit, variants, cancel)
}

/// Measures copies.
///
/// # Errors
///
/// Whatever keeps it from measuring, verifying or counting; see [`BenchError`](crate::BenchError).
pub fn copy(args: &SmallCopyArgs, cancel: &AtomicBool) -> Result<Record> {
    let (source, target) = folders(&args.run, args.to.as_deref(), &args.sizes)?;
    let peers = [Peer::CReadWrite, Peer::CSendfile].into_iter();
    let peers = peers.flat_map(|peer| at_steps(peer, &args.step));
    let cp = std::iter::once(Variant::new(Way::Cp, Step::Default));
    let variants: Vec<_> = peers.chain(ours(&args.mechanism, &args.step)).chain(cp).collect();
    let workshop = Workshop::open(&source, variants.iter().map(|variant| variant.way))?;
    let cores = Cores::available();
    let cp = cp_version();
    let (counter, mut missing) = Counter::unless(args.no_count, &source);
    if cp.is_none() {
        missing.push(Missing { name: "cp".to_owned(), why: "not installed".to_owned() });
    }
    let variants: Vec<_> = variants
        .into_iter()
        .filter(|variant| variant.way != Way::Cp || cp.is_some())
        .filter(|variant| workshop.has(variant.way))
        .collect();
    let baseline = first(&variants)?;
    missing.extend(workshop.missing.iter().cloned());
    let environment = Environment {
        cp,
        programs: workshop.versions.clone(),
        ..survey(cores, source.path(), Some(target.path()))
    };
    let arguments = Arguments {
        side: Role::Copier,
        sink: None,
        cold: args.cold,
        ..arguments(&args.sizes, &args.step, &variants, &args.run)
    };
    let mut course = Copy {
        source,
        target,
        noise: Noise::new(largest(&args.sizes))?,
        workshop: Some(workshop),
        cold: args.cold,
        counter,
        cores,
        cancel,
        sha256: String::new(),
    };
    let record = begin(Scenario::ArticleCopy, arguments, environment, baseline);
    run(Record { missing, ..record }, variants, &mut course, cancel)
}

/// What the scenarios with connections have in common.
struct Asked<'a> {
    sizes: &'a [u64],
    step: &'a [Step],
    line: &'a LineArgs,
    run: &'a RunArgs,
}

impl Asked<'_> {
    /// Measures those variants that can be, the first of which is the baseline.
    fn measure(
        &self,
        scenario: Scenario,
        variants: Vec<Variant>,
        cancel: &AtomicBool,
    ) -> Result<Record> {
        let folder = Folder::create(&self.run.dir)?;
        // The target of the verifying pass is as large as its source.
        folder.require_space(largest(self.sizes).saturating_mul(2))?;
        let cores = Cores::available();
        // Before anything of the system is set.
        let found = survey(cores, folder.path(), None);
        let link = Link::open(self.line.over, &self.line.congestion)?;
        let workshop = Workshop::open(&folder, variants.iter().map(|variant| variant.way))?;
        let variants: Vec<_> =
            variants.into_iter().filter(|variant| workshop.has(variant.way)).collect();
        let baseline = first(&variants)?;
        let (counter, mut missing) = Counter::unless(self.line.no_count, &folder);
        missing.extend(workshop.missing.iter().cloned());
        let environment = Environment {
            congestion: Some(link.congestion.clone()),
            programs: workshop.versions.clone(),
            ..found
        };
        let arguments = Arguments {
            cold: self.line.cold,
            over: self.line.over,
            receivers: self.line.receivers,
            ..arguments(self.sizes, self.step, &variants, self.run)
        };
        let mut course = Sending {
            folder,
            noise: Noise::new(largest(self.sizes))?,
            workshop,
            link,
            receivers: self.line.receivers,
            cold: self.line.cold,
            counter,
            cores,
            cancel,
            sha256: String::new(),
        };
        let record = begin(scenario, arguments, environment, baseline);
        run(Record { missing, ..record }, variants, &mut course, cancel)
    }
}

/// What was asked for, as the record tells it.
fn arguments(sizes: &[u64], steps: &[Step], variants: &[Variant], run: &RunArgs) -> Arguments {
    let mut mechanisms = Vec::new();
    for variant in variants {
        if !mechanisms.contains(&variant.way) {
            mechanisms.push(variant.way);
        }
    }
    Arguments {
        sizes: once(sizes),
        mechanisms,
        steps: steps.to_vec(),
        runs: run.runs,
        warmup: run.warmup,
        cold: false,
        side: Role::Sender,
        sink: Some(SinkKind::Drop),
        responses: None,
        serve: None,
        transfers: None,
        over: Over::Loopback,
        receivers: Receivers::Ours,
    }
}

/// Our own variants.
fn ours(mechanisms: &[Choice], steps: &[Step]) -> Vec<Variant> {
    let ways = ways(mechanisms, TO_SOCKET);
    ways.into_iter()
        .flat_map(|way| match way.has_steps() {
            true => steps.iter().map(|step| Variant::new(way, *step)).collect(),
            false => vec![Variant::new(way, Step::Default)],
        })
        .collect()
}

/// A peer at all of the steps that it can take: a buffer as large as the file is none.
fn at_steps(peer: Peer, steps: &[Step]) -> Vec<Variant> {
    if !Way::Peer(peer).has_steps() {
        return vec![Variant::new(Way::Peer(peer), Step::Default)];
    }
    let has_buffer = matches!(peer, Peer::CReadWrite | Peer::JavaStream | Peer::PythonSendall);
    let can = steps.iter().filter(|step| !has_buffer || matches!(step, Step::Bytes(_)));
    can.map(|step| Variant::new(Way::Peer(peer), *step)).collect()
}

/// The step of a peer in the article that it is from.
const fn usual_step(peer: Peer) -> Step {
    match peer {
        Peer::CReadWrite | Peer::JavaStream | Peer::PythonSendall => Step::Bytes(4 << 10),
        Peer::PythonSendfile => Step::Bytes(65_535),
        Peer::Iperf3 | Peer::MemoryCopy | Peer::Nc => Step::Default,
        Peer::BareSendfile
        | Peer::CMmap
        | Peer::CMmapLease
        | Peer::CSendfile
        | Peer::JavaTransferTo => Step::Whole,
    }
}

/// What the others are compared with.
fn first(variants: &[Variant]) -> Result<Variant> {
    let none = || BenchError::Usage("none of these programs is installed".to_owned());
    variants.first().copied().ok_or_else(none)
}

/// What sendfile takes at a time by itself, in ours.
const OWN_STEP: u64 = 1 << 20;
