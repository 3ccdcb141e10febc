//! The table of `bench cp`, drawn from a record alone.

use indicatif::{BinaryBytes, HumanCount};

use super::copiers::{Copier, is_ours};
use super::record::{Chilled, Copies, Earlier, Kind};
use crate::layout::{Columns, three_digits};
use crate::record::{Record, Sample};
use crate::statistics::Metric;
use crate::table::{MEBI, dash, figures, range, times};
use crate::way::Way;

/// What was measured, for the first line.
pub(crate) fn title(record: &Record) -> String {
    let source = &record.environment.source_file_system;
    let target = record.environment.target_file_system.as_deref().unwrap_or_default();
    let what = match record.copies.as_ref().map(|copies| copies.original) {
        Some(Kind::Folder | Kind::SmallFiles) => "folder",
        Some(Kind::Sparse) => "file with holes",
        _ => "file",
    };
    format!("{what} on {source} to {target}")
}

/// A way as people call it.
pub(crate) fn label(way: Way) -> String {
    match way {
        Way::Copier(Copier::Cp) => "cp -a".to_owned(),
        Way::Copier(Copier::Dense) => "underpass, without holes".to_owned(),
        Way::Copier(Copier::Rsync) => "rsync -a".to_owned(),
        way => way.to_string(),
    }
}

/// The tables of the record, and what was run.
pub(crate) fn render(record: &Record) -> Vec<String> {
    let Some(copies) = &record.copies else { return Vec::new() };
    let mut parts = vec![costs(record, copies)];
    parts.extend(against_each(record));
    parts.push(commands(copies));
    parts
}

/// Time and processor time, a line for each way.
fn costs(record: &Record, copies: &Copies) -> String {
    let mut columns = Columns::new([
        "size",
        "program",
        "ms",
        "least-most",
        "x",
        "files/s",
        "MiB/s",
        "CPU ms",
        "least-most",
        "x",
    ]);
    for (index, cell) in record.cells.iter().enumerate() {
        let mut line = vec![BinaryBytes(cell.size).to_string(), label(cell.variant.way)];
        line.extend(figures(record.summary(index, Metric::Wall)));
        line.push(times(record.ratio(index, Metric::Wall)));
        for amount in [copies.files as f64, moved(copies, cell.size) as f64 / MEBI] {
            let rate = |sample: &Sample| Some(amount / sample.wall_s);
            let rate = record.summary_by(index, rate);
            line.push(rate.map_or_else(dash, |all| three_digits(all.median)));
        }
        line.extend(figures(record.summary(index, Metric::Cpu)));
        line.push(times(record.ratio(index, Metric::Cpu)));
        columns.line(line);
    }
    format!("{}\n{}", caption(record, copies), columns.draw())
}

/// Bytes that have to be moved: holes have not.
const fn moved(copies: &Copies, size: u64) -> u64 {
    match copies.original {
        Kind::Sparse if copies.allocated_bytes < size => copies.allocated_bytes,
        _ => size,
    }
}

fn caption(record: &Record, copies: &Copies) -> String {
    let bytes = record.cells.first().map_or(0, |cell| cell.size);
    let (files, bytes) = (HumanCount(copies.files), BinaryBytes(bytes));
    let what = match copies.original {
        Kind::File => "A file".to_owned(),
        Kind::Folder => format!("{files} files, {bytes}"),
        Kind::SmallFiles => format!("{files} files of 1 to 16 KiB, {bytes}"),
        Kind::Sparse => {
            format!("A file of {bytes}, {} of them data", BinaryBytes(copies.allocated_bytes))
        }
    };
    let memory = match copies.chilled {
        None => "in the page cache",
        Some(Chilled::AllCaches) => "in no cache",
        Some(Chilled::PageCache) => "not in the page cache, though its names and facts may be",
    };
    let earlier = match copies.earlier {
        Earlier::Stay => "earlier copies stay, out of the page cache",
        Earlier::Removed => "earlier copies are removed",
    };
    format!(
        "{what}; {memory}; {earlier}.\nTime from the start of the process to its end, and processor \
         time of the whole of it with its children"
    )
}

/// What ours take of what each of the others takes; nothing if there is none.
fn against_each(record: &Record) -> Option<String> {
    let mut columns =
        Columns::new(["size", "program", "to", "time x", "least-most", "CPU x", "least-most"]);
    let mut is_empty = true;
    let is_mine = |way| way == Way::Underpass;
    for (index, cell) in record.cells.iter().enumerate().filter(|(_, it)| is_mine(it.variant.way)) {
        let others = record.cells.iter().enumerate();
        for (other, of) in others.filter(|(at, it)| *at != index && it.size == cell.size) {
            let mut line = vec![BinaryBytes(cell.size).to_string()];
            line.extend([label(cell.variant.way), label(of.variant.way)]);
            for metric in [Metric::Wall, Metric::Cpu] {
                let value = |sample: &Sample| Some(record.value(metric, sample));
                let ratio = record.ratio_between(index, other, value);
                line.extend([times(ratio), ratio.map_or_else(dash, |all| range(all, 1.0))]);
            }
            columns.line(line);
            is_empty = false;
        }
    }
    let caption = "What ours takes of what each of the others takes in the same round";
    (!is_empty).then(|| format!("{caption}\n{}", columns.draw()))
}

/// What was run.
fn commands(copies: &Copies) -> String {
    let lines = copies.commands.iter();
    let lines = lines.map(|each| format!("{}: {}\n", label(each.way), each.command));
    let ours =
        copies.original != Kind::Sparse && copies.commands.iter().any(|each| is_ours(each.way));
    let verified =
        if ours { "Before that each copy was compared, ours with --verify, too\n" } else { "" };
    format!("What was run\n{}{verified}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use crate::cp::fixture::cp_record;
    use crate::table;

    #[test]
    fn the_same_record_gives_the_same_table_byte_for_byte() {
        assert_eq!(table::render(&cp_record()), include_str!("../snapshots/cp.txt"));
    }
}
