//! The tables, drawn from a record alone: the same record gives the same bytes.

use indicatif::BinaryBytes;

use super::cp;
use super::hostile;
use super::layout::{Columns, three_digits};
use super::names::command;
use super::record::{Over, Record, Role, Sample, Scenario, SinkKind, Thread};
use super::serve;
use super::statistics::{Metric, Summary};
use super::transfer;
use super::trust::warnings;
use super::views::calls::{NOTE, TITLE, calls};
use super::views::quantity::name;
use super::way::{Step, Way, short_size};

/// Everything that a record tells people.
pub(crate) fn render(record: &Record) -> String {
    let mut parts = vec![heading(record)];
    match record.scenario {
        Scenario::Chain => parts.push(chain(record)),
        Scenario::ArticleChunks
        | Scenario::ArticleCopy
        | Scenario::ArticleTable
        | Scenario::Copy
        | Scenario::Limit
        | Scenario::Net => parts.extend(transfers(record)),
        Scenario::Scale
        | Scenario::Serve
        | Scenario::ServeFairness
        | Scenario::ServeHandshakes
        | Scenario::ServeIdle => {
            parts.push(serve::render(record));
        }
        Scenario::Get | Scenario::Put | Scenario::Tree => parts.extend(transfer::render(record)),
        Scenario::Cp => parts.extend(cp::render(record)),
        Scenario::Hostile => parts.push(hostile::render(record)),
    }
    if let Some(table) = calls(record) {
        let mut columns = Columns::new(table.headings);
        let text = |cells: Vec<[String; 2]>| cells.into_iter().map(|[text, _]| text).collect();
        table.lines.into_iter().for_each(|cells| columns.line(text(cells)));
        parts.push(format!("{TITLE}. {NOTE}\n{}", columns.draw()));
    }
    let doubts = warnings(record);
    parts.push(match doubts.as_slice() {
        [] => "Nothing was found that speaks against these figures.\n".to_owned(),
        doubts => format!("Before you believe it:\n- {}\n", doubts.join("\n- ")),
    });
    parts.join("\n")
}

/// The tables of transfers: time and processor time by size, then all that is known of the largest.
fn transfers(record: &Record) -> Vec<String> {
    let (time, cpu) = match record.arguments.side {
        Role::Copier => (
            "Time in ms, from the start of the process to its end",
            "Processor time of the process in ms, user and system".to_owned(),
        ),
        side => (
            "Time in ms, of sender or receiver, whichever took longer",
            format!("Processor time of the {} in ms, user and system", name(side)),
        ),
    };
    let mut parts = vec![
        format!("{time}\n{}", by_size(record, Metric::Wall)),
        format!("{cpu}\n{}", by_size(record, Metric::Cpu)),
    ];
    if let Some(size) = record.sizes().into_iter().max() {
        parts.push(format!("All of {}\n{}", short_size(size), in_full(record, size)));
    }
    parts
}

/// What was measured, where, and how the figures are to be read.
fn heading(record: &Record) -> String {
    let (arguments, scenario) = (&record.arguments, record.scenario);
    let cache = match (arguments.cold, scenario) {
        (true, Scenario::ServeFairness) => "warm for the hot file alone",
        (true, _) => "cold",
        (false, _) => "warm",
    };
    let command = command(scenario);
    let at_step = match scenario {
        Scenario::Copy | Scenario::Net => "; @ is the step that took the least time",
        _ => "",
    };
    format!(
        "underpass {} bench {command}, {}: {}, page cache {cache}\n{}\n\
         Medians of {}, {} before to warm up, the least and the most below; x is the median of the \
         ratios\nto {} in the same round{}.\n",
        record.underpass,
        record.started,
        subject(record),
        place(record),
        rounds(arguments.runs),
        rounds(arguments.warmup),
        baseline(record),
        at_step,
    )
}

/// From where to where the bytes were moved.
pub(crate) fn subject(record: &Record) -> String {
    let target = record.environment.target_file_system.as_deref().unwrap_or_default();
    let source = &record.environment.source_file_system;
    let link = match record.arguments.over {
        Over::Loopback => "loopback",
        Over::Veth => "a veth pair",
    };
    match (record.scenario, record.arguments.sink) {
        (Scenario::Chain, _) => format!("header and file on {source} to TCP on loopback"),
        (Scenario::Copy | Scenario::ArticleCopy, _) => {
            format!("file on {source} to file on {target}")
        }
        (Scenario::Net, Some(SinkKind::File)) => {
            format!("file on {source} to TCP on {link} to file on {target}")
        }
        (Scenario::ArticleChunks | Scenario::ArticleTable | Scenario::Limit | Scenario::Net, _) => {
            format!("file on {source} to TCP on {link}, dropped there")
        }
        (Scenario::Get | Scenario::Put | Scenario::Tree, _) => transfer::title(record),
        (Scenario::Cp, _) => cp::title(record),
        _ => serve::title(record),
    }
}

