//! Reasons to doubt a record, which a reader should see before its tables.

use super::metric::{LOAD_BUSY, SERVER_BUSY};
use super::{Contender, Metric, MissingContender, ProcessCost, Record, Sample};

/// Returns each reason, as a sentence.
pub(crate) fn warnings(record: &Record) -> Vec<String> {
    let mut found = Vec::new();
    if !record.environment.optimized {
        found.push("the program was built without optimization".to_owned());
    }
    if record.arguments.runs < MIN_RUNS {
        found.push(format!("fewer than {MIN_RUNS} rounds: a median of them says little"));
    }
    if record.arguments.warmup == 0 {
        found.push("no round to warm up: the first one counts".to_owned());
    }
    let checks = [too_short, noisy, busy, one_core, paced, page_cache, exhausted_load, little_cpu];
    found.extend(checks.iter().filter_map(|check| check(record)));
    let absent = missing(record).into_iter();
    found.extend(
        absent.map(|name| format!("{name} is not installed: it is missing from the comparison")),
    );
    let missing = record.missing.iter();
    found.extend(missing.map(|MissingContender { name, why }| format!("without {name}: {why}")));
    found
}

/// Returns the requested contenders that were not installed.
fn missing(record: &Record) -> Vec<&str> {
    let is_absent = |program: &Contender| match program {
        Contender::Cp => record.environment.cp.is_none(),
        _ => record.environment.nginx.is_none(),
    };
    let expected = record.about.expected.filter(is_absent).map(Contender::name);
    let transfers = record.arguments.transfers.iter().flat_map(|transfers| &transfers.missing);
    let copies = record.copies.iter().flat_map(|copies| &copies.missing);
    expected.into_iter().chain(transfers.chain(copies).map(String::as_str)).collect()
}

/// Names cells whose samples are too short for the start of a process not to matter.
fn too_short(record: &Record) -> Option<String> {
    let cells = names(record, |index| {
        let wall = record.median(index, |sample| Some(sample.wall_s));
        wall.is_some_and(|wall| wall < MIN_TIME_S)
    })?;
    Some(format!("too short to be exact (under {:.0} ms): {cells}", MIN_TIME_S * 1e3))
}

fn noisy(record: &Record) -> Option<String> {
    let cells = names(record, |index| {
        let wall = record.summary_by(index, |sample| Some(record.each(sample, sample.wall_s)));
        wall.is_some_and(|wall| wall.min > 0.0 && wall.max / wall.min > MAX_SPREAD)
    })?;
    Some(format!("noisy, the slowest sample over {MAX_SPREAD} times the fastest: {cells}"))
}

/// Returns how much other processes used the machine, if they did before or during the run.
fn busy(record: &Record) -> Option<String> {
    let cores = record.environment.cores as f64;
    let sum = |value: fn(&Sample) -> f64| record.samples.iter().map(value).sum::<f64>();
    let available = sum(|sample| sample.watched_s) * cores;
    let others = sum(|sample| sample.other_cpu_s) / available.max(f64::MIN_POSITIVE);
    if others > MAX_OTHERS {
        let percent = others * 100.0;
        return Some(format!(
            "other processes used {percent:.0} % of the processor time during the run"
        ));
    }
    let load = record.environment.load_average[0];
    (load > cores / 2.0).then(|| format!("the load average was {load:.2} when it began"))
}

fn one_core(record: &Record) -> Option<String> {
    let both = record.about.cores?;
    let is_shared = record.environment.first_core == record.environment.second_core;
    is_shared.then(|| format!("{both} shared one core"))
}

/// Warns if congestion control held the connections back.
fn paced(record: &Record) -> Option<String> {
    let name = record.environment.congestion.as_ref()?;
    name.starts_with("bbr")
        .then(|| format!("{name} paces: on loopback that costs more than moving the bytes"))
}

/// Warns if the source was read from disk in a warm run, or from memory in a cold one.
fn page_cache(record: &Record) -> Option<String> {
    let reads = |process: &ProcessCost| process.storage_read_bytes as f64;
    let (mut read, mut size) = (0.0, 0.0);
    for sample in &record.samples {
        let sides = [Some(&sample.measured), sample.peer.as_ref()].into_iter().flatten();
        let processes = sides.filter_map(|side| side.process.as_ref());
        read += processes.map(reads).sum::<f64>();
        size += match &sample.served {
            Some(served) => served.bytes().unwrap_or(0) as f64,
            None => record.cells[sample.cell].size as f64,
        };
    }
    if size == 0.0 || record.arguments.responses.is_some() {
        return None;
    }
    let percent = read / size * 100.0;
    match record.arguments.cold {
        true if percent < 90.0 => Some(format!(
            "only {percent:.0} % of the source came from the disk, so it was not cold"
        )),
        false if percent > 5.0 => {
            Some(format!("{percent:.0} % of the source came from the disk, so it was not warm"))
        }
        _ => None,
    }
}

/// Names cells in which the server had to wait for its load.
fn exhausted_load(record: &Record) -> Option<String> {
    let cells = names(record, |index| {
        let median = |metric: &Metric| {
            record.median(index, |sample| metric.value(record, sample)).unwrap_or(0.0)
        };
        record.about.saturates && median(&LOAD_BUSY) > SATURATED && median(&SERVER_BUSY) < SATURATED
    })?;
    Some(format!("requests per second are limited by the load: {cells}"))
}

/// Names cells whose servers hardly worked: the kernel updates the processor time of a running
/// thread only every few milliseconds.
fn little_cpu(record: &Record) -> Option<String> {
    let cells = names(record, |index| {
        let cpu_s = |sample: &Sample| sample.measured.process.map(|process| process.cpu_s);
        record.about.saturates && record.median(index, cpu_s).is_some_and(|cpu_s| cpu_s < MIN_CPU_S)
    })?;
    Some(format!("under {:.0} ms of processor time in a sample: {cells}", MIN_CPU_S * 1e3))
}

/// Returns the names of the cells for which `is_true` holds, by size; `None` if there is no such.
fn names(record: &Record, is_true: impl Fn(usize) -> bool) -> Option<String> {
    let mut names = Vec::new();
    for size in record.sizes() {
        let of_size = |index: &usize| record.cells[*index].size == size;
        let (mut measured, mut found) = (0, Vec::new());
        for index in (0..record.cells.len()).filter(of_size) {
            measured += usize::from(record.cells[index].declined.is_none());
            if is_true(index) {
                found.push(record.label(index));
            }
        }
        let size = match record.scenario.as_str() {
            "tree" => "the folder".to_owned(),
            _ => record.about.size_label(size),
        };
        if !found.is_empty() && found.len() == measured {
            names.push(format!("{size} all"));
        } else if !found.is_empty() {
            names.push(format!("{size} {}", found.join(", ")));
        }
    }
    (!names.is_empty()).then(|| names.join("; "))
}

/// Starting and ending a connection takes a part of a millisecond.
const MIN_TIME_S: f64 = 0.005;

/// The maximum ratio of the slowest sample to the fastest.
const MAX_SPREAD: f64 = 2.0;

/// The share of a core from which on it counts as saturated.
const SATURATED: f64 = 0.93;

/// The minimum processor seconds, of which some milliseconds are one percent.
const MIN_CPU_S: f64 = 0.4;

/// The part of all processor time that others may use.
const MAX_OTHERS: f64 = 0.1;

/// The minimum number of rounds: with fewer, the median is an extreme, or hardly better.
const MIN_RUNS: u32 = 3;
