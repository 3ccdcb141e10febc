//! From what was typed to a record.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::arguments::CpArgs;
use super::copiers::{Copier, Words, program};
use super::course::{Copying, begin, drop_caches};
use super::original::Original;
use super::record::{Chilled, Commands, Copies, Earlier, Kind};
use crate::arguments::WayArgs;
use crate::child::Cores;
use crate::counter::Counter;
use crate::data::Folder;
use crate::environment::{cp_version, survey};
use crate::error::{BenchError, Result};
use crate::plan::Variant;
use crate::record::{Arguments, Environment, Record, Role, Scenario};
use crate::rounds::{Results, Schedule};
use crate::scenarios::{self, once};
use crate::transfer::{find, version};
use crate::way::{Step, Way};

/// Measures programs that copy.
///
/// # Errors
///
/// Whatever keeps it from measuring, verifying or counting; see [`BenchError`](crate::BenchError).
pub fn cp(args: &CpArgs, cancel: &AtomicBool) -> Result<Record> {
    let original = args.original();
    let (ways, missing) = available(&args.ways());
    if ways.is_empty() {
        return Err(BenchError::Usage(format!("{} is not installed", missing.join(", "))));
    }
    let place = Folder::create(&args.run.dir)?;
    let target = Folder::create(args.to.as_deref().unwrap_or(&args.run.dir))?;
    place.require_space(original.room())?;
    let largest = match original {
        Original::File(len) => len,
        Original::Sparse { data, .. } => data,
        _ => 16 << 20,
    };
    let content = begin(&original, &place, largest)?;
    let copies = u64::from(2 + args.run.warmup + args.run.runs) * ways.len() as u64;
    let room = content.allocated.max(content.files * PAGE);
    target.require_space(room)?;
    let earlier = earlier(&original, &target, room.saturating_mul(copies));
    let chilled = args.cold.then(|| match drop_caches() {
        Ok(()) => Chilled::AllCaches,
        Err(_) => Chilled::PageCache,
    });
    let environment = Environment {
        cp: cp_version(),
        programs: ways.iter().filter_map(|way| peer_version(*way)).collect(),
        ..survey(Cores::available(), &original.path(&place), Some(target.path()))
    };
    let sizes = match &original {
        Original::File(_) => once(&args.sizes()),
        _ => vec![content.bytes],
    };
    let step = vec![Step::Default];
    let movement = WayArgs { mechanism: Vec::new(), step, cold: args.cold, to: None };
    let asked = scenarios::asked(&args.run, &movement, &sizes, &[]);
    let arguments = Arguments { mechanisms: ways.clone(), side: Role::Copier, ..asked };
    let told = Copies {
        original: kind(&original),
        files: content.files,
        allocated_bytes: content.allocated,
        chilled,
        earlier,
        commands: commands(&ways, original.is_folder()),
        missing: missing.into_iter().map(str::to_owned).collect(),
    };
    let baseline = Variant::new(Way::Copier(Copier::Cp), Step::Default);
    let record = scenarios::begin(Scenario::Cp, arguments, environment, baseline);
    let variants = ways.iter().map(|way| Variant::new(*way, Step::Default)).collect();
    let Arguments { runs, warmup, .. } = record.arguments;
    let schedule = Schedule { sizes, variants, warmup, runs };
    let sha256 = Default::default();
    let (counter, missing) = Counter::unless(args.no_count, &target);
    let mut course = Copying {
        place,
        target,
        original,
        content,
        sha256,
        chilled,
        earlier,
        counter,
        turn: 0,
        cancel,
    };
    let Results { cells, samples, counted } = schedule.run(&mut course, cancel)?;
    Ok(Record { copies: Some(told), cells, samples, counted, missing, ..record })
}

/// The ways whose programs are there, each once, and the programs that are not.
fn available(asked: &[Way]) -> (Vec<Way>, Vec<&'static str>) {
    let (mut ways, mut missing) = (Vec::new(), Vec::new());
    for way in asked.iter().copied() {
        match program(way).filter(|name| find(name).is_none()) {
            Some(name) => missing.push(name),
            None if !ways.contains(&way) => ways.push(way),
            None => {}
        }
    }
    (ways, missing)
}

/// What becomes of earlier copies: of folders, whose removal would be paid for by the next, they
/// stay as long as there is room for all of them.
fn earlier(original: &Original, target: &Folder, room: u64) -> Earlier {
    match original.is_folder() && target.require_space(room).is_ok() {
        true => Earlier::Stay,
        false => Earlier::Removed,
    }
}

/// What a program calls itself; cp has a field of its own.
fn peer_version(way: Way) -> Option<String> {
    let name = program(way).filter(|name| *name != "cp")?;
    version(&find(name)?)
}

fn commands(ways: &[Way], is_folder: bool) -> Vec<Commands> {
    let command = |way: Way| {
        let from = if way == Way::Copier(Copier::Dense) { "DENSE" } else { "ORIGINAL" };
        Words::new(way, is_folder, Path::new(from), Path::new("COPY")).to_string()
    };
    ways.iter().map(|way| Commands { way: *way, command: command(*way) }).collect()
}

const fn kind(original: &Original) -> Kind {
    match original {
        Original::File(_) => Kind::File,
        Original::Folder(_) => Kind::Folder,
        Original::Forest(_) => Kind::SmallFiles,
        Original::Sparse { .. } => Kind::Sparse,
    }
}

const PAGE: u64 = 4 << 10;
