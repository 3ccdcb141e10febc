//! System calls by name, with the time that each took, as the counted pass of a record has them.

use super::quantity::{name, served, served_in};
use super::table::Table;
use super::unit::Unit;
use crate::counted::{Call, Counted};
use crate::layout::three_digits;
use crate::names::cell_label;
use crate::record::Record;
use crate::table::dash;

/// What the table is, as its heading or its first line says.
pub(crate) const TITLE: &str = "System calls by name";

/// How the table is to be read.
pub(crate) const NOTE: &str = "Counted in a pass of its own, where each takes longer for being watched; those that only wait are left out";

/// The calls at the largest size, of each process those that took longest; none if nobody counted.
pub(crate) fn calls(record: &Record) -> Option<Table> {
    let size = |counted: &&Counted| record.cells.get(counted.cell).map(|cell| cell.size);
    let largest = record.counted.iter().filter_map(|counted| size(&counted)).max()?;
    let told: Vec<_> = record.counted.iter().filter(|one| size(one) == Some(largest)).collect();
    let has_sides = told.iter().any(|one| one.role != told[0].role);
    let mut headings = vec!["program"];
    headings.extend(has_sides.then_some("side"));
    let is_served = told.iter().any(|one| one.served_bytes.is_some());
    headings.extend(["call", "calls"]);
    let share = format!("each {}", served_in(record.scenario));
    headings.extend(is_served.then_some(share.as_str()));
    headings.extend(["errors", "ms", "usecs/call", "of the time"]);
    let mut lines = Vec::new();
    for counted in told {
        let calls = longest(counted);
        let whole: f64 = calls.iter().map(|call| call.seconds).sum();
        let is_told = |call: &&Call| call.seconds >= whole * LEAST;
        for (index, call) in calls.into_iter().take(TOLD).filter(is_told).enumerate() {
            let first = |text: String| if index == 0 { text } else { String::new() };
            let mut line = vec![first(cell_label(record, counted.cell))];
            line.extend(has_sides.then(|| first(name(counted.role).to_owned())));
            line.extend([call.name.clone(), call.calls.to_string()]);
            line.extend(is_served.then(|| each(call, served(record, counted))));
            line.extend(figures(call, whole));
            lines.push(line.into_iter().map(|text| [text, String::new()]).collect());
        }
    }
    let headings = headings.into_iter().map(str::to_owned).collect();
    Some(Table { headings, lines, words: 1 + usize::from(has_sides) })
}

/// The calls of a process, those that took longest first, without those that wait for others.
fn longest(counted: &Counted) -> Vec<&Call> {
    let works = |call: &&Call| !WAITS.contains(&call.name.as_str());
    let mut calls: Vec<_> = counted.calls.iter().filter(works).collect();
    calls.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    calls
}

/// How often a call was made for each response or GiB.
fn each(call: &Call, amount: Option<f64>) -> String {
    amount.map_or_else(dash, |amount| Unit::Count.show(call.calls as f64 / amount))
}

fn figures(call: &Call, whole: f64) -> [String; 4] {
    let each = call.seconds * 1e6 / call.calls.max(1) as f64;
    let share = if whole > 0.0 { call.seconds / whole * 100.0 } else { 0.0 };
    [
        call.errors.to_string(),
        three_digits(call.seconds * 1e3),
        three_digits(each),
        format!("{share:.1} %"),
    ]
}

/// Lines of a process at the most.
const TOLD: usize = 3;

/// The least share of the time that is worth a line.
const LEAST: f64 = 0.005;

/// Calls whose time is that of somebody else's work.
const WAITS: [&str; 14] = [
    "accept",
    "accept4",
    "clock_nanosleep",
    "epoll_pwait",
    "epoll_wait",
    "futex",
    "nanosleep",
    "poll",
    "ppoll",
    "pselect6",
    "restart_syscall",
    "select",
    "wait4",
    "waitid",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counted::Tally;
    use crate::fixture::net_record;
    use crate::record::Role;
    use crate::serve::requests_record;
    use crate::views::quantities;

    #[test]
    fn those_that_took_longest_at_the_largest_size_are_told() {
        let mut record = net_record();
        record.cells[0].size = 1 << 10;
        assert!(calls(&record).is_none());
        let call =
            |name: &str, calls, seconds| Call { name: name.to_owned(), calls, errors: 1, seconds };
        let of = |cell, role, calls| Tally::new(role, calls).of(cell);
        let sizes: Vec<_> = record.cells.iter().map(|cell| cell.size).collect();
        let largest = (0..sizes.len()).max_by_key(|cell| sizes[*cell]).unwrap_or(0);
        let smallest = (0..sizes.len()).min_by_key(|cell| sizes[*cell]).unwrap_or(0);
        assert_ne!(sizes[largest], sizes[smallest]);
        let many = vec![
            call("close", 2, 0.0),
            call("futex", 9, 9.0),
            call("read", 4, 0.001),
            call("write", 8, 0.003),
            call("brk", 1, 0.0),
            call("x", 1, 0.0),
        ];
        record.counted = vec![
            of(smallest, Role::Sender, vec![call("mmap", 1, 1.0)]),
            of(largest, Role::Sender, many),
            of(largest, Role::Receiver, vec![call("recv", 1, 0.5)]),
        ];
        let table = calls(&record).unwrap_or_default();
        let text = |line: &Vec<[String; 2]>| {
            line.iter().map(|cell| cell[0].clone()).collect::<Vec<_>>().join(" ")
        };
        let lines: Vec<_> = table.lines.iter().map(text).collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].ends_with("sender write 8 1 3.00 375 75.0 %"), "{lines:?}");
        assert!(lines[1].ends_with("read 4 1 1.00 250 25.0 %"), "{lines:?}");
        assert!(lines[2].ends_with("receiver recv 1 1 500 500000 100.0 %"), "{lines:?}");
    }

    #[test]
    fn calls_of_a_server_are_told_for_what_it_served() {
        let mut record = requests_record();
        let largest = (0..record.cells.len()).max_by_key(|cell| record.cells[*cell].size);
        let cell = largest.unwrap_or(0);
        let sendfile = Call { name: "sendfile".to_owned(), calls: 10, errors: 0, seconds: 0.01 };
        let bytes = record.cells[cell].size * 4;
        record.counted = vec![Tally::while_serving(vec![sendfile], bytes).of(cell)];
        let table = calls(&record).unwrap_or_default();
        assert_eq!(table.headings[1..4], ["call", "calls", "each response"]);
        assert_eq!(table.lines[0][1..4].concat(), ["sendfile", "", "10", "", "2.50", ""]);
        // The chart tells the same, with those that only wait.
        let quantity = quantities(&record).into_iter().find(|quantity| quantity.name == "calls");
        let sample = record.samples_of(cell).next();
        let value =
            quantity.zip(sample).and_then(|(quantity, sample)| quantity.of(&record, sample));
        assert_eq!(value, Some(2.5));
        let heading = quantity.map(|quantity| quantity.heading(&record));
        assert_eq!(heading.as_deref(), Some("System calls of the server for each response"));
    }
}
