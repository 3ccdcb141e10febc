//! Reasons to doubt a record: whoever reads a table should know them before they believe it.

use super::counted::Missing;
use super::names::variant_label;
use super::record::{Process, Record, Sample, Scenario};
use super::serve::{load_busy, server_busy};
use super::statistics::{Metric, summarize};
use super::way::short_size;

/// Each reason, as a sentence.
pub(crate) fn warnings(record: &Record) -> Vec<String> {
    let mut found = Vec::new();
    if !record.environment.optimized {
        found.push("the program was built without optimization".to_owned());
    }
    if record.arguments.runs < FEW_RUNS {
        found.push(format!("fewer than {FEW_RUNS} rounds: a median of them says little"));
    }
    if record.arguments.warmup == 0 {
        found.push("no round to warm up: the first one counts".to_owned());
    }
    found.extend(too_short(record));
    found.extend(noisy(record));
    found.extend(busy(record));
    found.extend(one_core(record));
    found.extend(paced(record));
    found.extend(page_cache(record));
    found.extend(exhausted_load(record));
    found.extend(little_cpu(record));
    found.extend(
        missing(record)
            .into_iter()
            .map(|peer| format!("{peer} is not installed: it is missing from the comparison")),
    );
    let missing = record.missing.iter();
    found.extend(missing.map(|Missing { name, why }| format!("without {name}: {why}")));
    found
}

/// The peers that should have been measured and were not there.
fn missing(record: &Record) -> Vec<&str> {
    let environment = &record.environment;
    match record.scenario {
        Scenario::Copy => environment.cp.is_none().then_some("cp").into_iter().collect(),
        Scenario::Hostile
        | Scenario::Serve
        | Scenario::ServeFairness
        | Scenario::ServeHandshakes
        | Scenario::ServeIdle => {
            environment.nginx.is_none().then_some("nginx").into_iter().collect()
        }
        Scenario::Get | Scenario::Put | Scenario::Tree => {
            let transfers = record.arguments.transfers.iter();
            transfers.flat_map(|transfers| &transfers.missing).map(String::as_str).collect()
        }
        Scenario::ArticleChunks
        | Scenario::ArticleCopy
        | Scenario::ArticleTable
        | Scenario::Chain
        | Scenario::Limit
        | Scenario::Net
        | Scenario::Scale => Vec::new(),
        Scenario::Cp => {
            let copies = record.copies.iter();
            copies.flat_map(|copies| &copies.missing).map(String::as_str).collect()
        }
    }
}

/// Cells whose samples are over before a process is well under way.
fn too_short(record: &Record) -> Option<String> {
    let cells = names(record, |index| {
        let all = record.samples_of(index).map(|sample| sample.wall_s);
        summarize(all).is_some_and(|wall| wall.median < SHORT_S)
    });
    let limit = SHORT_S * 1e3;
    (!cells.is_empty())
        .then(|| format!("too short, under {limit:.0} ms, to be exact: {}", cells.join("; ")))
}

/// Cells whose samples differ too much among themselves.
fn noisy(record: &Record) -> Option<String> {
    let cells = names(record, |index| {
        record
            .summary(index, Metric::Wall)
            .is_some_and(|wall| wall.min > 0.0 && wall.max / wall.min > NOISY)
    });
    (!cells.is_empty()).then(|| {
        format!("noisy, the slowest sample over {NOISY} times the fastest: {}", cells.join("; "))
    })
}

/// Whether others used the machine, before or meanwhile.
fn busy(record: &Record) -> Option<String> {
    let cores = record.environment.cores as f64;
    let sum = |value: fn(&Sample) -> f64| record.samples.iter().map(value).sum::<f64>();
    let available = sum(|sample| sample.watched_s) * cores;
    let others = sum(|sample| sample.other_cpu_s) / available.max(f64::MIN_POSITIVE);
    if others > BUSY {
        let percent = others * 100.0;
        return Some(format!("others used {percent:.0} % of the processor time meanwhile"));
    }
    let load = record.environment.load_average[0];
    (load > cores / 2.0).then(|| format!("the load average was {load:.2} when it began"))
}

fn one_core(record: &Record) -> Option<String> {
    let both = match record.scenario {
        Scenario::ArticleCopy | Scenario::Copy => return None,
        Scenario::ArticleChunks
        | Scenario::ArticleTable
        | Scenario::Chain
        | Scenario::Limit
        | Scenario::Net => "sender and receiver",
        Scenario::Hostile
        | Scenario::Scale
        | Scenario::Serve
        | Scenario::ServeFairness
        | Scenario::ServeHandshakes
        | Scenario::ServeIdle => "server and load",
        Scenario::Get | Scenario::Put | Scenario::Tree => "server and client",
        // They take what cores there are.
        Scenario::Cp => return None,
    };
    let is_shared = record.environment.first_core == record.environment.second_core;
    is_shared.then(|| format!("{both} shared one core"))
}

