//! The tables of the scenarios with clients, drawn from a record alone.

use indicatif::BinaryBytes;

use super::record::{Memory, Pin, Transfers};
use crate::layout::{Columns, three_digits};
use crate::record::{Record, Sample, Scenario};
use crate::statistics::Metric;
use crate::table::{MEBI, dash, figures, range, times};
use crate::way::{Way, short_size};

/// What was measured, for the first line.
pub(crate) fn title(record: &Record) -> String {
    let source = &record.environment.source_file_system;
    let target = record.environment.target_file_system.as_deref().unwrap_or_default();
    let server = transfers(record).and_then(|transfers| transfers.server);
    let server = match server {
        Some(Way::Nginx) => "nginx",
        _ => "underpass serve",
    };
    match record.scenario {
        Scenario::Put => {
            format!("file on {source} by HTTP on loopback to a server's file on {target}")
        }
        Scenario::Tree => {
            format!("folder on {source} from {server} by HTTP on loopback to folder on {target}")
        }
        _ => format!("file on {source} from {server} by HTTP on loopback to file on {target}"),
    }
}

/// A way as people call it.
pub(crate) fn label(way: Way) -> String {
    match way {
        Way::CurlToDufs => "curl to dufs".to_owned(),
        Way::CurlToNginx => "curl to nginx".to_owned(),
        Way::CurlToUnderpass => "curl to underpass".to_owned(),
        Way::UnderpassSynced => "underpass synced".to_owned(),
        way => way.to_string(),
    }
}

/// The tables of the record, and what was run.
pub(crate) fn render(record: &Record) -> Vec<String> {
    let mut parts = vec![costs(record)];
    parts.extend(against_each(record));
    parts.push(commands(record));
    parts
}

/// Time and processor time, a line for each client at each size.
fn costs(record: &Record) -> String {
    let mut columns = Columns::new([
        "size",
        "client",
        "ms",
        "least-most",
        "x",
        "MiB/s",
        "CPU ms",
        "least-most",
        "x",
        "server CPU ms",
        "least-most",
    ]);
    for (index, cell) in record.cells.iter().enumerate() {
        let summary = |metric| record.summary(index, metric);
        let mut line = vec![size(record, cell.size), label(cell.variant.way)];
        line.extend(figures(summary(Metric::Wall)));
        line.push(times(record.ratio(index, Metric::Wall)));
        let rate = |sample: &Sample| Some(cell.size as f64 / sample.wall_s);
        let rate = record.summary_by(index, rate);
        line.push(rate.map_or_else(dash, |all| three_digits(all.median / MEBI)));
        line.extend(figures(summary(Metric::Cpu)));
        line.push(times(record.ratio(index, Metric::Cpu)));
        line.extend(figures(summary(Metric::PeerCpu)));
        columns.line(line);
    }
    format!("{}\n{}", caption(record), columns.draw())
}

fn caption(record: &Record) -> String {
    let places = match transfers(record).map(|transfers| transfers.pinned) {
        Some(Pin::Server) => {
            format!("The server is on core {}, the client on any", record.environment.first_core)
        }
        _ => "Server and client are on any core".to_owned(),
    };
    let memory = match transfers(record).map(|transfers| transfers.memory) {
        Some(Memory::Found) => "the memory is as the client before has left it",
        _ => "all find the memory alike",
    };
    let what = match transfers(record) {
        Some(Transfers { files: Some(files), large, large_bytes, .. }) => format!(
            "{files} files of 1 to 16 KiB and {} of {}.\n",
            large.unwrap_or(0),
            short_size(large_bytes.unwrap_or(0))
        ),
        _ => String::new(),
    };
    format!(
        "{what}Time from the start of the client's process to its end, and processor time of the \
         whole of it.\n{places}; {memory}"
    )
}

/// What ours take of what each of the others takes; nothing if there is none.
fn against_each(record: &Record) -> Option<String> {
    let mut columns =
        Columns::new(["size", "client", "to", "time x", "least-most", "CPU x", "least-most"]);
    let mut is_empty = true;
    for (index, cell) in record.cells.iter().enumerate() {
        let others = record.cells.iter().enumerate().filter(|(_, other)| {
            is_ours(cell.variant.way) && !is_ours(other.variant.way) && other.size == cell.size
        });
        for (other, of) in others {
            let mut line = vec![size(record, cell.size), label(cell.variant.way)];
            line.push(label(of.variant.way));
            for metric in [Metric::Wall, Metric::Cpu] {
                let value = |sample: &Sample| Some(record.value(metric, sample));
                let ratio = record.ratio_between(index, other, value);
                line.extend([times(ratio), ratio.map_or_else(dash, |all| range(all, 1.0))]);
            }
            columns.line(line);
            is_empty = false;
        }
    }
    let caption = "What ours take of what each of the others takes in the same round";
    (!is_empty).then(|| format!("{caption}\n{}", columns.draw()))
}

/// Whether it is not a peer alone: to be compared with those that are.
const fn is_ours(way: Way) -> bool {
    matches!(way, Way::CurlToUnderpass | Way::Underpass | Way::UnderpassSynced)
}

/// What was run.
fn commands(record: &Record) -> String {
    let mut text = "What was run\n".to_owned();
    for commands in transfers(record).iter().flat_map(|transfers| &transfers.commands) {
        text += &format!(
            "{}: {}\n    against {}\n",
            label(commands.way),
            commands.client,
            commands.server
        );
    }
    text
}

fn transfers(record: &Record) -> Option<&Transfers> {
    record.arguments.transfers.as_ref()
}

/// A size as it was typed; of a folder, as it is.
fn size(record: &Record, bytes: u64) -> String {
    match record.scenario {
        Scenario::Tree => BinaryBytes(bytes).to_string(),
        _ => short_size(bytes),
    }
}

#[cfg(test)]
mod tests {
    use crate::table;
    use crate::transfer::fixture::{get_record, put_record, tree_record};

    #[test]
    fn the_same_record_gives_the_same_table_byte_for_byte() {
        for (record, text) in [
            (get_record(), include_str!("../snapshots/get.txt")),
            (put_record(), include_str!("../snapshots/put.txt")),
            (tree_record(), include_str!("../snapshots/tree.txt")),
        ] {
            assert_eq!(table::render(&record), text);
        }
    }

    #[test]
    fn a_record_of_peers_alone_compares_nothing_of_ours() {
        let mut record = get_record();
        let ours = record.cells.len() - 1;
        record.cells.pop();
        record.samples.retain(|sample| sample.cell != ours);
        let text = table::render(&record);
        assert!(!text.contains("What ours take"), "{text}");
    }
}