/// The machine, and the programs beside ours.
pub(crate) fn place(record: &Record) -> String {
    let environment = &record.environment;
    let mut place = vec![
        format!("Linux {} on {}", environment.kernel, environment.machine),
        environment.cpu.clone(),
        format!("{} cores", environment.cores),
        BinaryBytes(environment.memory_bytes).to_string(),
    ];
    if let Some(used) = &environment.congestion {
        place.push(format!("{used} (the system's default: {})", environment.congestion_default));
    }
    let peers = environment.cp.iter().chain(&environment.nginx).chain(&environment.programs);
    place.extend(peers.cloned());
    place.join(", ")
}

/// How the figures are to be read, in a sentence.
pub(crate) fn reading(record: &Record) -> String {
    let arguments = &record.arguments;
    format!(
        "Medians of {}, {} before to warm up; error bars and ranges go from the least to the most. \
         A ratio is the median of those to {} in the same round.",
        rounds(arguments.runs),
        rounds(arguments.warmup),
        baseline(record),
    )
}

fn rounds(count: u32) -> String {
    format!("{count} {}", if count == 1 { "round" } else { "rounds" })
}

/// What the others are compared with, for people.
pub(crate) fn baseline(record: &Record) -> String {
    match record.scenario {
        Scenario::Chain => "one buffer".to_owned(),
        Scenario::Copy | Scenario::Net => format!("the traditional {}", record.baseline),
        Scenario::Get | Scenario::Put | Scenario::Tree => transfer::label(record.baseline.way),
        Scenario::Cp => cp::label(record.baseline.way),
        Scenario::ArticleChunks
        | Scenario::ArticleCopy
        | Scenario::ArticleTable
        | Scenario::Hostile
        | Scenario::Limit
        | Scenario::Scale
        | Scenario::Serve
        | Scenario::ServeFairness
        | Scenario::ServeHandshakes
        | Scenario::ServeIdle => record.baseline.to_string(),
    }
}

/// The table of the articles: a line for each size, a column for each way at its best step.
fn by_size(record: &Record, metric: Metric) -> String {
    let ways = record.ways();
    let headings = ["size", "traditional"].map(str::to_owned).into_iter();
    let mut columns = Columns::new(headings.chain(ways.iter().map(ToString::to_string)));
    for size in record.sizes() {
        let mut first = vec![short_size(size)];
        let mut second = vec![String::new()];
        let baseline = record.cell(size, record.baseline);
        if let Some(summary) = baseline.and_then(|cell| record.summary(cell, metric)) {
            first.push(milliseconds(summary));
            second.push(range(summary, MILLI));
        }
        for way in &ways {
            let (above, below) = match record.best(size, *way) {
                None => ("-".to_owned(), String::new()),
                Some(cell) => best(record, cell, metric),
            };
            first.push(above);
            second.push(below);
        }
        columns.line(first);
        columns.line(second);
    }
    columns.draw()
}

/// A cell of the table as two lines.
fn best(record: &Record, index: usize, metric: Metric) -> (String, String) {
    let cell = &record.cells[index];
    if let Some(errno) = &cell.declined {
        return ("declined".to_owned(), errno.clone());
    }
    let Some(summary) = record.summary(index, metric) else {
        return ("-".to_owned(), String::new());
    };
    let has_steps = !matches!(cell.variant.step, Step::Default);
    let step = if has_steps { format!(" @{}", cell.variant.step) } else { String::new() };
    let above = format!("{} {}", milliseconds(summary), times(record.ratio(index, metric)));
    (above, format!("{}{step}", range(summary, MILLI)))
}

/// Every cell of one size, with all that was counted.
fn in_full(record: &Record, size: u64) -> String {
    let has_peer = record.samples.iter().any(|sample| sample.peer.is_some());
    let mut headings = vec!["", "ms", "least-most", "x", "CPU ms", "x"];
    headings.extend(has_peer.then_some("peer CPU ms"));
    headings.extend(["calls", "switches", "forced", "faults", "user-space MiB"]);
    let mut columns = Columns::new(headings);
    for (index, cell) in record.cells.iter().enumerate().filter(|(_, cell)| cell.size == size) {
        let mut line = vec![cell.variant.to_string()];
        let (Some(wall), Some(cpu)) =
            (record.summary(index, Metric::Wall), record.summary(index, Metric::Cpu))
        else {
            line.extend(["declined".to_owned(), cell.declined.clone().unwrap_or_default()]);
            columns.line(line);
            continue;
        };
        line.extend([milliseconds(wall), range(wall, MILLI)]);
        line.push(times(record.ratio(index, Metric::Wall)));
        line.extend([milliseconds(cpu), times(record.ratio(index, Metric::Cpu))]);
        if has_peer {
            line.push(record.summary(index, Metric::PeerCpu).map_or_else(dash, milliseconds));
        }
        line.extend(counts(record, index));
        columns.line(line);
    }
    columns.draw()
}