/// Whether the connections were held back by their congestion control.
fn paced(record: &Record) -> Option<String> {
    let name = record.environment.congestion.as_ref()?;
    name.starts_with("bbr")
        .then(|| format!("{name} paces: on loopback that costs more than moving the bytes"))
}

/// Whether the source was not where it should have been.
fn page_cache(record: &Record) -> Option<String> {
    let reads = |process: &Process| process.storage_read_bytes as f64;
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
    if size == 0.0 || record.scenario == Scenario::Chain {
        return None;
    }
    let percent = read / size * 100.0;
    match record.arguments.cold {
        true if percent < 90.0 => Some(format!(
            "only {percent:.0} % of the source came from the disk, so that it was not cold"
        )),
        false if percent > 5.0 => Some(format!(
            "{percent:.0} % of the source came from the disk, so that it was not warm"
        )),
        _ => None,
    }
}

/// Cells in which the server had to wait for its load.
fn exhausted_load(record: &Record) -> Option<String> {
    let cells = names(record, |index| {
        let median = |value: fn(&Sample) -> Option<f64>| record.median(index, value).unwrap_or(0.0);
        matches!(record.scenario, Scenario::Serve | Scenario::ServeHandshakes)
            && median(load_busy) > EXHAUSTED
            && median(server_busy) < EXHAUSTED
    });
    (!cells.is_empty()).then(|| {
        format!("requests in a second are as many as the load could make: {}", cells.join("; "))
    })
}

/// Cells whose servers have hardly worked: the kernel brings the account of a thread that runs up
/// to date in steps of some ms.
fn little_cpu(record: &Record) -> Option<String> {
    let cells = names(record, |index| {
        let cpu_s = |sample: &Sample| sample.measured.process.map(|process| process.cpu_s);
        matches!(record.scenario, Scenario::Serve | Scenario::ServeHandshakes)
            && record.median(index, cpu_s).is_some_and(|cpu_s| cpu_s < LITTLE_S)
    });
    let limit = LITTLE_S * 1e3;
    (!cells.is_empty())
        .then(|| format!("under {limit:.0} ms of processor time in a sample: {}", cells.join("; ")))
}

/// Names of the cells for which something is true: by size, with the ways behind it.
fn names(record: &Record, is_true: impl Fn(usize) -> bool) -> Vec<String> {
    let mut names = Vec::new();
    for size in record.sizes() {
        let of_size = |index: &usize| record.cells[*index].size == size;
        let (mut measured, mut found) = (0, Vec::new());
        for index in (0..record.cells.len()).filter(of_size) {
            measured += usize::from(record.cells[index].declined.is_none());
            if is_true(index) {
                found.push(variant_label(record, index));
            }
        }
        let size = match record.scenario {
            Scenario::Tree => "the folder".to_owned(),
            Scenario::Cp => indicatif::BinaryBytes(size).to_string(),
            _ => short_size(size),
        };
        if !found.is_empty() && found.len() == measured {
            names.push(format!("{size} all"));
        } else if !found.is_empty() {
            names.push(format!("{size} {}", found.join(", ")));
        }
    }
    names
}

/// Starting and ending a connection takes a part of a millisecond.
const SHORT_S: f64 = 0.005;

/// How many times the fastest sample the slowest one may take.
const NOISY: f64 = 2.0;

/// The part of a core from which on it is used up.
const EXHAUSTED: f64 = 0.93;

/// Processor seconds of which some ms are a hundredth.
const LITTLE_S: f64 = 0.4;

/// The part of all processor time that others may use.
const BUSY: f64 = 0.1;

