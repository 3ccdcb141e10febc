//! The samples: a server anew for each, the good client alone, then beside the bad ones.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use underpass_engine::Usage;

use super::arguments::HostileArgs;
use super::crowd::Crowd;
use super::good;
use super::load::Kind;
use super::record::Hostile;
use crate::child::stay_on;
use crate::error::Result;
use crate::plan::Variant;
use crate::record::{Cell, Record, Sample, Scenario};
use crate::rounds::{Measured, Results, Schedule, interrupted, progress, sampled};
use crate::scenarios::once;
use crate::serve::{
    Host, Run, Served, Server, Spent, Stage, Window, allow_open_files, peak, setting, wire_tls,
};
use crate::way::Way;

/// Measures what was typed.
///
/// # Errors
///
/// Whatever keeps it from measuring, verifying or counting; see [`BenchError`](crate::BenchError).
pub fn run(args: &HostileArgs, cancel: &AtomicBool) -> Result<Record> {
    let run = Run::begin(Scenario::Hostile, &args.common, &[SMALL_BYTES])?;
    let files = u64::from(args.connections) * 2 + SPARE_FILES;
    allow_open_files(files)?;
    let kinds = if args.loads.is_empty() { Kind::all() } else { once(&args.loads) };
    let setting = setting(args.connections, &args.common);
    run.measure_by(setting, cancel, |stage, schedule| Besieged { stage, kinds }.run(schedule))
}

/// All kinds of bad clients.
struct Besieged<'a> {
    stage: Stage<'a>,
    kinds: Vec<Kind>,
}

impl Besieged<'_> {
    fn run(mut self, schedule: &Schedule) -> Result<Results> {
        let sha256 = self.stage.make(SMALL, SMALL_BYTES)?;
        self.stage.site.encrypt()?;
        let mut cells = Vec::new();
        for load in self.kinds.clone() {
            load.load().prepare(&mut self.stage)?;
            for variant in &schedule.variants {
                if variant.way == Way::Nginx && load.load().nginx().is_none() {
                    continue;
                }
                cells.push(Cell {
                    size: SMALL_BYTES,
                    variant: *variant,
                    sha256: Some(sha256.clone()),
                    declined: None,
                    connections: None,
                    load: Some(load),
                });
            }
        }
        let samples = self.samples(&cells, schedule)?;
        Ok(Results { cells, samples, counted: Vec::new() })
    }

    fn samples(&mut self, cells: &[Cell], schedule: &Schedule) -> Result<Vec<Sample>> {
        let rounds = schedule.warmup + schedule.runs;
        let bar = progress(u64::from(rounds) * cells.len() as u64);
        let mut samples = Vec::new();
        for round in 0..rounds {
            for (index, cell) in cells.iter().enumerate() {
                interrupted(self.stage.cancel)?;
                let Some(kind) = cell.load else { continue };
                bar.set_message(kind.name());
                let sample = sampled(index, || self.measure(kind, cell.variant))?;
                if round >= schedule.warmup {
                    samples.push(Sample { round: round - schedule.warmup + 1, ..sample });
                }
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(samples)
    }

    fn measure(&mut self, kind: Kind, variant: Variant) -> Result<Measured> {
        let load = kind.load();
        let spare = if load.fills_server() { 0 } else { SPARE_CONNECTIONS };
        self.stage.site.connections = Some(self.stage.setting.connections + spare);
        self.stage.site.is_encrypted = load.is_encrypted();
        self.stage.tls = if load.is_encrypted() { Some(wire_tls()?) } else { None };
        let server = match variant.way {
            Way::Nginx => load.nginx().unwrap_or(crate::serve::Kind::Nginx),
            _ => load.ours(),
        };
        let server = self.stage.site.start(&server)?;
        let host = self.stage.host(&server);
        let outcome = self.sample(kind, &server, &host);
        let (spent, load, hostile) = outcome.map_err(|error| server.failure(&error))?;
        let (measured, peer) = spent.sides();
        Ok(Measured {
            wall_s: spent.elapsed_s(),
            measured,
            peer: Some(peer),
            served: Some(Served::Hostile(hostile)),
            besides_cpu_s: (load.user + load.system).as_secs_f64(),
        })
    }

    /// The good client on its thread, and beside it the bad ones on theirs, which gives way.
    fn sample(
        &self,
        kind: Kind,
        server: &Server,
        host: &Host,
    ) -> io::Result<(Spent, Usage, Hostile)> {
        let (time, cancel) = (self.stage.time(), self.stage.cancel);
        let request = kind.load().good_request(host, &format!("/{SMALL}"));
        let ask = |time| good::ask(host, &request, SMALL_BYTES, time, cancel);
        let crowd = Crowd::default();
        let (crowd, count) = (&crowd, self.stage.setting.connections);
        std::thread::scope(|scope| {
            let core = self.stage.cores.second;
            let measuring = scope.spawn(move || {
                stay_on(core);
                ask(WARM_UP)?;
                let alone = ask(time)?;
                let start_bytes = server.memory().resident_bytes;
                let bad = scope.spawn(move || {
                    stay_on(core);
                    // A thread has a niceness of its own; a refusal changes little.
                    let _ = rustix::process::setpriority_process(None, NICENESS);
                    crowd.run(kind.load(), host, count)
                });
                let coming = Instant::now();
                while !crowd.has_come.load(Ordering::Relaxed) && coming.elapsed() < MOST_COMING {
                    std::thread::sleep(Duration::from_millis(10));
                }
                let window = Window::open(server);
                let beside = ask(time);
                let spent = window.close(server);
                let peak_bytes = peak(&server.processes());
                let open = crowd.open.load(Ordering::Relaxed);
                crowd.is_over.store(true, Ordering::Relaxed);
                let bad = bad.join().map_err(|_| io::Error::other("the load panicked"))??;
                let begun = crowd.begun.load(Ordering::Relaxed);
                let beside = beside?;
                let hostile = Hostile { alone, beside, open, begun, start_bytes, peak_bytes };
                Ok((spent, bad, hostile))
            });
            measuring.join().map_err(|_| io::Error::other("the good client panicked"))?
        })
    }
}

/// The file that the good client asks for.
const SMALL: &str = "small";

/// Its size.
const SMALL_BYTES: u64 = 10 << 10;

/// Connections that the server may have besides those of bad clients that keep it busy.
const SPARE_CONNECTIONS: u32 = 64;

/// Files that programs have open for themselves.
const SPARE_FILES: u64 = 512;

const WARM_UP: Duration = Duration::from_millis(300);

/// How long the bad clients may take to come before the good one asks beside them.
const MOST_COMING: Duration = Duration::from_secs(10);

/// The bad clients go behind the good one, as they share its core.
const NICENESS: i32 = 10;
