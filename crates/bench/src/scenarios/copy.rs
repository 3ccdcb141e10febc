//! `bench copy` and `bench article-copy`: a file to another file by one process, ours or another.
//! The whole lifetime of the process is measured, as other programs report nothing less.

use std::process::Command;

use clap::Args;
use underpass_engine::Mechanism;

use super::{TRADITIONAL, checked_receipt, declined, first, variants_at};
use crate::error::Result;
use crate::options::{Measure, StepArgs, bytes};
use crate::programs::{SocketPrograms, reported_seconds};
use crate::record::{
    CALLS, CPU, Cell, Contender, Counted, Description, FAULTS, Record, Role, SPEED, SWITCHES, Side,
    TIME, ThreadCost, USER_SPACE, Variant, at_steps, chosen, unique,
};
use crate::run::{
    CallTracer, Finished, Measured, Running, SampleEnds, Scenario, Start, Verification,
    file_system, find, traced, version,
};

/// The arguments of `bench copy`.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// Measure files of these sizes
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "1G")]
    sizes: Vec<u64>,

    #[command(flatten)]
    steps: StepArgs,

    /// Do not count system calls in a separate pass
    #[arg(long)]
    no_count: bool,
}

/// The arguments of `bench article-copy`.
#[derive(Debug, Args)]
#[command(mut_arg("step", |arg| arg.default_value("4K").display_order(0)
    .help("Copy through a buffer of this many bytes, or ask for as many in one system call")))]
#[command(mut_arg("mechanism", |arg| arg.default_value("auto,sendfile,read_write")
    .help("Measure these mechanisms of ours, without fallbacks; auto for the best one, which takes \
           no step")))]
pub struct SmallCopyArgs {
    #[command(flatten)]
    copy: CopyArgs,
}

impl Measure for CopyArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let mut contenders = chosen(&self.steps.mechanism, TO_FILE);
        contenders.extend(find("cp").map(|_| Contender::Cp));
        let at_steps = at_steps(&contenders, &self.steps.step);
        let variants = unique([TRADITIONAL].into_iter().chain(at_steps));
        self.measure_variants(start, &COPY, &contenders, variants)
    }
}

impl Measure for SmallCopyArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let StepArgs { mechanism, step, .. } = &self.copy.steps;
        let others = [Contender::CReadWrite, Contender::CSendfile];
        let others = others.into_iter().flat_map(|it| variants_at(it, step));
        let ours = at_steps(&chosen(mechanism, TO_FILE), step);
        let variants = others.chain(ours).chain([Variant::plain(Contender::Cp)]).collect();
        self.copy.measure_variants(start, &ARTICLE_COPY, &[], variants)
    }
}

impl CopyArgs {
    /// Measures those variants that can be, the first of which is the baseline. The record names
    /// the requested contenders, or those that were measured if none was requested.
    fn measure_variants(
        &self,
        start: Start<'_>,
        about: &'static Description,
        requested: &[Contender],
        mut variants: Vec<Variant>,
    ) -> Result<Record> {
        let Self { sizes, steps: StepArgs { step, cold, to, .. }, no_count } = self;
        let (ends, mut plan) = SampleEnds::open(start, to.as_deref(), sizes, *cold, *no_count)?;
        let cp = find("cp").and_then(|cp| version(&cp));
        if cp.is_none() && about.expected.is_none() {
            plan.add_missing(["cp"], "not installed");
        }
        let programs = SocketPrograms::open(&ends.source, &mut variants, &mut plan)?;
        variants.retain(|variant| cp.is_some() || variant.contender != Contender::Cp);
        let baseline = first(&variants)?;
        plan.arguments.mechanisms = match requested {
            [] => unique(variants.iter().map(|variant| variant.contender)),
            requested => requested.to_vec(),
        };
        plan.arguments.steps.clone_from(step);
        plan.arguments.side = Role::Copier;
        plan.environment.cp = cp;
        plan.environment.target_file_system = Some(file_system(ends.target.path()));
        plan.for_sizes(&variants);
        plan.measure(about, &mut Copy { ends, programs }, baseline)
    }
}

#[derive(Debug)]
struct Copy<'a> {
    ends: SampleEnds<'a>,
    programs: SocketPrograms,
}

impl Scenario for Copy<'_> {
    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        self.ends.create_source(cell.size)
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verification> {
        let finished = self.copy(cell, None)?;
        match declined(&finished, cell.variant.contender) {
            Some(errno) => return Ok(Verification::Declined(errno)),
            None => finished.succeeded(cell.variant)?,
        };
        self.ends.verify(cell.variant)
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        let finished = self.copy(cell, None)?.succeeded(cell.variant)?;
        let wall_s = finished.cost.wall_s;
        let (elapsed_s, thread) = match cell.variant.contender {
            Contender::Cp => (wall_s, None),
            other if other.is_socket_program() => {
                (reported_seconds(&finished, cell.variant, cell.size)?, None)
            }
            ours => {
                let receipt = checked_receipt(&finished, cell.size, Some(ours))?;
                (receipt.elapsed_s, Some(ThreadCost::from(&receipt)))
            }
        };
        let side = Side { thread, ..Side::process(Role::Copier, elapsed_s, finished.cost) };
        Ok(Measured::new(wall_s, side, None))
    }

    fn count(&mut self, cell: &Cell, tracer: &CallTracer) -> Result<Vec<Counted>> {
        self.copy(cell, Some(tracer))?.succeeded(cell.variant)?;
        Ok(vec![tracer.tally(Role::Copier)?])
    }
}

impl Copy<'_> {
    /// Copies the source to a new target.
    fn copy(&self, cell: &Cell, tracer: Option<&CallTracer>) -> Result<Finished> {
        let (source, target) = (self.ends.from(), self.ends.to());
        self.ends.reset()?;
        let contender = cell.variant.contender;
        let buffer = cell.variant.step.bytes().unwrap_or(0);
        let other = self.programs.copier(contender, buffer, &source, &target);
        let command = other.unwrap_or_else(|| {
            let mut command = match contender {
                Contender::Cp => Command::new("cp"),
                _ => {
                    let mut command = self.ends.context.program();
                    command.args(["cp", "--json"]).args(cell.variant.arguments(cell.size));
                    command
                }
            };
            command.arg(&source).arg(&target);
            command
        });
        let command = traced(tracer, command, Role::Copier);
        Running::start(command, Some(self.ends.cores.first))?.finish(None, self.ends.context.cancel)
    }
}

pub(super) const COPY: Description = Description {
    name: "copy",
    command: "copy",
    expected: Some(Contender::Cp),
    subject: |record| {
        let target = record.environment.target_file_system.as_deref().unwrap_or_default();
        format!("file on {} to file on {target}", record.environment.source_file_system)
    },
    caption: |_| "Time from the start of the process to its end".to_owned(),
    metrics: &[&TIME, &CPU, &CALLS, &SWITCHES, &FAULTS, &USER_SPACE, &SPEED],
    ..Description::NONE
};

pub(super) const ARTICLE_COPY: Description =
    Description { name: "article_copy", command: "article-copy", expected: None, ..COPY };

const TO_FILE: &[Contender] = &[
    Contender::Auto,
    Contender::Only(Mechanism::Reflink),
    Contender::Only(Mechanism::CopyFileRange),
    Contender::Only(Mechanism::Sendfile),
    Contender::Only(Mechanism::Splice),
    Contender::Only(Mechanism::Mmap),
    Contender::Only(Mechanism::ReadWrite),
];