/// With fewer the median is an extreme, or hardly better.
const FEW_RUNS: u32 = 3;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::fixture::{chain_record, net_record};
    use crate::serve::{fairness_record, requests_record};
    use crate::transfer::{get_record, put_record};

    fn with_runs(runs: u32) -> Record {
        let mut record = net_record();
        record.arguments.runs = runs;
        record
    }

    #[test]
    fn a_quiet_long_run_gives_no_reason_to_doubt() {
        assert!(warnings(&with_runs(5)).is_empty(), "{:?}", warnings(&with_runs(5)));
    }

    /// Sets the time of each sample of the cell of sendfile at 64K.
    fn set_times(record: &mut Record, time: impl Fn(u32) -> f64) {
        for sample in record.samples.iter_mut().filter(|sample| sample.cell == 3) {
            sample.wall_s = time(sample.round);
        }
    }

    fn set_reads(record: &mut Record, bytes: u64) {
        let sides = record.samples.iter_mut().map(|sample| &mut sample.measured);
        for process in sides.filter_map(|side| side.process.as_mut()) {
            process.storage_read_bytes = bytes;
        }
    }

    #[test]
    fn each_reason_is_named_with_what_it_is_about() {
        type Spoil = fn(&mut Record);
        let cases: [(Spoil, &str); 11] = [
            (|record| record.environment.optimized = false, "without optimization"),
            (|record| record.arguments.runs = 2, "fewer than 3 rounds"),
            (|record| record.arguments.warmup = 0, "no round to warm up"),
            (|record| set_times(record, |_| 0.001), "under 5 ms, to be exact: 1M sendfile 64K"),
            (
                |record| set_times(record, |round| f64::from(round * round)),
                "noisy, the slowest sample over 2 times the fastest: 1M sendfile 64K",
            ),
            (|record| set_reads(record, 1 << 19), "50 % of the source came from the disk"),
            (|record| record.samples[0].other_cpu_s = 1.0, "of the processor time"),
            (|record| record.environment.load_average[0] = 1.5, "load average was 1.50"),
            (|record| record.environment.second_core = 0, "one core"),
            (|record| record.environment.congestion = Some("bbr".to_owned()), "bbr paces"),
            (|record| record.arguments.cold = true, "only 0 % of the source came from the disk"),
        ];
        for (spoil, words) in cases {
            let mut record = with_runs(5);
            spoil(&mut record);
            let found = warnings(&record);
            assert!(found.iter().any(|warning| warning.contains(words)), "{words}: {found:?}");
        }
    }

    #[test]
    fn what_speaks_against_a_run_with_servers_is_named() {
        type Spoil = fn(&mut Record);
        let of_ours = |record: &mut Record, spoil: fn(&mut Sample)| {
            record.samples.iter_mut().filter(|sample| sample.cell == 1).for_each(spoil);
        };
        assert_eq!(warnings(&requests_record()).len(), 1, "two rounds are few");
        assert_eq!(warnings(&fairness_record()).len(), 1);
        let cases: [(Spoil, &str); 4] = [
            (|record| record.environment.nginx = None, "nginx is not installed"),
            (|record| record.environment.second_core = 0, "server and load shared one core"),
            (|record| record.arguments.cold = true, "only 0 % of the source"),
            (|record| record.environment.congestion = Some("bbr".to_owned()), "bbr paces"),
        ];
        for (spoil, words) in cases {
            let mut record = requests_record();
            spoil(&mut record);
            let found = warnings(&record);
            assert!(found.iter().any(|warning| warning.contains(words)), "{words}: {found:?}");
        }
        let mut record = requests_record();
        of_ours(&mut record, |sample| {
            let load = sample.peer.as_mut().and_then(|peer| peer.thread.as_mut()).unwrap();
            load.system_s = 1.9;
        });
        let words = "requests in a second are as many as the load could make: 1K underpass";
        assert!(warnings(&record).iter().any(|warning| warning == words), "{record:?}");
        of_ours(&mut record, |sample| sample.measured.process.as_mut().unwrap().cpu_s = 0.1);
        let words = "under 400 ms of processor time in a sample: 1K underpass";
        assert!(warnings(&record).iter().any(|warning| warning == words), "{record:?}");
    }

    #[test]
    fn what_speaks_against_a_run_with_clients_is_named() {
        assert_eq!(warnings(&get_record()).len(), 1, "two rounds are few");
        let found = warnings(&put_record());
        let words = "dufs is not installed: it is missing from the comparison";
        assert!(found.iter().any(|warning| warning == words), "{found:?}");
        let mut record = get_record();
        record.environment.second_core = 1;
        record.samples[0].wall_s = 100.0;
        record.samples[7].peer.as_mut().unwrap().process.as_mut().unwrap().storage_read_bytes =
            8 << 20;
        let found = warnings(&record);
        for words in ["server and client shared one core", "1M curl", "100 % of the source"] {
            assert!(found.iter().any(|warning| warning.contains(words)), "{words}: {found:?}");
        }
    }

    #[test]
    fn what_is_true_of_all_cells_of_a_size_is_said_once() {
        let mut record = chain_record(&[1, 2], &[1.0, 1.0]);
        for sample in &mut record.samples[..3] {
            sample.wall_s = 0.001;
        }
        record.samples[3].wall_s = 0.1;
        let found = warnings(&record);
        let words = "too short, under 5 ms, to be exact: 1 all; 2 one buffer";
        assert!(found.iter().any(|warning| warning == words), "{found:?}");
    }
}
