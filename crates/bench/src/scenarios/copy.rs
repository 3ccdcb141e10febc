//! `bench copy` and `bench article-copy`: a file to another file by one process, ours or a peer's.
//! What counts is the life of the process, as that is all that can be known of a peer.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use underpass_engine::Mechanism;

use super::{TRADITIONAL, checked_receipt, declined, first, without};
use crate::error::Result;
use crate::options::{Benchmark, RunArgs, StepArgs, bytes, mechanisms};
use crate::peers::{PeerPrograms, PeerReport};
use crate::record::{
    Arguments, CALLS, CPU, Cell, Choice, Contender, Cpu, Description, Environment, FAULTS, Missing,
    Record, Role, SPEED, SWITCHES, Side, Step, TIME, Tally, Thread, USER_SPACE, Variant, at_steps,
    chosen, once,
};
use crate::run::{
    Context, Cores, Finished, Folder, Measured, Noise, Plan, Running, Scenario, Tracer, Verdict,
    digest, drop_cached, find, folders, largest, survey, traced, version,
};

/// What can be typed after `bench copy`.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// Sizes of the files
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "1G")]
    sizes: Vec<u64>,

    #[command(flatten)]
    steps: StepArgs,

    /// Do not count system calls in a pass of its own
    #[arg(long)]
    no_count: bool,

    #[command(flatten)]
    run: RunArgs,
}

/// What can be typed after `bench article-copy`.
#[derive(Debug, Args)]
pub struct SmallCopyArgs {
    /// Sizes of the files
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "1G")]
    sizes: Vec<u64>,

    /// Bytes of the buffer, or asked for in one system call
    #[arg(long, value_name = "LIST", default_value = "4K", value_delimiter = ',')]
    step: Vec<Step>,

    /// Our mechanisms, each required; auto: whatever is best, which takes no step
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(default_value = "auto,sendfile,read_write", value_parser = mechanisms())]
    mechanism: Vec<Choice>,

    /// Drop the source from the page cache before each sample
    #[arg(long)]
    cold: bool,

    /// Where the target is made, if not in --dir
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,

    /// Do not count system calls in a pass of its own
    #[arg(long)]
    no_count: bool,

    #[command(flatten)]
    run: RunArgs,
}

impl Benchmark for CopyArgs {
    fn json(&self) -> Option<&Path> {
        self.run.json.as_deref()
    }

    fn measure(&self, context: &Context<'_>) -> Result<Record> {
        let mut contenders = chosen(&self.steps.mechanism, TO_FILE);
        contenders.extend(find("cp").map(|_| Contender::Cp));
        let at_steps = at_steps(&contenders, &self.steps.step);
        let variants = once([TRADITIONAL].into_iter().chain(at_steps));
        let comparison = Comparison {
            about: &COPY,
            run: &self.run,
            sizes: &self.sizes,
            steps: &self.steps.step,
            cold: self.steps.cold,
            to: self.steps.to.as_deref(),
            no_count: self.no_count,
        };
        comparison.measure(contenders, variants, context)
    }
}

impl Benchmark for SmallCopyArgs {
    fn json(&self) -> Option<&Path> {
        self.run.json.as_deref()
    }

    fn measure(&self, context: &Context<'_>) -> Result<Record> {
        let peers = [Contender::CReadWrite, Contender::CSendfile];
        let peers = peers.into_iter().flat_map(|peer| without(peer, &self.step));
        let ours = at_steps(&chosen(&self.mechanism, TO_FILE), &self.step);
        let variants: Vec<_> = peers.chain(ours).chain([Variant::plain(Contender::Cp)]).collect();
        let comparison = Comparison {
            about: &ARTICLE_COPY,
            run: &self.run,
            sizes: &self.sizes,
            steps: &self.step,
            cold: self.cold,
            to: self.to.as_deref(),
            no_count: self.no_count,
        };
        comparison.measure(Vec::new(), variants, context)
    }
}

/// What is compared.
struct Comparison<'a> {
    about: &'static Description,
    run: &'a RunArgs,
    sizes: &'a [u64],
    steps: &'a [Step],
    cold: bool,
    to: Option<&'a Path>,
    no_count: bool,
}

impl Comparison<'_> {
    /// Measures those variants that can be, the first of which is the baseline.
    fn measure(
        &self,
        mechanisms: Vec<Contender>,
        variants: Vec<Variant>,
        context: &Context<'_>,
    ) -> Result<Record> {
        let (source, target) = folders(&self.run.dir, self.to, self.sizes)?;
        let programs =
            PeerPrograms::open(&source, variants.iter().map(|variant| variant.contender))?;
        let cores = Cores::available();
        let cp = find("cp").and_then(|cp| version(&cp));
        let (tracer, mut missing) = Tracer::unless(self.no_count, &source);
        let has_cp = cp.is_some();
        if !has_cp && self.about.expected.is_empty() {
            missing.push(Missing { name: "cp".to_owned(), why: "not installed".to_owned() });
        }
        missing.extend(programs.missing.iter().cloned());
        let is_there = |variant: &Variant| {
            programs.has(variant.contender) && (has_cp || variant.contender != Contender::Cp)
        };
        let variants: Vec<_> = variants.into_iter().filter(is_there).collect();
        let baseline = first(&variants)?;
        let mechanisms = match mechanisms.is_empty() {
            true => once(variants.iter().map(|variant| variant.contender)),
            false => mechanisms,
        };
        let environment = Environment {
            cp,
            programs: programs.versions.clone(),
            ..survey(cores, source.path(), Some(target.path()))
        };
        let arguments = Arguments {
            mechanisms,
            steps: self.steps.to_vec(),
            cold: self.cold,
            side: Role::Copier,
            ..self.run.arguments(self.sizes)
        };
        let mut plan = Plan { arguments, environment, missing, ..Plan::default() };
        plan.for_sizes(&variants);
        let mut copy = Copy {
            about: self.about,
            context,
            source,
            target,
            noise: Noise::new(largest(self.sizes))?,
            programs,
            cold: self.cold,
            tracer,
            cores,
            sha256: String::new(),
        };
        plan.measure(&mut copy, baseline, context)
    }
}