/// Medians of what was counted: calls, switches, faults, bytes in user space.
fn counts(record: &Record, index: usize) -> impl Iterator<Item = String> {
    type Count = fn(&Thread) -> u64;
    let counts: [Count; 5] = [
        |thread| thread.calls,
        |thread| thread.voluntary_switches,
        |thread| thread.involuntary_switches,
        |thread| thread.minor_faults + thread.major_faults,
        |thread| thread.user_space_bytes >> 20,
    ];
    counts.into_iter().map(move |count| {
        let of_sample = |sample: &Sample| sample.measured.thread.as_ref().map(|t| count(t) as f64);
        record.median(index, of_sample).map_or_else(dash, |median| format!("{median:.0}"))
    })
}

/// The table of small files, and where the crossover lies.
fn chain(record: &Record) -> String {
    let baseline = record.baseline;
    let mut columns = Columns::new([
        "size",
        "one buffer",
        "header + sendfile",
        "x",
        "one buffer",
        "header + sendfile",
        "x",
    ]);
    let unit = |text: &str| text.to_owned();
    columns.line(vec![
        String::new(),
        unit("CPU us"),
        unit("CPU us"),
        String::new(),
        unit("time us"),
        unit("time us"),
        String::new(),
    ]);
    for size in record.sizes() {
        let cells = [record.cell(size, baseline), record.best(size, SENDFILE)];
        let (mut first, mut second) = (vec![short_size(size)], vec![String::new()]);
        for metric in [Metric::Cpu, Metric::Wall] {
            for cell in cells {
                let summary = cell.and_then(|cell| record.summary(cell, metric));
                first.push(summary.map_or_else(dash, |all| three_digits(all.median * MICRO)));
                second.push(summary.map_or_else(String::new, |all| range(all, MICRO)));
            }
            first.push(times(cells[1].and_then(|cell| record.ratio(cell, metric))));
            second.push(String::new());
        }
        columns.line(first);
        columns.line(second);
    }
    let responses = record.arguments.responses.unwrap_or(1);
    let crossover = match record.crossover(SENDFILE) {
        0 => "One buffer is the cheaper one at no size.".to_owned(),
        limit => format!("One buffer costs the server less up to {}.", short_size(limit)),
    };
    let caption = format!(
        "Each of {responses} responses over one connection; processor time is the server's"
    );
    format!("{caption}\n{}\n{crossover}\n", columns.draw())
}

fn milliseconds(summary: Summary) -> String {
    three_digits(summary.median * MILLI)
}

/// The least and the most.
pub(crate) fn range(summary: Summary, unit: f64) -> String {
    format!("{}-{}", three_digits(summary.min * unit), three_digits(summary.max * unit))
}

/// The median, the least and the most, in milliseconds.
pub(crate) fn figures(summary: Option<Summary>) -> [String; 2] {
    match summary {
        Some(all) => [milliseconds(all), range(all, MILLI)],
        None => [dash(), dash()],
    }
}

/// A ratio.
pub(crate) fn times(ratio: Option<Summary>) -> String {
    ratio.map_or_else(dash, |ratio| format!("{:.2}x", ratio.median))
}

/// What is not known.
pub(crate) fn dash() -> String {
    "-".to_owned()
}

/// Milliseconds for each second.
pub(crate) const MILLI: f64 = 1e3;
/// Microseconds for each second.
pub(crate) const MICRO: f64 = 1e6;
/// Bytes of a MiB.
pub(crate) const MEBI: f64 = (1 << 20) as f64;
const SENDFILE: Way = Way::Only(underpass_engine::Mechanism::Sendfile);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{chain_record, net_record};

    #[test]
    fn the_same_record_gives_the_same_table_byte_for_byte() {
        let record = net_record();
        assert_eq!(render(&record), include_str!("snapshots/net.txt"));
        assert_eq!(render(&record), render(&record));
    }

    #[test]
    fn the_table_of_small_files_names_the_crossover() {
        let record = chain_record(&[8 << 10, 16 << 10, 32 << 10], &[1.5, 1.25, 0.75]);
        assert_eq!(render(&record), include_str!("snapshots/chain.txt"));
    }
}
