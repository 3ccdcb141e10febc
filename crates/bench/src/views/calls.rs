//! System calls by name, with the time that each took, as the counted pass of a record has them.

use super::document::{Table, dash};
use crate::record::{Call, Counted, Record, Unit, served_amount, served_in, three_digits};

/// The calls at the largest size, of each process those that took longest; none if nothing was counted.
pub(crate) fn calls(record: &Record) -> Option<Table> {
    let size = |counted: &&Counted| record.cells.get(counted.cell).map(|cell| cell.size);
    let largest = record.counted.iter().filter_map(|counted| size(&counted)).max()?;
    let told: Vec<_> = record.counted.iter().filter(|one| size(one) == Some(largest)).collect();
    let has_sides = told.iter().any(|one| one.role != told[0].role);
    let mut headings = vec!["program"];
    headings.extend(has_sides.then_some("side"));
    let is_served = told.iter().any(|one| one.served_bytes.is_some());
    headings.extend(["call", "calls"]);
    let share = format!("each {}", served_in(record));
    headings.extend(is_served.then_some(share.as_str()));
    headings.extend(["errors", "ms", "usecs/call", "of the time"]);
    let mut lines = Vec::new();
    for counted in told {
        let calls = longest(counted);
        let whole: f64 = calls.iter().map(|call| call.seconds).sum();
        let is_told = |call: &&Call| call.seconds >= whole * MIN_SHARE;
        for (index, call) in calls.into_iter().take(MAX_LINES).filter(is_told).enumerate() {
            let first = |text: String| if index == 0 { text } else { String::new() };
            let mut line = vec![first(record.label(counted.cell))];
            line.extend(has_sides.then(|| first(counted.role.name().to_owned())));
            line.extend([call.name.clone(), call.calls.to_string()]);
            line.extend(is_served.then(|| each(call, served_amount(record, counted))));
            line.extend(figures(call, whole));
            lines.push(line.into_iter().map(|text| [text, String::new()]).collect());
        }
    }
    let headings = headings.into_iter().map(str::to_owned).collect();
    let title = "System calls by name. Counted in a pass of its own, where each takes longer for \
         being watched; those that only wait are left out"
        .to_owned();
    Some(Table { title, headings, lines, words: 2 + usize::from(has_sides) })
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
const MAX_LINES: usize = 3;

/// The least share of the time that is worth a line.
const MIN_SHARE: f64 = 0.005;

/// Calls whose time is that of another's work.
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