/// A file to another file.
#[derive(Debug)]
struct Copy<'a> {
    about: &'static Description,
    context: &'a Context<'a>,
    source: Folder,
    target: Folder,
    noise: Noise,
    /// The programs of the articles, if any take part.
    programs: PeerPrograms,
    /// Whether the source is to be out of the page cache.
    cold: bool,
    tracer: Option<Tracer>,
    cores: Cores,
    /// The source's digest.
    sha256: String,
}

impl Scenario for Copy<'_> {
    fn description(&self) -> &'static Description {
        self.about
    }

    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        self.sha256 = self.noise.write(&self.source.file(SOURCE), cell.size)?;
        Ok(())
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verdict> {
        let finished = self.copy(cell, None)?;
        if !finished.status.success() {
            return match declined(&finished.stdout, cell.variant.contender) {
                Some(errno) => Ok(Verdict::Declined(errno)),
                None => Err(finished.failure(cell.variant.to_string())),
            };
        }
        let target = self.target.file(TARGET);
        let arrived = digest(&target)?;
        self.target.clear(&target)?;
        Verdict::compare(arrived, &self.sha256, cell.variant)
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        let finished = self.succeeded(cell, None)?;
        let wall_s = finished.cost.wall_s;
        let (elapsed_s, thread) = match cell.variant.contender {
            Contender::Cp => (wall_s, None),
            peer if peer.is_peer() => {
                (PeerReport::read(&finished, cell.variant, cell.size)?.elapsed_s, None)
            }
            ours => {
                let receipt = checked_receipt(&finished, cell.size, Some(ours))?;
                (receipt.elapsed_s, Some(Thread::from(&receipt)))
            }
        };
        let side = Side { thread, ..Side::process(Role::Copier, elapsed_s, finished.cost) };
        Ok(Measured::new(wall_s, side, None))
    }

    fn count(&mut self, cell: &Cell) -> Result<Vec<Tally>> {
        let Some(tracer) = &self.tracer else { return Ok(Vec::new()) };
        self.succeeded(cell, Some(tracer))?;
        Ok(vec![tracer.tally(Role::Copier)?])
    }
}

impl Copy<'_> {
    fn succeeded(&self, cell: &Cell, tracer: Option<&Tracer>) -> Result<Finished> {
        let finished = self.copy(cell, tracer)?;
        match finished.status.success() {
            true => Ok(finished),
            false => Err(finished.failure(cell.variant.to_string())),
        }
    }

    /// One file to another, which was not there before.
    fn copy(&self, cell: &Cell, tracer: Option<&Tracer>) -> Result<Finished> {
        let (source, target) = (self.source.file(SOURCE), self.target.file(TARGET));
        self.target.clear(&target)?;
        if self.cold {
            drop_cached(&source)?;
        }
        let buffer = match cell.variant.step {
            Step::Bytes(bytes) => bytes,
            Step::Default | Step::Whole => 0,
        };
        let contender = cell.variant.contender;
        let peer = self.programs.copier(contender, buffer, &source, &target);
        let command = peer.unwrap_or_else(|| {
            let mut command = match contender {
                Contender::Cp => Command::new("cp"),
                _ => {
                    let mut command = self.context.program();
                    command.args(["cp", "--json"]).args(cell.variant.arguments(cell.size));
                    command
                }
            };
            command.arg(&source).arg(&target);
            command
        });
        let command = traced(tracer, command, Role::Copier);
        Running::start(command, self.cores.first)?.finish(None, self.context.cancel)
    }
}

/// `bench copy`.
pub(super) const COPY: Description = Description {
    name: "copy",
    command: "copy",
    cpu: Cpu::Process,
    expected: &["cp"],
    subject: |record| {
        let target = record.environment.target_file_system.as_deref().unwrap_or_default();
        format!("file on {} to file on {target}", record.environment.source_file_system)
    },
    caption: |_| "Time from the start of the process to its end".to_owned(),
    metrics: &[&TIME, &CPU, &CALLS, &SWITCHES, &FAULTS, &USER_SPACE, &SPEED],
    ..Description::NONE
};

/// `bench article-copy`.
pub(super) const ARTICLE_COPY: Description =
    Description { name: "article_copy", command: "article-copy", expected: &[], ..COPY };

/// The contenders from a file to a file.
const TO_FILE: &[Contender] = &[
    Contender::Auto,
    Contender::Only(Mechanism::Reflink),
    Contender::Only(Mechanism::CopyFileRange),
    Contender::Only(Mechanism::Sendfile),
    Contender::Only(Mechanism::Splice),
    Contender::Only(Mechanism::Mmap),
    Contender::Only(Mechanism::ReadWrite),
];

/// The source's name in its folder.
const SOURCE: &str = "source";

/// The target's name in its folder.
const TARGET: &str = "target";
